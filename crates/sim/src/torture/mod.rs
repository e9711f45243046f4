//! Kills a member repeatedly while clients use it, and checks that no effect is visible.
//!
//! ```text
//!      ┌─▶ requests ───▶ SIGKILL ─▶ sometimes: interrupted starts ───▶ log and backend
//!      │                                                                 agree? ─┐
//!      └── clients' history and watchers' events agree with that? ◀── start ◀────┘
//! ```
//!
//! Each turn is checked separately, from the final state of the previous one; a request that
//! the crash left unanswered is in the log of that turn or never takes effect. The checks:
//!
//! - one order explains every answer before and after the crash, so no acknowledged write is
//!   lost and no revision is used twice: [`crate::linearizability`];
//! - log and backend agree, and the restarted member agrees with both: [`crate::at_rest`];
//! - watchers that resume, and one that watches the turn from its start, receive every change
//!   of the log once: [`crate::watch_events`].

mod client;
mod error;
mod member;
mod watcher;

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::at_rest::{AtRest, DirectoryState};
use crate::linearizability::etcd::{Etcd, History, Request, Store};
use crate::linearizability::{Verdict, check};
use crate::random::Random;
use crate::watch_events::{self, Event};
use client::{Client, Connection, Shared, key_name};
pub use error::TortureError;
use member::Member;
use watcher::Watcher;

/// More than any turn needs.
const SEARCH_STEPS_MAX: u64 = 200_000_000;
/// The time limit for a watcher to receive all events.
const WATCH_TIME_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The most answers in a turn, so that its history stays short.
const ANSWERS_PER_TURN_MAX: u64 = 2_000;
/// The longest turn.
const TURN_TIME_MAX: Duration = Duration::from_secs(20);
/// Watchers of all keys during the whole run.
const WATCHERS: usize = 3;
/// The most interrupted starts between two complete ones.
const INTERRUPTED_STARTS_MAX: u64 = 2;

/// The sets of flags for a start: the defaults; small limits, so that rare events occur in
/// every turn; large limits, so that a start replays everything from the log.
const FLAG_SETS: &[&[&str]] = &[
    &[],
    &[
        "--snapshot-count=100",
        "--snapshot-catchup-entries=10",
        "--backend-batch-interval=5ms",
        "--backend-batch-limit=20",
        "--compaction-batch-limit=10",
        "--compaction-sleep-interval=1ms",
    ],
    &[
        "--backend-batch-interval=1h",
        "--backend-batch-limit=1000000",
    ],
];

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server binary.
    pub portunus: PathBuf,
    /// The data directory; created if missing, never removed. The log is written beside it.
    pub data_dir: PathBuf,
    /// The seed of all choices; the timing also depends on the machine.
    pub seed: u64,
    /// Clients that write and read.
    pub clients: usize,
    /// When the run ends.
    pub until: Until,
}

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After this many kills.
    Kills(u64),
    /// After this time.
    Elapsed(Duration),
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Checked turns.
    pub turns: u64,
    /// Kills, including those during starts.
    pub kills: u64,
    /// Kills during starts.
    pub kills_while_starting: u64,
    /// Answered requests.
    pub answered: u64,
    /// Unanswered requests.
    pub unanswered: u64,
    /// Events that each watcher of all keys received.
    pub events: u64,
    /// The newest revision.
    pub revision: i64,
    /// Entries in the log that the backend had not applied, over all starts.
    pub entries_replayed: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress {
            turns,
            kills,
            kills_while_starting,
            answered,
            unanswered,
            events,
            revision,
            entries_replayed,
        } = self;
        write!(
            f,
            "{turns} turns, {kills} kills ({kills_while_starting} while starting), \
             {answered} answers, {unanswered} requests without one, {events} events, \
             revision {revision}, {entries_replayed} entries replayed"
        )
    }
}

