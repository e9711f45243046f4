//! Samples and the tables of their figures.
//!
//! A figure alone depends on the machine as much as on the server. So the report shows the
//! ratio of both servers per round, in which they ran one directly after the other: the median
//! and the extremes.

use serde::Serialize;

use crate::machine::Machine;
use crate::mode::Mode;
use crate::usage::Memory;
use crate::window::{ClientResults, WindowUsage};

/// The measured quantity of a workload, which determines its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Operations per second: more is better.
    Rate,
    /// A duration: less is better.
    Duration,
}

/// The memory used to send a snapshot to a new member.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Transfer {
    /// Resident memory of the sender before.
    pub sender_resident_before_bytes: u64,
    /// Growth of the sender's memory up to its peak.
    pub sender_extra_bytes: u64,
    /// Peak resident memory of the receiver.
    pub receiver_peak_bytes: u64,
    /// Resident memory of the receiver at the end.
    pub receiver_resident_bytes: u64,
}

/// One workload on one server in one round.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Operations in the window.
    pub operations: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Median latency.
    pub p50_us: Option<u32>,
    /// 99th percentile of latency.
    pub p99_us: Option<u32>,
    /// Largest latency.
    pub worst_us: Option<u32>,
    /// CPU time, user and system, of the server or of all members, per operation.
    pub server_cpu_us_per_operation: Option<f64>,
    /// CPU time of the client, which shares the cores, per operation.
    pub client_cpu_us_per_operation: Option<f64>,
    /// Resident memory of the server at the end.
    pub resident_bytes: u64,
    /// Peak resident memory of the server.
    pub peak_resident_bytes: u64,
    /// Bytes written to the disk per operation.
    pub written_bytes_per_operation: Option<f64>,
    /// Failed requests.
    pub failures: u64,
    /// The error text of the first failure.
    pub first_failure: Option<String>,
    /// Only for a new member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Transfer>,
}

impl Sample {
    /// Computes a sample from the results and the used resources.
    #[must_use]
    pub fn of(results: ClientResults, usage_in_window: WindowUsage, memory: Memory) -> Sample {
        let mut latencies_us = results.latencies_us;
        latencies_us.sort_unstable();
        let operations = latencies_us.len() as u64 + results.bulk_operations;
        let per_operation = |total: f64| (operations > 0).then(|| total / operations as f64);
        let cpu_us = |cpu: std::time::Duration| cpu.as_secs_f64() * 1e6;
        let written_bytes = usage_in_window
            .disk_written_bytes
            .filter(|bytes| *bytes > 0);
        Sample {
            operations,
            per_second: operations as f64
                / usage_in_window.elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
            p50_us: percentile(&latencies_us, 50),
            p99_us: percentile(&latencies_us, 99),
            worst_us: latencies_us.last().copied(),
            server_cpu_us_per_operation: per_operation(cpu_us(usage_in_window.server_cpu)),
            client_cpu_us_per_operation: per_operation(cpu_us(usage_in_window.client_cpu)),
            resident_bytes: memory.resident_bytes,
            peak_resident_bytes: memory.peak_bytes,
            written_bytes_per_operation: written_bytes
                .and_then(|bytes| per_operation(bytes as f64)),
            failures: results.failures,
            first_failure: results.first_failure,
            transfer: None,
        }
    }
}

/// Returns the nearest-rank percentile of sorted values.
pub(crate) fn percentile(sorted: &[u32], percent: usize) -> Option<u32> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// All rounds of one workload.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Name of the workload.
    pub workload: &'static str,
    /// Description of the workload, with the mode.
    pub title: String,
    /// The mode of both servers.
    #[serde(flatten)]
    pub mode: Mode,
    /// The counted unit.
    pub unit: &'static str,
    /// Number of clients.
    pub clients: usize,
    /// The measured quantity.
    pub measure: Measure,
    /// The samples per server, etcd first.
    pub servers: Vec<ServerSamples>,
}

/// The samples of one server.
#[derive(Debug, Serialize)]
pub struct ServerSamples {
    /// Name and version.
    pub server: String,
    /// The samples per round.
    pub samples: Vec<Sample>,
}

