//! The length field in front of every record.
//!
//! Records are padded to eight bytes so that no length field crosses a disk
//! sector: it is written completely or not at all.

/// Size of a length field.
pub(crate) const LENGTH_FIELD_BYTES: usize = 8;
/// Records start and end on multiples of this.
const ALIGNMENT_BYTES: u64 = 8;

const LENGTH_MASK: u64 = (1 << 56) - 1;
/// Set in the top byte, beside the pad count, if there is padding.
const PADDED_FLAG: u64 = 0x80;

/// Size of a record and of its padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameSize {
    pub(crate) record_bytes: u64,
    pub(crate) pad_bytes: u64,
}

impl FrameSize {
    pub(crate) fn of_record(record_bytes: u64) -> Self {
        let pad_bytes = (ALIGNMENT_BYTES - record_bytes % ALIGNMENT_BYTES) % ALIGNMENT_BYTES;
        Self {
            record_bytes,
            pad_bytes,
        }
    }

    pub(crate) fn to_field(self) -> u64 {
        let top = match self.pad_bytes {
            0 => 0,
            pad_bytes => PADDED_FLAG | pad_bytes,
        };
        self.record_bytes | top << 56
    }

    /// Decodes a length field; `None` if no writer produces it: zero length, or a pad count that
    /// does not follow from the length. The redundancy detects flipped bits.
    pub(crate) fn from_field(field: u64) -> Option<Self> {
        let size = Self::of_record(field & LENGTH_MASK);
        (size.record_bytes > 0 && size.to_field() == field).then_some(size)
    }

    /// Record and padding, without the length field.
    pub(crate) fn padded_bytes(self) -> u64 {
        self.record_bytes + self.pad_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_byte_of_the_length_field_holds_the_padding() {
        let field_of = |bytes| FrameSize::of_record(bytes).to_field();
        assert_eq!(field_of(4), 0x8400_0000_0000_0004);
        assert_eq!(field_of(15), 0x8100_0000_0000_000f);
        assert_eq!(field_of(16), 16);
        assert_eq!(field_of(17), 0x8700_0000_0000_0011);
    }

    #[test]
    fn length_field_round_trips_and_wrong_padding_is_rejected() {
        for record_bytes in [1, 7, 8, 9, 4096, LENGTH_MASK] {
            let size = FrameSize::of_record(record_bytes);
            assert_eq!(FrameSize::from_field(size.to_field()), Some(size));
            assert_eq!(size.padded_bytes() % 8, 0);
        }
        for field in [0, 4, 0x8300_0000_0000_0004, 0x8000_0000_0000_0010, 1 << 63] {
            assert_eq!(FrameSize::from_field(field), None, "{field:#x}");
        }
    }
}
