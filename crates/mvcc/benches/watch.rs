//! Benchmarks of publishing one write to ten thousand watches on the apply thread.
//!
//! Compare runs on one machine only; absolute times depend on it. Encoding and
//! sockets are not measured.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portunus_mvcc::watch::{
    Event, Hub, Limits, ResponseReceiver, RevisionEvents, StreamOptions, Wake,
};
use portunus_proto::etcdserverpb::WatchCreateRequest;
use portunus_proto::mvccpb::KeyValue;

/// Key and range end of the watch with this number.
type RangeOf = fn(usize) -> (Bytes, Bytes);

struct Silent;

impl Wake for Silent {
    fn readable(&self) {}
    fn drained(&self) {}
}

fn setup(streams: usize, watches_per_stream: usize, key: RangeOf) -> (Hub, Vec<ResponseReceiver>) {
    let mut hub = Hub::new(
        1,
        Limits {
            answers_max: 1 << 20,
            ..Limits::default()
        },
    );
    let mut receivers = Vec::new();
    for stream in 0..streams {
        let options = StreamOptions {
            now: Duration::ZERO,
            progress_interval: Duration::from_secs(600),
            connection: None,
        };
        let (id, mut receiver) = hub.open_stream(options, Arc::new(Silent));
        for watch in 0..watches_per_stream {
            let (key, range_end) = key(stream * watches_per_stream + watch);
            let request = WatchCreateRequest {
                key,
                range_end,
                ..WatchCreateRequest::default()
            };
            hub.create(id, request).unwrap();
        }
        while receiver.take().is_some() {}
        receivers.push(receiver);
    }
    (hub, receivers)
}

fn write(revision: i64) -> Arc<RevisionEvents> {
    let kv = KeyValue {
        key: Bytes::from_static(b"/registry/pods/default/one"),
        value: Bytes::from_static(&[7; 1024]),
        create_revision: 2,
        mod_revision: revision,
        version: revision,
        lease: 0,
    };
    let events = Box::new([Event::put(kv.clone(), Some(kv))]);
    Arc::new(RevisionEvents { revision, events })
}

fn prefix(_: usize) -> (Bytes, Bytes) {
    (
        Bytes::from_static(b"/registry/pods/"),
        Bytes::from_static(b"/registry/pods0"),
    )
}

/// Every watch on its own key, none on the one written.
fn elsewhere(number: usize) -> (Bytes, Bytes) {
    (
        Bytes::from(format!("/registry/leases/{number}/")),
        Bytes::from(format!("/registry/leases/{number}0")),
    )
}

fn publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish");
    let cases: [(&str, usize, usize, RangeOf); 4] = [
        ("1_stream_1_watch", 1, 1, prefix),
        ("10k_streams_same_prefix", 10_000, 1, prefix),
        ("10_streams_1k_watches_same_prefix", 10, 1000, prefix),
        ("10k_streams_other_ranges", 10_000, 1, elsewhere),
    ];
    for (name, streams, watches, key) in cases {
        let (mut hub, mut receivers) = setup(streams, watches, key);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    let events = write(hub.revision() + 1);
                    let start = std::time::Instant::now();
                    hub.publish(&events).unwrap();
                    spent += start.elapsed();
                    for receiver in &mut receivers {
                        while receiver.take().is_some() {}
                    }
                }
                spent
            });
        });
        assert_eq!(hub.stats().slow, 0, "the readers kept up");
    }
    group.finish();
}

criterion_group!(benches, publish);
criterion_main!(benches);
