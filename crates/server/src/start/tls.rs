//! Reads the certificates of the listeners and of dials to peers.

use std::path::PathBuf;
use std::sync::Arc;

use portunus_tls::{
    ALPN_GRPC_AND_HTTP, ALPN_HTTP, ALPN_NONE, ClientOptions, ClientTls, KeyPairFiles, LoadError,
    ServerOptions, ServerTls, self_signed,
};

use super::StartError;
use crate::config::tls::{Certificate, EndpointTls};
use crate::config::{Config, ListenUrl};
use crate::handles::Process;
use crate::listen::{EndpointKind, TlsEndpoint};

/// The TLS of a member; each part exists if a URL needs it.
pub(super) struct Tls {
    /// The listeners for clients.
    pub(super) clients: Option<Arc<TlsEndpoint>>,
    /// The listeners for metrics.
    pub(super) metrics: Option<Arc<TlsEndpoint>>,
    /// The listeners for peers.
    pub(super) peers: Option<Arc<TlsEndpoint>>,
    /// Dials to peers with `https` addresses.
    pub(super) peer_dials: Option<ClientTls>,
}

const CLIENT_FLAGS: &str = "--cert-file, --key-file, --trusted-ca-file or --client-crl-file";
const CLIENT_DIAL_FLAGS: &str = "--client-cert-file or --client-key-file";
const PEER_FLAGS: &str =
    "--peer-cert-file, --peer-key-file, --peer-trusted-ca-file or --peer-crl-file";

impl Tls {
    /// Reads all files, and creates self-signed certificates in the data directory. Warns about
    /// settings that do not concern every URL.
    pub(super) fn load(process: &Process) -> Result<Tls, StartError> {
        let config = &process.config;
        let (client, peer) = (&config.tls.client, &config.tls.peer);
        warn_about_clients(config);
        warn_about_peers(config);

        let urls: Vec<&ListenUrl> = client_urls(config)
            .chain(&config.listen_metrics_urls)
            .collect();
        let identity = identity(config, client, "client", "auto-tls", &urls)?;
        check_dial_identity(client)?;
        let endpoint = |kind, alpn, checks_address| {
            let Some(identity) = identity.clone() else {
                return Ok(None);
            };
            let tls = server(config, client, identity, alpn, CLIENT_FLAGS)?;
            let refused = process.metrics.tls_refused.clone();
            let endpoint = TlsEndpoint::new(kind, tls, checks_address, refused);
            Ok::<_, StartError>(Some(Arc::new(endpoint)))
        };
        let clients = endpoint(EndpointKind::Client, ALPN_GRPC_AND_HTTP, false)?;
        let checks_address = !client.skip_address_check;
        let metrics = match config.listen_metrics_urls.iter().any(|url| url.is_tls) {
            true => endpoint(EndpointKind::Metrics, ALPN_HTTP, checks_address)?,
            false => None,
        };
        let (peers, peer_dials) = load_peers(process, peer)?;
        Ok(Tls {
            clients,
            metrics,
            peers,
            peer_dials,
        })
    }
}

fn load_peers(
    process: &Process,
    peer: &EndpointTls,
) -> Result<(Option<Arc<TlsEndpoint>>, Option<ClientTls>), StartError> {
    let config = &process.config;
    let urls: Vec<&ListenUrl> = config.cluster.listen_peer_urls.iter().collect();
    let identity = identity(config, peer, "peer", "peer-auto-tls", &urls)?;
    let dials = peer_dials(config, peer, identity.clone())?;
    let Some(identity) = identity else {
        return Ok((None, dials));
    };
    let tls = server(config, peer, identity, ALPN_HTTP, PEER_FLAGS)?;
    let refused = process.metrics.tls_refused.clone();
    let checks_address = !peer.skip_address_check;
    let endpoint = TlsEndpoint::new(EndpointKind::Peer, tls, checks_address, refused);
    Ok((Some(Arc::new(endpoint)), dials))
}

fn client_urls(config: &Config) -> impl Iterator<Item = &ListenUrl> {
    config
        .listen_client_urls
        .iter()
        .chain(&config.listen_client_http_urls)
}

/// The certificate of a kind of listener, created if it is self-signed and missing.
fn identity(
    config: &Config,
    tls: &EndpointTls,
    directory: &str,
    flag: &'static str,
    urls: &[&ListenUrl],
) -> Result<Option<KeyPairFiles>, StartError> {
    match &tls.certificate {
        Certificate::None => Ok(None),
        Certificate::Files(files) => Ok(Some(files.clone())),
        Certificate::SelfSigned => {
            let directory = config.data_dir.join("fixtures").join(directory);
            let hosts: Vec<String> = urls.iter().map(|url| host(url)).collect();
            let years = config.tls.self_signed_validity_years;
            let files =
                self_signed(&directory, &hosts, years).map_err(|error| StartError::SelfSigned {
                    flag,
                    source: Box::new(error),
                })?;
            Ok(Some(files))
        }
    }
}

