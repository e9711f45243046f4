//! Migrates the data directory of a stopped member to another version, offline.
//!
//! `portctl migrate` calls it. All members of the cluster are stopped first and each directory
//! is migrated to the same version; then they start as that version. It does what `downgrade
//! enable` does in a running cluster, for clusters that cannot run any more.
//!
//! ```text
//!  lock ──▶ versions stored ──▶ etcd's checks ──▶ log: forget what is applied ──▶ one commit:
//!                                                 (only on the way down)          storage and cluster version,
//!                                                                                 params, proposals
//! ```
//!
//! The log goes first: after an interruption the directory is unchanged but for a shorter log.
//! Keys, leases and users are never touched, and no process may run in the directory meanwhile.

mod log;

use std::path::PathBuf;

use bytes::Bytes;
use portunus_consensus::bootstrap::{BackendPosition, Boot, RestartError, restart};
use portunus_features::OwnFeatures;
use portunus_features::version::{CLUSTER_PARAMS_SINCE, ETCD_VERSION};
use portunus_gates::cluster::ClusterParams;
use portunus_gates::{MajorMinor, RegisterError};
use portunus_mvcc::backend::{
    Backend, BackendError, Bucket, Change, Lmdb, LmdbConfig, Snapshot, meta,
};
use portunus_proto::{membershippb, walpb};
use portunus_wal::{ReleaseError, WalOptions, WriteError};
use prost::Message as _;
use thiserror::Error;

use crate::{DataDir, DataDirError};
use portunus_statemachine::EntryError;
use portunus_statemachine::conf_state::{configuration, decode_conf_state};
use portunus_statemachine::feature_data::stored_beyond;
use portunus_statemachine::membership::{
    self, CLUSTER_PARAMS, CLUSTER_PARAMS_HISTORY, CLUSTER_VERSION, DOWNGRADE, MemberRecord,
    MembershipError, ParamsDecision, STORAGE_VERSION_SINCE,
};
use portunus_statemachine::params::{from_message, to_message};

/// The version of a directory without a storage version.
const WITHOUT_MARK: MajorMinor = MajorMinor::literal("3.5");

/// The directory and the target of a migration.
#[derive(Debug, Clone)]
pub struct MigrateOptions {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The directory of its log, if not inside.
    pub wal_dir: Option<PathBuf>,
    /// The version to migrate to.
    pub target: MajorMinor,
    /// Continue where a check fails.
    pub force: bool,
}

/// The result of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The storage version before.
    pub before: MajorMinor,
    /// The storage version now.
    pub after: MajorMinor,
    /// The cluster version now, if one was ever decided.
    pub cluster_version: Option<MajorMinor>,
    /// Cluster features with a value that do not exist at that version.
    pub removed_features: Vec<String>,
    /// The check that was overruled, if any.
    pub overruled: Option<String>,
}

