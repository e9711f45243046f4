//! Snapshots of the leader in the data directory, from their arrival to their removal.
//!
//! ```text
//!  receiving-INDEX ──keep_received──▶ incoming-INDEX ──install──▶ portunus-INDEX
//!    arrives, and may be cut off        complete and durable       the backend
//! ```
//! Raft gets the message of a snapshot only when it is `incoming`, and from then on its record
//! may be in the log. A member whose log has the record cannot start without the snapshot, so
//! nothing is removed while it could still be installed: while the member runs, raft lists the
//! snapshots it needs
//! ([`Handle::pending_snapshots`](portunus_consensus::Handle::pending_snapshots)); at the
//! start, the log does.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use portunus_proto::walpb;

use crate::data_dir::{DataDir, DataDirError};
use crate::import;

/// The backend of a member that never installed a snapshot.
pub(crate) const FIRST_BACKEND: &str = "portunus";
/// The prefix of a backend that was a snapshot.
pub(crate) const INSTALLED: &str = "portunus-";
const INCOMING: &str = "incoming-";
const RECEIVING: &str = "receiving-";
const OBSOLETE: &str = "obsolete-";

impl DataDir {
    /// Returns the path of a snapshot of the leader while it arrives.
    pub fn receiving(&self, index: u64) -> PathBuf {
        self.member().join(format!("{RECEIVING}{index:016x}"))
    }

    /// Returns the path of a complete snapshot that is not installed yet.
    fn incoming(&self, index: u64) -> PathBuf {
        self.member().join(format!("{INCOMING}{index:016x}"))
    }

    /// Prepares the installation of a received snapshot; from now on it survives a crash. Raft
    /// must not know a snapshot of this index: that one could be installed meanwhile.
    pub fn keep_received(&self, index: u64) -> io::Result<()> {
        let path = self.incoming(index);
        // One that raft has refused.
        self.remove(&path)?;
        fs::rename(self.receiving(index), path)?;
        self.sync_names()
    }

    /// Makes a complete snapshot the backend. Its record must be in the log.
    pub fn install(&self, index: u64) -> io::Result<PathBuf> {
        let path = self.member().join(format!("{INSTALLED}{index:016x}"));
        fs::rename(self.incoming(index), &path)?;
        self.sync_names()?;
        Ok(path)
    }

    /// Installs the snapshot whose installation a crash prevented: one that is complete, in the
    /// log, and newer than the backend. Removes all others and old backends, so `in_log` must
    /// be all snapshots of the log.
    pub fn install_pending(&self, in_log: &[walpb::Snapshot]) -> Result<(), DataDirError> {
        let is_in_log = |index: u64| in_log.iter().any(|snapshot| snapshot.index == index);
        let refused = |source| DataDirError::Io {
            path: self.path.clone(),
            source,
        };
        let backend = self.backend();
        let own = if backend.exists() {
            import::backend_index(&backend).map_err(|source| DataDirError::Import {
                path: self.path.clone(),
                source: Box::new(source),
            })?
        } else {
            0
        };
        let incoming = self.numbered(INCOMING).map_err(refused)?;
        let indexes = incoming.into_iter().map(|(index, _)| index);
        let pending = indexes.filter(|index| *index > own && is_in_log(*index));
        if let Some(index) = pending.max() {
            self.install(index).map_err(refused)?;
            tracing::info!(
                index,
                "a snapshot of the leader is installed that a crash had left"
            );
        }
        let current = self.backend();
        self.remove_obsolete(|path| path != current);
        Ok(())
    }

    /// Removes what the installed snapshot of `index` replaces: older backends, and complete
    /// snapshots up to it. Readers of a removed backend may go on.
    pub fn remove_replaced(&self, index: u64) {
        self.remove_obsolete(|path| {
            let up_to = |prefix, last| numbered(path, prefix).is_some_and(|number| number <= last);
            path.ends_with(FIRST_BACKEND)
                || up_to(INSTALLED, index.saturating_sub(1))
                || up_to(INCOMING, index)
        });
    }

