//! Several members as processes, with a [`Network`] between them that can fail.
//!
//! Everything is on loopback at ports that stay the same when a member restarts. Processes of a
//! cluster end with it.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use portunus_proto::etcdserverpb::{
    HashKvRequest, MemberAddRequest, MemberListRequest, StatusRequest, StatusResponse,
};
use portunus_testkit::ports::free_listener;
use tonic::transport::Endpoint;

use super::network::Network;
use super::random::Random;
use super::{Clients, HttpAnswer, PATIENCE, Process, clients_of, http_at, portunus};

/// Clusters that tests of one program run at a time; elections must not starve.
const CLUSTERS_MAX: usize = 2;
static TURNS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(CLUSTERS_MAX);

/// The pause between two checks of a condition.
pub const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Shorter than the default, to make tests fast.
pub const ELECTION_TIMEOUT: Duration = Duration::from_millis(500);

/// The place of a member: its addresses, directory and flags.
pub struct Node {
    pub name: String,
    /// The address for clients.
    pub client: SocketAddr,
    /// The address its gate connects to.
    pub peer: SocketAddr,
    /// Its gate: the address it advertises to peers.
    pub gate: SocketAddr,
    pub dir: PathBuf,
    /// Flags of this member only.
    pub flags: Vec<String>,
    /// The values of `--initial-cluster` and `--initial-cluster-state`.
    pub initial: (String, &'static str),
    /// The process, if it runs.
    pub process: Option<Process>,
    /// Its id, once it was queried.
    pub id: u64,
}

impl Node {
    pub fn peer_url(&self) -> String {
        format!("http://{}", self.gate)
    }

    /// Returns its part of `--initial-cluster`.
    fn introduction(&self) -> String {
        format!("{}={}", self.name, self.peer_url())
    }

    /// Returns its log since it was last started.
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }
}

/// A cluster of several members.
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub network: Network,
    /// Flags of every member.
    pub flags: Vec<String>,
    pub random: Random,
    dir: tempfile::TempDir,
    _turn: tokio::sync::SemaphorePermit<'static>,
}

impl Cluster {
    /// Creates places for `count` members that do not run yet.
    pub async fn places(test: &str, count: usize, flags: &[&str]) -> Cluster {
        let turn = TURNS.acquire().await.unwrap();
        let mut random = Random::seeded(test);
        let mut cluster = Cluster {
            nodes: Vec::new(),
            network: Network::new(random.fork()),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            random,
            dir: tempfile::tempdir().unwrap(),
            _turn: turn,
        };
        for _ in 0..count {
            cluster.add_place();
        }
        let initial = cluster.introductions(&(0..count).collect::<Vec<_>>());
        for node in &mut cluster.nodes {
            node.initial = (initial.clone(), "new");
        }
        cluster
    }

    /// Starts a cluster and waits until all its members serve.
    pub async fn start(test: &str, count: usize, flags: &[&str]) -> Cluster {
        let mut cluster = Cluster::places(test, count, flags).await;
        let all: Vec<usize> = (0..count).collect();
        cluster.start_all(&all).await;
        cluster
    }

    /// Adds a place; returns its number.
    pub fn add_place(&mut self) -> usize {
        let number = self.nodes.len();
        let name = format!("m{number}");
        let gate = free_listener().unwrap();
        let (peer, client) = (free_listener().unwrap(), free_listener().unwrap());
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        self.nodes.push(Node {
            client: address(&client),
            peer: address(&peer),
            gate: address(&gate),
            dir: self.dir.path().join(&name),
            flags: Vec::new(),
            initial: (String::new(), "existing"),
            process: None,
            id: 0,
            name,
        });
        let peer = address(&peer);
        self.network.open_gate(number, gate, peer);
        number
    }

    /// Returns `--initial-cluster` of these members.
    pub fn introductions(&self, members: &[usize]) -> String {
        let all: Vec<String> = members
            .iter()
            .map(|member| self.nodes[*member].introduction())
            .collect();
        all.join(",")
    }

