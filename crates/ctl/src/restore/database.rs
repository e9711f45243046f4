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
/// Version and parameters the old cluster had agreed on; the new one decides again.
const CLUSTER_BUCKET: &[u8] = b"cluster";

/// Buckets whose contents are made here, the last one on top of what it had.
const OWN_BUCKETS: [&[u8]; 4] = [
    MEMBERS_BUCKET,
    MEMBERS_REMOVED_BUCKET,
    CLUSTER_BUCKET,
    META_BUCKET,
];

/// How far to move the revision, so that no client sees it go back.
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
    /// The new revision would be too large to count on from.
    #[error("--bump-revision {bump} on top of revision {latest} leaves no room; choose less")]
    BumpTooLarge {
        /// The revision before.
        latest: i64,
        /// How much was asked for.
        bump: u64,
    },
    /// The new file could not be written.
    #[error("cannot write the database")]
    Write(#[from] WriteError),
    /// The new file could not be made durable or renamed.
    #[error("cannot write {path:?}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
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
    let file = copy(&reader, BufWriter::new(file), cluster, position, bumped)?;
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
) -> Result<BufWriter<File>, DatabaseError> {
    let mut writer = FileWriter::new(BulkOptions::default(), out)?;
    // An old snapshot may lack some of the buckets a member needs.
    let mut names: BTreeSet<&[u8]> = OWN_BUCKETS.into();
    for bucket in reader.buckets() {
        names.insert(bucket?.0);
    }
    for name in names {
        let bucket = reader.bucket(name)?;
        let pairs = bucket.iter().flat_map(Bucket::iter);
        if OWN_BUCKETS.contains(&name) {
            let mut kept = BTreeMap::new();
            for pair in pairs.take_while(|_| name == META_BUCKET) {
                let (key, value) = pair?;
                kept.insert(key.to_vec(), value.to_vec());
            }
            write_own(&mut writer, name, kept, cluster, position, bumped)?;
            continue;
        }
        writer.bucket(name)?;
        for pair in pairs {
            let (key, value) = pair?;
            writer.entry(key, value)?;
        }
        if let Some(revision) = bumped.filter(|_| name == KEY_BUCKET) {
            writer.entry(&revision_key(revision), b"")?;
        }
    }
    let (out, _) = writer.finish()?;
    Ok(out)
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
