//! Requests wrapped for the log: packed, bound to cluster features, or both.
//!
//! A member without this code cannot apply a wrapped entry and stops there, so that its state
//! does not differ from that of the other members. It never receives one: entries are wrapped
//! only while every member has published a proposal for cluster features
//! ([`Membership::all_propose`]), and when that ends the log is shortened to that point
//! (`gated.rs`).

use bytes::Bytes;
use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_features::{ClusterFeatures, LogCompression};
use portunus_gates::{Feature, FeatureSet, MajorMinor};
use portunus_proto::etcdserverpb::wrapped_request::Packing;
use portunus_proto::etcdserverpb::{InternalRaftRequest, RequestHeader, WrappedRequest};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use thiserror::Error;

#[cfg(doc)]
use crate::membership::Membership;

/// The size from which requests are compressed.
const PACKED_FROM_BYTES: usize = 512;
/// The largest request that a member unpacks; far above any limit on requests.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

const HEADER_FIELD: u32 = 100;
const WRAPPED_FIELD: u32 = 5000;

/// How to wrap a request.
#[derive(Debug, Clone, Copy)]
pub struct Wrapping<'a> {
    /// Whether to compress the request if that saves enough space.
    pub pack: bool,
    /// The features without which the request must have no effect.
    pub required: &'a [String],
}

/// A wrapped request that cannot be unwrapped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnwrapError {
    /// A packing that this version does not know.
    #[error("it is packed in a way this version does not know")]
    Packing,
    /// The compressed data or its length is invalid.
    #[error("it does not unpack")]
    Unpack,
    /// The wrapped bytes are not a request.
    #[error("what is inside is no request")]
    Decode(#[from] prost::DecodeError),
}

/// Encodes a request for the log.
pub fn encode(
    header: RequestHeader,
    mut request: InternalRaftRequest,
    wrapping: Wrapping<'_>,
) -> Bytes {
    let header = Some(header);
    let is_packed = wrapping.pack && request.encoded_len() >= PACKED_FROM_BYTES;
    if !is_packed && wrapping.required.is_empty() {
        request.header = header;
        return Bytes::from(request.encode_to_vec());
    }
    let raw = request.encode_to_vec();
    let packed = is_packed
        .then(|| lz4_flex::block::compress(&raw))
        // Saving less than an eighth is not worth the decompression on every member.
        .filter(|packed| packed.len() <= raw.len() - raw.len() / 8);
    if packed.is_none() && wrapping.required.is_empty() {
        request.header = header;
        return Bytes::from(request.encode_to_vec());
    }
    let (packing, raw_bytes) = match packed {
        Some(_) => (Packing::Lz4Block, raw.len() as u64),
        None => (Packing::Plain, raw.len() as u64),
    };
    let wrapped = WrappedRequest {
        packing: packing.into(),
        raw_bytes,
        data: Bytes::from(packed.unwrap_or(raw)),
        required_features: wrapping.required.to_vec(),
    };
    let request = InternalRaftRequest {
        header,
        wrapped: Some(wrapped),
        ..InternalRaftRequest::default()
    };
    Bytes::from(request.encode_to_vec())
}

/// Unwraps a request.
pub fn open(wrapped: &WrappedRequest) -> Result<InternalRaftRequest, UnwrapError> {
    let packing = Packing::try_from(wrapped.packing).map_err(|_| UnwrapError::Packing)?;
    let raw = match packing {
        Packing::Plain => wrapped.data.clone(),
        Packing::Lz4Block => {
            let bytes = Some(wrapped.raw_bytes).filter(|bytes| *bytes <= UNPACKED_BYTES_MAX);
            let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
            let bytes = bytes.ok_or(UnwrapError::Unpack)?;
            let raw = lz4_flex::block::decompress(&wrapped.data, bytes);
            let raw = raw.ok().filter(|raw| raw.len() == bytes);
            Bytes::from(raw.ok_or(UnwrapError::Unpack)?)
        }
    };
    Ok(InternalRaftRequest::decode(raw)?)
}

/// Returns the first version that reads a wrapped request: the one that the feature which writes
/// this packing declares.
pub fn readable_since(packing: Packing) -> MajorMinor {
    let declared = match packing {
        Packing::Plain => None,
        Packing::Lz4Block => LogCompression::DECLARATION.readable_since,
    };
    declared.unwrap_or(CLUSTER_PARAMS_SINCE)
}

