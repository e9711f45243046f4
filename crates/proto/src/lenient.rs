//! Decoding what a Go member put into the log.
//!
//! Go keeps the fields of a request that it does not know and writes them into the log with
//! the rest. Inside them it accepts more than the generated code here does: groups nested
//! without a limit, a group that ends with another number, varints with surplus bits; Go of
//! 3.7 and later also counts a known field with another wire type as unknown, and Go of 3.5
//! and 3.6 accepts strings that are not UTF-8. One such request of any client would stop every
//! member that cannot decode it. So if decoding fails, the fields that Go would not look at
//! are removed, strings are repaired as Go's JSON encoder repairs them, and decoding is tried
//! again.
//!
//! Only for the log. Requests of clients are held to the strict form.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use prost::encoding::encode_varint;
use prost::{DecodeError, Message};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use crate::FILE_DESCRIPTOR_SET;
use crate::etcdserverpb::InternalRaftRequest;

const VARINT: u8 = 0;
const SIXTY_FOUR_BIT: u8 = 1;
const DELIMITED: u8 = 2;
const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const THIRTY_TWO_BIT: u8 = 5;

const VARINT_BYTES_MAX: usize = 10;
const RAFT_REQUEST: &str = ".etcdserverpb.InternalRaftRequest";

/// Decodes the data of a log entry.
pub fn decode_raft_request(data: Bytes) -> Result<InternalRaftRequest, DecodeError> {
    InternalRaftRequest::decode(data.clone()).or_else(|error| {
        let repaired = known_fields(&data, RAFT_REQUEST).ok_or(error)?;
        InternalRaftRequest::decode(Bytes::from(repaired))
    })
}

/// What a field of a known message holds.
struct Field {
    wire_type: u8,
    content: Content,
}

enum Content {
    Plain,
    Text,
    /// A list of numbers, which may be packed.
    Numbers,
    Message(String),
}

/// Fields by their number.
type Fields = HashMap<u64, Field>;

/// Every message by its full name.
static MESSAGES: LazyLock<HashMap<String, Fields>> = LazyLock::new(|| {
    // Made by the build from the same files as the types.
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
    let mut messages = HashMap::new();
    for file in &set.file {
        let mut pending: Vec<(String, &DescriptorProto)> = Vec::new();
        let package = format!(".{}", file.package());
        pending.extend(file.message_type.iter().map(|m| (package.clone(), m)));
        while let Some((scope, message)) = pending.pop() {
            let name = format!("{scope}.{}", message.name());
            pending.extend(message.nested_type.iter().map(|m| (name.clone(), m)));
            messages.insert(name, message.field.iter().map(field).collect());
        }
    }
    messages
});

fn field(descriptor: &FieldDescriptorProto) -> (u64, Field) {
    let is_list = descriptor.label() == Label::Repeated;
    let (wire_type, content) = match descriptor.r#type() {
        Type::Message => (
            DELIMITED,
            Content::Message(descriptor.type_name().to_owned()),
        ),
        Type::String => (DELIMITED, Content::Text),
        Type::Bytes => (DELIMITED, Content::Plain),
        Type::Group => (START_GROUP, Content::Plain),
        number => {
            let wire_type = match number {
                Type::Double | Type::Fixed64 | Type::Sfixed64 => SIXTY_FOUR_BIT,
                Type::Float | Type::Fixed32 | Type::Sfixed32 => THIRTY_TWO_BIT,
                _ => VARINT,
            };
            let content = match is_list {
                true => Content::Numbers,
                false => Content::Plain,
            };
            (wire_type, content)
        }
    };
    let number = u64::try_from(descriptor.number()).unwrap_or(0);
    (number, Field { wire_type, content })
}

/// A piece of the message as it is kept.
enum Piece<'a> {
    /// A message inside begins, with this key.
    Begin { key: u64 },
    /// It ends.
    End,
    /// A field as it was.
    Field(&'a [u8]),
    /// A string without what is not UTF-8.
    Text { key: u64, text: String },
}

