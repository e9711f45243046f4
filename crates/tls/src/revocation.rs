//! Certificate revocation lists.
//!
//! As in etcd, a list is a set of serial numbers: a connection is refused if any certificate of
//! the presented chain has one of them. Issuer, signature and dates of the list are not checked,
//! because the operator names the file.

use std::collections::HashSet;
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::{CertificateError, Error};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use crate::files::{LoadError, read};

/// The serial numbers of revoked certificates, without leading zeros.
#[derive(Debug, Default)]
pub(crate) struct RevokedSerials(HashSet<Vec<u8>>);

impl RevokedSerials {
    /// Reads a file. etcd reads DER; PEM is accepted besides, also with several lists.
    pub(crate) fn from_file(path: &Path) -> Result<RevokedSerials, LoadError> {
        RevokedSerials::parse(&read(path)?).ok_or_else(|| LoadError::RevocationList {
            path: path.to_owned(),
        })
    }

    fn parse(bytes: &[u8]) -> Option<RevokedSerials> {
        let lists = CertificateRevocationListDer::pem_slice_iter(bytes);
        // Bytes in DER format may look like damaged PEM.
        let lists: Vec<_> = lists.collect::<Result<_, _>>().unwrap_or_default();
        let mut lists: Vec<&[u8]> = lists.iter().map(|list| list.as_ref()).collect();
        if lists.is_empty() {
            lists.push(bytes);
        }
        let mut serials = HashSet::new();
        for list in lists {
            let (_, list) = CertificateRevocationList::from_der(list).ok()?;
            let revoked = list.iter_revoked_certificates();
            serials.extend(revoked.map(|revoked| significant(revoked.raw_serial()).to_vec()));
        }
        Some(RevokedSerials(serials))
    }

    /// Fails if one of the certificates is revoked.
    pub(crate) fn check<'c, 'd: 'c>(
        &self,
        chain: impl IntoIterator<Item = &'c CertificateDer<'d>>,
    ) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        for certificate in chain {
            let (_, certificate) = X509Certificate::from_der(certificate)
                .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
            if self.0.contains(significant(certificate.raw_serial())) {
                return Err(CertificateError::Revoked.into());
            }
        }
        Ok(())
    }
}

fn significant(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    &serial[zeros..]
}

#[cfg(test)]
mod tests {
    use portunus_testkit::certificates::Authority;

    use super::*;

    #[test]
    fn listed_certificate_is_revoked_and_others_are_not() {
        let authority = Authority::new("ca");
        let (good, bad) = (authority.client("good"), authority.client("bad"));
        let der = authority.revocation_list(&[&bad]);
        let pem = authority.revocation_list_pem(&[&bad]).into_bytes();
        for list in [der, pem] {
            let revoked = RevokedSerials::parse(&list).unwrap();
            let certificate = |issued: &portunus_testkit::certificates::Issued| {
                CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()
            };
            revoked.check([&certificate(&good)]).unwrap();
            let refused = revoked.check([&certificate(&good), &certificate(&bad)]);
            assert_eq!(refused, Err(CertificateError::Revoked.into()));
        }
        let none = RevokedSerials::parse(&authority.revocation_list(&[])).unwrap();
        assert!(none.0.is_empty());
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [
            &b""[..],
            b"-----BEGIN X509 CRL-----",
            &[0x30, 0x03, 1, 2, 3],
        ] {
            assert!(RevokedSerials::parse(bytes).is_none(), "{bytes:?}");
        }
    }
}
