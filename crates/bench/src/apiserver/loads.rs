//! What is measured on one API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::pair::{Pair, PairError};

const ROOT: &str = "/apis/wardle.example.com/v1beta1/namespaces";
/// Objects of the list.
pub const LISTED: usize = 5000;
/// Watches at a time.
pub const WATCHERS: usize = 200;
/// Clients that create and get.
const CLIENTS: usize = 8;
/// How long a server is left alone before its memory is read.
const IDLE_TIME: Duration = Duration::from_secs(3);
const OPEN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The sizes of the loads.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The measured time of creates, gets and lists.
    pub measured: Duration,
    /// Objects that are created while the watches are open.
    pub watched: usize,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The name of the load.
    pub load: Load,
    /// The figure that is compared.
    pub value: f64,
    /// Operations per second, if it is a rate.
    pub per_second: Option<f64>,
}

/// One of the loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Time from the start to `/readyz`, in milliseconds.
    Start,
    /// Resident memory after a start, in MiB.
    IdleMemory,
    /// CPU of the server per create, in microseconds.
    Create,
    /// CPU of the server per get, in microseconds.
    Get,
    /// CPU of the server per list of [`LISTED`] objects, in microseconds.
    List,
    /// CPU of the server per event and watch, in microseconds.
    Watch,
}

impl Load {
    /// All of them, in the order in which they run.
    pub const ALL: [Load; 6] = [
        Load::Start,
        Load::IdleMemory,
        Load::Create,
        Load::Get,
        Load::List,
        Load::Watch,
    ];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Load::Start => "start to ready",
            Load::IdleMemory => "idle RSS",
            Load::Create => "create",
            Load::Get => "get",
            Load::List => "list of 5000",
            Load::Watch => "event to 200 watches",
        }
    }

    /// Returns the unit of its figure.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Load::Start => "ms",
            Load::IdleMemory => "MiB",
            Load::Create | Load::Get | Load::List => "us CPU/request",
            Load::Watch => "us CPU/delivery",
        }
    }
}

/// Runs every load on a server.
///
/// # Errors
/// If a request fails or the server ends.
pub async fn run(pair: &Pair, scale: Scale) -> Result<Vec<Sample>, PairError> {
    let start = Sample {
        load: Load::Start,
        value: pair.start_time.as_secs_f64() * 1e3,
        per_second: None,
    };
    sleep(IDLE_TIME).await;
    #[allow(clippy::cast_precision_loss)] // memory is far below 2^52 bytes
    let resident = pair.memory()?.resident_bytes as f64;
    let idle = Sample {
        load: Load::IdleMemory,
        value: resident / f64::from(1 << 20),
        per_second: None,
    };
    let create = closed_loop(pair, Load::Create, CLIENTS, scale.measured, |client, at| {
        let body = flunder(&format!("c-{client}-{at}"));
        ("POST", format!("{ROOT}/created/flunders"), body)
    })
    .await?;
    let get = closed_loop(pair, Load::Get, CLIENTS, scale.measured, |client, _| {
        let target = format!("{ROOT}/created/flunders/c-{client}-0");
        ("GET", target, String::new())
    })
    .await?;
    fill(pair).await?;
    let list = closed_loop(pair, Load::List, 1, scale.measured, |_, _| {
        ("GET", format!("{ROOT}/listed/flunders"), String::new())
    })
    .await?;
    let watch = watch(pair, scale.watched).await?;
    Ok(vec![start, idle, create, get, list, watch])
}

fn flunder(name: &str) -> String {
    let object = json!({
        "apiVersion": "wardle.example.com/v1beta1",
        "kind": "Flunder",
        "metadata": {"name": name, "labels": {"app": "benchmark", "tier": "front"},
            "annotations": {"example.com/note": "an annotation of some length for the benchmark"}},
        "spec": {"flunderReference": "another", "referenceType": "Flunder"},
    });
    object.to_string()
}

/// Sends requests one after the other on each of several connections.
async fn closed_loop(
    pair: &Pair,
    load: Load,
    clients: usize,
    measured: Duration,
    request: impl Fn(usize, usize) -> (&'static str, String, String) + Copy + Send + 'static,
) -> Result<Sample, PairError> {
    let mut tasks = JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(pair.connect().await?);
    }
    let cpu_before = pair.cpu_time()?;
    let begun = Instant::now();
    for (client, mut connection) in connections.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut sent = 0;
            while begun.elapsed() < measured {
                let (method, target, body) = request(client, sent);
                connection.send(method, &target, body).await?;
                sent += 1;
            }
            Ok::<usize, super::client::RequestError>(sent)
        });
    }
    let mut total = 0;
    while let Some(sent) = tasks.join_next().await {
        total += sent.map_err(|error| PairError::Start("a client".to_owned(), error.into()))??;
    }
    let elapsed = begun.elapsed();
    Ok(rate(load, pair.cpu_time()? - cpu_before, elapsed, total))
}

#[allow(clippy::cast_precision_loss)] // counts are far below 2^52
fn rate(load: Load, cpu: Duration, elapsed: Duration, total: usize) -> Sample {
    Sample {
        load,
        value: cpu.as_secs_f64() * 1e6 / total.max(1) as f64,
        per_second: Some(total as f64 / elapsed.as_secs_f64()),
    }
}

/// Creates the objects of the list.
async fn fill(pair: &Pair) -> Result<(), PairError> {
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        let mut connection = pair.connect().await?;
        tasks.spawn(async move {
            for at in (client..LISTED).step_by(CLIENTS) {
                let target = format!("{ROOT}/listed/flunders");
                let body = flunder(&format!("l-{at}"));
                connection.send("POST", &target, body).await?;
            }
            Ok::<(), super::client::RequestError>(())
        });
    }
    while let Some(filled) = tasks.join_next().await {
        filled.map_err(|error| PairError::Start("a client".to_owned(), error.into()))??;
    }
    Ok(())
}

/// Creates objects while many watches of them are open, and waits until every watch has had every
/// event.
async fn watch(pair: &Pair, events: usize) -> Result<Sample, PairError> {
    let opened = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..WATCHERS {
        let connection = pair.connect().await?;
        let opened = Arc::clone(&opened);
        tasks.spawn(async move {
            let count = move || {
                opened.fetch_add(1, Ordering::Relaxed);
            };
            let target = format!("{ROOT}/watched/flunders?watch=true");
            connection.watch(&target, count, events).await
        });
    }
    while opened.load(Ordering::Relaxed) < WATCHERS {
        if let Some(ended) = tasks.try_join_next() {
            ended.map_err(|error| PairError::Start("a client".to_owned(), error.into()))??;
        }
        sleep(OPEN_POLL_INTERVAL).await;
    }
    let mut writer = pair.connect().await?;
    let cpu_before = pair.cpu_time()?;
    let begun = Instant::now();
    for at in 0..events {
        let target = format!("{ROOT}/watched/flunders");
        let body = flunder(&format!("w-{at}"));
        writer.send("POST", &target, body).await?;
    }
    while let Some(read) = tasks.join_next().await {
        read.map_err(|error| PairError::Start("a client".to_owned(), error.into()))??;
    }
    let elapsed = begun.elapsed();
    let cpu = pair.cpu_time()? - cpu_before;
    Ok(rate(Load::Watch, cpu, elapsed, events * WATCHERS))
}