/// The message without the fields that its type does not have. `None` if it is damaged.
fn known_fields(data: &[u8], message: &str) -> Option<Vec<u8>> {
    Some(written(&pieces(data, message)?))
}

/// A message whose fields are being read.
struct Level<'a> {
    unread: &'a [u8],
    fields: &'a Fields,
}

fn pieces<'a>(data: &'a [u8], message: &str) -> Option<Vec<Piece<'a>>> {
    let mut pieces = Vec::new();
    let mut levels = vec![Level {
        unread: data,
        fields: MESSAGES.get(message)?,
    }];
    while let Some(level) = levels.last_mut() {
        if level.unread.is_empty() {
            levels.pop();
            if !levels.is_empty() {
                pieces.push(Piece::End);
            }
            continue;
        }
        let start = level.unread;
        let key = varint(&mut level.unread)?;
        let (number, wire_type) = (key >> 3, (key & 7) as u8);
        let field = level.fields.get(&number);
        match field.map(|field| (field.wire_type == wire_type, &field.content)) {
            Some((true, Content::Message(name))) => {
                let unread = delimited(&mut level.unread)?;
                let fields = MESSAGES.get(name)?;
                pieces.push(Piece::Begin { key });
                levels.push(Level { unread, fields });
            }
            Some((true, Content::Text)) => {
                let text = String::from_utf8_lossy(delimited(&mut level.unread)?).into_owned();
                pieces.push(Piece::Text { key, text });
            }
            found => {
                skip(wire_type, &mut level.unread)?;
                let is_packed = wire_type == DELIMITED;
                let is_known = match found {
                    Some((true, _)) => true,
                    Some((false, Content::Numbers)) => is_packed,
                    _ => false,
                };
                if is_known {
                    pieces.push(Piece::Field(&start[..start.len() - level.unread.len()]));
                }
            }
        }
    }
    Some(pieces)
}

