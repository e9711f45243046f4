//! What is counted, under the names of Kubernetes.
//!
//! Labels never contain text of a client: a request for a group, version or resource that is not
//! served has empty labels, so that clients cannot create series.

use std::time::Duration;

use http::StatusCode;
use portunus_gates::Sample;
use prometheus::core::Collector;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::request::RequestInfo;

/// The media type of the metrics.
pub const METRICS_MEDIA_TYPE: &str = prometheus::TEXT_FORMAT;

const COMPONENT: &str = "apiserver";
const REQUEST_LABELS: [&str; 8] = [
    "verb",
    "dry_run",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
];
const RESOURCE_LABELS: [&str; 3] = ["group", "version", "resource"];
/// The bounds of the durations, in seconds, as in kube-apiserver.
const DURATION_BUCKETS_S: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// The metrics of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    in_flight: IntGaugeVec,
    long_running: IntGaugeVec,
    watch_events: IntCounterVec,
    deprecated: IntGaugeVec,
    storage_objects: IntGaugeVec,
    version_info: IntGaugeVec,
    features: IntGaugeVec,
    /// Requests whose front-proxy headers were removed because their connection is no front
    /// proxy's.
    pub untrusted_front_proxy_headers: IntCounter,
    /// Open connections.
    pub connections: IntGauge,
    /// Connections refused at the limit.
    pub connections_refused: IntCounter,
    /// Failed handshakes of TLS.
    pub handshake_errors: IntCounter,
}

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub struct RequestRecord<'request> {
    /// What was asked for.
    pub info: &'request RequestInfo,
    /// Whether the server serves the group, version, resource and subresource.
    pub is_known: bool,
    /// Whether the request changes nothing although it is a write.
    pub dry_run: bool,
    /// The answer.
    pub code: StatusCode,
    /// From the first byte of the request to the head of the answer.
    pub elapsed: Duration,
}

/// Counts a long-running request until it is dropped.
#[derive(Debug)]
pub struct LongRunning {
    gauge: IntGauge,
}

impl Drop for LongRunning {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Creates metrics without values.
    #[must_use]
    pub fn new() -> Metrics {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        {
            let process = prometheus::process_collector::ProcessCollector::for_self();
            register(&registry, process);
        }
        let with_code: Vec<&str> = REQUEST_LABELS.iter().copied().chain(["code"]).collect();
        let deprecated = [
            "group",
            "version",
            "resource",
            "subresource",
            "removed_release",
        ];
        let not_dry: Vec<&str> = REQUEST_LABELS
            .iter()
            .copied()
            .filter(|label| *label != "dry_run")
            .collect();
        let versions = ["component", "binary", "emulation", "min_compat"];
        Metrics {
            requests: counters(
                &registry,
                "apiserver_request_total",
                "Requests by verb, resource and code.",
                &with_code,
            ),
            durations: durations(&registry),
            in_flight: gauges(
                &registry,
                "apiserver_current_inflight_requests",
                "Requests in flight by kind, without long-running ones.",
                &["request_kind"],
            ),
            long_running: gauges(
                &registry,
                "apiserver_longrunning_requests",
                "Long-running requests, such as watches.",
                &not_dry,
            ),
            watch_events: counters(
                &registry,
                "apiserver_watch_events_total",
                "Events sent to watches.",
                &RESOURCE_LABELS,
            ),
            deprecated: gauges(
                &registry,
                "apiserver_requested_deprecated_apis",
                "Deprecated APIs that were requested.",
                &deprecated,
            ),
            storage_objects: gauges(
                &registry,
                "apiserver_storage_objects",
                "Objects in the store at the last count.",
                &["resource"],
            ),
            version_info: gauges(
                &registry,
                portunus_gates::VERSION_INFO,
                "Versions of each component.",
                &versions,
            ),
            features: gauges(
                &registry,
                portunus_gates::KUBERNETES_FEATURE_ENABLED,
                "Whether a feature gate is on.",
                &["name", "stage"],
            ),
            untrusted_front_proxy_headers: counter(
                &registry,
                "apiserver_untrusted_front_proxy_headers_total",
                "Requests whose front-proxy headers were removed.",
            ),
            connections: registered(
                &registry,
                IntGauge::new("apiserver_connections", "Open connections."),
            ),
            connections_refused: counter(
                &registry,
                "apiserver_connections_refused_total",
                "Connections refused at the limit.",
            ),
            handshake_errors: counter(
                &registry,
                "apiserver_tls_handshake_errors_total",
                "Failed handshakes of TLS.",
            ),
            registry,
        }
    }

