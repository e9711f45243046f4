//! Plain HTTP on the client port, beside gRPC: probes, version, metrics.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Clients, Server, data_dir};
use portunus_proto::etcdserverpb::alarm_request::AlarmAction;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmType, CompactionRequest, DefragmentRequest, DeleteRangeRequest,
    HashKvRequest, HashRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
    SnapshotRequest, TxnRequest,
};

async fn set_alarm(clients: &mut Clients, action: AlarmAction, alarm: AlarmType) {
    let request = AlarmRequest {
        action: action as i32,
        member_id: 1,
        alarm: alarm as i32,
    };
    clients.maintenance.alarm(request).await.unwrap();
}

#[tokio::test]
async fn probes_of_a_healthy_member_succeed() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let verbose_ready = "[+]data_corruption ok\n[+]serializable_read ok\n\
                         [+]linearizable_read ok\n[+]non_learner ok\nok\n";
    for (path, status, body) in [
        ("/health", 200, r#"{"health":"true","reason":""}"#),
        (
            "/health?serializable=true",
            200,
            r#"{"health":"true","reason":""}"#,
        ),
        (
            "/health?exclude=NOSPACE&exclude=CORRUPT",
            200,
            r#"{"health":"true","reason":""}"#,
        ),
        ("/livez", 200, "ok\n"),
        ("/livez?verbose", 200, "[+]serializable_read ok\nok\n"),
        ("/livez/serializable_read", 200, "ok\n"),
        ("/livez/linearizable_read", 404, "404 page not found\n"),
        ("/readyz", 200, "ok\n"),
        ("/readyz?verbose", 200, verbose_ready),
        (
            "/readyz?verbose=true&exclude=non_learner&exclude=data_corruption",
            200,
            "[+]serializable_read ok\n[+]linearizable_read ok\nok\n",
        ),
        ("/readyz/data_corruption", 200, "ok\n"),
        ("/readyz/serializable_read", 200, "ok\n"),
        (
            "/readyz/linearizable_read?verbose",
            200,
            "[+]linearizable_read ok\nok\n",
        ),
        ("/readyz/non_learner", 200, "ok\n"),
        ("/readyz/no_such_check", 404, "404 page not found\n"),
        (
            "/version",
            200,
            r#"{"etcdserver":"3.8.0","etcdcluster":"3.8.0","storage":"3.8.0","major":"3","minor":"8","emulationMajor":"3","emulationMinor":"8","minCompatibilityMajor":"3","minCompatibilityMinor":"7","gitVersion":"v3.8.0","clusterParams":true}"#,
        ),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, &*answer.body), (status, body), "{path}");
    }
    let kind = "content-type: application/json";
    for path in ["/health", "/version"] {
        assert!(
            server.get(path).head.to_lowercase().contains(kind),
            "{path}"
        );
    }
    let metrics = server.get("/metrics").head.to_lowercase();
    assert!(
        metrics.contains("content-type: text/plain; version=0.0.4"),
        "{metrics}"
    );
}

/// An alarm makes `/health` fail unless it is excluded. Only corruption makes a member unready,
/// and no alarm makes `/livez` fail: a restart would not help.
#[tokio::test]
async fn probes_report_alarms() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    for (alarm, name, is_ready) in [
        (AlarmType::Nospace, "NOSPACE", true),
        (AlarmType::Corrupt, "CORRUPT", false),
    ] {
        set_alarm(&mut clients, AlarmAction::Activate, alarm).await;
        let health = server.get("/health");
        assert_eq!(health.status, 503);
        assert_eq!(
            health.body,
            format!(r#"{{"health":"false","reason":"ALARM {name}"}}"#)
        );
        assert_eq!(server.get(&format!("/health?exclude={name}")).status, 200);
        assert_eq!(server.get("/health?exclude=OTHER").status, 503);
        assert_eq!(server.get("/livez").status, 200);
        let ready = server.get("/readyz");
        if is_ready {
            assert_eq!(ready.status, 200);
        } else {
            assert_eq!(ready.status, 503);
            assert!(
                ready.body.contains("[-]data_corruption failed: "),
                "{}",
                ready.body
            );
            assert_eq!(server.get("/readyz/data_corruption").status, 503);
            assert_eq!(server.get("/readyz?exclude=data_corruption").status, 200);
        }
        set_alarm(&mut clients, AlarmAction::Deactivate, alarm).await;
        assert_eq!(server.get("/health").status, 200);
    }
}

