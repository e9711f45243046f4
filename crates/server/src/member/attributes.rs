//! Publishes the attributes of this member in the log: name, client URLs, proposal.

use std::time::Duration;

use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::membershippb::{Attributes, ClusterMemberAttrSetRequest};

use super::Member;
use super::downgrade::{self, ClusterVersionAbove};
use portunus_statemachine::membership::{MemberRecord, Membership};
use portunus_statemachine::params::proposal_to_message;

/// Time between two attempts to publish the attributes at the start.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two checks whether the published attributes are current.
const ANNOUNCED_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two checks whether the version of a cluster of one is decided.
const DECISION_INTERVAL: Duration = Duration::from_millis(5);

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
        let own = membership.get(member.cluster.own_id().0);
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
            member_id: member.cluster.own_id().0,
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
        let Some(own) = membership.get(member.cluster.own_id().0) else {
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
