//! The members of the cluster and its version, as stored in etcd's buckets.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use portunus_gates::MajorMinor;
use portunus_gates::cluster::{AppliedParams, ClusterParams};
use portunus_mvcc::Store;
use portunus_mvcc::backend::{BackendError, Bucket, Snapshot, meta};
use portunus_proto::{EtcdError, etcdserverpb};
use portunus_proto::{membershippb, raftpb};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::cluster_gates::{from_message, proposal_from_message, to_message};
use super::decision_cause::DecisionInputs;

pub(crate) const CLUSTER_VERSION: &[u8] = b"clusterVersion";
pub(crate) const DOWNGRADE: &[u8] = b"downgrade";
pub(crate) const CLUSTER_PARAMS: &[u8] = b"clusterParams";
pub(crate) const CLUSTER_PARAMS_HISTORY: &[u8] = b"clusterParamsHistory";
/// Decisions that are kept for people to look back at.
const DECISIONS_KEPT: usize = 128;
const REMOVED: &[u8] = b"removed";
/// The first version that writes down which version the data is for.
pub(crate) const STORAGE_VERSION_SINCE: MajorMinor = MajorMinor::literal("3.6");

/// A member as etcd stores and sends it: JSON with these names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its id.
    pub id: u64,
    /// Where its peers reach it.
    #[serde(rename = "peerURLs", default)]
    pub peer_urls: Option<Vec<String>>,
    /// Whether it only learns.
    #[serde(
        rename = "isLearner",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_learner: bool,
    /// Its name, once it has started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where its clients reach it.
    #[serde(rename = "clientURLs", default, skip_serializing_if = "Vec::is_empty")]
    pub client_urls: Vec<String>,
    /// Which cluster features it proposes; absent for a member that has the mechanism off or
    /// does not know cluster features.
    #[serde(
        rename = "proposedClusterParams",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub proposal: Option<ProposalRecord>,
}

impl MemberRecord {
    /// Whether the member has published its attributes, which it does once it has caught up. Its
    /// name says nothing: the first entries of a new cluster's log hold the founders' names.
    pub fn has_published(&self) -> bool {
        !self.client_urls.is_empty()
    }

    /// From an entry of the bucket.
    pub(crate) fn read(key: &[u8], json: &[u8]) -> Result<MemberRecord, MembershipError> {
        serde_json::from_slice(json).map_err(|source| MembershipError::Record {
            key: String::from_utf8_lossy(key).into_owned(),
            source,
        })
    }

    /// As an entry of the bucket.
    pub(crate) fn stored(&self) -> Result<(Bytes, Bytes), MembershipError> {
        Ok((Bytes::from(hex(self.id)), to_json(self)?))
    }
}

/// A member's own word about cluster features: never resolved, unknown names included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalRecord {
    /// Its version, `major.minor`.
    pub version: String,
    /// Its flags.
    #[serde(rename = "featureGates", default)]
    pub flags: BTreeMap<String, bool>,
}

/// What a change of membership carries: a member, and whether it is only promoted.
#[derive(Debug, Deserialize)]
struct ChangeContext {
    #[serde(flatten)]
    member: MemberRecord,
    #[serde(rename = "isPromote", default)]
    is_promote: bool,
}

/// A change of membership that will be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedChange {
    /// Somebody new.
    Add(MemberRecord),
    /// A learner becomes a voter.
    Promote(MemberRecord),
    /// Other peer URLs.
    Update(MemberRecord),
    /// Somebody goes, for good.
    Remove(u64),
}

/// What a downgrade in progress looks like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DowngradeRecord {
    /// Where to.
    #[serde(rename = "target-version", default)]
    pub target_version: String,
    /// Whether one is in progress.
    #[serde(default)]
    pub enabled: bool,
}

/// A decision about cluster features, as it is kept and sent.
pub type ParamsDecision = membershippb::ClusterParamsDecision;

