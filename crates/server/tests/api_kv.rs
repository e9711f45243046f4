//! The KV service for clients: revisions, ranges, transactions, refusals.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::requests::{
    compare, delete, delete_op, everything, get, get_op, ops, put, put_op, range, txn,
};
use common::{Clients, Server, data_dir, refusal};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::compare::{CompareResult, TargetUnion};
use portunus_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use portunus_proto::etcdserverpb::request_op::Request as Op;
use portunus_proto::etcdserverpb::response_op::Response as OpResponse;
use portunus_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, MemberListRequest,
    PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseHeader, StatusRequest, TxnRequest,
    TxnResponse,
};
use portunus_proto::mvccpb::KeyValue;
use tonic::Code;

async fn started(flags: &[&str]) -> (tempfile::TempDir, Server, Clients) {
    let (guard, dir) = data_dir();
    let server = Server::start(&dir, flags);
    let clients = server.connect().await;
    (guard, server, clients)
}

fn revision(header: &Option<ResponseHeader>) -> i64 {
    header.as_ref().unwrap().revision
}

fn keys(response: &RangeResponse) -> Vec<String> {
    let text = |kv: &KeyValue| String::from_utf8(kv.key.to_vec()).unwrap();
    response.kvs.iter().map(text).collect()
}

async fn read(clients: &mut Clients, request: RangeRequest) -> RangeResponse {
    clients.kv.range(request).await.unwrap().into_inner()
}

async fn run(clients: &mut Clients, request: TxnRequest) -> TxnResponse {
    clients.kv.txn(request).await.unwrap().into_inner()
}

fn error(error: EtcdError) -> (Code, String) {
    (error.code(), error.text().to_owned())
}

/// Sent in pieces, which a client does not see: one message, and a status at its end.
#[tokio::test]
async fn range_of_megabytes_is_one_response() {
    let (_guard, server, clients) = started(&[]).await;
    // The client's default limit would be 4 MiB.
    let mut kv = clients.kv.max_decoding_message_size(64 << 20);
    let value = "v".repeat(10_000);
    let name = |number: usize| format!("list/{number:04}");
    for number in 0..1000 {
        kv.put(put(&name(number), &value)).await.unwrap();
    }
    let list = RangeRequest {
        limit: 900,
        ..range("list/", "list0")
    };
    let answer = kv.range(list).await.unwrap().into_inner();
    assert_eq!(revision(&answer.header), 1001);
    assert_eq!((answer.count, answer.more), (1000, true));
    assert!(
        keys(&answer)
            .iter()
            .eq((0..900).map(name).collect::<Vec<_>>().iter())
    );
    assert!(answer.kvs.iter().all(|kv| kv.value == value));
    let metrics = server.get("/metrics").body;
    let ended = r#"grpc_server_handled_total{grpc_code="OK",grpc_method="Range""#;
    assert!(metrics.contains(ended), "{metrics}");
}

#[tokio::test]
async fn revision_increases_by_one_per_change() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let kv = &mut clients.kv;
    let fresh = kv.range(get("a")).await.unwrap().into_inner();
    assert_eq!((revision(&fresh.header), fresh.count), (1, 0));
    // The first write is revision 2; an identical put is a change as well.
    assert_eq!(
        revision(&kv.put(put("a", "1")).await.unwrap().into_inner().header),
        2
    );
    assert_eq!(
        revision(&kv.put(put("a", "1")).await.unwrap().into_inner().header),
        3
    );
    // A request that changes nothing has no revision of its own.
    let nothing = kv.delete_range(delete("zzz")).await.unwrap().into_inner();
    assert_eq!((revision(&nothing.header), nothing.deleted), (3, 0));
    let reading = kv.txn(txn([get_op("a")])).await.unwrap().into_inner();
    assert_eq!(revision(&reading.header), 3);
    let no_effect = kv.txn(txn([delete_op("zzz")])).await.unwrap().into_inner();
    assert_eq!(revision(&no_effect.header), 3);
    // A transaction is one revision, regardless of its operations.
    let several = txn([put_op("b", "1"), put_op("c", "1"), delete_op("a")]);
    assert_eq!(
        revision(&kv.txn(several).await.unwrap().into_inner().header),
        4
    );
    // A key that is created again starts anew.
    kv.put(put("a", "2")).await.unwrap();
    kv.put(put("a", "3")).await.unwrap();
    let a = read(&mut clients, get("a")).await.kvs.remove(0);
    assert_eq!((a.create_revision, a.mod_revision, a.version), (5, 6, 2));
}

