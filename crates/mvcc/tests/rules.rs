//! The rules of sections 2.1 to 2.4 and 2.8 of the specification, one by one.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use portunus_mvcc::{
    Applied, Config, EntryId, EventKind, Hooks, KeyRange, RangeResults, ReadError, Store,
    backend::MemoryBackend,
    rules::{
        quota,
        txn::{is_read_only, is_serializable},
        validate,
    },
};
use portunus_proto::Term;
use portunus_proto::{
    EtcdError, LeaseId,
    etcdserverpb::{
        CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse,
        RequestOp, TxnRequest, TxnResponse,
        compare::{CompareResult, CompareTarget, TargetUnion},
        range_request::{SortOrder, SortTarget},
        request_op::Request,
        response_op::Response,
    },
};

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Lease 5 exists, no other.
fn lease_exists(lease: LeaseId) -> bool {
    lease == LeaseId(5)
}

struct Harness {
    store: Store,
    index: u64,
}

impl Harness {
    fn new() -> Self {
        let backend = Arc::new(MemoryBackend::new());
        let config = Config {
            commit_interval: Duration::from_millis(1),
            ..Config::default()
        };
        let (store, _) = Store::open(backend, config, Hooks::default()).unwrap();
        Self { store, index: 0 }
    }

    fn apply<R>(&mut self, run: impl FnOnce(&mut Store) -> R) -> R {
        self.index += 1;
        let id = EntryId {
            index: self.index,
            term: Term(1),
        };
        self.store.begin(id).unwrap();
        let result = run(&mut self.store);
        self.store.end().unwrap();
        result
    }

    fn put(&mut self, key: &str, value: &str) -> i64 {
        let request = put(key, value);
        let applied = self
            .apply(|store| store.put(&request, &lease_exists))
            .unwrap();
        applied.response.header.unwrap().revision
    }

    fn delete(&mut self, key: &str, range_end: &str) -> (i64, i64) {
        let request = delete(key, range_end);
        let response = self
            .apply(|store| store.delete_range(&request))
            .unwrap()
            .response;
        (response.deleted, response.header.unwrap().revision)
    }

    fn txn(&mut self, request: &TxnRequest) -> Result<Applied<TxnResponse>, EtcdError> {
        self.apply(|store| store.txn(request, &lease_exists, RangeResults::Wanted))
            .map_err(|error| error.refusal().unwrap())
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.store
            .reader()
            .range(request)
            .map_err(|error| match error {
                ReadError::Refused(refusal) => refusal,
                other => panic!("{other}"),
            })
    }

    fn compact(&mut self, revision: i64) -> Result<i64, EtcdError> {
        let request = CompactionRequest {
            revision,
            physical: false,
        };
        self.apply(|store| store.compact(&request))
            .map(|response| response.header.unwrap().revision)
            .map_err(|error| error.refusal().unwrap())
    }
}

fn put(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: bytes(key),
        value: bytes(value),
        ..PutRequest::default()
    }
}

fn delete(key: &str, range_end: &str) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: bytes(key),
        range_end: bytes(range_end),
        prev_kv: false,
    }
}

fn range(key: &str, range_end: &str) -> RangeRequest {
    RangeRequest {
        key: bytes(key),
        range_end: bytes(range_end),
        ..RangeRequest::default()
    }
}

fn all() -> RangeRequest {
    range("\0", "\0")
}

fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

fn put_op(key: &str, value: &str) -> RequestOp {
    op(Request::RequestPut(put(key, value)))
}

fn delete_op(key: &str, range_end: &str) -> RequestOp {
    op(Request::RequestDeleteRange(delete(key, range_end)))
}

fn range_op(request: RangeRequest) -> RequestOp {
    op(Request::RequestRange(request))
}

fn txn_op(request: TxnRequest) -> RequestOp {
    op(Request::RequestTxn(request))
}

fn success(ops: impl Into<Vec<RequestOp>>) -> TxnRequest {
    TxnRequest {
        success: ops.into(),
        ..TxnRequest::default()
    }
}

