//! One line of JSON per workload, for programs that track ratios over time.

use serde::Serialize;

use crate::mode::Mode;
use crate::report::{Measure, Outcome, Sample, ServerSamples, median, ratios};

/// The figures of a workload. Ratios are Portunus' figure divided by etcd's, the median of all
/// rounds; absent without etcd or without the figure.
#[derive(Debug, Serialize)]
pub struct Line {
    /// Name of the workload.
    pub op: &'static str,
    /// The mode of both servers.
    #[serde(flatten)]
    pub mode: Mode,
    /// Number of clients, each with one request in flight.
    pub clients: usize,
    /// The counted unit, per second.
    pub unit: String,
    /// Operations per second of Portunus; for a duration, such as a restart, its reciprocal.
    pub portunus: Option<f64>,
    /// Operations per second of etcd.
    pub etcd: Option<f64>,
    /// Ratio of operations per second: above 1, Portunus is faster.
    pub ratio: Option<f64>,
    /// Smallest ratio of all rounds.
    pub ratio_min: Option<f64>,
    /// Largest ratio of all rounds.
    pub ratio_max: Option<f64>,
    /// Ratio of CPU time per operation: below 1, Portunus is cheaper.
    pub cpu_ratio: Option<f64>,
    /// Ratio of resident memory at the end.
    pub rss_ratio: Option<f64>,
    /// Ratio of peak resident memory.
    pub peak_rss_ratio: Option<f64>,
    /// Ratio of the median latency; for a restart, of its time.
    pub p50_ratio: Option<f64>,
    /// Ratio of the 99th percentile of latency.
    pub p99_ratio: Option<f64>,
    /// Ratio of bytes written to the disk per operation.
    pub write_bytes_ratio: Option<f64>,
    /// For durations, ratio of the median: below 1, Portunus is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ratio: Option<f64>,
    /// For durations, ratio of the longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_time_ratio: Option<f64>,
    /// Portunus' figures.
    pub portunus_detail: Detail,
    /// etcd's figures.
    pub etcd_detail: Option<Detail>,
    /// Failed requests. If there are any, the figures are not valid.
    pub failures: u64,
}

/// The figures of one server, each the median of all rounds.
#[derive(Debug, Serialize)]
pub struct Detail {
    /// Name and version.
    pub server: String,
    /// Median latency; for a restart, its time.
    pub p50_us: Option<f64>,
    /// 99th percentile of latency.
    pub p99_us: Option<f64>,
    /// CPU time of the server per operation.
    pub cpu_us: Option<f64>,
    /// CPU time of the client per operation.
    pub client_cpu_us: Option<f64>,
    /// Resident memory at the end.
    pub rss_bytes: Option<f64>,
    /// Peak resident memory.
    pub peak_rss_bytes: Option<f64>,
    /// Bytes written to the disk per operation.
    pub write_bytes: Option<f64>,
    /// For durations, the longest of all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_us: Option<f64>,
    /// The largest growth of the memory of a snapshot's sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_extra_rss_bytes: Option<f64>,
    /// Peak resident memory of a snapshot's receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_peak_rss_bytes: Option<f64>,
}

type Figure = fn(&Sample) -> Option<f64>;

const PER_SECOND: Figure = |sample| Some(sample.per_second);
const P50: Figure = |sample| sample.p50_us.map(f64::from);
const P99: Figure = |sample| sample.p99_us.map(f64::from);
const CPU: Figure = |sample| sample.server_cpu_us_per_operation;
const CLIENT_CPU: Figure = |sample| sample.client_cpu_us_per_operation;
const RESIDENT: Figure = |sample| Some(sample.resident_bytes as f64);
const PEAK: Figure = |sample| Some(sample.peak_resident_bytes as f64);
const WRITTEN: Figure = |sample| sample.written_bytes_per_operation;
const WORST: Figure = |sample| sample.worst_us.map(f64::from);
const SENDER_EXTRA: Figure = |sample| Some(sample.transfer?.sender_extra_bytes as f64);
const RECEIVER_PEAK: Figure = |sample| Some(sample.transfer?.receiver_peak_bytes as f64);

impl Line {
    /// Computes the figures of all rounds; `None` if no server was measured.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Option<Line> {
        let (portunus, peer) = match outcome.servers.as_slice() {
            [peer, portunus] => (portunus, Some(peer)),
            [portunus] => (portunus, None),
            _ => return None,
        };
        let all = |figure| peer.map_or(Vec::new(), |peer| ratios(peer, portunus, figure));
        let middle = |figure| median(all(figure));
        let duration = |ratio| (outcome.measure == Measure::Duration).then_some(ratio)?;
        let samples = outcome.servers.iter().flat_map(|server| &server.samples);
        Some(Line {
            op: outcome.workload,
            mode: outcome.mode,
            clients: outcome.clients,
            unit: format!("{}s/s", outcome.unit),
            portunus: middle_of(portunus, PER_SECOND),
            etcd: peer.and_then(|peer| middle_of(peer, PER_SECOND)),
            ratio: middle(PER_SECOND),
            ratio_min: all(PER_SECOND).into_iter().reduce(f64::min),
            ratio_max: all(PER_SECOND).into_iter().reduce(f64::max),
            cpu_ratio: middle(CPU),
            rss_ratio: middle(RESIDENT),
            peak_rss_ratio: middle(PEAK),
            p50_ratio: middle(P50),
            p99_ratio: middle(P99),
            write_bytes_ratio: middle(WRITTEN),
            time_ratio: duration(middle(P50)),
            worst_time_ratio: duration(peer.and_then(|peer| {
                let (peer, portunus) = (worst_of(peer)?, worst_of(portunus)?);
                Some(portunus / peer)
            })),
            portunus_detail: Detail::of(portunus, outcome.measure),
            etcd_detail: peer.map(|peer| Detail::of(peer, outcome.measure)),
            failures: samples.map(|sample| sample.failures).sum(),
        })
    }
}