#[tokio::test]
async fn headers_name_cluster_member_and_term() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let header = clients
        .kv
        .put(put("a", "1"))
        .await
        .unwrap()
        .into_inner()
        .header
        .unwrap();
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term > 0);
    let expected = Some(header);
    assert_eq!(read(&mut clients, get("a")).await.header, expected);
    assert_eq!(run(&mut clients, txn([get_op("a")])).await.header, expected);
    let status = clients
        .maintenance
        .status(StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.header, expected);
    assert_eq!(status.leader, header.member_id);
    let lease = LeaseGrantRequest { id: 1, ttl: 60 };
    let granted = clients.lease.lease_grant(lease).await.unwrap().into_inner();
    assert_eq!(granted.header, expected);
    // Responses of the Cluster service have no revision.
    let list = clients
        .cluster
        .member_list(MemberListRequest { linearizable: true })
        .await;
    assert_eq!(
        list.unwrap().into_inner().header,
        Some(ResponseHeader {
            revision: 0,
            ..header
        })
    );
    // Inside a transaction only the revision is filled in, as of that moment.
    let response = run(
        &mut clients,
        txn([get_op("a"), put_op("a", "2"), get_op("a")]),
    )
    .await;
    assert_eq!(
        response.header,
        Some(ResponseHeader {
            revision: 3,
            ..header
        })
    );
    let headers: Vec<ResponseHeader> = response
        .responses
        .into_iter()
        .map(|mut op| match op.response.take().unwrap() {
            OpResponse::ResponseRange(response) => response.header.unwrap(),
            OpResponse::ResponsePut(response) => response.header.unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    let only = |revision| ResponseHeader {
        revision,
        ..ResponseHeader::default()
    };
    assert_eq!(headers, [only(2), only(3), only(3)]);
}

#[tokio::test]
async fn range_options_select_sort_and_limit_keys() {
    let (_guard, _server, mut clients) = started(&[]).await;
    // Revisions: c 2, a 3, b 4, d 5, a again 6; e is created at 7 and deleted at 8.
    for (key, value) in [
        ("c", "1"),
        ("a", "x"),
        ("b", "4"),
        ("d", "3"),
        ("a", "2"),
        ("e", "5"),
    ] {
        clients.kv.put(put(key, value)).await.unwrap();
    }
    clients.kv.delete_range(delete("e")).await.unwrap();
    let all = everything;
    let sorted = |target: SortTarget, order: SortOrder| RangeRequest {
        sort_target: target as i32,
        sort_order: order as i32,
        ..everything()
    };
    use SortOrder::{Ascend, Descend, None as Unsorted};
    use SortTarget::{Create, Key, Mod, Value, Version};
    for (name, request, expected, count, more) in [
        ("one key", get("b"), "b", 1, false),
        ("no such key", get("x"), "", 0, false),
        ("half open", range("a", "c"), "a b", 2, false),
        ("empty interval", range("c", "a"), "", 0, false),
        ("from a key on", range("b", "\0"), "b c d", 3, false),
        ("all", all(), "a b c d", 4, false),
        ("limit", RangeRequest { limit: 2, ..all() }, "a b", 4, true),
        (
            "exact limit",
            RangeRequest { limit: 4, ..all() },
            "a b c d",
            4,
            false,
        ),
        ("by key, down", sorted(Key, Descend), "d c b a", 4, false),
        ("by creation", sorted(Create, Ascend), "c a b d", 4, false),
        ("by change", sorted(Mod, Ascend), "c b d a", 4, false),
        ("by change, down", sorted(Mod, Descend), "a d b c", 4, false),
        ("by value", sorted(Value, Ascend), "c a d b", 4, false),
        (
            "newest only",
            RangeRequest {
                limit: 1,
                ..sorted(Mod, Descend)
            },
            "a",
            4,
            true,
        ),
        (
            "by version",
            RangeRequest {
                limit: 1,
                ..sorted(Version, Descend)
            },
            "a",
            4,
            true,
        ),
        // As in etcd: without a sort order the limit comes first, then the sorting.
        (
            "limit, then sort",
            RangeRequest {
                limit: 3,
                ..sorted(Create, Unsorted)
            },
            "c a b",
            4,
            true,
        ),
        (
            "min mod",
            RangeRequest {
                min_mod_revision: 5,
                ..all()
            },
            "a d",
            4,
            false,
        ),
        (
            "max mod",
            RangeRequest {
                max_mod_revision: 4,
                ..all()
            },
            "b c",
            4,
            false,
        ),
        (
            "min create",
            RangeRequest {
                min_create_revision: 4,
                ..all()
            },
            "b d",
            4,
            false,
        ),
        (
            "max create",
            RangeRequest {
                max_create_revision: 3,
                ..all()
            },
            "a c",
            4,
            false,
        ),
        (
            "filter and limit",
            RangeRequest {
                min_mod_revision: 4,
                limit: 2,
                ..all()
            },
            "a b",
            4,
            true,
        ),
        (
            "serializable",
            RangeRequest {
                serializable: true,
                ..all()
            },
            "a b c d",
            4,
            false,
        ),
        (
            "before d",
            RangeRequest {
                revision: 4,
                ..all()
            },
            "a b c",
            3,
            false,
        ),
        (
            "e was there",
            RangeRequest {
                revision: 7,
                ..all()
            },
            "a b c d e",
            5,
            false,
        ),
        (
            "only the count",
            RangeRequest {
                count_only: true,
                ..all()
            },
            "",
            4,
            false,
        ),
    ] {
        let response = read(&mut clients, request).await;
        let found = (keys(&response).join(" "), response.count, response.more);
        assert_eq!(found, (expected.to_owned(), count, more), "{name}");
        assert_eq!(revision(&response.header), 8, "{name}");
    }
    let old = read(
        &mut clients,
        RangeRequest {
            revision: 5,
            ..get("a")
        },
    )
    .await
    .kvs
    .remove(0);
    assert_eq!(
        (&old.value[..], old.mod_revision, old.version),
        (&b"x"[..], 3, 1)
    );
    let only_keys = read(
        &mut clients,
        RangeRequest {
            keys_only: true,
            ..all()
        },
    )
    .await;
    assert_eq!(keys(&only_keys).len(), 4);
    assert!(
        only_keys
            .kvs
            .iter()
            .all(|kv| kv.value.is_empty() && kv.mod_revision > 0)
    );
}

/// All pieces together are the response of the plain range.
///
/// Proves: K10
#[tokio::test]
async fn range_stream_returns_the_result_of_range() {
    let (_guard, _server, mut clients) = started(&["--max-request-bytes=20000"]).await;
    for number in 0..100 {
        clients
            .kv
            .put(put(&format!("k{number:03}"), &"v".repeat(1000)))
            .await
            .unwrap();
    }
    for request in [
        everything(),
        RangeRequest {
            limit: 42,
            ..everything()
        },
        RangeRequest {
            keys_only: true,
            ..everything()
        },
        RangeRequest {
            count_only: true,
            ..everything()
        },
        RangeRequest {
            revision: 50,
            ..everything()
        },
        get("k001"),
        get("nothing"),
    ] {
        let plain = read(&mut clients, request.clone()).await;
        let mut stream = clients
            .kv
            .range_stream(request.clone())
            .await
            .unwrap()
            .into_inner();
        let mut merged = RangeResponse::default();
        let mut pieces = 0;
        while let Some(piece) = stream.message().await.unwrap() {
            let piece = piece.range_response.unwrap();
            assert!(merged.header.is_none(), "the header comes last");
            merged.kvs.extend(piece.kvs);
            merged.header = piece.header;
            merged.more = piece.more;
            merged.count = piece.count;
            pieces += 1;
        }
        assert_eq!(merged, plain, "{request:?}");
        assert!(pieces > 1 || plain.kvs.len() < 11, "{request:?}");
    }
    for (request, expected) in [
        (
            RangeRequest {
                sort_order: 2,
                ..everything()
            },
            EtcdError::RangeStreamSort,
        ),
        (
            RangeRequest {
                sort_target: 1,
                sort_order: 1,
                ..everything()
            },
            EtcdError::RangeStreamSort,
        ),
        (
            RangeRequest {
                min_mod_revision: 1,
                ..everything()
            },
            EtcdError::RangeStreamRevisionFilter,
        ),
        (get(""), EtcdError::EmptyKey),
    ] {
        assert_eq!(
            refusal(clients.kv.range_stream(request).await),
            error(expected)
        );
    }
}

#[tokio::test]
async fn put_and_delete_options_return_previous_values_and_counts() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let lease = LeaseGrantRequest { id: 7, ttl: 600 };
    clients.lease.lease_grant(lease).await.unwrap();
    let kv = &mut clients.kv;
    let wants_old = |key, value| PutRequest {
        prev_kv: true,
        ..put(key, value)
    };
    assert_eq!(
        kv.put(wants_old("a", "1"))
            .await
            .unwrap()
            .into_inner()
            .prev_kv,
        None
    );
    let response = kv
        .put(PutRequest {
            lease: 7,
            ..wants_old("a", "2")
        })
        .await
        .unwrap();
    assert_eq!(response.into_inner().prev_kv.unwrap().value, "1");
    // The value stays, the lease is removed.
    kv.put(PutRequest {
        ignore_value: true,
        ..put("a", "")
    })
    .await
    .unwrap();
    let a = kv.range(get("a")).await.unwrap().into_inner().kvs.remove(0);
    assert_eq!((&a.value[..], a.lease, a.version), (&b"2"[..], 0, 3));
    // The lease stays, the value is removed.
    kv.put(PutRequest {
        lease: 7,
        ..put("a", "3")
    })
    .await
    .unwrap();
    kv.put(PutRequest {
        ignore_lease: true,
        ..put("a", "4")
    })
    .await
    .unwrap();
    let a = kv.range(get("a")).await.unwrap().into_inner().kvs.remove(0);
    assert_eq!((&a.value[..], a.lease), (&b"4"[..], 7));

    for key in ["b", "c", "d"] {
        kv.put(put(key, key)).await.unwrap();
    }
    let request = DeleteRangeRequest {
        key: "b".into(),
        range_end: "d".into(),
        prev_kv: true,
    };
    let response = kv.delete_range(request.clone()).await.unwrap().into_inner();
    let old: Vec<&[u8]> = response.prev_kvs.iter().map(|kv| &kv.value[..]).collect();
    assert_eq!((response.deleted, old), (2, vec![&b"b"[..], b"c"]));
    assert_eq!(
        kv.delete_range(request).await.unwrap().into_inner().deleted,
        0
    );
    let all = DeleteRangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        prev_kv: false,
    };
    let response = kv.delete_range(all).await.unwrap().into_inner();
    assert_eq!((response.deleted, response.prev_kvs.len()), (2, 0));
    // Any bytes are a key and a value; nothing is text.
    let bytes = PutRequest {
        key: vec![0, 255, 0].into(),
        value: vec![0; 100].into(),
        ..PutRequest::default()
    };
    kv.put(bytes.clone()).await.unwrap();
    let request = RangeRequest {
        key: bytes.key,
        ..RangeRequest::default()
    };
    assert_eq!(
        kv.range(request).await.unwrap().into_inner().kvs[0].value,
        bytes.value
    );
}