fn compare(key: &str, result: CompareResult, union: TargetUnion) -> Compare {
    let target = match union {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    Compare {
        result: result as i32,
        target: target as i32,
        key: bytes(key),
        target_union: Some(union),
        ..Compare::default()
    }
}

fn keys(response: &RangeResponse) -> Vec<String> {
    let text = |key: &Bytes| String::from_utf8(key.to_vec()).unwrap();
    response.kvs.iter().map(|kv| text(&kv.key)).collect()
}

mod revisions {
    use super::*;

    #[test]
    fn revision_advances_only_on_changes() {
        let mut store = Harness::new();
        assert_eq!(store.delete("a", ""), (0, 1), "nothing there");
        assert_eq!(store.put("a", "1"), 2);
        assert_eq!(store.put("a", "1"), 3, "an identical value is a change");
        assert_eq!(store.delete("a", ""), (1, 4));
        assert_eq!(store.delete("a", ""), (0, 4));
        let read_only = store.txn(&success([range_op(all())])).unwrap();
        assert_eq!(read_only.events, None);
        assert_eq!(read_only.response.header.unwrap().revision, 4);
        let no_effect = store.txn(&success([delete_op("a", "")])).unwrap();
        assert_eq!(no_effect.events, None);
    }

    #[test]
    fn recreated_key_starts_at_version_one() {
        let mut store = Harness::new();
        store.put("a", "1");
        store.put("a", "2");
        store.delete("a", "");
        store.put("a", "3");
        let kv = store.range(&range("a", "")).unwrap().kvs.remove(0);
        assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (5, 5, 1));
    }

    #[test]
    fn changes_of_a_txn_share_the_main_revision_and_count_sub_revisions() {
        let mut store = Harness::new();
        store.put("x", "");
        let nested = success([put_op("b", ""), delete_op("x", "")]);
        let request = success([put_op("a", ""), txn_op(nested), put_op("c", "")]);
        let applied = store.txn(&request).unwrap();
        let events = applied.events.unwrap();
        assert_eq!(events.revision, 3);
        let seen: Vec<_> = events
            .events
            .iter()
            .map(|event| (event.kind(), event.kv().key.clone()))
            .collect();
        assert_eq!(
            seen,
            [
                (EventKind::Put, bytes("a")),
                (EventKind::Put, bytes("b")),
                (EventKind::Delete, bytes("x")),
                (EventKind::Put, bytes("c")),
            ]
        );
    }

    #[test]
    fn headers_inside_a_txn_carry_the_revision_of_their_operation() {
        let mut store = Harness::new();
        store.put("a", "1");
        let request = success([
            range_op(all()),
            put_op("b", ""),
            range_op(all()),
            txn_op(success([range_op(all())])),
        ]);
        let response = store.txn(&request).unwrap().response;
        let revisions: Vec<_> = response
            .responses
            .iter()
            .map(|op| match op.response.as_ref().unwrap() {
                Response::ResponseRange(r) => r.header.unwrap().revision,
                Response::ResponsePut(r) => r.header.unwrap().revision,
                Response::ResponseDeleteRange(r) => r.header.unwrap().revision,
                Response::ResponseTxn(r) => r.header.unwrap().revision,
            })
            .collect();
        assert_eq!(
            revisions,
            [2, 3, 3, 0],
            "the header of a nested txn is empty"
        );
        assert_eq!(response.header.unwrap().revision, 3);
    }
}

mod ranges {
    use super::*;

    fn abc() -> Harness {
        let mut store = Harness::new();
        store.put("a", "3");
        store.put("b", "1");
        store.put("c", "2");
        store.put("a", "3");
        store
    }

    #[test]
    fn range_end_selects_a_key_an_interval_or_all_keys() {
        let store = abc();
        let cases: [(&str, &str, &[&str]); 8] = [
            ("a", "", &["a"]),
            ("a", "c", &["a", "b"]),
            ("b", "\0", &["b", "c"]),
            ("\0", "\0", &["a", "b", "c"]),
            ("aa", "", &[]),
            ("c", "a", &[]),
            ("b", "b", &[]),
            ("a\0", "b\0", &["b"]),
        ];
        for (key, range_end, expected) in cases {
            let response = store.range(&range(key, range_end)).unwrap();
            assert_eq!(keys(&response), expected, "[{key:?}, {range_end:?})");
            let named = KeyRange::new(&bytes(key), &bytes(range_end));
            let contained: Vec<_> = ["a", "b", "c"]
                .into_iter()
                .filter(|key| named.contains(key.as_bytes()))
                .collect();
            assert_eq!(contained, expected);
        }
    }

    #[test]
    fn range_refuses_compacted_and_future_revisions() {
        let mut store = abc();
        store.compact(3).unwrap();
        let at = |revision| RangeRequest {
            revision,
            ..range("a", "")
        };
        let cases = [
            (-7, Ok(5)),
            (0, Ok(5)),
            (2, Err(EtcdError::Compacted)),
            (3, Ok(2)),
            (5, Ok(5)),
            (6, Err(EtcdError::FutureRevision)),
        ];
        for (revision, expected) in cases {
            let response = store.range(&at(revision));
            let found = response.map(|response| {
                assert_eq!(response.header.unwrap().revision, 5, "always the newest");
                response.kvs[0].mod_revision
            });
            assert_eq!(found, expected, "at {revision}");
        }
    }