impl Detail {
    fn of(server: &ServerSamples, measure: Measure) -> Detail {
        Detail {
            server: server.server.clone(),
            p50_us: middle_of(server, P50),
            p99_us: middle_of(server, P99),
            cpu_us: middle_of(server, CPU),
            client_cpu_us: middle_of(server, CLIENT_CPU),
            rss_bytes: middle_of(server, RESIDENT),
            peak_rss_bytes: middle_of(server, PEAK),
            write_bytes: middle_of(server, WRITTEN),
            worst_us: match measure {
                Measure::Rate => None,
                Measure::Duration => worst_of(server),
            },
            sender_extra_rss_bytes: middle_of(server, SENDER_EXTRA),
            receiver_peak_rss_bytes: middle_of(server, RECEIVER_PEAK),
        }
    }
}

/// Returns the longest time of all rounds.
fn worst_of(server: &ServerSamples) -> Option<f64> {
    let worst = server.samples.iter().filter_map(WORST);
    worst.reduce(f64::max)
}

fn middle_of(server: &ServerSamples, figure: Figure) -> Option<f64> {
    median(server.samples.iter().filter_map(figure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(per_second: f64, cpu_us: f64) -> Sample {
        Sample {
            operations: 1,
            per_second,
            p50_us: Some(10),
            p99_us: None,
            worst_us: Some(40),
            server_cpu_us_per_operation: Some(cpu_us),
            client_cpu_us_per_operation: None,
            resident_bytes: 100,
            peak_resident_bytes: 200,
            written_bytes_per_operation: None,
            failures: 0,
            first_failure: None,
            transfer: None,
        }
    }

    fn outcome(servers: Vec<ServerSamples>) -> Outcome {
        Outcome {
            workload: "get",
            title: "reads".to_owned(),
            mode: Mode::default(),
            unit: "get",
            clients: 100,
            measure: Measure::Rate,
            servers,
        }
    }

    fn samples(server: &str, samples: Vec<Sample>) -> ServerSamples {
        ServerSamples {
            server: server.to_owned(),
            samples,
        }
    }

    #[test]
    fn line_has_the_median_ratio_and_its_spread() {
        let peer = samples("etcd 3", vec![sample(10.0, 8.0), sample(20.0, 8.0)]);
        let own = samples("portunus 0", vec![sample(20.0, 4.0), sample(60.0, 4.0)]);
        let line = Line::of(&outcome(vec![peer, own])).unwrap();
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json["op"], "get");
        assert_eq!(
            (&json["auth"], &json["tls"]),
            (&false.into(), &false.into())
        );
        assert_eq!(json["clients"], 100);
        assert_eq!(json["unit"], "gets/s");
        assert_eq!(
            (json["etcd"].as_f64(), json["portunus"].as_f64()),
            (Some(15.0), Some(40.0))
        );
        assert_eq!(json["ratio"], 2.5);
        assert_eq!(
            (&json["ratio_min"], &json["ratio_max"]),
            (&2.0.into(), &3.0.into())
        );
        assert_eq!(json["cpu_ratio"], 0.5);
        assert_eq!(json["rss_ratio"], 1.0);
        assert!(json["p99_ratio"].is_null() && json["write_bytes_ratio"].is_null());
    }

    #[test]
    fn only_durations_have_time_ratios() {
        let worse = Sample {
            worst_us: Some(80),
            ..sample(10.0, 8.0)
        };
        let peer = samples("etcd 3", vec![sample(10.0, 8.0), worse]);
        let own = samples("portunus 0", vec![sample(20.0, 4.0), sample(60.0, 4.0)]);
        let mut outcome = outcome(vec![peer, own]);
        let rate = serde_json::to_value(Line::of(&outcome).unwrap()).unwrap();
        assert!(rate.get("time_ratio").is_none());
        assert!(rate["etcd_detail"].get("worst_us").is_none());
        outcome.measure = Measure::Duration;
        let duration = serde_json::to_value(Line::of(&outcome).unwrap()).unwrap();
        assert_eq!(duration["time_ratio"], 1.0);
        assert_eq!(duration["worst_time_ratio"], 0.5);
        assert_eq!(duration["etcd_detail"]["worst_us"], 80.0);
    }

    #[test]
    fn line_without_etcd_has_no_ratio() {
        let own = samples("portunus 0", vec![sample(20.0, 4.0)]);
        let line = Line::of(&outcome(vec![own])).unwrap();
        assert_eq!(
            (line.portunus, line.etcd, line.ratio),
            (Some(20.0), None, None)
        );
    }
}
