//! Selects the versions that survive a compaction and those that a hash includes.
//!
//! etcd decides by the generations of a key and takes the first that ends at or
//! after the revision. The newest version at or below the revision gives the
//! same result, except where one transaction deletes a key and writes it again:
//! there etcd loses the new generation, and this code does not.

use crate::version::Version;

/// Returns how many of a key's oldest versions a compaction to `revision` removes.
///
/// Of the versions at or below it only the newest stays, for reads at that
/// revision. A tombstone stays only if it is the change *at* that revision, so
/// that a watcher starting there gets the delete.
///
/// `at_or_below` counts the versions at or below the revision, `newest` is the
/// last of them.
#[must_use]
pub fn removed_by_compaction(at_or_below: usize, newest: Option<&Version>, revision: i64) -> usize {
    match newest {
        None => 0,
        Some(newest) if kept_by_compaction(newest, revision) => at_or_below.saturating_sub(1),
        Some(_) => at_or_below,
    }
}

/// Whether the hash at a revision includes the newest version at that revision; `changes` are the
/// key's versions of that revision. Tombstones are not included: members that drop them must agree
/// with members that keep them. If the revision deleted the key and wrote it again, no version is
/// included: etcd uses the generation that ended there.
#[must_use]
pub fn kept_for_hash<'v>(
    newest_at_revision: &Version,
    mut changes: impl Iterator<Item = &'v Version>,
) -> bool {
    !newest_at_revision.is_tombstone() && !changes.any(Version::is_tombstone)
}

/// Whether the version belongs to the keep-set of the compaction, which
/// includes the tombstone at the revision too.
#[must_use]
pub fn kept_by_compaction(newest_at_revision: &Version, revision: i64) -> bool {
    !newest_at_revision.is_tombstone() || newest_at_revision.revision.main == revision
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision;
    use crate::version::Value;

    #[test]
    fn hash_excludes_a_key_deleted_and_written_in_one_revision() {
        let put = |main, sub| Version {
            value: Value::InBackend,
            ..Version::tombstone(Revision { main, sub })
        };
        let (before, again) = (put(5, 0), put(7, 6));
        let deleted = Version::tombstone(Revision { main: 7, sub: 3 });
        assert!(kept_for_hash(&before, [].into_iter()));
        assert!(kept_for_hash(&again, [&again].into_iter()));
        assert!(!kept_for_hash(&deleted, [&deleted].into_iter()));
        assert!(!kept_for_hash(&again, [&deleted, &again].into_iter()));
    }
}
