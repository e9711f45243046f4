//! Constants of the file format, and the fixed-width fields that reader and writers use.
//!
//! Everything here is little-endian: bbolt writes host order, and every host that runs etcd in
//! practice is little-endian. A file from a big-endian host fails the magic check and is refused.

use std::fmt;

/// The number of a page; page `n` starts at byte `n * page_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// First field of a meta, the same in every bbolt file.
pub(crate) const MAGIC: u32 = 0xED0C_DAED;
/// The only version of the format that etcd has ever written.
pub(crate) const VERSION: u32 = 2;
/// In a meta's freelist field: free pages are not stored and must be found by a walk.
pub(crate) const NO_FREELIST: u64 = u64::MAX;

pub(crate) const PAGE_HEADER_BYTES: usize = 16;
/// Length of a branch element and of a leaf element.
pub(crate) const ELEMENT_BYTES: usize = 16;
/// Root page and sequence, the value of a bucket's entry.
pub(crate) const BUCKET_HEADER_BYTES: usize = 16;

pub(crate) const FLAG_BRANCH: u16 = 0x01;
pub(crate) const FLAG_LEAF: u16 = 0x02;
pub(crate) const FLAG_META: u16 = 0x04;
pub(crate) const FLAG_FREELIST: u16 = 0x10;
/// On a leaf element: the value is a bucket header, not a plain value.
pub(crate) const ELEMENT_IS_BUCKET: u32 = 0x01;

/// A page's count is 16 bits and bbolt refuses to write this value (the freelist uses it as a
/// marker), so a page holds at most one element fewer.
pub(crate) const COUNT_MARKER: u16 = 0xFFFF;

/// Page sizes accepted on reading: powers of two in this range. bbolt searches the second meta at 1
/// KiB to 16 MiB.
pub(crate) const PAGE_BYTES_MIN: u32 = 1 << 10;
pub(crate) const PAGE_BYTES_MAX: u32 = 1 << 24;

pub(crate) fn page_bytes_valid(page_bytes: u32) -> bool {
    page_bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes)
}

/// The 16 bytes every page starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub id: u64,
    pub flags: u16,
    pub count: u16,
    /// Number of pages directly after this one that belong to it.
    pub overflow: u32,
}

impl PageHeader {
    pub fn encode(&self) -> [u8; PAGE_HEADER_BYTES] {
        let mut out = [0; PAGE_HEADER_BYTES];
        out[0..8].copy_from_slice(&self.id.to_le_bytes());
        out[8..10].copy_from_slice(&self.flags.to_le_bytes());
        out[10..12].copy_from_slice(&self.count.to_le_bytes());
        out[12..16].copy_from_slice(&self.overflow.to_le_bytes());
        out
    }

    /// Decodes a header; `None` if `bytes` is shorter than one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            id: u64_at(bytes, 0)?,
            flags: u16_at(bytes, 8)?,
            count: u16_at(bytes, 10)?,
            overflow: u32_at(bytes, 12)?,
        })
    }
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes
        .get(offset..offset.checked_add(N)?)
        .and_then(|field| field.try_into().ok())
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array_at(bytes, offset).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array_at(bytes, offset).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array_at(bytes, offset).map(u64::from_le_bytes)
}

/// FNV-1a, 64 bits: the checksum of a meta.
pub(crate) fn fnv1a_64(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_matches_the_published_vectors() {
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn page_header_round_trips() {
        let header = PageHeader {
            id: 0x0102_0304_0506_0708,
            flags: FLAG_LEAF,
            count: 513,
            overflow: 0x0A0B_0C0D,
        };
        assert_eq!(
            header.encode(),
            [8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 1, 2, 0x0D, 0x0C, 0x0B, 0x0A]
        );
        assert_eq!(PageHeader::decode(&header.encode()), Some(header));
        assert_eq!(PageHeader::decode(&header.encode()[..15]), None);
    }
}
