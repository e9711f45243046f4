//! Users by their client certificates.

use std::sync::Arc;

use http::HeaderMap;
use portunus_tls::ClientCa;
use sha2::{Digest, Sha256};

use super::{Authenticator, Unauthenticated};
use crate::identity::{Connection, Identity};

/// The attribute of a user that names the certificate, as in Kubernetes.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Accepts client certificates of one CA: the common name is the user, the organizations are the
/// groups.
#[derive(Debug, Clone)]
pub struct Certificates {
    ca: Arc<ClientCa>,
}

impl Certificates {
    /// Creates the authenticator of `--client-ca-file`.
    #[must_use]
    pub fn new(ca: Arc<ClientCa>) -> Certificates {
        Certificates { ca }
    }
}

impl Authenticator for Certificates {
    fn authenticate(
        &self,
        _: &mut HeaderMap,
        connection: &Connection,
    ) -> Result<Option<Identity>, Unauthenticated> {
        let Some(certificate) = connection.certificates.first() else {
            return Ok(None);
        };
        let verified = self.ca.verify(&connection.certificates);
        let verified = verified.map_err(|refused| Unauthenticated {
            reason: format!("the client certificate was refused: {refused}"),
        })?;
        if verified.common_name.is_empty() {
            // A certificate without a user is no credential, as in Kubernetes.
            return Ok(None);
        }
        let groups = verified.organizations.clone();
        let mut identity = Identity::new(&verified.common_name, groups);
        let id = format!("X509SHA256={}", hex(&Sha256::digest(certificate)));
        identity.extra.insert(CREDENTIAL_ID.to_owned(), vec![id]);
        Ok(Some(identity))
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    halves.map(|half| DIGITS[usize::from(half)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_hexadecimal_digits() {
        assert_eq!(hex(&[0x00, 0x1f, 0xa9, 0xff]), "001fa9ff");
    }
}
