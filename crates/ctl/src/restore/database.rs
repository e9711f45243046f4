//! Copies the snapshot's buckets into a new database file, with the membership of the new
//! cluster instead of the old one's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use portunus_bolt::{Bucket, BulkOptions, FileWriter, OpenError, ReadError, Reader, WriteError};

use super::cluster::InitialCluster;
use super::log::LogPosition;
use crate::go::json::{Object, array};

const KEY_BUCKET: &[u8] = b"key";
const MEMBERS_BUCKET: &[u8] = b"members";
const MEMBERS_REMOVED_BUCKET: &[u8] = b"members_removed";
const META_BUCKET: &[u8] = b"meta";
/// The decisions of the old cluster. The new one decides again, except that it starts at the
/// old one's version: a cluster without a version begins at 3.0 and stays there until every
/// member is up, below what its data may need.
const CLUSTER_BUCKET: &[u8] = b"cluster";
const CLUSTER_VERSION_KEY: &[u8] = b"clusterVersion";

/// Buckets whose contents are made here, the last two on top of what they had.
const OWN_BUCKETS: [&[u8]; 4] = [
    MEMBERS_BUCKET,
    MEMBERS_REMOVED_BUCKET,
    CLUSTER_BUCKET,
    META_BUCKET,
];

/// The increase of the revision, so that no client sees it go back.
#[derive(Debug, Clone, Copy)]
pub struct RevisionBump(pub u64);

/// Why the database was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The snapshot is no database.
    #[error("cannot open the snapshot")]
    Open(#[from] OpenError),
    /// The snapshot is damaged.
    #[error("cannot read the snapshot")]
    Read(#[from] ReadError),
    /// A key of the history is no revision.
    #[error("the snapshot has a key in its history that is no revision; take another one")]
    Revision,
    /// The new revision would be too large to increment.
    #[error(
        "--bump-revision {bump} on top of revision {latest} exceeds the largest revision; choose less"
    )]
    BumpTooLarge {
        /// The revision before.
        latest: i64,
        /// The requested increase.
        bump: u64,
    },
    /// The new file could not be written.
    #[error("cannot write the database")]
    Write(#[from] WriteError),
    /// The new file could not be made durable or renamed.
    #[error("cannot write {path:?}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Writes the database beside its final name and renames it when it is whole and durable.
pub fn write(
    snapshot: &Path,
    database: &Path,
    cluster: &InitialCluster,
    position: LogPosition,
    bump: Option<RevisionBump>,
    progress: impl FnMut(u64, u64),
) -> Result<(), DatabaseError> {
    let reader = Reader::open(snapshot)?;
    let bumped = match bump {
        Some(bump) => Some(bumped_revision(&reader, bump)?),
        None => None,
    };
    let part = database.with_extension("part");
    let failed = |source| DatabaseError::File {
        path: part.clone(),
        source,
    };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)
        .map_err(failed)?;
    let file = copy(
        &reader,
        BufWriter::new(file),
        cluster,
        position,
        bumped,
        progress,
    )?;
    let file = file
        .into_inner()
        .map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    fs::rename(&part, database).map_err(failed)
}

fn copy(
    reader: &Reader,
    out: BufWriter<File>,
    cluster: &InitialCluster,
    position: LogPosition,
    bumped: Option<i64>,
    mut progress: impl FnMut(u64, u64),
) -> Result<BufWriter<File>, DatabaseError> {
    let mut writer = FileWriter::new(BulkOptions::default(), out)?;
    // An old snapshot may lack some of the buckets a member needs.
    let mut names: BTreeSet<&[u8]> = OWN_BUCKETS.into();
    for bucket in reader.buckets() {
        names.insert(bucket?.0);
    }
    let bytes_all = reader.database_bytes();
    let mut bytes_copied = 0;
    for name in names {
        let bucket = reader.bucket(name)?;
        let pairs = bucket.iter().flat_map(Bucket::iter);
        if OWN_BUCKETS.contains(&name) {
            let mut kept = BTreeMap::new();
            for pair in pairs {
                let (key, value) = pair?;
                if survives(name, key) {
                    kept.insert(key.to_vec(), value.to_vec());
                }
            }
            write_own(&mut writer, name, kept, cluster, position, bumped)?;
            continue;
        }
        writer.bucket(name)?;
        for pair in pairs {
            let (key, value) = pair?;
            writer.entry(key, value)?;
            bytes_copied += (key.len() + value.len()) as u64;
            progress(bytes_copied, bytes_all);
        }
        if let Some(revision) = bumped.filter(|_| name == KEY_BUCKET) {
            writer.entry(&revision_key(revision), b"")?;
        }
    }
    let (out, _) = writer.finish()?;
    Ok(out)
}

/// Whether an entry of one of these buckets also holds for the new cluster.
fn survives(bucket: &[u8], key: &[u8]) -> bool {
    bucket == META_BUCKET || (bucket == CLUSTER_BUCKET && key == CLUSTER_VERSION_KEY)
}

/// Writes a bucket whose contents belong to the cluster and the member, not to the keys.
fn write_own(
    writer: &mut FileWriter<BufWriter<File>>,
    name: &[u8],
    mut entries: BTreeMap<Vec<u8>, Vec<u8>>,
    cluster: &InitialCluster,
    position: LogPosition,
    bumped: Option<i64>,
) -> Result<(), DatabaseError> {
    match name {
        MEMBERS_BUCKET => {
            for member in &cluster.members {
                let id = format!("{:x}", member.id);
                entries.insert(id.into_bytes(), member.json().into_bytes());
            }
        }
        META_BUCKET => {
            let mut set = |key: &str, value: &[u8]| {
                entries.insert(key.as_bytes().to_vec(), value.to_vec());
            };
            set("consistent_index", &position.index.to_be_bytes());
            set("term", &position.term.to_be_bytes());
            set("confState", conf_state(cluster).as_bytes());
            if let Some(revision) = bumped {
                set("scheduledCompactRev", &revision_key(revision));
            }
        }
        _ => {}
    }
    writer.bucket(name)?;
    for (key, value) in &entries {
        writer.entry(key, value)?;
    }
    Ok(())
}

