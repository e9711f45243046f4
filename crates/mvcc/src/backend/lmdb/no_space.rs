//! Distinguishes a full disk from an I/O error.
//!
//! On a full disk a write is short; LMDB reports every short write as `EIO`. So after `EIO` the
//! free space decides.

use std::{io, path::Path};

use nix::{errno::Errno, sys::statvfs::statvfs};

/// Free bytes below which an `EIO` is taken for a full disk.
const FREE_BYTES_MAX: u64 = 64 * 1024;

/// Whether an error of LMDB means that the disk is full. `free_bytes` is called only for `EIO`.
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

/// Free bytes of the volume of `path`, if the system reports them.
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
    fn io_error_with_little_free_space_is_no_space() {
        let error = |errno: Errno| heed::Error::Io(io::Error::from_raw_os_error(errno as i32));
        let must_not_be_called = || -> Option<u64> { panic!("free space is not needed") };
        assert!(is_no_space(&error(Errno::ENOSPC), must_not_be_called));
        assert!(is_no_space(&error(Errno::EDQUOT), must_not_be_called));
        assert!(!is_no_space(&error(Errno::EACCES), must_not_be_called));
        assert!(!is_no_space(
            &heed::Error::Mdb(heed::MdbError::Corrupted),
            must_not_be_called
        ));
        assert!(is_no_space(&error(Errno::EIO), || Some(0)));
        assert!(!is_no_space(&error(Errno::EIO), || Some(1 << 30)));
        assert!(!is_no_space(&error(Errno::EIO), || None));
    }

    #[test]
    fn free_space_is_reported_before_the_file_exists() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("store.lmdb");
        assert!(free_bytes(&file).unwrap() > 0);
    }
}
