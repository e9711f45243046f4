//! Tells a full disk from a broken one.
//!
//! The system writes as much as fits and says how much; LMDB takes every write that was cut short
//! for an I/O error and reports `EIO`. So after that error the free space decides.

use std::{io, path::Path};

use nix::{errno::Errno, sys::statvfs::statvfs};

/// After a write that was cut short by a full disk less than this is free.
const FREE_BYTES_MAX: u64 = 64 * 1024;

/// Whether an error of LMDB says that the disk is full. `free_bytes` is asked only if the error
/// leaves it open.
pub(super) fn is_no_space(error: &heed::Error, free_bytes: impl FnOnce() -> Option<u64>) -> bool {
    let heed::Error::Io(error) = error else {
        return false;
    };
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => true,
        _ if error.raw_os_error() == Some(Errno::EIO as i32) => {
            free_bytes().is_some_and(|free| free < FREE_BYTES_MAX)
        }
        _ => false,
    }
}

/// What can still be written where `path` is, if the system says so.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    let volume = statvfs(path).or_else(|_| statvfs(path.parent().unwrap_or(path)));
    let volume = volume.ok()?;
    Some(
        volume
            .blocks_available()
            .saturating_mul(volume.fragment_size()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_that_was_cut_short_on_a_full_disk_is_no_io_error() {
        let error = |errno: Errno| heed::Error::Io(io::Error::from_raw_os_error(errno as i32));
        let not_asked = || -> Option<u64> { panic!("the error says it all") };
        assert!(is_no_space(&error(Errno::ENOSPC), not_asked));
        assert!(is_no_space(&error(Errno::EDQUOT), not_asked));
        assert!(!is_no_space(&error(Errno::EACCES), not_asked));
        assert!(!is_no_space(
            &heed::Error::Mdb(heed::MdbError::Corrupted),
            not_asked
        ));
        assert!(is_no_space(&error(Errno::EIO), || Some(0)));
        assert!(!is_no_space(&error(Errno::EIO), || Some(1 << 30)));
        assert!(!is_no_space(&error(Errno::EIO), || None));
    }

    #[test]
    fn free_space_is_known_before_the_file_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("store.lmdb");
        assert!(free_bytes(&file).unwrap() > 0);
    }
}