/// The members and the version of the cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Membership {
    members: BTreeMap<u64, MemberRecord>,
    removed: BTreeSet<u64>,
    /// Once decided.
    pub cluster_version: Option<MajorMinor>,
    /// A downgrade, if one was ever enabled.
    pub downgrade: DowngradeRecord,
    /// What the cluster decided about its features; absent where there are none.
    pub params: Option<ClusterParams>,
    /// Earlier decisions and the one in force, oldest first.
    pub history: Arc<Vec<ParamsDecision>>,
    /// What the last decision found, or what was stored when the member started.
    pub decided_from: Arc<DecisionInputs>,
}

impl Membership {
    /// Reads the buckets.
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

    #[cfg(test)]
    pub(crate) fn of_test(members: &[(u64, bool)]) -> Membership {
        let record = |(id, has_proposal): &(u64, bool)| MemberRecord {
            id: *id,
            peer_urls: None,
            is_learner: false,
            name: String::new(),
            client_urls: Vec::new(),
            proposal: has_proposal.then(|| ProposalRecord {
                version: "3.8".to_owned(),
                flags: BTreeMap::new(),
            }),
        };
        let members = members.iter().map(|member| (member.0, record(member)));
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

    /// As messages, by id.
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

    /// Whether an id was used and may never come back.
    pub fn is_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// Ids that may never come back.
    pub fn removed(&self) -> impl Iterator<Item = u64> {
        self.removed.iter().copied()
    }

    /// Learners among the members.
    pub fn learners(&self) -> usize {
        self.iter().filter(|member| member.is_learner).count()
    }

    /// Whether one of these peer URLs belongs to somebody else than `except`.
    fn has_peer_url(&self, urls: &[String], except: u64) -> bool {
        let others = self.iter().filter(|member| member.id != except);
        let mut taken = others.flat_map(|member| member.peer_urls.iter().flatten());
        taken.any(|url| urls.contains(url))
    }

    /// Judges a committed change against the members as they are, as every member does at
    /// this index. A change that is refused is not made by anybody.
    pub fn judge(
        &self,
        change: &raftpb::ConfChange,
        max_learners: usize,
    ) -> Result<Result<PlannedChange, EtcdError>, MembershipError> {
        use raftpb::ConfChangeType as Type;
        let id = change.node_id;
        if self.is_removed(id) {
            return Ok(Err(EtcdError::MemberNotFound));
        }
        let known = self.get(id);
        if change.r#type() == Type::ConfChangeRemoveNode {
            return Ok(match known {
                Some(_) => Ok(PlannedChange::Remove(id)),
                None => Err(EtcdError::MemberNotFound),
            });
        }
        let record = |source| MembershipError::Record {
            key: hex(id),
            source,
        };
        let context: ChangeContext = serde_json::from_slice(&change.context).map_err(record)?;
        let urls = context.member.peer_urls.clone().unwrap_or_default();
        Ok(match (change.r#type(), known) {
            (Type::ConfChangeUpdateNode, None) => Err(EtcdError::MemberNotFound),
            (Type::ConfChangeUpdateNode, Some(known)) => {
                if self.has_peer_url(&urls, id) {
                    return Ok(Err(EtcdError::PeerUrlExists));
                }
                Ok(PlannedChange::Update(MemberRecord {
                    peer_urls: Some(urls),
                    ..known.clone()
                }))
            }
            (_, known) if context.is_promote => match known {
                None => Err(EtcdError::MemberNotFound),
                Some(known) if !known.is_learner => Err(EtcdError::MemberNotLearner),
                Some(known) => Ok(PlannedChange::Promote(MemberRecord {
                    is_learner: false,
                    ..known.clone()
                })),
            },
            (_, Some(_)) => Err(EtcdError::MemberExists),
            (_, None) if self.has_peer_url(&urls, 0) => Err(EtcdError::PeerUrlExists),
            (kind, None) => {
                let is_learner = kind == Type::ConfChangeAddLearnerNode;
                if is_learner && self.learners() >= max_learners {
                    return Ok(Err(EtcdError::TooManyLearners));
                }
                Ok(PlannedChange::Add(MemberRecord {
                    is_learner,
                    ..context.member
                }))
            }
        })
    }

