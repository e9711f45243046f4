//! Portunus members among Go etcd members: joining their cluster, leading it, replacing all of
//! them one by one, and being replaced again.
//!
//! Needs Go's etcd (see `portunus_testkit::go`); without it the test prints a warning that
//! it proved nothing. `PORTUNUS_AMONG_GO=3.6.14` chooses another version.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod mixed_users;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::gates::{MECHANISM, NO_MECHANISM, TAG, decisions, wants};
use common::requests::{get, put};
use common::{Clients, WAIT_MAX, eventually};
use mixed_users::mutual_tls::MutualTls;
use portunus_proto::etcdserverpb::{
    FeatureGateDetail, FeatureGateStatusRequest, HashKvRequest, HashKvResponse, MemberAddRequest,
    MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MoveLeaderRequest, PutRequest,
    RangeRequest, StatusRequest,
};
use portunus_testkit::member::{self, InitialState, Member};
use portunus_testkit::program::{Kind, Program};
use portunus_testkit::users::signed;

/// A cluster of both kinds.
struct Mixed {
    etcd: Program,
    /// The version that Portunus members emulate, so that Go members can read their data.
    emulated: Option<String>,
    /// Further flags of Portunus members.
    flags: Vec<String>,
    dir: tempfile::TempDir,
    members: BTreeMap<String, Member>,
    /// The token of the requests about the cluster, while authentication is enabled.
    token: Option<String>,
    /// TLS at both ports of all members; `None` without.
    tls: Option<MutualTls>,
}

impl Mixed {
    fn new(etcd: Program) -> Mixed {
        let version = std::env::var("PORTUNUS_AMONG_GO").unwrap_or_else(|_| "3.7".to_owned());
        let mut numbers = version.split('.');
        let emulated = format!("{}.{}", numbers.next().unwrap(), numbers.next().unwrap());
        Mixed {
            etcd,
            emulated: Some(emulated),
            flags: Vec::new(),
            dir: tempfile::tempdir().unwrap(),
            members: BTreeMap::new(),
            token: None,
            tls: None,
        }
    }

    /// Returns a request with the token, if there is one.
    fn signed<T>(&self, message: T) -> tonic::Request<T> {
        match &self.token {
            Some(token) => signed(token, message),
            None => tonic::Request::new(message),
        }
    }

    /// Returns the end of every member's log, for a failing test.
    fn logs(&self) -> String {
        member::log_tails(self.members.values(), 30)
    }

    fn program(&self, kind: Kind) -> Program {
        match kind {
            Kind::Etcd => self.etcd.clone(),
            Kind::Portunus => Program::portunus(),
        }
    }

    fn add(&mut self, name: &str, kind: Kind) {
        let mut member = Member::new(name, self.program(kind), self.dir.path()).unwrap();
        if let Some(tls) = &self.tls {
            tls.require(&mut member);
        }
        self.members.insert(name.to_owned(), member);
    }

    fn start(&mut self, name: &str, state: InitialState) {
        let initial_cluster = member::initial_cluster(self.members.values());
        let member = self.members.get_mut(name).unwrap();
        member.initial_cluster = initial_cluster;
        member.initial_state = state;
        member.flags = match member.program.kind {
            Kind::Etcd => vec!["--log-level=warn".to_owned()],
            Kind::Portunus => {
                let emulated = self.emulated.iter();
                let emulated = emulated.map(|version| format!("--emulated-version={version}"));
                emulated.chain(self.flags.iter().cloned()).collect()
            }
        };
        let tls_flags = self.tls.iter().flat_map(|tls| tls.flags.iter().cloned());
        member.flags.extend(tls_flags);
        member.launch(&[
            "--snapshot-count=100".to_owned(),
            "--snapshot-catchup-entries=20".to_owned(),
        ]);
    }

    async fn clients(&self, name: &str) -> Clients {
        self.clients_of(&self.members[name]).await
    }

    /// Returns a connection to a member, once it listens.
    async fn clients_of(&self, member: &Member) -> Clients {
        if let Some(tls) = &self.tls {
            return tls.connect(member.client).await;
        }
        eventually(&format!("listening {}", member.name), async || {
            std::net::TcpStream::connect(member.client).ok()
        })
        .await;
        common::connect(member.client).await
    }