/// Writes from the end to the beginning, because lengths come before contents.
fn written(pieces: &[Piece<'_>]) -> Vec<u8> {
    let mut reversed: Vec<u8> = Vec::new();
    let mut ends = Vec::new();
    let mut prefix = Vec::new();
    for piece in pieces.iter().rev() {
        prefix.clear();
        match piece {
            Piece::End => ends.push(reversed.len()),
            Piece::Field(bytes) => prefix.extend_from_slice(bytes),
            Piece::Text { key, text } => {
                encode_varint(*key, &mut prefix);
                encode_varint(text.len() as u64, &mut prefix);
                prefix.extend_from_slice(text.as_bytes());
            }
            Piece::Begin { key } => {
                let length = reversed.len() - ends.pop().unwrap_or(0);
                encode_varint(*key, &mut prefix);
                encode_varint(length as u64, &mut prefix);
            }
        }
        reversed.extend(prefix.iter().rev());
    }
    reversed.reverse();
    reversed
}

/// Passes over a field of which the key was read.
fn skip(wire_type: u8, unread: &mut &[u8]) -> Option<()> {
    // Groups are counted, not matched: Go of 3.5 does no more.
    let mut groups = 0_u64;
    let mut wire_type = wire_type;
    loop {
        match wire_type {
            VARINT => {
                varint(unread)?;
            }
            SIXTY_FOUR_BIT => *unread = unread.get(8..)?,
            THIRTY_TWO_BIT => *unread = unread.get(4..)?,
            DELIMITED => {
                delimited(unread)?;
            }
            START_GROUP => groups += 1,
            END_GROUP => groups = groups.checked_sub(1)?,
            _ => return None,
        }
        if groups == 0 {
            return Some(());
        }
        wire_type = (varint(unread)? & 7) as u8;
    }
}

/// A varint of at most ten bytes; surplus bits are lost, as in Go.
fn varint(unread: &mut &[u8]) -> Option<u64> {
    let head = &unread[..unread.len().min(VARINT_BYTES_MAX)];
    let length = 1 + head.iter().position(|byte| byte & 0x80 == 0)?;
    let value = head[..length]
        .iter()
        .enumerate()
        .fold(0_u64, |value, (at, byte)| {
            value | u64::from(byte & 0x7f) << (7 * at)
        });
    *unread = &unread[length..];
    Some(value)
}

fn delimited<'a>(unread: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(unread)?).ok()?;
    let content = unread.get(..length)?;
    *unread = &unread[length..];
    Some(content)
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::etcdserverpb::{PutRequest, RequestHeader};
    use crate::membershippb::{Attributes, ClusterMemberAttrSetRequest};

    fn put() -> PutRequest {
        PutRequest {
            key: "k".into(),
            value: "v".into(),
            lease: 7,
            ..PutRequest::default()
        }
    }

    /// A put in the log, with more bytes in its message.
    fn logged(more: &[u8]) -> Bytes {
        let mut inner = put().encode_to_vec();
        inner.extend(more);
        let header = RequestHeader {
            id: 3,
            ..RequestHeader::default()
        };
        let mut data = InternalRaftRequest {
            header: Some(header),
            ..InternalRaftRequest::default()
        }
        .encode_to_vec();
        data.push(4 << 3 | DELIMITED);
        encode_varint(inner.len() as u64, &mut data);
        data.extend(inner);
        Bytes::from(data)
    }

    /// `depth` groups inside each other, of field 100.
    fn groups(depth: usize) -> Vec<u8> {
        let begin = [0xa3, 0x06].repeat(depth);
        let end = [0xa4, 0x06].repeat(depth);
        [begin, end].concat()
    }

    #[test]
    fn what_go_keeps_of_unknown_fields_does_not_stop_decoding() {
        let deep = groups(200_000);
        for more in [
            &[][..],
            &groups(99),
            &groups(101),
            &deep,
            // A group that ends with another number: 3.5 and 3.6.
            &[0xa3, 0x06, 0xac, 0x06],
            // A known field with another wire type: 3.7 and 3.8.
            &[0x08, 0x01],
            &[0x1d, 1, 2, 3, 4],
            // A key of more than 32 bits, and a value of more than 64: 3.5 and 3.6.
            &[0xf8, 0xff, 0xff, 0xff, 0xff, 0x01, 0x01],
            &[
                0xa0, 0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
            ],
        ] {
            let request = decode_raft_request(logged(more)).unwrap();
            assert_eq!(
                request.put,
                Some(put()),
                "{:x?}",
                &more[..more.len().min(9)]
            );
            assert_eq!(request.header.unwrap().id, 3);
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_repaired() {
        let attributes = Attributes {
            name: "nXm".to_owned(),
            client_urls: vec!["http://a".to_owned()],
            ..Attributes::default()
        };
        let mut expected = ClusterMemberAttrSetRequest {
            member_id: 5,
            member_attributes: Some(attributes),
        };
        let request = InternalRaftRequest {
            cluster_member_attr_set: Some(expected.clone()),
            ..InternalRaftRequest::default()
        };
        let mut data = request.encode_to_vec();
        let at = data.windows(3).position(|bytes| bytes == b"nXm").unwrap();
        data[at + 1] = 0xff;
        assert!(InternalRaftRequest::decode(&data[..]).is_err());
        let decoded = decode_raft_request(Bytes::from(data)).unwrap();
        if let Some(attributes) = &mut expected.member_attributes {
            attributes.name = "n\u{fffd}m".to_owned();
        }
        assert_eq!(decoded.cluster_member_attr_set, Some(expected));
    }

    #[test]
    fn damage_is_still_damage() {
        let data = logged(&[]);
        for length in 1..data.len() {
            let cut = data.slice(..length);
            let strict = InternalRaftRequest::decode(cut.clone());
            assert_eq!(decode_raft_request(cut), strict, "{length}");
        }
        for more in [
            // A group that does not end, an end without a beginning, unknown wire types.
            &[0xa3, 0x06][..],
            &[0xa4, 0x06],
            &[0xa6, 0x06],
            &[0xa7, 0x06],
            // A length beyond the end.
            &[0xa2, 0x06, 0x05],
        ] {
            assert!(decode_raft_request(logged(more)).is_err(), "{more:x?}");
        }
    }
}