    /// Counts an answered request.
    pub fn record(&self, record: RequestRecord<'_>) {
        let labels = RequestLabels::of(record.info, record.is_known);
        let dry_run = match record.dry_run {
            true => "All",
            false => "",
        };
        let code = record.code;
        let labels = [
            labels.verb,
            dry_run,
            labels.group,
            labels.version,
            labels.resource,
            labels.subresource,
            labels.scope,
            COMPONENT,
            code.as_str(),
        ];
        self.requests.with_label_values(&labels).inc();
        let durations = self.durations.with_label_values(&labels[..8]);
        durations.observe(record.elapsed.as_secs_f64());
    }

    /// Counts a long-running request until the returned value is dropped.
    #[must_use]
    pub fn long_running(&self, info: &RequestInfo, is_known: bool) -> LongRunning {
        let labels = RequestLabels::of(info, is_known);
        let gauge = self.long_running.with_label_values(&[
            labels.verb,
            labels.group,
            labels.version,
            labels.resource,
            labels.subresource,
            labels.scope,
            COMPONENT,
        ]);
        gauge.inc();
        LongRunning { gauge }
    }

    /// Returns the counter of events sent to watches of a served resource.
    #[must_use]
    pub fn watch_events(&self, group: &str, version: &str, resource: &str) -> IntCounter {
        let labels = [group, version, resource];
        self.watch_events.with_label_values(&labels)
    }

    /// Records a request for a deprecated API that is served. `removed` is the release that does
    /// not serve it any more; empty if none is known.
    pub fn requested_deprecated(&self, info: &RequestInfo, removed: &str) {
        let labels = [
            &*info.group,
            &*info.version,
            &*info.resource,
            &*info.subresource,
            removed,
        ];
        self.deprecated.with_label_values(&labels).set(1);
    }

    /// Records the number of stored objects of a served resource, such as `things.example.io`.
    pub fn set_storage_objects(&self, resource: &str, count: i64) {
        let gauge = self.storage_objects.with_label_values(&[resource]);
        gauge.set(count);
    }

    /// Replaces the versions and feature gates.
    pub fn set_samples(&self, samples: &[Sample]) {
        self.version_info.reset();
        self.features.reset();
        for sample in samples {
            let gauges = match sample.metric {
                portunus_gates::VERSION_INFO => &self.version_info,
                _ => &self.features,
            };
            let values: Vec<&str> = sample.labels.iter().map(|(_, value)| &**value).collect();
            if let Ok(gauge) = gauges.get_metric_with_label_values(&values) {
                gauge.set(i64::from(sample.value));
            }
        }
    }

    /// Returns the gauge of reads in flight.
    #[must_use]
    pub fn in_flight_reads(&self) -> IntGauge {
        self.in_flight.with_label_values(&["readOnly"])
    }

    /// Returns the gauge of writes in flight.
    #[must_use]
    pub fn in_flight_writes(&self) -> IntGauge {
        self.in_flight.with_label_values(&["mutating"])
    }

    /// Returns all metrics as text of [`METRICS_MEDIA_TYPE`].
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        // A `Vec` takes every byte, and names and labels are valid.
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "encoding metrics failed");
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The labels of a request, which never contain text of a client.
struct RequestLabels<'request> {
    verb: &'static str,
    group: &'request str,
    version: &'request str,
    resource: &'request str,
    subresource: &'request str,
    scope: &'static str,
}

impl<'request> RequestLabels<'request> {
    fn of(info: &'request RequestInfo, is_known: bool) -> RequestLabels<'request> {
        let known = |text: &'request str| if is_known { text } else { "" };
        let is_resource = is_known && info.is_resource;
        RequestLabels {
            verb: verb(info.verb),
            group: known(&info.group),
            version: known(&info.version),
            resource: known(&info.resource),
            subresource: known(&info.subresource),
            scope: match is_resource {
                false => "",
                true if !info.name.is_empty() || info.verb == "create" => "resource",
                true if !info.namespace.is_empty() => "namespace",
                true => "cluster",
            },
        }
    }
}

/// Returns a verb as metrics name it: by its method where there is one.
fn verb(verb: &str) -> &'static str {
    match verb {
        "get" | "head" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "OTHER",
    }
}

