//! A new member of a cluster with much data: how long until it has everything, and what that
//! costs the memory of the leader, which sends it.
//!
//! The log is kept so short that the leader has to send its data as a snapshot. That it did is
//! read from its metrics, which have the same names in both servers.
//!
//! Meanwhile the leader is given a put now and then, as it would be in life. etcd needs that: its
//! new member counts what came with a snapshot as not applied until the first entry after it, and
//! with more than 5 000 of those it refuses requests, its own announcement among them, for ever.

use std::time::{Duration, Instant};

use portunus_proto::etcdserverpb::PutRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Scale, WorkloadError, sample_of};
use crate::client;
use crate::cluster::Cluster;
use crate::report::{Sample, Transfer};
use crate::server::Server;
use crate::usage;
use crate::window::{Seen, Spent, micros};
use crate::wire::Method;

/// Its puts fit into one message of the load generator, and its record into eight pages.
const SNAPSHOT_VALUE_BYTES: usize = 32_000;
/// A member that has not caught up by then is reported as broken.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(600);
/// The sender counts a snapshot only when it is answered.
const COUNT_TIME_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const PUT_INTERVAL: Duration = Duration::from_millis(100);

/// Snapshots that a member has sent, by receiver.
const SENT_METRIC: &str = "etcd_network_snapshot_send_success{";

pub(super) async fn run(cluster: &mut Cluster, scale: &Scale) -> Result<Sample, WorkloadError> {
    let (leader, term) = cluster.leader().await?;
    let (address, sender) = {
        let server = &cluster.servers[leader];
        (server.address(), server.process_id())
    };
    client::fill(&address, scale.snapshot_keys, SNAPSHOT_VALUE_BYTES).await?;
    tokio::time::sleep(scale.settle).await;

    let sent_before = snapshots_sent(&address).await;
    let resident_before = usage::memory(sender)?.resident_bytes;
    usage::forget_peak(sender)?;
    let sender_cpu_before = usage::cpu_time(sender)?;
    let client_before = usage::cpu_time(std::process::id())?;
    let learner = cluster.add_learner().await?;
    let started = Instant::now();
    let receiver = cluster.servers[learner].process_id();
    let last_key = scale.snapshot_keys - 1;
    tokio::select! {
        caught_up = wait_for_last_key(&mut cluster.servers[learner], last_key) => caught_up?,
        () = put_now_and_then(&address) => {}
    }
    let took = started.elapsed();

    let spent = Spent {
        elapsed: took,
        // A new process: all that the receiver has used, it used for this.
        server_cpu: usage::cpu_time(sender)?.saturating_sub(sender_cpu_before)
            + usage::cpu_time(receiver)?,
        client_cpu: usage::cpu_time(std::process::id())?.saturating_sub(client_before),
        disk_written_bytes: None,
    };
    let mut seen = Seen {
        latencies_us: vec![micros(took)],
        ..Seen::default()
    };
    if !has_sent_another(&address, sent_before).await {
        seen.failed("the new member was not sent a snapshot by the leader");
    }
    let (_, term_afterwards) = cluster.leader().await?;
    if term_afterwards != term {
        seen.failed("the leader changed while it sent the snapshot");
    }
    // After the end of everything that follows the snapshot.
    tokio::time::sleep(scale.settle).await;
    let (sender, receiver) = (usage::memory(sender)?, usage::memory(receiver)?);
    let transfer = Transfer {
        sender_resident_before_bytes: resident_before,
        sender_extra_bytes: sender.peak_bytes.saturating_sub(resident_before),
        receiver_peak_bytes: receiver.peak_bytes,
        receiver_resident_bytes: receiver.resident_bytes,
    };
    let sample = sample_of(&cluster.process_ids(), seen, spent)?;
    Ok(Sample {
        transfer: Some(transfer),
        ..sample
    })
}

async fn wait_for_last_key(server: &mut Server, last_key: usize) -> Result<(), WorkloadError> {
    let address = server.address();
    let deadline = Instant::now() + CATCH_UP_TIME_MAX;
    while !client::holds_key(&address, last_key).await {
        server.check_it_runs()?;
        if Instant::now() >= deadline {
            return Err(server.silent(CATCH_UP_TIME_MAX).into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// For as long as it is asked to.
async fn put_now_and_then(address: &str) {
    let put = PutRequest {
        key: client::key(0),
        ..PutRequest::default()
    };
    loop {
        tokio::time::sleep(PUT_INTERVAL).await;
        // A refused one is followed by another.
        client::ask(address, Method::Put, &put).await;
    }
}

async fn has_sent_another(address: &str, sent_before: Option<f64>) -> bool {
    let deadline = Instant::now() + COUNT_TIME_MAX;
    while Instant::now() < deadline {
        let sent = snapshots_sent(address).await;
        if sent.unwrap_or(0.0) > sent_before.unwrap_or(0.0) {
            return true;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    false
}

/// How many snapshots the member says it has sent; nothing if it does not say.
async fn snapshots_sent(address: &str) -> Option<f64> {
    let mut socket = TcpStream::connect(address).await.ok()?;
    // The old version, so that the answer is not cut into chunks.
    socket
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .await
        .ok()?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.ok()?;
    sum_of(&String::from_utf8_lossy(&answer), SENT_METRIC)
}

/// The sum over all labels of a metric.
fn sum_of(metrics: &str, name: &str) -> Option<f64> {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_added_up_over_its_labels() {
        let metrics = "HTTP/1.0 200 OK\r\n\r\n# TYPE etcd_network_snapshot_send_success counter\n\
            etcd_network_snapshot_send_success{To=\"a1\"} 1\n\
            etcd_network_snapshot_send_success{To=\"b2\"} 2\n\
            etcd_network_snapshot_send_failures{To=\"b2\"} 7\n";
        assert_eq!(sum_of(metrics, SENT_METRIC), Some(3.0));
        assert_eq!(sum_of("", SENT_METRIC), None);
    }
}