    #[test]
    fn limit_sets_more_and_keeps_the_total_count() {
        let store = abc();
        // (limit, keys, more)
        for (limit, expected, more) in [(0, 3, false), (-1, 3, false), (2, 2, true), (3, 3, false)]
        {
            let response = store.range(&RangeRequest { limit, ..all() }).unwrap();
            assert_eq!(
                (response.kvs.len(), response.more),
                (expected, more),
                "{limit}"
            );
            assert_eq!(response.count, 3, "independent of the limit");
        }
        let counted = store
            .range(&RangeRequest {
                count_only: true,
                limit: 1,
                ..all()
            })
            .unwrap();
        assert_eq!(
            (counted.kvs.len(), counted.more, counted.count),
            (0, false, 3)
        );
    }

    #[test]
    fn filters_are_inclusive_and_do_not_change_the_count() {
        let store = abc();
        let request = RangeRequest {
            min_mod_revision: 4,
            max_mod_revision: 5,
            max_create_revision: 2,
            min_create_revision: 2,
            ..all()
        };
        let response = store.range(&request).unwrap();
        assert_eq!((keys(&response), response.count), (vec!["a".into()], 3));
        let limited = RangeRequest {
            min_mod_revision: 4,
            limit: 1,
            ..all()
        };
        let response = store.range(&limited).unwrap();
        assert_eq!((keys(&response), response.more), (vec!["a".into()], true));
    }

    #[test]
    fn range_sorts_by_every_target_and_order() {
        let store = abc();
        let cases: [(SortTarget, SortOrder, [&str; 3]); 6] = [
            (SortTarget::Key, SortOrder::Descend, ["c", "b", "a"]),
            (SortTarget::Value, SortOrder::Ascend, ["b", "c", "a"]),
            (SortTarget::Mod, SortOrder::Ascend, ["b", "c", "a"]),
            (SortTarget::Create, SortOrder::Descend, ["c", "b", "a"]),
            (SortTarget::Version, SortOrder::Descend, ["a", "b", "c"]),
            (SortTarget::Key, SortOrder::Ascend, ["a", "b", "c"]),
        ];
        for (target, order, expected) in cases {
            let request = RangeRequest {
                sort_target: target as i32,
                sort_order: order as i32,
                ..all()
            };
            assert_eq!(keys(&store.range(&request).unwrap()), expected);
            let limited = RangeRequest {
                limit: 2,
                ..request
            };
            let response = store.range(&limited).unwrap();
            assert_eq!(keys(&response), expected[..2], "all are sorted, then cut");
            assert!(response.more);
        }
    }

    #[test]
    fn sort_target_without_order_is_sorted_after_the_limit() {
        let store = abc();
        let request = RangeRequest {
            sort_target: SortTarget::Value as i32,
            limit: 1,
            ..all()
        };
        let response = store.range(&request).unwrap();
        assert_eq!(
            keys(&response),
            ["b"],
            "the smaller of the first two by key"
        );
        assert!(response.more);
    }

    #[test]
    fn keys_only_drops_the_lease_unless_values_were_read_for_sorting() {
        let mut store = Harness::new();
        let leased = PutRequest {
            lease: 5,
            ..put("a", "1")
        };
        let _ = store.apply(|s| s.put(&leased, &lease_exists)).unwrap();
        let request = RangeRequest {
            keys_only: true,
            ..all()
        };
        let kv = store.range(&request).unwrap().kvs.remove(0);
        assert_eq!((kv.value.len(), kv.lease, kv.version), (0, 0, 1));
        let by_value = RangeRequest {
            sort_target: SortTarget::Value as i32,
            ..request
        };
        let kv = store.range(&by_value).unwrap().kvs.remove(0);
        assert_eq!((kv.value.len(), kv.lease), (0, 5));
    }

    #[test]
    fn range_stream_reads_at_the_revision_of_its_first_piece() {
        let mut store = Harness::new();
        for number in 0..25 {
            store.put(&format!("k{number:02}"), "v");
        }
        let reader = store.store.reader();
        let mut stream = reader.range_stream(&all(), 1 << 20).unwrap();
        let first = stream.next().unwrap().unwrap();
        assert_eq!((first.kvs.len(), first.header, first.count), (10, None, 0));
        store.put("k00a", "late");
        store.put("k24", "late");
        let rest: Vec<_> = stream.map(Result::unwrap).collect();
        let last = rest.last().unwrap();
        assert_eq!(last.header.unwrap().revision, 26);
        assert_eq!((last.count, last.more), (25, false));
        let late = rest
            .iter()
            .flat_map(|piece| &piece.kvs)
            .any(|kv| kv.value == "late");
        assert!(!late);
    }