fn conf_state(cluster: &InitialCluster) -> String {
    let voters = cluster.ids().into_iter().map(|id| id.to_string());
    Object::default()
        .raw("voters", array(voters))
        .raw("auto_leave", false)
        .end()
}

/// The main revision after the bump.
fn bumped_revision(reader: &Reader, bump: RevisionBump) -> Result<i64, DatabaseError> {
    let mut latest = 0;
    if let Some(keys) = reader.bucket(KEY_BUCKET)? {
        // Keys of the history are ascending revisions, so the last one is the latest.
        if let Some(last) = keys.iter().last() {
            let (key, _) = last?;
            let main = key.first_chunk().ok_or(DatabaseError::Revision)?;
            latest = i64::from_be_bytes(*main);
        }
    }
    i64::try_from(bump.0)
        .ok()
        .and_then(|bump| latest.checked_add(bump))
        .ok_or(DatabaseError::BumpTooLarge {
            latest,
            bump: bump.0,
        })
}

/// A revision as the history's keys are written: main, `_`, sub.
fn revision_key(main: i64) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &0_i64.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    type Contents<'a> = [(&'a str, &'a [(&'a [u8], &'a [u8])])];

    fn snapshot(contents: &Contents<'_>) -> Vec<u8> {
        let mut writer = FileWriter::new(BulkOptions::default(), Cursor::new(Vec::new())).unwrap();
        for (bucket, entries) in contents {
            writer.bucket(bucket.as_bytes()).unwrap();
            for (key, value) in *entries {
                writer.entry(key, value).unwrap();
            }
        }
        writer.finish().unwrap().0.into_inner()
    }

    fn restored(contents: &Contents<'_>, bump: Option<RevisionBump>) -> Reader {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("s"), directory.path().join("db"));
        fs::write(&source, snapshot(contents)).unwrap();
        let cluster = InitialCluster::new("m1=http://h:1", "token", "m1", "http://h:1").unwrap();
        let position = LogPosition { index: 1, term: 1 };
        write(&source, &target, &cluster, position, bump, |_, _| {}).unwrap();
        assert!(!directory.path().join("db.part").exists());
        Reader::from_bytes(fs::read(&target).unwrap().into()).unwrap()
    }

    fn keys(reader: &Reader, bucket: &str) -> Vec<Vec<u8>> {
        let bucket = reader.bucket(bucket.as_bytes()).unwrap().unwrap();
        bucket.iter().map(|pair| pair.unwrap().0.to_vec()).collect()
    }

    fn value<'r>(reader: &'r Reader, bucket: &str, key: &str) -> Option<&'r [u8]> {
        let bucket = reader.bucket(bucket.as_bytes()).unwrap().unwrap();
        bucket.get(key.as_bytes()).unwrap()
    }

    /// Proves: S0-A20
    #[test]
    fn restore_keeps_keys_and_removes_the_old_cluster() {
        let history = revision_key(7);
        let reader = restored(
            &[
                (
                    "cluster",
                    &[
                        (b"clusterParams", b"{}"),
                        (b"clusterParamsHistory", b"{}"),
                        (b"clusterVersion", b"3.7.0"),
                        (b"downgrade", b"{}"),
                    ],
                ),
                ("key", &[(&history, b"record")]),
                ("lease", &[(b"12345678", b"lease")]),
                ("members", &[(b"abc", b"{}")]),
                ("members_removed", &[(b"def", b"removed")]),
                (
                    "meta",
                    &[
                        (b"confState", b"old"),
                        (b"consistent_index", b"old"),
                        (b"storageVersion", b"3.7.0"),
                    ],
                ),
            ],
            None,
        );
        assert_eq!(keys(&reader, "key"), [history]);
        assert_eq!(value(&reader, "lease", "12345678"), Some(&b"lease"[..]));
        assert_eq!(keys(&reader, "cluster"), [b"clusterVersion"]);
        assert_eq!(keys(&reader, "members_removed"), [b""; 0]);
        let member = keys(&reader, "members");
        assert_eq!(member.len(), 1);
        let id = String::from_utf8(member[0].clone()).unwrap();
        assert_eq!(
            value(&reader, "meta", "storageVersion"),
            Some(&b"3.7.0"[..])
        );
        assert_eq!(
            value(&reader, "meta", "consistent_index"),
            Some(&1_u64.to_be_bytes()[..])
        );
        assert_eq!(
            value(&reader, "meta", "term"),
            Some(&1_u64.to_be_bytes()[..])
        );
        let voter = u64::from_str_radix(&id, 16).unwrap();
        let conf_state = format!("{{\"voters\":[{voter}],\"auto_leave\":false}}");
        assert_eq!(
            value(&reader, "meta", "confState"),
            Some(conf_state.as_bytes())
        );
        assert_eq!(value(&reader, "meta", "scheduledCompactRev"), None);
    }

    #[test]
    fn revision_bump_adds_an_empty_record_and_schedules_a_compaction_below_it() {
        let history = revision_key(7);
        let reader = restored(
            &[("key", &[(&history, b"record")])],
            Some(RevisionBump(100)),
        );
        assert_eq!(keys(&reader, "key"), [history, revision_key(107)]);
        let scheduled = value(&reader, "meta", "scheduledCompactRev");
        assert_eq!(scheduled, Some(&revision_key(107)[..]));
    }
}