    /// Removes complete snapshots that raft does not need. No other thread may receive
    /// snapshots meanwhile.
    pub fn remove_refused(&self, needed: &[u64]) {
        self.remove_obsolete(|path| {
            numbered(path, INCOMING).is_some_and(|index| !needed.contains(&index))
        });
    }

    fn remove_obsolete(&self, is_obsolete: impl Fn(&Path) -> bool) {
        let files = fs::read_dir(self.member()).into_iter().flatten().flatten();
        for path in files.map(|file| file.path()) {
            if !is_of_snapshots(&path) || !is_obsolete(&path) {
                continue;
            }
            if let Err(error) = self.remove(&path) {
                tracing::warn!(path = %path.display(), %error, "old data could not be removed; remove it by hand");
            }
        }
    }

    /// Renames the directory first: after a crash a partly removed one must not look complete.
    fn remove(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let obsolete = match name.starts_with(OBSOLETE) {
            true => path.to_owned(),
            false => self.member().join(format!("{OBSOLETE}{name}")),
        };
        if obsolete != path {
            ignore_missing(fs::remove_dir_all(&obsolete))?;
            ignore_missing(fs::rename(path, &obsolete))?;
        }
        if obsolete.is_file() {
            return ignore_missing(fs::remove_file(&obsolete));
        }
        ignore_missing(fs::remove_dir_all(&obsolete))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(self.member())?.sync_all()
    }

    /// Returns the directories with this prefix and their indexes.
    pub(crate) fn numbered(&self, prefix: &str) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for file in fs::read_dir(self.member())? {
            let path = file?.path();
            if let Some(index) = numbered(&path, prefix).filter(|_| path.is_dir()) {
                found.push((index, path));
            }
        }
        Ok(found)
    }
}

/// Whether the name is one that this module or the import of a snapshot gives.
fn is_of_snapshots(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        let prefixes = [INSTALLED, INCOMING, RECEIVING, OBSOLETE];
        name == FIRST_BACKEND || prefixes.iter().any(|prefix| name.starts_with(prefix))
    })
}