/// Runs until its end or the first contradiction. Calls `on_turn` after every checked turn.
pub async fn run(
    options: &Options,
    mut on_turn: impl FnMut(&Progress),
) -> Result<Progress, TortureError> {
    let started = Instant::now();
    let mut run = Run::new(options);
    run.interrupted_starts().await?;
    let mut member = run.start().await?;
    loop {
        let mut history = run.turn(member).await?;
        run.interrupted_starts().await?;
        let found = run.at_rest.read(&options.data_dir)?;
        member = run.start().await?;
        run.check_turn(&mut history, found).await?;
        on_turn(&run.progress);
        let is_over = match options.until {
            Until::Kills(kills) => run.progress.kills >= kills,
            Until::Elapsed(time) => started.elapsed() >= time,
        };
        if is_over {
            return Ok(run.progress);
        }
    }
}

struct Run<'o> {
    options: &'o Options,
    random: Random,
    shared: Arc<Shared>,
    clients: Vec<Client>,
    /// Reads all keys after the restart.
    auditor: Client,
    watchers: Vec<Watcher>,
    address: watch::Sender<Option<SocketAddr>>,
    at_rest: AtRest,
    /// The store at the start of the turn.
    store: Store,
    /// The duration of the last complete start.
    start_time: Duration,
    progress: Progress,
}