#[tokio::test]
async fn txn_compares_evaluate_every_target_and_result() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let lease = LeaseGrantRequest { id: 7, ttl: 600 };
    clients.lease.lease_grant(lease).await.unwrap();
    clients.kv.put(put("a", "1")).await.unwrap();
    clients
        .kv
        .put(PutRequest {
            lease: 7,
            ..put("a", "2")
        })
        .await
        .unwrap();
    clients.kv.put(put("b", "2")).await.unwrap();
    use CompareResult::{Equal, Greater, Less, NotEqual};
    use TargetUnion::{CreateRevision, Lease, ModRevision, Value, Version};
    let over = |end: &'static str, compare: Compare| Compare {
        range_end: end.into(),
        ..compare
    };
    for (name, compare, expected) in [
        ("version", compare("a", Equal, Version(2)), true),
        ("version", compare("a", Greater, Version(2)), false),
        ("created", compare("a", Equal, CreateRevision(2)), true),
        ("changed", compare("a", Less, ModRevision(4)), true),
        ("changed", compare("a", NotEqual, ModRevision(3)), false),
        ("value", compare("a", Equal, Value("2".into())), true),
        ("value", compare("a", Greater, Value("10".into())), true),
        ("lease", compare("a", Equal, Lease(7)), true),
        ("no lease", compare("b", Equal, Lease(0)), true),
        ("missing: all zero", compare("x", Equal, Version(0)), true),
        (
            "missing: all zero",
            compare("x", Equal, CreateRevision(0)),
            true,
        ),
        (
            "missing: all zero",
            compare("x", Less, ModRevision(1)),
            true,
        ),
        (
            "missing has no value",
            compare("x", Equal, Value("".into())),
            false,
        ),
        (
            "missing has no value",
            compare("x", NotEqual, Value("1".into())),
            false,
        ),
        (
            "all in range",
            over("c", compare("a", Equal, Value("2".into()))),
            true,
        ),
        (
            "not all in range",
            over("c", compare("a", Equal, Version(2))),
            false,
        ),
        (
            "empty range",
            over("z", compare("x", Equal, Version(0))),
            true,
        ),
        (
            "empty range has no value",
            over("z", compare("x", Equal, Value("".into()))),
            false,
        ),
    ] {
        let request = TxnRequest {
            compare: vec![compare.clone()],
            success: ops([get_op("a")]),
            failure: ops([get_op("b"), get_op("a")]),
        };
        let response = run(&mut clients, request).await;
        assert_eq!(response.succeeded, expected, "{name}: {compare:?}");
        assert_eq!(
            response.responses.len(),
            if expected { 1 } else { 2 },
            "{name}"
        );
    }
    // All conditions have to hold; without conditions a transaction succeeds.
    let both = |second| TxnRequest {
        compare: vec![
            compare("a", Equal, Version(2)),
            compare("b", Equal, Version(second)),
        ],
        ..TxnRequest::default()
    };
    assert!(run(&mut clients, both(1)).await.succeeded);
    assert!(!run(&mut clients, both(2)).await.succeeded);
    assert!(run(&mut clients, TxnRequest::default()).await.succeeded);
}

