//! Self-signed certificates, for `--auto-tls` and `--peer-auto-tls`.
//!
//! They encrypt connections and prove nothing about the other side. Like etcd, a member creates
//! one at its first start and keeps it in its data directory.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

use crate::files::KeyPairFiles;

const CERTIFICATE_FILE: &str = "cert.pem";
const KEY_FILE: &str = "key.pem";
const DAYS_PER_YEAR: i64 = 365;

/// Why no self-signed certificate could be created.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum SelfSignedError {
    /// The validity is zero or beyond the last date.
    #[error("a certificate cannot be valid for {years} years")]
    Validity { years: u32 },
    /// A host cannot be in a certificate, or the key could not be created.
    #[error("cannot generate a certificate for {}", hosts.join(", "))]
    Create {
        hosts: Vec<String>,
        source: rcgen::Error,
    },
    /// A file or directory cannot be written.
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Returns the certificate and the key in a directory; creates them if one is missing. Clients
/// may use the certificate as well.
///
/// # Errors
/// If there are none and none can be created.
pub fn self_signed(
    directory: &Path,
    hosts: &[String],
    validity_years: u32,
) -> Result<KeyPairFiles, SelfSignedError> {
    let files = KeyPairFiles {
        certificate: directory.join(CERTIFICATE_FILE),
        key: directory.join(KEY_FILE),
    };
    if files.certificate.exists() && files.key.exists() {
        return Ok(files);
    }
    let (certificate, key) = create(hosts, validity_years)?;
    let cannot = |path: &Path| {
        let path = path.to_owned();
        |source| SelfSignedError::Write { path, source }
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(cannot(directory))?;
    write(&files.certificate, &certificate, 0o644).map_err(cannot(&files.certificate))?;
    write(&files.key, &key, 0o600).map_err(cannot(&files.key))?;
    tracing::warn!(
        certificate_file = %files.certificate.display(),
        key_file = %files.key.display(),
        validity_years,
        "automatically generate certificates"
    );
    Ok(files)
}

fn create(hosts: &[String], validity_years: u32) -> Result<(String, String), SelfSignedError> {
    let cannot = |source| SelfSignedError::Create {
        hosts: hosts.to_vec(),
        source,
    };
    let invalid = || SelfSignedError::Validity {
        years: validity_years,
    };
    let mut params = CertificateParams::new(hosts).map_err(cannot)?;
    let now = OffsetDateTime::now_utc();
    let validity = Duration::days(DAYS_PER_YEAR * i64::from(validity_years));
    params.not_before = now;
    params.not_after = now.checked_add(validity).ok_or_else(invalid)?;
    if params.not_after <= params.not_before {
        return Err(invalid());
    }
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "portunus");
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate().map_err(cannot)?;
    let certificate = params.self_signed(&key).map_err(cannot)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Replaces a file at once; the new one has the mode from the beginning.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let unfinished = path.with_extension("tmp");
    // A file of an earlier process may have another mode.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut file = options.open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn certificate_is_created_once_and_its_key_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("fixtures/client");
        let hosts = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let files = self_signed(&directory, &hosts, 1).unwrap();
        let mode = fs::metadata(&files.key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let first = fs::read(&files.certificate).unwrap();
        assert_eq!(self_signed(&directory, &hosts, 1).unwrap(), files);
        assert_eq!(fs::read(&files.certificate).unwrap(), first);
        fs::remove_file(&files.key).unwrap();
        self_signed(&directory, &hosts, 1).unwrap();
        assert_ne!(fs::read(&files.certificate).unwrap(), first);
    }

    #[test]
    fn validity_without_a_date_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for years in [0, u32::MAX] {
            let refused = self_signed(directory.path(), &[], years).unwrap_err();
            assert!(
                matches!(refused, SelfSignedError::Validity { .. }),
                "{refused}"
            );
        }
    }
}
