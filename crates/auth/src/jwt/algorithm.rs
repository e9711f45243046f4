//! The signature algorithms of tokens, by the names that `sign-method` and token headers have.

use std::fmt;

use ring::{hmac, signature};
use thiserror::Error;

/// A signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA with the padding of PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// RSA with the padding of PKCS #1 v1.5 and SHA-384.
    Rs384,
    /// RSA with the padding of PKCS #1 v1.5 and SHA-512.
    Rs512,
    /// RSA with the padding PSS and SHA-256.
    Ps256,
    /// RSA with the padding PSS and SHA-384.
    Ps384,
    /// RSA with the padding PSS and SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
}

/// A name of an algorithm that is not supported.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("signing method {name:?} is not supported; supported are {supported}", supported = Algorithm::names())]
pub struct UnsupportedAlgorithm {
    /// The name as given.
    pub name: String,
}

/// The keys that an algorithm takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Rsa,
    Ecdsa,
    Ed25519,
    Hmac,
}

impl Algorithm {
    /// Every supported algorithm. etcd also has ES512, which the cryptographic library lacks.
    pub const ALL: [Algorithm; 12] = [
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::EdDsa,
        Algorithm::Hs256,
        Algorithm::Hs384,
        Algorithm::Hs512,
    ];

    /// Returns the algorithm with this name; names are case-sensitive.
    ///
    /// # Errors
    /// If there is none. `none` is no algorithm.
    pub fn from_name(name: &str) -> Result<Algorithm, UnsupportedAlgorithm> {
        let mut all = Algorithm::ALL.into_iter();
        let found = all.find(|algorithm| algorithm.name() == name);
        found.ok_or_else(|| UnsupportedAlgorithm {
            name: name.to_owned(),
        })
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::EdDsa => "EdDSA",
            Algorithm::Hs256 => "HS256",
            Algorithm::Hs384 => "HS384",
            Algorithm::Hs512 => "HS512",
        }
    }

    /// Returns the names of all supported algorithms, for messages.
    #[must_use]
    pub fn names() -> String {
        Algorithm::ALL.map(Algorithm::name).join(", ")
    }

    pub(super) const fn family(self) -> Family {
        match self {
            Algorithm::Rs256
            | Algorithm::Rs384
            | Algorithm::Rs512
            | Algorithm::Ps256
            | Algorithm::Ps384
            | Algorithm::Ps512 => Family::Rsa,
            Algorithm::Es256 | Algorithm::Es384 => Family::Ecdsa,
            Algorithm::EdDsa => Family::Ed25519,
            Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => Family::Hmac,
        }
    }

    /// Returns the padding and hash of RSA signatures.
    pub(super) fn rsa_encoding(self) -> Option<&'static dyn signature::RsaEncoding> {
        Some(match self {
            Algorithm::Rs256 => &signature::RSA_PKCS1_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_SHA512,
            _ => return None,
        })
    }

    /// Returns the curve and hash of ECDSA signatures, which are two numbers of fixed length.
    pub(super) fn ecdsa_signing(self) -> Option<&'static signature::EcdsaSigningAlgorithm> {
        match self {
            Algorithm::Es256 => Some(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::Es384 => Some(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            _ => None,
        }
    }

    /// Returns the algorithm that verifies signatures of a key pair.
    pub(super) fn verification(self) -> Option<&'static dyn signature::VerificationAlgorithm> {
        Some(match self {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::EdDsa => &signature::ED25519,
            Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => return None,
        })
    }

    /// Returns the hash of signatures with a shared secret.
    pub(super) fn hmac(self) -> Option<hmac::Algorithm> {
        match self {
            Algorithm::Hs256 => Some(hmac::HMAC_SHA256),
            Algorithm::Hs384 => Some(hmac::HMAC_SHA384),
            Algorithm::Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