/// Why nothing was migrated.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum MigrateError {
    /// The directory has no data of a member, or another process uses it.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The features of this program are declared wrongly.
    #[error("the features of this program are declared wrongly")]
    Declarations(#[from] RegisterError),
    /// The data has no storage version and no term.
    #[error("cannot detect storage schema version: missing term information")]
    VersionUnknown,
    /// A stored version does not parse.
    #[error("the stored {what} {text:?} is no version: restore this member from a snapshot")]
    BadVersion { what: &'static str, text: String },
    /// One of etcd's checks fails.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The backend cannot be read or written.
    #[error("the backend cannot be used")]
    Backend(#[from] BackendError),
    /// Stored members or params cannot be read.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The log cannot be opened.
    #[error("failed to open wal")]
    Log(#[from] RestartError),
    /// An entry of the log is no request.
    #[error("failed to read wal: entry {index} is no request")]
    Entry { index: u64, source: Box<EntryError> },
    /// The log could not be shortened.
    #[error("the log cannot be shortened")]
    Shorten(#[from] WriteError),
    /// The log was shortened, but old files remain.
    #[error("old files of the log cannot be removed")]
    Release(#[from] ReleaseError),
}

/// A failed check, which can be overruled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The major version differs.
    #[error("cannot create migration plan: changing major storage version is not supported")]
    Major,
    /// This program does not support the version.
    #[error("cannot create migration plan: version \"{version}.0\" is not supported")]
    Unsupported {
        /// The unsupported version.
        version: MajorMinor,
    },
    /// The target version cannot apply the unapplied entries.
    #[error(
        "cannot downgrade storage, WAL contains newer entries, as the target version ({target}.0) is lower than the version ({needed}.0) detected from WAL logs: start the members once more as they were, stop them in good order, then migrate"
    )]
    NewerEntries {
        /// The target version.
        target: MajorMinor,
        /// The lowest version that can apply them.
        needed: MajorMinor,
    },
}

/// The versions and members stored in the directory.
struct Stored {
    storage: MajorMinor,
    cluster: Option<MajorMinor>,
    params: Option<ClusterParams>,
    history: Vec<ParamsDecision>,
    members: Vec<MemberRecord>,
    position: BackendPosition,
}

/// Migrates a data directory.
pub fn migrate(options: &MigrateOptions) -> Result<Migrated, MigrateError> {
    let data_dir = DataDir::open_of_member(&options.data_dir)?;
    let wal_dir = match &options.wal_dir {
        Some(dir) => dir.clone(),
        None => options.data_dir.join("member").join("wal"),
    };
    // Only the log shows whether a received snapshot is needed.
    let in_log = portunus_wal::valid_snapshots(&wal_dir).map_err(RestartError::Read)?;
    data_dir.install_pending(&in_log)?;
    let backend = Lmdb::open(&data_dir.backend(), LmdbConfig::default())?;
    let stored = Stored::read(&*backend.snapshot()?)?;
    let target = options.target;
    let mut done = Migrated {
        before: stored.storage,
        after: stored.storage,
        cluster_version: stored.cluster,
        removed_features: Vec::new(),
        overruled: None,
    };
    let is_above = |version: MajorMinor| version > target;
    if stored.storage == target && !stored.cluster.is_some_and(is_above) {
        return Ok(done);
    }
    let mut overrule = |checked: Result<(), Refusal>| match checked {
        Err(refusal) if options.force => {
            done.overruled = Some(refusal.to_string());
            Ok(false)
        }
        checked => checked.map(|()| true),
    };
    let is_known = overrule(check_path(stored.storage, target))?;
    let mut changes = vec![storage_version(target)];
    if is_known && (stored.storage > target || stored.cluster.is_some_and(is_above)) {
        let boot = restart(&wal_dir, WalOptions::default(), &stored.position)?;
        let needed = log::version_needed(&boot.initial)?;
        overrule(match needed.filter(|needed| is_above(*needed)) {
            Some(needed) => Err(Refusal::NewerEntries { target, needed }),
            None => Ok(()),
        })?;
        forget_applied(boot)?;
        let lowered = stored.lowered(target)?;
        changes.extend(lowered.changes);
        done.cluster_version = lowered.cluster;
        done.removed_features = lowered.removed_features;
    }
    backend.commit(&changes)?;
    done.after = target;
    Ok(done)
}

/// Checks that this program supports every version between, as etcd does.
fn check_path(current: MajorMinor, target: MajorMinor) -> Result<(), Refusal> {
    if current.major() != target.major() {
        return Err(Refusal::Major);
    }
    // The first unsupported version on the way.
    let version = match target > current {
        true => current.max(ETCD_VERSION).plus_minors(1),
        false => current,
    };
    match current.max(target) > ETCD_VERSION {
        true => Err(Refusal::Unsupported { version }),
        false => Ok(()),
    }
}

/// Compacts the log to the applied index: an earlier entry may be one that the lower version
/// must not read, and a member that lags is sent a snapshot instead.
fn forget_applied(mut boot: Boot) -> Result<(), MigrateError> {
    let initial = &boot.initial;
    let index = initial.applied_index;
    let Some(term) = log::term_of(initial, index).filter(|_| index > initial.base_index) else {
        return Ok(());
    };
    // A snapshot beyond the recorded commit index would be ignored at start.
    boot.wal.append(Some(&initial.hard_state), &[])?;
    boot.wal.save_snapshot(&walpb::Snapshot {
        index,
        term,
        conf_state: Some(initial.conf_state.clone()),
    })?;
    boot.wal.release_to(index)?;
    Ok(())
}

/// The stored records for a lower version.
struct Lowered {
    changes: Vec<Change>,
    cluster: Option<MajorMinor>,
    removed_features: Vec<String>,
}

impl Stored {
    fn read(snapshot: &dyn Snapshot) -> Result<Stored, MigrateError> {
        let meta_number = |key: &str| -> Result<u64, BackendError> {
            let value = snapshot.get(Bucket::Meta, key.as_bytes())?;
            let number = value.and_then(|value| value.as_ref().try_into().ok());
            Ok(number.map_or(0, u64::from_be_bytes))
        };
        let storage = snapshot.get(Bucket::Meta, meta::STORAGE_VERSION.as_bytes())?;
        let storage = match storage {
            Some(text) => parse("storage version", &text)?,
            // Before 3.6 there is no storage version, but 3.5 stored the term.
            None if meta_number(meta::TERM)? != 0 => WITHOUT_MARK,
            None => return Err(MigrateError::VersionUnknown),
        };
        let cluster = snapshot.get(Bucket::Cluster, CLUSTER_VERSION)?;
        let params = snapshot.get(Bucket::Cluster, CLUSTER_PARAMS)?;
        let conf_state = snapshot.get(Bucket::Meta, meta::CONF_STATE.as_bytes())?;
        let conf_state = conf_state.map(|json| decode_conf_state(&json));
        let members = membership::member_records(snapshot)?;
        let conf_state = configuration(conf_state.transpose()?, members.iter());
        Ok(Stored {
            storage,
            cluster: cluster
                .map(|text| parse("cluster version", &text))
                .transpose()?,
            params: match params {
                None => None,
                Some(bytes) => {
                    let message = membershippb::ClusterParams::decode(bytes).ok();
                    let params = message.as_ref().and_then(from_message);
                    Some(params.ok_or(MembershipError::Params)?)
                }
            },
            history: match snapshot.get(Bucket::Cluster, CLUSTER_PARAMS_HISTORY)? {
                None => Vec::new(),
                Some(bytes) => {
                    let history = membershippb::ClusterParamsHistory::decode(bytes);
                    history.map_err(|_| MembershipError::Params)?.decisions
                }
            },
            members,
            position: BackendPosition {
                applied_index: meta_number(meta::CONSISTENT_INDEX)?,
                conf_state,
            },
        })
    }

    fn lowered(&self, target: MajorMinor) -> Result<Lowered, MigrateError> {
        let mut changes = Vec::new();
        let cluster = self.cluster.map(|version| version.min(target));
        if let Some(version) = cluster.filter(|_| cluster != self.cluster) {
            let text = Bytes::from(format!("{version}.0"));
            changes.push(put(Bucket::Cluster, CLUSTER_VERSION, text));
            // A downgrade in progress has reached its target or is below it.
            changes.push(delete(Bucket::Cluster, DOWNGRADE));
        }
        let mut removed_features = Vec::new();
        if let Some(params) = self.params.as_ref().filter(|it| it.version > target) {
            let specs = OwnFeatures::declared()?.cluster_specs();
            let pruned = specs.pruned(params, target);
            let kept = pruned.as_ref().map(|it| &it.features);
            let names = params.features.keys();
            let gone = names.filter(|name| !kept.is_some_and(|kept| kept.contains_key(*name)));
            removed_features = gone.cloned().collect();
            changes.push(match &pruned {
                Some(params) => {
                    let bytes = to_message(params).encode_to_vec().into();
                    put(Bucket::Cluster, CLUSTER_PARAMS, bytes)
                }
                None => delete(Bucket::Cluster, CLUSTER_PARAMS),
            });
            if let Some(decisions) = with_migration(&self.history, params.version, target, &pruned)
            {
                let history = membershippb::ClusterParamsHistory { decisions };
                let bytes = history.encode_to_vec().into();
                changes.push(put(Bucket::Cluster, CLUSTER_PARAMS_HISTORY, bytes));
            }
        }
        for kept in stored_beyond(target) {
            let entries = kept.entries.iter();
            changes.extend(entries.map(|(bucket, key)| delete(*bucket, key)));
        }
        if target < CLUSTER_PARAMS_SINCE {
            changes.push(delete(Bucket::Cluster, CLUSTER_PARAMS_HISTORY));
            let proposers = self.members.iter().filter(|it| it.proposal.is_some());
            for member in proposers {
                let (key, json) = MemberRecord {
                    proposal: None,
                    ..member.clone()
                }
                .stored()?;
                changes.push(put(Bucket::Members, &key, json));
            }
        }
        Ok(Lowered {
            changes,
            cluster,
            removed_features,
        })
    }
}

/// Returns the history with the migration as last decision, the same on every member. Its index
/// is the one after the last decision: an entry there decided nothing, or is the first entry of
/// the next leader, which decides nothing either.
fn with_migration(
    history: &[ParamsDecision],
    before: MajorMinor,
    target: MajorMinor,
    pruned: &Option<ClusterParams>,
) -> Option<Vec<ParamsDecision>> {
    let last = history.last()?;
    let migration = ParamsDecision {
        index: last.index.saturating_add(1),
        cluster_version: target.to_string(),
        params: pruned.as_ref().map(to_message),
        cause: format!("migrated offline from {before} to {target}"),
        ..ParamsDecision::default()
    };
    Some(membership::with_decision(history, migration))
}

fn parse(what: &'static str, text: &[u8]) -> Result<MajorMinor, MigrateError> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| MigrateError::BadVersion {
        what,
        text: text.into_owned(),
    })
}

