//! Calls, answers, events and errors as JSON. Bytes are text if they are UTF-8, else `{"hex": …}`.

use std::fmt::Write;

use bytes::Bytes;
use portunus_proto::EtcdError;
use serde_json::{Value, json};
use tonic::Code;

use crate::error::ClientError;
use crate::kubernetes::{
    DeleteResponse, Error, GetResponse, KeyValue, ListResponse, PutResponse, WatchEvent,
};

/// Returns bytes as JSON.
pub(super) fn of_bytes(bytes: &[u8]) -> Value {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return json!(text);
    }
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    json!({ "hex": hex })
}

fn to_bytes(value: &Value) -> Option<Bytes> {
    if let Some(text) = value.as_str() {
        return Some(Bytes::copy_from_slice(text.as_bytes()));
    }
    let hex = value.get("hex")?.as_str()?.as_bytes();
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let mut bytes = Vec::with_capacity(hex.len() / 2);
    for pair in hex.chunks(2) {
        let [high, low] = pair else { return None };
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
    }
    Some(bytes.into())
}

fn integer(value: &Value, name: &str) -> Option<i64> {
    value.get(name)?.as_i64()
}

fn of_pair(kv: &KeyValue) -> Value {
    json!({
        "key": of_bytes(&kv.key),
        "value": of_bytes(&kv.value),
        "mod_revision": kv.mod_revision,
        "create_revision": kv.create_revision,
        "version": kv.version,
        "lease": kv.lease,
    })
}

fn to_pair(value: &Value) -> Option<KeyValue> {
    Some(KeyValue {
        key: to_bytes(value.get("key")?)?,
        value: to_bytes(value.get("value")?)?,
        mod_revision: integer(value, "mod_revision")?,
        create_revision: integer(value, "create_revision")?,
        version: integer(value, "version")?,
        lease: integer(value, "lease")?,
    })
}

/// Returns the pair of a field that may be null.
fn to_optional_pair(value: &Value) -> Option<Option<KeyValue>> {
    match value.get("kv")? {
        Value::Null => Some(None),
        kv => Some(Some(to_pair(kv)?)),
    }
}

/// An answer of the interface that can be recorded.
pub(super) trait Answer: Sized {
    /// Returns the answer as JSON.
    fn to_json(&self) -> Value;
    /// Returns the answer of a recording, or `None` if it is malformed.
    fn from_json(value: &Value) -> Option<Self>;
}

impl Answer for () {
    fn to_json(&self) -> Value {
        json!({})
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.is_object().then_some(())
    }
}

impl Answer for i64 {
    fn to_json(&self) -> Value {
        json!(self)
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

impl Answer for GetResponse {
    fn to_json(&self) -> Value {
        json!({ "kv": self.kv.as_ref().map(of_pair), "revision": self.revision })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            kv: to_optional_pair(value)?,
            revision: integer(value, "revision")?,
        })
    }
}

impl Answer for ListResponse {
    fn to_json(&self) -> Value {
        let kvs: Vec<_> = self.kvs.iter().map(of_pair).collect();
        json!({ "kvs": kvs, "count": self.count, "revision": self.revision })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let kvs = value.get("kvs")?.as_array()?.iter().map(to_pair);
        Some(Self {
            kvs: kvs.collect::<Option<_>>()?,
            count: integer(value, "count")?,
            revision: integer(value, "revision")?,
        })
    }
}

impl Answer for PutResponse {
    fn to_json(&self) -> Value {
        let kv = self.kv.as_ref().map(of_pair);
        json!({ "succeeded": self.succeeded, "kv": kv, "revision": self.revision })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            succeeded: value.get("succeeded")?.as_bool()?,
            kv: to_optional_pair(value)?,
            revision: integer(value, "revision")?,
        })
    }
}

impl Answer for DeleteResponse {
    fn to_json(&self) -> Value {
        let kv = self.kv.as_ref().map(of_pair);
        json!({ "succeeded": self.succeeded, "kv": kv, "revision": self.revision })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let put = PutResponse::from_json(value)?;
        Some(Self {
            succeeded: put.succeeded,
            kv: put.kv,
            revision: put.revision,
        })
    }
}