/// Every condition, nested ones included, is evaluated before any operation.
#[tokio::test]
async fn nested_txns_are_executed_in_one_revision() {
    let (_guard, _server, mut clients) = started(&[]).await;
    clients
        .kv
        .txn(txn([put_op("a", "1"), put_op("old", "1")]))
        .await
        .unwrap();
    let is = |key, value: &'static str| {
        compare(key, CompareResult::Equal, TargetUnion::Value(value.into()))
    };
    let inner = TxnRequest {
        compare: vec![is("a", "1")],
        success: ops([put_op("b", "inner saw the old a"), get_op("a")]),
        failure: ops([put_op("b", "inner saw the new a")]),
    };
    let outer = TxnRequest {
        compare: vec![is("a", "1")],
        success: ops([
            put_op("a", "2"),
            Op::RequestTxn(inner),
            put_op("c", "3"),
            delete_op("old"),
        ]),
        failure: Vec::new(),
    };
    let response = run(&mut clients, outer).await;
    assert!(response.succeeded);
    assert_eq!(revision(&response.header), 3);
    let Some(OpResponse::ResponseTxn(inner)) = &response.responses[1].response else {
        panic!("{response:?}");
    };
    assert!(inner.succeeded);
    let Some(OpResponse::ResponseRange(inner_read)) = &inner.responses[1].response else {
        panic!("{inner:?}");
    };
    assert_eq!(
        inner_read.kvs[0].value, "2",
        "reads see what was done before them"
    );
    let all = read(&mut clients, everything()).await;
    assert_eq!(keys(&all), ["a", "b", "c"]);
    assert!(all.kvs.iter().all(|kv| kv.mod_revision == 3));
    assert_eq!(all.kvs[1].value, "inner saw the old a");
}

