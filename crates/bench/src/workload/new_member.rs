//! A new member of a cluster with much data: the time until it has all keys, and the memory
//! that the snapshot costs the leader.
//!
//! The log is so short that the leader must send a snapshot. The workload checks this in the
//! metrics of the leader, which have the same names in both servers.
//!
//! Meanwhile the leader gets a put every 100 ms. etcd needs it: a new member counts the entries
//! of a snapshot as not applied until the first entry after it, and with more than 5 000 of
//! them it refuses requests, including the publication of its own attributes.

use std::time::{Duration, Instant};

use portunus_proto::etcdserverpb::PutRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Scale, WorkloadError, sample_of};
use crate::client;
use crate::cluster::Cluster;
use crate::endpoint::Endpoint;
use crate::report::{Sample, Transfer};
use crate::server::Server;
use crate::usage;
use crate::window::{ClientResults, WindowUsage, micros};
use crate::wire::Method;

/// A put fits into one message of the load generator, and its record into eight pages.
const SNAPSHOT_VALUE_BYTES: usize = 32_000;
/// The time limit for a new member to catch up.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(600);
/// The time limit for the sender's metric, which counts a snapshot after its answer.
const COUNT_TIME_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const PUT_INTERVAL: Duration = Duration::from_millis(100);

/// The metric of sent snapshots, by receiver.
const SENT_METRIC: &str = "etcd_network_snapshot_send_success{";

pub(super) async fn run(cluster: &mut Cluster, scale: &Scale) -> Result<Sample, WorkloadError> {
    let (leader, term) = cluster.leader().await?;
    let (endpoint, sender) = {
        let server = &cluster.servers[leader];
        (server.endpoint(), server.process_id())
    };
    client::fill(&endpoint, scale.snapshot_keys, SNAPSHOT_VALUE_BYTES).await?;
    tokio::time::sleep(scale.settle).await;

    let sent_before = snapshots_sent(&endpoint).await;
    let resident_before = usage::memory(sender)?.resident_bytes;
    usage::reset_peak(sender)?;
    let sender_cpu_before = usage::cpu_time(sender)?;
    let client_before = usage::cpu_time(std::process::id())?;
    let learner = cluster.add_learner().await?;
    let started = Instant::now();
    let receiver = cluster.servers[learner].process_id();
    let last_key = scale.snapshot_keys - 1;
    tokio::select! {
        caught_up = wait_for_last_key(&mut cluster.servers[learner], last_key) => caught_up?,
        () = put_periodically(&endpoint) => {}
    }
    let took = started.elapsed();

    let usage_in_window = WindowUsage {
        elapsed: took,
        // The receiver is a new process: its CPU time is that of the transfer.
        server_cpu: usage::cpu_time(sender)?.saturating_sub(sender_cpu_before)
            + usage::cpu_time(receiver)?,
        client_cpu: usage::cpu_time(std::process::id())?.saturating_sub(client_before),
        disk_written_bytes: None,
    };
    let mut results = ClientResults {
        latencies_us: vec![micros(took)],
        ..ClientResults::default()
    };
    if !has_sent_another(&endpoint, sent_before).await {
        results.failed("the new member was not sent a snapshot by the leader");
    }
    let (_, term_afterwards) = cluster.leader().await?;
    if term_afterwards != term {
        results.failed("the leader changed while it sent the snapshot");
    }
    // After the deferred work that follows the snapshot.
    tokio::time::sleep(scale.settle).await;
    let (sender, receiver) = (usage::memory(sender)?, usage::memory(receiver)?);
    let transfer = Transfer {
        sender_resident_before_bytes: resident_before,
        sender_extra_bytes: sender.peak_bytes.saturating_sub(resident_before),
        receiver_peak_bytes: receiver.peak_bytes,
        receiver_resident_bytes: receiver.resident_bytes,
    };
    let sample = sample_of(&cluster.process_ids(), results, usage_in_window)?;
    Ok(Sample {
        transfer: Some(transfer),
        ..sample
    })
}

async fn wait_for_last_key(server: &mut Server, last_key: usize) -> Result<(), WorkloadError> {
    let endpoint = server.endpoint();
    let deadline = Instant::now() + CATCH_UP_TIME_MAX;
    while !client::holds_key(&endpoint, last_key).await {
        server.check_running()?;
        if Instant::now() >= deadline {
            return Err(server.not_answering(CATCH_UP_TIME_MAX).into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Puts a key every [`PUT_INTERVAL`] until it is dropped.
async fn put_periodically(endpoint: &Endpoint) {
    let put = PutRequest {
        key: client::key(0),
        ..PutRequest::default()
    };
    loop {
        tokio::time::sleep(PUT_INTERVAL).await;
        // A refused put is ignored; the next one follows.
        client::call(endpoint, Method::Put, &put).await;
    }
}

async fn has_sent_another(endpoint: &Endpoint, sent_before: Option<f64>) -> bool {
    let deadline = Instant::now() + COUNT_TIME_MAX;
    while Instant::now() < deadline {
        let sent = snapshots_sent(endpoint).await;
        if sent.unwrap_or(0.0) > sent_before.unwrap_or(0.0) {
            return true;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    false
}

/// Returns the number of sent snapshots in the member's metrics, if it is there.
async fn snapshots_sent(endpoint: &Endpoint) -> Option<f64> {
    let mut socket = TcpStream::connect(&*endpoint.address).await.ok()?;
    // HTTP/1.0, so that the answer is not chunked.
    socket
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .await
        .ok()?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.ok()?;
    sum_of(&String::from_utf8_lossy(&answer), SENT_METRIC)
}

/// Returns the sum of a metric over all labels.
fn sum_of(metrics: &str, name: &str) -> Option<f64> {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_summed_over_its_labels() {
        let metrics = "HTTP/1.0 200 OK\r\n\r\n# TYPE etcd_network_snapshot_send_success counter\n\
            etcd_network_snapshot_send_success{To=\"a1\"} 1\n\
            etcd_network_snapshot_send_success{To=\"b2\"} 2\n\
            etcd_network_snapshot_send_failures{To=\"b2\"} 7\n";
        assert_eq!(sum_of(metrics, SENT_METRIC), Some(3.0));
        assert_eq!(sum_of("", SENT_METRIC), None);
    }
}