    /// Starts a member and returns at once.
    pub fn launch(&mut self, member: usize) {
        let node = &mut self.nodes[member];
        assert!(node.process.is_none(), "{} runs already", node.name);
        let url = |address: SocketAddr| format!("http://{address}");
        let (initial, state) = &node.initial;
        let process = Process::spawn(
            portunus()
                .arg(format!("--name={}", node.name))
                .arg(format!("--data-dir={}", node.dir.display()))
                .arg(format!("--listen-client-urls={}", url(node.client)))
                .arg(format!("--advertise-client-urls={}", url(node.client)))
                .arg(format!("--listen-peer-urls={}", url(node.peer)))
                .arg(format!("--initial-advertise-peer-urls={}", node.peer_url()))
                .arg(format!("--initial-cluster={initial}"))
                .arg(format!("--initial-cluster-state={state}"))
                .arg("--initial-cluster-token=test")
                .arg(format!(
                    "--heartbeat-interval={}",
                    ELECTION_TIMEOUT.as_millis() / 10
                ))
                .arg(format!(
                    "--election-timeout={}",
                    ELECTION_TIMEOUT.as_millis()
                ))
                .args(&self.flags)
                .args(&node.flags),
        );
        self.network.set_process(member, process.id());
        node.process = Some(process);
    }

    /// Waits until a launched member serves.
    pub async fn ready(&mut self, member: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let node = &mut self.nodes[member];
            let process = node.process.as_mut().unwrap();
            if process.has_said(super::READY) {
                break;
            }
            let log = process.log();
            assert!(!process.has_ended(), "{} did not start:\n{log}", node.name);
            assert!(
                Instant::now() < deadline,
                "{} is not ready:\n{log}",
                node.name
            );
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        let status = self.status(member).await.unwrap();
        self.nodes[member].id = status.header.unwrap().member_id;
    }

    /// Starts members together and waits until they serve.
    pub async fn start_all(&mut self, members: &[usize]) {
        for member in members {
            self.launch(*member);
        }
        for member in members {
            self.ready(*member).await;
        }
    }

    /// Starts a member and waits until it serves.
    pub async fn start_one(&mut self, member: usize) {
        self.start_all(&[member]).await;
    }

    /// Kills a member, as a power failure would.
    pub fn kill(&mut self, member: usize) {
        self.nodes[member].process.take().unwrap().kill();
    }

    /// Stops a member cleanly.
    pub async fn stop(&mut self, member: usize) {
        let process = self.nodes[member].process.take().unwrap();
        let (status, log) = tokio::task::spawn_blocking(|| process.terminate())
            .await
            .unwrap();
        assert!(status.success(), "{status}:\n{log}");
    }

    /// Waits until a process ends by itself; returns whether it exited with success, and its
    /// log.
    pub async fn ended(&mut self, member: usize) -> (bool, String) {
        let process = self.nodes[member].process.take().unwrap();
        let ended = tokio::task::spawn_blocking(|| process.ended());
        let (status, log) = ended.await.unwrap();
        (status.success(), log)
    }

    /// Removes all data of a member that does not run.
    pub fn wipe(&mut self, member: usize) {
        assert!(self.nodes[member].process.is_none());
        std::fs::remove_dir_all(&self.nodes[member].dir).unwrap();
    }

    /// Returns the members whose processes run.
    pub fn running(&self) -> Vec<usize> {
        let members = self.nodes.iter().enumerate();
        members
            .filter(|(_, node)| node.process.is_some())
            .map(|(member, _)| member)
            .collect()
    }

    /// Returns a connection to a member, opened when it is first used.
    pub fn clients(&self, member: usize) -> Clients {
        let url = format!("http://{}", self.nodes[member].client);
        let endpoint = Endpoint::from_shared(url)
            .unwrap()
            .connect_timeout(Duration::from_secs(2));
        clients_of(endpoint.connect_lazy())
    }

    /// Returns the status of a member.
    pub async fn status(&self, member: usize) -> Option<StatusResponse> {
        let mut clients = self.clients(member);
        let asked = clients.maintenance.status(StatusRequest {});
        let answer = tokio::time::timeout(Duration::from_secs(5), asked).await;
        Some(answer.ok()?.ok()?.into_inner())
    }

    /// Waits until the running ones among `members` agree on a leader; returns it.
    pub async fn leader_among(&self, members: &[usize]) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut views = Vec::new();
            for member in members {
                views.push(
                    self.status(*member)
                        .await
                        .map(|it| (it.leader, it.raft_term)),
                );
            }
            if let Some(Some((id, _))) = views.first()
                && *id != 0
                && views.iter().all(|view| *view == views[0])
                && let Some(leader) = self.nodes.iter().position(|node| node.id == *id)
                && members.contains(&leader)
            {
                return leader;
            }
            assert!(
                Instant::now() < deadline,
                "no leader: {views:?}\n{}",
                self.logs()
            );
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Waits until all running members agree on a leader; returns it.
    pub async fn leader(&self) -> usize {
        self.leader_among(&self.running()).await
    }