    /// As in etcd: each piece is sorted separately, and the next begins after its last key.
    #[test]
    fn range_stream_with_a_target_and_no_order_sorts_each_piece() {
        let mut harness = Harness::new();
        for key in ["a", "b", "c", "d"] {
            harness.put(key, "");
        }
        for key in ["c", "a"] {
            harness.put(key, "");
        }
        let request = RangeRequest {
            sort_target: SortTarget::Mod as i32,
            ..all()
        };
        let keys = |request: &RangeRequest| -> Vec<Bytes> {
            let stream = harness.store.reader().range_stream(request, 1 << 20);
            let pieces = stream.unwrap().map(Result::unwrap);
            pieces
                .flat_map(|piece| piece.kvs)
                .map(|kv| kv.key)
                .collect()
        };
        assert_eq!(keys(&request), ["b", "d", "c", "a"]);
        // Keys a, b and c are read; sorted they are b, c, a, and the limit drops a.
        let limited = RangeRequest {
            limit: 2,
            ..request
        };
        assert_eq!(keys(&limited), ["b", "c"]);
    }

    #[test]
    fn compaction_ends_a_range_stream() {
        let mut store = Harness::new();
        for number in 0..25 {
            store.put(&format!("k{number:02}"), "v");
        }
        let reader = store.store.reader();
        let mut stream = reader.range_stream(&all(), 1 << 20).unwrap();
        stream.next().unwrap().unwrap();
        let newest = store.put("z", "");
        store.compact(newest).unwrap();
        let refused = stream.next().unwrap();
        assert!(matches!(
            refused,
            Err(ReadError::Refused(EtcdError::Compacted))
        ));
        assert!(stream.next().is_none());
    }
}

mod writes {
    use super::*;

    fn refused(store: &mut Harness, request: &PutRequest) -> Option<EtcdError> {
        let result = store.apply(|s| s.put(request, &lease_exists));
        result.err().map(|error| error.refusal().unwrap())
    }

    #[test]
    fn ignore_value_and_ignore_lease_need_an_existing_key() {
        let mut store = Harness::new();
        let ignore_value = PutRequest {
            ignore_value: true,
            lease: 5,
            ..put("a", "")
        };
        let ignore_lease = PutRequest {
            ignore_lease: true,
            ..put("a", "new")
        };
        assert_eq!(
            refused(&mut store, &ignore_value),
            Some(EtcdError::KeyNotFound)
        );
        assert_eq!(
            refused(&mut store, &ignore_lease),
            Some(EtcdError::KeyNotFound)
        );
        assert_eq!(store.store.revision(), 1, "a refusal takes no revision");
        store.put("a", "old");
        assert_eq!(refused(&mut store, &ignore_value), None);
        let kv = store.range(&range("a", "")).unwrap().kvs.remove(0);
        assert_eq!((&kv.value[..], kv.lease), (&b"old"[..], 5));
        assert_eq!(refused(&mut store, &ignore_lease), None);
        let kv = store.range(&range("a", "")).unwrap().kvs.remove(0);
        assert_eq!((&kv.value[..], kv.lease), (&b"new"[..], 5));
    }

    #[test]
    fn put_needs_an_existing_lease_and_zero_detaches() {
        let mut store = Harness::new();
        let with_lease = |lease| PutRequest {
            lease,
            ..put("a", "")
        };
        assert_eq!(
            refused(&mut store, &with_lease(6)),
            Some(EtcdError::LeaseNotFound)
        );
        assert_eq!(refused(&mut store, &with_lease(5)), None);
        assert_eq!(store.store.reader().keys_of(LeaseId(5)), [bytes("a")]);
        assert_eq!(refused(&mut store, &with_lease(0)), None);
        assert!(store.store.reader().keys_of(LeaseId(5)).is_empty());
    }

    #[test]
    fn revoking_removes_keys_in_byte_order_in_one_revision() {
        let mut store = Harness::new();
        for key in ["b", "a\0", "c", "a"] {
            let request = PutRequest {
                lease: 5,
                ..put(key, "")
            };
            let _ = store.apply(|s| s.put(&request, &lease_exists)).unwrap();
        }
        store.put("c", "detached");
        let events = store
            .apply(|s| s.revoke_lease(LeaseId(5)))
            .unwrap()
            .unwrap();
        assert_eq!(events.revision, 7);
        let removed: Vec<_> = events.events.iter().map(|e| e.kv().key.clone()).collect();
        assert_eq!(removed, [bytes("a"), bytes("a\0"), bytes("b")]);
        let nothing = store.apply(|s| s.revoke_lease(LeaseId(5))).unwrap();
        assert_eq!(nothing, None, "no keys, no revision");
    }

