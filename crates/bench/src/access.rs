//! How clients reach the servers: the mode, and the certificates that it needs.

use std::io;
use std::sync::Arc;

use portunus_testkit::certificates::Authority;
use portunus_tls::{ALPN_GRPC, ClientOptions, ClientTls, KeyPairFiles, LoadError};
use tempfile::TempDir;
use thiserror::Error;

use crate::mode::Mode;
use crate::users;

/// The mode of a comparison with its certificates. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Access {
    mode: Mode,
    certificates: Option<Arc<Certificates>>,
}

/// Certificates that could not be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No directory for the files.
    #[error("no temporary directory for certificates: check TMPDIR and its free space")]
    Directory(#[source] io::Error),
    /// The files were not accepted.
    #[error("the certificate of the load generator could not be loaded")]
    Load(#[from] LoadError),
}

/// A certificate for all servers and one for the load generator, of the same CA. The files are
/// deleted when the value is dropped.
#[derive(Debug)]
struct Certificates {
    server_flags: Vec<String>,
    client: ClientTls,
    _directory: TempDir,
}

impl Access {
    /// Issues the certificates that the mode needs.
    pub fn new(mode: Mode) -> Result<Access, AccessError> {
        let certificates = match mode.tls {
            true => Some(Arc::new(Certificates::issue()?)),
            false => None,
        };
        Ok(Access { mode, certificates })
    }

    /// Returns the mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the flags that the mode needs, the same for both servers.
    #[must_use]
    pub fn server_flags(&self) -> Vec<String> {
        let auth = if self.mode.auth { users::FLAGS } else { &[] };
        let tls = self.certificates.iter().flat_map(|it| &it.server_flags);
        let auth = auth.iter().map(|flag| (*flag).to_owned());
        auth.chain(tls.cloned()).collect()
    }

    /// Returns the settings of dials; `None` without TLS.
    #[must_use]
    pub fn client_tls(&self) -> Option<ClientTls> {
        let certificates = self.certificates.as_ref();
        certificates.map(|certificates| certificates.client.clone())
    }
}

impl Certificates {
    fn issue() -> Result<Certificates, AccessError> {
        let directory = TempDir::with_prefix("compare-tls-").map_err(AccessError::Directory)?;
        let authority = Authority::new("compare CA");
        let ca = authority.write_to(directory.path(), "ca.crt");
        let server = authority
            .server("server")
            .write_to(directory.path(), "server");
        // Not the name of a user: the token says who sends a request, not the certificate.
        let client = authority
            .client("load generator")
            .write_to(directory.path(), "client");
        let server_flags = vec![
            format!("--cert-file={}", server.certificate.display()),
            format!("--key-file={}", server.key.display()),
            format!("--trusted-ca-file={}", ca.display()),
            "--client-cert-auth".to_owned(),
        ];
        let client = ClientTls::new(ClientOptions {
            trusted_ca_file: Some(ca),
            identity: Some(KeyPairFiles {
                certificate: client.certificate,
                key: client.key,
            }),
            alpn: ALPN_GRPC,
            ..ClientOptions::default()
        })?;
        Ok(Certificates {
            server_flags,
            client,
            _directory: directory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag_names(auth: bool, tls: bool) -> Vec<String> {
        let access = Access::new(Mode { auth, tls }).unwrap();
        assert_eq!(access.client_tls().is_some(), tls);
        let flags = access.server_flags().into_iter();
        flags
            .map(|flag| flag.split('=').next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn servers_get_the_flags_of_the_mode() {
        let tls = [
            "--cert-file",
            "--key-file",
            "--trusted-ca-file",
            "--client-cert-auth",
        ];
        assert!(flag_names(false, false).is_empty());
        assert_eq!(flag_names(true, false), ["--bcrypt-cost"]);
        assert_eq!(flag_names(false, true), tls);
        assert_eq!(
            flag_names(true, true),
            [&["--bcrypt-cost"], &tls[..]].concat()
        );
    }
}
