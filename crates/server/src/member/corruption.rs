//! Corruption checks: the leader compares the hashes of all members' data and raises the alarm.
//!
//! A difference cannot be repaired while the members run. The alarm stops writes on every member;
//! a member that finds a difference at its own start does not start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portunus_consensus::bootstrap::Identity;
use portunus_mvcc::{KvHash, ReadError};
use portunus_proto::etcdserverpb::AlarmType;
use portunus_proto::{ClusterId, EtcdError};
use portunus_rafthttp::PeerClient;
use thiserror::Error;
use tokio::task::JoinSet;

use super::Member;
use crate::error_chain::chain;
use crate::peers::Peers;
use crate::peers::ask::{Asked, HashedMember, PeerHash};
use portunus_features::{CompactHashCheck, InitialCorruptCheck, ServerFeatures};
use portunus_gates::Gates;
use portunus_statemachine::membership::{MemberRecord, Membership, hex};

/// Longest wait for one member's hash, which reads all of the member's data.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest wait at the start for a peer to answer at all. Where all members start together none
/// answers, and each would wait for the others.
const PROBE_TIME_MAX: Duration = Duration::from_secs(1);
/// The member id of the alarm if no quorum of members has the same hash.
const UNKNOWN_MEMBER: u64 = 0;

/// The data of this member differs from its peers' data; it must not serve.
#[derive(Debug, Error)]
#[error(
    "the data of this member differs from the data of {}: do not start it with this data; remove the member, delete its data directory and add it again", peers.join(", ")
)]
pub struct InconsistentError {
    peers: Vec<String>,
}

/// Why the members' data could not be compared.
#[derive(Debug, Error)]
enum CompareError {
    #[error(transparent)]
    Refused(#[from] EtcdError),
    #[error("the hash of this member's data could not be computed")]
    Read(#[from] ReadError),
}

type Answers = BTreeMap<u64, Result<PeerHash, String>>;

/// Whether members are probed before they are asked for a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// Probe first, and ask only members that answer.
    First,
    /// Ask at once: the members run.
    No,
}

/// The ids and peer URLs of the other members.
fn others(membership: &Membership, own_id: u64) -> Vec<(u64, Vec<String>)> {
    let records = membership.iter().filter(|record| record.id != own_id);
    let urls = |record: &MemberRecord| record.peer_urls.clone().unwrap_or_default();
    records.map(|record| (record.id, urls(record))).collect()
}

/// Asks `members` for their hashes at `revision`, all at once.
async fn ask(
    client: &PeerClient,
    cluster_id: ClusterId,
    members: Vec<(u64, Vec<String>)>,
    revision: i64,
    probe: Probe,
) -> Answers {
    let mut asking = JoinSet::new();
    for (member_id, urls) in members {
        let client = client.clone();
        let member = HashedMember {
            cluster_id,
            member_id,
        };
        asking.spawn(async move {
            let mut asked = Asked {
                client,
                urls,
                timeout: PROBE_TIME_MAX,
            };
            let runs = probe == Probe::No || asked.versions().await.is_some();
            asked.timeout = ANSWER_TIME_MAX;
            let answer = match runs {
                true => asked.hash_kv(member, revision).await,
                false => None,
            };
            let answer = answer.unwrap_or(Err("no answer".to_owned()));
            (member_id, answer)
        });
    }
    asking.join_all().await.into_iter().collect()
}

/// Whether a starting member compares its data with the others'.
pub fn checks_at_start(gates: &Gates<ServerFeatures>, membership: &Membership) -> bool {
    gates.enabled(InitialCorruptCheck) && membership.iter().count() > 1
}

/// Compares hashes before this member serves; peers compacted alike must have the same hash.
pub async fn check_at_start(
    peers: &Peers,
    membership: &Membership,
    identity: Identity,
    own: &KvHash,
) -> Result<(), InconsistentError> {
    let others = others(membership, identity.member_id.0);
    let cluster_id = identity.cluster_id;
    let asked = ask(
        peers.client(),
        cluster_id,
        others,
        own.revision,
        Probe::First,
    );
    let answers = asked.await;
    let mut different = Vec::new();
    for (id, answer) in answers {
        match answer {
            Ok(hash) if hash.compact_revision != own.compact_revision => tracing::warn!(
                peer = hex(id),
                "the data cannot be compared: it is compacted to another revision"
            ),
            Ok(hash) if hash.hash != own.hash => different.push(hex(id)),
            Ok(_) => {}
            Err(error) => tracing::warn!(peer = hex(id), error, "the data could not be compared"),
        }
    }
    match different.is_empty() {
        true => Ok(()),
        false => Err(InconsistentError { peers: different }),
    }
}

/// The members with wrong data, by the leader's hashes before and after it asked the others.
fn suspects(before: &KvHash, after: &KvHash, own_id: u64, answers: &Answers) -> BTreeSet<u64> {
    let mut suspects = BTreeSet::new();
    let same_place =
        after.revision == before.revision && after.compact_revision == before.compact_revision;
    if same_place && after.hash != before.hash {
        suspects.insert(own_id);
    }
    for (id, answer) in answers {
        let Ok(answer) = answer else { continue };
        let is_ahead = answer.header.revision > after.revision
            || answer.compact_revision > after.compact_revision;
        let differs =
            answer.compact_revision == before.compact_revision && answer.hash != before.hash;
        if is_ahead || differs {
            suspects.insert(*id);
        }
    }
    suspects
}

/// The result of comparing the hashes of one compaction.
#[derive(Debug, PartialEq, Eq)]
enum Compared {
    /// All members have the same hash.
    Same,
    /// No member differs, but not all could be compared.
    Unfinished,
    /// These members differ.
    Differ(BTreeSet<u64>),
}

fn compare_compaction(own: &KvHash, own_id: u64, answers: &Answers) -> Compared {
    let mut members: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    members.entry(own.hash).or_default().insert(own_id);
    let mut compared = 0;
    for (id, answer) in answers {
        let Ok(answer) = answer else { continue };
        if answer.compact_revision == own.compact_revision {
            members.entry(answer.hash).or_default().insert(*id);
            compared += 1;
        }
    }
    if members.len() == 1 {
        return match compared == answers.len() {
            true => Compared::Same,
            false => Compared::Unfinished,
        };
    }
    let quorum = answers.len().div_ceil(2) + 1;
    let has_quorum = members.values().any(|ids| ids.len() >= quorum);
    let minority = members.into_values().filter(|ids| ids.len() < quorum);
    Compared::Differ(match has_quorum {
        true => minority.flatten().collect(),
        false => BTreeSet::from([UNKNOWN_MEMBER]),
    })
}

/// Compares all data at an interval, while this member leads.
pub async fn check_periodically(member: &Member) {
    let interval = member.process.config.cluster.corrupt_check_interval;
    if interval.is_zero() {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = member.process.stop.stopped() => return,
        }
        if !member.leads() {
            continue;
        }
        if let Err(error) = member.compare_all().await {
            let reason = chain(&error);
            tracing::warn!(reason, "the members' data could not be compared");
        }
    }
}