/// A transaction that fails anywhere changes nothing.
#[tokio::test]
async fn refused_txn_changes_nothing() {
    let (_guard, _server, mut clients) = started(&[]).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    let bad_put = |request: PutRequest| Op::RequestPut(request);
    let nested = |op: Op| Op::RequestTxn(txn([op]));
    for (last, expected) in [
        (
            bad_put(PutRequest {
                lease: 99,
                ..put("x", "")
            }),
            EtcdError::LeaseNotFound,
        ),
        (
            bad_put(PutRequest {
                ignore_value: true,
                ..put("x", "")
            }),
            EtcdError::KeyNotFound,
        ),
        (
            bad_put(PutRequest {
                ignore_lease: true,
                ..put("x", "1")
            }),
            EtcdError::KeyNotFound,
        ),
        (
            Op::RequestRange(RangeRequest {
                revision: 100,
                ..get("a")
            }),
            EtcdError::FutureRevision,
        ),
        (
            nested(bad_put(PutRequest {
                lease: 99,
                ..put("x", "")
            })),
            EtcdError::LeaseNotFound,
        ),
    ] {
        let request = txn([put_op("a", "2"), last.clone()]);
        assert_eq!(
            refusal(clients.kv.txn(request).await),
            error(expected),
            "{last:?}"
        );
        let a = read(&mut clients, get("a")).await;
        assert_eq!(
            (&a.kvs[0].value[..], revision(&a.header)),
            (&b"1"[..], 2),
            "{last:?}"
        );
    }
}

