//! What a workload is, and the table of those for one member.

use super::{KvKind, LeaseKind, TxnKind};
use crate::report::Measure;
use crate::server::Ending;

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Puts and reads.
    Kv(KvKind),
    /// Transactions, as kube-apiserver sends them.
    Txn(TxnKind),
    /// Some of everything.
    Mixed,
    /// Many watches on one prefix.
    Watch,
    /// Granting and renewing leases.
    Lease(LeaseKind),
    /// Filling a store to be restarted.
    Load,
    /// Filling a big store.
    LoadBig,
    /// Starting on existing data.
    Restart(Ending),
    /// Ending leaders.
    LeaderChange(Ending),
    /// A member that gets everything as a snapshot.
    NewMember,
}

/// Which members the clients of a load ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// All alike: connections go to one after the other, the first to the leader.
    Everybody,
    /// The leader only.
    Leader,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// How `--only` names it.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// What is done.
    pub kind: Kind,
    /// TCP connections that the clients share.
    pub connections: usize,
    /// Clients, each with one request under way; of a watch workload, watches.
    pub clients: usize,
    /// Whom they ask.
    pub target: Target,
    /// What its table shows.
    pub measure: Measure,
    /// What the server is told beside what every server is told. Of a group, those of its
    /// first workload are taken.
    pub server_flags: &'static [&'static str],
    /// Whether it goes on with the server and the data of the one before it.
    pub is_continuation: bool,
    /// Whether it takes so long that one round is enough when there is little time.
    pub is_long: bool,
}

pub(super) const fn workload(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    kind: Kind,
    connections: usize,
    clients: usize,
) -> Workload {
    Workload {
        name,
        title,
        unit,
        kind,
        connections,
        clients,
        target: Target::Everybody,
        measure: Measure::Rate,
        server_flags: &[],
        is_continuation: false,
        is_long: false,
    }
}

const fn load(name: &'static str, title: &'static str, kind: Kind) -> Workload {
    workload(name, title, "put", kind, 4, 32)
}

const fn restart(name: &'static str, title: &'static str, ending: Ending) -> Workload {
    Workload {
        is_continuation: true,
        ..workload(name, title, "start", Kind::Restart(ending), 1, 1)
    }
}

pub(super) const fn long(workload: Workload) -> Workload {
    Workload {
        is_long: true,
        ..workload
    }
}

