//! Checks against the log and the other members, before raft runs.

use portunus_consensus::bootstrap::{Boot, Identity};
use portunus_features::ServerFeatures;
use portunus_gates::Gates;
use portunus_mvcc::Store;
use portunus_rafthttp::PeerClient;
use portunus_statemachine::membership::{MemberRecord, Membership};
use tokio::runtime::Runtime;

use super::StartError;
use super::skew::{self, SkewTooLarge};
use crate::config::{ApplySettings, Config};
use crate::member::downgrade::{self, ClusterVersionAbove};
use crate::member::{corruption, settings};
use crate::peers::Peers;

/// Refuses data of a cluster version above the member's own. The stored version may be older than
/// that of the log or of the peers, so a downgrade known to any of them is enough; the member
/// checks again before it serves.
pub(super) fn check_cluster_version(
    config: &Config,
    membership: &Membership,
    boot: &Boot,
    runtime: &Runtime,
    client: &PeerClient,
) -> Result<(), ClusterVersionAbove> {
    let emulation = config.version.emulation();
    let Err(refusal) = downgrade::check_version(membership, emulation) else {
        return Ok(());
    };
    if downgrade::is_in_log(&boot.initial.entries, emulation) {
        return Ok(());
    }
    let own_id = boot.identity.member_id.0;
    let peers = membership.iter().filter(|record| record.id != own_id);
    let peers = peers.map(|record| record.peer_urls.clone().unwrap_or_default());
    let known = downgrade::is_known_to_peers(client, peers.collect(), emulation);
    match runtime.block_on(known) {
        true => Ok(()),
        false => Err(refusal),
    }
}

/// Refuses a version more than one minor above that of a cluster with other members. The log or a
/// peer may have a newer cluster version than the store.
pub(super) fn check_skew(
    config: &Config,
    membership: &Membership,
    boot: &Boot,
    runtime: &Runtime,
    client: &PeerClient,
) -> Result<(), SkewTooLarge> {
    let emulation = config.version.emulation();
    let own_id = boot.identity.member_id.0;
    let others: Vec<_> = membership.iter().filter(|it| it.id != own_id).collect();
    if others.is_empty() {
        return Ok(());
    }
    let known = membership.cluster_version;
    let known = known.max(skew::newest_in_log(&boot.initial.entries));
    if skew::check(known, emulation).is_ok() {
        return Ok(());
    }
    let peers = others.iter();
    let peers = peers.map(|record| record.peer_urls.clone().unwrap_or_default());
    let told = runtime.block_on(skew::newest_of_peers(client, peers.collect()));
    skew::check(known.max(told), emulation)
}

/// Compares the settings that apply depends on with those of the members that answer.
pub(super) fn check_settings(
    config: &Config,
    peers: &Peers,
    identity: Identity,
    known: &[&MemberRecord],
) -> Result<(), StartError> {
    let own = ApplySettings::of(config);
    let others = settings::others(config, identity.member_id.0, known.iter().copied());
    let compared = settings::differences(peers.client(), identity.cluster_id, own, others);
    let mut found = peers.runtime().block_on(compared);
    match found.pop() {
        Some(different) => Err(different.into()),
        None => Ok(()),
    }
}

/// Compares the data with that of the members that answer.
pub(super) fn check_corruption(
    gates: &Gates<ServerFeatures>,
    peers: &Peers,
    membership: &Membership,
    identity: Identity,
    store: &Store,
) -> Result<(), StartError> {
    if !corruption::checks_at_start(gates, membership) {
        return Ok(());
    }
    let own = store.reader().hash_kv(0)?;
    let checked = corruption::check_at_start(peers, membership, identity, &own);
    Ok(peers.runtime().block_on(checked)?)
}
