//! Decodes a stored record in place.
//!
//! Opening a store reads every record once and most of them only for their key,
//! so values are copied only if they are kept.

use prost::{
    DecodeError,
    encoding::{DecodeContext, WireType, check_wire_type, decode_key, decode_varint, skip_field},
};

/// The fields of a stored `KeyValue` that are not part of its record key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) key: &'a [u8],
    pub(super) create_revision: i64,
    pub(super) version: i64,
    pub(super) value: &'a [u8],
    pub(super) lease: i64,
}

impl<'a> Record<'a> {
    pub(super) fn decode(mut rest: &'a [u8]) -> Result<Self, DecodeError> {
        let mut record = Self::default();
        while !rest.is_empty() {
            let (tag, wire_type) = decode_key(&mut rest)?;
            match tag {
                1 => record.key = bytes(wire_type, &mut rest)?,
                2 => record.create_revision = number(wire_type, &mut rest)?,
                4 => record.version = number(wire_type, &mut rest)?,
                5 => record.value = bytes(wire_type, &mut rest)?,
                6 => record.lease = number(wire_type, &mut rest)?,
                _ => skip_field(wire_type, tag, &mut rest, DecodeContext::default())?,
            }
        }
        Ok(record)
    }
}

fn number(wire_type: WireType, rest: &mut &[u8]) -> Result<i64, DecodeError> {
    check_wire_type(WireType::Varint, wire_type)?;
    decode_varint(rest).map(u64::cast_signed)
}

fn bytes<'a>(wire_type: WireType, rest: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    check_wire_type(WireType::LengthDelimited, wire_type)?;
    let field = *rest;
    // The field number matters only for groups; this call finds the end of the field.
    skip_field(wire_type, 1, rest, DecodeContext::default())?;
    let mut field = &field[..field.len() - rest.len()];
    decode_varint(&mut field)?;
    Ok(field)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use portunus_proto::mvccpb::KeyValue;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    fn any_bytes() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
    }

    proptest! {
        #[test]
        fn decode_returns_the_encoded_fields(
            key in any_bytes(),
            value in any_bytes(),
            [create_revision, mod_revision, version, lease] in any::<[i64; 4]>(),
        ) {
            let stored = KeyValue { key, create_revision, mod_revision, version, value, lease };
            let stored_bytes = stored.encode_to_vec();
            let expected = Record {
                key: &stored.key,
                create_revision,
                version,
                value: &stored.value,
                lease,
            };
            prop_assert_eq!(Record::decode(&stored_bytes).unwrap(), expected);
        }

        #[test]
        fn decode_fails_only_where_the_message_decoder_fails(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            // The reverse does not hold: `mod_revision` is not decoded.
            if Record::decode(&bytes).is_err() {
                prop_assert!(KeyValue::decode(&bytes[..]).is_err());
            }
        }
    }
}