/// Proves: K26
#[tokio::test]
async fn refused_requests_have_etcd_codes_and_texts() {
    let (_guard, _server, mut clients) = started(&["--max-txn-ops=4"]).await;
    for value in 0..10 {
        clients.kv.put(put("a", &value.to_string())).await.unwrap();
    }
    let compaction = CompactionRequest {
        revision: 5,
        physical: true,
    };
    clients.kv.compact(compaction).await.unwrap();

    for (request, expected) in [
        (get(""), EtcdError::EmptyKey),
        (
            RangeRequest {
                sort_order: 3,
                ..get("a")
            },
            EtcdError::InvalidSortOption,
        ),
        (
            RangeRequest {
                sort_target: 5,
                ..get("a")
            },
            EtcdError::InvalidSortOption,
        ),
        (
            RangeRequest {
                sort_order: -1,
                ..get("a")
            },
            EtcdError::InvalidSortOption,
        ),
        (
            RangeRequest {
                revision: 4,
                ..get("a")
            },
            EtcdError::Compacted,
        ),
        (
            RangeRequest {
                revision: 12,
                ..get("a")
            },
            EtcdError::FutureRevision,
        ),
        (
            RangeRequest {
                revision: 12,
                serializable: true,
                ..get("a")
            },
            EtcdError::FutureRevision,
        ),
    ] {
        let told = format!("{request:?}");
        assert_eq!(
            refusal(clients.kv.range(request).await),
            error(expected),
            "{told}"
        );
    }
    assert_eq!(
        read(
            &mut clients,
            RangeRequest {
                revision: 5,
                ..get("a")
            }
        )
        .await
        .count,
        1
    );

    for (request, expected) in [
        (put("", "1"), EtcdError::EmptyKey),
        (
            PutRequest {
                ignore_value: true,
                ..put("a", "1")
            },
            EtcdError::ValueProvided,
        ),
        (
            PutRequest {
                ignore_lease: true,
                lease: 1,
                ..put("a", "1")
            },
            EtcdError::LeaseProvided,
        ),
        (
            PutRequest {
                ignore_value: true,
                ..put("x", "")
            },
            EtcdError::KeyNotFound,
        ),
        (
            PutRequest {
                ignore_lease: true,
                ..put("x", "1")
            },
            EtcdError::KeyNotFound,
        ),
        (
            PutRequest {
                lease: 99,
                ..put("x", "1")
            },
            EtcdError::LeaseNotFound,
        ),
        (put("a", &"v".repeat(1_572_864)), EtcdError::RequestTooLarge),
    ] {
        let told = format!("{:?} {}", request.key, expected.text());
        assert_eq!(
            refusal(clients.kv.put(request).await),
            error(expected),
            "{told}"
        );
    }
    assert_eq!(
        refusal(clients.kv.delete_range(delete("")).await),
        error(EtcdError::EmptyKey)
    );

    let puts = |count: usize| -> Vec<RequestOp> {
        let op = |n| RequestOp {
            request: Some(put_op(&format!("k{n}"), "")),
        };
        (0..count).map(op).collect()
    };
    let delete_range = |key: &'static str, end: &'static str| {
        Op::RequestDeleteRange(DeleteRangeRequest {
            key: key.into(),
            range_end: end.into(),
            prev_kv: false,
        })
    };
    let deep = |count| TxnRequest {
        success: puts(count),
        ..TxnRequest::default()
    };
    for (name, request, expected) in [
        ("too many", deep(5), Some(EtcdError::TooManyOps)),
        ("just enough", deep(4), None),
        (
            "too many otherwise",
            TxnRequest {
                failure: puts(5),
                ..TxnRequest::default()
            },
            Some(EtcdError::TooManyOps),
        ),
        (
            "too many nested",
            txn([Op::RequestTxn(deep(4))]),
            Some(EtcdError::TooManyOps),
        ),
        ("enough nested", txn([Op::RequestTxn(deep(3))]), None),
        (
            "put twice",
            txn([put_op("a", ""), put_op("a", "")]),
            Some(EtcdError::DuplicateKey),
        ),
        (
            "put in a deleted range",
            txn([put_op("b", ""), delete_range("a", "c")]),
            Some(EtcdError::DuplicateKey),
        ),
        (
            "deleted twice",
            txn([delete_range("a", "c"), delete_range("b", "d")]),
            None,
        ),
        (
            "nested put twice",
            txn([put_op("a", ""), Op::RequestTxn(txn([put_op("a", "")]))]),
            Some(EtcdError::DuplicateKey),
        ),
        (
            "in both branches",
            TxnRequest {
                success: ops([put_op("a", "")]),
                failure: ops([put_op("a", "")]),
                ..TxnRequest::default()
            },
            None,
        ),
        (
            "compare without key",
            TxnRequest {
                compare: vec![compare("", CompareResult::Equal, TargetUnion::Version(0))],
                ..TxnRequest::default()
            },
            Some(EtcdError::EmptyKey),
        ),
        (
            "range without key",
            txn([get_op("")]),
            Some(EtcdError::EmptyKey),
        ),
        (
            "put without key",
            txn([put_op("", "")]),
            Some(EtcdError::EmptyKey),
        ),
        (
            "delete without key",
            txn([delete_op("")]),
            Some(EtcdError::EmptyKey),
        ),
        (
            "nothing to do",
            TxnRequest {
                success: vec![RequestOp { request: None }],
                ..TxnRequest::default()
            },
            Some(EtcdError::KeyNotFound),
        ),
        (
            "read the past",
            txn([Op::RequestRange(RangeRequest {
                revision: 4,
                ..get("a")
            })]),
            Some(EtcdError::Compacted),
        ),
        (
            "read the future",
            txn([Op::RequestRange(RangeRequest {
                revision: 1000,
                ..get("a")
            })]),
            Some(EtcdError::FutureRevision),
        ),
    ] {
        match (clients.kv.txn(request).await, expected) {
            (Ok(_), None) => {}
            (Ok(response), Some(_)) => panic!("{name}: {response:?}"),
            (Err(status), expected) => {
                let found = (status.code(), status.message().to_owned());
                assert_eq!(Some(found), expected.map(error), "{name}");
            }
        }
    }

    for (at, expected) in [
        (5, EtcdError::Compacted),
        (3, EtcdError::Compacted),
        (0, EtcdError::Compacted),
        (1000, EtcdError::FutureRevision),
    ] {
        let request = CompactionRequest {
            revision: at,
            physical: false,
        };
        assert_eq!(
            refusal(clients.kv.compact(request).await),
            error(expected),
            "{at}"
        );
    }
}

