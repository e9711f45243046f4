//! Durations of requests by operation: from the proposal to the answer, and in apply alone.
//!
//! The series of an operation is looked up once and kept, so that measuring costs no lookup and
//! no allocation. An operation that never occurred has no series, as in etcd.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, Registry, exponential_buckets};

use super::MetricsError;

pub use portunus_statemachine::Operation;

/// The API version, which is a label of etcd's apply durations.
const API_VERSION: &str = "v3";

/// One family, and its series by operation and success.
struct Durations {
    family: HistogramVec,
    /// The first label, if the family has one besides operation and success.
    version: Option<&'static str>,
    series: [[OnceLock<Histogram>; 2]; Operation::COUNT],
}

impl Durations {
    fn register(
        registry: &Registry,
        options: HistogramOpts,
        operation_label: &str,
        version: Option<&'static str>,
    ) -> Result<Durations, MetricsError> {
        let labels = version.map(|_| "version");
        let labels: Vec<&str> = labels
            .into_iter()
            .chain([operation_label, "success"])
            .collect();
        let family = HistogramVec::new(options, &labels)?;
        registry.register(Box::new(family.clone()))?;
        Ok(Durations {
            family,
            version,
            series: std::array::from_fn(|_| [OnceLock::new(), OnceLock::new()]),
        })
    }

    fn observe(&self, operation: Operation, is_success: bool, took: Duration) {
        let series = &self.series[operation as usize][usize::from(is_success)];
        let series = series.get_or_init(|| {
            let success = if is_success { "true" } else { "false" };
            let labels = self.version.into_iter();
            let labels: Vec<&str> = labels.chain([operation.name(), success]).collect();
            self.family.with_label_values(&labels)
        });
        series.observe(took.as_secs_f64());
    }
}

/// The durations of requests.
pub struct OperationMetrics {
    requests: Durations,
    applies: Durations,
    /// By success.
    ranges: [Histogram; 2],
}

impl OperationMetrics {
    pub(super) fn register(registry: &Registry) -> Result<OperationMetrics, MetricsError> {
        let applying = || exponential_buckets(0.0001, 2.0, 20);
        let ranges = HistogramVec::new(
            HistogramOpts::new(
                "etcd_server_range_duration_seconds",
                "Time to collect what a range asks for.",
            )
            .buckets(applying()?),
            &["success"],
        )?;
        registry.register(Box::new(ranges.clone()))?;
        Ok(OperationMetrics {
            requests: Durations::register(
                registry,
                HistogramOpts::new(
                    "etcd_server_request_duration_seconds",
                    "Time from taking a request to its answer.",
                )
                .buckets(exponential_buckets(0.001, 2.0, 14)?),
                "type",
                None,
            )?,
            applies: Durations::register(
                registry,
                HistogramOpts::new(
                    "etcd_server_apply_duration_seconds",
                    "Time to apply an entry of the log.",
                )
                .buckets(applying()?),
                "op",
                Some(API_VERSION),
            )?,
            ranges: ["false", "true"].map(|success| ranges.with_label_values(&[success])),
        })
    }

    /// Records an answered request.
    pub fn answered(&self, operation: Operation, is_success: bool, took: Duration) {
        self.requests.observe(operation, is_success, took);
    }

    /// Records an entry that was applied, or refused by apply.
    pub fn applied(&self, operation: Operation, is_success: bool, took: Duration) {
        self.applies.observe(operation, is_success, took);
    }

    /// Records a collected range.
    pub fn ranged(&self, is_success: bool, took: Duration) {
        self.ranges[usize::from(is_success)].observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_proto::etcdserverpb::{InternalRaftRequest, PutRequest, TxnRequest};

    #[test]
    fn operation_has_a_series_after_its_first_request() {
        let registry = Registry::new();
        let metrics = OperationMetrics::register(&registry).unwrap();
        let put = InternalRaftRequest {
            put: Some(PutRequest::default()),
            ..InternalRaftRequest::default()
        };
        let txn = InternalRaftRequest {
            txn: Some(TxnRequest::default()),
            ..InternalRaftRequest::default()
        };
        for _ in 0..2 {
            metrics.applied(Operation::of(&put), true, Duration::from_millis(1));
        }
        metrics.applied(Operation::of(&txn), false, Duration::from_millis(1));
        metrics.answered(Operation::of(&put), true, Duration::from_millis(1));
        let families = registry.gather();
        let series = |name: &str| -> Vec<(Vec<String>, u64)> {
            let family = families.iter().find(|family| family.name() == name);
            let metrics = family.unwrap().get_metric().iter();
            metrics
                .map(|metric| {
                    let labels = metric.get_label().iter();
                    let labels = labels.map(|label| label.value().to_owned()).collect();
                    (labels, metric.get_histogram().get_sample_count())
                })
                .collect()
        };
        let text = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
        // Labels come in the order of their names: op, success, version.
        assert_eq!(
            series("etcd_server_apply_duration_seconds"),
            [
                (text(&["Put", "true", "v3"]), 2),
                (text(&["Txn", "false", "v3"]), 1)
            ]
        );
        assert_eq!(
            series("etcd_server_request_duration_seconds"),
            [(text(&["true", "Put"]), 1)]
        );
    }
}
