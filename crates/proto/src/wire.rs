//! Names and limits that both ends of a connection share.
//!
//! Used by the server's interceptors, the client and the gateway. Nothing here
//! is configurable; for settings with a flag, only the default is here.

/// Metadata keys of a request.
pub mod metadata {
    /// Refuse the request while the member has no leader. Value: [`HAS_LEADER_TRUE`].
    pub const HAS_LEADER: &str = "hasleader";
    /// The only value of [`HAS_LEADER`] that has an effect.
    pub const HAS_LEADER_TRUE: &str = "true";
    /// Version text of the client library; a label of the request metric.
    pub const CLIENT_API_VERSION: &str = "client-api-version";
    /// Auth token.
    pub const TOKEN: &str = "token";
    /// Auth token if [`TOKEN`] is absent.
    pub const AUTHORIZATION: &str = "authorization";
    /// Prefix that is removed from a token.
    pub const BEARER_PREFIX: &str = "Bearer ";
    /// Set by the JSON gateway. Its presence means that the client certificate
    /// is the gateway's, so its common name does not identify a user.
    pub const GATEWAY_ACCEPT: &str = "grpcgateway-accept";
    /// Name of a cluster feature the request depends on; may be repeated.
    pub const REQUIRE_FEATURE: &str = "require-feature";
}

/// Default limit on the size of a request.
pub const REQUEST_BYTES_MAX_DEFAULT: usize = 1_572_864;
/// Bytes that gRPC accepts beyond the request limit, so that a request slightly
/// too large gets etcd's error instead of a transport error.
pub const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;
/// Largest response.
pub const RESPONSE_BYTES_MAX: usize = i32::MAX as usize;
/// Default limit on the streams per connection.
pub const CONCURRENT_STREAMS_MAX_DEFAULT: u32 = u32::MAX;
/// Minimum interval between client pings; a client that pings more often is disconnected.
pub const KEEPALIVE_MIN_S_DEFAULT: u64 = 5;
/// Idle time after which the server pings.
pub const KEEPALIVE_INTERVAL_S_DEFAULT: u64 = 2 * 60 * 60;
/// Time to wait for the answer to a server ping.
pub const KEEPALIVE_TIMEOUT_S_DEFAULT: u64 = 20;

/// Largest gRPC message accepted for a given request limit.
#[must_use]
pub const fn grpc_receive_bytes_max(request_bytes_max: usize) -> usize {
    request_bytes_max.saturating_add(GRPC_OVERHEAD_BYTES)
}
