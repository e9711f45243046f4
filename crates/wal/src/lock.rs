//! The lock that limits a log to one process.
//!
//! The writer holds a lock on the tail segment. On Linux it is the same kind of
//! lock Go etcd takes (an open-file-description lock), so neither can write a
//! directory that the other has open. Elsewhere, as in Go, it is `flock`.

use std::{fs::File, io};

/// Takes the lock or returns an error of kind `WouldBlock` at once. The lock is
/// held as long as the file is open, also after a rename.
#[cfg(target_os = "linux")]
pub(crate) fn try_lock(file: &File) -> io::Result<()> {
    use nix::{
        errno::Errno,
        fcntl::{FcntlArg, fcntl},
        libc,
    };

    let whole_file = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file)) {
        Ok(_) => Ok(()),
        // POSIX allows either error.
        Err(Errno::EAGAIN | Errno::EACCES) => Err(io::ErrorKind::WouldBlock.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Takes the lock or returns an error of kind `WouldBlock` at once.
#[cfg(not(target_os = "linux"))]
pub(crate) fn try_lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(io::Error::from)
}
