//! Background work of a member: publishing its attributes, probing held peers, shortening the log
//! and compacting old revisions.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use portunus_consensus::{CompactError, Handle};
use portunus_mvcc::StoreFault;
use portunus_proto::etcdserverpb::{CompactionRequest, InternalRaftRequest};
use portunus_proto::membershippb::{Attributes, ClusterMemberAttrSetRequest};

use super::Member;
use super::downgrade::{self, ClusterVersionAbove};
use crate::config::AutoCompaction;
use crate::handles::{ClusterState, Process, StoreAccess};
use crate::peers::Peers;
use crate::peers::ask::Asked;
use crate::proposals::Proposals;
use portunus_statemachine::SnapshotRequest;
use portunus_statemachine::membership::{MemberRecord, Membership};
use portunus_statemachine::params::proposal_to_message;

/// Time between two attempts to publish the attributes at the start.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two checks whether the published attributes are current.
const ANNOUNCED_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two probes of peers whose feature support is unknown.
const HELD_PEERS_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two checks whether the version of a cluster of one is decided.
const DECISION_INTERVAL: Duration = Duration::from_millis(5);
/// Time between two compactions in revision mode.
const REVISION_COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Periodic mode keeps this many samples per interval.
const SAMPLES_PER_INTERVAL: u32 = 10;
/// Periodic mode never waits longer than this between two compactions.
const PERIODIC_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Publishes this member's attributes and waits for the version of a cluster of one. Returns once
/// both are applied, with everything that was in the log before: a restarted member may find both
/// in its backend while acknowledged writes are still only in the log.
///
/// # Errors
/// If the cluster turns out to be at a version above this member's.
pub async fn announce(member: &Member) -> Result<(), ClusterVersionAbove> {
    let version = member.process.config.version.emulation();
    loop {
        let caught_up = tokio::select! {
            caught_up = member.store.linearizable() => caught_up,
            () = member.process.stop.stopped() => return Ok(()),
        };
        if let Err(error) = caught_up {
            tracing::warn!(
                error = error.text(),
                "the log is not applied yet; this member goes on waiting"
            );
            tokio::time::sleep(ANNOUNCE_INTERVAL).await;
            continue;
        }
        let membership = member.cluster.membership_full();
        downgrade::check_version(&membership, version)?;
        if membership.cluster_version.is_some_and(|it| it > version) {
            tracing::info!(target = %version, "waiting for the cluster version to be lowered by the downgrade");
            tokio::time::sleep(ANNOUNCE_INTERVAL).await;
            continue;
        }
        let own = membership.get(member.cluster.own_id());
        let is_announced = own.is_some_and(|own| is_announced(member, &membership, own));
        let republishes = member.cluster.gates.take_republish();
        if is_announced && !republishes {
            // A cluster of one decides its version before it serves.
            let decided = membership.cluster_version;
            if membership.iter().count() > 1 || decided.is_some_and(|decided| decided >= version) {
                return Ok(());
            }
            member.cluster.review_versions();
            tokio::time::sleep(DECISION_INTERVAL).await;
            continue;
        }
        let request = announcement(member, &membership);
        let proposed = tokio::select! {
            proposed = member.proposals.propose(request) => proposed,
            () = member.process.stop.stopped() => return Ok(()),
        };
        if let Err(error) = proposed {
            if republishes {
                member.cluster.gates.republish();
            }
            tracing::warn!(%error, "publishing member attributes failed; retrying");
            tokio::time::sleep(ANNOUNCE_INTERVAL).await;
        }
    }
}

/// Whether the applied attributes of this member are current.
fn is_announced(member: &Member, membership: &Membership, own: &MemberRecord) -> bool {
    own.name == member.process.config.name
        && own.client_urls == member.process.config.advertise_client_urls
        && own.proposal.as_ref() == member.cluster.gates.own_proposal(membership)
}

fn announcement(member: &Member, membership: &Membership) -> InternalRaftRequest {
    let proposal = member.cluster.gates.own_proposal(membership);
    InternalRaftRequest {
        cluster_member_attr_set: Some(ClusterMemberAttrSetRequest {
            member_id: member.cluster.own_id(),
            member_attributes: Some(Attributes {
                name: member.process.config.name.clone(),
                client_urls: member.process.config.advertise_client_urls.clone(),
                proposed_cluster_params: proposal.map(proposal_to_message),
            }),
        }),
        ..InternalRaftRequest::default()
    }
}

