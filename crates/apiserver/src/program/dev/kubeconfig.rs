//! The kubeconfig of a development server.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::certificates::{ADMIN, Certificates, CertificatesError, write};

const NAME: &str = "portunus-dev";

/// Writes a kubeconfig that contains the certificates, so that it can be copied.
pub fn write_to(
    path: &Path,
    address: SocketAddr,
    certificates: &Certificates,
) -> Result<(), CertificatesError> {
    let encoded = |file: &Path| {
        let bytes = fs::read(file).map_err(|source| CertificatesError::Write {
            path: file.to_owned(),
            source,
        })?;
        Ok::<_, CertificatesError>(STANDARD.encode(bytes))
    };
    let text = format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: {NAME}\n\
         clusters:\n\
         - name: {NAME}\n  cluster:\n    server: https://{address}\n    \
         certificate-authority-data: {ca}\n\
         users:\n\
         - name: {ADMIN}\n  user:\n    client-certificate-data: {certificate}\n    \
         client-key-data: {key}\n\
         contexts:\n\
         - name: {NAME}\n  context:\n    cluster: {NAME}\n    user: {ADMIN}\n",
        ca = encoded(&certificates.ca)?,
        certificate = encoded(&certificates.admin.certificate)?,
        key = encoded(&certificates.admin.key)?,
    );
    write(path, &text)
}
