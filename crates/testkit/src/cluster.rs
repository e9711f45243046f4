//! Several Portunus members as processes, with a [`Network`] between them that can fail.
//!
//! Everything is on loopback at ports that stay the same when a member restarts. Processes of a
//! cluster end with it.

use std::fmt::Debug;
use std::time::Duration;

use portunus_proto::etcdserverpb::{
    HashKvRequest, MemberAddRequest, MemberListRequest, MemberRemoveRequest, MoveLeaderRequest,
    StatusRequest, StatusResponse,
};
use tonic::transport::Endpoint;

use crate::client::{Clients, clients_of};
use crate::http::{HttpAnswer, http_at};
use crate::member::{self, InitialState, Member};
use crate::ports::free_listener;
use crate::process::Process;
use crate::program::Program;
use crate::proxy::Network;
use crate::random::Random;
use crate::standalone::READY;
use crate::wait::{self, WAIT_MAX};

/// Members that clusters of one test program have at a time: two clusters of three, or one of
/// five. With more of them elections starve on two cores.
const MEMBERS_MAX: u32 = 6;
static TURNS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(MEMBERS_MAX as usize);

/// Shorter than the default, to make tests fast.
pub const ELECTION_TIMEOUT: Duration = Duration::from_millis(500);

/// Lines of each log in the message of a failing test.
const LOG_LINES_SHOWN: usize = 40;

/// A cluster of several members.
pub struct Cluster {
    /// The members, running or not.
    pub members: Vec<Member>,
    /// What is between them.
    pub network: Network,
    /// Flags of every member.
    pub flags: Vec<String>,
    /// Choices of the test.
    pub random: Random,
    dir: tempfile::TempDir,
    _turn: tokio::sync::SemaphorePermit<'static>,
}

impl Cluster {
    /// Creates `count` members that found a cluster when they are started.
    pub async fn prepare(test: &str, count: usize, flags: &[&str]) -> Cluster {
        let founders = u32::try_from(count).unwrap_or(MEMBERS_MAX);
        let turn = TURNS.acquire_many(founders.min(MEMBERS_MAX)).await.unwrap();
        let mut random = Random::seeded(test);
        let election_ms = ELECTION_TIMEOUT.as_millis();
        let mut shared_flags = vec![
            "--initial-cluster-token=test".to_owned(),
            format!("--heartbeat-interval={}", election_ms / 10),
            format!("--election-timeout={election_ms}"),
        ];
        shared_flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut cluster = Cluster {
            members: Vec::new(),
            network: Network::new(random.fork()),
            flags: shared_flags,
            random,
            dir: tempfile::tempdir().unwrap(),
            _turn: turn,
        };
        for _ in 0..count {
            cluster.prepare_member();
        }
        member::found(&mut cluster.members);
        cluster
    }

    /// Starts a cluster and waits until all its members serve.
    pub async fn start(test: &str, count: usize, flags: &[&str]) -> Cluster {
        let mut cluster = Cluster::prepare(test, count, flags).await;
        let all: Vec<usize> = (0..count).collect();
        cluster.start_all(&all).await;
        cluster
    }

    /// Creates a member that joins the cluster when it is started; returns its number.
    pub fn prepare_member(&mut self) -> usize {
        let number = self.members.len();
        let name = format!("m{number}");
        let mut member = Member::new(&name, Program::portunus(), self.dir.path()).unwrap();
        let gate = free_listener().unwrap();
        member.advertised_peer = gate.local_addr().unwrap();
        member.initial_state = InitialState::Existing;
        self.network.open_gate(number, gate, member.peer);
        self.members.push(member);
        number
    }

    /// Returns the value of `--initial-cluster` for these members.
    #[must_use]
    pub fn initial_cluster(&self, members: &[usize]) -> String {
        member::initial_cluster(members.iter().map(|member| &self.members[*member]))
    }

    /// Starts a member and returns at once.
    #[track_caller]
    pub fn launch(&mut self, member: usize) {
        self.members[member].launch(&self.flags);
        let process = self.members[member].process.as_ref();
        self.network
            .set_process(member, process.map(Process::id).unwrap_or_default());
    }