/// Returns the first version that reads every wrapped request.
pub fn all_readable_since() -> MajorMinor {
    let declared = ClusterFeatures::DECLARATIONS.iter();
    let declared = declared.filter_map(|feature| feature.readable_since);
    declared.fold(CLUSTER_PARAMS_SINCE, MajorMinor::max)
}

/// Whether an entry's data is a wrapped request, without decoding it: the header comes
/// first and the wrapping follows.
pub fn is_wrapped(mut data: &[u8]) -> bool {
    let is_header = decode_key(&mut data)
        .is_ok_and(|(field, kind)| field == HEADER_FIELD && kind == WireType::LengthDelimited);
    if !is_header {
        return false;
    }
    let Ok(header_bytes) = decode_varint(&mut data) else {
        return false;
    };
    let header_bytes = usize::try_from(header_bytes).unwrap_or(usize::MAX);
    let Some(mut rest) = data.get(header_bytes..) else {
        return false;
    };
    decode_key(&mut rest).is_ok_and(|(field, _)| field == WRAPPED_FIELD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_proto::etcdserverpb::PutRequest;

    fn put(value: Vec<u8>) -> InternalRaftRequest {
        InternalRaftRequest {
            put: Some(PutRequest {
                key: Bytes::from_static(b"k"),
                value: Bytes::from(value),
                ..PutRequest::default()
            }),
            ..InternalRaftRequest::default()
        }
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_u32;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    fn seventh() -> RequestHeader {
        RequestHeader {
            id: 7,
            ..RequestHeader::default()
        }
    }

    const PACK: Wrapping<'static> = Wrapping {
        pack: true,
        required: &[],
    };

    /// The last packing of the protocol is known here, so a new one needs a line in
    /// [`readable_since`].
    #[test]
    fn every_wrapping_is_read_since_the_first_version_of_its_feature() {
        let since = |packing| readable_since(packing).to_string();
        assert_eq!(since(Packing::Plain), "3.7");
        assert_eq!(since(Packing::Lz4Block), "3.8");
        assert_eq!(
            readable_since(Packing::Lz4Block),
            LogCompression::DECLARATION.since()
        );
        for packing in [Packing::Plain, Packing::Lz4Block] {
            assert!(readable_since(packing) <= all_readable_since());
        }
    }

    #[test]
    fn wrapped_entry_round_trips() {
        let required = ["LogCompression".to_owned()];
        for (value, pack, required, is_packed) in [
            (b"a".repeat(10_000), true, &[][..], true),
            (b"a".repeat(10_000), false, &required[..], false),
            (b"a".repeat(10_000), true, &required[..], true),
            (noise(10_000), true, &required[..], false),
            (b"a".to_vec(), true, &required[..], false),
        ] {
            let request = put(value);
            let data = encode(seventh(), request.clone(), Wrapping { pack, required });
            assert!(is_wrapped(&data));
            let outer = InternalRaftRequest::decode(data).unwrap();
            assert_eq!(outer.header.unwrap().id, 7);
            let wrapped = outer.wrapped.unwrap();
            assert_eq!(wrapped.required_features, required);
            assert_eq!(wrapped.packing() == Packing::Lz4Block, is_packed);
            assert_eq!(open(&wrapped).unwrap(), request);
        }
    }

    #[test]
    fn entry_that_does_not_shrink_is_written_plain() {
        for value in [b"a".to_vec(), noise(10_000), Vec::new()] {
            let data = encode(seventh(), put(value), PACK);
            assert!(!is_wrapped(&data));
            let request = InternalRaftRequest::decode(data).unwrap();
            assert!(request.put.is_some() && request.wrapped.is_none());
        }
        assert!(!is_wrapped(&[]));
        assert!(!is_wrapped(&[0xa2]));
        assert!(!is_wrapped(&[0xa2, 0x06, 0xff, 0xff, 0xff, 0xff, 0x0f]));
    }

    #[test]
    fn wrapped_entry_with_a_wrong_size_is_an_error() {
        let outer =
            InternalRaftRequest::decode(encode(seventh(), put(vec![0; 5000]), PACK)).unwrap();
        let honest = outer.wrapped.unwrap();
        for raw_bytes in [0, honest.raw_bytes - 1, honest.raw_bytes + 1, u64::MAX] {
            let wrapped = WrappedRequest {
                raw_bytes,
                ..honest.clone()
            };
            assert!(open(&wrapped).is_err(), "{raw_bytes}");
        }
        let newer = WrappedRequest {
            packing: 9,
            ..honest
        };
        assert!(matches!(open(&newer), Err(UnwrapError::Packing)));
    }
}
