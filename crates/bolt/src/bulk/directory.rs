//! The directory of a stream: the number of entries, the buckets and the root page of each.
//!
//! The top level comes last in a file of the bulk writers, so a reader of the arriving stream would
//! learn only at the end to which bucket a leaf belongs. The directory provides this before the
//! first leaf. It follows the meta of page 0, where bbolt has padding and writes zeros with its
//! next transaction but one. It is a hint: the stream reader checks all of it against the pages
//! that follow.

use crate::format::{BUCKET_HEADER_BYTES, PAGE_HEADER_BYTES, PageId, fnv1a_64, u32_at, u64_at};
use crate::meta::META_BYTES;

/// Offset of the directory on page 0.
pub(crate) const DIRECTORY_OFFSET: usize = PAGE_HEADER_BYTES + META_BYTES;

const MAGIC: &[u8; 8] = b"PORTDIR1";

/// A bucket and the root of its tree, which is the last of its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketRoot {
    pub name: Vec<u8>,
    pub root: PageId,
}

impl BucketRoot {
    /// The bucket's value on the top level; its sequence is 0.
    pub fn header(&self) -> [u8; BUCKET_HEADER_BYTES] {
        let mut header = [0; BUCKET_HEADER_BYTES];
        header[..8].copy_from_slice(&self.root.0.to_le_bytes());
        header
    }
}

/// The content of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    /// Number of entries in all buckets.
    pub entries: u64,
    pub buckets: Vec<BucketRoot>,
}

/// Encodes a directory; `None` if it does not fit into a page.
pub(crate) fn encode(entries: u64, buckets: &[BucketRoot], page_bytes: u32) -> Option<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&entries.to_le_bytes());
    out.extend_from_slice(&u32::try_from(buckets.len()).ok()?.to_le_bytes());
    for bucket in buckets {
        out.extend_from_slice(&bucket.root.0.to_le_bytes());
        out.extend_from_slice(&u32::try_from(bucket.name.len()).ok()?.to_le_bytes());
        out.extend_from_slice(&bucket.name);
    }
    let checksum = fnv1a_64(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    (DIRECTORY_OFFSET + out.len() <= page_bytes as usize).then_some(out)
}

/// Decodes the directory of page 0; `None` if there is none or it is damaged.
pub(crate) fn decode(page: &[u8]) -> Option<Directory> {
    let bytes = page.get(DIRECTORY_OFFSET..)?;
    let mut at = MAGIC.len();
    if bytes.get(..at)? != MAGIC {
        return None;
    }
    let entries = u64_at(bytes, at)?;
    let count = u32_at(bytes, at + 8)?;
    at += 12;
    let mut buckets = Vec::new();
    for _ in 0..count {
        let root = PageId(u64_at(bytes, at)?);
        let name_bytes = u32_at(bytes, at + 8)? as usize;
        at += 12;
        let name = bytes.get(at..at.checked_add(name_bytes)?)?.to_vec();
        at += name_bytes;
        buckets.push(BucketRoot { name, root });
    }
    let is_intact = u64_at(bytes, at)? == fnv1a_64(&bytes[..at]);
    is_intact.then_some(Directory { entries, buckets })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets() -> Vec<BucketRoot> {
        ["key", "meta"]
            .iter()
            .zip([7, 9])
            .map(|(name, root)| BucketRoot {
                name: name.as_bytes().to_vec(),
                root: PageId(root),
            })
            .collect()
    }

    fn page(directory: &[u8]) -> Vec<u8> {
        let mut page = vec![0; DIRECTORY_OFFSET];
        page.extend_from_slice(directory);
        page.resize(1024, 0);
        page
    }

    #[test]
    fn directory_round_trips() {
        let encoded = encode(5, &buckets(), 1024).unwrap();
        let directory = Directory {
            entries: 5,
            buckets: buckets(),
        };
        assert_eq!(decode(&page(&encoded)), Some(directory));
    }

    #[test]
    fn directory_with_a_flipped_bit_is_ignored() {
        let directory = encode(5, &buckets(), 1024).unwrap();
        for bit in 0..directory.len() * 8 {
            let mut damaged = directory.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&page(&damaged)), None, "bit {bit}");
        }
        assert_eq!(decode(&page(&[])), None);
        assert_eq!(decode(&[]), None);
    }

    #[test]
    fn directory_larger_than_a_page_is_omitted() {
        let long = BucketRoot {
            name: vec![b'n'; 1000],
            root: PageId(2),
        };
        assert_eq!(encode(1, &[long], 1024), None);
    }
}
