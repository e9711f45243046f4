//! Compares the error table with the specification, row by row.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use portunus_proto::EtcdError;
use tonic::{Code, Status};

const NOW: (u32, u32) = (3, 8);

/// The table of the specification: code, then texts without the common prefix.
const PREFIXED: &[(Code, &str)] = &[
    (
        Code::InvalidArgument,
        "key is not provided · key not found · value is provided · lease is provided · \
         too many operations in txn request · duplicate key given in txn request · \
         invalid client api version · invalid sort option · given member URLs are invalid · \
         request is too large · user name is empty · role name is empty · \
         authentication failed, invalid user ID or password · permission not given · \
         invalid auth management · revision of auth store is old · \
         wrong downgrade target version format · invalid downgrade target version",
    ),
    (
        Code::OutOfRange,
        "mvcc: required revision has been compacted · \
         mvcc: required revision is a future revision · too large lease TTL",
    ),
    (
        Code::ResourceExhausted,
        "mvcc: database space exceeded · too many requests",
    ),
    (
        Code::NotFound,
        "requested lease not found · member not found",
    ),
    (
        Code::FailedPrecondition,
        "lease already exists · member ID already exist · Peer URLs already exists · \
         re-configuration failed due to not enough started members · \
         can only promote a learner member · \
         can only promote a learner member which is in sync with leader · \
         too many learner members in cluster · cluster ID mismatch · root user does not exist · \
         root user does not have root role · user name already exists · user name not found · \
         role name already exists · role name not found · role is not granted to the user · \
         permission is not granted to the role · authentication is not enabled · not leader · \
         not capable · rpc not supported for learner · bad leader transferee · \
         cluster version not found during downgrade · cluster has a downgrade job in progress · \
         no inflight downgrade job · the request requires a cluster feature that is off · \
         the request requires a cluster feature, which cannot be promised while a member \
         does not know cluster features",
    ),
    (Code::Cancelled, "watch canceled · request canceled"),
    (Code::PermissionDenied, "permission denied"),
    (Code::Unauthenticated, "invalid auth token"),
    (
        Code::Unavailable,
        "no leader · leader changed · server stopped · request timed out · \
         request timed out, possibly due to previous leader failure · \
         request timed out, possibly due to connection lost · \
         request timed out, waiting for the applied index took too long · unhealthy cluster",
    ),
    (Code::DataLoss, "corrupt cluster"),
    (Code::DeadlineExceeded, "context deadline exceeded"),
    (
        Code::Unknown,
        "unknown method · request timed out, leader transfer took too long",
    ),
];

const BARE: &[(Code, &str)] = &[
    (
        Code::Unimplemented,
        "RangeStream does not support custom sort orders",
    ),
    (
        Code::Unimplemented,
        "RangeStream does not support revision filters",
    ),
    (
        Code::Unknown,
        "auth: authentication failed, password was given for no password user",
    ),
    (Code::Unknown, "not a primary lessor"),
    (Code::Unknown, "\"leader\" field must be provided"),
];

fn specified() -> BTreeMap<String, Code> {
    let prefixed = PREFIXED.iter().flat_map(|(code, texts)| {
        texts
            .split(" · ")
            .map(|text| (format!("etcdserver: {text}"), *code))
    });
    let bare = BARE.iter().map(|(code, text)| ((*text).to_owned(), *code));
    let rows: Vec<_> = prefixed.chain(bare).collect();
    let count = rows.len();
    let table: BTreeMap<_, _> = rows.into_iter().collect();
    assert_eq!(table.len(), count, "the specification lists a text twice");
    table
}

#[test]
fn table_has_exactly_the_specified_rows_and_codes() {
    let implemented: BTreeMap<String, Code> = EtcdError::ALL
        .iter()
        .map(|e| (e.text().to_owned(), e.code()))
        .collect();
    assert_eq!(implemented, specified());
}

#[test]
fn no_row_is_listed_twice() {
    let texts: BTreeSet<_> = EtcdError::ALL.iter().map(|e| e.text()).collect();
    assert_eq!(texts.len(), EtcdError::ALL.len());
}

#[test]
fn every_row_is_recognised_by_clients_of_any_version() {
    for version in [(3, 5), (3, 6), (3, 7), NOW] {
        for error in EtcdError::ALL {
            let status = error.status(version);
            assert_eq!(status.message(), error.text());
            assert_eq!(EtcdError::from_status(&status), Some(*error), "{version:?}");
        }
    }
    for error in EtcdError::ALL {
        let nominal = EtcdError::from_wire(error.code(), error.text());
        assert_eq!(nominal, Some(*error), "recognised by its defined code");
    }
}

#[test]
fn only_two_rows_differ_from_their_code_in_the_newest_version() {
    let differing: Vec<_> = EtcdError::ALL
        .iter()
        .filter(|e| e.wire_code(NOW) != e.code())
        .map(|e| (*e, e.wire_code(NOW)))
        .collect();
    assert_eq!(
        differing,
        [
            (EtcdError::TooManyRequests, Code::Unknown),
            (EtcdError::MemberNotEnoughStarted, Code::Unknown),
        ]
    );
}

#[test]
fn server_3_5_sends_unavailable_for_three_rows() {
    let differing: Vec<_> = EtcdError::ALL
        .iter()
        .filter(|e| e.wire_code((3, 5)) != e.wire_code(NOW))
        .map(|e| (*e, e.wire_code((3, 5))))
        .collect();
    assert_eq!(
        differing,
        [
            (EtcdError::NotCapable, Code::Unavailable),
            (EtcdError::NotSupportedForLearner, Code::Unavailable),
            (EtcdError::ClusterVersionUnavailable, Code::Unavailable),
        ]
    );
    for error in EtcdError::ALL {
        assert_eq!(error.wire_code((3, 6)), error.wire_code(NOW));
    }
}

#[test]
fn rows_newer_than_a_version_do_not_exist_in_it() {
    let absent_in = |version| -> Vec<_> {
        EtcdError::ALL
            .iter()
            .copied()
            .filter(|e| !e.exists_in(version))
            .collect()
    };
    let range_stream = [
        EtcdError::RangeStreamSort,
        EtcdError::RangeStreamRevisionFilter,
    ];
    let mut in_3_5 = vec![
        EtcdError::InvalidClientApiVersion,
        EtcdError::InvalidSortOption,
    ];
    in_3_5.extend(range_stream);
    assert_eq!(absent_in((3, 5)), in_3_5);
    assert_eq!(absent_in((3, 6)), range_stream);
    assert_eq!(absent_in((3, 7)), []);
    assert_eq!(absent_in((4, 0)), []);
}

#[test]
fn foreign_status_is_not_recognised_as_etcd_error() {
    let same_text_other_code = Status::new(Code::Internal, EtcdError::NoLeader.text());
    assert_eq!(EtcdError::from_status(&same_text_other_code), None);
    let other_text = Status::new(Code::Unavailable, "etcdserver: no leader!");
    assert_eq!(EtcdError::from_status(&other_text), None);
}

#[test]
fn plain_conversion_uses_the_newest_version() {
    let status = Status::from(EtcdError::NotCapable);
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), "etcdserver: not capable");
    assert_eq!(EtcdError::NotCapable.to_string(), status.message());
}