    #[test]
    fn previous_versions_are_those_before_the_operation() {
        let mut store = Harness::new();
        store.put("a", "0");
        let with_prev = |value| {
            op(Request::RequestPut(PutRequest {
                prev_kv: true,
                ..put("a", value)
            }))
        };
        let delete_with_prev = op(Request::RequestDeleteRange(DeleteRangeRequest {
            prev_kv: true,
            ..delete("a", "")
        }));
        let request = success([with_prev("1"), delete_with_prev]);
        let applied = store.txn(&request).unwrap();
        let [first, second] = &applied.response.responses[..] else {
            panic!("two answers");
        };
        let Some(Response::ResponsePut(first)) = &first.response else {
            panic!("{first:?}");
        };
        let Some(Response::ResponseDeleteRange(second)) = &second.response else {
            panic!("{second:?}");
        };
        assert_eq!(first.prev_kv.as_ref().unwrap().value, "0");
        assert_eq!(second.prev_kvs[0].value, "1", "as the transaction sees it");
        // Watchers compare with the state before the revision.
        let reader = store.store.reader();
        for event in &applied.events.unwrap().events {
            assert_eq!(reader.prev_kv(event).unwrap().unwrap().value, "0");
        }
    }
}

mod transactions {
    use super::*;

    #[test]
    fn compare_evaluates_every_target_and_result() {
        use CompareResult::{Equal, Greater, Less, NotEqual};
        use TargetUnion::{CreateRevision, Lease, ModRevision, Value, Version};
        let mut store = Harness::new();
        store.put("a", "1");
        store.put("a", "2");
        store.put("b", "2");
        let value = |text: &str| Value(bytes(text));
        let ranged = |mut compare: Compare| {
            compare.range_end = bytes("z");
            compare
        };
        let unknown_result = |mut compare: Compare| {
            compare.result = 77;
            compare
        };
        let cases = [
            (compare("a", Equal, Version(2)), true),
            (compare("a", Equal, CreateRevision(2)), true),
            (compare("a", Greater, ModRevision(2)), true),
            (compare("a", Less, ModRevision(3)), false),
            (compare("a", NotEqual, value("2")), false),
            (compare("a", Equal, Lease(0)), true),
            // A missing key is all zeros and has no value at all.
            (compare("x", Equal, ModRevision(0)), true),
            (compare("x", Equal, value("")), false),
            (compare("x", NotEqual, value("something")), false),
            // With a range every key must hold.
            (ranged(compare("a", Equal, value("2"))), true),
            (ranged(compare("a", Equal, Version(2))), false),
            (ranged(compare("x", Equal, Version(0))), true),
            (ranged(compare("x", NotEqual, value("1"))), false),
            (unknown_result(compare("a", Equal, Version(99))), true),
        ];
        for (compare, expected) in cases {
            let request = TxnRequest {
                compare: vec![compare.clone()],
                ..TxnRequest::default()
            };
            let response = store.txn(&request).unwrap().response;
            assert_eq!(response.succeeded, expected, "{compare:?}");
        }
    }

    #[test]
    fn nested_branches_are_chosen_before_anything_runs() {
        let mut store = Harness::new();
        let nested = TxnRequest {
            compare: vec![compare(
                "a",
                CompareResult::Greater,
                TargetUnion::Version(0),
            )],
            success: vec![put_op("then", "")],
            failure: vec![put_op("else", "")],
        };
        let request = success([put_op("a", ""), txn_op(nested)]);
        store.txn(&request).unwrap().events.unwrap();
        assert_eq!(keys(&store.range(&all()).unwrap()), ["a", "else"]);
    }

    #[test]
    fn failing_check_on_the_taken_path_refuses_the_transaction() {
        let mut store = Harness::new();
        store.put("a", "1");
        store.put("a", "2");
        store.compact(3).unwrap();
        let at = |revision| {
            range_op(RangeRequest {
                revision,
                ..range("a", "")
            })
        };
        let leased = |lease| {
            op(Request::RequestPut(PutRequest {
                lease,
                ..put("l", "")
            }))
        };
        let ignoring = op(Request::RequestPut(PutRequest {
            ignore_value: true,
            ..put("missing", "")
        }));
        let cases = [
            (at(2), Some(EtcdError::Compacted)),
            (at(4), Some(EtcdError::FutureRevision)),
            (at(-1), Some(EtcdError::Compacted)),
            (at(3), None),
            (at(0), None),
            (leased(6), Some(EtcdError::LeaseNotFound)),
            (leased(5), None),
            (ignoring, Some(EtcdError::KeyNotFound)),
        ];
        for (last, expected) in cases {
            let before = store.store.revision();
            let nested = txn_op(success([last.clone()]));
            let refused = store.txn(&success([put_op("b", ""), nested])).err();
            assert_eq!(refused, expected, "{last:?}");
            let took_revision = store.store.revision() > before;
            assert_eq!(took_revision, expected.is_none());
            if expected.is_some() {
                let not_taken = TxnRequest {
                    failure: vec![last],
                    ..TxnRequest::default()
                };
                assert!(store.txn(&not_taken).is_ok(), "the branch is not taken");
            }
            store.delete("b", "");
        }
    }

