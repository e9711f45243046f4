//! Segment file names, and the list of segments in a directory.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use crate::disk::LogDir;

/// `<sequence>-<first index>.wal`, both in sixteen hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    /// Position in the log, without gaps.
    pub(crate) sequence: u64,
    /// The index after the last one in the log when the segment was started.
    pub(crate) first_index: u64,
}

const EXTENSION: &str = ".wal";
/// Extension of a segment that is being prepared.
pub(crate) const PREPARED_EXTENSION: &str = "tmp";

impl SegmentName {
    pub(crate) fn parse(file_name: &str) -> Option<Self> {
        let (sequence, first_index) = file_name.strip_suffix(EXTENSION)?.split_once('-')?;
        let hex = |digits: &str| {
            let plain = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(digits, 16).ok())?
        };
        Some(Self {
            sequence: hex(sequence)?,
            first_index: hex(first_index)?,
        })
    }

    pub(crate) fn path_in(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:016x}-{:016x}{EXTENSION}",
            self.sequence, self.first_index
        )
    }
}

/// Lists all segments in `dir`, in log order. Other files are ignored.
pub(crate) fn list_segments(dir: &LogDir) -> io::Result<Vec<SegmentName>> {
    let mut segments = Vec::new();
    for name in dir.disk.names_in(&dir.path)? {
        if let Some(name) = name.to_str().and_then(SegmentName::parse) {
            segments.push(name);
        }
    }
    segments.sort_unstable();
    Ok(segments)
}

/// The segments needed to replay from `index` on: the last one that starts at
/// or before it, and all that follow. `None` if the log starts after `index`.
pub(crate) fn segments_from(segments: &[SegmentName], index: u64) -> Option<&[SegmentName]> {
    let start = segments.iter().rposition(|s| s.first_index <= index)?;
    segments.get(start..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(sequence: u64, first_index: u64) -> SegmentName {
        SegmentName {
            sequence,
            first_index,
        }
    }

    #[test]
    fn segment_names_parse_and_other_file_names_do_not() {
        let name = named(1, 0xabc);
        assert_eq!(name.to_string(), "0000000000000001-0000000000000abc.wal");
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        for other in [
            "0.tmp",
            "0000000000000001-0000000000000abc.wal.broken",
            "1-2.wal",
            "000000000000000+-0000000000000abc.wal",
            "0000000000000001_0000000000000abc.wal",
        ] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn replay_starts_in_the_last_segment_that_starts_at_or_before_the_index() {
        let segments = [named(3, 10), named(4, 20), named(5, 20), named(6, 35)];
        let starts_at = |index| segments_from(&segments, index).map(|s| s[0].sequence);
        assert_eq!(starts_at(9), None);
        assert_eq!(starts_at(10), Some(3));
        assert_eq!(starts_at(19), Some(3));
        assert_eq!(starts_at(20), Some(5));
        assert_eq!(starts_at(99), Some(6));
    }
}
