//! Reads single fields of answers without decoding the messages.
//!
//! A load checks every answer but needs only one or two fields. Iterating over the fields of
//! a message costs a fraction of decoding it, and the client shares the cores with the server.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer or a boolean.
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

/// The fields of an encoded message, in order. Ends early at an unknown wire type.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Iterates over the fields of a message.
    #[must_use]
    pub fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    /// Returns the first integer with this field number, or 0 if it is absent.
    #[must_use]
    pub fn number(mut self, field: u32) -> i64 {
        let found = self.find_map(|found| match found {
            (number, Value::Number(value)) if number == field => Some(value),
            _ => None,
        });
        found.unwrap_or(0).cast_signed()
    }

    /// Returns every message, text or bytes with this field number.
    pub fn all(self, field: u32) -> impl Iterator<Item = &'a [u8]> {
        self.filter_map(move |found| match found {
            (number, Value::Bytes(bytes)) if number == field => Some(bytes),
            _ => None,
        })
    }

    /// Returns the first message with this field number, or an empty one.
    #[must_use]
    pub fn message(self, field: u32) -> Fields<'a> {
        Fields::of(self.all(field).next().unwrap_or_default())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    fn next(&mut self) -> Option<(u32, Value<'a>)> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok()?;
        match tag & 7 {
            0 => Some((number, Value::Number(self.varint()?))),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.rest.split_at_checked(length)?;
                self.rest = rest;
                Some((number, Value::Bytes(bytes)))
            }
            _ => None,
        }
    }
}

/// Field numbers in etcd's answers.
pub mod field {
    /// In every answer: the header.
    pub const HEADER: u32 = 1;
    /// In the header: the revision of the store.
    pub const HEADER_REVISION: u32 = 3;
    /// In an answer to a range: each key found.
    pub const RANGE_KVS: u32 = 2;
    /// In a key-value: the revision of its last change.
    pub const KV_MOD_REVISION: u32 = 3;
    /// In a key-value: its value.
    pub const KV_VALUE: u32 = 5;
    /// In an answer to a transaction: whether all comparisons held.
    pub const TXN_SUCCEEDED: u32 = 2;
    /// In an answer to a transaction: one answer per operation.
    pub const TXN_RESPONSES: u32 = 3;
    /// In the answer to an operation: the answer to a range.
    pub const OP_RANGE: u32 = 1;
    /// In an answer about a lease: its id.
    pub const LEASE_ID: u32 = 2;
    /// In an answer about a lease: its remaining seconds.
    pub const LEASE_TTL: u32 = 3;
    /// In an answer to a watch: it was created.
    pub const WATCH_CREATED: u32 = 3;
    /// In an answer to a watch: it was cancelled.
    pub const WATCH_CANCELED: u32 = 4;
    /// In an answer to a watch: each event.
    pub const WATCH_EVENTS: u32 = 11;
    /// In an event: the key-value.
    pub const EVENT_KV: u32 = 2;
}

#[cfg(test)]
mod tests {
    use portunus_proto::etcdserverpb::{
        LeaseKeepAliveResponse, RangeResponse, ResponseHeader, ResponseOp, TxnResponse,
        WatchResponse, response_op::Response,
    };
    use portunus_proto::mvccpb::{Event, KeyValue};
    use prost::Message;

    use super::*;

    fn pair() -> KeyValue {
        KeyValue {
            key: "k".into(),
            value: "v".into(),
            mod_revision: 300,
            ..KeyValue::default()
        }
    }

    fn header() -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: u64::MAX,
            revision: 70_000,
            ..ResponseHeader::default()
        })
    }

    #[test]
    fn fields_of_a_transaction_answer_are_read() {
        let range = RangeResponse {
            header: header(),
            kvs: vec![pair(), pair()],
            ..RangeResponse::default()
        };
        let answer = TxnResponse {
            header: header(),
            succeeded: true,
            responses: vec![ResponseOp {
                response: Some(Response::ResponseRange(range)),
            }],
        };
        let bytes = answer.encode_to_vec();
        let fields = Fields::of(&bytes);
        assert_eq!(fields.number(field::TXN_SUCCEEDED), 1);
        let revision = fields.message(field::HEADER).number(field::HEADER_REVISION);
        assert_eq!(revision, 70_000);
        let range = fields
            .message(field::TXN_RESPONSES)
            .message(field::OP_RANGE);
        assert_eq!(range.all(field::RANGE_KVS).count(), 2);
        let kv = range.message(field::RANGE_KVS);
        assert_eq!(kv.number(field::KV_MOD_REVISION), 300);
    }

    #[test]
    fn fields_of_watch_and_lease_answers_are_read() {
        let watch = WatchResponse {
            header: header(),
            created: true,
            events: vec![Event {
                kv: Some(pair()),
                ..Event::default()
            }],
            ..WatchResponse::default()
        };
        let bytes = watch.encode_to_vec();
        let fields = Fields::of(&bytes);
        assert_eq!(fields.number(field::WATCH_CREATED), 1);
        assert_eq!(fields.number(field::WATCH_CANCELED), 0);
        let event = fields.message(field::WATCH_EVENTS);
        let value = event.message(field::EVENT_KV).all(field::KV_VALUE).next();
        assert_eq!(value, Some(&b"v"[..]));

        let lease = LeaseKeepAliveResponse {
            header: header(),
            id: -7,
            ttl: 60,
        };
        let bytes = lease.encode_to_vec();
        let fields = Fields::of(&bytes);
        assert_eq!(fields.number(field::LEASE_ID), -7);
        assert_eq!(fields.number(field::LEASE_TTL), 60);
    }

    #[test]
    fn truncated_message_ends_the_iteration() {
        let bytes = header().unwrap_or_default().encode_to_vec();
        for end in 0..bytes.len() {
            assert!(Fields::of(&bytes[..end]).count() <= 2);
        }
    }
}
