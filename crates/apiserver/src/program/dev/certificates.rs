//! The certificates of a development server: one CA for clients of the API, one for the store.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use portunus_apiserver::MASTERS;
use portunus_tls::KeyPairFiles;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

/// How long certificates are valid. They are new at every start.
const VALIDITY_DAYS: i64 = 365;
/// Clocks of one machine agree; those of its containers may not quite.
const CLOCK_DIFFERENCE_HOURS: i64 = 1;
/// The names of this machine.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// The user of the kubeconfig.
pub const ADMIN: &str = "admin";

/// Why there are no certificates.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CertificatesError {
    #[error("cannot create certificates")]
    Create(#[from] rcgen::Error),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The files of the certificates.
pub struct Certificates {
    /// The CA of the API server and its clients.
    pub ca: PathBuf,
    /// The API server.
    pub server: KeyPairFiles,
    /// The user of the kubeconfig, a member of `system:masters`.
    pub admin: KeyPairFiles,
    /// The CA of the store and its client.
    pub store_ca: PathBuf,
    /// The store.
    pub store: KeyPairFiles,
    /// The API server as a client of the store.
    pub store_client: KeyPairFiles,
}

impl Certificates {
    /// Creates all certificates in a directory.
    pub fn create(directory: &Path) -> Result<Certificates, CertificatesError> {
        let directory = directory.join("certificates");
        let created = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory);
        created.map_err(|source| CertificatesError::Write {
            path: directory.clone(),
            source,
        })?;
        let ca = Authority::create(&directory, "ca")?;
        let store = Authority::create(&directory, "store-ca")?;
        Ok(Certificates {
            server: ca.issue("server", &Subject::server("portunus-apiserver"))?,
            admin: ca.issue("admin", &Subject::client(ADMIN, MASTERS))?,
            ca: ca.file,
            store: store.issue("store", &Subject::server("portunus"))?,
            store_client: store.issue("store-client", &Subject::client("apiserver", "store"))?,
            store_ca: store.file,
        })
    }
}

struct Authority {
    directory: PathBuf,
    file: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

struct Subject<'subject> {
    common_name: &'subject str,
    organization: &'subject str,
    names: &'static [&'static str],
    usage: ExtendedKeyUsagePurpose,
}

impl<'subject> Subject<'subject> {
    fn server(common_name: &'subject str) -> Subject<'subject> {
        Subject {
            common_name,
            organization: "portunus-dev",
            names: &LOCAL_NAMES,
            usage: ExtendedKeyUsagePurpose::ServerAuth,
        }
    }

    fn client(common_name: &'subject str, organization: &'subject str) -> Subject<'subject> {
        Subject {
            common_name,
            organization,
            names: &[],
            usage: ExtendedKeyUsagePurpose::ClientAuth,
        }
    }

    fn params(&self) -> Result<CertificateParams, rcgen::Error> {
        let names: Vec<String> = self.names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        let parts = [
            (DnType::CommonName, self.common_name),
            (DnType::OrganizationName, self.organization),
        ];
        for (kind, value) in parts {
            params.distinguished_name.push(kind, value);
        }
        let now = OffsetDateTime::now_utc();
        params.not_before = now - Duration::hours(CLOCK_DIFFERENCE_HOURS);
        params.not_after = now + Duration::days(VALIDITY_DAYS);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![self.usage.clone()];
        Ok(params)
    }
}

impl Authority {
    fn create(directory: &Path, name: &str) -> Result<Authority, CertificatesError> {
        let mut params = Subject::server(name).params()?;
        params.subject_alt_names.clear();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.extended_key_usages.clear();
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let file = directory.join(format!("{name}.crt"));
        write(&file, &issuer.pem())?;
        Ok(Authority {
            directory: directory.to_owned(),
            file,
            issuer,
        })
    }

    fn issue(&self, name: &str, subject: &Subject<'_>) -> Result<KeyPairFiles, CertificatesError> {
        let key = KeyPair::generate()?;
        let certificate = subject.params()?.signed_by(&key, &self.issuer)?;
        let files = KeyPairFiles {
            certificate: self.directory.join(format!("{name}.crt")),
            key: self.directory.join(format!("{name}.key")),
        };
        write(&files.certificate, &certificate.pem())?;
        write(&files.key, &key.serialize_pem())?;
        Ok(files)
    }
}

/// Replaces a file that only its owner can read.
pub fn write(path: &Path, text: &str) -> Result<(), CertificatesError> {
    let unfinished = path.with_added_extension("new");
    let written = || -> io::Result<()> {
        // A file of an earlier process may have another mode.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&unfinished, path)
    };
    written().map_err(|source| CertificatesError::Write {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use portunus_tls::ClientCa;

    use super::*;

    #[test]
    fn admin_is_a_master_and_keys_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let certificates = Certificates::create(directory.path()).unwrap();
        let mode = fs::metadata(&certificates.admin.key)
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let pem = fs::read_to_string(&certificates.admin.certificate).unwrap();
        let der = pem.lines().filter(|line| !line.starts_with('-'));
        let der: String = der.collect();
        use base64::Engine;
        let der = base64::engine::general_purpose::STANDARD
            .decode(der)
            .unwrap();
        let ca = ClientCa::from_file(certificates.ca).unwrap();
        let admin = ca.verify(std::slice::from_ref(&der)).unwrap();
        assert_eq!(admin.common_name, ADMIN);
        assert_eq!(admin.organizations, [MASTERS]);
        let store_ca = ClientCa::from_file(certificates.store_ca).unwrap();
        assert!(
            store_ca.verify(&[der]).is_err(),
            "the admin is no client of the store"
        );
    }
}