/// Those for one member, in the order in which they run.
pub const ONE_MEMBER: &[Workload] = &[
    workload(
        "put-1",
        "put, 1 connection, 1 client",
        "put",
        Kind::Kv(KvKind::Put),
        1,
        1,
    ),
    workload(
        "put-100",
        "put, 10 connections, 100 clients",
        "put",
        Kind::Kv(KvKind::Put),
        10,
        100,
    ),
    workload(
        "put-1000",
        "put, 100 connections, 1000 clients",
        "put",
        Kind::Kv(KvKind::Put),
        100,
        1000,
    ),
    workload(
        "get",
        "linearizable get, 10 connections, 100 clients",
        "get",
        Kind::Kv(KvKind::Get),
        10,
        100,
    ),
    workload(
        "get-serializable",
        "serializable get, 10 connections, 100 clients",
        "get",
        Kind::Kv(KvKind::GetSerializable),
        10,
        100,
    ),
    workload(
        "range",
        "linearizable range of 500 keys, 10 connections, 20 clients",
        "range",
        Kind::Kv(KvKind::Range),
        10,
        20,
    ),
    workload(
        "list",
        "linearizable list of 10 000 keys with values of 1 KiB, 4 connections, 4 clients",
        "list",
        Kind::Kv(KvKind::List),
        4,
        4,
    ),
    workload(
        "txn-create",
        "txn: put if the key is not there; 10 connections, 100 clients",
        "txn",
        Kind::Txn(TxnKind::Create),
        10,
        100,
    ),
    workload(
        "txn-update",
        "txn: put if the key is unchanged, else get; 10 connections, 100 clients",
        "txn",
        Kind::Txn(TxnKind::Update),
        10,
        100,
    ),
    workload(
        "txn-delete",
        "txn: delete if the key is unchanged, else get; 10 connections, 100 clients; keys are made 100 at a time in between",
        "txn",
        Kind::Txn(TxnKind::Delete),
        10,
        100,
    ),
    workload(
        "mixed",
        "70 % get, 20 % update txn, 5 % range of 500, 5 % put, and one watch on everything; 10 connections, 100 clients",
        "request",
        Kind::Mixed,
        10,
        100,
    ),
    workload(
        "watch-1",
        "watch fan-out: each put goes to 1 watch, the next put when it is there",
        "event",
        Kind::Watch,
        1,
        1,
    ),
    workload(
        "watch-100",
        "watch fan-out: each put goes to 100 watches on 10 connections, the next put when all have it",
        "event",
        Kind::Watch,
        10,
        100,
    ),
    workload(
        "watch-1000",
        "watch fan-out: each put goes to 1000 watches on 10 connections, the next put when all have it",
        "event",
        Kind::Watch,
        10,
        1000,
    ),
    workload(
        "lease",
        "lease grant and one keep-alive, 10 connections, 100 clients",
        "pair",
        Kind::Lease(LeaseKind::GrantAndKeepAlive),
        10,
        100,
    ),
    workload(
        "lease-keepalive",
        "lease keep-alive on 100 streams, 10 connections, 100 clients",
        "renewal",
        Kind::Lease(LeaseKind::KeepAlive),
        10,
        100,
    ),
    load(
        "restart-load",
        "100 000 keys, 100 in a txn, 4 connections, 32 clients; memory some seconds later",
        Kind::Load,
    ),
    restart(
        "restart-killed",
        "restart with 100 000 keys after SIGKILL, to the first linearizable answer",
        Ending::Killed,
    ),
    restart(
        "restart-asked",
        "restart with 100 000 keys after SIGTERM, to the first linearizable answer",
        Ending::Asked,
    ),
    long(load(
        "big-load",
        "1 000 000 keys, 100 in a txn, 4 connections, 32 clients; memory some seconds later",
        Kind::LoadBig,
    )),
    long(restart(
        "big-killed",
        "restart with 1 000 000 keys after SIGKILL, to the first linearizable answer",
        Ending::Killed,
    )),
    long(restart(
        "big-asked",
        "restart with 1 000 000 keys after SIGTERM, to the first linearizable answer",
        Ending::Asked,
    )),
];

/// Workloads that run one after the other on the same server.
pub fn groups(workloads: &[Workload]) -> impl Iterator<Item = &[Workload]> {
    workloads.chunk_by(|_, next| next.is_continuation)
}

impl Workload {
    /// Whether `--only` with this word means it: the name, or its beginning up to a dash.
    #[must_use]
    pub fn is_meant_by(&self, word: &str) -> bool {
        self.name
            .strip_prefix(word)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant_by(word: &str) -> Vec<&'static str> {
        let meant = ONE_MEMBER
            .iter()
            .filter(|workload| workload.is_meant_by(word));
        meant.map(|workload| workload.name).collect()
    }

    #[test]
    fn a_word_means_a_name_or_a_family_of_names() {
        assert_eq!(meant_by("put"), ["put-1", "put-100", "put-1000"]);
        assert_eq!(meant_by("put-1"), ["put-1"]);
        assert_eq!(meant_by("get"), ["get", "get-serializable"]);
        assert!(meant_by("pu").is_empty());
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> =
            ONE_MEMBER.iter().map(|load| load.name).collect();
        assert_eq!(names.len(), ONE_MEMBER.len());
    }

    #[test]
    fn a_group_is_a_workload_with_all_that_go_on_with_its_server() {
        let big = groups(ONE_MEMBER).last().unwrap_or_default();
        let names: Vec<&str> = big.iter().map(|workload| workload.name).collect();
        assert_eq!(names, ["big-load", "big-killed", "big-asked"]);
        assert!(groups(ONE_MEMBER).all(|group| !group[0].is_continuation));
    }
}
