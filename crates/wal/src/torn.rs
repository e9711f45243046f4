//! Distinguishes a torn write from damage.
//!
//! A disk writes whole sectors, and segments hold zeros before use. So a write
//! interrupted by a crash leaves whole sectors of zeros in place of data (or,
//! past the prepared size, a file that ends too early), and nothing else. Any
//! other wrong bytes are damage, and removing them would silently drop
//! persisted records.

use crate::record::{HeaderFault, RecordHeader};

/// Smallest unit that a disk writes atomically.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// End of the sector that contains `offset`.
pub(crate) fn sector_end(offset: u64) -> u64 {
    offset - offset % SECTOR_BYTES + SECTOR_BYTES
}

/// Whether all bytes are zero. Written so that the compiler vectorises it.
pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(1024)
        .all(|chunk| chunk.iter().fold(0, |seen, byte| seen | byte) == 0)
}

/// Whether a record of the last segment that failed its checks is torn.
/// `stored` holds the record and its padding as far as they are in the file,
/// starting at file offset `offset`; `record_bytes` is the value of the length
/// field; `file_ended` is set if the file was too short for it.
pub(crate) fn is_torn(stored: &[u8], offset: u64, record_bytes: u64, file_ended: bool) -> bool {
    let mut before_lost_sector = stored;
    let mut start = 0;
    let mut sector_lost = false;
    while start < stored.len() {
        let position = offset + start as u64;
        let sector_rest = (sector_end(position) - position) as usize;
        let end = stored.len().min(start + sector_rest);
        if all_zero(&stored[start..end]) {
            before_lost_sector = &stored[..start];
            sector_lost = true;
            break;
        }
        start = end;
    }
    if !sector_lost && !file_ended {
        return false;
    }
    // The header repeats the length. If the header contradicts the length
    // field, the field is wrong, which a torn write cannot cause.
    RecordHeader::parse(before_lost_sector, record_bytes) != Err(HeaderFault::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of 8 + 1200 bytes: header, then sevens.
    fn record() -> (Vec<u8>, u64) {
        let mut record = vec![8, 2, 16, 1, 26, 0xb0, 0x09];
        record.resize(7 + 1200, 7);
        let bytes = record.len() as u64;
        (record, bytes)
    }

    #[test]
    fn record_with_a_zero_sector_is_torn() {
        let (mut record, bytes) = record();
        let offset = 8;
        assert!(!is_torn(&record, offset, bytes, false));
        // Second sector of the file: file bytes 512..1024.
        record[504..1016].fill(0);
        assert!(is_torn(&record, offset, bytes, false));
        record[600] = 1;
        assert!(
            !is_torn(&record, offset, bytes, false),
            "the sector is not all zeros"
        );
    }

    #[test]
    fn record_past_the_end_of_the_file_is_torn_unless_its_header_contradicts() {
        let (record, bytes) = record();
        assert!(is_torn(&record[..900], 8, bytes, true));
        assert!(is_torn(&record[..3], 8, bytes, true), "header cut off");
        assert!(is_torn(&[], 8, bytes, true));
        assert!(!is_torn(&record[..900], 8, bytes + (1 << 40), true));
    }

    #[test]
    fn wrong_length_reaching_into_unused_zeros_is_damage() {
        let (mut stored, bytes) = record();
        stored.resize(stored.len() + 8192, 0);
        assert!(!is_torn(&stored, 8, bytes + 4096, false));
        assert!(is_torn(&stored, 8, bytes, false));
    }
}