#[tokio::test]
async fn unknown_methods_and_paths_are_refused() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    for path in [
        "/health",
        "/livez",
        "/readyz",
        "/readyz/non_learner",
        "/version",
        "/metrics",
    ] {
        for method in ["POST", "PUT", "DELETE"] {
            assert_eq!(server.http(method, path).status, 405, "{method} {path}");
        }
    }
    for path in ["/", "/nothing", "/health/x", "/v2/keys", "/metrics/"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

/// Returns the value of a series, by its whole name with labels.
fn value(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    let line = line.unwrap_or_else(|| panic!("no {series} in:\n{metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn metrics_have_the_names_of_etcd() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &["--quota-backend-bytes=1000000000"]);
    let metrics = server.get("/metrics").body;
    for (series, expected) in [
        ("etcd_server_has_leader", 1.0),
        ("etcd_server_is_leader", 1.0),
        ("etcd_server_is_learner", 0.0),
        ("etcd_server_proposals_pending", 0.0),
        ("etcd_server_proposals_failed_total", 0.0),
        ("etcd_server_quota_backend_bytes", 1e9),
        (r#"etcd_server_version{server_version="3.8.0"}"#, 1.0),
        (r#"etcd_cluster_version{cluster_version="3.8"}"#, 1.0),
        ("etcd_debugging_mvcc_current_revision", 1.0),
        ("etcd_debugging_mvcc_watcher_total", 0.0),
        ("etcd_debugging_mvcc_watch_stream_total", 0.0),
        ("etcd_debugging_mvcc_slow_watcher_total", 0.0),
        ("etcd_mvcc_put_total", 0.0),
        ("etcd_mvcc_delete_total", 0.0),
        ("etcd_mvcc_txn_total", 0.0),
        (
            r#"etcd_server_feature_enabled{name="FastLeaseKeepAlive",stage="BETA"}"#,
            1.0,
        ),
        (
            r#"etcd_server_feature_enabled{name="PriorityRequest",stage="ALPHA"}"#,
            0.0,
        ),
    ] {
        assert!(
            (value(&metrics, series) - expected).abs() < 0.5,
            "{series} in:\n{metrics}"
        );
    }
    for series in [
        "etcd_mvcc_db_total_size_in_bytes",
        "etcd_server_proposals_committed_total",
        "etcd_server_proposals_applied_total",
        "etcd_disk_wal_fsync_duration_seconds_count",
        "process_resident_memory_bytes",
        "process_open_fds",
        "etcd_network_client_grpc_received_bytes_total",
    ] {
        assert!(value(&metrics, series) > 0.0, "{series}");
    }
    for name in [
        "etcd_server_leader_changes_seen_total",
        "etcd_server_slow_apply_total",
        "etcd_server_health_success",
        "etcd_server_health_failures",
        "etcd_disk_backend_commit_duration_seconds_count",
        "etcd_server_read_indexes_failed_total",
        r#"grpc_server_started_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}"#,
        r#"grpc_server_handled_total{grpc_code="Unavailable",grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"}"#,
        "etcd_mvcc_range_total",
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "etcd_debugging_mvcc_compact_revision",
        "etcd_debugging_mvcc_events_total",
        "etcd_debugging_lease_granted_total",
        "etcd_debugging_lease_renewed_total",
        "etcd_debugging_lease_revoked_total",
        "etcd_debugging_server_lease_expired_total",
    ] {
        value(&metrics, name);
    }
}

/// Dashboards and alerts written for etcd 3.7 find their series, with the same labels and
/// buckets: name, labels other than `le`, first and last finite bucket.
#[tokio::test]
async fn duration_metrics_have_the_labels_and_buckets_of_etcd() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    let put = PutRequest {
        key: "a".into(),
        value: "bcd".into(),
        ..PutRequest::default()
    };
    clients.kv.put(put.clone()).await.unwrap();
    clients.kv.put(put).await.unwrap();
    let read = RangeRequest {
        key: "a".into(),
        ..RangeRequest::default()
    };
    clients.kv.range(read.clone()).await.unwrap();
    let future = RangeRequest {
        revision: 99,
        ..read
    };
    clients.kv.range(future).await.unwrap_err();
    clients.kv.txn(TxnRequest::default()).await.unwrap();
    let unknown = LeaseRevokeRequest { id: 7 };
    clients.lease.lease_revoke(unknown).await.unwrap_err();
    let grant = LeaseGrantRequest { id: 5, ttl: 100 };
    clients.lease.lease_grant(grant).await.unwrap();
    let compaction = CompactionRequest {
        revision: 3,
        physical: true,
    };
    clients.kv.compact(compaction).await.unwrap();
    let maintenance = &mut clients.maintenance;
    maintenance.defragment(DefragmentRequest {}).await.unwrap();
    maintenance.hash(HashRequest {}).await.unwrap();
    maintenance
        .hash_kv(HashKvRequest { revision: 0 })
        .await
        .unwrap();
    let snapshot = maintenance.snapshot(SnapshotRequest {}).await.unwrap();
    let mut blobs = snapshot.into_inner();
    while blobs.message().await.unwrap().is_some() {}
    let metrics = server.get("/metrics").body;
    let histogram = |name: &str, labels: &str, first: &str, last: &str, observed: bool| {
        for bound in [first, last, "+Inf"] {
            let labels = match labels {
                "" => format!(r#"le="{bound}""#),
                labels => format!(r#"{labels},le="{bound}""#),
            };
            value(&metrics, &format!("{name}_bucket{{{labels}}}"));
        }
        let labels = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let count = value(&metrics, &format!("{name}_count{labels}"));
        assert_eq!(count > 0.0, observed, "{name}{labels}");
    };
    let apply = "etcd_server_apply_duration_seconds";
    for (operation, success) in [
        ("Put", true),
        ("LeaseRevoke", false),
        ("LeaseGrant", true),
        ("Compaction", true),
        ("ClusterVersionSet", true),
        ("ClusterMemberAttrSet", true),
    ] {
        let labels = format!(r#"op="{operation}",success="{success}",version="v3""#);
        histogram(apply, &labels, "0.0001", "52.4288", true);
    }
    let request = "etcd_server_request_duration_seconds";
    for (kind, success) in [
        ("Put", true),
        ("Range", true),
        ("Range", false),
        ("ReadonlyTxn", true),
        ("LeaseRevoke", false),
        ("Compaction", true),
    ] {
        let labels = format!(r#"success="{success}",type="{kind}""#);
        histogram(request, &labels, "0.001", "8.192", true);
    }
    let range = "etcd_server_range_duration_seconds";
    for labels in [r#"success="true""#, r#"success="false""#] {
        histogram(range, labels, "0.0001", "52.4288", true);
    }
    for (name, first, last, observed) in [
        (
            "etcd_disk_wal_fsync_duration_seconds",
            "0.001",
            "8.192",
            true,
        ),
        (
            "etcd_disk_wal_write_duration_seconds",
            "0.001",
            "8.192",
            true,
        ),
        (
            "etcd_disk_backend_commit_duration_seconds",
            "0.001",
            "8.192",
            true,
        ),
        (
            "etcd_disk_backend_defrag_duration_seconds",
            "0.1",
            "409.6",
            true,
        ),
        (
            "etcd_disk_backend_snapshot_duration_seconds",
            "0.01",
            "655.36",
            true,
        ),
        (
            "etcd_snap_db_fsync_duration_seconds",
            "0.001",
            "8.192",
            false,
        ),
        (
            "etcd_snap_db_save_total_duration_seconds",
            "0.1",
            "51.2",
            false,
        ),
        ("etcd_mvcc_hash_duration_seconds", "0.01", "163.84", true),
        (
            "etcd_mvcc_hash_rev_duration_seconds",
            "0.01",
            "163.84",
            true,
        ),
        ("etcd_debugging_lease_ttl_total", "1", "8388608", true),
        (
            "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
            "1",
            "4096",
            true,
        ),
        (
            "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
            "100",
            "819200",
            true,
        ),
    ] {
        histogram(name, "", first, last, observed);
    }
    let id = metrics
        .lines()
        .find_map(|line| line.strip_prefix(r#"etcd_server_id{server_id=""#));
    let id = id.and_then(|rest| rest.split('"').next()).unwrap();
    let known_peer = format!(r#"etcd_network_known_peers{{Local="{id}",Remote="{id}"}}"#);
    for (series, expected) in [
        ("etcd_server_heartbeat_send_failures_total", 0.0),
        ("etcd_server_slow_read_indexes_total", 0.0),
        ("etcd_server_read_indexes_failed_total", 0.0),
        ("etcd_disk_defrag_inflight", 0.0),
        ("etcd_mvcc_db_open_read_transactions", 0.0),
        ("etcd_debugging_mvcc_keys_total", 1.0),
        ("etcd_debugging_mvcc_total_put_size_in_bytes", 8.0),
        ("etcd_debugging_mvcc_db_compaction_keys_total", 1.0),
        (&known_peer, 1.0),
    ] {
        let found = value(&metrics, series);
        assert!((found - expected).abs() < 0.5, "{series}: {found}");
    }
    for series in [
        "etcd_debugging_mvcc_db_compaction_last",
        "os_fd_used",
        "os_fd_limit",
    ] {
        assert!(value(&metrics, series) > 0.0, "{series}");
    }
}

/// Requests of clients show in the metrics.
#[tokio::test]
async fn metrics_count_client_requests() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    let before = server.get("/metrics").body;
    let put = |key: &'static str| PutRequest {
        key: key.into(),
        ..PutRequest::default()
    };
    clients.kv.put(put("a")).await.unwrap();
    clients.kv.put(put("b")).await.unwrap();
    let read = RangeRequest {
        key: "a".into(),
        ..RangeRequest::default()
    };
    clients.kv.range(read).await.unwrap();
    let delete = DeleteRangeRequest {
        key: "a".into(),
        ..DeleteRangeRequest::default()
    };
    clients.kv.delete_range(delete).await.unwrap();
    let op = portunus_proto::etcdserverpb::request_op::Request::RequestPut(put("c"));
    let txn = TxnRequest {
        success: vec![portunus_proto::etcdserverpb::RequestOp { request: Some(op) }],
        ..TxnRequest::default()
    };
    clients.kv.txn(txn).await.unwrap();
    clients
        .lease
        .lease_grant(LeaseGrantRequest { id: 5, ttl: 100 })
        .await
        .unwrap();
    clients
        .lease
        .lease_revoke(LeaseRevokeRequest { id: 5 })
        .await
        .unwrap();
    server.get("/health");
    set_alarm(&mut clients, AlarmAction::Activate, AlarmType::Nospace).await;
    server.get("/health");
    let after = server.get("/metrics").body;
    for (series, moved) in [
        ("etcd_mvcc_put_total", 2.0),
        ("etcd_mvcc_delete_total", 1.0),
        ("etcd_mvcc_txn_total", 1.0),
        ("etcd_mvcc_range_total", 1.0),
        ("etcd_debugging_lease_granted_total", 1.0),
        ("etcd_debugging_lease_revoked_total", 1.0),
        ("etcd_debugging_mvcc_current_revision", 4.0),
        ("etcd_debugging_mvcc_events_total", 4.0),
        ("etcd_server_health_success", 1.0),
        ("etcd_server_health_failures", 1.0),
        ("etcd_server_proposals_applied_total", 7.0),
    ] {
        let moved_by = value(&after, series) - value(&before, series);
        assert!(
            (moved_by - moved).abs() < 0.5,
            "{series} moved by {moved_by}"
        );
    }
    assert!(
        after.contains(r#"etcd_debugging_server_alarms{alarm_type="NOSPACE",server_id="1"} 1"#)
    );
    assert!(!before.contains("etcd_debugging_server_alarms{"));
}

/// One port for all: gRPC calls and HTTP/1.1 requests interleave.
#[tokio::test]
async fn grpc_and_http_share_the_port() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    for number in 0..5 {
        let request = PutRequest {
            key: "a".into(),
            ..PutRequest::default()
        };
        let revision = clients
            .kv
            .put(request)
            .await
            .unwrap()
            .into_inner()
            .header
            .unwrap()
            .revision;
        let metrics = server.get("/metrics").body;
        let shown = value(&metrics, "etcd_debugging_mvcc_current_revision");
        assert!((shown - revision as f64).abs() < 0.5);
        assert_eq!(revision, number + 2);
    }
}

/// Returns the address after `addresses` in a log line.
fn logged_address(line: &str) -> std::net::SocketAddr {
    let after = line.split_once("127.0.0.1:").unwrap().1;
    let port: String = after.chars().take_while(char::is_ascii_digit).collect();
    format!("127.0.0.1:{port}").parse().unwrap()
}

/// Monitoring gets a separate port, without data.
#[tokio::test]
async fn metrics_and_probes_are_served_at_listen_metrics_urls() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &["--listen-metrics-urls=http://127.0.0.1:0"]);
    let line = server.process.find_line("serving metrics").unwrap();
    let address = logged_address(&line);
    let get = |path: &str| common::http_at(address, "GET", path, &[], b"");
    assert!(value(&get("/metrics").body, "etcd_server_has_leader") > 0.0);
    assert_eq!(get("/health").body, r#"{"health":"true","reason":""}"#);
    for path in ["/livez", "/readyz", "/readyz/linearizable_read"] {
        assert_eq!(
            (get(path).status, &*get(path).body),
            (200, "ok\n"),
            "{path}"
        );
    }
    for path in ["/version", "/feature-gates", "/etcdserverpb.KV/Range"] {
        assert_eq!(get(path).status, 404, "{path}");
    }
    assert_eq!(
        server.get("/metrics").status,
        200,
        "the client port as before"
    );
    server.stop();
}

/// `/health` reports a member without a quorum before that member serves clients.
#[tokio::test]
async fn metrics_are_served_before_the_cluster_is_reached() {
    let (_guard, dir) = data_dir();
    let peer = "http://127.0.0.1:1";
    let flags = [
        "--listen-metrics-urls=http://127.0.0.1:0".to_owned(),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer},other=http://127.0.0.1:2"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let member = common::launch(&dir, &flags);
    let line = member.find_line("serving metrics").unwrap();
    let answer = common::http_at(logged_address(&line), "GET", "/health", &[], b"");
    let body = r#"{"health":"false","reason":"RAFT NO LEADER"}"#;
    assert_eq!((answer.status, &*answer.body), (503, body));
    assert!(!member.has_logged("ready to serve client requests"));
}

#[tokio::test]
async fn slow_unary_requests_are_logged() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &["--warning-unary-request-duration=1ns"]);
    let mut clients = server.connect().await;
    let put = PutRequest {
        key: "a".into(),
        ..PutRequest::default()
    };
    clients.kv.put(put).await.unwrap();
    let line = server.process.find_line("a request took long").unwrap();
    assert!(line.contains("/etcdserverpb.KV/Put"), "{line}");
}

/// Dashboards of Go's gRPC library read these.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_method_and_code() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &["--metrics=extensive"]);
    let mut clients = server.connect().await;
    let put = |key: &'static str| PutRequest {
        key: key.into(),
        ..PutRequest::default()
    };
    clients.kv.put(put("a")).await.unwrap();
    clients.kv.put(put("")).await.unwrap_err();
    let metrics = server.get("/metrics").body;
    let labels = r#"grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary""#;
    let handled =
        |code: &str| format!(r#"grpc_server_handled_total{{grpc_code="{code}",{labels}}}"#);
    for (series, expected) in [
        (format!("grpc_server_started_total{{{labels}}}"), 2.0),
        (handled("OK"), 1.0),
        (handled("InvalidArgument"), 1.0),
        (handled("Canceled"), 0.0),
        (
            format!("grpc_server_handling_seconds_count{{{labels}}}"),
            2.0,
        ),
    ] {
        assert!(
            (value(&metrics, &series) - expected).abs() < 0.5,
            "{series}"
        );
    }
}
