//! Clients of a cluster that send requests all the time, and the check of their responses.
//!
//! Each client uses one member. A request that times out is recorded as unanswered, and the
//! client continues. In the end one order of all requests has to explain every response: so
//! nothing acknowledged is lost and no read is stale.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_sim::linearizability::etcd::{
    Answer, Condition, Etcd, History, Key, Keys, Op, OpAnswer, Request, Store, Txn,
};
use portunus_sim::linearizability::{Operation, Outcome, Verdict, check};
use portunus_sim::wire;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::cluster::Cluster;
use super::random::Random;
use super::{POLL_INTERVAL, WAIT_MAX};

/// Few, so that clients conflict.
const KEYS: u64 = 5;
/// The longest wait for a response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);
/// The pause between two requests of a client; the history has to stay small enough to be
/// checked.
const PAUSE: Duration = Duration::from_millis(10);
const SEARCH_STEPS_MAX: u64 = 50_000_000;

#[derive(Default)]
struct Shared {
    clock: AtomicU64,
    unique: AtomicU64,
    /// Responses so far, by member.
    answers: Mutex<Vec<u64>>,
    /// The time of the newest response to a write, and the longest time between two of them.
    writes: Mutex<(Option<Instant>, Duration)>,
}

/// Clients that send requests until they are stopped.
pub struct Load {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<History>>,
    random: Random,
}

impl Load {
    /// Starts two clients for each of these members.
    pub fn start(cluster: &mut Cluster, members: &[usize]) -> Load {
        let mut load = Load {
            shared: Arc::default(),
            stop: watch::Sender::new(false),
            tasks: Vec::new(),
            random: cluster.random.fork(),
        };
        for member in members {
            load.add(cluster, *member);
            load.add(cluster, *member);
        }
        load
    }

    /// Starts two clients for each member that runs.
    pub fn on_all(cluster: &mut Cluster) -> Load {
        let members = cluster.running();
        Load::start(cluster, &members)
    }

    /// Adds a client.
    pub fn add(&mut self, cluster: &Cluster, member: usize) {
        let client = Client {
            number: self.tasks.len(),
            member,
            connection: connection(cluster.members[member].client),
            random: self.random.fork(),
            shared: Arc::clone(&self.shared),
            history: History::new(),
            known: HashMap::new(),
        };
        self.tasks
            .push(tokio::spawn(client.run(self.stop.subscribe())));
    }

    /// Returns the number of responses of one member so far.
    pub fn answers_of(&self, member: usize) -> u64 {
        let answers = self.shared.answers.lock().unwrap();
        answers.get(member).copied().unwrap_or(0)
    }

