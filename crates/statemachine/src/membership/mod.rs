//! The members of the cluster, its version and its params, as stored in etcd's buckets.

mod conf_change;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use portunus_gates::MajorMinor;
use portunus_gates::cluster::{AppliedParams, ClusterParams};
use portunus_mvcc::Store;
use portunus_mvcc::backend::{BackendError, Bucket, meta};
use portunus_proto::{etcdserverpb, membershippb};
use prost::Message as _;
use thiserror::Error;

use crate::decision_cause::DecisionInputs;
use crate::params::{from_message, proposal_from_message, to_message};

pub use conf_change::PlannedChange;
pub(crate) use record::to_json;
pub use record::{
    CLUSTER_PARAMS, CLUSTER_PARAMS_HISTORY, CLUSTER_VERSION, DOWNGRADE, DowngradeRecord,
    MemberRecord, ProposalRecord, hex, member_records,
};

/// The number of decisions that are kept.
const DECISIONS_KEPT: usize = 128;
/// The first version that stores which version the data is for.
pub const STORAGE_VERSION_SINCE: MajorMinor = MajorMinor::literal("3.6");

/// A decision about cluster features, as it is kept and sent.
pub type ParamsDecision = membershippb::ClusterParamsDecision;

/// The members and the version of the cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Membership {
    members: BTreeMap<u64, MemberRecord>,
    removed: BTreeSet<u64>,
    /// The cluster version, once decided.
    pub cluster_version: Option<MajorMinor>,
    /// A downgrade, if one was ever enabled.
    pub downgrade: DowngradeRecord,
    /// The cluster params in force, if any.
    pub params: Option<ClusterParams>,
    /// Earlier decisions and the one in force, oldest first.
    pub history: Arc<Vec<ParamsDecision>>,
    /// The inputs of the last decision, or those that were stored when the member started.
    pub decided_from: Arc<DecisionInputs>,
}

impl Membership {
    /// Reads the membership from the store's buckets.
    pub fn load(store: &Store) -> Result<Membership, MembershipError> {
        let mut membership = Membership::default();
        for (key, value) in store.iter_raw(Bucket::Members) {
            let record = MemberRecord::read(key, value)?;
            membership.members.insert(record.id, record);
        }
        for (key, _) in store.iter_raw(Bucket::MembersRemoved) {
            let text = String::from_utf8_lossy(key);
            let id = u64::from_str_radix(&text, 16).map_err(|_| MembershipError::RemovedKey {
                key: text.into_owned(),
            })?;
            membership.removed.insert(id);
        }
        if let Some(text) = store.get_raw(Bucket::Cluster, CLUSTER_VERSION) {
            let text = String::from_utf8_lossy(text);
            let version = text.parse().map_err(|_| MembershipError::ClusterVersion {
                text: text.into_owned(),
            })?;
            membership.cluster_version = Some(version);
        }
        if let Some(bytes) = store.get_raw(Bucket::Cluster, CLUSTER_PARAMS) {
            let params = membershippb::ClusterParams::decode(bytes.clone());
            let params = params.ok().and_then(|message| from_message(&message));
            membership.params = Some(params.ok_or(MembershipError::Params)?);
        }
        if let Some(bytes) = store.get_raw(Bucket::Cluster, CLUSTER_PARAMS_HISTORY) {
            let history = membershippb::ClusterParamsHistory::decode(bytes.clone());
            let history = history.map_err(|_| MembershipError::Params)?;
            membership.history = Arc::new(history.decisions);
        }
        if let Some(json) = store.get_raw(Bucket::Cluster, DOWNGRADE) {
            membership.downgrade =
                serde_json::from_slice(json).map_err(|source| MembershipError::Record {
                    key: "downgrade".to_owned(),
                    source,
                })?;
        }
        membership.decided_from = Arc::new(DecisionInputs::of(&membership));
        Ok(membership)
    }

