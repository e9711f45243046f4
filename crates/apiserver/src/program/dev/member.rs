//! The store of a development server: one member in this process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use portunus_gates::ComponentFlags;
use portunus_server::config::{Config, ConfigErrors, Values};
use portunus_server::start::{Running, StartError, start};
use thiserror::Error;

use super::certificates::Certificates;
use crate::flags::VersionFlags;
use crate::versions::STORE_COMPONENT;

/// Why there is no store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemberError {
    #[error("the store cannot be configured")]
    Config(#[from] ConfigErrors),
    #[error("the store did not start")]
    Start(#[from] StartError),
    #[error("the store has no address")]
    NoAddress,
}

/// A running store.
pub struct Member {
    running: Running,
    address: SocketAddr,
}

impl Member {
    /// Starts the member. Returns once it serves clients.
    pub fn start(arguments: &[String]) -> Result<Member, MemberError> {
        let config = Config::from_values(&Values::from_arguments(arguments))?;
        let running = start(config)?;
        match running.servers.addresses.first().copied() {
            Some(address) => Ok(Member { running, address }),
            None => Err(MemberError::NoAddress),
        }
    }

    /// Returns the address for clients.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns once the member has stopped by itself.
    pub async fn failed(&self) {
        let member = Arc::clone(&self.running.member);
        member.process.stop.stopped().await;
    }

    /// Stops the member. Returns once its data is closed.
    pub fn stop(self) {
        self.running.stop();
    }

    /// Returns the flags of the member: loopback only, and only clients with a certificate of the
    /// store's CA.
    pub fn arguments(
        directory: &Path,
        certificates: &Certificates,
        versions: &VersionFlags,
    ) -> Vec<String> {
        const CLIENTS: &str = "https://127.0.0.1:0";
        const PEERS: &str = "http://127.0.0.1:0";
        let mut arguments = vec![
            "--name=dev".to_owned(),
            format!("--data-dir={}", directory.join("store").display()),
            format!("--listen-client-urls={CLIENTS}"),
            format!("--advertise-client-urls={CLIENTS}"),
            format!("--listen-peer-urls={PEERS}"),
            format!("--initial-advertise-peer-urls={PEERS}"),
            format!("--initial-cluster=dev={PEERS}"),
            format!("--cert-file={}", certificates.store.certificate.display()),
            format!("--key-file={}", certificates.store.key.display()),
            format!("--trusted-ca-file={}", certificates.store_ca.display()),
            "--client-cert-auth=true".to_owned(),
        ];
        // The flags were checked before; the member checks the ranges itself.
        let flags = ComponentFlags::parse(
            &versions.emulated_version,
            &versions.min_compatibility_version,
            &[],
        );
        if let Ok(flags) = flags {
            let both = [
                ("emulated-version", flags.emulation),
                ("min-compatibility-version", flags.min_compat),
            ];
            for (flag, by_component) in both {
                if let Some(version) = by_component.get(STORE_COMPONENT) {
                    arguments.push(format!("--{flag}={version}"));
                }
            }
        }
        arguments
    }
}