impl Answer for WatchEvent {
    fn to_json(&self) -> Value {
        match self {
            Self::Added {
                key,
                value,
                revision,
            } => json!({
                "type": "ADDED", "key": of_bytes(key), "value": of_bytes(value),
                "revision": revision,
            }),
            Self::Modified {
                key,
                value,
                previous_value,
                revision,
            } => json!({
                "type": "MODIFIED", "key": of_bytes(key), "value": of_bytes(value),
                "previous_value": of_bytes(previous_value), "revision": revision,
            }),
            Self::Deleted {
                key,
                previous_value,
                revision,
            } => json!({
                "type": "DELETED", "key": of_bytes(key),
                "previous_value": of_bytes(previous_value), "revision": revision,
            }),
            Self::Bookmark { revision } => json!({ "type": "BOOKMARK", "revision": revision }),
            Self::Error(error) => json!({ "type": "ERROR", "error": of_error(error) }),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let bytes = |name: &str| to_bytes(value.get(name)?);
        let revision = || integer(value, "revision");
        Some(match value.get("type")?.as_str()? {
            "ADDED" => Self::Added {
                key: bytes("key")?,
                value: bytes("value")?,
                revision: revision()?,
            },
            "MODIFIED" => Self::Modified {
                key: bytes("key")?,
                value: bytes("value")?,
                previous_value: bytes("previous_value")?,
                revision: revision()?,
            },
            "DELETED" => Self::Deleted {
                key: bytes("key")?,
                previous_value: bytes("previous_value")?,
                revision: revision()?,
            },
            "BOOKMARK" => Self::Bookmark {
                revision: revision()?,
            },
            "ERROR" => Self::Error(to_error(value.get("error")?)?),
            _ => return None,
        })
    }
}

/// Returns an error as JSON.
pub(super) fn of_error(error: &Error) -> Value {
    match error {
        Error::EmptyKey => json!({ "kind": "EmptyKey" }),
        Error::EmptyPrefix => json!({ "kind": "EmptyPrefix" }),
        Error::ContinueOutsidePrefix {
            continue_key,
            prefix,
        } => json!({
            "kind": "ContinueOutsidePrefix", "continue_key": continue_key, "prefix": prefix,
        }),
        Error::Negative { name, value } => {
            json!({ "kind": "Negative", "name": name, "value": value })
        }
        Error::Compacted { compact_revision } => {
            json!({ "kind": "Compacted", "compact_revision": compact_revision })
        }
        Error::FutureRevision => json!({ "kind": "FutureRevision" }),
        Error::LeaseNotFound => json!({ "kind": "LeaseNotFound" }),
        Error::NoLeases => json!({ "kind": "NoLeases" }),
        Error::NoLeader => json!({ "kind": "NoLeader" }),
        Error::NoSpace => json!({ "kind": "NoSpace" }),
        Error::UnknownStream { stream_key } => {
            json!({ "kind": "UnknownStream", "stream_key": stream_key })
        }
        Error::Canceled { reason } => json!({ "kind": "Canceled", "reason": reason }),
        Error::Contract { what } => json!({ "kind": "Contract", "what": what }),
        Error::Replay { call } => json!({ "kind": "Replay", "call": call }),
        Error::Client(error) => json!({
            "kind": "Client", "code": i32::from(error.code()), "message": error.to_string(),
        }),
    }
}

/// Returns the error of a recording, or `None` if it is malformed.
pub(super) fn to_error(value: &Value) -> Option<Error> {
    let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
    Some(match value.get("kind")?.as_str()? {
        "EmptyKey" => Error::EmptyKey,
        "EmptyPrefix" => Error::EmptyPrefix,
        "ContinueOutsidePrefix" => Error::ContinueOutsidePrefix {
            continue_key: text("continue_key")?,
            prefix: text("prefix")?,
        },
        "Negative" => Error::Negative {
            name: match text("name")?.as_str() {
                "limit" => "limit",
                "expected revision" => "expected revision",
                _ => "revision",
            },
            value: integer(value, "value")?,
        },
        "Compacted" => Error::Compacted {
            compact_revision: value.get("compact_revision")?.as_i64(),
        },
        "FutureRevision" => Error::FutureRevision,
        "LeaseNotFound" => Error::LeaseNotFound,
        "NoLeases" => Error::NoLeases,
        "NoLeader" => Error::NoLeader,
        "NoSpace" => Error::NoSpace,
        "UnknownStream" => Error::UnknownStream {
            stream_key: text("stream_key")?,
        },
        "Canceled" => Error::Canceled {
            reason: text("reason")?,
        },
        "Contract" => Error::Contract {
            what: text("what")?,
        },
        "Replay" => Error::Replay {
            call: text("call")?,
        },
        "Client" => Error::Client(to_client_error(value)?),
        _ => return None,
    })
}

fn to_client_error(value: &Value) -> Option<ClientError> {
    let code = Code::from_i32(i32::try_from(integer(value, "code")?).ok()?);
    let message = value.get("message")?.as_str()?;
    if code == Code::DeadlineExceeded {
        return Some(ClientError::DeadlineExceeded { last_attempt: None });
    }
    let of_table = EtcdError::ALL.iter().find(|error| error.text() == message);
    Some(match of_table {
        Some(error) => ClientError::Etcd(*error),
        None => ClientError::Rpc {
            code,
            message: message.to_owned(),
        },
    })
}
