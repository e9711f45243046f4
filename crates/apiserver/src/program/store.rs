//! The connection to the store, from the flags.

use std::time::Duration;

use portunus_client::{Client, ConnectError, KeyPairFiles, LoadError, Options, Tls, TlsOptions};
use thiserror::Error;

use crate::flags::StoreFlags;

/// The time limit of a call to the store; requests have a longer one.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// What the store counts this program as.
const USER_AGENT: &str = concat!("portunus-apiserver/v", env!("CARGO_PKG_VERSION"));

/// Why the flags about the store cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error(
        "--etcd-servers must be specified: give the members of etcd or Portunus, or run \
         `portunus-apiserver dev`, which starts a store"
    )]
    NoServers,
    #[error("--etcd-certfile and --etcd-keyfile belong together: give both or none")]
    HalfOfKeyPair,
    #[error("--etcd-prefix={0} cannot be used: it begins with a slash, such as /registry")]
    Prefix(String),
    #[error("the certificates of --etcd-cafile, --etcd-certfile or --etcd-keyfile cannot be used")]
    Tls(#[source] LoadError),
    #[error("--etcd-servers cannot be used")]
    Servers(#[source] ConnectError),
}

/// Creates the client. It connects with the first request. Needs a runtime.
pub fn connect(flags: &StoreFlags) -> Result<Client, StoreError> {
    if flags.etcd_servers.is_empty() {
        return Err(StoreError::NoServers);
    }
    if !flags.etcd_prefix.starts_with('/') {
        return Err(StoreError::Prefix(flags.etcd_prefix.clone()));
    }
    let options = Options {
        endpoints: flags.etcd_servers.clone(),
        command_timeout: Some(CALL_TIMEOUT),
        tls: tls(flags)?,
        user_agent: USER_AGENT.to_owned(),
        ..Options::default()
    };
    Client::connect(options).map_err(StoreError::Servers)
}

fn tls(flags: &StoreFlags) -> Result<Option<Tls>, StoreError> {
    let identity = match (&flags.etcd_certfile, &flags.etcd_keyfile) {
        (Some(certificate), Some(key)) => Some(KeyPairFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
        (None, None) => None,
        _ => return Err(StoreError::HalfOfKeyPair),
    };
    if identity.is_none() && flags.etcd_cafile.is_none() {
        return Ok(None);
    }
    let options = TlsOptions {
        trusted_ca_file: flags.etcd_cafile.clone(),
        identity,
        ..TlsOptions::default()
    };
    Tls::new(options).map(Some).map_err(StoreError::Tls)
}