    /// etcd accepts such a transaction and then panics on every member.
    #[test]
    fn put_that_keeps_a_value_deleted_by_the_transaction_is_refused() {
        let keeping = |change: fn(&mut PutRequest)| {
            let mut request = put("b", "");
            change(&mut request);
            op(Request::RequestPut(request))
        };
        let keep_value = keeping(|put| put.ignore_value = true);
        let keep_lease = keeping(|put| put.ignore_lease = true);
        let all_from_a = delete_op("a", "\0");
        let nested = |ops: Vec<RequestOp>| txn_op(success(ops));
        let missing = Some(EtcdError::KeyNotFound);
        for (ops, expected) in [
            (vec![all_from_a.clone(), keep_value.clone()], missing),
            (vec![all_from_a.clone(), keep_lease.clone()], missing),
            (
                vec![nested(vec![all_from_a.clone()]), keep_value.clone()],
                missing,
            ),
            (
                vec![all_from_a.clone(), nested(vec![keep_value.clone()])],
                missing,
            ),
            (vec![keep_value.clone(), all_from_a.clone()], None),
            (vec![delete_op("c", "\0"), keep_value.clone()], None),
            (vec![all_from_a.clone(), put_op("b", "new")], None),
        ] {
            let mut store = Harness::new();
            store.put("b", "old");
            let request = success(ops);
            assert_eq!(validate::txn(&request, 128), Ok(()), "{request:?}");
            let before = store.store.revision();
            assert_eq!(store.txn(&request).err(), expected, "{request:?}");
            if expected.is_some() {
                assert_eq!(store.store.revision(), before, "{request:?}");
                assert_eq!(keys(&store.range(&all()).unwrap()), ["b"]);
            }
        }
    }

    #[test]
    fn unwanted_ranges_are_checked_but_not_executed() {
        let mut store = Harness::new();
        store.put("a", "1");
        let unwanted = |store: &mut Harness, request: &TxnRequest| {
            store.apply(|s| s.txn(request, &lease_exists, RangeResults::Unwanted))
        };
        let request = success([put_op("b", ""), range_op(all())]);
        let response = unwanted(&mut store, &request).unwrap().response;
        let Some(Response::ResponseRange(skipped)) = &response.responses[1].response else {
            panic!("{response:?}");
        };
        assert_eq!((skipped.header.unwrap().revision, skipped.count), (3, 0));
        let future = RangeRequest {
            revision: 99,
            ..all()
        };
        let refused = unwanted(&mut store, &success([put_op("b", ""), range_op(future)]));
        assert_eq!(
            refused.unwrap_err().refusal(),
            Some(EtcdError::FutureRevision)
        );
    }

    #[test]
    fn transactions_are_classified_as_read_only_and_serializable() {
        let serializable = range_op(RangeRequest {
            serializable: true,
            ..all()
        });
        let nested = txn_op(success([serializable.clone()]));
        let cases = [
            (success([]), true, true),
            (success([serializable.clone()]), true, true),
            (success([range_op(all())]), true, false),
            (success([serializable, put_op("a", "")]), false, false),
            (success([nested]), false, false),
        ];
        for (request, read_only, local) in cases {
            assert_eq!(is_read_only(&request), read_only, "{request:?}");
            assert_eq!(is_serializable(&request), local, "{request:?}");
        }
    }
}

mod the_edge {
    use super::*;

    #[test]
    fn validation_checks_single_requests() {
        use EtcdError::{EmptyKey, InvalidSortOption, LeaseProvided, ValueProvided};
        assert_eq!(validate::range(&range("", "")), Err(EmptyKey));
        let odd_order = RangeRequest {
            sort_order: 3,
            ..all()
        };
        let odd_target = RangeRequest {
            sort_target: 5,
            ..all()
        };
        assert_eq!(validate::range(&odd_order), Err(InvalidSortOption));
        assert_eq!(validate::range(&odd_target), Err(InvalidSortOption));
        assert_eq!(validate::put(&put("", "")), Err(EmptyKey));
        let with_value = PutRequest {
            ignore_value: true,
            ..put("a", "1")
        };
        let with_lease = PutRequest {
            ignore_lease: true,
            lease: 5,
            ..put("a", "1")
        };
        assert_eq!(validate::put(&with_value), Err(ValueProvided));
        assert_eq!(validate::put(&with_lease), Err(LeaseProvided));
        assert_eq!(validate::delete_range(&delete("", "z")), Err(EmptyKey));
    }

    #[test]
    fn validation_refuses_range_streams_not_in_key_order() {
        let descending = RangeRequest {
            sort_order: SortOrder::Descend as i32,
            ..all()
        };
        let filtered = RangeRequest {
            max_mod_revision: 3,
            ..all()
        };
        assert_eq!(validate::range_stream(&all()), Ok(()));
        assert_eq!(
            validate::range_stream(&descending),
            Err(EtcdError::RangeStreamSort)
        );
        assert_eq!(
            validate::range_stream(&filtered),
            Err(EtcdError::RangeStreamRevisionFilter)
        );
    }