    /// Waits until a launched member serves.
    pub async fn ready(&mut self, member: usize) {
        let ready = wait::try_until(WAIT_MAX, async || {
            let process = self.members[member].process.as_mut().unwrap();
            // Not worth waiting for.
            assert!(!process.has_ended(), "m{member} ended:\n{}", process.log());
            process.has_logged(READY).then_some(()).ok_or(())
        });
        if ready.await.is_err() {
            panic!("m{member} is not ready:\n{}", self.members[member].log());
        }
        match self.status(member).await {
            Some(status) => self.members[member].id = status.header.unwrap().member_id,
            // With authentication only users may ask; the id is known from the first start.
            None => assert_ne!(self.members[member].id, 0, "m{member} does not answer"),
        }
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

    /// Kills a member with SIGKILL, as a power failure would.
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn kill(&mut self, member: usize) {
        assert!(self.members[member].is_running(), "m{member} does not run");
        self.members[member].kill();
    }

    /// Stops a member cleanly.
    pub async fn stop(&mut self, member: usize) {
        let process = self.members[member].process.take().unwrap();
        let (status, log) = tokio::task::spawn_blocking(|| process.terminate())
            .await
            .unwrap();
        assert!(status.success(), "{status}:\n{log}");
    }

    /// Waits until a process ends by itself; returns whether it exited with success, and its
    /// log.
    pub async fn ended(&mut self, member: usize) -> (bool, String) {
        let process = self.members[member].process.take().unwrap();
        let ended = tokio::task::spawn_blocking(|| process.ended());
        let (status, log) = ended.await.unwrap();
        (status.success(), log)
    }

    /// Removes all data of a member that does not run.
    #[track_caller]
    pub fn wipe(&mut self, member: usize) {
        assert!(!self.members[member].is_running(), "m{member} runs");
        std::fs::remove_dir_all(&self.members[member].dir).unwrap();
    }

    /// Returns the members that run.
    #[must_use]
    pub fn running(&self) -> Vec<usize> {
        let members = self.members.iter().enumerate();
        members
            .filter(|(_, member)| member.is_running())
            .map(|(number, _)| number)
            .collect()
    }

    /// Returns a connection to a member, opened when it is first used.
    #[must_use]
    pub fn clients(&self, member: usize) -> Clients {
        let endpoint = Endpoint::from_shared(self.members[member].client_url())
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

    /// Waits until `look` succeeds; a failure shows the logs of all members.
    async fn until<T, S: Debug>(&self, what: &str, look: impl AsyncFnMut() -> Result<T, S>) -> T {
        match wait::try_until(WAIT_MAX, look).await {
            Ok(found) => found,
            Err(state) => panic!("no {what}; last state: {state:?}{}", self.logs()),
        }
    }

    /// Waits until all of `members` agree on a leader among them; returns it.
    pub async fn leader_among(&self, members: &[usize]) -> usize {
        self.until("leader", async || {
            let mut views = Vec::new();
            for member in members {
                let status = self.status(*member).await;
                views.push(status.map(|it| (it.leader, it.raft_term)));
            }
            if let Some(Some((id, _))) = views.first()
                && *id != 0
                && views.iter().all(|view| *view == views[0])
                && let Some(leader) = self.members.iter().position(|member| member.id == *id)
                && members.contains(&leader)
            {
                return Ok(leader);
            }
            Err(views)
        })
        .await
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
    ///
    /// # Errors
    /// The refusal of the leader.
    pub async fn move_leader(&self, to: usize) -> Result<(), tonic::Status> {
        let leader = self.leader().await;
        let request = MoveLeaderRequest {
            target_id: self.members[to].id,
        };
        let mut clients = self.clients(leader);
        clients.maintenance.move_leader(request).await.map(drop)
    }

    /// Waits until all running members have applied the same log and hold the same data.
    pub async fn agree(&self) {
        self.until("agreement of all members", async || {
            let mut views = Vec::new();
            for member in self.running() {
                views.push(self.view(member).await);
            }
            let is_agreed = views[0].is_some() && views.iter().all(|view| *view == views[0]);
            is_agreed.then_some(()).ok_or(views)
        })
        .await;
    }

    /// Returns the applied index, revision and hash of a member.
    async fn view(&self, member: usize) -> Option<(u64, i64, u32)> {
        let applied = self.status(member).await?.raft_applied_index;
        let asked = HashKvRequest { revision: 0 };
        let mut clients = self.clients(member);
        let hash = clients.maintenance.hash_kv(asked).await.ok()?.into_inner();
        Some((applied, hash.hash_revision, hash.hash))
    }

    /// Adds a prepared member; returns its id. Retries until it is accepted: a cluster takes new
    /// members only after it was healthy for some seconds.
    pub async fn add_member(&mut self, member: usize, is_learner: bool) -> u64 {
        let request = MemberAddRequest {
            peer_urls: vec![self.members[member].peer_url()],
            is_learner,
        };
        let added = self
            .until("addition of a member", async || {
                let by = self.leader().await;
                let added = self.clients(by).cluster.member_add(request.clone()).await;
                self.accepted(added)
            })
            .await;
        let mut all = Vec::new();
        for known in &added.members {
            let mut members = self.members.iter();
            all.push(members.position(|member| known.peer_urls == [member.peer_url()]));
        }
        let all: Option<Vec<usize>> = all.into_iter().collect();
        let id = added.member.unwrap().id;
        let initial_cluster = self.initial_cluster(&all.unwrap());
        let member = &mut self.members[member];
        member.initial_cluster = initial_cluster;
        member.initial_state = InitialState::Existing;
        member.id = id;
        id
    }

    /// Removes a member through another one, retrying until it is accepted.
    pub async fn remove_member(&self, by: usize, id: u64) {
        self.until("removal of a member", async || {
            let request = MemberRemoveRequest { id };
            self.accepted(self.clients(by).cluster.member_remove(request).await)
        })
        .await;
    }

    /// Returns the answer to a change of membership; fails on a refusal that does not pass.
    fn accepted<T>(
        &self,
        answer: Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, tonic::Status> {
        if let Err(status) = &answer {
            let passes = status.message().contains("unhealthy");
            assert!(passes, "{status}{}", self.logs());
        }
        answer.map(tonic::Response::into_inner)
    }

    /// Returns the member list of a member.
    pub async fn member_list(&self, by: usize) -> Vec<portunus_proto::etcdserverpb::Member> {
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
        let address = self.members[member].peer;
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
    #[must_use]
    pub fn logs(&self) -> String {
        member::log_tails(&self.members, LOG_LINES_SHOWN)
    }
}