    /// Returns a running member that does not lead.
    pub async fn follower(&mut self) -> usize {
        let leader = self.leader().await;
        let others: Vec<usize> = self.running();
        let others: Vec<usize> = others.into_iter().filter(|it| *it != leader).collect();
        let count = u64::try_from(others.len()).unwrap();
        others[usize::try_from(self.random.below(count)).unwrap()]
    }

    /// Transfers leadership to a member.
    pub async fn move_leader(&self, to: usize) -> Result<(), tonic::Status> {
        let leader = self.leader().await;
        let request = portunus_proto::etcdserverpb::MoveLeaderRequest {
            target_id: self.nodes[to].id,
        };
        let mut clients = self.clients(leader);
        clients.maintenance.move_leader(request).await.map(drop)
    }

    /// Waits until all running members have applied the same log and hold the same data.
    pub async fn agree(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut views = Vec::new();
            for member in self.running() {
                views.push(self.view(member).await);
            }
            if views[0].is_some() && views.iter().all(|view| *view == views[0]) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "members do not come to agree: {views:?}\n{}",
                self.logs()
            );
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Returns the applied index, revision and hash of a member.
    async fn view(&self, member: usize) -> Option<(u64, i64, u32)> {
        let applied = self.status(member).await?.raft_applied_index;
        let asked = HashKvRequest { revision: 0 };
        let mut clients = self.clients(member);
        let hash = clients.maintenance.hash_kv(asked).await.ok()?.into_inner();
        Some((applied, hash.hash_revision, hash.hash))
    }

    /// Adds the member of an unused place, retrying until it is accepted: a cluster takes new
    /// members only after it was healthy for some seconds.
    pub async fn add_member(&mut self, member: usize, is_learner: bool) -> u64 {
        let request = MemberAddRequest {
            peer_urls: vec![self.nodes[member].peer_url()],
            is_learner,
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let by = self.leader().await;
            let added = self.clients(by).cluster.member_add(request.clone()).await;
            match added {
                Ok(added) => {
                    let added = added.into_inner();
                    let id = added.member.unwrap().id;
                    let mut all = Vec::new();
                    for known in &added.members {
                        let place = self
                            .nodes
                            .iter()
                            .position(|node| known.peer_urls == [node.peer_url()]);
                        all.push(place.unwrap());
                    }
                    self.nodes[member].initial = (self.introductions(&all), "existing");
                    self.nodes[member].id = id;
                    return id;
                }
                Err(status) => assert!(
                    Instant::now() < deadline && status.message().contains("unhealthy"),
                    "{status}\n{}",
                    self.logs()
                ),
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Removes a member through another one, retrying until it is accepted.
    pub async fn remove_member(&self, by: usize, id: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = portunus_proto::etcdserverpb::MemberRemoveRequest { id };
            match self.clients(by).cluster.member_remove(request).await {
                Ok(_) => return,
                Err(status) => assert!(
                    Instant::now() < deadline && status.message().contains("unhealthy"),
                    "{status}\n{}",
                    self.logs()
                ),
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Returns the member list of a member.
    pub async fn members(&self, by: usize) -> Vec<portunus_proto::etcdserverpb::Member> {
        let request = MemberListRequest { linearizable: true };
        let list = self.clients(by).cluster.member_list(request).await;
        list.unwrap().into_inner().members
    }

    /// Sends a request to the peer port of a member, not through its gate.
    pub async fn ask_peer_port(
        &self,
        member: usize,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> HttpAnswer {
        let address = self.nodes[member].peer;
        let (method, path, body) = (method.to_owned(), path.to_owned(), body.to_vec());
        let headers: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        tokio::task::spawn_blocking(move || http_at(address, &method, &path, &headers, &body))
            .await
            .unwrap()
    }

    /// Returns the last log lines of every member, for a failing test.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            let log = node.log();
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(40);
            text.push_str(&format!(
                "--- {}\n{}\n",
                node.name,
                lines[from..].join("\n")
            ));
        }
        text
    }
}

/// Waits until `look` returns something.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}
