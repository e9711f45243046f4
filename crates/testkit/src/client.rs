//! Generated gRPC clients, for tests that need every field of a request and of an answer.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use portunus_proto::etcdserverpb::auth_client::AuthClient;
use portunus_proto::etcdserverpb::cluster_client::ClusterClient;
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use portunus_proto::etcdserverpb::watch_client::WatchClient;
use portunus_tls::{ClientStream, ClientTls};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower_service::Service;

/// The clients of one connection.
#[derive(Debug, Clone)]
pub struct Clients {
    /// The connection.
    pub channel: Channel,
    /// Keys and transactions.
    pub kv: KvClient<Channel>,
    /// Watches.
    pub watch: WatchClient<Channel>,
    /// Leases.
    pub lease: LeaseClient<Channel>,
    /// Status, hashes, snapshots, alarms.
    pub maintenance: MaintenanceClient<Channel>,
    /// Membership.
    pub cluster: ClusterClient<Channel>,
    /// Authentication.
    pub auth: AuthClient<Channel>,
}

/// Opens a new connection to a member.
///
/// # Panics
/// If the member cannot be reached.
pub async fn connect(address: SocketAddr) -> Clients {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    clients_of(endpoint.connect().await.expect("the member can be reached"))
}

/// Opens a new TLS connection to a member; `tls` negotiates HTTP/2.
///
/// # Errors
/// Why the handshake failed.
pub async fn connect_with_tls(address: SocketAddr, tls: &ClientTls) -> Result<Clients, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let connector = TlsConnector {
        address,
        tls: tls.clone(),
    };
    match endpoint.connect_with_connector(connector).await {
        Ok(channel) => Ok(clients_of(channel)),
        Err(error) => {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            Err(cause.to_string())
        }
    }
}

struct TlsConnector {
    address: SocketAddr,
    tls: ClientTls,
}

impl Service<Uri> for TlsConnector {
    type Response = TokioIo<ClientStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (address, tls) = (self.address, self.tls.clone());
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream = tls.connect(&address.ip().to_string(), stream).await?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// Returns the clients of a connection.
#[must_use]
pub fn clients_of(channel: Channel) -> Clients {
    let limit = usize::MAX;
    Clients {
        kv: KvClient::new(channel.clone()).max_decoding_message_size(limit),
        watch: WatchClient::new(channel.clone()).max_decoding_message_size(limit),
        lease: LeaseClient::new(channel.clone()),
        maintenance: MaintenanceClient::new(channel.clone()).max_decoding_message_size(limit),
        cluster: ClusterClient::new(channel.clone()),
        auth: AuthClient::new(channel.clone()),
        channel,
    }
}