    /// Returns a membership with these members and nothing decided.
    pub fn of_members(members: impl IntoIterator<Item = MemberRecord>) -> Membership {
        let members = members.into_iter().map(|record| (record.id, record));
        Membership {
            members: members.collect(),
            ..Membership::default()
        }
    }

    /// A member by id.
    pub fn get(&self, id: u64) -> Option<&MemberRecord> {
        self.members.get(&id)
    }

    /// All members, by id.
    pub fn iter(&self) -> impl Iterator<Item = &MemberRecord> {
        self.members.values()
    }

    /// The members as messages, by id.
    pub fn to_messages(&self) -> Vec<etcdserverpb::Member> {
        self.iter()
            .map(|record| etcdserverpb::Member {
                id: record.id,
                name: record.name.clone(),
                peer_urls: record.peer_urls.clone().unwrap_or_default(),
                client_urls: record.client_urls.clone(),
                is_learner: record.is_learner,
            })
            .collect()
    }

    /// Whether a member with this id was removed; the id is never used again.
    pub fn is_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// The ids of removed members.
    pub fn removed(&self) -> impl Iterator<Item = u64> {
        self.removed.iter().copied()
    }

    /// The number of learners.
    pub fn learners(&self) -> usize {
        self.iter().filter(|member| member.is_learner).count()
    }

    /// Applies the attributes that a member published. Attributes without a proposal withdraw an
    /// earlier one.
    pub fn set_attributes(
        &mut self,
        store: &mut Store,
        id: u64,
        attributes: &membershippb::Attributes,
    ) -> Result<Option<&MemberRecord>, MembershipError> {
        let Some(mut record) = self.members.get(&id).cloned() else {
            // A member that was removed meanwhile; etcd ignores it, too.
            return Ok(None);
        };
        record.name = attributes.name.clone();
        record.client_urls = attributes.client_urls.clone();
        let proposal = attributes.proposed_cluster_params.as_ref();
        record.proposal = proposal.map(proposal_from_message);
        self.put(store, record)?;
        Ok(self.members.get(&id))
    }

    /// The index of the last decision about cluster params.
    pub fn params_since(&self) -> Option<u64> {
        self.history.last().map(|decision| decision.index)
    }

    /// Whether a cluster feature is on.
    pub fn has_feature(&self) -> bool {
        let params = self.params.iter();
        params
            .flat_map(|params| params.features.values())
            .any(|on| *on)
    }

    /// Whether every member, learners included, has published a proposal, and so surely reads
    /// entries that only members which know cluster features read.
    pub fn all_propose(&self) -> bool {
        self.iter().all(|member| member.proposal.is_some())
    }

    /// Applies cluster params and appends `decision`, with the new params filled in, to the
    /// history.
    pub fn set_params(
        &mut self,
        store: &mut Store,
        applied: AppliedParams,
        mut decision: ParamsDecision,
    ) -> Result<(), MembershipError> {
        match applied {
            AppliedParams::Keep => return Ok(()),
            AppliedParams::Delete if self.params.is_none() => return Ok(()),
            AppliedParams::Delete => {
                store.delete_raw(Bucket::Cluster, CLUSTER_PARAMS)?;
                self.params = None;
            }
            AppliedParams::Replace(params) if self.params.as_ref() == Some(&params) => {
                // The leader had not applied the decision before it.
                return Ok(());
            }
            AppliedParams::Replace(params) => {
                let bytes = Bytes::from(to_message(&params).encode_to_vec());
                store.put_raw(Bucket::Cluster, Bytes::from_static(CLUSTER_PARAMS), bytes)?;
                self.params = Some(params);
            }
        }
        decision.params = self.params.as_ref().map(to_message);
        let decisions = with_decision(&self.history, decision);
        let key = Bytes::from_static(CLUSTER_PARAMS_HISTORY);
        let message = membershippb::ClusterParamsHistory { decisions };
        store.put_raw(Bucket::Cluster, key, message.encode_to_vec().into())?;
        self.history = Arc::new(message.decisions);
        self.decided_from = Arc::new(DecisionInputs::of(self));
        Ok(())
    }

