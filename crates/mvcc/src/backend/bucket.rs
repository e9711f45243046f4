//! etcd's ten buckets and the entries of `meta`.

/// A top-level bucket with etcd's name and content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Bucket {
    /// Active alarms.
    Alarm,
    /// Whether auth is on, and its revision.
    Auth,
    /// Roles by name.
    AuthRoles,
    /// Users by name.
    AuthUsers,
    /// Cluster version, downgrade, cluster parameters.
    Cluster,
    /// Every version of every key, by revision.
    Key,
    /// Leases by id.
    Lease,
    /// Members by id.
    Members,
    /// Ids of removed members, which must not join again.
    MembersRemoved,
    /// Applied index, term, configuration state, compaction marks.
    Meta,
}

impl Bucket {
    /// All buckets in name order, which is the order of snapshots and hashes.
    pub const ALL: [Self; 10] = [
        Self::Alarm,
        Self::Auth,
        Self::AuthRoles,
        Self::AuthUsers,
        Self::Cluster,
        Self::Key,
        Self::Lease,
        Self::Members,
        Self::MembersRemoved,
        Self::Meta,
    ];

    /// The name on disk.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alarm => "alarm",
            Self::Auth => "auth",
            Self::AuthRoles => "authRoles",
            Self::AuthUsers => "authUsers",
            Self::Cluster => "cluster",
            Self::Key => "key",
            Self::Lease => "lease",
            Self::Members => "members",
            Self::MembersRemoved => "members_removed",
            Self::Meta => "meta",
        }
    }
}

/// Keys of the `meta` bucket.
pub mod meta {
    /// Index of the newest applied entry, 8 bytes big-endian.
    pub const CONSISTENT_INDEX: &str = "consistent_index";
    /// Term of that entry, 8 bytes big-endian.
    pub const TERM: &str = "term";
    /// Configuration state of raft, JSON.
    pub const CONF_STATE: &str = "confState";
    /// Revision of the newest scheduled compaction.
    pub const SCHEDULED_COMPACT: &str = "scheduledCompactRev";
    /// Revision of the newest finished compaction.
    pub const FINISHED_COMPACT: &str = "finishedCompactRev";
    /// The schema version.
    pub const STORAGE_VERSION: &str = "storageVersion";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_listed_in_name_order_and_indexed_by_it() {
        assert!(Bucket::ALL.is_sorted_by_key(|bucket| bucket.name()));
        for (index, bucket) in Bucket::ALL.into_iter().enumerate() {
            assert_eq!(bucket as usize, index);
        }
    }
}
