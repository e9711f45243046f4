//! The CRC-32C over a database's contents, by which members and backups are compared.
//!
//! Independent of pages: two files with the same entries have the same hash.

use crate::cursor::EntryValue;
use crate::page::ReadError;
use crate::reader::Reader;

/// Hashes each bucket's name and then its keys and values, in order, leaving out the entries for
/// which `exclude(bucket, key)` is true.
///
/// A nested bucket counts as its name with an empty value, as in etcd.
pub fn hash(
    reader: &Reader,
    mut exclude: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<u32, ReadError> {
    let mut crc = 0;
    for bucket in reader.buckets() {
        let (name, bucket) = bucket?;
        crc = crc32c::crc32c_append(crc, name);
        for entry in bucket.entries() {
            let entry = entry?;
            if exclude(name, entry.key) {
                continue;
            }
            crc = crc32c::crc32c_append(crc, entry.key);
            if let EntryValue::Bytes(value) = entry.value {
                crc = crc32c::crc32c_append(crc, value);
            }
        }
    }
    Ok(crc)
}

/// Whether `Maintenance.Hash` excludes an entry: those that differ between members at one revision.
pub fn excluded_from_hash_rpc(bucket: &[u8], key: &[u8]) -> bool {
    bucket == b"meta" && matches!(key, b"term" | b"consistent_index" | b"storageVersion")
}
