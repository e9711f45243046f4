//! The meta: 64 bytes that locate the root page and the freelist.
//!
//! A file has two, on pages 0 and 1. bbolt overwrites the older one on each commit, so at least one
//! is always complete; the valid one with the higher transaction id is the file's state. The reader
//! decodes them when it opens a file; the writers write them last (or first, from a plan).

use crate::format::{MAGIC, NO_FREELIST, PageId, VERSION, fnv1a_64, u32_at, u64_at};

pub(crate) const META_BYTES: usize = 64;
const CHECKSUMMED_BYTES: usize = META_BYTES - 8;

/// One state of a database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Meta {
    /// Length of a page in bytes.
    pub page_bytes: u32,
    /// Root page of the tree that lists the top-level buckets.
    pub root: PageId,
    /// Sequence counter of the top level; etcd does not use it.
    pub root_sequence: u64,
    /// Page of the freelist; `None` if it is not stored.
    pub freelist: Option<PageId>,
    /// One past the highest page in use.
    pub high_water: u64,
    /// The transaction that wrote this meta.
    pub txid: u64,
}

/// The reason why a meta is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaFault {
    /// The file ends before the meta does.
    #[error("the file ends before it")]
    Missing,
    /// The first four bytes are not bbolt's.
    #[error("not a bbolt file (magic {found:#010x})")]
    Magic {
        /// The value found.
        found: u32,
    },
    /// Written by another version of bbolt's format.
    #[error("format version {found}, only version 2 is known")]
    Version {
        /// The value found.
        found: u32,
    },
    /// The checksum does not match, as after a torn write.
    #[error("checksum mismatch")]
    Checksum,
    /// The page size is not a power of two between 1 KiB and 16 MiB.
    #[error("impossible page size {found}")]
    PageSize {
        /// The value found.
        found: u32,
    },
    /// The two metas are valid but disagree on the page size, so this one belongs to another file.
    #[error("its page size differs from the other meta's")]
    ForeignPageSize,
}

impl Meta {
    pub(crate) fn encode(&self) -> [u8; META_BYTES] {
        let freelist = self.freelist.map_or(NO_FREELIST, |page| page.0);
        let mut out = [0; META_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&self.page_bytes.to_le_bytes());
        // 12..16: flags, always zero.
        out[16..24].copy_from_slice(&self.root.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.root_sequence.to_le_bytes());
        out[32..40].copy_from_slice(&freelist.to_le_bytes());
        out[40..48].copy_from_slice(&self.high_water.to_le_bytes());
        out[48..56].copy_from_slice(&self.txid.to_le_bytes());
        let checksum = fnv1a_64(&out[..CHECKSUMMED_BYTES]);
        out[56..64].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes the meta at the start of `bytes` (just after the page header).
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MetaFault> {
        let int = |offset| u32_at(bytes, offset).ok_or(MetaFault::Missing);
        let long = |offset| u64_at(bytes, offset).ok_or(MetaFault::Missing);
        let checksum = long(CHECKSUMMED_BYTES)?;

        let magic = int(0)?;
        if magic != MAGIC {
            return Err(MetaFault::Magic { found: magic });
        }
        let version = int(4)?;
        if version != VERSION {
            return Err(MetaFault::Version { found: version });
        }
        let summed = bytes.get(..CHECKSUMMED_BYTES).ok_or(MetaFault::Missing)?;
        if checksum != fnv1a_64(summed) {
            return Err(MetaFault::Checksum);
        }
        let page_bytes = int(8)?;
        if !crate::format::page_bytes_valid(page_bytes) {
            return Err(MetaFault::PageSize { found: page_bytes });
        }
        let freelist = long(32)?;
        Ok(Self {
            page_bytes,
            root: PageId(long(16)?),
            root_sequence: long(24)?,
            freelist: (freelist != NO_FREELIST).then_some(PageId(freelist)),
            high_water: long(40)?,
            txid: long(48)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            page_bytes: 4096,
            root: PageId(3),
            root_sequence: 0,
            freelist: Some(PageId(2)),
            high_water: 4,
            txid: 1,
        }
    }

    #[test]
    fn meta_round_trips_with_and_without_freelist() {
        for freelist in [Some(PageId(2)), None] {
            let meta = Meta { freelist, ..meta() };
            assert_eq!(Meta::decode(&meta.encode()), Ok(meta));
        }
    }

    #[test]
    fn meta_with_a_flipped_bit_is_refused() {
        for bit in 0..META_BYTES * 8 {
            let mut bytes = meta().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Meta::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn invalid_page_size_with_a_valid_checksum_is_refused() {
        for page_bytes in [0, 512, 4095, 1 << 25] {
            let bytes = Meta {
                page_bytes,
                ..meta()
            }
            .encode();
            assert_eq!(
                Meta::decode(&bytes),
                Err(MetaFault::PageSize { found: page_bytes })
            );
        }
    }

    #[test]
    fn truncated_meta_is_missing() {
        let bytes = meta().encode();
        assert_eq!(Meta::decode(&bytes[..63]), Err(MetaFault::Missing));
    }
}
