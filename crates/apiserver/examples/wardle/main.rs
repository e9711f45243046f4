//! Kubernetes' sample API server, wardle.example.com, on this library:
//! `cargo run -p portunus-apiserver --example wardle -- --etcd-servers http://127.0.0.1:2379
//! --tls-cert-file server.crt --tls-private-key-file server.key`.
//!
//! It asks nobody who a client is and allows everything. The test `same_as_sample_apiserver` and the
//! benchmark `compare-apiserver` compare it with the sample API server.

mod definition;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use portunus_apiserver::authn::AnyOf;
use portunus_apiserver::authz::AlwaysAllow;
use portunus_apiserver::{
    Drain, LimitOptions, Listener, ListenerOptions, Metrics, Service, ServiceOptions, kube_version,
};
use portunus_client::kubernetes::Kubernetes;
use portunus_client::{Client, Options};
use portunus_tls::{
    ALPN_GRPC_AND_HTTP, AllowedNames, CipherSuites, KeyPairFiles, ServerOptions, ServerTls,
    VersionRange,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The time limit of a call to the store.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The resources of Kubernetes' sample API server.
#[derive(Debug, Parser)]
struct Flags {
    /// The members of the store
    #[arg(long, value_delimiter = ',', required = true)]
    etcd_servers: Vec<String>,
    /// The certificate of the server, in PEM format
    #[arg(long)]
    tls_cert_file: PathBuf,
    /// Its private key
    #[arg(long)]
    tls_private_key_file: PathBuf,
    /// The address to listen at
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// The port; 0 for a free one
    #[arg(long, default_value_t = 0)]
    secure_port: u16,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    let tls = ServerTls::requesting_certificates(ServerOptions {
        identity: KeyPairFiles {
            certificate: flags.tls_cert_file,
            key: flags.tls_private_key_file,
        },
        trusted_ca_file: None,
        crl_file: None,
        allowed: AllowedNames::Any,
        versions: VersionRange::default(),
        cipher_suites: CipherSuites::default(),
        alpn: ALPN_GRPC_AND_HTTP,
    })?;
    let client = Client::connect(Options {
        endpoints: flags.etcd_servers,
        command_timeout: Some(CALL_TIMEOUT),
        ..Options::default()
    })?;
    let socket = TcpListener::bind(SocketAddr::new(flags.bind_address, flags.secure_port)).await?;
    let address = socket.local_addr()?;
    let (drain, metrics) = (Drain::new(), Metrics::new());
    let options = ServiceOptions {
        api: portunus_apis::Options::new(kube_version()?),
        authenticator: Arc::new(AnyOf::new()),
        authorizer: Arc::new(AlwaysAllow),
        anonymous: true,
        storage_prefix: "/registry".to_owned(),
        limits: LimitOptions::default(),
        metrics: metrics.clone(),
        drain: drain.clone(),
        address: address.to_string(),
    };
    let store = Arc::new(Kubernetes::new(client));
    let service = Service::new(definition::resources()?, store, options)?;
    println!("serving on {address}");
    let listener = Listener::new(socket, Some(tls), ListenerOptions::default(), metrics);
    let mut terminate = signal(SignalKind::terminate())?;
    let ending = drain.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        ending.begin(Duration::ZERO).await;
    });
    listener.serve(service, drain).await;
    Ok(())
}
