//! What a process has used, from `/proc`. Linux only.
//!
//! CPU time is the honest measure on a machine that client and server share: requests per
//! second also depend on how much the client leaves over.

use std::time::Duration;
use std::{fs, io};

use nix::unistd::{SysconfVar, sysconf};
use thiserror::Error;

/// What `/proc` does not say.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum UsageError {
    /// The process has ended, most likely.
    #[error("cannot read {path}: did the server end?")]
    Read { path: String, source: io::Error },
    /// A kernel that writes it differently.
    #[error("{path} has no {what}")]
    Format { path: String, what: &'static str },
}

/// CPU time of all threads, user and system, in steps of the kernel's tick (10 ms).
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

/// Memory that is resident now.
pub fn resident_bytes(process_id: u32) -> Result<u64, UsageError> {
    let path = format!("/proc/{process_id}/status");
    let text = read(&path)?;
    resident_kib(&text)
        .map(|kib| kib * 1024)
        .ok_or(UsageError::Format {
            path,
            what: "VmRSS",
        })
}

fn read(path: &str) -> Result<String, UsageError> {
    fs::read_to_string(path).map_err(|source| UsageError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Fields 14 and 15. Counted from behind the command's name, which may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_found_behind_any_name() {
        let plain = "7 (etcd) S 1 7 7 0 -1 4194560 10 0 0 0 120 34 0 0 20 0 9 0 5 1 2";
        assert_eq!(cpu_ticks(plain), Some(154));
        let nasty = "7 (a) b (c) S 1 7 7 0 -1 4194560 10 0 0 0 120 34 0 0 20 0 9 0 5 1 2";
        assert_eq!(cpu_ticks(nasty), Some(154));
        assert_eq!(cpu_ticks("7 (etcd) S 1 7"), None);
    }

    #[test]
    fn resident_memory_is_in_kib() {
        assert_eq!(
            resident_kib("VmHWM:\t 9 kB\nVmRSS:\t   2048 kB\n"),
            Some(2048)
        );
        assert_eq!(resident_kib("VmHWM:\t 9 kB\n"), None);
    }

    #[test]
    fn a_process_that_works_uses_more() {
        let own = std::process::id();
        let before = cpu_time(own).unwrap();
        let mut sum = 0_u64;
        // Spins until a tick was charged; ends because spinning is charged.
        while cpu_time(own).unwrap() == before {
            sum = (0..1000).fold(sum, |sum, step| std::hint::black_box(sum ^ step));
        }
        assert!(resident_bytes(own).unwrap() > 0);
    }
}