/// All samples, for `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine of the run.
    pub machine: Machine,
    /// Members of each cluster.
    pub members: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Seconds of each measurement.
    pub measured_seconds: f64,
    /// Whether this was a smoke run, whose figures are meaningless.
    pub is_smoke: bool,
    /// The workloads, in order.
    pub outcomes: Vec<Outcome>,
}

/// A column of the table.
struct Column {
    title: String,
    of: fn(&Sample) -> Option<f64>,
    show: fn(f64) -> String,
}

fn columns(unit: &str, measure: Measure) -> Vec<Column> {
    match measure {
        Measure::Rate => rate_columns(unit),
        Measure::Duration => duration_columns(unit),
    }
}

fn duration_columns(unit: &str) -> Vec<Column> {
    let column = |title: &str, of, show| Column {
        title: title.to_owned(),
        of,
        show,
    };
    vec![
        column(
            "time, median",
            |sample| sample.p50_us.map(f64::from),
            show_micros,
        ),
        column(
            "worst",
            |sample| sample.worst_us.map(f64::from),
            show_micros,
        ),
        column(
            &format!("CPU/{unit}"),
            |sample| sample.server_cpu_us_per_operation,
            show_micros,
        ),
        column(
            "memory",
            |sample| Some(sample.resident_bytes as f64),
            show_mebibytes,
        ),
        column(
            "sender before",
            |sample| Some(sample.transfer?.sender_resident_before_bytes as f64),
            show_mebibytes,
        ),
        column(
            "sender extra",
            |sample| Some(sample.transfer?.sender_extra_bytes as f64),
            show_mebibytes,
        ),
        column(
            "receiver peak",
            |sample| Some(sample.transfer?.receiver_peak_bytes as f64),
            show_mebibytes,
        ),
        column(
            "receiver after",
            |sample| Some(sample.transfer?.receiver_resident_bytes as f64),
            show_mebibytes,
        ),
    ]
}

fn rate_columns(unit: &str) -> Vec<Column> {
    vec![
        Column {
            title: format!("{unit}s/s"),
            of: |sample| Some(sample.per_second),
            show: |value| match value {
                value if value < 10.0 => format!("{value:.2}"),
                value => format!("{value:.0}"),
            },
        },
        Column {
            title: "p50".to_owned(),
            of: |sample| sample.p50_us.map(f64::from),
            show: show_micros,
        },
        Column {
            title: "p99".to_owned(),
            of: |sample| sample.p99_us.map(f64::from),
            show: show_micros,
        },
        Column {
            title: format!("CPU/{unit}"),
            of: |sample| sample.server_cpu_us_per_operation,
            show: show_micros,
        },
        Column {
            title: format!("client CPU/{unit}"),
            of: |sample| sample.client_cpu_us_per_operation,
            show: show_micros,
        },
        Column {
            title: "memory".to_owned(),
            of: |sample| Some(sample.resident_bytes as f64),
            show: show_mebibytes,
        },
        Column {
            title: "peak".to_owned(),
            of: |sample| Some(sample.peak_resident_bytes as f64),
            show: show_mebibytes,
        },
        Column {
            title: format!("written/{unit}"),
            of: |sample| sample.written_bytes_per_operation,
            show: show_bytes,
        },
    ]
}

fn show_mebibytes(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / 1_048_576.0)
}

fn show_bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e7 => show_mebibytes(bytes),
        bytes if bytes >= 1e4 => format!("{:.1} KiB", bytes / 1024.0),
        bytes => format!("{bytes:.0} B"),
    }
}

fn show_micros(micros: f64) -> String {
    match micros {
        micros if micros >= 1e6 => format!("{:.2} s", micros / 1e6),
        micros if micros >= 1e3 => format!("{:.2} ms", micros / 1e3),
        micros => format!("{micros:.1} us"),
    }
}

/// Returns the median: the middle value, or the mean of the two middle values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *values.get(values.len() / 2 - 1)?;
    Some((lower + upper) / 2.0)
}

