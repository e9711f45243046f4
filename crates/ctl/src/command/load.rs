//! Writes of many clients and their results: a steady load for `check perf`, and as many as fit for
//! `check datascale`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use portunus_client::{Client, Options};
use portunus_proto::etcdserverpb::PutRequest;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::globals::open;
use crate::outcome::Failure;

const DURATION: Duration = Duration::from_secs(60);
const KEY_BYTES: usize = 256;
const VALUE_BYTES: usize = 1024;
/// The clock that releases writes ticks this often; more than one may be due at a tick.
const TICK: Duration = Duration::from_millis(1);
/// The longest delay whose writes are made up for: a tick may be late, but after a slow phase
/// the cluster must not receive all missed writes at once.
const CATCH_UP_MAX: Duration = Duration::from_millis(100);

/// The load: rate of writes and number of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Released evenly over time.
    pub writes_per_second: u32,
    /// Connections that share them.
    pub clients: usize,
}

impl Load {
    /// The load with etcdctl's short or long name.
    pub fn named(name: &str) -> Option<Self> {
        let (writes_per_second, clients) = match name {
            "s" | "small" => (150, 50),
            "m" | "medium" => (1_000, 200),
            "l" | "large" => (8_000, 500),
            "xl" | "xLarge" => (15_000, 1_000),
            _ => return None,
        };
        Some(Self {
            writes_per_second,
            clients,
        })
    }
}

/// The results of the writes.
#[derive(Debug)]
pub struct Summary {
    /// The rate of successful writes.
    pub writes_per_second: f64,
    /// Of the successful ones.
    pub slowest_seconds: f64,
    /// Of the successful ones.
    pub stddev_seconds: f64,
    /// The error texts, each with its count.
    pub errors: BTreeMap<String, u64>,
}

/// Runs the load; calls `progress` every second.
pub async fn run(
    load: Load,
    options: &Options,
    prefix: &str,
    progress: impl FnMut(u64, u64),
) -> Result<Summary, Failure> {
    let writers = Writers::start(load.clients, options).await?;
    let started = Instant::now();
    send_requests(load, prefix, &writers, progress).await;
    let WriterResult {
        latencies_seconds: latencies,
        errors,
    } = writers.finish().await;
    let writes_per_second = latencies.len() as f64 / started.elapsed().as_secs_f64();
    Ok(Summary {
        writes_per_second,
        slowest_seconds: latencies.iter().copied().fold(0.0, f64::max),
        stddev_seconds: standard_deviation(&latencies),
        errors,
    })
}

/// Clients that share a queue of writes.
pub struct Writers {
    requests: mpsc::Sender<PutRequest>,
    tasks: JoinSet<WriterResult>,
}

impl Writers {
    /// Connects the clients.
    pub async fn start(clients: usize, options: &Options) -> Result<Self, Failure> {
        let (requests, queue) = mpsc::channel::<PutRequest>(clients);
        let queue = Arc::new(Mutex::new(queue));
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            // A write waits for its answer however long it takes: slowness is what is measured.
            let options = Options {
                command_timeout: None,
                ..options.clone()
            };
            let client = open(options).await?;
            tasks.spawn(write_queued(client, Arc::clone(&queue)));
        }
        Ok(Self { requests, tasks })
    }

    /// Queues a write of a value to a new key; waits while the queue is full.
    pub async fn write(&self, key: Bytes, value: Bytes) {
        let request = PutRequest {
            key,
            value,
            ..PutRequest::default()
        };
        // The queue is closed only when this is dropped.
        let _ = self.requests.send(request).await;
    }

    /// Waits for all queued writes and returns their results.
    pub async fn finish(self) -> WriterResult {
        drop(self.requests);
        let mut result = WriterResult::default();
        for of_one in self.tasks.join_all().await {
            result.latencies_seconds.extend(of_one.latencies_seconds);
            for (error, count) in of_one.errors {
                *result.errors.entry(error).or_default() += count;
            }
        }
        result
    }
}

/// Hands out writes at an even pace until the time is up.
async fn send_requests(
    load: Load,
    prefix: &str,
    writers: &Writers,
    mut progress: impl FnMut(u64, u64),
) {
    let between = Duration::from_secs(1) / load.writes_per_second;
    let started = Instant::now();
    let mut due = started;
    let mut number = 0_u64;
    let mut second_shown = 0;
    let mut ticks = tokio::time::interval(TICK);
    let value = Bytes::from(vec![0; VALUE_BYTES]);
    while started.elapsed() < DURATION {
        ticks.tick().await;
        let now = Instant::now();
        due = due.max(now.checked_sub(CATCH_UP_MAX).unwrap_or(now));
        while due <= now {
            due += between;
            number += 1;
            let key = key(prefix, number, KEY_BYTES);
            writers.write(key, value.clone()).await;
        }
        let second = started.elapsed().as_secs();
        if second > second_shown {
            second_shown = second;
            progress(second, DURATION.as_secs());
        }
    }
}

/// Returns the key of a write, of `bytes` bytes after the prefix: distinct, and spread over the whole
/// range.
pub fn key(prefix: &str, number: u64, bytes: usize) -> Bytes {
    // An odd multiplier permutes the numbers.
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let mut key = Vec::with_capacity(prefix.len() + bytes);
    key.extend_from_slice(prefix.as_bytes());
    key.extend_from_slice(&scattered);
    key.resize(prefix.len() + bytes, 0);
    key.into()
}

/// The results of writes.
#[derive(Debug, Default)]
pub struct WriterResult {
    latencies_seconds: Vec<f64>,
    /// The error texts, each with its count.
    pub errors: BTreeMap<String, u64>,
}

async fn write_queued(
    client: Client,
    queue: Arc<Mutex<mpsc::Receiver<PutRequest>>>,
) -> WriterResult {
    let mut result = WriterResult::default();
    loop {
        let request = queue.lock().await.recv().await;
        let Some(request) = request else {
            return result;
        };
        let started = Instant::now();
        match client.put(request).await {
            Ok(_) => result
                .latencies_seconds
                .push(started.elapsed().as_secs_f64()),
            Err(error) => *result.errors.entry(error.to_string()).or_default() += 1,
        }
    }
}

fn standard_deviation(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_etcdctls_names_and_sizes() {
        assert_eq!(Load::named("s"), Load::named("small"));
        let largest = Load::named("xLarge").unwrap();
        assert_eq!(
            (largest.writes_per_second, largest.clients),
            (15_000, 1_000)
        );
        assert_eq!(Load::named("huge"), None);
    }

    #[test]
    fn standard_deviation_is_of_the_whole_population() {
        assert_eq!(standard_deviation(&[1.0, 3.0]), 1.0);
        assert_eq!(standard_deviation(&[]), 0.0);
    }

    #[test]
    fn keys_are_distinct_and_of_one_size() {
        let keys: std::collections::BTreeSet<Bytes> =
            (0..1000).map(|n| key("/p/", n, KEY_BYTES)).collect();
        assert_eq!(keys.len(), 1000);
        assert!(keys.iter().all(|key| key.len() == 3 + KEY_BYTES));
    }
}
