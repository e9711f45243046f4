//! The keys of tokens, from PEM files in the formats that etcd reads.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair, UnparsedPublicKey};
use ring::{error, hmac};
use thiserror::Error;

use super::algorithm::{Algorithm, Family};
use super::der::{self, OID_EC, OID_ED25519, OID_P256, OID_P384, OID_RSA, PublicKeyInfo};

/// A key that signs, or verifies, or both.
pub(super) struct Keys {
    pub signing: Option<SigningKey>,
    pub verification: VerificationKey,
}

pub(super) enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(Box<EcdsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
    Hmac(hmac::Key),
}

pub(super) enum VerificationKey {
    Public(UnparsedPublicKey<Vec<u8>>),
    Hmac(hmac::Key),
}

/// Key files that are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum KeyError {
    /// There is no key, or for HS256, HS384 and HS512 no private key.
    #[error("auth: missing key data")]
    Missing,
    /// The public key is not that of the private key.
    #[error("auth: public and private keys don't match")]
    Mismatch,
    /// The file holds no PEM block.
    #[error("the {which} key is not PEM encoded")]
    NotPem { which: &'static str },
    /// The key is of another kind than the algorithm needs.
    #[error("the {which} key is not a key for {algorithm}")]
    WrongKind {
        which: &'static str,
        algorithm: Algorithm,
    },
    /// The cryptographic library refuses the key, such as an RSA key of less than 2048 bits.
    #[error("the private key is refused for {algorithm}: {reason}")]
    Rejected {
        algorithm: Algorithm,
        reason: String,
    },
    /// An EC private key without its public key, which the library does not compute.
    #[error(
        "the private key for {algorithm} lacks its public key: write it again with `openssl pkcs8 -topk8`"
    )]
    NoPublicKey { algorithm: Algorithm },
}

impl Keys {
    pub(super) fn new(
        algorithm: Algorithm,
        public_pem: Option<&[u8]>,
        private_pem: Option<&[u8]>,
        random: &SystemRandom,
    ) -> Result<Keys, KeyError> {
        // As in etcd, an empty file is a missing one.
        let public_pem = public_pem.filter(|pem| !pem.is_empty());
        let private_pem = private_pem.filter(|pem| !pem.is_empty());
        if let Some(hash) = algorithm.hmac() {
            let key = hmac::Key::new(hash, private_pem.ok_or(KeyError::Missing)?);
            return Ok(Keys {
                signing: Some(SigningKey::Hmac(key.clone())),
                verification: VerificationKey::Hmac(key),
            });
        }
        let signing = match private_pem {
            Some(pem) => {
                let der = first_pem_block(pem).ok_or(KeyError::NotPem { which: "private" })?;
                Some(private_key(algorithm, &der, random)?)
            }
            None => None,
        };
        let given = match public_pem {
            Some(pem) => {
                let der = first_pem_block(pem).ok_or(KeyError::NotPem { which: "public" })?;
                Some(public_key(algorithm, &der)?)
            }
            None => None,
        };
        let public = match (signing.as_ref().and_then(SigningKey::public), given) {
            (None, None) => return Err(KeyError::Missing),
            (Some(own), Some(given)) if own != given => return Err(KeyError::Mismatch),
            (Some(key), _) | (None, Some(key)) => key,
        };
        let verification = algorithm.verification().ok_or(KeyError::Missing)?;
        Ok(Keys {
            signing,
            verification: VerificationKey::Public(UnparsedPublicKey::new(verification, public)),
        })
    }
}

impl SigningKey {
    /// Returns the public key as the verification takes it.
    fn public(&self) -> Option<Vec<u8>> {
        match self {
            SigningKey::Rsa(key) => Some(key.public().as_ref().to_vec()),
            SigningKey::Ecdsa(key) => Some(key.public_key().as_ref().to_vec()),
            SigningKey::Ed25519(key) => Some(key.public_key().as_ref().to_vec()),
            SigningKey::Hmac(_) => None,
        }
    }
}

fn private_key(
    algorithm: Algorithm,
    der: &[u8],
    random: &SystemRandom,
) -> Result<SigningKey, KeyError> {
    let rejected = |reason: error::KeyRejected| KeyError::Rejected {
        algorithm,
        reason: reason.to_string(),
    };
    match algorithm.family() {
        Family::Rsa => {
            let pair = if der::is_pkcs8_private_key(der) {
                RsaKeyPair::from_pkcs8(der)
            } else {
                RsaKeyPair::from_der(der)
            };
            let pair = pair.map_err(rejected)?;
            Ok(SigningKey::Rsa(Box::new(pair)))
        }
        Family::Ecdsa => {
            let signing = algorithm.ecdsa_signing().ok_or(KeyError::Missing)?;
            let pair = match der::ec_private_key(der) {
                Some(key) => {
                    if key.curve.is_some() && key.curve != curve(algorithm) {
                        return Err(KeyError::WrongKind {
                            which: "private",
                            algorithm,
                        });
                    }
                    let public = key.public.ok_or(KeyError::NoPublicKey { algorithm })?;
                    EcdsaKeyPair::from_private_key_and_public_key(
                        signing,
                        key.private,
                        public,
                        random,
                    )
                }
                None => EcdsaKeyPair::from_pkcs8(signing, der, random),
            };
            Ok(SigningKey::Ecdsa(Box::new(pair.map_err(rejected)?)))
        }
        Family::Ed25519 => {
            // The format of openssl has no public key beside the private one.
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(rejected)?;
            Ok(SigningKey::Ed25519(Box::new(pair)))
        }
        Family::Hmac => Err(KeyError::Missing),
    }
}

/// Returns the bytes of the public key as the verification takes them.
fn public_key(algorithm: Algorithm, der: &[u8]) -> Result<Vec<u8>, KeyError> {
    const UNCOMPRESSED: u8 = 4;
    let wrong_kind = KeyError::WrongKind {
        which: "public",
        algorithm,
    };
    let family = algorithm.family();
    if family == Family::Rsa && der::is_pkcs1_public_key(der) {
        return Ok(der.to_vec());
    }
    let certificate = || der::public_key_of_certificate(der);
    let info = der::public_key_info(der).or_else(certificate);
    let Some(PublicKeyInfo {
        algorithm: kind,
        curve: found_curve,
        key,
    }) = info
    else {
        return Err(wrong_kind);
    };
    let fits = match family {
        Family::Rsa => kind == OID_RSA && der::is_pkcs1_public_key(key),
        Family::Ecdsa => {
            kind == OID_EC && found_curve == curve(algorithm) && key.first() == Some(&UNCOMPRESSED)
        }
        Family::Ed25519 => kind == OID_ED25519 && key.len() == 32,
        Family::Hmac => false,
    };
    if fits {
        Ok(key.to_vec())
    } else {
        Err(wrong_kind)
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static [u8]> {
    match algorithm {
        Algorithm::Es256 => Some(OID_P256),
        Algorithm::Es384 => Some(OID_P384),
        _ => None,
    }
}

/// Returns the content of the first PEM block. Its label is ignored, as in etcd: the content
/// decides.
fn first_pem_block(pem: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(pem).ok()?;
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("-----BEGIN ") && line.ends_with("-----"))?;
    let mut encoded = String::new();
    for line in lines {
        if line.starts_with("-----END ") {
            return STANDARD.decode(encoded).ok();
        }
        encoded.push_str(line);
    }
    None
}