    async fn members(&self, via: &str) -> Vec<portunus_proto::etcdserverpb::Member> {
        let mut clients = self.clients(via).await;
        let mut members = Vec::new();
        // A member that was just promoted may not have applied it yet.
        patiently("members are listed", async || {
            let request = MemberListRequest { linearizable: true };
            let list = clients.cluster.member_list(self.signed(request)).await?;
            members = list.into_inner().members;
            Ok(())
        })
        .await;
        members
    }

    async fn id(&self, via: &str, name: &str) -> u64 {
        let members = self.members(via).await;
        let url = self.members[name].peer_url();
        let found = members
            .iter()
            .find(|member| member.peer_urls.contains(&url));
        found.unwrap_or_else(|| panic!("{name} is no member")).id
    }

    /// Adds a member as learner, starts it and promotes it as an operator would, retrying while
    /// the cluster is not ready.
    async fn join(&mut self, name: &str, kind: Kind, via: &str) {
        self.join_as_learner(name, kind, via).await;
        self.promote(name, via).await;
    }

    async fn join_as_learner(&mut self, name: &str, kind: Kind, via: &str) {
        self.add(name, kind);
        let url = self.members[name].peer_url();
        let mut clients = self.clients(via).await;
        patiently("a member is added", async || {
            let request = MemberAddRequest {
                peer_urls: vec![url.clone()],
                is_learner: true,
            };
            let request = self.signed(request);
            clients.cluster.member_add(request).await.map(drop)
        })
        .await;
        self.start(name, InitialState::Existing);
    }

    async fn promote(&self, name: &str, via: &str) {
        let id = self.id(via, name).await;
        let mut clients = self.clients(via).await;
        patiently("a learner is promoted", async || {
            let request = MemberPromoteRequest { id };
            let request = self.signed(request);
            clients.cluster.member_promote(request).await.map(drop)
        })
        .await;
    }

    async fn leave(&mut self, name: &str, via: &str) {
        let id = self.id(via, name).await;
        let mut clients = self.clients(via).await;
        patiently("a member is removed", async || {
            let request = MemberRemoveRequest { id };
            let request = self.signed(request);
            clients.cluster.member_remove(request).await.map(drop)
        })
        .await;
        self.members.remove(name);
    }