    /// Makes a change that was judged good.
    pub fn apply(
        &mut self,
        store: &mut Store,
        change: &PlannedChange,
    ) -> Result<(), MembershipError> {
        match change {
            PlannedChange::Remove(id) => {
                self.members.remove(id);
                self.removed.insert(*id);
                store.delete_raw(Bucket::Members, hex(*id).as_bytes())?;
                store.put_raw(
                    Bucket::MembersRemoved,
                    Bytes::from(hex(*id)),
                    Bytes::from_static(REMOVED),
                )?;
                Ok(())
            }
            PlannedChange::Add(record)
            | PlannedChange::Promote(record)
            | PlannedChange::Update(record) => self.put(store, record.clone()),
        }
    }

    /// Applies what a member published about itself. Attributes without a proposal take an
    /// earlier one back.
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

    /// The entry that decided what is in force.
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

    /// Applies what was decided about cluster features, with the version it came with.
    /// `decision` says when and by whom, and gets the rest.
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
                // A leader that had not seen the decision before it.
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

/// The confState of the `meta` bucket, as etcd writes it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ConfStateRecord {
    #[serde(default)]
    voters: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    learners: Vec<u64>,
    #[serde(default)]
    auto_leave: bool,
}

/// Stores the configuration raft has after a change of membership.
pub fn put_conf_state(store: &mut Store, state: &raftpb::ConfState) -> Result<(), MembershipError> {
    let record = ConfStateRecord {
        voters: state.voters.clone(),
        learners: state.learners.clone(),
        auto_leave: state.auto_leave,
    };
    let key = Bytes::from_static(meta::CONF_STATE.as_bytes());
    store.put_raw(Bucket::Meta, key, to_json(&record)?)?;
    Ok(())
}

/// Reads it back.
pub fn conf_state(store: &Store) -> Result<Option<raftpb::ConfState>, MembershipError> {
    let json = store.get_raw(Bucket::Meta, meta::CONF_STATE.as_bytes());
    json.map(|json| conf_state_of(json)).transpose()
}

/// The same, of a record that was read elsewhere.
pub fn conf_state_of(json: &[u8]) -> Result<raftpb::ConfState, MembershipError> {
    let record: ConfStateRecord =
        serde_json::from_slice(json).map_err(|source| MembershipError::Record {
            key: meta::CONF_STATE.to_owned(),
            source,
        })?;
    Ok(raftpb::ConfState {
        voters: record.voters,
        learners: record.learners,
        auto_leave: record.auto_leave,
        ..raftpb::ConfState::default()
    })
}

/// The records of all members in a backend.
pub fn member_records(snapshot: &dyn Snapshot) -> Result<Vec<MemberRecord>, MembershipError> {
    let mut members = Vec::new();
    let mut fault = None;
    snapshot.scan(
        Bucket::Members,
        b"",
        &mut |key, json| match MemberRecord::read(key, json) {
            Ok(record) => {
                members.push(record);
                ControlFlow::Continue(())
            }
            Err(error) => {
                fault = Some(error);
                ControlFlow::Break(())
            }
        },
    )?;
    fault.map_or(Ok(members), Err)
}

fn to_json(value: &impl Serialize) -> Result<Bytes, MembershipError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|source| MembershipError::Record {
            key: "a new record".to_owned(),
            source,
        })
}

/// Ids are lowercase hex without padding everywhere in etcd.
pub fn hex(id: u64) -> String {
    format!("{id:x}")
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
    /// Params that are none.
    #[error("the stored cluster params cannot be read: restore this member from a snapshot")]
    Params,
    /// A version that is none.
    #[error(
        "the stored cluster version {text:?} is no version: restore this member from a snapshot"
    )]
    ClusterVersion { text: String },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] portunus_mvcc::ApplyError),
    /// The backend.
    #[error("the membership records cannot be read")]
    Backend(#[from] BackendError),
}