/// Registers a metric whose name and labels are constants.
fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: prometheus::Result<C>,
) -> C {
    // Names and labels are constants, which every test of this file registers: it cannot fail.
    #[allow(clippy::expect_used)]
    let metric = metric.expect("the name and labels of a metric are valid");
    register(registry, metric.clone());
    metric
}

fn register(registry: &Registry, metric: impl Collector + 'static) {
    if let Err(error) = registry.register(Box::new(metric)) {
        tracing::error!(%error, "registering a metric failed");
    }
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    registered(registry, IntCounter::new(name, help))
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

fn durations(registry: &Registry) -> HistogramVec {
    let help = "Duration of requests in seconds.";
    let options = HistogramOpts::new("apiserver_request_duration_seconds", help);
    let options = options.buckets(DURATION_BUCKETS_S.to_vec());
    registered(registry, HistogramVec::new(options, &REQUEST_LABELS))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use portunus_gates::{KUBERNETES_FEATURE_ENABLED, version_sample};

    use super::*;
    use crate::request::Query;

    fn record(metrics: &Metrics, method: &Method, path: &str, is_known: bool) {
        metrics.record(RequestRecord {
            info: &RequestInfo::parse(method, path, &Query::default()).unwrap(),
            is_known,
            dry_run: false,
            code: StatusCode::OK,
            elapsed: Duration::from_millis(30),
        });
    }

    #[test]
    fn requests_are_counted_under_the_names_of_kubernetes() {
        let metrics = Metrics::new();
        record(
            &metrics,
            &Method::GET,
            "/apis/g/v1/namespaces/n/things",
            true,
        );
        record(&metrics, &Method::PUT, "/apis/g/v1/things/a/status", true);
        let text = metrics.render();
        let list = "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",\
                    group=\"g\",resource=\"things\",scope=\"namespace\",subresource=\"\",\
                    verb=\"LIST\",version=\"v1\"} 1";
        assert!(text.contains(list), "{text}");
        let status = "subresource=\"status\",verb=\"PUT\",version=\"v1\",le=\"0.025\"} 0";
        assert!(text.contains(status), "{text}");
    }

    #[test]
    fn unknown_resources_create_no_series() {
        let metrics = Metrics::new();
        for number in 0..100 {
            let path = format!("/apis/g{number}/v{number}/things{number}/x/sub{number}");
            record(&metrics, &Method::GET, &path, false);
            record(&metrics, &Method::GET, &format!("/unknown/{number}"), false);
        }
        let text = metrics.render();
        let series = text
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total"));
        assert_eq!(series.count(), 1, "{text}");
    }

    #[test]
    fn samples_replace_earlier_ones() {
        let metrics = Metrics::new();
        let versions = crate::version::kube_version().unwrap();
        let feature = |name: &str| Sample {
            metric: KUBERNETES_FEATURE_ENABLED,
            labels: vec![("name", name.to_owned()), ("stage", "ALPHA".to_owned())],
            value: 1,
        };
        metrics.set_samples(&[version_sample("kube", &versions), feature("Old")]);
        metrics.set_samples(&[version_sample("kube", &versions), feature("New")]);
        let text = metrics.render();
        assert!(text.contains("kubernetes_feature_enabled{name=\"New\",stage=\"ALPHA\"} 1"));
        assert!(!text.contains("Old"), "{text}");
        assert!(
            text.contains("emulation=\"1.37\",min_compat=\"1.36\"} 1"),
            "{text}"
        );
    }

    #[test]
    fn long_running_requests_count_until_they_end() {
        let metrics = Metrics::new();
        let query = Query::parse("watch=1");
        let info = RequestInfo::parse(&Method::GET, "/apis/g/v1/things", &query).unwrap();
        let watch = metrics.long_running(&info, true);
        let open = |metrics: &Metrics| {
            let text = metrics.render();
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("apiserver_longrunning_requests{"));
            line.unwrap().ends_with(" 1")
        };
        assert!(open(&metrics));
        drop(watch);
        assert!(!open(&metrics));
    }
}