impl Outcome {
    /// Formats the table of this workload.
    #[must_use]
    pub fn table(&self) -> String {
        let samples = || self.servers.iter().flat_map(|server| &server.samples);
        let mut columns = columns(self.unit, self.measure);
        // Only some durations have a sender and a receiver.
        if self.measure == Measure::Duration {
            columns.retain(|column| samples().any(|sample| (column.of)(sample).is_some()));
        }
        let mut rows = vec![{
            let titles = columns.iter().map(|column| column.title.clone());
            std::iter::once(String::new()).chain(titles).collect()
        }];
        for server in &self.servers {
            let mut row = vec![server.server.clone()];
            for column in &columns {
                let middle = median(server.samples.iter().filter_map(column.of).collect());
                row.push(middle.map_or("-".to_owned(), column.show));
            }
            rows.push(row);
        }
        if let [peer, portunus] = self.servers.as_slice() {
            let mut middles = vec!["portunus / etcd".to_owned()];
            let mut extremes = vec!["  over rounds".to_owned()];
            for column in &columns {
                let ratios = ratios(peer, portunus, column.of);
                let least = ratios.iter().copied().reduce(f64::min);
                let most = ratios.iter().copied().reduce(f64::max);
                middles.push(median(ratios).map_or("-".to_owned(), |ratio| format!("{ratio:.2}x")));
                extremes.push(match (least, most) {
                    (Some(least), Some(most)) => format!("{least:.2}-{most:.2}"),
                    _ => "-".to_owned(),
                });
            }
            rows.push(middles);
            rows.push(extremes);
        }
        format!("{}\n{}{}", self.title, aligned(&rows), self.failures())
    }

    fn failures(&self) -> String {
        let mut text = String::new();
        for server in &self.servers {
            let failures: u64 = server.samples.iter().map(|sample| sample.failures).sum();
            let first = server
                .samples
                .iter()
                .find_map(|sample| sample.first_failure.as_deref());
            if failures > 0 {
                let first = first.unwrap_or("unknown");
                text.push_str(&format!(
                    "!! {failures} requests to {} FAILED, the first with: {first}\n",
                    server.server
                ));
            }
        }
        text
    }
}

/// Returns the ratio of both servers per round.
pub(crate) fn ratios(
    peer: &ServerSamples,
    portunus: &ServerSamples,
    of: fn(&Sample) -> Option<f64>,
) -> Vec<f64> {
    let pairs = peer.samples.iter().zip(&portunus.samples);
    pairs
        .filter_map(|(peer, portunus)| Some((of(peer)?, of(portunus)?)))
        .filter(|(peer, _)| *peer > 0.0)
        .map(|(peer, portunus)| portunus / peer)
        .collect()
}

