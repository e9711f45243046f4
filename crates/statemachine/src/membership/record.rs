//! Records of the cluster in the backend, with etcd's keys and etcd's JSON.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use portunus_mvcc::backend::{Bucket, Snapshot};
use serde::{Deserialize, Serialize};

use super::MembershipError;

/// The cluster version, in [`Bucket::Cluster`].
pub const CLUSTER_VERSION: &[u8] = b"clusterVersion";
/// The state of a downgrade, in [`Bucket::Cluster`].
pub const DOWNGRADE: &[u8] = b"downgrade";
/// The cluster params in force, in [`Bucket::Cluster`].
pub const CLUSTER_PARAMS: &[u8] = b"clusterParams";
/// The decisions about cluster params, in [`Bucket::Cluster`].
pub const CLUSTER_PARAMS_HISTORY: &[u8] = b"clusterParamsHistory";
/// The value of every key in [`Bucket::MembersRemoved`].
pub(super) const REMOVED: &[u8] = b"removed";

/// A member as etcd stores and sends it: JSON with these names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its id.
    pub id: u64,
    /// Its peer URLs.
    #[serde(rename = "peerURLs", default)]
    pub peer_urls: Option<Vec<String>>,
    /// Whether it is a learner.
    #[serde(
        rename = "isLearner",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_learner: bool,
    /// Its name, once it has started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its client URLs.
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
    /// Whether the member has published its attributes, which it does once it has caught up. The
    /// name alone is no sign of it: the first entries of a new cluster's log name the founders.
    pub fn has_published(&self) -> bool {
        !self.client_urls.is_empty()
    }

    /// Decodes a record from its key and value in [`Bucket::Members`].
    pub fn read(key: &[u8], json: &[u8]) -> Result<MemberRecord, MembershipError> {
        serde_json::from_slice(json).map_err(|source| MembershipError::Record {
            key: String::from_utf8_lossy(key).into_owned(),
            source,
        })
    }

    /// Encodes the record as key and value of [`Bucket::Members`].
    pub fn stored(&self) -> Result<(Bytes, Bytes), MembershipError> {
        Ok((Bytes::from(hex(self.id)), to_json(self)?))
    }
}

/// The flags for cluster features that a member has published: unresolved, unknown names included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalRecord {
    /// Its version, `major.minor`.
    pub version: String,
    /// Its flags.
    #[serde(rename = "featureGates", default)]
    pub flags: BTreeMap<String, bool>,
}

/// The state of a downgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DowngradeRecord {
    /// The target version, with a patch number.
    #[serde(rename = "target-version", default)]
    pub target_version: String,
    /// Whether one is in progress.
    #[serde(default)]
    pub enabled: bool,
}

/// Returns the records of all members in a backend.
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

/// Encodes a record as the value of its key.
pub(crate) fn to_json(value: &impl Serialize) -> Result<Bytes, MembershipError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|source| MembershipError::Record {
            key: "a new record".to_owned(),
            source,
        })
}

/// Formats an id as etcd does everywhere: lowercase hex without padding.
pub fn hex(id: u64) -> String {
    format!("{id:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_json_equals_etcd() {
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
}