impl<'o> Run<'o> {
    fn new(options: &'o Options) -> Run<'o> {
        let mut random = Random::from_seed(options.seed);
        let address = watch::Sender::new(None);
        let store = Store::default();
        let from = store.revision + 1;
        let one_key = Some(key_name(0).into());
        let watched = [const { None }; WATCHERS].into_iter().chain([one_key]);
        Run {
            options,
            clients: (0..options.clients)
                .map(|number| Client::new(number, random.fork()))
                .collect(),
            auditor: Client::new(options.clients, random.fork()),
            random,
            shared: Arc::new(Shared::default()),
            watchers: watched
                .map(|key| Watcher::spawn(key, from, address.subscribe()))
                .collect(),
            address,
            at_rest: AtRest::default(),
            store,
            start_time: Duration::from_millis(200),
            progress: Progress::default(),
        }
    }

    fn launch(&mut self) -> Result<Member, TortureError> {
        let flags = self.random.choose(FLAG_SETS).copied().unwrap_or_default();
        Member::start(&self.options.portunus, &self.options.data_dir, flags)
    }

    async fn start(&mut self) -> Result<Member, TortureError> {
        let started = Instant::now();
        let mut member = self.launch()?;
        let address = member.ready().await?;
        self.start_time = started.elapsed();
        self.address.send_replace(Some(address));
        Ok(member)
    }

    /// Starts the member and kills it before or just after it is ready.
    async fn interrupted_starts(&mut self) -> Result<(), TortureError> {
        for _ in 0..self.random.below(INTERRUPTED_STARTS_MAX + 1) {
            let member = self.launch()?;
            let limit_us = u64::try_from(self.start_time.as_micros()).unwrap_or(u64::MAX);
            tokio::time::sleep(Duration::from_micros(self.random.below(limit_us))).await;
            member.kill()?;
            self.progress.kills += 1;
            self.progress.kills_while_starting += 1;
        }
        Ok(())
    }

    /// Runs all clients, each over its own connection, and kills the member meanwhile.
    async fn turn(&mut self, member: Member) -> Result<History, TortureError> {
        let Some(address) = *self.address.borrow() else {
            return Err(TortureError::NoAnswer);
        };
        let mut tasks = JoinSet::new();
        for mut client in std::mem::take(&mut self.clients) {
            let mut connection = Connection::open(address).await?;
            let shared = Arc::clone(&self.shared);
            tasks.spawn(async move {
                let result = client.run(&mut connection, &shared).await;
                (client, result)
            });
        }
        self.wait_before_kill().await;
        self.address.send_replace(None);
        member.kill()?;
        self.progress.kills += 1;
        let mut history = History::new();
        while let Some(joined) = tasks.join_next().await {
            let (mut client, result) = joined?;
            result?;
            history.append(&mut client.history);
            self.clients.push(client);
        }
        self.clients.sort_by_key(Client::number);
        Ok(history)
    }

    /// Waits for a number of answers in half of the turns, and for a time in the others, so
    /// that a kill also occurs between two answers.
    async fn wait_before_kill(&mut self) {
        let answers = 1 + self.random.below(ANSWERS_PER_TURN_MAX);
        let time_us = match self.random.below(2) {
            0 => u64::try_from(TURN_TIME_MAX.as_micros()).unwrap_or(u64::MAX),
            _ => self.random.below(500_000),
        };
        let deadline = Instant::now() + Duration::from_micros(time_us);
        let target = self.shared.answers.load(Ordering::SeqCst) + answers;
        while self.shared.answers.load(Ordering::SeqCst) < target && Instant::now() < deadline {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Compares the answers and the events of watchers with the log.
    async fn check_turn(
        &mut self,
        history: &mut History,
        found: DirectoryState,
    ) -> Result<(), TortureError> {
        let Some(address) = *self.address.borrow() else {
            return Err(TortureError::NoAnswer);
        };
        let mut connection = Connection::open(address).await?;
        let everything = Request::get_all();
        let is_answered = self
            .auditor
            .send(everything, &mut connection, &self.shared)
            .await?;
        if !is_answered {
            return Err(TortureError::NoAnswer);
        }
        history.append(&mut self.auditor.history);
        let end = self.order(history)?;
        let leases = connection.leases().await;
        let member = Store {
            leases: leases
                .map_err(|_| TortureError::NoAnswer)?
                .into_iter()
                .collect::<BTreeSet<i64>>(),
            ..end
        };
        if member != found.store {
            return Err(TortureError::NotTheLog {
                log: Box::new(found.store),
                member: Box::new(member),
            });
        }
        let is_of_this_turn = |event: &Event| event.revision > self.store.revision;
        let events: Vec<Event> = found.events.into_iter().filter(is_of_this_turn).collect();
        self.check_watchers(&events, member.revision).await?;

        let unanswered = history.iter().filter(|op| op.output().is_none()).count() as u64;
        self.progress.turns += 1;
        self.progress.unanswered += unanswered;
        self.progress.answered += history.len() as u64 - unanswered;
        self.progress.events += events.len() as u64;
        self.progress.revision = member.revision;
        self.progress.entries_replayed += found.entries_ahead;
        self.shared
            .compactable
            .store(member.revision, Ordering::Relaxed);
        self.store = member;
        Ok(())
    }

    /// Returns the store after an order that explains the history. The last request reads all
    /// keys, so keys and revision are those of the member; unanswered grants and revocations
    /// may be missing from its leases.
    fn order(&self, history: &History) -> Result<Store, TortureError> {
        let model = Etcd::for_history(self.store.clone(), history);
        match check(&model, history, SEARCH_STEPS_MAX) {
            Verdict::Linearizable { end, .. } => Ok(end),
            Verdict::Violated(violation) => Err(TortureError::NotLinearizable(
                violation.explain(&model, history),
            )),
            Verdict::Undecided { steps } => Err(TortureError::Undecided { steps }),
        }
    }

    /// Checks that all watchers, and one that starts only now, receive the events of this turn.
    async fn check_watchers(&self, events: &[Event], revision: i64) -> Result<(), TortureError> {
        let from = self.store.revision + 1;
        let late = Watcher::spawn(None, from, self.address.subscribe());
        for (number, watcher) in self.watchers.iter().chain([&late]).enumerate() {
            let expected = watcher.expected(events);
            let deadline = Instant::now() + WATCH_TIME_MAX;
            while watcher.count() < expected.len() && Instant::now() < deadline {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            if let Some(problem) = watcher.problem() {
                return Err(TortureError::WatchStream {
                    watcher: number,
                    problem,
                });
            }
            watch_events::compare(expected, watcher.take(revision)).map_err(|source| {
                TortureError::Watch {
                    watcher: number,
                    source,
                }
            })?;
        }
        Ok(())
    }
}
