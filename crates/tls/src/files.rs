//! Reads certificates and keys from PEM files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;

/// The files of a certificate chain and of its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// The chain in PEM format, the own certificate first.
    pub certificate: PathBuf,
    /// The private key in PEM format.
    pub key: PathBuf,
}

/// Why certificates, keys or revocation lists cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum LoadError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file contains nothing of the expected kind.
    #[error("{} contains no {wanted} in PEM format", path.display())]
    Missing { path: PathBuf, wanted: &'static str },
    /// The PEM encoding is damaged.
    #[error("{} is not valid PEM", path.display())]
    Pem { path: PathBuf, source: pem::Error },
    /// A certificate cannot be used as a trusted CA.
    #[error("{} contains a certificate that cannot be a trusted CA", path.display())]
    Ca {
        path: PathBuf,
        source: rustls::Error,
    },
    /// The certificate and the key do not belong together, or their kind is not supported.
    #[error(
        "the certificate in {} and the key in {} cannot be used together",
        certificate.display(),
        key.display()
    )]
    KeyPair {
        certificate: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
    /// The revocation list cannot be parsed.
    #[error("{} is not a certificate revocation list in DER or PEM format", path.display())]
    RevocationList { path: PathBuf },
    /// The system has no trusted CAs.
    #[error("this system has no trusted CA certificates: name a file with the CA of the server")]
    NoSystemRoots,
    /// The settings contradict each other.
    #[error("the TLS settings cannot be used together")]
    Settings(#[source] rustls::Error),
    /// The trusted CAs cannot be used.
    #[error("the trusted CAs cannot be used")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Reads all certificates of a file; there is at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let text = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&text);
    let certificates: Vec<_> =
        certificates
            .collect::<Result<_, _>>()
            .map_err(|source| LoadError::Pem {
                path: path.to_owned(),
                source,
            })?;
    match certificates.is_empty() {
        false => Ok(certificates),
        true => Err(LoadError::Missing {
            path: path.to_owned(),
            wanted: "certificate",
        }),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, LoadError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|source| match source {
        pem::Error::NoItemsFound => LoadError::Missing {
            path: path.to_owned(),
            wanted: "private key",
        },
        source => LoadError::Pem {
            path: path.to_owned(),
            source,
        },
    })
}

/// Reads a certificate chain and its key, and checks that they belong together.
pub(crate) fn key_pair(
    files: &KeyPairFiles,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, LoadError> {
    let chain = certificates(&files.certificate)?;
    let key = private_key(&files.key)?;
    match CertifiedKey::from_der(chain, key, provider) {
        Ok(certified) => Ok(Arc::new(certified)),
        Err(source) => Err(LoadError::KeyPair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        }),
    }
}

/// The state of a file, to find out whether it was replaced or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the state of the file that a path leads to; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Option<FileStamp> {
        let metadata = fs::metadata(path).ok()?;
        Some(FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}
