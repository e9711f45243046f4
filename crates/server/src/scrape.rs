//! Sets the gauges that describe the member's present state, at each scrape of the metrics.

use portunus_gates::cluster::MemberId;
use portunus_gates::{CLUSTER_FEATURE_ENABLED, Sample, feature_samples, version_sample};
use portunus_statemachine::params::members;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;

use crate::member::Member;
use crate::metrics::{ClusterGateMetrics, Gauges, MetricsError};

/// Renders all metrics of a member in the text format of Prometheus.
pub fn render(member: &Member) -> Result<Vec<u8>, MetricsError> {
    let metrics = &member.process.metrics;
    set_gauges(&metrics.gauges, member);
    set_cluster_gauges(&metrics.cluster_gates, member);
    metrics.encode()
}

/// Sets every gauge from the member's present state.
fn set_gauges(gauges: &Gauges, member: &Member) {
    let int = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let raft = member.consensus.status();
    let own = member.cluster.own_id();
    gauges
        .has_leader
        .set(i64::from(raft.leader != MemberId::NONE));
    gauges.is_leader.set(i64::from(raft.leader == own));
    gauges.is_learner.set(i64::from(raft.is_learner));
    gauges.proposals_committed.set(int(raft.commit));
    gauges
        .proposals_applied
        .set(int(member.store.applied.index().0));
    gauges
        .quota_bytes
        .set(member.process.config.quota_bytes.map_or(0, int));
    let sizes = member.store.reader().sizes();
    gauges.total_bytes.set(int(sizes.total_bytes));
    gauges.in_use_bytes.set(int(sizes.in_use_bytes));
    gauges
        .current_revision
        .set(member.store.reader().revision());
    gauges
        .compact_revision
        .set(member.store.reader().compact_revision());
    gauges.keys.set(int(member.store.reader().key_count()));
    gauges.known_peers.reset();
    for record in member.cluster.membership().iter() {
        let ids = [own.to_string(), format!("{:x}", record.id)];
        gauges.known_peers.with_label_values(&ids).set(1);
    }
    set_open_files(gauges);
    let hub = member.watches.lock().stats();
    gauges.watchers.set(int(hub.watchers as u64));
    gauges.watch_streams.set(int(hub.streams as u64));
    gauges
        .slow_watchers
        .set(int((hub.slow + hub.catching_up) as u64));
    for (limit, refused) in [
        ("max-watches-per-stream", hub.refused_per_stream),
        ("max-watches-per-connection", hub.refused_per_connection),
    ] {
        let gauge = gauges.watches_refused.with_label_values(&[limit]);
        gauge.set(int(refused));
    }
    gauges.wal_syncs.set(int(raft.wal_syncs));
    gauges
        .id
        .with_label_values(&[own.to_string().as_str()])
        .set(1);
    let version = portunus_features::version::version_text(&member.process.config.version);
    gauges.version.with_label_values(&[version.as_str()]).set(1);
    gauges.cluster_version.reset();
    if let Some(version) = member.cluster.membership().cluster_version {
        gauges
            .cluster_version
            .with_label_values(&[version.to_string().as_str()])
            .set(1);
    }
    gauges.features.reset();
    for sample in member
        .process
        .gates
        .samples(portunus_gates::SERVER_FEATURE_ENABLED)
    {
        set_feature(gauges, &sample);
    }
    gauges.alarms.reset();
    for alarm in member
        .cluster
        .alarms()
        .list(portunus_proto::etcdserverpb::AlarmType::None as i32)
    {
        let kind = portunus_proto::etcdserverpb::AlarmType::try_from(alarm.alarm);
        let kind = kind.map_or("NONE", |kind| kind.as_str_name());
        let id = format!("{:x}", alarm.member_id);
        gauges.alarms.with_label_values(&[id.as_str(), kind]).set(1);
    }
}

/// Copies open files from the process collector to etcd's additional names.
fn set_open_files(gauges: &Gauges) {
    for family in ProcessCollector::for_self().collect() {
        let gauge = match family.name() {
            "process_open_fds" => &gauges.open_files,
            "process_max_fds" => &gauges.open_files_max,
            _ => continue,
        };
        let value = family
            .get_metric()
            .first()
            .map(|it| it.get_gauge().get_value());
        gauge.set(value.unwrap_or(0.0) as i64);
    }
}

fn set_feature(gauges: &Gauges, sample: &Sample) {
    let values: Vec<&str> = sample
        .labels
        .iter()
        .map(|(_, value)| value.as_str())
        .collect();
    gauges
        .features
        .with_label_values(&values)
        .set(i64::from(sample.value));
}

/// Sets all series again, so that no series of an old stage or member is left.
fn set_cluster_gauges(metrics: &ClusterGateMetrics, member: &Member) {
    metrics.enabled.reset();
    metrics.proposals.reset();
    metrics.versions.reset();
    let version = version_sample("portunus", &member.process.config.version);
    let labels: Vec<&str> = version
        .labels
        .iter()
        .map(|(_, text)| text.as_str())
        .collect();
    metrics.versions.with_label_values(&labels).set(1);
    let gates = &member.cluster.gates;
    let membership = member.cluster.membership();
    let is_in_use = gates.is_in_use(&membership);
    let Some(cluster_version) = membership.cluster_version.filter(|_| is_in_use) else {
        return;
    };
    let decision = gates.decide(&membership, cluster_version);
    let in_force = gates.in_force(&membership);
    let statuses = gates
        .specs()
        .statuses(in_force, &decision, &members(&membership));
    for sample in feature_samples(CLUSTER_FEATURE_ENABLED, &statuses) {
        let labels: Vec<&str> = sample
            .labels
            .iter()
            .map(|(_, text)| text.as_str())
            .collect();
        metrics
            .enabled
            .with_label_values(&labels)
            .set(i64::from(sample.value));
    }
    for record in membership.iter() {
        let flags = record.proposal.iter().flat_map(|proposal| &proposal.flags);
        for (name, value) in flags {
            let id = format!("{:x}", record.id);
            metrics
                .proposals
                .with_label_values(&[id.as_str(), name.as_str()])
                .set(i64::from(*value));
        }
    }
}
