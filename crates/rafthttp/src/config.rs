//! This member's identity and the limits and timeouts of the transport; defaults are etcd's.

use std::time::Duration;

use portunus_tls::ClientTls;

/// This member's identity as sent to its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalMember {
    /// The member id.
    pub member_id: u64,
    /// The cluster id; requests from other clusters are refused.
    pub cluster_id: u64,
    /// The server version, such as `3.8.0`. Peers refuse one that they cannot parse.
    pub version: String,
    /// The oldest compatible version of a peer, such as `3.0.0`.
    pub min_cluster_version: String,
    /// The member's peer URLs; sent with every request, so that a member without this one in
    /// its member list can respond.
    pub peer_urls: Vec<String>,
}

/// Limits and timeouts. Units are in the names or the types.
#[derive(Debug, Clone)]
pub struct Config {
    /// Dials `https` addresses; `None`: they cannot be dialled.
    pub tls: Option<ClientTls>,
    /// The time limit for connecting. etcd uses one second plus the election timeout.
    pub dial_timeout: Duration,
    /// A stream without received data for this long is closed.
    pub stream_read_timeout: Duration,
    /// A stream whose peer took no data for this long is detached.
    pub stream_write_timeout: Duration,
    /// The interval of link heartbeats; a third of the read timeout.
    pub heartbeat: Duration,
    /// The pause between two attempts to open a stream.
    pub reconnect_pause: Duration,
    /// Queued messages per stream.
    pub stream_queue_max: usize,
    /// Queued bytes per stream; an empty queue accepts a message of any size.
    pub stream_queue_bytes_max: usize,
    /// Queued messages of the pipeline, per peer.
    pub pipeline_queue_max: usize,
    /// Concurrent requests of the pipeline, per peer.
    pub pipeline_connections: usize,
    /// The time limit for a pipeline request, from connecting to the answer.
    pub post_timeout: Duration,
    /// The interval of probes for round trip and clock.
    pub probe_interval: Duration,
    /// The largest message; a larger one ends its stream.
    pub message_bytes_max: u64,
    /// The largest message before a database; a larger one is refused.
    pub snapshot_envelope_bytes_max: u64,
    /// Queued snapshots per peer, while another one is sent.
    pub snapshot_queue_max: usize,
    /// A transfer of a database without progress for this long is aborted.
    pub snapshot_stall_timeout: Duration,
    /// The time limit for a peer to store a database after its last byte.
    pub snapshot_answer_timeout: Duration,
    /// Remotes: senders that are not peers and receive responses.
    pub remotes_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        let stream_read_timeout = Duration::from_secs(5);
        Config {
            tls: None,
            dial_timeout: Duration::from_secs(2),
            stream_read_timeout,
            stream_write_timeout: Duration::from_secs(5),
            heartbeat: stream_read_timeout / 3,
            reconnect_pause: Duration::from_millis(100),
            stream_queue_max: 4096,
            stream_queue_bytes_max: 256 << 20,
            pipeline_queue_max: 64,
            pipeline_connections: 4,
            post_timeout: Duration::from_secs(30),
            probe_interval: Duration::from_secs(4),
            message_bytes_max: 512 << 20,
            snapshot_envelope_bytes_max: 64 << 20,
            snapshot_queue_max: 2,
            snapshot_stall_timeout: Duration::from_secs(30),
            snapshot_answer_timeout: Duration::from_secs(5 * 60),
            remotes_max: 64,
        }
    }
}
