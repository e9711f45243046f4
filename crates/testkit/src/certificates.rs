//! Certificates for tests: a CA, and the certificates that it issues and revokes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// The names of this machine that certificates of servers have.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Serial numbers are unique within a process.
static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1 << 40);

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM format.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
    serial: SerialNumber,
}

/// The files of an issued certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The contents of a certificate to issue.
#[derive(Debug, Clone)]
pub struct Subject<'s> {
    /// The common name; empty: none.
    pub common_name: &'s str,
    /// The DNS names and IP addresses.
    pub names: &'s [&'s str],
    /// Whether it is valid no more.
    pub is_expired: bool,
}

/// The organization of certificates that name none.
const ORGANIZATION: &str = "portunus tests";

impl Authority {
    /// Creates an authority with a self-signed certificate.
    ///
    /// # Panics
    /// If the certificate cannot be created.
    #[must_use]
    pub fn new(common_name: &str) -> Authority {
        let mut params = params(&Subject {
            common_name,
            names: &[],
            is_expired: false,
        });
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params.extended_key_usages = Vec::new();
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        Authority { issuer }
    }

    /// Returns the certificate of the authority.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Writes the certificate of the authority to a file of a directory; returns its path.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write_to(&self, directory: &Path, name: &str) -> PathBuf {
        let path = directory.join(name);
        replace(&path, self.pem().as_bytes());
        path
    }

    /// Issues a certificate for a server or member on this machine.
    #[must_use]
    pub fn server(&self, common_name: &str) -> Issued {
        self.issue(&Subject {
            common_name,
            names: &LOCAL_NAMES,
            is_expired: false,
        })
    }

    /// Issues a certificate for a client, without names of hosts.
    #[must_use]
    pub fn client(&self, common_name: &str) -> Issued {
        self.issue(&Subject {
            common_name,
            names: &[],
            is_expired: false,
        })
    }

    /// Issues a certificate for servers and clients.
    ///
    /// # Panics
    /// If the subject is malformed.
    #[must_use]
    pub fn issue(&self, subject: &Subject<'_>) -> Issued {
        self.sign(params(subject))
    }

    fn sign(&self, mut params: CertificateParams) -> Issued {
        let serial = SerialNumber::from(NEXT_SERIAL.fetch_add(1, Ordering::Relaxed));
        params.serial_number = Some(serial.clone());
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            serial,
        }
    }

    /// Issues a certificate for a client that is a user of at most two groups: the organizations.
    ///
    /// # Panics
    /// If a name is malformed or there are more groups.
    #[must_use]
    pub fn user(&self, common_name: &str, groups: &[&str]) -> Issued {
        let subject = Subject {
            common_name,
            names: &[],
            is_expired: false,
        };
        self.sign(params_of(&subject, groups))
    }

    /// Returns a revocation list in DER format, which etcd reads.
    #[must_use]
    pub fn revocation_list(&self, revoked: &[&Issued]) -> Vec<u8> {
        self.revocations(revoked).der().to_vec()
    }

    /// Returns a revocation list in PEM format.
    ///
    /// # Panics
    /// If the list cannot be encoded.
    #[must_use]
    pub fn revocation_list_pem(&self, revoked: &[&Issued]) -> String {
        self.revocations(revoked).pem().unwrap()
    }

    fn revocations(&self, revoked: &[&Issued]) -> rcgen::CertificateRevocationList {
        let revoked = revoked.iter().map(|issued| RevokedCertParams {
            serial_number: issued.serial.clone(),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap()
    }
}

impl Issued {
    /// Writes the certificate to `NAME.crt` and the key to `NAME.key` of a directory. Each file
    /// is replaced at once.
    ///
    /// # Panics
    /// If a file cannot be written.
    pub fn write_to(&self, directory: &Path, name: &str) -> IssuedFiles {
        let files = IssuedFiles {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        };
        replace(&files.certificate, self.certificate.as_bytes());
        replace(&files.key, self.key.as_bytes());
        files
    }
}

fn params(subject: &Subject<'_>) -> CertificateParams {
    params_of(subject, &[ORGANIZATION])
}

fn params_of(subject: &Subject<'_>, organizations: &[&str]) -> CertificateParams {
    let names: Vec<String> = subject.names.iter().map(|name| (*name).into()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    // The library keeps one value per type; a second organization has the type by its number.
    let types = [
        DnType::OrganizationName,
        DnType::CustomDnType(vec![2, 5, 4, 10]),
    ];
    assert!(organizations.len() <= types.len(), "too many organizations");
    for (kind, organization) in types.into_iter().zip(organizations) {
        params.distinguished_name.push(kind, *organization);
    }
    if !subject.common_name.is_empty() {
        params
            .distinguished_name
            .push(DnType::CommonName, subject.common_name);
    }
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = match subject.is_expired {
        true => date_time_ymd(2021, 1, 1),
        false => date_time_ymd(4000, 1, 1),
    };
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params
}

/// Replaces a file at once: readers see the old or the new content.
///
/// # Panics
/// If the file cannot be written.
pub fn replace(path: &Path, content: &[u8]) {
    let unfinished = path.with_added_extension("new");
    fs::write(&unfinished, content).unwrap();
    fs::rename(&unfinished, path).unwrap();
}