/// Publishes the attributes again when they have to change: the cluster version has gained or
/// lost cluster features, or a repetition is due.
pub async fn keep_announced(member: &Member) {
    loop {
        if member.process.stops_within(ANNOUNCED_CHECK_INTERVAL).await {
            return;
        }
        let membership = member.cluster.membership_full();
        let Some(own) = membership.get(member.cluster.own_id()) else {
            continue;
        };
        if !own.has_published() || !member.cluster.founding.is_over() {
            // The start publishes the attributes.
            continue;
        }
        let republishes = member.cluster.gates.take_republish();
        if is_announced(member, &membership, own) && !republishes {
            continue;
        }
        if let Err(error) = member
            .proposals
            .propose(announcement(member, &membership))
            .await
        {
            if republishes {
                member.cluster.gates.republish();
            }
            tracing::warn!(%error, "publishing member attributes again failed; retrying");
        }
    }
}

/// Asks held peers whether they support cluster features, and releases those that do, so that
/// they receive the log.
pub async fn probe_held_peers(process: &Process, cluster: &ClusterState, peers: &Peers) {
    let hold = peers.replication_hold();
    loop {
        tokio::select! {
            () = tokio::time::sleep(HELD_PEERS_INTERVAL) => {}
            () = hold.held_changed() => {}
            () = process.stop.stopped() => return,
        }
        for id in hold.held() {
            let membership = cluster.membership_full();
            let Some(record) = membership.get(id).filter(|_| id != cluster.own_id()) else {
                continue;
            };
            let asked = Asked {
                client: peers.client().clone(),
                urls: record.peer_urls.clone().unwrap_or_default(),
                timeout: HELD_PEERS_INTERVAL,
            };
            if asked.versions().await.is_some_and(|it| it.knows_gates) {
                let membership = cluster.membership();
                hold.release(id, &membership);
            }
        }
    }
}

/// Shortens the log when apply requests it, once the backend holds the removed entries.
pub fn run_snapshots(
    process: &Process,
    store: &StoreAccess,
    consensus: &Handle,
    orders: &Receiver<SnapshotRequest>,
) {
    while let Ok(order) = orders.recv() {
        if process.stop.is_stopping() {
            return;
        }
        match store.reader().flush() {
            Ok(()) => {}
            // A snapshot of the leader has replaced the store, and is in the log itself.
            Err(StoreFault::Closed) => continue,
            Err(fault) => {
                process.stop.fatal(&fault);
                return;
            }
        }
        let shortened = match order.keeps_no_entries {
            true => consensus.forget_log(order.index, order.conf_state),
            false => consensus.compact_log(order.index, order.conf_state),
        };
        match shortened {
            Ok(compacted) => tracing::info!(
                index = order.index,
                segments_released = compacted.segments_released,
                "snapshot of the log taken"
            ),
            Err(CompactError::Stopped) => return,
            // Nothing was written since the last snapshot; the entries in memory are released.
            Err(CompactError::AlreadyCompacted { .. }) if order.keeps_no_entries => {}
            Err(error) => tracing::warn!(%error, index = order.index, "the log was not shortened"),
        }
    }
}

/// Compacts old revisions as configured.
pub async fn compact_automatically(process: &Process, store: &StoreAccess, proposals: &Proposals) {
    match process.config.auto_compaction {
        AutoCompaction::Off => {}
        AutoCompaction::Revision(keep) => loop {
            if process.stops_within(REVISION_COMPACTION_INTERVAL).await {
                return;
            }
            compact(store, proposals, store.reader().revision() - keep).await;
        },
        AutoCompaction::Periodic(retention) => {
            let interval = retention.min(PERIODIC_INTERVAL_MAX);
            let step = interval / SAMPLES_PER_INTERVAL;
            let samples_kept = (retention.as_nanos() / step.as_nanos().max(1)) as usize;
            let mut samples = std::collections::VecDeque::new();
            let mut until_compaction = samples_kept;
            loop {
                samples.push_back(store.reader().revision());
                if samples.len() > samples_kept + 1 {
                    samples.pop_front();
                }
                if process.stops_within(step).await {
                    return;
                }
                until_compaction = until_compaction.saturating_sub(1);
                if until_compaction == 0 && samples.len() > samples_kept {
                    if let Some(&revision) = samples.front() {
                        compact(store, proposals, revision).await;
                    }
                    until_compaction = SAMPLES_PER_INTERVAL as usize;
                }
            }
        }
    }
}

async fn compact(store: &StoreAccess, proposals: &Proposals, revision: i64) {
    if revision <= store.reader().compact_revision().max(0) {
        return;
    }
    let request = InternalRaftRequest {
        compaction: Some(CompactionRequest {
            revision,
            physical: false,
        }),
        ..InternalRaftRequest::default()
    };
    match proposals.propose(request).await {
        Ok(_) => tracing::info!(revision, "compacted by itself"),
        Err(error) => tracing::warn!(%error, revision, "could not compact by itself"),
    }
}
