//! Who this member is, and every limit and pause of the transport; the defaults are etcd's.

use std::time::Duration;

/// This member, as its peers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Its id.
    pub member_id: u64,
    /// The id of its cluster; requests of other clusters are refused.
    pub cluster_id: u64,
    /// The version it speaks as, such as `3.8.0`. Peers refuse what they cannot read.
    pub version: String,
    /// The oldest version it can work with, such as `3.0.0`.
    pub min_cluster_version: String,
    /// Where peers reach it; sent along, so that a member which does not know this one yet
    /// can answer.
    pub peer_urls: Vec<String>,
}

/// Limits and pauses. Units are in the names or the types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How long connecting may take. etcd takes one second and the election timeout.
    pub dial_timeout: Duration,
    /// A stream that was silent for this long is given up.
    pub stream_read_timeout: Duration,
    /// A stream whose peer took nothing for this long is given up.
    pub stream_write_timeout: Duration,
    /// How often a stream's writer shows that it is alive; a third of the read timeout.
    pub heartbeat: Duration,
    /// Between two attempts to open a stream.
    pub reconnect_pause: Duration,
    /// Messages that wait for a stream, per stream.
    pub stream_queue_max: usize,
    /// Bytes that wait for a stream, per stream; one message is let in whatever its size.
    pub stream_queue_bytes_max: usize,
    /// Messages that wait for the pipeline, per peer.
    pub pipeline_queue_max: usize,
    /// Requests that the pipeline has under way, per peer.
    pub pipeline_connections: usize,
    /// How long a request of the pipeline may take, from connecting to the answer.
    pub post_timeout: Duration,
    /// How often a peer's round trip and clock are looked at.
    pub probe_interval: Duration,
    /// A longer message ends its stream.
    pub message_bytes_max: u64,
    /// A longer message in front of a database is refused.
    pub snapshot_envelope_bytes_max: u64,
    /// Snapshots that wait for one peer while another is sent to it.
    pub snapshot_queue_max: usize,
    /// An upload or download of a database without any progress for this long is given up.
    pub snapshot_stall_timeout: Duration,
    /// How long a peer may take to store a database after its last byte.
    pub snapshot_answer_timeout: Duration,
    /// Members that are answered although nobody added them as peers.
    pub remotes_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        let stream_read_timeout = Duration::from_secs(5);
        Config {
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
