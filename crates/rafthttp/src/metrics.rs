//! The metrics of the transport, with etcd's names.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, exponential_buckets,
};

/// Label of senders that are not peers, so that requests cannot create arbitrary series.
pub(crate) const UNKNOWN: &str = "unknown";

/// The metric families.
pub(crate) struct Metrics {
    active_peers: IntGaugeVec,
    disconnected_peers: IntCounterVec,
    sent_bytes: IntCounterVec,
    received_bytes: IntCounterVec,
    sent_failures: IntCounterVec,
    received_failures: IntCounterVec,
    round_trip_seconds: HistogramVec,
    snapshot_send: SnapshotFamilies,
    snapshot_receive: SnapshotFamilies,
}

struct SnapshotFamilies {
    success: IntCounterVec,
    inflights: IntGaugeVec,
    failures: IntCounterVec,
    seconds: HistogramVec,
}

/// The metrics of one peer.
pub(crate) struct PeerMetrics {
    pub active: IntGauge,
    pub disconnected: IntCounter,
    pub sent_bytes: IntCounter,
    pub received_bytes: IntCounter,
    pub sent_failures: IntCounter,
    pub received_failures: IntCounter,
    pub round_trip_seconds: Histogram,
    pub snapshot_send: SnapshotMetrics,
    pub snapshot_receive: SnapshotMetrics,
}

/// The snapshot metrics of one direction.
pub(crate) struct SnapshotMetrics {
    pub success: IntCounter,
    pub inflights: IntGauge,
    pub failures: IntCounter,
    pub seconds: Histogram,
}

impl Metrics {
    /// Registers every family.
    pub fn register(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let family = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone()))?;
            Ok::<_, prometheus::Error>(family)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone()))?;
            Ok::<_, prometheus::Error>(family)
        };
        let histogram = |name: &str, help: &str, label: &str, buckets: Vec<f64>| {
            let options = HistogramOpts::new(name, help).buckets(buckets);
            let family = HistogramVec::new(options, &[label])?;
            registry.register(Box::new(family.clone()))?;
            Ok::<_, prometheus::Error>(family)
        };
        let snapshots = |direction: &str, label: &str| {
            let name = |what: &str| format!("etcd_network_snapshot_{direction}_{what}");
            Ok::<_, prometheus::Error>(SnapshotFamilies {
                success: counter(
                    &name("success"),
                    "Number of successful snapshot transfers.",
                    &[label],
                )?,
                inflights: gauge(
                    &name("inflights_total"),
                    "Number of snapshot transfers in progress.",
                    &[label],
                )?,
                failures: counter(
                    &name("failures"),
                    "Number of failed snapshot transfers.",
                    &[label],
                )?,
                seconds: histogram(
                    &name("total_duration_seconds"),
                    "Duration of snapshot transfers.",
                    label,
                    exponential_buckets(0.1, 2.0, 10)?,
                )?,
            })
        };
        let both = &["Local", "Remote"];
        Ok(Metrics {
            active_peers: gauge("etcd_network_active_peers", "Number of active peers.", both)?,
            disconnected_peers: counter(
                "etcd_network_disconnected_peers_total",
                "Number of times a peer became inactive.",
                both,
            )?,
            sent_bytes: counter(
                "etcd_network_peer_sent_bytes_total",
                "Number of bytes sent to peers.",
                &["To"],
            )?,
            received_bytes: counter(
                "etcd_network_peer_received_bytes_total",
                "Number of bytes received from peers.",
                &["From"],
            )?,
            sent_failures: counter(
                "etcd_network_peer_sent_failures_total",
                "Number of send failures to peers.",
                &["To"],
            )?,
            received_failures: counter(
                "etcd_network_peer_received_failures_total",
                "Number of receive failures from peers.",
                &["From"],
            )?,
            round_trip_seconds: histogram(
                "etcd_network_peer_round_trip_time_seconds",
                "Round trip time to peers.",
                "To",
                exponential_buckets(0.0001, 2.0, 16)?,
            )?,
            snapshot_send: snapshots("send", "To")?,
            snapshot_receive: snapshots("receive", "From")?,
        })
    }

    /// Returns the metrics of one peer.
    pub fn peer(&self, local: &str, remote: &str) -> PeerMetrics {
        let both = &[local, remote];
        let one = &[remote];
        PeerMetrics {
            active: self.active_peers.with_label_values(both),
            disconnected: self.disconnected_peers.with_label_values(both),
            sent_bytes: self.sent_bytes.with_label_values(one),
            received_bytes: self.received_bytes.with_label_values(one),
            sent_failures: self.sent_failures.with_label_values(one),
            received_failures: self.received_failures.with_label_values(one),
            round_trip_seconds: self.round_trip_seconds.with_label_values(one),
            snapshot_send: self.snapshot_send.of(remote),
            snapshot_receive: self.snapshot_receive.of(remote),
        }
    }

    /// Returns the counter of bytes from senders that are not peers.
    pub fn received_bytes_of_unknown(&self) -> IntCounter {
        self.received_bytes.with_label_values(&[UNKNOWN])
    }

    /// Returns the counter of failures of senders that are not peers.
    pub fn received_failures_of_unknown(&self) -> IntCounter {
        self.received_failures.with_label_values(&[UNKNOWN])
    }

    /// Returns the metrics of snapshots from senders that are not peers.
    pub fn snapshots_of_unknown(&self) -> SnapshotMetrics {
        self.snapshot_receive.of(UNKNOWN)
    }
}

impl SnapshotFamilies {
    fn of(&self, peer: &str) -> SnapshotMetrics {
        let label = &[peer];
        SnapshotMetrics {
            success: self.success.with_label_values(label),
            inflights: self.inflights.with_label_values(label),
            failures: self.failures.with_label_values(label),
            seconds: self.seconds.with_label_values(label),
        }
    }
}
