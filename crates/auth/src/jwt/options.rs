//! The value of `--auth-token` after `jwt`: `pub-key=FILE,priv-key=FILE,sign-method=NAME,ttl=5m`.
//!
//! The rules are etcd's. The files are read by the caller.

use std::time::Duration;

use thiserror::Error;

use super::algorithm::{Algorithm, UnsupportedAlgorithm};

/// The options of signed tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtOptions {
    /// The algorithm of signatures (`sign-method`).
    pub algorithm: Algorithm,
    /// The file with the public key (`pub-key`).
    pub public_key_file: Option<String>,
    /// The file with the private key, or with the shared secret of HS256, HS384 and HS512
    /// (`priv-key`).
    pub private_key_file: Option<String>,
    /// The lifetime of tokens (`ttl`).
    pub ttl: Duration,
    /// Options that do not exist. etcd ignores them with a warning.
    pub unknown: Vec<String>,
}

/// Options that are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum OptionsError {
    /// An option is not of the form `name=value`.
    #[error("auth: invalid auth options: {option:?} is not name=value")]
    NotAPair { option: String },
    /// An option is given twice.
    #[error("auth: invalid auth options: {option} is given twice")]
    Duplicate { option: String },
    /// The lifetime is no duration.
    #[error("auth: invalid auth options: ttl {ttl:?} is not a duration such as 5m or 1h30m")]
    Ttl { ttl: String },
    /// The signature algorithm is missing.
    #[error("auth: invalid auth options: sign-method is missing; supported are {supported}", supported = Algorithm::names())]
    NoSignMethod,
    /// The signature algorithm is not supported.
    #[error("auth: invalid auth options")]
    SignMethod(#[from] UnsupportedAlgorithm),
}

impl JwtOptions {
    /// Parses the text after `jwt` or after `jwt,`. Without `ttl`, tokens live for `default_ttl`.
    ///
    /// # Errors
    /// Where etcd refuses the same text, and for algorithms that are not supported.
    pub fn parse(text: &str, default_ttl: Duration) -> Result<JwtOptions, OptionsError> {
        let text = text.strip_prefix(',').unwrap_or(text);
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for option in text.split(',') {
            if option.is_empty() && text.is_empty() {
                break;
            }
            let pair = option.split_once('=');
            let pair = pair.filter(|(_, value)| !value.contains('='));
            let Some((name, value)) = pair else {
                return Err(OptionsError::NotAPair {
                    option: option.to_owned(),
                });
            };
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(OptionsError::Duplicate {
                    option: name.to_owned(),
                });
            }
            pairs.push((name, value));
        }
        let mut options = JwtOptions {
            algorithm: Algorithm::Rs256,
            public_key_file: None,
            private_key_file: None,
            ttl: default_ttl,
            unknown: Vec::new(),
        };
        let mut sign_method = None;
        for (name, value) in pairs {
            // As in etcd, an empty value is a missing one.
            let value = (!value.is_empty()).then(|| value.to_owned());
            match name {
                "pub-key" => options.public_key_file = value,
                "priv-key" => options.private_key_file = value,
                "sign-method" => sign_method = value,
                "ttl" => {
                    if let Some(ttl) = value {
                        options.ttl = parse_ttl(&ttl).ok_or(OptionsError::Ttl { ttl })?;
                    }
                }
                unknown => options.unknown.push(unknown.to_owned()),
            }
        }
        let sign_method = sign_method.ok_or(OptionsError::NoSignMethod)?;
        options.algorithm = Algorithm::from_name(&sign_method)?;
        Ok(options)
    }
}

/// Parses a Go duration. A negative lifetime is refused: no token would ever be valid.
fn parse_ttl(text: &str) -> Option<Duration> {
    const UNITS_NANOS: [(&str, f64); 8] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("μs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 60e9),
        ("h", 3600e9),
    ];
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos = 0f64;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit_and_rest) = rest.split_at(number_end);
        let unit_end = unit_and_rest.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = unit_and_rest.split_at(unit_end.unwrap_or(unit_and_rest.len()));
        let (_, unit_nanos) = UNITS_NANOS.iter().find(|(name, _)| *name == unit)?;
        nanos += number.parse::<f64>().ok()? * unit_nanos;
        rest = after;
    }
    let is_valid = !text.is_empty() && nanos <= i64::MAX as f64;
    is_valid.then(|| Duration::from_nanos(nanos.round() as u64))
}
