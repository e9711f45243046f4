//! Certificates that clients present, and files with certificates, keys and revocation lists.

use std::fs;
use std::path::{Path, PathBuf};

use portunus_tls::{
    CipherSuites, ClientCa, ClientCertificate, ClientOptions, ClientTls, KeyPairFiles,
    ServerOptions, ServerTls, VersionRange,
};
use tempfile::TempDir;

use crate::input::{take_byte, take_part};

/// A CA and a certificate that it issued, in files.
struct Fixture {
    directory: TempDir,
    ca: ClientCa,
}

thread_local! {
    static FIXTURE: Fixture = Fixture::new();
}

impl Fixture {
    fn new() -> Fixture {
        let directory = TempDir::new().expect("a directory");
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]);
        if let Ok(params) = &mut params {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let certificate = params.expect("a name").self_signed(&key);
        let certificate = certificate.expect("a certificate").pem();
        for (name, content) in [("certificate", &certificate), ("key", &key.serialize_pem())] {
            fs::write(directory.path().join(name), content).expect("a written file");
        }
        let ca = ClientCa::from_file(directory.path().join("certificate"));
        Fixture {
            ca: ca.expect("a CA"),
            directory,
        }
    }

    /// Writes the file under test, and returns its path.
    fn write(&self, content: &[u8]) -> PathBuf {
        let path = self.directory.path().join("subject");
        fs::write(&path, content).expect("a written file");
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn server(&self, change: impl FnOnce(&mut ServerOptions)) {
        let mut options = ServerOptions {
            identity: self.identity(&self.path("certificate"), &self.path("key")),
            trusted_ca_file: None,
            crl_file: None,
            allowed: portunus_tls::AllowedNames::default(),
            versions: VersionRange::default(),
            cipher_suites: CipherSuites::default(),
            alpn: portunus_tls::ALPN_GRPC_AND_HTTP,
        };
        change(&mut options);
        let _ = ServerTls::new(options);
    }

    fn identity(&self, certificate: &Path, key: &Path) -> KeyPairFiles {
        KeyPairFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        }
    }
}

/// Reads files with certificates, keys, CAs and revocation lists; the first byte selects which.
pub fn tls_files(mut data: &[u8]) {
    let control = take_byte(&mut data);
    FIXTURE.with(|fixture| {
        let path = fixture.write(data);
        match control % 5 {
            0 => fixture.server(|options| options.crl_file = Some(path)),
            1 => fixture.server(|options| options.trusted_ca_file = Some(path)),
            2 => fixture.server(|options| {
                options.identity = fixture.identity(&path, &fixture.path("key"));
            }),
            3 => fixture.server(|options| {
                options.identity = fixture.identity(&path, &path);
            }),
            _ => {
                let options = ClientOptions {
                    trusted_ca_file: Some(path),
                    ..ClientOptions::default()
                };
                let _ = ClientTls::new(options);
            }
        }
    });
}

/// Parses a certificate and verifies a chain of them, as of a client.
pub fn client_certificates(mut data: &[u8]) {
    if let Some(certificate) = ClientCertificate::from_der(data) {
        assert_eq!(ClientCertificate::from_der(data), Some(certificate));
    }
    let mut chain = Vec::new();
    while !data.is_empty() && chain.len() < 4 {
        chain.push(take_part(&mut data));
    }
    FIXTURE.with(|fixture| {
        assert!(
            fixture.ca.verify(&chain).is_err(),
            "no one has the key of the CA"
        );
    });
}
