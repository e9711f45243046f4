//! The description of a workload, and the table for one member.

use super::{KvKind, LeaseKind, TxnKind};
use crate::report::Measure;
use crate::server::StopMode;

/// The kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Puts and reads.
    Kv(KvKind),
    /// Transactions, as kube-apiserver sends them.
    Txn(TxnKind),
    /// A mix of requests.
    Mixed,
    /// Many watches on one prefix.
    Watch,
    /// Granting and renewing leases.
    Lease(LeaseKind),
    /// Filling the store for a restart.
    Load,
    /// Filling a big store.
    LoadBig,
    /// Starting on existing data.
    Restart(StopMode),
    /// Leaders that are stopped, one after the other.
    LeaderChange(StopMode),
    /// A member that gets everything as a snapshot.
    NewMember,
}

/// The members to which the clients of a load connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// All members in turn, the leader first.
    AllMembers,
    /// The leader only.
    Leader,
}

/// A workload.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Name for `--only`.
    pub name: &'static str,
    /// Description for the tables.
    pub title: &'static str,
    /// The counted unit.
    pub unit: &'static str,
    /// The kind of load.
    pub kind: Kind,
    /// Number of TCP connections, shared by the clients.
    pub connections: usize,
    /// Number of clients, each with one request in flight; for a watch workload, of watches.
    pub clients: usize,
    /// The members to which the clients connect.
    pub target: Target,
    /// The measured quantity.
    pub measure: Measure,
    /// Additional flags of the server. A group uses those of its first workload.
    pub server_flags: &'static [&'static str],
    /// Whether it continues with the server and data of the previous workload.
    pub is_continuation: bool,
    /// Whether `--quick` runs it in the first round only.
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
        target: Target::AllMembers,
        measure: Measure::Rate,
        server_flags: &[],
        is_continuation: false,
        is_long: false,
    }
}

const fn load(name: &'static str, title: &'static str, kind: Kind) -> Workload {
    workload(name, title, "put", kind, 4, 32)
}

const fn restart(name: &'static str, title: &'static str, stop_mode: StopMode) -> Workload {
    Workload {
        is_continuation: true,
        ..workload(name, title, "start", Kind::Restart(stop_mode), 1, 1)
    }
}

pub(super) const fn long(workload: Workload) -> Workload {
    Workload {
        is_long: true,
        ..workload
    }
}

/// The workloads for one member, in order.
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
        StopMode::Killed,
    ),
    restart(
        "restart-asked",
        "restart with 100 000 keys after SIGTERM, to the first linearizable answer",
        StopMode::Graceful,
    ),
    long(load(
        "big-load",
        "1 000 000 keys, 100 in a txn, 4 connections, 32 clients; memory some seconds later",
        Kind::LoadBig,
    )),
    long(restart(
        "big-killed",
        "restart with 1 000 000 keys after SIGKILL, to the first linearizable answer",
        StopMode::Killed,
    )),
    long(restart(
        "big-asked",
        "restart with 1 000 000 keys after SIGTERM, to the first linearizable answer",
        StopMode::Graceful,
    )),
];

/// Splits workloads into groups that run on the same server.
pub fn groups(workloads: &[Workload]) -> impl Iterator<Item = &[Workload]> {
    workloads.chunk_by(|_, next| next.is_continuation)
}

impl Workload {
    /// Returns whether a name in `--only` selects it: its name, or the part before a dash.
    #[must_use]
    pub fn matches_name(&self, prefix: &str) -> bool {
        self.name
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected_by(prefix: &str) -> Vec<&'static str> {
        let meant = ONE_MEMBER
            .iter()
            .filter(|workload| workload.matches_name(prefix));
        meant.map(|workload| workload.name).collect()
    }

    #[test]
    fn name_selects_a_workload_or_a_family() {
        assert_eq!(selected_by("put"), ["put-1", "put-100", "put-1000"]);
        assert_eq!(selected_by("put-1"), ["put-1"]);
        assert_eq!(selected_by("get"), ["get", "get-serializable"]);
        assert!(selected_by("pu").is_empty());
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> =
            ONE_MEMBER.iter().map(|load| load.name).collect();
        assert_eq!(names.len(), ONE_MEMBER.len());
    }

    #[test]
    fn group_is_a_workload_with_its_continuations() {
        let big = groups(ONE_MEMBER).last().unwrap_or_default();
        let names: Vec<&str> = big.iter().map(|workload| workload.name).collect();
        assert_eq!(names, ["big-load", "big-killed", "big-asked"]);
        assert!(groups(ONE_MEMBER).all(|group| !group[0].is_continuation));
    }
}
