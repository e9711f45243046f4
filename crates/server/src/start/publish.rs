//! The last steps before clients are served: peers, metrics, the member's attributes.

use std::net::SocketAddr;
use std::sync::Arc;

use portunus_statemachine::membership::MemberRecord;

use super::StartError;
use crate::handles::admission::Admission;
use crate::http;
use crate::listen::{EndpointKind, Listening, Reserved, TlsEndpoint};
use crate::member::{Member, attributes, founding, settings};
use crate::peers::PeerRaft;
use crate::serve::{self, MetricsServers};

/// Connects to the other members and serves their requests.
pub(super) fn connect_peers(
    member: &Arc<Member>,
    reserved: Vec<Reserved>,
    remotes: &[MemberRecord],
    tls: Option<&Arc<TlsEndpoint>>,
) -> Result<(), StartError> {
    let raft = PeerRaft::new(
        Arc::clone(&member.process),
        Arc::clone(&member.store),
        Arc::clone(&member.cluster),
        member.consensus.clone(),
        Arc::clone(member.peers.replication_hold()),
    );
    let routes = http::peers::router(member);
    let admission = Arc::new(Admission::new(EndpointKind::Peer, &member.process));
    let addresses = member
        .peers
        .attach(raft, reserved, &routes, tls, &admission)?;
    member.peers.add_remotes(remotes);
    tracing::info!(addresses = joined(&addresses), "listening for peers");
    Ok(())
}

/// Serves metrics and probes at their own addresses.
pub(super) fn serve_metrics(
    member: &Arc<Member>,
    listeners: Vec<Listening>,
    tls: Option<Arc<TlsEndpoint>>,
) -> Result<MetricsServers, StartError> {
    let servers = serve::serve_metrics(member, listeners, tls)?;
    if !servers.addresses.is_empty() {
        tracing::info!(addresses = joined(&servers.addresses), "serving metrics");
    }
    Ok(servers)
}

/// Waits until the member has compared its settings and version with the others', has applied its
/// log, has published its attributes and has a cluster version.
pub(super) fn publish(member: &Member) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_name("start")
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    runtime.block_on(async {
        settings::compare(member).await?;
        founding::compare_versions(member).await?;
        attributes::announce(member).await?;
        Ok(())
    })
}

/// Formats addresses for the log.
pub(super) fn joined(addresses: &[SocketAddr]) -> String {
    let texts = addresses.iter().map(SocketAddr::to_string);
    texts.collect::<Vec<_>>().join(",")
}
