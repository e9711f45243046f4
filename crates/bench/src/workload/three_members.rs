//! The table of workloads for three members.
//!
//! Clients spread over all members, as clients with all endpoints do; one load uses the leader
//! only, so that no request is forwarded. Connections are a multiple of three, so that each
//! member gets the same number.

use super::table::{long, workload};
use super::{Kind, KvKind, Target, Workload};
use crate::report::Measure;
use crate::server::StopMode;

/// A log too short to serve a new member, and no health check before a member is added.
const SHORT_LOG: &[&str] = &[
    "--snapshot-count=100",
    "--snapshot-catchup-entries=10",
    "--strict-reconfig-check=false",
];

const fn duration(workload: Workload) -> Workload {
    Workload {
        measure: Measure::Duration,
        ..workload
    }
}

/// The workloads for three members, in order.
pub const THREE_MEMBERS: &[Workload] = &[
    workload(
        "put-1",
        "three members: put, 1 connection to the leader, 1 client",
        "put",
        Kind::Kv(KvKind::Put),
        1,
        1,
    ),
    workload(
        "put-100",
        "three members: put, 12 connections to all members alike, 100 clients",
        "put",
        Kind::Kv(KvKind::Put),
        12,
        100,
    ),
    Workload {
        target: Target::Leader,
        ..workload(
            "put-100-leader",
            "three members: put, 12 connections to the leader, 100 clients",
            "put",
            Kind::Kv(KvKind::Put),
            12,
            100,
        )
    },
    workload(
        "put-1000",
        "three members: put, 99 connections to all members alike, 1000 clients",
        "put",
        Kind::Kv(KvKind::Put),
        99,
        1000,
    ),
    workload(
        "get",
        "three members: linearizable get, 12 connections to all members alike, 100 clients",
        "get",
        Kind::Kv(KvKind::Get),
        12,
        100,
    ),
    duration(workload(
        "leader-change",
        "three members: time from SIGKILL of the leader to the next acknowledged put at another member; lower is better",
        "change",
        Kind::LeaderChange(StopMode::Killed),
        3,
        3,
    )),
    duration(workload(
        "leader-stop",
        "three members: longest time without an acknowledged put at any member after SIGTERM of the leader; lower is better",
        "change",
        Kind::LeaderChange(StopMode::Graceful),
        3,
        3,
    )),
    Workload {
        server_flags: SHORT_LOG,
        ..duration(long(workload(
            "snapshot-to-new-member",
            "three members: time from the start of a fourth to its answer with the last of 31 250 keys of 32 000 B; lower is better",
            "snapshot",
            Kind::NewMember,
            4,
            32,
        )))
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names = THREE_MEMBERS.iter().map(|load| load.name);
        let unique: std::collections::BTreeSet<_> = names.collect();
        assert_eq!(unique.len(), THREE_MEMBERS.len());
    }

    #[test]
    fn connections_are_spread_evenly_over_members() {
        let spread = THREE_MEMBERS
            .iter()
            .filter(|load| matches!(load.kind, Kind::Kv(_)) && load.target == Target::AllMembers);
        assert!(spread.clone().count() > 2);
        for load in spread.filter(|load| load.connections > 1) {
            assert_eq!(load.connections % 3, 0, "{}", load.name);
        }
    }
}
