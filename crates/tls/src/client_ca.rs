//! Verifies certificates of clients after their handshake, against the CAs of a file.
//!
//! A client sends many requests over one connection, and every one of them is authenticated. The
//! verification of a signature costs more than most requests, so an accepted chain is remembered
//! for [`REMEMBERED_FOR`]: a certificate that expires, or a CA that is removed from the file, is
//! refused that much later.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use thiserror::Error;

use crate::certificate::ClientCertificate;
use crate::cipher_suites::CipherSuites;
use crate::files::LoadError;
use crate::reload::Reloading;
use crate::trust::{Trust, Usage, check_trusted_leaf};

/// How long an accepted chain is not verified again.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);
/// The most chains that are remembered. One more forgets all.
const REMEMBERED_MAX: usize = 1024;

/// The CAs of one kind of client. A changed file is used by the next verifications.
pub struct ClientCa {
    verifier: Reloading<Verifier>,
    /// Accepted chains, by their bytes.
    remembered: Mutex<HashMap<Vec<u8>, Remembered>>,
}

struct Remembered {
    at: Instant,
    identity: Arc<ClientCertificate>,
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa").finish_non_exhaustive()
    }
}

/// Why a certificate was not accepted.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum RefusedCertificate {
    /// The client presented none.
    #[error("the client presented no certificate")]
    Missing,
    /// The certificate cannot be parsed.
    #[error("the certificate is malformed")]
    Malformed,
    /// The chain leads to no trusted CA, or a certificate of it is not valid now.
    #[error("verifying the certificate failed: {0}")]
    Untrusted(rustls::Error),
}

struct Verifier {
    trust: Trust,
    chains: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// Reads the CAs of a file in PEM format.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn from_file(file: PathBuf) -> Result<ClientCa, LoadError> {
        let verifier = Reloading::new(vec![file.clone()], move || {
            let trust = Trust::from_file(&file)?;
            let store = Arc::clone(&trust.store);
            let provider = CipherSuites::default().provider();
            let chains = WebPkiClientVerifier::builder_with_provider(store, provider).build()?;
            Ok(Verifier { trust, chains })
        })?;
        Ok(ClientCa {
            verifier,
            remembered: Mutex::default(),
        })
    }

    /// Verifies a chain in DER format, the certificate of the client first, and returns the
    /// identity in that certificate.
    ///
    /// # Errors
    /// If the chain leads to no trusted CA, is not valid now, or is not for clients.
    pub fn verify<C: AsRef<[u8]>>(
        &self,
        chain: &[C],
    ) -> Result<Arc<ClientCertificate>, RefusedCertificate> {
        // The certificates of a chain say where they end, so that their bytes are unambiguous.
        let bytes: Vec<u8> = chain.iter().flat_map(AsRef::as_ref).copied().collect();
        let now = Instant::now();
        if let Some(identity) = self.recall(&bytes, now) {
            return Ok(identity);
        }
        let identity = Arc::new(self.verifier.current().verify(chain)?);
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        let entry = Remembered {
            at: now,
            identity: Arc::clone(&identity),
        };
        remembered.insert(bytes, entry);
        Ok(identity)
    }

    fn recall(&self, bytes: &[u8], now: Instant) -> Option<Arc<ClientCertificate>> {
        let remembered = self.remembered();
        let found = remembered.get(bytes)?;
        let is_fresh = now.saturating_duration_since(found.at) < REMEMBERED_FOR;
        is_fresh.then(|| Arc::clone(&found.identity))
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Remembered>> {
        let locked = self.remembered.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Verifier {
    fn verify<C: AsRef<[u8]>>(&self, chain: &[C]) -> Result<ClientCertificate, RefusedCertificate> {
        let chain: Vec<CertificateDer<'_>> = chain
            .iter()
            .map(|der| CertificateDer::from(der.as_ref()))
            .collect();
        let (leaf, intermediates) = chain.split_first().ok_or(RefusedCertificate::Missing)?;
        let now = UnixTime::now();
        match self.trust.contains(leaf) {
            true => check_trusted_leaf(leaf, Usage::Client, now),
            false => self
                .chains
                .verify_client_cert(leaf, intermediates, now)
                .map(drop),
        }
        .map_err(RefusedCertificate::Untrusted)?;
        ClientCertificate::from_der(leaf).ok_or(RefusedCertificate::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use portunus_testkit::certificates::{Authority, replace};
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn der(authority: &Authority, name: &str) -> Vec<u8> {
        let pem = authority.client(name).certificate;
        CertificateDer::from_pem_slice(pem.as_bytes())
            .unwrap()
            .to_vec()
    }

    #[test]
    fn accepted_chain_is_remembered_for_a_short_time_only() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (Authority::new("first"), Authority::new("second"));
        let file = first.write_to(directory.path(), "ca.crt");
        let ca = ClientCa::from_file(file.clone()).unwrap();
        let chain = [der(&first, "alice")];
        ca.verify(&chain).unwrap();
        let now = Instant::now();
        assert!(ca.recall(&chain[0], now).is_some());
        assert!(ca.recall(&chain[0], now + REMEMBERED_FOR).is_none());
        assert!(
            ca.recall(&der(&first, "alice"), now).is_none(),
            "another certificate"
        );
        replace(&file, second.pem().as_bytes());
        let refused = || ca.verify(&chain).map_or(Ok(()), Err);
        portunus_testkit::wait::until_blocking("refusal", refused);
    }

    #[test]
    fn refused_chains_are_not_remembered_and_accepted_ones_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("ca");
        let file = authority.write_to(directory.path(), "ca.crt");
        let ca = ClientCa::from_file(file).unwrap();
        ca.verify(&[der(&Authority::new("ca"), "mallory")])
            .unwrap_err();
        assert!(ca.remembered().is_empty());
        let identity = ca.verify(&[der(&authority, "alice")]).unwrap();
        for number in 0..REMEMBERED_MAX as u64 {
            let entry = Remembered {
                at: Instant::now(),
                identity: Arc::clone(&identity),
            };
            ca.remembered().insert(number.to_be_bytes().to_vec(), entry);
        }
        ca.verify(&[der(&authority, "bob")]).unwrap();
        assert_eq!(ca.remembered().len(), 1);
    }
}
