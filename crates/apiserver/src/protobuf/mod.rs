//! Objects in Kubernetes' protobuf format, in which clients written with client-go send the
//! built-in kinds. The server reads it for versions that declare their message; answers are JSON.
//!
//! ```text
//!  "k8s\0" │ Unknown { typeMeta { apiVersion, kind }, raw, contentEncoding, contentType }
//!                                                      │
//!                      the message of the version ◀────┘ ──▶ the value that its JSON has
//! ```
//!
//! A message is declared with the field numbers of Kubernetes and the field names of JSON:
//!
//! ```
//! use portunus_apis::Lifecycle;
//! use portunus_apiserver::{VersionDefinition, protobuf};
//! use serde::Serialize;
//! use serde_json::json;
//!
//! #[derive(prost::Message, Serialize)]
//! struct Widget {
//!     #[prost(message, optional, tag = "1")]
//!     metadata: Option<protobuf::ObjectMeta>,
//! }
//!
//! let version = VersionDefinition::new("v1", Lifecycle::always(), json!({"type": "object"}))?;
//! let version = version.with_protobuf::<Widget>();
//! # let _ = version;
//! # Ok::<(), portunus_apiserver::DefinitionError>(())
//! ```
//!
//! Fields that a message does not declare are ignored, as protobuf does. Nesting is limited by
//! the decoder to 100 messages, and the size by the limit of every body.

mod delete_options;
mod metadata;

pub(crate) use delete_options::DeleteOptions;
pub use metadata::{MicroTime, ObjectMeta, OwnerReference, Time};

use prost::Message;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The first bytes of every document.
const MAGIC: &[u8] = b"k8s\0";

/// A body that is no object in Kubernetes' protobuf format.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// The first bytes are others.
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    NoMagic,
    /// The envelope or the message is malformed.
    #[error("{0}")]
    Malformed(#[from] prost::DecodeError),
    /// The message is encoded once more.
    #[error("the encoding {0:?} is not supported: send the message without one")]
    Encoding(String),
    /// A field has a value that JSON cannot have, such as a time beyond the year 9999.
    #[error("{0}")]
    Value(#[from] serde_json::Error),
}

/// Decodes the message of one version to the value that its JSON has.
pub(crate) type Decoder = fn(&[u8]) -> Result<Value, ProtobufError>;

/// Decodes a message.
pub(crate) fn decode_message<M: Message + Default + Serialize>(
    bytes: &[u8],
) -> Result<Value, ProtobufError> {
    Ok(serde_json::to_value(M::decode(bytes)?)?)
}

/// `runtime.Unknown`.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
    #[prost(string, tag = "3")]
    content_encoding: String,
}

/// `runtime.TypeMeta`.
#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

/// Decodes a document: the envelope, and its message.
pub(crate) fn decode(body: &[u8], decoder: Decoder) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?;
    let envelope = Unknown::decode(envelope)?;
    if !envelope.content_encoding.is_empty() {
        return Err(ProtobufError::Encoding(envelope.content_encoding));
    }
    let mut value = decoder(&envelope.raw)?;
    let types = envelope.type_meta.unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for (name, text) in [("apiVersion", types.api_version), ("kind", types.kind)] {
            if !text.is_empty() {
                fields.insert(name.to_owned(), text.into());
            }
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[derive(Clone, PartialEq, Message, Serialize)]
    struct Thing {
        #[prost(message, optional, tag = "1")]
        metadata: Option<ObjectMeta>,
    }

    fn document(envelope: &Unknown) -> Vec<u8> {
        [MAGIC, &envelope.encode_to_vec()].concat()
    }

    fn envelope() -> Unknown {
        let metadata = ObjectMeta {
            name: "a".to_owned(),
            ..ObjectMeta::default()
        };
        let thing = Thing {
            metadata: Some(metadata),
        };
        Unknown {
            type_meta: Some(TypeMeta {
                api_version: "v1".to_owned(),
                kind: "Thing".to_owned(),
            }),
            raw: thing.encode_to_vec(),
            content_encoding: String::new(),
        }
    }

    fn read(body: &[u8]) -> Result<Value, ProtobufError> {
        decode(body, decode_message::<Thing>)
    }

    #[test]
    fn document_has_the_type_of_its_envelope_and_the_fields_of_its_message() {
        let value = read(&document(&envelope())).unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}});
        assert_eq!(value, expected);
        let mut untyped = envelope();
        untyped.type_meta = None;
        let expected = json!({"metadata": {"name": "a"}});
        assert_eq!(read(&document(&untyped)).unwrap(), expected);
    }

    #[test]
    fn fields_that_are_not_declared_are_ignored() {
        let mut unknown = envelope();
        // Field 100 as text, and field 101 as a number.
        unknown.raw.extend([0xa2, 0x06, 1, b'x', 0xa8, 0x06, 1]);
        assert!(read(&document(&unknown)).is_ok());
    }

    #[test]
    fn documents_of_another_form_are_refused() {
        let error = read(b"{\"kind\": \"Thing\"}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "provided data does not appear to be a protobuf message, expected prefix [107, 56, 115, 0]"
        );
        let mut encoded = envelope();
        encoded.content_encoding = "gzip".to_owned();
        let refused = read(&document(&encoded)).unwrap_err();
        assert!(matches!(refused, ProtobufError::Encoding(_)), "{refused}");
        let mut cut = document(&envelope());
        cut.pop();
        assert!(matches!(read(&cut), Err(ProtobufError::Malformed(_))));
    }

    #[test]
    fn time_beyond_the_calendar_is_refused() {
        let far = Time {
            seconds: Some(i64::MAX),
            nanos: None,
        };
        let metadata = ObjectMeta {
            creation_timestamp: Some(far),
            ..ObjectMeta::default()
        };
        let mut wrong = envelope();
        wrong.raw = Thing {
            metadata: Some(metadata),
        }
        .encode_to_vec();
        assert!(matches!(
            read(&document(&wrong)),
            Err(ProtobufError::Value(_))
        ));
    }

    /// Message within message, deeper than the decoder goes.
    #[test]
    fn deep_nesting_is_refused() {
        #[derive(Clone, PartialEq, Message, Serialize)]
        struct Nest {
            #[prost(message, optional, boxed, tag = "1")]
            inner: Option<Box<Nest>>,
        }
        let mut raw = Vec::new();
        for _ in 0..1000 {
            let mut outer = vec![0x0a];
            prost::encode_length_delimiter(raw.len(), &mut outer).unwrap();
            outer.append(&mut raw);
            raw = outer;
        }
        let deep = Unknown {
            raw,
            ..Unknown::default()
        };
        let read = decode(&document(&deep), decode_message::<Nest>);
        assert!(matches!(read, Err(ProtobufError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = read(&[MAGIC, &bytes].concat());
            let in_envelope = Unknown { raw: bytes.clone(), ..Unknown::default() };
            let _ = read(&document(&in_envelope));
            let _ = decode(&document(&in_envelope), decode_message::<DeleteOptions>);
        }
    }
}
