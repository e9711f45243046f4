//! The machine on which the figures were measured.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::window::micros;

/// Number of writes with sync for the latency of the disk.
const SYNCS: usize = 200;
/// About the bytes that one put adds to a log.
const SYNC_BYTES: usize = 512;
/// The time limit for the syncs on a slow disk.
const SYNC_TIME_MAX: Duration = Duration::from_secs(3);

/// The properties of a machine that affect the figures.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Cores that servers and clients share.
    pub cores: usize,
    /// Model name of the CPU.
    pub cpu: String,
    /// Total memory.
    pub memory_bytes: u64,
    /// Version of the kernel.
    pub kernel: String,
    /// File system of the data directories.
    pub filesystem: String,
    /// Median latency of a small write with fdatasync.
    pub fdatasync_p50_us: Option<u32>,
    /// 99th percentile of the same latency.
    pub fdatasync_p99_us: Option<u32>,
}

impl Machine {
    /// Describes this machine. Measures the disk, which takes up to 3 seconds.
    #[must_use]
    pub fn here() -> Machine {
        let data = std::env::temp_dir();
        let mut syncs = sync_latencies_us(&data).unwrap_or_default();
        syncs.sort_unstable();
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: value_of(&text("/proc/cpuinfo"), "model name").unwrap_or("unknown".to_owned()),
            memory_bytes: value_of(&text("/proc/meminfo"), "MemTotal")
                .and_then(|value| value.strip_suffix("kB")?.trim().parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            filesystem: data
                .canonicalize()
                .ok()
                .and_then(|data| filesystem_of(&data, &text("/proc/self/mounts")))
                .unwrap_or("unknown".to_owned()),
            fdatasync_p50_us: crate::report::percentile(&syncs, 50),
            fdatasync_p99_us: crate::report::percentile(&syncs, 99),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = |value: Option<u32>| value.map_or("?".to_owned(), |us| us.to_string());
        write!(
            out,
            "{} cores of {}, {:.1} GiB, Linux {}, data on {}, write and fdatasync of {SYNC_BYTES} B: p50 {} us, p99 {} us",
            self.cores,
            self.cpu,
            self.memory_bytes as f64 / f64::from(1 << 30),
            self.kernel,
            self.filesystem,
            sync(self.fdatasync_p50_us),
            sync(self.fdatasync_p99_us),
        )
    }
}

fn sync_latencies_us(folder: &Path) -> io::Result<Vec<u32>> {
    let mut file = tempfile::tempfile_in(folder)?;
    let began = Instant::now();
    let mut latencies_us = Vec::with_capacity(SYNCS);
    while latencies_us.len() < SYNCS && began.elapsed() < SYNC_TIME_MAX {
        let started = Instant::now();
        file.write_all(&[b's'; SYNC_BYTES])?;
        file.sync_data()?;
        latencies_us.push(micros(started.elapsed()));
    }
    Ok(latencies_us)
}

/// Returns the value of the first line `name : value`.
fn value_of(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    })
}

/// Returns the type of the innermost file system that contains the path.
fn filesystem_of(path: &Path, mounts: &str) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    mounts
        .filter(|(place, _)| path.starts_with(place))
        // Of equal mount points the last one, which was mounted over the others.
        .max_by_key(|(place, _)| place.len())
        .map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_file_system_is_chosen() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmpx xfs rw 0 0\n";
        let kind = |path: &str| filesystem_of(Path::new(path), mounts);
        assert_eq!(kind("/tmp/x").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/tmpx/y").as_deref(), Some("xfs"));
        assert_eq!(kind("/var/tmp").as_deref(), Some("ext4"));
        assert_eq!(filesystem_of(Path::new("/"), ""), None);
    }

    #[test]
    fn value_is_found_by_its_full_name() {
        let text = "model\t\t: 85\nmodel name\t: Fast One\n";
        assert_eq!(value_of(text, "model name").as_deref(), Some("Fast One"));
        assert_eq!(value_of(text, "name"), None);
    }

    #[test]
    fn machine_is_described() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        let text = machine.to_string();
        assert!(
            text.contains("cores of") && text.contains("fdatasync"),
            "{text}"
        );
    }
}