    async fn leader(&self) -> String {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            for node in self.members.values().filter(|node| node.is_running()) {
                let mut clients = self.clients_of(node).await;
                let request = self.signed(StatusRequest {});
                if let Ok(status) = clients.maintenance.status(request).await {
                    let status = status.into_inner();
                    if status.leader == status.header.unwrap().member_id {
                        return node.name.clone();
                    }
                }
            }
            assert!(Instant::now() < deadline, "nobody leads");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn move_leader(&self, to: &str) {
        let target_id = self.id(to, to).await;
        patiently("leadership is handed over", async || {
            let mut clients = self.clients(&self.leader().await).await;
            let request = MoveLeaderRequest { target_id };
            let request = self.signed(request);
            clients.maintenance.move_leader(request).await.map(drop)
        })
        .await;
        assert_eq!(self.leader().await, to);
    }

    /// Returns the status of the feature that shows in the data, from a Portunus member.
    async fn tag(&self, name: &str) -> FeatureGateDetail {
        let request = FeatureGateStatusRequest {
            features: vec![TAG.to_owned()],
            all_known: true,
            ..FeatureGateStatusRequest::default()
        };
        let mut clients = self.clients(name).await;
        let answer = clients.maintenance.feature_gate_status(request).await;
        answer.unwrap().into_inner().details.remove(0)
    }

    /// Waits until the feature that shows in the data is on, or off, at these members.
    async fn until_tag(&self, names: &[&str], enabled: bool) {
        for name in names {
            patiently("the feature changes", async || {
                let detail = self.tag(name).await;
                match detail.enabled == enabled {
                    true => Ok(()),
                    false => Err(tonic::Status::unavailable(format!(
                        "{name} has the old value: {detail:?}\n{}",
                        self.logs()
                    ))),
                }
            })
            .await;
        }
    }

    /// Writes a key that the feature changes, and returns the stored value.
    async fn written(&self, name: &str) -> String {
        let mut clients = self.clients(name).await;
        let key = "/apply-tag/written";
        patiently("a write", async || {
            clients.kv.put(put(key, "b")).await.map(drop)
        })
        .await;
        let read = clients.kv.range(get(key)).await.unwrap().into_inner();
        String::from_utf8(read.kvs[0].value.to_vec()).unwrap()
    }

    /// Returns the hash of a member's data up to a revision, or of all of it.
    async fn hash(&self, name: &str, revision: i64) -> HashKvResponse {
        let mut clients = self.clients(name).await;
        let request = HashKvRequest { revision };
        let hash = clients.maintenance.hash_kv(request).await;
        hash.unwrap().into_inner()
    }

    /// Returns the applied index of a member.
    async fn applied(&self, name: &str) -> u64 {
        let mut clients = self.clients(name).await;
        let status = clients.maintenance.status(StatusRequest {}).await;
        status.unwrap().into_inner().raft_applied_index
    }

    /// Fails if a process has ended.
    fn all_run(&mut self) {
        for node in self.members.values_mut() {
            let ended = node.process.as_mut().unwrap().exit_status();
            assert!(ended.is_none(), "{} ended: {ended:?}", node.name);
        }
    }

    /// Waits until every member has the same hash at the same revision.
    async fn agree(&self, when: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let mut hashes = BTreeMap::new();
            // All at the revision of the first: writers continue meanwhile.
            let mut revision = 0;
            for node in self.members.values() {
                let mut clients = self.clients_of(node).await;
                if revision == 0 {
                    let request = self.signed(StatusRequest {});
                    let status = clients.maintenance.status(request).await.unwrap();
                    revision = status.into_inner().header.unwrap().revision;
                }
                let request = self.signed(HashKvRequest { revision });
                let hash = clients.maintenance.hash_kv(request).await;
                let hash = hash.map(|hash| hash.into_inner());
                let hash = hash.map(|hash| (hash.hash, hash.compact_revision));
                hashes.insert(node.name.clone(), hash.map_err(|status| status.to_string()));
            }
            let first = hashes.values().next().unwrap();
            if first.is_ok() && hashes.values().all(|hash| hash == first) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "members disagree {when}: {hashes:?}; {}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Retries until it succeeds.
async fn patiently(what: &str, mut attempt: impl AsyncFnMut() -> Result<(), tonic::Status>) {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        match attempt().await {
            Ok(()) => return,
            Err(status) => assert!(Instant::now() < deadline, "{what}: {status}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Writes all the time, through any member that serves, and records acknowledged writes.
#[derive(Default)]
struct Load {
    prefix: &'static str,
    addresses: Mutex<Vec<SocketAddr>>,
    acknowledged: Mutex<BTreeMap<u64, i64>>,
    written: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    fn aim(&self, mixed: &Mixed) {
        let running = mixed.members.values().filter(|node| node.is_running());
        *self.addresses.lock().unwrap() = running.map(|node| node.client).collect();
    }

    async fn run(self: Arc<Self>) {
        let mut number = 0_u64;
        let mut connected: BTreeMap<SocketAddr, Clients> = BTreeMap::new();
        while !self.stop.load(Ordering::Acquire) {
            number += 1;
            let address = {
                let addresses = self.addresses.lock().unwrap();
                addresses[usize::try_from(number).unwrap() % addresses.len()]
            };
            let clients = match connected.remove(&address) {
                Some(clients) => clients,
                None if std::net::TcpStream::connect(address).is_err() => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
                None => common::connect(address).await,
            };
            let kv = &mut connected.entry(address).or_insert(clients).kv;
            let put = PutRequest {
                key: format!("{}{number:08}", self.prefix).into(),
                value: number.to_string().into(),
                ..PutRequest::default()
            };
            match tokio::time::timeout(Duration::from_secs(10), kv.put(put)).await {
                Ok(Ok(answer)) => {
                    let revision = answer.into_inner().header.unwrap().revision;
                    self.acknowledged.lock().unwrap().insert(number, revision);
                    self.written.fetch_add(1, Ordering::AcqRel);
                }
                _ => drop(connected.remove(&address)),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits for this many more acknowledged writes.
    async fn more(&self, count: u64) {
        let target = self.written.load(Ordering::Acquire) + count;
        let deadline = Instant::now() + WAIT_MAX;
        while self.written.load(Ordering::Acquire) < target {
            assert!(Instant::now() < deadline, "nothing is written any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Checks that every acknowledged write is there, at its revision.
    async fn check(&self, clients: &mut Clients) {
        let all = RangeRequest {
            key: self.prefix.into(),
            range_end: format!("{}~", self.prefix).into(),
            ..RangeRequest::default()
        };
        let answer = clients.kv.range(all).await.unwrap().into_inner();
        let found: BTreeMap<u64, i64> = answer
            .kvs
            .iter()
            .map(|kv| {
                // A feature may have changed the value.
                let value = std::str::from_utf8(&kv.value).unwrap();
                let number = value.split('@').next().unwrap();
                (number.parse().unwrap(), kv.mod_revision)
            })
            .collect();
        for (number, revision) in self.acknowledged.lock().unwrap().iter() {
            assert_eq!(found.get(number), Some(revision), "write {number} is lost");
        }
    }
}

/// Returns the requested version of Go's etcd; without it the test prints a warning and is
/// skipped.
fn etcd_for(test: &str) -> Option<Program> {
    let Ok(version) = std::env::var("PORTUNUS_AMONG_GO") else {
        return Program::etcd(test);
    };
    let built = format!("../../target/go-etcd/{version}/etcd");
    Some(Program {
        kind: Kind::Etcd,
        path: Path::new(env!("CARGO_MANIFEST_DIR")).join(built),
    })
}

/// Whether the version of the Go members has cluster features: 3.7 is the first.
fn has_cluster_features() -> bool {
    !std::env::var("PORTUNUS_AMONG_GO").is_ok_and(|version| version.starts_with("3.6"))
}

/// Encodes a message with one length-delimited field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut message = vec![number << 3 | 2];
    prost::encode_length_delimiter(content.len(), &mut message).unwrap();
    message.extend(content);
    message
}

/// Requests that a Go member accepts, though our decoder would not: it writes them into the log
/// with all unknown fields, and every member has to apply them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_committed_by_a_go_member_are_applied() {
    let Some(etcd) = etcd_for("entries_committed_by_a_go_member_are_applied") else {
        return;
    };
    let mut mixed = Mixed::new(etcd);
    mixed.add("go1", Kind::Etcd);
    mixed.start("go1", InitialState::New);
    mixed.leader().await;
    mixed.join("own1", Kind::Portunus, "go1").await;
    let channel = mixed.clients("go1").await.channel;
    let put = |key: &str| [field(1, key.as_bytes()), field(2, b"v")].concat();

    let mut deep = field(2, &field(2, &put("deep")));
    for _ in 0..127 {
        deep = field(2, &field(4, &deep));
    }
    let groups = [[0xa3, 0x06].repeat(150), [0xa4, 0x06].repeat(150)].concat();
    let mut other_wire_type = put("other-wire-type");
    other_wire_type.extend([0x08, 0x01]);
    for (path, message) in [
        ("/etcdserverpb.KV/Txn", deep),
        ("/etcdserverpb.KV/Put", [put("groups"), groups].concat()),
        ("/etcdserverpb.KV/Put", other_wire_type),
    ] {
        patiently("go1 takes a request", async || {
            common::any_bytes::call(&channel, path, message.clone().into())
                .await
                .map(drop)
        })
        .await;
    }
    mixed.agree("after requests that only Go takes").await;
    let mut clients = mixed.clients("own1").await;
    for key in ["deep", "groups", "other-wire-type"] {
        let request = RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        };
        let found = clients.kv.range(request).await.unwrap().into_inner();
        assert_eq!(found.kvs.len(), 1, "{key}: {}", mixed.logs());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_and_portunus_members_form_one_cluster() {
    let Some(etcd) = etcd_for("go_and_portunus_members_form_one_cluster") else {
        return;
    };
    let mut mixed = Mixed::new(etcd);
    for name in ["go1", "go2", "go3"] {
        mixed.add(name, Kind::Etcd);
    }
    for name in ["go1", "go2", "go3"] {
        mixed.start(name, InitialState::New);
    }
    mixed.leader().await;
    let load = Arc::new(Load {
        prefix: "load/",
        ..Load::default()
    });
    load.aim(&mixed);
    let writing = tokio::spawn(Arc::clone(&load).run());
    load.more(50).await;

    // A Portunus member joins under load, is promoted, leads, and serves.
    mixed.join("p1", Kind::Portunus, "go1").await;
    load.aim(&mixed);
    mixed.agree("after p1 joined").await;
    mixed.move_leader("p1").await;
    load.more(50).await;
    mixed.agree("while p1 leads").await;

    // A Go member that lags behind the log gets a snapshot.
    mixed.members.get_mut("go3").unwrap().kill();
    load.aim(&mixed);
    load.more(300).await;
    mixed.start("go3", InitialState::New);
    load.aim(&mixed);
    mixed.agree("after go3 came back").await;

    // Every Go member is replaced, one by one.
    for (name, gone) in [("p2", "go1"), ("p3", "go2")] {
        mixed.join(name, Kind::Portunus, "p1").await;
        mixed.leave(gone, "p1").await;
        load.aim(&mixed);
        load.more(20).await;
        mixed.agree(&format!("after {gone} left")).await;
    }
    mixed.leave("go3", "p1").await;
    load.aim(&mixed);
    mixed.agree("without any Go member").await;

    // The reverse, the leader last.
    for (name, gone) in [("go4", "p2"), ("go5", "p3"), ("go6", "p1")] {
        let leader = mixed.leader().await;
        mixed.join(name, Kind::Etcd, &leader).await;
        let via = name.to_owned();
        if mixed.leader().await == gone {
            mixed.move_leader(&via).await;
        }
        mixed.leave(gone, &via).await;
        load.aim(&mixed);
        load.more(20).await;
        mixed.agree(&format!("after {gone} left")).await;
    }

    load.stop.store(true, Ordering::Release);
    writing.await.unwrap();
    mixed.agree("at the end").await;
    for name in ["go4", "go5", "go6"] {
        load.check(&mut mixed.clients(name).await).await;
    }
}

/// Among Go members no cluster feature is on, and nothing they cannot read is written. When the
/// last one leaves, the proposals of the others take effect; when one joins, even as learner,
/// all features go off before it receives an entry.
/// Proves: S0-A11, S0-A27, S1-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_features_are_off_while_the_cluster_has_a_go_member() {
    if !has_cluster_features() {
        return;
    }
    let Some(etcd) = etcd_for("cluster_features_are_off_while_the_cluster_has_a_go_member") else {
        return;
    };
    let mut mixed = Mixed::new(etcd);
    mixed.flags = vec![
        MECHANISM.to_owned(),
        wants("ApplyTag=true,LeaseCheckpoint=true"),
    ];
    for name in ["go1", "go2"] {
        mixed.add(name, Kind::Etcd);
    }
    for name in ["go1", "go2"] {
        mixed.start(name, InitialState::New);
    }
    mixed.leader().await;
    // Keys whose values show whether the feature was on.
    let load = Arc::new(Load {
        prefix: "/apply-tag/",
        ..Load::default()
    });
    load.aim(&mixed);
    let writing = tokio::spawn(Arc::clone(&load).run());
    for name in ["p1", "p2"] {
        mixed.join(name, Kind::Portunus, "go1").await;
    }
    load.aim(&mixed);
    mixed.move_leader("p1").await;
    load.more(50).await;
    mixed.agree("while both kinds are there").await;
    let detail = mixed.tag("p1").await;
    assert!(!detail.enabled);
    let foreign = detail.votes.iter().filter(|vote| vote.vote == "foreign");
    assert_eq!(foreign.count(), 2, "{detail:?}");
    mixed.leave("go1", "p1").await;
    load.aim(&mixed);
    load.more(20).await;
    assert!(!mixed.tag("p2").await.enabled);
    mixed.leave("go2", "p1").await;
    load.aim(&mixed);
    mixed.until_tag(&["p1", "p2"], true).await;
    load.more(50).await;

    // A Go member joins as learner: features go off, then it gets a snapshot from after that.
    mixed.join("go3", Kind::Etcd, "p1").await;
    mixed.until_tag(&["p1", "p2"], false).await;
    load.aim(&mixed);
    load.more(50).await;
    mixed.agree("after a Go member came").await;
    mixed.move_leader("go3").await;
    load.more(20).await;
    mixed.agree("while a Go member leads").await;
    mixed.move_leader("p2").await;
    mixed.leave("go3", "p1").await;
    load.aim(&mixed);
    mixed.until_tag(&["p1", "p2"], true).await;
    load.more(20).await;
    load.stop.store(true, Ordering::Release);
    writing.await.unwrap();
    mixed.agree("at the end").await;
    for name in ["p1", "p2"] {
        load.check(&mut mixed.clients(name).await).await;
    }
    let all = RangeRequest {
        key: "/apply-tag/".into(),
        range_end: "/apply-tag0".into(),
        ..RangeRequest::default()
    };
    let found = mixed.clients("p1").await.kv.range(all).await.unwrap();
    let found = found.into_inner().kvs;
    let tagged = found.iter().filter(|kv| kv.value.contains(&b'@')).count();
    assert!(
        tagged > 50 && tagged < found.len(),
        "{tagged} of {}",
        found.len()
    );
}

/// Portunus serves the data directory of a crashed Go member in place, and the features that it
/// proposes come on: with the mechanism enabled while it emulates the version of that Go
/// member, and by default at its own version.
/// Proves: S0-A27, S0-A28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_turn_on_after_the_take_over_of_a_go_member() {
    let test = "features_turn_on_after_the_take_over_of_a_go_member";
    let Some(etcd) = etcd_for(test).filter(|_| has_cluster_features()) else {
        return;
    };
    for (emulates, flag) in [(true, Some(MECHANISM)), (false, None)] {
        let mut mixed = Mixed::new(etcd.clone());
        mixed.add("go1", Kind::Etcd);
        mixed.start("go1", InitialState::New);
        mixed.leader().await;
        // More entries than Go keeps in its log before it makes a snapshot.
        for _ in 0..250 {
            assert_eq!(mixed.written("go1").await, "b");
        }
        let hash = mixed.hash("go1", 0).await;
        mixed.members.get_mut("go1").unwrap().kill();

        mixed.members.get_mut("go1").unwrap().program = Program::portunus();
        if !emulates {
            mixed.emulated = None;
        }
        mixed.flags = vec![wants("ApplyTag=true")];
        mixed.flags.extend(flag.map(str::to_owned));
        mixed.start("go1", InitialState::Existing);
        mixed.until_tag(&["go1"], true).await;
        assert_eq!(mixed.hash("go1", hash.hash_revision).await.hash, hash.hash);
        let tagged = mixed.written("go1").await;
        assert!(tagged.starts_with("b@"), "{tagged}");

        // Portunus decided, and a restart finds the decision.
        let channel = mixed.clients("go1").await.channel;
        assert!(!decisions(channel).await.is_empty());
        mixed.members.get_mut("go1").unwrap().kill();
        mixed.start("go1", InitialState::Existing);
        mixed.until_tag(&["go1"], true).await;
        mixed.all_run();
    }
}

/// A single voter that proposes nothing leads, and a Go member joins as learner and becomes a
/// voter: no feature was on, so nothing is decided, nothing changes, and no member stops.
/// Proves: S0-A27, X15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_learner_joins_a_voter_with_the_mechanism_off() {
    let test = "go_learner_joins_a_voter_with_the_mechanism_off";
    let Some(etcd) = etcd_for(test).filter(|_| has_cluster_features()) else {
        return;
    };
    let mut mixed = Mixed::new(etcd);
    mixed.flags = vec![NO_MECHANISM.to_owned(), wants("ApplyTag=true")];
    mixed.add("p1", Kind::Portunus);
    mixed.start("p1", InitialState::New);
    mixed.leader().await;
    // So many that the learner needs a snapshot.
    for _ in 0..250 {
        assert_eq!(mixed.written("p1").await, "b");
    }
    mixed.join_as_learner("go1", Kind::Etcd, "p1").await;
    assert_eq!(mixed.written("p1").await, "b");
    let applied = mixed.applied("p1").await;
    patiently("the learner applies everything", async || {
        match mixed.applied("go1").await {
            index if index >= applied => Ok(()),
            index => Err(tonic::Status::unavailable(format!(
                "{index} of {applied}\n{}",
                mixed.logs()
            ))),
        }
    })
    .await;
    let detail = mixed.tag("p1").await;
    assert!(!detail.enabled, "{detail:?}");
    let foreign = detail.votes.iter().filter(|vote| vote.vote == "foreign");
    assert_eq!(foreign.count(), 2, "{detail:?}");
    mixed.all_run();

    mixed.promote("go1", "p1").await;
    assert_eq!(mixed.leader().await, "p1");
    assert_eq!(mixed.written("go1").await, "b");
    mixed.agree("after the learner was promoted").await;
    assert!(!mixed.tag("p1").await.enabled);
    let channel = mixed.clients("p1").await.channel;
    assert_eq!(decisions(channel).await, []);
    mixed.all_run();
}