    #[test]
    fn validation_limits_the_number_of_operations() {
        let ops =
            |count: usize| -> Vec<_> { (0..count).map(|n| put_op(&format!("{n}"), "")).collect() };
        let check = |request: &TxnRequest| validate::txn(request, 4);
        assert_eq!(check(&success(ops(4))), Ok(()));
        assert_eq!(check(&success(ops(5))), Err(EtcdError::TooManyOps));
        let compares = TxnRequest {
            compare: vec![compare("a", CompareResult::Equal, TargetUnion::Version(0)); 5],
            ..TxnRequest::default()
        };
        assert_eq!(check(&compares), Err(EtcdError::TooManyOps));
        // Branches are counted separately, and a nested one gets the rest of the limit.
        let both = TxnRequest {
            success: ops(4),
            failure: ops(4),
            ..TxnRequest::default()
        };
        assert_eq!(check(&both), Ok(()));
        let nested = |count| success([txn_op(success(ops(count)))]);
        assert_eq!(check(&nested(3)), Ok(()));
        assert_eq!(check(&nested(4)), Err(EtcdError::TooManyOps));
    }

    /// A put, with this many transactions around the one it is in.
    fn nested(depth: usize) -> TxnRequest {
        let mut txn = success([put_op("nested", "v")]);
        for _ in 0..depth {
            txn = success([txn_op(txn)]);
        }
        txn
    }

    /// etcd 3.7 accepts 4998 with a put in the innermost, 4999 if that is empty.
    #[test]
    fn validation_limits_the_depth_of_transactions() {
        let check = |request: &TxnRequest| validate::txn(request, usize::MAX);
        assert_eq!(check(&nested(4998)), Ok(()));
        assert_eq!(check(&nested(4999)), Err(EtcdError::TooManyOps));
        let empty_inside =
            |depth: usize| (0..depth).fold(TxnRequest::default(), |txn, _| success([txn_op(txn)]));
        assert_eq!(check(&empty_inside(4999)), Ok(()));
        assert_eq!(check(&empty_inside(5000)), Err(EtcdError::TooManyOps));
    }

