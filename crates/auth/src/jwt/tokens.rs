//! Signing and verifying tokens.
//!
//! The header's algorithm must be the configured one, so a token cannot choose how it is checked.
//! Claims count only after the signature was verified.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac;
use ring::rand::SystemRandom;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use super::algorithm::Algorithm;
use super::keys::{KeyError, Keys, SigningKey, VerificationKey};
use super::options::JwtOptions;

/// The length of the longest token that is signed or verified. It bounds the work for a request
/// whose sender is not known yet.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Base64 of tokens. Like etcd, it accepts bits behind the end of the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// The identity that a valid token proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The name of the user.
    pub username: String,
    /// The auth revision at which the token was signed.
    pub revision: u64,
}

/// A token that was not signed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum SignError {
    /// There is only a public key.
    #[error("auth: token signing attempted with verify-only key")]
    VerifyOnly,
    /// The user name is too long: the token would be refused by [`JwtTokens::verify`].
    #[error("token of {bytes} bytes is too long; at most {TOKEN_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    /// The cryptographic library failed, such as without random numbers.
    #[error("signing a token failed")]
    Failed,
}

/// A token that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum VerifyError {
    /// The token is longer than [`TOKEN_BYTES_MAX`].
    #[error("token of {bytes} bytes is too long; at most {TOKEN_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    /// The token is not three parts of base64, or its header or claims are no JSON object.
    #[error("token is malformed: {part}")]
    Malformed { part: &'static str },
    /// The header names another algorithm than the configured one.
    #[error("signing method of the token is not {expected}")]
    Algorithm { expected: Algorithm },
    /// The signature is not one of the configured key.
    #[error("token signature is invalid")]
    Signature,
    /// The token has expired.
    #[error("token is expired")]
    Expired,
    /// The token is not valid yet.
    #[error("token is not valid yet")]
    NotYetValid,
    /// A claim is missing or has the wrong type.
    #[error("claim {name} of the token is missing or invalid")]
    Claim { name: &'static str },
}

/// Signs and verifies tokens with one algorithm and key.
pub struct JwtTokens {
    algorithm: Algorithm,
    ttl: Duration,
    keys: Keys,
    /// The encoded header of every token.
    header: String,
    random: SystemRandom,
}

impl fmt::Debug for JwtTokens {
    // Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtTokens")
            .field("algorithm", &self.algorithm)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

impl JwtTokens {
    /// Takes the contents of the key files that `options` name. With a public key alone it only
    /// verifies.
    ///
    /// # Errors
    /// If the keys are missing, do not fit the algorithm or do not match.
    pub fn new(
        options: &JwtOptions,
        public_pem: Option<&[u8]>,
        private_pem: Option<&[u8]>,
    ) -> Result<JwtTokens, KeyError> {
        let random = SystemRandom::new();
        let algorithm = options.algorithm;
        Ok(JwtTokens {
            algorithm,
            ttl: options.ttl,
            keys: Keys::new(algorithm, public_pem, private_pem, &random)?,
            header: BASE64.encode(format!(r#"{{"alg":"{algorithm}","typ":"JWT"}}"#)),
            random,
        })
    }

    /// Returns the algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns whether there is only a public key.
    #[must_use]
    pub fn is_verify_only(&self) -> bool {
        self.keys.signing.is_none()
    }

    /// Signs a token for a user. `now` is the time since the Unix epoch.
    ///
    /// # Errors
    /// With a public key alone, or if the token is too long.
    pub fn sign(&self, username: &str, revision: u64, now: Duration) -> Result<String, SignError> {
        /// In the order in which Go encodes them.
        #[derive(Serialize)]
        struct SignedClaims<'a> {
            exp: u64,
            revision: u64,
            username: &'a str,
        }
        let claims = SignedClaims {
            exp: now.saturating_add(self.ttl).as_secs(),
            revision,
            username,
        };
        let claims = serde_json::to_vec(&claims).map_err(|_| SignError::Failed)?;
        let mut token = self.header.clone();
        token.push('.');
        BASE64.encode_string(claims, &mut token);
        let signature = self.signature_of(token.as_bytes())?;
        token.push('.');
        BASE64.encode_string(signature, &mut token);
        let bytes = token.len();
        if bytes > TOKEN_BYTES_MAX {
            return Err(SignError::TooLong { bytes });
        }
        Ok(token)
    }

    fn signature_of(&self, signed: &[u8]) -> Result<Vec<u8>, SignError> {
        match self.keys.signing.as_ref().ok_or(SignError::VerifyOnly)? {
            SigningKey::Rsa(key) => {
                let encoding = self.algorithm.rsa_encoding().ok_or(SignError::Failed)?;
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(encoding, &self.random, signed, &mut signature)
                    .map_err(|_| SignError::Failed)?;
                Ok(signature)
            }
            SigningKey::Ecdsa(key) => {
                let signature = key.sign(&self.random, signed);
                Ok(signature.map_err(|_| SignError::Failed)?.as_ref().to_vec())
            }
            SigningKey::Ed25519(key) => Ok(key.sign(signed).as_ref().to_vec()),
            SigningKey::Hmac(key) => Ok(hmac::sign(key, signed).as_ref().to_vec()),
        }
    }

    /// Verifies a token and returns its claims. `now` is the time since the Unix epoch.
    ///
    /// A token without `exp` never expires, as in etcd; [`JwtTokens::sign`] makes no such token.
    ///
    /// # Errors
    /// If the token is not one of this key and algorithm, or is not valid at `now`.
    pub fn verify(&self, token: &str, now: Duration) -> Result<Claims, VerifyError> {
        let bytes = token.len();
        if bytes > TOKEN_BYTES_MAX {
            return Err(VerifyError::TooLong { bytes });
        }
        let malformed = |part| VerifyError::Malformed { part };
        let (signed, signature) = token.rsplit_once('.').ok_or(malformed("parts"))?;
        let (header, claims) = signed.split_once('.').ok_or(malformed("parts"))?;
        if claims.contains('.') {
            return Err(malformed("parts"));
        }
        // The usual header is not decoded: it is compared as it is.
        if header != self.header {
            let header = json_object(header).ok_or(malformed("header"))?;
            if header.get("alg").and_then(Value::as_str) != Some(self.algorithm.name()) {
                return Err(VerifyError::Algorithm {
                    expected: self.algorithm,
                });
            }
        }
        let signature = BASE64
            .decode(signature)
            .map_err(|_| malformed("signature"))?;
        let is_valid = match &self.keys.verification {
            VerificationKey::Public(key) => key.verify(signed.as_bytes(), &signature).is_ok(),
            VerificationKey::Hmac(key) => hmac::verify(key, signed.as_bytes(), &signature).is_ok(),
        };
        if !is_valid {
            return Err(VerifyError::Signature);
        }
        let claims = json_object(claims).ok_or(malformed("claims"))?;
        if let Some(expires) = date(&claims, "exp")?
            && now.as_secs_f64() >= expires
        {
            return Err(VerifyError::Expired);
        }
        if let Some(starts) = date(&claims, "nbf")?
            && now.as_secs_f64() < starts
        {
            return Err(VerifyError::NotYetValid);
        }
        let username = claims.get("username").and_then(Value::as_str);
        let username = username.ok_or(VerifyError::Claim { name: "username" })?;
        Ok(Claims {
            username: username.to_owned(),
            revision: revision(&claims).ok_or(VerifyError::Claim { name: "revision" })?,
        })
    }
}

fn json_object(encoded: &str) -> Option<serde_json::Map<String, Value>> {
    serde_json::from_slice(&BASE64.decode(encoded).ok()?).ok()
}

/// Returns the seconds of a date, without their fraction. As in etcd, 0 is no date.
fn date(
    claims: &serde_json::Map<String, Value>,
    name: &'static str,
) -> Result<Option<f64>, VerifyError> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = value.as_f64().ok_or(VerifyError::Claim { name })?;
    Ok((seconds != 0.0).then(|| seconds.floor()))
}

/// Returns the revision. Like etcd, it reads the number as a float and cuts its fraction.
fn revision(claims: &serde_json::Map<String, Value>) -> Option<u64> {
    const END: f64 = 18_446_744_073_709_551_616.0;
    let revision = claims.get("revision")?.as_f64()?;
    (0.0..END).contains(&revision).then_some(revision as u64)
}