    /// Waits until each of these members has answered `count` more requests.
    pub async fn goes_on(&self, cluster: &Cluster, members: &[usize], count: u64) {
        let before: Vec<u64> = members.iter().map(|it| self.answers_of(*it)).collect();
        let deadline = Instant::now() + WAIT_MAX;
        for (member, before) in members.iter().zip(before) {
            while self.answers_of(*member) < before + count {
                assert!(
                    Instant::now() < deadline,
                    "m{member} does not answer\n{}",
                    cluster.logs()
                );
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Sleeps while the load continues.
    pub async fn for_a_while(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Ends the load; all members must agree, and one order must explain every response.
    pub async fn judge(self, cluster: &Cluster) {
        self.stop.send_replace(true);
        let mut history = History::new();
        for task in self.tasks {
            history.extend(task.await.unwrap());
        }
        cluster.agree().await;
        // A final read through every member is part of the history.
        for (number, member) in cluster.running().into_iter().enumerate() {
            let mut reader = Client {
                number: 1000 + number,
                member,
                connection: connection(cluster.members[member].client),
                random: self.random.clone(),
                shared: Arc::clone(&self.shared),
                history: History::new(),
                known: HashMap::new(),
            };
            let deadline = Instant::now() + WAIT_MAX;
            while !reader.ask(Request::get_all()).await {
                assert!(
                    Instant::now() < deadline,
                    "m{member} does not answer a last read"
                );
            }
            history.extend(reader.history);
        }
        let answered = history.iter().filter(|it| it.output().is_some()).count();
        let gap = self.shared.writes.lock().unwrap().1;
        eprintln!(
            "{answered} of {} requests answered; longest time without an answered write: {} ms",
            history.len(),
            gap.as_millis()
        );
        let started = Instant::now();
        let judged = tokio::task::spawn_blocking(move || {
            let model = Etcd::for_history(Store::default(), &history);
            match check(&model, &history, SEARCH_STEPS_MAX) {
                Verdict::Linearizable { .. } => Ok(()),
                Verdict::Violated(violation) => Err(violation.explain(&model, &history)),
                Verdict::Undecided { steps } => Err(format!("undecided after {steps} steps")),
            }
        });
        if let Err(explanation) = judged.await.unwrap() {
            panic!("{explanation}\n{}", cluster.logs());
        }
        eprintln!("judged in {} ms", started.elapsed().as_millis());
    }
}

fn connection(address: SocketAddr) -> KvClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let endpoint = endpoint.connect_timeout(Duration::from_secs(1));
    KvClient::new(endpoint.connect_lazy())
}

struct Client {
    number: usize,
    member: usize,
    connection: KvClient<Channel>,
    random: Random,
    shared: Arc<Shared>,
    history: History,
    /// The last seen revision of each key, for conditions.
    known: HashMap<Key, i64>,
}

impl Client {
    async fn run(mut self, mut stop: watch::Receiver<bool>) -> History {
        while !*stop.borrow() {
            let request = self.choose();
            let is_answered = self.ask(request).await;
            let pause = match is_answered {
                true => PAUSE,
                // Unanswered requests make the check hard; ten a second are plenty.
                false => 10 * PAUSE,
            };
            let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
        }
        self.history
    }

    async fn ask(&mut self, input: Request) -> bool {
        let called_at = self.shared.clock.fetch_add(1, Ordering::SeqCst);
        let answer = tokio::time::timeout(ANSWER_TIME_MAX, self.send(&input)).await;
        let at = self.shared.clock.fetch_add(1, Ordering::SeqCst);
        if let Ok(Err(status)) = &answer
            && was_never_sent(status)
        {
            return false;
        }
        let answer = answer.ok().and_then(Result::ok);
        let is_read = is_read(&input);
        if let Some(answer) = &answer {
            self.learn(&input, answer);
            self.note_answer(is_read);
        }
        let is_answered = answer.is_some();
        // A read without a response adds no information.
        if is_answered || !is_read {
            self.history.push(Operation {
                client: self.number,
                input,
                called_at,
                outcome: answer.map_or(Outcome::Unknown, |output| Outcome::Answered { output, at }),
            });
        }
        is_answered
    }

    fn learn(&mut self, input: &Request, answer: &Answer) {
        let Answer::Txn {
            revision, answers, ..
        } = answer
        else {
            return;
        };
        for answer in answers {
            if let OpAnswer::Get(found) = answer {
                let found = found.iter();
                self.known
                    .extend(found.map(|(key, entry)| (key.clone(), entry.mod_revision)));
            }
        }
        if let Request::Txn(txn) = input
            && let [Op::Put(key, ..)] = &txn.then[..]
            && let [OpAnswer::Put(_)] = &answers[..]
        {
            self.known.insert(key.clone(), *revision);
        }
    }

    fn note_answer(&self, is_read: bool) {
        let mut answers = self.shared.answers.lock().unwrap();
        if answers.len() <= self.member {
            answers.resize(self.member + 1, 0);
        }
        answers[self.member] += 1;
        drop(answers);
        if !is_read {
            let mut writes = self.shared.writes.lock().unwrap();
            let now = Instant::now();
            if let Some(before) = writes.0.replace(now) {
                writes.1 = writes.1.max(now - before);
            }
        }
    }

    async fn send(&mut self, request: &Request) -> Result<Answer, Status> {
        let Request::Txn(txn) = request else {
            unreachable!("clients of a cluster send transactions only");
        };
        let kv = &mut self.connection;
        match (&txn.when[..], &txn.then[..]) {
            ([], [Op::Put(key, value, lease)]) => {
                let response = kv.put(wire::put(key, value, *lease)).await?.into_inner();
                let previous = OpAnswer::Put(response.prev_kv.as_ref().map(wire::entry));
                Ok(wire::op_answer(response.header.as_ref(), previous))
            }
            ([], [Op::Get(keys)]) => {
                let response = kv.range(wire::range(keys)).await?.into_inner();
                let found = OpAnswer::Get(wire::entries(&response.kvs));
                Ok(wire::op_answer(response.header.as_ref(), found))
            }
            ([], [Op::Delete(keys)]) => {
                let response = kv.delete_range(wire::delete(keys)).await?.into_inner();
                let found = OpAnswer::Delete(wire::entries(&response.prev_kvs));
                Ok(wire::op_answer(response.header.as_ref(), found))
            }
            _ => Ok(wire::txn_answer(
                &kv.txn(wire::txn(txn)).await?.into_inner(),
            )),
        }
    }

    fn choose(&mut self) -> Request {
        let key: Key = format!("k{}", self.random.below(KEYS)).into();
        let unique = self.shared.unique.fetch_add(1, Ordering::Relaxed);
        let value: Key = format!("v{unique}").into();
        let known = self.known.get(&key).copied().unwrap_or(0);
        match self.random.below(100) {
            0..40 => Request::op(Op::Put(key, value, 0)),
            40..70 => Request::op(Op::Get(Keys::One(key))),
            70..75 => Request::get_all(),
            75..82 => Request::op(Op::Delete(Keys::One(key))),
            _ => Request::Txn(Txn {
                when: vec![(key.clone(), Condition::ModRevision(known))],
                then: vec![Op::Put(key.clone(), value, 0)],
                otherwise: vec![Op::Get(Keys::One(key))],
            }),
        }
    }
}

/// Whether the request never reached a member.
fn was_never_sent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        source = error.source();
    }
    false
}

fn is_read(request: &Request) -> bool {
    match request {
        Request::Txn(txn) => txn.then.iter().all(|op| matches!(op, Op::Get(_))),
        Request::Grant(_) | Request::Revoke(_) => false,
    }
}