    /// An etcd 3.5 member does not limit the depth, so a log may hold any.
    #[test]
    fn transaction_of_any_depth_is_handled_on_a_small_stack() {
        const DEPTH: usize = 100_000;
        const STACK_BYTES: usize = 256 * 1024;
        let run = || {
            let request = nested(DEPTH);
            assert_eq!(
                validate::txn(&request, usize::MAX),
                Err(EtcdError::TooManyOps)
            );
            let put = put("nested", "v");
            let cost_bytes = quota::txn_cost_bytes(&request);
            assert_eq!(cost_bytes, quota::put_cost_bytes(&put));
            let mut harness = Harness::new();
            let applied = harness.txn(&request).unwrap();
            assert_eq!(applied.events.unwrap().events.len(), 1);
            let mut depth = 0;
            let mut response = &applied.response;
            while let Some(Response::ResponseTxn(inner)) = &response.responses[0].response {
                response = inner;
                depth += 1;
            }
            assert_eq!(depth, DEPTH);
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn(run).unwrap().join().unwrap();
    }

    /// Keys that are changed in branches which do not exclude each other, at any depth.
    #[test]
    fn duplicate_keys_are_found_at_any_depth() {
        let mut beside = nested(100);
        beside.success.push(put_op("nested", "w"));
        let check = |request: &TxnRequest| validate::txn(request, usize::MAX);
        assert_eq!(check(&beside), Err(EtcdError::DuplicateKey));
        let twice = success([txn_op(nested(100)), txn_op(nested(50))]);
        assert_eq!(check(&twice), Err(EtcdError::DuplicateKey));
        let either = TxnRequest {
            success: vec![txn_op(nested(100))],
            failure: vec![txn_op(nested(50))],
            ..TxnRequest::default()
        };
        assert_eq!(check(&success([txn_op(either)])), Ok(()));
    }

    #[test]
    fn operations_inside_a_txn_are_checked_like_single_ones() {
        let cases = [
            (RequestOp::default(), EtcdError::KeyNotFound),
            (put_op("", ""), EtcdError::EmptyKey),
            (delete_op("", ""), EtcdError::EmptyKey),
            (range_op(range("", "")), EtcdError::EmptyKey),
        ];
        for (bad, expected) in cases {
            let nested = success([txn_op(success([bad.clone()]))]);
            let failure = TxnRequest {
                failure: vec![bad.clone()],
                ..TxnRequest::default()
            };
            for request in [success([bad]), nested, failure] {
                assert_eq!(validate::txn(&request, 9), Err(expected));
            }
        }
        let no_key = TxnRequest {
            compare: vec![Compare::default()],
            ..TxnRequest::default()
        };
        assert_eq!(validate::txn(&no_key, 9), Err(EtcdError::EmptyKey));
    }

    #[test]
    fn branch_that_changes_a_key_twice_is_refused() {
        let branches = |then: RequestOp, otherwise: RequestOp| {
            txn_op(TxnRequest {
                success: vec![then],
                failure: vec![otherwise],
                ..TxnRequest::default()
            })
        };
        let nested = |ops: Vec<RequestOp>| txn_op(success(ops));
        let ok = Ok(());
        let duplicate = Err(EtcdError::DuplicateKey);
        let cases = [
            (vec![put_op("a", ""), put_op("b", "")], ok),
            (vec![put_op("a", ""), put_op("a", "")], duplicate),
            (vec![put_op("a", ""), delete_op("a", "")], duplicate),
            (vec![delete_op("a", "c"), put_op("b", "")], duplicate),
            (vec![delete_op("a", "c"), put_op("c", "")], ok),
            (
                vec![delete_op("a", "c"), delete_op("b", "d"), delete_op("a", "")],
                ok,
            ),
            (
                vec![delete_op("a", "c"), delete_op("b", "d"), put_op("c", "")],
                duplicate,
            ),
            // An open end is compared as bytes, so nothing is found inside.
            (vec![delete_op("a", "\0"), put_op("b", "")], ok),
            // Only one branch of a nested txn runs.
            (vec![branches(put_op("a", ""), put_op("a", ""))], ok),
            (vec![branches(put_op("a", ""), delete_op("a", ""))], ok),
            (
                vec![branches(put_op("a", ""), put_op("b", "")), put_op("b", "")],
                duplicate,
            ),
            // Siblings may not share keys.
            (
                vec![nested(vec![put_op("a", "")]), nested(vec![put_op("a", "")])],
                duplicate,
            ),
            (
                vec![nested(vec![put_op("a", "")]), delete_op("a", "")],
                duplicate,
            ),
            (
                vec![nested(vec![delete_op("a", "")]), put_op("a", "")],
                duplicate,
            ),
            (
                vec![
                    nested(vec![delete_op("a", "")]),
                    nested(vec![put_op("a", "")]),
                ],
                duplicate,
            ),
            // Only earlier deletes count, because etcd walks the branch in order.
            (
                vec![
                    nested(vec![put_op("a", "")]),
                    nested(vec![delete_op("a", "")]),
                ],
                ok,
            ),
        ];
        for (ops, expected) in cases {
            assert_eq!(
                validate::txn(&success(ops.clone()), 99),
                expected,
                "{ops:?}"
            );
            let failure = TxnRequest {
                failure: ops,
                ..TxnRequest::default()
            };
            assert_eq!(validate::txn(&failure, 99), expected);
        }
    }
}

mod compaction {
    use super::*;

    #[test]
    fn compact_refuses_compacted_and_future_revisions() {
        let mut store = Harness::new();
        for value in ["1", "2", "3"] {
            store.put("a", value);
        }
        assert_eq!(store.compact(5), Err(EtcdError::FutureRevision));
        assert_eq!(store.compact(3), Ok(4), "the newest revision, not its own");
        assert_eq!(store.compact(3), Err(EtcdError::Compacted), "a repeat");
        assert_eq!(store.compact(2), Err(EtcdError::Compacted));
        assert_eq!(store.compact(4), Ok(4));
    }

    #[test]
    fn compact_takes_no_revision_and_makes_no_event() {
        let mut store = Harness::new();
        let revision = store.put("a", "1");
        store.compact(revision).unwrap();
        assert_eq!(store.put("a", "2"), revision + 1);
    }
}

mod quotas {
    use super::*;

    #[test]
    fn quota_costs_of_requests() {
        assert_eq!(quota::put_cost_bytes(&put("key", "value")), 256 + 8);
        let nested = txn_op(success([put_op("a", "1"), put_op("b", "1")]));
        let request = TxnRequest {
            success: vec![put_op("a", "1"), delete_op("a", "z")],
            failure: vec![nested, put_op("c", "1")],
            ..TxnRequest::default()
        };
        assert_eq!(
            quota::txn_cost_bytes(&request),
            3 * 258,
            "the dearer branch"
        );
        assert_eq!(quota::txn_cost_bytes(&success([delete_op("a", "")])), 0);
    }

    #[test]
    fn request_without_cost_always_fits() {
        // (total, cost, quota, fits)
        let cases = [
            (90, 9, Some(100), true),
            (90, 10, Some(100), false),
            (500, 0, Some(100), true),
            (u64::MAX, 1, Some(u64::MAX), false),
            (500, 10, None, true),
        ];
        for (total, cost, quota, expected) in cases {
            assert_eq!(quota::fits(total, cost, quota), expected);
        }
    }
}
