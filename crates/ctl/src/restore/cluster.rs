//! The members of the new cluster and their ids.
//!
//! Every member computes the same ids from the same flags, without a connection to the others.

use std::collections::BTreeMap;

use sha1::{Digest, Sha1};

use crate::go::json::{Object, string};
use crate::peer_urls::{self, PeerUrlError};

/// A member of the new cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredMember {
    /// Computed from the peer URLs and the cluster token.
    pub id: u64,
    /// Human-readable name.
    pub name: String,
    /// The peer URLs, sorted.
    pub peer_urls: Vec<String>,
}

/// The new cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialCluster {
    /// Ascending by id.
    pub members: Vec<RestoredMember>,
    /// The member being restored.
    pub local_id: u64,
    /// Computed from the members' ids.
    pub cluster_id: u64,
}

/// Why the flags describe no cluster.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Not a peer URL.
    #[error(transparent)]
    PeerUrl(#[from] PeerUrlError),
    /// The member to be restored is not in the list.
    #[error("couldn't find local name {0:?} in the initial cluster configuration")]
    NoLocalMember(String),
    /// The two flags have different peer URLs for this member.
    #[error(
        "--initial-cluster has {listed} for {name} but --initial-advertise-peer-urls is {advertised}; \
         give both the same URLs"
    )]
    AdvertisedDiffers {
        /// This member's name.
        name: String,
        /// Its URLs in `--initial-cluster`.
        listed: String,
        /// Its URLs in `--initial-advertise-peer-urls`.
        advertised: String,
    },
    /// Two members have the same peer URL.
    #[error("initial cluster {0} has duplicate url")]
    DuplicateUrl(String),
    /// Two members have the same id.
    #[error("member exists with identical ID {0:x}")]
    DuplicateId(u64),
}

impl InitialCluster {
    /// Checks etcdutl's flags and computes the ids.
    pub fn new(
        initial_cluster: &str,
        token: &str,
        local_name: &str,
        advertised_peer_urls: &str,
    ) -> Result<Self, ClusterError> {
        let advertised = peer_urls::parse_all(advertised_peer_urls.split(','))?;
        let by_name = urls_by_name(initial_cluster)?;
        let Some(listed) = by_name.get(local_name) else {
            return Err(ClusterError::NoLocalMember(local_name.to_owned()));
        };
        if *listed != advertised {
            return Err(ClusterError::AdvertisedDiffers {
                name: local_name.to_owned(),
                listed: listed.join(","),
                advertised: advertised.join(","),
            });
        }
        let mut urls: Vec<&String> = by_name.values().flatten().collect();
        let urls_given = urls.len();
        urls.sort();
        urls.dedup();
        if urls.len() != urls_given {
            return Err(ClusterError::DuplicateUrl(initial_cluster.to_owned()));
        }

        let mut members: Vec<RestoredMember> = by_name
            .into_iter()
            .map(|(name, peer_urls)| RestoredMember {
                id: member_id(&peer_urls, token),
                name,
                peer_urls,
            })
            .collect();
        members.sort_by_key(|member| member.id);
        if let Some(twins) = members.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(ClusterError::DuplicateId(twins[0].id));
        }
        let local_id = member_id(&advertised, token);
        let cluster_id = cluster_id(&members);
        Ok(Self {
            members,
            local_id,
            cluster_id,
        })
    }

    /// Ids of all members, ascending.
    pub fn ids(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.id).collect()
    }
}

impl RestoredMember {
    /// etcd's JSON of a member, in the store and in the log.
    pub fn json(&self) -> String {
        Object::default()
            .raw("id", self.id)
            .raw("peerURLs", self.peer_urls_json())
            .text_omit_empty("name", &self.name)
            .end()
    }

    pub fn peer_urls_json(&self) -> String {
        crate::go::json::array(self.peer_urls.iter().map(|url| string(url)))
    }
}

fn member_id(sorted_peer_urls: &[String], token: &str) -> u64 {
    let mut hasher = Sha1::new();
    for url in sorted_peer_urls {
        hasher.update(url);
    }
    hasher.update(token);
    first_u64(&hasher.finalize())
}

fn cluster_id(members_ascending: &[RestoredMember]) -> u64 {
    let mut hasher = Sha1::new();
    for member in members_ascending {
        hasher.update(member.id.to_be_bytes());
    }
    first_u64(&hasher.finalize())
}

fn first_u64(hash: &[u8]) -> u64 {
    hash.iter()
        .take(8)
        .fold(0, |id, byte| (id << 8) | u64::from(*byte))
}

/// `name=url,name=url`; a name may come more than once.
fn urls_by_name(text: &str) -> Result<BTreeMap<String, Vec<String>>, ClusterError> {
    let mut by_name: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (name, url) = pair.split_once('=').unwrap_or((pair, ""));
        by_name.entry(name.to_owned()).or_default().push(url);
    }
    by_name
        .into_iter()
        .map(|(name, urls)| Ok((name, peer_urls::parse_all(urls)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids as `etcdutl snapshot restore` of etcd 3.7.1 computed them for these flags.
    #[test]
    fn ids_equal_those_of_etcd() {
        let cluster = InitialCluster::new(
            "m1=http://127.0.0.1:24801,m2=http://127.0.0.1:24803,m2=http://127.0.0.1:24802",
            "etcd-cluster",
            "m1",
            "http://127.0.0.1:24801",
        )
        .unwrap();
        assert_eq!(
            cluster.ids(),
            [0xf280_6cec_9829_9dd0, 0xf4a4_5700_8d14_41f2]
        );
        assert_eq!(cluster.local_id, 0xf4a4_5700_8d14_41f2);
        assert_eq!(cluster.cluster_id, 0x576b_b0f2_3fe5_a0f6);
        assert_eq!(
            cluster.members[0].json(),
            r#"{"id":17474086317618470352,"peerURLs":["http://127.0.0.1:24802","http://127.0.0.1:24803"],"name":"m2"}"#
        );
    }

    #[test]
    fn contradicting_flags_are_refused() {
        let new = |cluster, name, advertised| {
            InitialCluster::new(cluster, "token", name, advertised).unwrap_err()
        };
        assert!(matches!(
            new("a=http://h:1", "b", "http://h:1"),
            ClusterError::NoLocalMember(_)
        ));
        assert!(matches!(
            new("a=http://h:1", "a", "http://h:2"),
            ClusterError::AdvertisedDiffers { .. }
        ));
        assert!(matches!(
            new("a=http://h:1,b=http://h:1", "a", "http://h:1"),
            ClusterError::DuplicateUrl(_)
        ));
    }
}
