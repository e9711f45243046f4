//! Settings about users: tokens and the hashes of passwords.

use std::time::Duration;

use portunus_auth::jwt::JwtOptions;

use super::checks::Checks;
use super::{ConfigError, Values, number};

/// The costs that bcrypt has.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=31;
/// The life of simple tokens where none is given, and of signed tokens without `ttl`.
const TOKEN_TTL_DEFAULT: Duration = Duration::from_secs(300);

/// The settings about users and tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    /// How users prove who they are after a login.
    pub tokens: TokenKind,
    /// The cost of hashing a password.
    pub bcrypt_cost: u32,
}

/// The kind of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenKind {
    /// Random tokens that expire this long after their last use.
    Simple(Duration),
    /// Signed tokens.
    Jwt(JwtOptions),
    /// None: only certificates identify users.
    None,
}

impl AuthConfig {
    pub(super) fn from_values(values: &Values, checks: &mut Checks) -> Option<AuthConfig> {
        let ttl = checks.ok(number(values, "auth-token-ttl"));
        let bcrypt_cost = checks.ok(bcrypt_cost(values));
        let ttl = match ttl? {
            0 => TOKEN_TTL_DEFAULT,
            seconds => Duration::from_secs(seconds),
        };
        let tokens = checks.ok(tokens(values.get("auth-token"), ttl));
        Some(AuthConfig {
            tokens: tokens?,
            bcrypt_cost: bcrypt_cost?,
        })
    }
}

fn bcrypt_cost(values: &Values) -> Result<u32, ConfigError> {
    let cost = number(values, "bcrypt-cost")?;
    match BCRYPT_COSTS.contains(&cost) {
        true => Ok(cost),
        false => Err(ConfigError::BcryptCost { cost }),
    }
}

fn tokens(text: &str, ttl: Duration) -> Result<TokenKind, ConfigError> {
    let (kind, options) = text.split_once(',').unwrap_or((text, ""));
    match kind {
        "" => Ok(TokenKind::None),
        "simple" => Ok(TokenKind::Simple(ttl)),
        "jwt" => {
            let options = JwtOptions::parse(options, TOKEN_TTL_DEFAULT);
            Ok(TokenKind::Jwt(options.map_err(ConfigError::JwtOptions)?))
        }
        _ => Err(ConfigError::TokenKind {
            kind: kind.to_owned(),
        }),
    }
}
