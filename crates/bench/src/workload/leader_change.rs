//! The time without writes after the leader of a cluster is killed.
//!
//! Every member gets a put every few milliseconds, whether or not earlier ones are answered:
//! one that was under way to the old leader is lost, and its client would learn that only
//! after a timeout. The leader is killed; what counts is the first put that was sent when its
//! process was gone and that another member acknowledges. A leader that is asked to stop goes on
//! for a while and hands over; there the longest time without an acknowledgement counts, from the
//! request to such a put. Then the member is started again and catches up, and the next leader is
//! ended.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use prost::Message;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::{Scale, WorkloadError, sample_of};
use crate::client::{self, VALUE_BYTES, put_of};
use crate::cluster::Cluster;
use crate::endpoint::Endpoint;
use crate::report::Sample;
use crate::server::StopMode;
use crate::usage;
use crate::window::{ClientResults, WindowUsage, micros};
use crate::wire::{Connection, Event, Method, StreamId, WireError};

/// The interval of puts to a member, which is the resolution of the measurement.
const PUT_INTERVAL: Duration = Duration::from_millis(5);
/// Duration of the load before a leader is killed.
const LOAD_BEFORE_KILL: Duration = Duration::from_secs(1);
/// The time limit for an acknowledged put.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(60);

pub(super) async fn run(
    cluster: &mut Cluster,
    scale: &Scale,
    stop_mode: StopMode,
) -> Result<Sample, WorkloadError> {
    let (leader, _) = cluster.leader().await?;
    client::fill(
        &cluster.servers[leader].endpoint(),
        scale.hot_keys,
        VALUE_BYTES,
    )
    .await?;
    let client_before = usage::cpu_time(std::process::id())?;
    let mut results = ClientResults::default();
    let (mut elapsed, mut server_cpu) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..scale.leader_kills {
        let change = change_leader(cluster, scale.hot_keys, stop_mode).await?;
        results.latencies_us.push(micros(change.took));
        elapsed += change.took;
        server_cpu += change.survivors_cpu;
    }
    let client_cpu = usage::cpu_time(std::process::id())?.saturating_sub(client_before);
    let usage_in_window = WindowUsage {
        elapsed,
        server_cpu,
        client_cpu,
        disk_written_bytes: None,
    };
    sample_of(&cluster.process_ids(), results, usage_in_window)
}

/// The measurement of one leader change.
struct Change {
    /// From the kill to the acknowledgement; see the module's text for other endings.
    took: Duration,
    /// CPU time of the other members in that time.
    survivors_cpu: Duration,
}

async fn change_leader(
    cluster: &mut Cluster,
    keys: usize,
    stop_mode: StopMode,
) -> Result<Change, WorkloadError> {
    let (leader, _) = cluster.leader().await?;
    let mut puts = SteadyPuts::start(&cluster.endpoints(), keys);
    tokio::time::sleep(LOAD_BEFORE_KILL).await;
    if !puts.take_acknowledged() {
        return Err(WorkloadError::NoPuts);
    }
    let mut survivors = cluster.process_ids();
    survivors.swap_remove(leader);
    let cpu_before = usage::cpu_time_of_all(&survivors)?;
    let signalled_at = Instant::now();
    cluster.servers[leader].end(stop_mode).await;
    let gone_at = Instant::now();
    let acknowledged = puts.acknowledged_of_those_sent_after(gone_at, signalled_at);
    let resumed = tokio::time::timeout(CHANGE_TIME_MAX, acknowledged)
        .await
        .ok()
        .flatten()
        .ok_or(WorkloadError::NoLeaderAgain {
            seconds: CHANGE_TIME_MAX.as_secs(),
        })?;
    let change = Change {
        took: match stop_mode {
            StopMode::Killed => resumed.at.saturating_duration_since(signalled_at),
            StopMode::Graceful => resumed.longest_pause,
        },
        survivors_cpu: usage::cpu_time_of_all(&survivors)?.saturating_sub(cpu_before),
    };
    drop(puts);
    cluster.servers[leader].start_again().await?;
    Ok(change)
}

/// The times at which a put was sent and acknowledged.
struct Acknowledged {
    sent_at: Instant,
    at: Instant,
}

/// The end of a change of leadership, as clients see it.
struct Resumed {
    /// When a put was acknowledged that was sent after the old leader was gone.
    at: Instant,
    /// The longest time until then without an acknowledgement.
    longest_pause: Duration,
}

/// Puts to every member, until it is dropped.
struct SteadyPuts {
    acknowledged: mpsc::UnboundedReceiver<Acknowledged>,
    /// Aborted when this is dropped.
    _tasks: JoinSet<()>,
}

impl SteadyPuts {
    fn start(endpoints: &[Endpoint], keys: usize) -> SteadyPuts {
        let (sender, acknowledged) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for (member, endpoint) in endpoints.iter().cloned().enumerate() {
            let sender = sender.clone();
            tasks.spawn(async move {
                // The connection to the killed member fails, as expected; if another one
                // fails, the puts to that member are missing.
                let _ = put_steadily(&endpoint, member, keys, &sender).await;
            });
        }
        SteadyPuts {
            acknowledged,
            _tasks: tasks,
        }
    }

    /// Drops the acknowledgements so far; returns false if there were none.
    fn take_acknowledged(&mut self) -> bool {
        let mut count = 0;
        while self.acknowledged.try_recv().is_ok() {
            count += 1;
        }
        count > 0
    }

    /// Waits for the first acknowledgement of a put that was sent after `gone_at`, and looks for
    /// pauses from `signalled_at` on. Nothing if all connections are gone.
    async fn acknowledged_of_those_sent_after(
        &mut self,
        gone_at: Instant,
        signalled_at: Instant,
    ) -> Option<Resumed> {
        let mut longest_pause = Duration::ZERO;
        let mut last_at = signalled_at;
        loop {
            let Acknowledged { sent_at, at } = self.acknowledged.recv().await?;
            longest_pause = longest_pause.max(at.saturating_duration_since(last_at));
            last_at = last_at.max(at);
            if sent_at > gone_at {
                return Some(Resumed { at, longest_pause });
            }
        }
    }
}

async fn put_steadily(
    endpoint: &Endpoint,
    member: usize,
    keys: usize,
    acknowledged: &mpsc::UnboundedSender<Acknowledged>,
) -> Result<(), WireError> {
    let mut connection = Connection::open(endpoint).await?;
    let mut numbers = client::RandomNumbers::of_client(member);
    let mut under_way: HashMap<StreamId, Instant> = HashMap::new();
    let mut ticks = tokio::time::interval(PUT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            received = connection.receive() => received?,
            _ = ticks.tick() => {
                let put = put_of(numbers.below(keys)).encode_to_vec();
                let stream = connection.request(Method::Put, &put);
                under_way.insert(stream, Instant::now());
            }
        }
        connection.flush().await?;
        while let Some(event) = connection.next_event() {
            let (Event::Message(stream, _) | Event::End(stream)) = &event;
            let Some(sent_at) = under_way.remove(stream) else {
                continue;
            };
            // The end of a call without a message is a refusal.
            if matches!(event, Event::Message(..)) {
                let at = Instant::now();
                if acknowledged.send(Acknowledged { sent_at, at }).is_err() {
                    return Ok(());
                }
            }
        }
    }
}
