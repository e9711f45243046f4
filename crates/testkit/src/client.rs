//! Generated gRPC clients, for tests that need every field of a request and of an answer.

use std::net::SocketAddr;

use portunus_proto::etcdserverpb::auth_client::AuthClient;
use portunus_proto::etcdserverpb::cluster_client::ClusterClient;
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use portunus_proto::etcdserverpb::watch_client::WatchClient;
use tonic::transport::{Channel, Endpoint};

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
