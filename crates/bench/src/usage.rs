//! CPU, memory and disk usage of a process, from `/proc`. Linux only.
//!
//! Client and server share the machine, so requests per second also depend on the CPU time of
//! the client; CPU time of the server does not.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use std::{fs, io};

use nix::sys::stat;
use nix::unistd::{SysconfVar, sysconf};
use thiserror::Error;

/// Usage that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum UsageError {
    /// Reading failed, most likely because the process has ended.
    #[error("cannot read {path}: did the server end?")]
    Read { path: String, source: io::Error },
    /// Resetting the peak failed.
    #[error(
        "cannot reset the peak of memory with {path}: is this Linux, and does the process belong to this user?"
    )]
    ResetPeak { path: String, source: io::Error },
    /// The file has another format.
    #[error("{path} has no {what}")]
    Format { path: String, what: &'static str },
}

/// Returns the CPU time of all threads, user and system, in kernel ticks (10 ms).
pub fn cpu_time(process_id: u32) -> Result<Duration, UsageError> {
    let path = format!("/proc/{process_id}/stat");
    let text = read(&path)?;
    let ticks = cpu_ticks(&text).ok_or(UsageError::Format {
        path,
        what: "user and system time",
    })?;
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|ticks| u64::try_from(ticks).ok())
        .filter(|ticks| *ticks > 0)
        .unwrap_or(100);
    Ok(Duration::from_micros(ticks * 1_000_000 / ticks_per_second))
}

/// Returns the CPU time of several processes together.
pub fn cpu_time_of_all(process_ids: &[u32]) -> Result<Duration, UsageError> {
    process_ids.iter().copied().map(cpu_time).sum()
}

/// Memory of a process, or of several together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Currently resident memory.
    pub resident_bytes: u64,
    /// Peak resident memory.
    pub peak_bytes: u64,
}

/// Returns current and peak resident memory.
pub fn memory(process_id: u32) -> Result<Memory, UsageError> {
    let path = format!("/proc/{process_id}/status");
    let text = read(&path)?;
    let bytes_of = |what: &'static str| {
        kib_in(&text, what)
            .map(|kib| kib * 1024)
            .ok_or_else(|| UsageError::Format {
                path: path.clone(),
                what,
            })
    };
    Ok(Memory {
        resident_bytes: bytes_of("VmRSS:")?,
        peak_bytes: bytes_of("VmHWM:")?,
    })
}

/// Returns the memory of several processes. Their peaks, which may have been at different
/// times, are added.
pub fn memory_of_all(process_ids: &[u32]) -> Result<Memory, UsageError> {
    let mut all = Memory::default();
    for process_id in process_ids {
        let one = memory(*process_id)?;
        all.resident_bytes += one.resident_bytes;
        all.peak_bytes += one.peak_bytes;
    }
    Ok(all)
}

/// Resets the peak of a process to its current resident memory.
pub fn reset_peak(process_id: u32) -> Result<(), UsageError> {
    let path = format!("/proc/{process_id}/clear_refs");
    fs::write(&path, RESET_PEAK).map_err(|source| UsageError::ResetPeak { path, source })
}

/// The command for `clear_refs` that resets the peak; see proc(5).
const RESET_PEAK: &str = "5";

/// Returns the bytes written so far to the disk with the data directories, from the statistics
/// of the block device; `None` if the directory is on no block device.
///
/// It counts all processes, because the kernel's counters per process are misleading:
/// `write_bytes` charges a whole folio, up to a megabyte, for every byte changed in it, and
/// misses writes of the file system; `wchar` includes sockets, depending on the system call.
#[must_use]
pub fn disk_written_bytes() -> Option<u64> {
    let device = fs::metadata(std::env::temp_dir()).ok()?.dev();
    let (major, minor) = (stat::major(device), stat::minor(device));
    let text = read(&format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    sectors_written(&text).map(|sectors| sectors * SECTOR_BYTES)
}

/// The unit of the kernel's statistics, independent of the device.
const SECTOR_BYTES: u64 = 512;

fn sectors_written(stat: &str) -> Option<u64> {
    stat.split_ascii_whitespace().nth(6)?.parse().ok()
}

fn read(path: &str) -> Result<String, UsageError> {
    fs::read_to_string(path).map_err(|source| UsageError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Adds fields 14 and 15, counted from the end of the command's name, which may contain `)`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Parses a line such as `VmRSS:    2048 kB`.
fn kib_in(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_parsed_after_any_command_name() {
        let plain = "7 (etcd) S 1 7 7 0 -1 4194560 10 0 0 0 120 34 0 0 20 0 9 0 5 1 2";
        assert_eq!(cpu_ticks(plain), Some(154));
        let nasty = "7 (a) b (c) S 1 7 7 0 -1 4194560 10 0 0 0 120 34 0 0 20 0 9 0 5 1 2";
        assert_eq!(cpu_ticks(nasty), Some(154));
        assert_eq!(cpu_ticks("7 (etcd) S 1 7"), None);
    }

    #[test]
    fn memory_is_parsed_in_kib() {
        let status = "VmHWM:\t 9000 kB\nVmRSS:\t   2048 kB\n";
        assert_eq!(kib_in(status, "VmRSS:"), Some(2048));
        assert_eq!(kib_in(status, "VmHWM:"), Some(9000));
        assert_eq!(kib_in(status, "VmSwap:"), None);
    }

    #[test]
    fn sectors_written_are_the_seventh_field() {
        let stat = " 2846224 85083 82853954 4762865 4080957 454192 933079008 2322160 0 866364\n";
        assert_eq!(sectors_written(stat), Some(933_079_008));
        assert_eq!(sectors_written("1 2 3"), None);
    }

    #[test]
    fn peak_after_a_reset_excludes_released_memory() {
        let own = std::process::id();
        let large = vec![1_u8; 64 << 20];
        std::hint::black_box(&large);
        let high = memory(own).unwrap();
        assert!(high.peak_bytes >= 64 << 20);
        drop(large);
        reset_peak(own).unwrap();
        assert!(memory(own).unwrap().peak_bytes < high.peak_bytes);
    }

    #[test]
    fn usage_of_several_processes_is_added() {
        let own = std::process::id();
        assert!(memory_of_all(&[own, own]).unwrap().resident_bytes > 0);
        assert_eq!(memory_of_all(&[]).unwrap(), Memory::default());
        assert!(cpu_time_of_all(&[own, own]).unwrap() >= cpu_time_of_all(&[own]).unwrap());
        assert!(cpu_time_of_all(&[own, u32::MAX]).is_err());
    }

    #[test]
    fn cpu_time_of_a_busy_process_increases() {
        let own = std::process::id();
        let before = cpu_time(own).unwrap();
        let mut sum = 0_u64;
        // Spins until the kernel has charged a tick.
        while cpu_time(own).unwrap() == before {
            sum = (0..1000).fold(sum, |sum, step| std::hint::black_box(sum ^ step));
        }
        let memory = memory(own).unwrap();
        assert!(memory.resident_bytes > 0);
        assert!(memory.peak_bytes >= memory.resident_bytes);
    }
}