/// The host of a URL, without port and brackets.
fn host(url: &ListenUrl) -> String {
    let host = url.authority.rsplit_once(':').map(|(host, _)| host);
    let host = host.unwrap_or(&url.authority);
    host.trim_matches(['[', ']']).to_owned()
}

fn server(
    config: &Config,
    tls: &EndpointTls,
    identity: KeyPairFiles,
    alpn: &'static [&'static str],
    flags: &'static str,
) -> Result<ServerTls, StartError> {
    ServerTls::new(ServerOptions {
        identity,
        trusted_ca_file: tls.trusted_ca_file.clone(),
        crl_file: tls.crl_file.clone(),
        allowed: tls.allowed.clone(),
        versions: config.tls.versions,
        cipher_suites: config.tls.cipher_suites.clone(),
        alpn,
    })
    .map_err(|error| unusable(flags, error))
}

fn unusable(flags: &'static str, error: LoadError) -> StartError {
    StartError::Tls {
        flags,
        source: Box::new(error),
    }
}

/// Dials to peers. The certificate of the listener is presented unless there is another one, and
/// the restrictions of names hold for the dialled peers, too, as in etcd.
fn peer_dials(
    config: &Config,
    peer: &EndpointTls,
    identity: Option<KeyPairFiles>,
) -> Result<Option<ClientTls>, StartError> {
    if !peer.can_dial() {
        return Ok(None);
    }
    let options = ClientOptions {
        trusted_ca_file: peer.trusted_ca_file.clone(),
        identity: peer.dial_identity.clone().or(identity),
        server_name: None,
        skip_verification: peer.certificate == Certificate::SelfSigned,
        allowed: peer.allowed.clone(),
        versions: config.tls.versions,
        cipher_suites: config.tls.cipher_suites.clone(),
        alpn: ALPN_NONE,
    };
    match ClientTls::new(options) {
        Ok(tls) => Ok(Some(tls)),
        // A member without peers needs none.
        Err(error @ LoadError::NoSystemRoots) => {
            tracing::warn!(
                %error,
                "peers with https addresses cannot be dialled: set --peer-trusted-ca-file"
            );
            Ok(None)
        }
        Err(error) => Err(unusable(PEER_FLAGS, error)),
    }
}

/// Checks that a certificate for dials to client listeners can be used. No such dial is made.
fn check_dial_identity(client: &EndpointTls) -> Result<(), StartError> {
    let Some(identity) = &client.dial_identity else {
        return Ok(());
    };
    let options = ClientOptions {
        identity: Some(identity.clone()),
        skip_verification: true,
        ..ClientOptions::default()
    };
    let checked = ClientTls::new(options);
    checked
        .map(drop)
        .map_err(|error| unusable(CLIENT_DIAL_FLAGS, error))
}

fn warn_about_clients(config: &Config) {
    let client = &config.tls.client;
    if client.auto_tls_is_ignored {
        tracing::warn!("ignoring client auto TLS since certs given");
    }
    for url in client_urls(config).filter(|url| !url.is_tls) {
        if client.certificate != Certificate::None {
            tracing::warn!(
                client_url = url.url,
                "scheme is http or unix while key and cert files are present; ignoring key and cert files"
            );
        }
        if client.client_cert_auth {
            tracing::warn!(
                client_url = url.url,
                "scheme is http or unix while --client-cert-auth is enabled; ignoring client cert auth for this URL"
            );
        }
    }
    log_start("client", client, client_urls(config).any(|url| url.is_tls));
}

fn warn_about_peers(config: &Config) {
    let peer = &config.tls.peer;
    if peer.auto_tls_is_ignored {
        tracing::warn!("ignoring peer auto TLS since certs given");
    }
    let urls = &config.cluster.listen_peer_urls;
    for url in urls.iter().filter(|url| !url.is_tls) {
        if peer.certificate != Certificate::None {
            tracing::warn!(
                peer_url = url.url,
                "scheme is HTTP while key and cert files are present; ignoring key and cert files"
            );
        }
        if peer.client_cert_auth {
            tracing::warn!(
                peer_url = url.url,
                "scheme is HTTP while --peer-client-cert-auth is enabled; ignoring client cert auth for this URL"
            );
        }
    }
    log_start("peer", peer, urls.iter().any(|url| url.is_tls));
}

fn log_start(kind: &'static str, tls: &EndpointTls, is_used: bool) {
    if !is_used {
        return;
    }
    let path = |path: Option<&PathBuf>| path.map(|path| path.display().to_string());
    let files = match &tls.certificate {
        Certificate::Files(files) => Some(files),
        _ => None,
    };
    tracing::info!(
        kind,
        cert_file = path(files.map(|files| &files.certificate)),
        key_file = path(files.map(|files| &files.key)),
        trusted_ca_file = path(tls.trusted_ca_file.as_ref()),
        crl_file = path(tls.crl_file.as_ref()),
        client_cert_auth = tls.client_cert_auth,
        "starting with TLS"
    );
}