/// Aligns the first column to the left, all others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let column_count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..column_count)
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if at == 0 {
                line.push_str(&format!("  {cell:<width$}"));
            } else {
                line.push_str(&format!("  {cell:>width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(latencies_us: Vec<u32>, cpu_ms: u64) -> Sample {
        let results = ClientResults {
            latencies_us,
            ..ClientResults::default()
        };
        let usage_in_window = WindowUsage {
            elapsed: Duration::from_secs(2),
            server_cpu: Duration::from_millis(cpu_ms),
            client_cpu: Duration::ZERO,
            disk_written_bytes: Some(81_920),
        };
        let memory = Memory {
            resident_bytes: 3 << 20,
            peak_bytes: 6 << 20,
        };
        Sample::of(results, usage_in_window, memory)
    }

    #[test]
    fn sample_is_computed_from_results_and_usage() {
        let sample = sample((1..=200).rev().collect(), 4);
        assert_eq!(sample.operations, 200);
        assert_eq!(sample.per_second, 100.0);
        assert_eq!((sample.p50_us, sample.p99_us), (Some(100), Some(198)));
        assert_eq!(sample.server_cpu_us_per_operation, Some(20.0));
        assert_eq!(sample.written_bytes_per_operation, Some(409.6));
    }

    #[test]
    fn sample_without_operations_has_no_latencies() {
        let sample = sample(Vec::new(), 4);
        assert_eq!((sample.p50_us, sample.p99_us), (None, None));
        assert_eq!(sample.server_cpu_us_per_operation, None);
    }

    #[test]
    fn percentiles_use_the_nearest_rank() {
        assert_eq!(percentile(&[7], 50), Some(7));
        assert_eq!(percentile(&[7], 99), Some(7));
        assert_eq!(percentile(&[1, 2], 50), Some(1));
        assert_eq!(percentile(&[1, 2, 3], 99), Some(3));
    }

    #[test]
    fn median_ignores_extremes() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 2.0]), Some(3.0));
        assert_eq!(median(Vec::new()), None);
    }

    fn outcome(servers: &[(&str, Vec<Sample>)]) -> Outcome {
        let servers = servers.iter().map(|(server, samples)| ServerSamples {
            server: (*server).to_owned(),
            samples: samples.clone(),
        });
        Outcome {
            workload: "get",
            title: "reads".to_owned(),
            mode: Mode::default(),
            unit: "get",
            clients: 1,
            measure: Measure::Rate,
            servers: servers.collect(),
        }
    }

    #[test]
    fn table_has_both_servers_and_their_ratio() {
        let peer = vec![sample(vec![1000; 100], 10), sample(vec![4000; 100], 10)];
        let own = vec![sample(vec![500; 200], 10), sample(vec![1000; 200], 10)];
        let table = outcome(&[("etcd 3", peer), ("portunus 0", own)]).table();
        let expected = "\
reads
                      gets/s        p50        p99    CPU/get  client CPU/get     memory       peak  written/get
  etcd 3                  50    2.50 ms    2.50 ms   100.0 us          0.0 us      3 MiB      6 MiB        819 B
  portunus 0             100   750.0 us   750.0 us    50.0 us          0.0 us      3 MiB      6 MiB        410 B
  portunus / etcd      2.00x      0.38x      0.38x      0.50x               -      1.00x      1.00x        0.50x
    over rounds    2.00-2.00  0.25-0.50  0.25-0.50  0.50-0.50               -  1.00-1.00  1.00-1.00    0.50-0.50
";
        assert_eq!(table, expected, "{table}");
    }

    #[test]
    fn table_of_durations_shows_times_and_transfer_memory() {
        let sending = |latencies_us, sender_extra_bytes| Sample {
            transfer: Some(Transfer {
                sender_resident_before_bytes: 100 << 20,
                sender_extra_bytes,
                receiver_peak_bytes: 50 << 20,
                receiver_resident_bytes: 25 << 20,
            }),
            ..sample(latencies_us, 10)
        };
        let peer = sending(vec![1_000_000, 4_000_000], 80 << 20);
        let own = sending(vec![500_000, 1_000_000], 20 << 20);
        let outcome = Outcome {
            measure: Measure::Duration,
            ..outcome(&[("etcd 3", vec![peer]), ("portunus 0", vec![own])])
        };
        let table = outcome.table();
        let expected = "\
reads
                   time, median      worst    CPU/get     memory  sender before  sender extra  receiver peak  receiver after
  etcd 3                 1.00 s     4.00 s    5.00 ms      3 MiB        100 MiB        80 MiB         50 MiB          25 MiB
  portunus 0          500.00 ms     1.00 s    5.00 ms      3 MiB        100 MiB        20 MiB         50 MiB          25 MiB
  portunus / etcd         0.50x      0.25x      1.00x      1.00x          1.00x         0.25x          1.00x           1.00x
    over rounds       0.50-0.50  0.25-0.25  1.00-1.00  1.00-1.00      1.00-1.00     0.25-0.25      1.00-1.00       1.00-1.00
";
        assert_eq!(table, expected, "{table}");
    }

    #[test]
    fn table_of_one_server_has_no_ratio() {
        let table = outcome(&[("portunus 0", vec![sample(vec![1], 1)])]).table();
        assert!(!table.contains("portunus / etcd"), "{table}");
    }

    #[test]
    fn failed_requests_are_reported_in_the_table() {
        let mut failing = sample(vec![1], 1);
        failing.failures = 3;
        failing.first_failure = Some("Unavailable: gone".to_owned());
        let table = outcome(&[("portunus 0", vec![failing])]).table();
        assert!(
            table.contains("3 requests to portunus 0 FAILED, the first with: Unavailable: gone"),
            "{table}"
        );
    }
}