/// Decisions with one more, and no more than are kept.
pub(crate) fn with_decision(
    decisions: &[ParamsDecision],
    newest: ParamsDecision,
) -> Vec<ParamsDecision> {
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

    #[test]
    fn member_json_is_etcds() {
        let record = MemberRecord {
            id: u64::MAX,
            peer_urls: Some(vec!["http://a:2380".to_owned()]),
            is_learner: false,
            name: "m1".to_owned(),
            client_urls: vec!["http://a:2379".to_owned()],
            proposal: None,
        };
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(
            json,
            r#"{"id":18446744073709551615,"peerURLs":["http://a:2380"],"name":"m1","clientURLs":["http://a:2379"]}"#
        );
        let promote: MemberRecord =
            serde_json::from_str(r#"{"id":7,"peerURLs":null,"isPromote":true}"#).unwrap();
        assert_eq!((promote.id, promote.peer_urls), (7, None));
        assert_eq!(hex(255), "ff");
    }

    fn change(kind: raftpb::ConfChangeType, id: u64, context: &str) -> raftpb::ConfChange {
        raftpb::ConfChange {
            r#type: kind.into(),
            node_id: id,
            context: context.to_owned().into(),
            ..raftpb::ConfChange::default()
        }
    }

    fn members() -> Membership {
        let record = |id: u64, is_learner| MemberRecord {
            id,
            peer_urls: Some(vec![format!("http://m{id}:2380")]),
            is_learner,
            name: format!("m{id}"),
            client_urls: vec![format!("http://m{id}:2379")],
            proposal: None,
        };
        let members = [record(1, false), record(2, false), record(3, true)];
        Membership {
            members: members
                .into_iter()
                .map(|member| (member.id, member))
                .collect(),
            removed: BTreeSet::from([9]),
            ..Membership::default()
        }
    }

    /// Every member comes to the same verdict from the entry and the members before it.
    #[test]
    fn changes_are_judged_as_etcd_judges_them() {
        use raftpb::ConfChangeType as Type;
        let (add, learn) = (Type::ConfChangeAddNode, Type::ConfChangeAddLearnerNode);
        let (update, remove) = (Type::ConfChangeUpdateNode, Type::ConfChangeRemoveNode);
        let members = members();
        let judge = |kind, id, context: &str, max_learners| {
            members
                .judge(&change(kind, id, context), max_learners)
                .unwrap()
        };
        let refused = |kind, id, context: &str, max_learners| {
            judge(kind, id, context, max_learners).unwrap_err()
        };
        let new = r#"{"id":4,"peerURLs":["http://m4:2380"]}"#;
        let PlannedChange::Add(added) = judge(add, 4, new, 1).unwrap() else {
            panic!("an addition");
        };
        assert!(!added.is_learner);
        assert_eq!(refused(learn, 4, new, 1), EtcdError::TooManyLearners);
        let PlannedChange::Add(added) = judge(learn, 4, new, 2).unwrap() else {
            panic!("an addition");
        };
        assert!(added.is_learner);
        assert_eq!(refused(add, 1, new, 1), EtcdError::MemberExists);
        assert_eq!(refused(add, 9, new, 1), EtcdError::MemberNotFound);
        let taken = r#"{"id":4,"peerURLs":["http://m2:2380"]}"#;
        assert_eq!(refused(add, 4, taken, 1), EtcdError::PeerUrlExists);

        let promote = |id| format!(r#"{{"id":{id},"peerURLs":null,"isPromote":true}}"#);
        let PlannedChange::Promote(promoted) = judge(add, 3, &promote(3), 1).unwrap() else {
            panic!("a promotion");
        };
        assert_eq!((promoted.is_learner, promoted.name.as_str()), (false, "m3"));
        assert_eq!(refused(add, 2, &promote(2), 1), EtcdError::MemberNotLearner);
        assert_eq!(refused(add, 4, &promote(4), 1), EtcdError::MemberNotFound);

        let moved = r#"{"id":3,"peerURLs":["http://n3:2380"]}"#;
        let PlannedChange::Update(updated) = judge(update, 3, moved, 1).unwrap() else {
            panic!("an update");
        };
        assert!(updated.is_learner, "an update promotes nobody");
        assert_eq!(refused(update, 3, taken, 1), EtcdError::PeerUrlExists);
        assert_eq!(refused(update, 4, moved, 1), EtcdError::MemberNotFound);
        assert_eq!(judge(remove, 2, "", 1), Ok(PlannedChange::Remove(2)));
        assert_eq!(refused(remove, 4, "", 1), EtcdError::MemberNotFound);
    }
}