/// Compares the hashes of compactions, while this member leads.
pub async fn check_compactions(member: &Member) {
    if !member.process.gates.enabled(CompactHashCheck) {
        return;
    }
    let interval = member.process.config.cluster.compact_hash_check_interval;
    let mut checked_to = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = member.process.stop.stopped() => return,
        }
        if member.leads() {
            checked_to = member.compare_compactions(checked_to).await;
        }
    }
}

impl Member {
    async fn own_hash(&self, revision: i64) -> Result<KvHash, CompareError> {
        let reader = self.store.reader().clone();
        let hashed = tokio::task::spawn_blocking(move || reader.hash_kv(revision)).await;
        let hashed = hashed.map_err(|_| EtcdError::Stopped)?;
        if let Err(error) = &hashed
            && error.is_damage()
        {
            self.process.stop.fatal(error);
        }
        Ok(hashed?)
    }

    async fn ask_others(&self, revision: i64) -> Answers {
        let others = others(&self.cluster.membership(), self.cluster.own_id().0);
        let cluster_id = self.cluster.identity.cluster_id;
        let client = self.peers.client();
        ask(client, cluster_id, others, revision, Probe::No).await
    }

    async fn compare_all(&self) -> Result<(), CompareError> {
        let own_id = self.cluster.own_id().0;
        let before = self.own_hash(0).await?;
        let answers = self.ask_others(before.revision).await;
        self.store.linearizable().await?;
        let after = self.own_hash(0).await?;
        for id in suspects(&before, &after, own_id, &answers) {
            self.raise_corrupt_alarm(id);
        }
        Ok(())
    }

    /// Compares compactions that were not compared yet, newest first; returns the revision up to
    /// which all are compared.
    async fn compare_compactions(&self, checked_to: i64) -> i64 {
        let own_id = self.cluster.own_id().0;
        let mut hashes = self.store.reader().compaction_hashes();
        hashes.retain(|hash| hash.revision > checked_to);
        hashes.sort_by_key(|hash| std::cmp::Reverse(hash.revision));
        for own in hashes {
            let answers = self.ask_others(own.revision).await;
            match compare_compaction(&own, own_id, &answers) {
                Compared::Same => return own.revision,
                Compared::Unfinished => {}
                Compared::Differ(members) => {
                    for id in members {
                        self.raise_corrupt_alarm(id);
                    }
                    return checked_to;
                }
            }
        }
        checked_to
    }