    /// Whether a version is below the cluster's without an operator having asked for it.
    pub fn is_stale_version(&self, version: MajorMinor) -> bool {
        let is_lower = self
            .cluster_version
            .is_some_and(|current| version < current);
        let target = self.downgrade.target_version.parse::<MajorMinor>();
        let is_asked_for = self.downgrade.enabled && target == Ok(version);
        is_lower && !is_asked_for
    }

    /// Applies a decided cluster version.
    pub fn set_cluster_version(
        &mut self,
        store: &mut Store,
        version: MajorMinor,
    ) -> Result<(), MembershipError> {
        self.cluster_version = Some(version);
        let text = Bytes::from(format!("{version}.0"));
        store.put_raw(
            Bucket::Cluster,
            Bytes::from_static(CLUSTER_VERSION),
            text.clone(),
        )?;
        // The stored form follows the cluster version; 3.5 does not know the mark.
        let mark = Bytes::from_static(meta::STORAGE_VERSION.as_bytes());
        if version >= STORAGE_VERSION_SINCE {
            store.put_raw(Bucket::Meta, mark, text)?;
        } else {
            store.delete_raw(Bucket::Meta, &mark)?;
        }
        Ok(())
    }

    /// Applies the state of a downgrade.
    pub fn set_downgrade(
        &mut self,
        store: &mut Store,
        downgrade: DowngradeRecord,
    ) -> Result<(), MembershipError> {
        let json = to_json(&downgrade)?;
        store.put_raw(Bucket::Cluster, Bytes::from_static(DOWNGRADE), json)?;
        self.downgrade = downgrade;
        Ok(())
    }

    fn put(&mut self, store: &mut Store, record: MemberRecord) -> Result<(), MembershipError> {
        let (key, json) = record.stored()?;
        store.put_raw(Bucket::Members, key, json)?;
        self.members.insert(record.id, record);
        Ok(())
    }
}

/// Stored membership that cannot be read or written. The member must stop.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum MembershipError {
    /// A record that is no JSON of a member.
    #[error("the membership record {key} cannot be read: restore this member from a snapshot")]
    Record {
        key: String,
        source: serde_json::Error,
    },
    /// A key that is no id.
    #[error(
        "bucket members_removed holds {key:?}, which is no member id: restore this member from a snapshot"
    )]
    RemovedKey { key: String },
    /// Params that cannot be decoded.
    #[error("the stored cluster params cannot be read: restore this member from a snapshot")]
    Params,
    /// A version that cannot be parsed.
    #[error(
        "the stored cluster version {text:?} is no version: restore this member from a snapshot"
    )]
    ClusterVersion { text: String },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] portunus_mvcc::ApplyError),
    /// The backend failed.
    #[error("the membership records cannot be read")]
    Backend(#[from] BackendError),
}

/// Returns the decisions with one more, and without the oldest if there are too many.
pub fn with_decision(decisions: &[ParamsDecision], newest: ParamsDecision) -> Vec<ParamsDecision> {
    let excess = (decisions.len() + 1).saturating_sub(DECISIONS_KEPT);
    let kept = decisions.iter().skip(excess).cloned();
    kept.chain([newest]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: X8
    #[test]
    fn only_the_newest_decisions_are_kept() {
        let decided = |index| ParamsDecision {
            index,
            ..ParamsDecision::default()
        };
        let mut history = Vec::new();
        for index in 1..=300 {
            history = with_decision(&history, decided(index));
        }
        assert_eq!(history.len(), DECISIONS_KEPT);
        assert_eq!(history.last(), Some(&decided(300)));
        assert!(history.is_sorted_by(|a, b| a.index + 1 == b.index));
    }
}
