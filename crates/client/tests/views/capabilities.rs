use portunus_client::{
    ArgumentError, Client, ClientError, ConnectError, Options, Put, Range, Watch,
};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::FeatureGateStatusRequest;
use portunus_proto::portunuspb::{HistoryRequest, WatchRequest};
use portunus_testkit::program::Program;

use crate::store::Store;

fn unsupported<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> &'static str {
    match outcome {
        Err(ClientError::Unsupported { call, .. }) => call,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn capabilities_that_etcd_lacks_are_errors_that_name_them() {
    let test = "views::capabilities_that_etcd_lacks";
    let Some(etcd) = Program::etcd(test) else {
        return;
    };
    let store = Store::start(etcd).await;
    let client = &store.client;
    let status = client.feature_gate_status(FeatureGateStatusRequest::default());
    assert_eq!(unsupported(status.await), "Maintenance/FeatureGateStatus");
    let history = client.gate_history(HistoryRequest::default());
    assert_eq!(unsupported(history.await), "FeatureGates/History");
    let mut watch = client.gate_watch(WatchRequest::default());
    assert_eq!(unsupported(watch.next().await), "FeatureGates/Watch");
    assert!(client.range_stream(Range::key("k")).await.is_ok());
}

#[tokio::test]
async fn stream_that_an_older_server_lacks_is_an_error_that_names_it() {
    let flags = ["--emulated-version=3.6"];
    let store = Store::start_with(Program::portunus(), &flags).await;
    let read = store.client.range_stream(Range::key("k")).await;
    assert_eq!(unsupported(read), "KV/RangeStream");
}

#[tokio::test]
async fn wrong_arguments_are_refused_before_anything_is_sent() {
    // No server answers: a request that was sent would wait for its deadline.
    let client = Client::connect(Options {
        endpoints: vec!["127.0.0.1:1".to_owned()],
        request_bytes_max: 1000,
        ..Options::default()
    })
    .unwrap();
    let begin = std::time::Instant::now();
    let empty = client.put(Put::new("", "v")).await.unwrap_err();
    assert_eq!(empty.etcd(), Some(EtcdError::EmptyKey));
    assert_eq!(empty.to_string(), EtcdError::EmptyKey.text());
    let negative = client
        .range(Range::key("k").at_revision(-1))
        .await
        .unwrap_err();
    assert_eq!(
        negative.to_string(),
        "revision is -1: it must be 0 or larger"
    );
    let negative = client.watch(Watch::key("k").from_revision(-1)).next().await;
    assert!(matches!(
        negative,
        Err(ClientError::Argument(ArgumentError::Negative {
            value: -1,
            ..
        }))
    ));
    let large = client.put(Put::new("k", vec![0; 1000])).await.unwrap_err();
    let text = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (1006 vs. 1000)";
    assert_eq!(large.to_string(), text);
    assert!(begin.elapsed() < std::time::Duration::from_secs(2));

    for endpoint in ["", "host", "ftp://host:1", "host:port"] {
        let refused = Client::connect(Options {
            endpoints: vec![endpoint.to_owned()],
            ..Options::default()
        });
        assert!(
            matches!(refused, Err(ConnectError::Endpoint(_))),
            "{endpoint}"
        );
    }
    let refused = Client::connect(Options {
        endpoints: Vec::new(),
        ..Options::default()
    });
    assert!(matches!(refused, Err(ConnectError::NoEndpoints)));
}
