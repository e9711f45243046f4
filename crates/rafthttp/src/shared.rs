//! What every task and every request handler of one transport has at hand.

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
    /// The member, once it is there. Tasks wait for it, requests are put off.
    pub raft: SetOnce<Arc<dyn Raft>>,
}
