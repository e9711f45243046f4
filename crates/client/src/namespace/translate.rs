//! Adds the prefix to requests and removes it from responses.

use bytes::{BufMut, Bytes, BytesMut};
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::response_op::Response;
use portunus_proto::etcdserverpb::{
    DeleteRangeRequest, RangeRequest, TxnRequest, TxnResponse, WatchCreateRequest,
};
use portunus_proto::mvccpb::KeyValue;

use crate::key_range::{END_OF_KEYS, prefix_end};

/// The prefix of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prefix(pub(super) Bytes);

impl Prefix {
    pub(super) fn add_to_key(&self, key: &mut Bytes) {
        let mut whole = BytesMut::with_capacity(self.0.len() + key.len());
        whole.put_slice(&self.0);
        whole.put_slice(key);
        *key = whole.freeze();
    }

    /// A range without an end ends with the namespace.
    fn add_to_interval(&self, key: &mut Bytes, range_end: &mut Bytes) {
        self.add_to_key(key);
        if range_end == END_OF_KEYS {
            *range_end = prefix_end(&self.0);
        } else if !range_end.is_empty() {
            self.add_to_key(range_end);
        }
    }

    pub(super) fn add_to_range(&self, range: &mut RangeRequest) {
        self.add_to_interval(&mut range.key, &mut range.range_end);
    }

    pub(super) fn add_to_delete(&self, delete: &mut DeleteRangeRequest) {
        self.add_to_interval(&mut delete.key, &mut delete.range_end);
    }

    pub(super) fn add_to_watch(&self, watch: &mut WatchCreateRequest) {
        if watch.key.is_empty() {
            // As servers read it.
            watch.key = Bytes::from_static(END_OF_KEYS);
        }
        self.add_to_interval(&mut watch.key, &mut watch.range_end);
    }

    pub(super) fn add_to_txn(&self, txn: &mut TxnRequest) {
        for compare in &mut txn.compare {
            self.add_to_interval(&mut compare.key, &mut compare.range_end);
        }
        for operation in txn.success.iter_mut().chain(&mut txn.failure) {
            match &mut operation.request {
                Some(Request::RequestRange(range)) => self.add_to_range(range),
                Some(Request::RequestPut(put)) => self.add_to_key(&mut put.key),
                Some(Request::RequestDeleteRange(delete)) => self.add_to_delete(delete),
                Some(Request::RequestTxn(txn)) => self.add_to_txn(txn),
                None => {}
            }
        }
    }

    pub(super) fn remove_from_pairs<'p>(&self, pairs: impl IntoIterator<Item = &'p mut KeyValue>) {
        for kv in pairs {
            if kv.key.starts_with(&self.0) {
                kv.key = kv.key.slice(self.0.len()..);
            }
        }
    }

    pub(super) fn remove_from_txn(&self, txn: &mut TxnResponse) {
        for operation in &mut txn.responses {
            match &mut operation.response {
                Some(Response::ResponseRange(range)) => self.remove_from_pairs(&mut range.kvs),
                Some(Response::ResponsePut(put)) => self.remove_from_pairs(&mut put.prev_kv),
                Some(Response::ResponseDeleteRange(delete)) => {
                    self.remove_from_pairs(&mut delete.prev_kvs);
                }
                Some(Response::ResponseTxn(txn)) => self.remove_from_txn(txn),
                None => {}
            }
        }
    }

    /// Leaves only the keys of the namespace, without its prefix.
    pub(super) fn remove_from_keys(&self, keys: &mut Vec<Bytes>) {
        keys.retain(|key| key.starts_with(&self.0));
        for key in keys {
            *key = key.slice(self.0.len()..);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Compare, Delete, Put, Range, Txn};

    fn prefix(text: &'static [u8]) -> Prefix {
        Prefix(Bytes::from_static(text))
    }

    #[test]
    fn intervals_stay_inside_of_the_namespace() {
        for (namespace, range, key, range_end) in [
            (&b"ns/"[..], Range::key("a"), &b"ns/a"[..], &b""[..]),
            (b"ns/", Range::between("a", "c"), b"ns/a", b"ns/c"),
            (b"ns/", Range::prefix("a"), b"ns/a", b"ns/b"),
            (b"ns/", Range::from_key("a"), b"ns/a", b"ns0"),
            (b"ns/", Range::all(), b"ns/\0", b"ns0"),
            (b"n\xff", Range::all(), b"n\xff\0", b"o"),
            (b"\xff", Range::from_key("a"), b"\xffa", b"\0"),
        ] {
            let mut request = RangeRequest::from(range);
            prefix(namespace).add_to_range(&mut request);
            assert_eq!((&request.key[..], &request.range_end[..]), (key, range_end));
        }
    }

    #[test]
    fn every_part_of_a_nested_transaction_is_translated() {
        let inner = Txn::new()
            .when(Compare::version("a").of_prefix().equals(0))
            .otherwise(Delete::key("b"));
        let txn = Txn::new()
            .when(Compare::exists("c"))
            .then(Put::new("d", "1"))
            .then(inner)
            .otherwise(Range::key("e"));
        let expected_inner = Txn::new()
            .when(Compare::version("ns/a").of_prefix().equals(0))
            .otherwise(Delete::key("ns/b"));
        let expected = Txn::new()
            .when(Compare::exists("ns/c"))
            .then(Put::new("ns/d", "1"))
            .then(expected_inner)
            .otherwise(Range::key("ns/e"));
        let mut request = TxnRequest::from(txn);
        prefix(b"ns/").add_to_txn(&mut request);
        assert_eq!(request, TxnRequest::from(expected));
    }

    #[test]
    fn keys_of_other_namespaces_are_left_out_of_leases() {
        let key = Bytes::from_static;
        let mut keys = vec![key(b"ns/a"), key(b"other/b"), key(b"ns/c")];
        prefix(b"ns/").remove_from_keys(&mut keys);
        assert_eq!(keys, [key(b"a"), key(b"c")]);
    }
}