/// Stores the storage version; 3.5 has none.
fn storage_version(version: MajorMinor) -> Change {
    let key = meta::STORAGE_VERSION.as_bytes();
    match version >= STORAGE_VERSION_SINCE {
        true => put(Bucket::Meta, key, Bytes::from(format!("{version}.0"))),
        false => delete(Bucket::Meta, key),
    }
}

fn put(bucket: Bucket, key: &[u8], value: Bytes) -> Change {
    let key = Bytes::copy_from_slice(key);
    Change::Put { bucket, key, value }
}

fn delete(bucket: Bucket, key: &[u8]) -> Change {
    let key = Bytes::copy_from_slice(key);
    Change::Delete { bucket, key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migration_over_an_unknown_version_is_refused() {
        let version = |text: &str| text.parse::<MajorMinor>().unwrap();
        for (current, target, unknown) in [
            ("3.5", "3.8", None),
            ("3.8", "3.5", None),
            ("3.8", "3.9", Some("3.9")),
            ("3.6", "3.10", Some("3.9")),
            ("3.10", "3.8", Some("3.10")),
        ] {
            let checked = check_path(version(current), version(target));
            let expected = unknown.map(|text| Refusal::Unsupported {
                version: version(text),
            });
            assert_eq!(checked.err(), expected, "{current} to {target}");
        }
        assert_eq!(
            check_path(version("3.8"), version("4.0")),
            Err(Refusal::Major)
        );
    }

    #[test]
    fn history_ends_with_the_migration() {
        let version = |text: &str| text.parse::<MajorMinor>().unwrap();
        let params = |at: &str, names: &[&str]| ClusterParams {
            version: version(at),
            features: names.iter().map(|it| ((*it).to_owned(), true)).collect(),
        };
        let decided = params("3.8", &["LeaseCheckpoint", "LogCompression"]);
        let stored = Stored {
            storage: version("3.8"),
            cluster: Some(version("3.8")),
            history: vec![ParamsDecision {
                index: 7,
                params: Some(to_message(&decided)),
                ..ParamsDecision::default()
            }],
            params: Some(decided),
            members: Vec::new(),
            position: BackendPosition::default(),
        };
        let lowered = stored.lowered(version("3.7")).unwrap();
        let history = lowered.changes.iter().find_map(|change| match change {
            Change::Put { key, value, .. } if key == CLUSTER_PARAMS_HISTORY => Some(value.clone()),
            _ => None,
        });
        let history = membershippb::ClusterParamsHistory::decode(history.unwrap()).unwrap();
        let last = history.decisions.last().unwrap();
        assert_eq!((history.decisions.len(), last.index), (2, 8));
        assert_eq!(last.cause, "migrated offline from 3.8 to 3.7");
        let left = params("3.7", &["LeaseCheckpoint"]);
        assert_eq!(last.params, Some(to_message(&left)));
    }
}
