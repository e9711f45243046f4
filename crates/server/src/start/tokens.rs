//! Reads the keys of `--auth-token`.

use std::path::PathBuf;

use portunus_auth::jwt::{JwtOptions, JwtTokens};

use super::StartError;
use crate::config::TokenKind;
use crate::handles::auth::Tokens;

/// Makes the tokens that the configuration names.
pub(super) fn read(kind: &TokenKind) -> Result<Tokens, StartError> {
    match kind {
        TokenKind::Simple(ttl) => {
            tracing::info!("simple token is not cryptographically signed");
            Ok(Tokens::simple(*ttl))
        }
        TokenKind::Jwt(options) => Ok(Tokens::Jwt(Box::new(signed(options)?))),
        TokenKind::None => Ok(Tokens::None),
    }
}

fn signed(options: &JwtOptions) -> Result<JwtTokens, StartError> {
    for option in &options.unknown {
        tracing::warn!(option, "unknown option of --auth-token is ignored");
    }
    let public = options.public_key_file.as_deref().map(contents);
    let private = options.private_key_file.as_deref().map(contents);
    let (public, private) = (public.transpose()?, private.transpose()?);
    Ok(JwtTokens::new(
        options,
        public.as_deref(),
        private.as_deref(),
    )?)
}

fn contents(path: &str) -> Result<Vec<u8>, StartError> {
    std::fs::read(path).map_err(|source| StartError::TokenKeyFile {
        path: PathBuf::from(path),
        source,
    })
}