/// Returns the index in a name with this prefix.
fn numbered(path: &Path, prefix: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_prefix(prefix)?;
    (digits.len() == 16)
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a backend that has applied `index`.
    fn backend_at(path: &Path, index: u64) {
        use portunus_mvcc::backend::{Backend, Bucket, Change, Lmdb, LmdbConfig, meta};
        let lmdb = Lmdb::open(path, LmdbConfig::default()).unwrap();
        let change = Change::Put {
            bucket: Bucket::Meta,
            key: meta::CONSISTENT_INDEX.into(),
            value: bytes::Bytes::copy_from_slice(&index.to_be_bytes()),
        };
        lmdb.commit(&[change]).unwrap();
    }

    /// Prepares a snapshot as a member does before raft gets its message.
    fn receive(data_dir: &DataDir, index: u64) {
        backend_at(&data_dir.receiving(index), index);
        data_dir.keep_received(index).unwrap();
    }

    fn in_log(indexes: &[u64]) -> Vec<walpb::Snapshot> {
        let record = |index: &u64| walpb::Snapshot {
            index: *index,
            ..walpb::Snapshot::default()
        };
        indexes.iter().map(record).collect()
    }

    fn names(data_dir: &DataDir) -> Vec<String> {
        let files = fs::read_dir(data_dir.member()).unwrap();
        let mut names: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn open(dir: &Path) -> DataDir {
        DataDir::open(dir).unwrap()
    }

    #[test]
    fn pending_snapshot_is_installed_only_if_the_log_has_it() {
        for (is_in_log, own, expected) in [(true, 5, 9), (false, 5, 5), (true, 12, 12)] {
            let dir = tempfile::tempdir().unwrap();
            let data_dir = open(dir.path());
            backend_at(&data_dir.backend(), own);
            receive(&data_dir, 9);
            // Received after it, and not in the log.
            receive(&data_dir, 15);
            for name in ["receiving-000000000000000b.part", "obsolete-portunus"] {
                fs::create_dir(dir.path().join("member").join(name)).unwrap();
            }
            let log: &[u64] = if is_in_log { &[9] } else { &[] };
            data_dir.install_pending(&in_log(log)).unwrap();
            assert_eq!(
                import::backend_index(&data_dir.backend()).unwrap(),
                expected
            );
            assert_eq!(names(&data_dir).len(), 1, "leftovers are gone");
        }
    }

    /// The next snapshot is received, and its record may be in the log, before the member
    /// removes what the previous one replaced.
    #[test]
    fn removing_what_a_snapshot_replaced_keeps_the_next_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = open(dir.path());
        backend_at(&data_dir.backend(), 5);
        receive(&data_dir, 7);
        receive(&data_dir, 9);
        data_dir.install(9).unwrap();
        receive(&data_dir, 12);
        backend_at(&data_dir.receiving(14), 14);
        data_dir.remove_replaced(9);
        assert_eq!(
            names(&data_dir),
            [
                "incoming-000000000000000c",
                "portunus-0000000000000009",
                "receiving-000000000000000e",
            ]
        );
        data_dir.install(12).unwrap();
        data_dir.remove_replaced(12);
        assert_eq!(import::backend_index(&data_dir.backend()).unwrap(), 12);
        assert_eq!(
            names(&data_dir),
            ["portunus-000000000000000c", "receiving-000000000000000e"]
        );
    }

    #[test]
    fn only_snapshots_that_raft_does_not_need_are_removed_as_refused() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = open(dir.path());
        backend_at(&data_dir.backend(), 5);
        for index in [7, 8, 9] {
            receive(&data_dir, index);
        }
        data_dir.remove_refused(&[7, 9]);
        assert_eq!(
            names(&data_dir),
            [
                "incoming-0000000000000007",
                "incoming-0000000000000009",
                "portunus"
            ]
        );
    }

    /// A crash at any point between the receipt, the record in the log, the rename and the
    /// removal leaves a directory with the newest state that the log has.
    #[test]
    fn crash_at_any_step_leaves_the_backend_that_the_log_needs() {
        type Step = fn(&DataDir);
        let steps: [(Step, &[u64], u64); 7] = [
            (|it| backend_at(&it.receiving(9), 9), &[], 5),
            (|it| it.keep_received(9).unwrap(), &[], 5),
            (|_| {}, &[9], 9),
            (|it| drop(it.install(9).unwrap()), &[9], 9),
            (|it| receive(it, 12), &[9], 9),
            (|it| it.remove_replaced(9), &[9], 9),
            (|_| {}, &[9, 12], 12),
        ];
        for crash_after in 1..=steps.len() {
            let dir = tempfile::tempdir().unwrap();
            let data_dir = open(dir.path());
            backend_at(&data_dir.backend(), 5);
            let (mut log, mut expected): (&[u64], u64) = (&[], 5);
            for (step, log_after, expected_after) in &steps[..crash_after] {
                step(&data_dir);
                (log, expected) = (log_after, *expected_after);
            }
            drop(data_dir);
            let data_dir = open(dir.path());
            data_dir.install_pending(&in_log(log)).unwrap();
            let found = import::backend_index(&data_dir.backend()).unwrap();
            assert_eq!(found, expected, "after step {crash_after}");
            assert_eq!(names(&data_dir).len(), 1, "after step {crash_after}");
        }
    }

    /// A partly removed snapshot must not be installed.
    #[test]
    fn half_removed_snapshot_does_not_look_complete() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = open(dir.path());
        receive(&data_dir, 9);
        let incoming = data_dir.incoming(9);
        let half = data_dir.member().join("obsolete-incoming-0000000000000009");
        fs::create_dir(&half).unwrap();
        fs::write(half.join("data.mdb"), b"of an earlier removal").unwrap();
        data_dir.remove(&incoming).unwrap();
        assert_eq!(names(&data_dir), Vec::<String>::new());
    }
}