/// A message beyond the limit of the transport is refused as well, as by Go's library, and the
/// member continues.
#[tokio::test]
async fn message_above_the_transport_limit_is_refused() {
    let (_guard, _server, mut clients) = started(&["--max-request-bytes=1000"]).await;
    let huge = put("a", &"v".repeat(600_000));
    let bytes = prost::Message::encoded_len(&huge);
    let text = format!("grpc: received message larger than max ({bytes} vs. 525288)");
    assert_eq!(
        refusal(clients.kv.put(huge).await),
        (Code::ResourceExhausted, text)
    );
    clients.kv.put(put("a", "1")).await.unwrap();
    assert_eq!(read(&mut clients, everything()).await.count, 1);
}

/// A compaction removes history, not keys; reading at its revision still works.
#[tokio::test]
async fn compaction_keeps_current_versions() {
    let (_guard, _server, mut clients) = started(&["--compaction-batch-limit=7"]).await;
    for number in 0..50 {
        clients
            .kv
            .put(put(&format!("k{}", number % 5), &number.to_string()))
            .await
            .unwrap();
    }
    clients.kv.delete_range(delete("k0")).await.unwrap();
    let at = |revision| RangeRequest {
        revision,
        ..everything()
    };
    let before = [30, 40, 51, 52].map(at);
    let mut expected = Vec::new();
    for request in &before {
        expected.push(read(&mut clients, request.clone()).await.kvs);
    }
    let request = CompactionRequest {
        revision: 30,
        physical: true,
    };
    let response = clients.kv.compact(request).await.unwrap().into_inner();
    assert_eq!(revision(&response.header), 52);
    for (request, expected) in before.iter().zip(expected) {
        assert_eq!(
            read(&mut clients, request.clone()).await.kvs,
            expected,
            "{request:?}"
        );
    }
    assert_eq!(
        refusal(clients.kv.range(at(29)).await),
        error(EtcdError::Compacted)
    );
}
