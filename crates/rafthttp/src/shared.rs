//! State shared by all tasks and request handlers of one transport.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::SetOnce;

use crate::client::PeerClient;
use crate::config::Config;
use crate::headers::Identity;
use crate::metrics::Metrics;
use crate::raft::Raft;
use crate::refusals::RefusalLog;
use crate::reports::Reports;

pub(crate) struct Shared {
    pub identity: Identity,
    pub config: Config,
    pub metrics: Metrics,
    pub runtime: Handle,
    pub stream_client: PeerClient,
    pub post_client: PeerClient,
    pub reports: Reports,
    pub refusals: RefusalLog,
    /// The attached member. Until it is set, tasks wait and requests are answered 503.
    pub raft: SetOnce<Arc<dyn Raft>>,
}