    fn raise_corrupt_alarm(&self, id: u64) {
        let alarm = AlarmType::Corrupt;
        if self.cluster.alarms().is_raised(id, alarm) {
            return;
        }
        tracing::error!(
            member = hex(id),
            "members hold different data: writes are refused until the alarm is disarmed"
        );
        self.proposals.activate_alarm(id, alarm);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Barrier;

    use super::*;
    use crate::peers::ask::PeerHashHeader;

    fn own(hash: u32, compact_revision: i64, revision: i64) -> KvHash {
        KvHash {
            hash,
            compact_revision,
            revision,
        }
    }

    fn answer(hash: u32, compact_revision: i64, newest: i64) -> Result<PeerHash, String> {
        Ok(PeerHash {
            header: PeerHashHeader {
                cluster_id: 0,
                member_id: 0,
                revision: newest,
            },
            hash,
            compact_revision,
            hash_revision: newest,
        })
    }

    /// Reads a request of a peer.
    async fn request(connection: &mut TcpStream) -> String {
        let mut request = Vec::new();
        let is_whole = |request: &[u8]| {
            let text = String::from_utf8_lossy(request).into_owned();
            text.ends_with('}') || text.starts_with("GET /version") && text.ends_with("\r\n\r\n")
        };
        while !is_whole(&request) {
            let read = connection.read_buf(&mut request).await.unwrap();
            assert!(read > 0, "cut off");
        }
        String::from_utf8(request).unwrap()
    }

    async fn listen() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (listener, url)
    }

    fn client() -> PeerClient {
        PeerClient::new(&portunus_rafthttp::Config::default())
    }

    /// Each peer answers only once all were asked.
    #[tokio::test]
    async fn hashes_of_all_members_are_requested_concurrently() {
        const MEMBERS: u64 = 3;
        let all_asked = Arc::new(Barrier::new(MEMBERS as usize));
        let mut members = Vec::new();
        for id in 1..=MEMBERS {
            let (listener, url) = listen().await;
            members.push((id, vec![url]));
            let all_asked = Arc::clone(&all_asked);
            tokio::spawn(async move {
                let (mut connection, _) = listener.accept().await.unwrap();
                request(&mut connection).await;
                all_asked.wait().await;
                let body =
                    r#"{"header":{"revision":3},"hash":5,"compact_revision":-1,"hash_revision":3}"#;
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                connection.write_all(answer.as_bytes()).await.unwrap();
            });
        }
        let answers = ask(&client(), ClusterId(7), members, 3, Probe::No).await;
        assert_eq!(answers.len(), MEMBERS as usize);
        for (id, answer) in answers {
            assert_eq!(answer.map(|hash| hash.hash), Ok(5), "{id}");
        }
    }

    /// Where members start together, each listens before it answers: none waits for a hash.
    #[tokio::test]
    async fn member_that_does_not_run_is_not_asked_for_its_hash() {
        let (listener, url) = listen().await;
        let asked = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            (request(&mut connection).await, connection)
        });
        let answers = ask(
            &client(),
            ClusterId(7),
            vec![(2, vec![url])],
            3,
            Probe::First,
        )
        .await;
        assert_eq!(answers[&2], Err("no answer".to_owned()));
        let (request, _) = asked.await.unwrap();
        assert!(request.starts_with("GET /version "), "{request}");
    }

    #[test]
    fn member_that_differs_or_is_ahead_of_the_leader_is_suspected() {
        let (before, after) = (own(7, 5, 100), own(8, 5, 110));
        let answers = Answers::from([
            (2, answer(7, 5, 100)),
            (3, answer(9, 5, 100)),
            (4, answer(9, 4, 100)),
            (5, answer(7, 5, 111)),
            (6, answer(7, 6, 100)),
            (
                7,
                Err("mvcc: required revision is a future revision".to_owned()),
            ),
        ]);
        assert_eq!(suspects(&before, &after, 1, &answers), [3, 5, 6].into());
        let changed = own(8, 5, 100);
        assert_eq!(suspects(&before, &changed, 1, &Answers::new()), [1].into());
    }

    #[test]
    fn minority_of_compaction_hashes_is_corrupt_and_without_a_majority_no_member_is_named() {
        let leader = own(7, 5, 100);
        let compare = |answers: Answers| compare_compaction(&leader, 1, &answers);
        let same = || answer(7, 5, 100);
        assert_eq!(compare([(2, same()), (3, same())].into()), Compared::Same);
        let other_compaction = answer(9, 4, 100);
        assert_eq!(
            compare([(2, same()), (3, other_compaction)].into()),
            Compared::Unfinished
        );
        assert_eq!(
            compare([(2, same()), (3, answer(9, 5, 100))].into()),
            Compared::Differ([3].into())
        );
        assert_eq!(
            compare([(2, answer(9, 5, 100)), (3, answer(9, 5, 100))].into()),
            Compared::Differ([1].into())
        );
        assert_eq!(
            compare([(2, answer(8, 5, 100)), (3, answer(9, 5, 100))].into()),
            Compared::Differ([UNKNOWN_MEMBER].into())
        );
    }
}
