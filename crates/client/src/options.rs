//! The options of a client.

use std::time::Duration;

use portunus_proto::wire;

use crate::tls::Tls;
use crate::token::Credentials;

/// Default of the largest request, as in etcd's Go client.
const REQUEST_BYTES_MAX_DEFAULT: usize = 2 * 1024 * 1024;
/// Default user agent.
const USER_AGENT_DEFAULT: &str = "portunus-client/v3.8.0";

/// The options of a client. `Default` has etcdctl's defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// `host:port`, `http://host:port` or `https://host:port`. The client connects to all and uses
    /// them in turn.
    pub endpoints: Vec<String>,
    /// Time limit for connecting to one endpoint.
    pub dial_timeout: Duration,
    /// Time limit for a call, including connecting; `None` for no limit.
    pub command_timeout: Option<Duration>,
    /// Time without received data after which an active connection is probed.
    pub keepalive_time: Duration,
    /// Time limit for the answer to a probe.
    pub keepalive_timeout: Duration,
    /// Largest request sent.
    pub request_bytes_max: usize,
    /// Largest response accepted.
    pub response_bytes_max: usize,
    /// TLS for `https` endpoints and for those without a scheme. `None`: `https` endpoints are
    /// verified with the CAs of the system, and the others have no TLS.
    pub tls: Option<Tls>,
    /// The identity of the client; `None` for an anonymous one, or one that its certificate
    /// identifies.
    pub credentials: Option<Credentials>,
    /// The program, as `name/vX.Y.Z`; servers count clients of very different versions.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoints: vec!["127.0.0.1:2379".to_owned()],
            dial_timeout: Duration::from_secs(2),
            command_timeout: Some(Duration::from_secs(5)),
            keepalive_time: Duration::from_secs(2),
            keepalive_timeout: Duration::from_secs(6),
            request_bytes_max: REQUEST_BYTES_MAX_DEFAULT,
            response_bytes_max: wire::RESPONSE_BYTES_MAX,
            tls: None,
            credentials: None,
            user_agent: USER_AGENT_DEFAULT.to_owned(),
        }
    }
}
