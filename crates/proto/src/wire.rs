//! Names and limits both ends of a connection must agree on.
//!
//! Used by the server's interceptors, the client and the gateway. Nothing here
//! is configurable; what a flag can change only has its default here.

/// Metadata keys of a request.
pub mod metadata {
    /// Refuse the request while the member knows no leader. Value: [`HAS_LEADER_TRUE`].
    pub const HAS_LEADER: &str = "hasleader";
    /// The only value of [`HAS_LEADER`] that means anything.
    pub const HAS_LEADER_TRUE: &str = "true";
    /// Version text of the client library; a label of the request metric.
    pub const CLIENT_API_VERSION: &str = "client-api-version";
    /// Auth token.
    pub const TOKEN: &str = "token";
    /// Where the token is looked for when [`TOKEN`] is absent.
    pub const AUTHORIZATION: &str = "authorization";
    /// Stripped from the front of a token.
    pub const BEARER_PREFIX: &str = "Bearer ";
    /// Set by the JSON gateway. Its presence means the client certificate seen
    /// here is the gateway's, so its common name identifies nobody.
    pub const GATEWAY_ACCEPT: &str = "grpcgateway-accept";
    /// Name of a cluster feature the request depends on; may be repeated.
    pub const REQUIRE_FEATURE: &str = "require-feature";
}

/// Largest request accepted when no flag says otherwise.
pub const REQUEST_BYTES_MAX_DEFAULT: usize = 1_572_864;
/// What gRPC may receive beyond the request limit, so that a request slightly
/// too large gets etcd's own error instead of a transport error.
pub const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;
/// Largest response.
pub const RESPONSE_BYTES_MAX: usize = i32::MAX as usize;
/// Streams per connection when no flag says otherwise.
pub const CONCURRENT_STREAMS_MAX_DEFAULT: u32 = u32::MAX;
/// A client that pings more often than this is disconnected.
pub const KEEPALIVE_MIN_S_DEFAULT: u64 = 5;
/// Idle time after which the server pings.
pub const KEEPALIVE_INTERVAL_S_DEFAULT: u64 = 2 * 60 * 60;
/// Wait for the answer to a server ping.
pub const KEEPALIVE_TIMEOUT_S_DEFAULT: u64 = 20;

/// Largest gRPC message accepted for a given request limit.
#[must_use]
pub const fn grpc_receive_bytes_max(request_bytes_max: usize) -> usize {
    request_bytes_max.saturating_add(GRPC_OVERHEAD_BYTES)
}
