//! Short histories whose verdict is obvious.

use super::super::etcd::{
    Answer, Condition, Entry, History, Keys, Op, OpAnswer, Refusal, Request, Store, Txn,
};
use super::super::{Operation, Outcome};
use super::is_linearizable;

fn done(from: u64, to: u64, input: Request, output: Answer) -> Operation<Request, Answer> {
    Operation {
        client: 0,
        input,
        called_at: from,
        outcome: Outcome::Answered { output, at: to },
    }
}

fn lost(from: u64, input: Request) -> Operation<Request, Answer> {
    Operation {
        client: 0,
        input,
        called_at: from,
        outcome: Outcome::Unknown,
    }
}

fn answered(revision: i64, answer: OpAnswer) -> Answer {
    Answer::Txn {
        revision,
        succeeded: true,
        answers: vec![answer],
    }
}

/// An entry without a lease.
fn entry(value: &str, create_revision: i64, mod_revision: i64, version: i64) -> Entry {
    Entry {
        value: value.into(),
        create_revision,
        mod_revision,
        version,
        lease: 0,
    }
}

fn put(
    from: u64,
    to: u64,
    value: &str,
    revision: i64,
    was: Option<Entry>,
) -> Operation<Request, Answer> {
    done(
        from,
        to,
        Request::put("a", value),
        answered(revision, OpAnswer::Put(was)),
    )
}

fn get(from: u64, to: u64, revision: i64, found: Option<Entry>) -> Operation<Request, Answer> {
    let found = found.into_iter().map(|entry| ("a".into(), entry)).collect();
    done(
        from,
        to,
        Request::get("a"),
        answered(revision, OpAnswer::Get(found)),
    )
}

fn ok(history: History) -> bool {
    is_linearizable(&Store::default(), &history)
}

#[test]
fn sequential_requests_are_linearizable() {
    assert!(ok(vec![]));
    assert!(ok(vec![
        get(1, 2, 1, None),
        put(3, 4, "1", 2, None),
        get(5, 6, 2, Some(entry("1", 2, 2, 1))),
    ]));
}

#[test]
fn overlapping_requests_take_effect_in_either_order() {
    for (first, second) in [(2, 3), (3, 2)] {
        let was = |revision: i64, other: &str| (revision == 3).then(|| entry(other, 2, 2, 1));
        assert!(ok(vec![
            put(1, 10, "1", first, was(first, "2")),
            put(2, 9, "2", second, was(second, "1")),
        ]));
    }
    // Not if one was answered before the other was sent.
    assert!(!ok(vec![
        put(1, 2, "1", 3, Some(entry("2", 2, 2, 1))),
        put(3, 4, "2", 2, None),
    ]));
}

#[test]
fn stale_read_is_detected() {
    assert!(!ok(vec![put(1, 2, "1", 2, None), get(3, 4, 1, None)]));
    // During the write both answers are correct.
    assert!(ok(vec![put(1, 4, "1", 2, None), get(2, 3, 1, None)]));
    assert!(ok(vec![
        put(1, 4, "1", 2, None),
        get(2, 3, 2, Some(entry("1", 2, 2, 1)))
    ]));
}

#[test]
fn lost_update_is_detected() {
    assert!(!ok(vec![
        put(1, 5, "1", 2, None),
        put(2, 4, "2", 2, None),
        get(6, 7, 2, Some(entry("2", 2, 2, 1))),
    ]));
}

#[test]
fn write_that_was_read_is_not_undone() {
    assert!(!ok(vec![
        lost(1, Request::put("a", "1")),
        get(2, 3, 2, Some(entry("1", 2, 2, 1))),
        get(4, 5, 1, None),
    ]));
}

#[test]
fn unanswered_write_takes_effect_late_or_never() {
    let write = || lost(1, Request::put("a", "1"));
    let seen = || Some(entry("1", 2, 2, 1));
    assert!(ok(vec![write(), get(2, 3, 1, None)]));
    assert!(ok(vec![write(), get(2, 3, 1, None), get(4, 5, 2, seen())]));
    // It does not take effect twice.
    assert!(!ok(vec![
        write(),
        get(2, 3, 2, seen()),
        get(4, 5, 3, Some(entry("1", 2, 3, 2))),
    ]));
    // It does not take effect before it is sent.
    assert!(!ok(vec![
        get(1, 2, 2, seen()),
        lost(3, Request::put("a", "1"))
    ]));
}

#[test]
fn revisions_increase_by_one_per_write() {
    assert!(!ok(vec![
        put(1, 2, "1", 2, None),
        put(3, 4, "2", 2, Some(entry("1", 2, 2, 1))),
    ]));
    assert!(!ok(vec![put(1, 2, "1", 3, None)]));
}

#[test]
fn condition_is_evaluated_at_the_time_of_the_write() {
    let swap = |revision: i64, succeeded: bool, answer: OpAnswer| {
        let txn = Txn {
            when: vec![("a".into(), Condition::ModRevision(0))],
            then: vec![Op::Put("a".into(), "mine".into(), 0)],
            otherwise: vec![Op::Get(Keys::One("a".into()))],
        };
        let answer = Answer::Txn {
            revision,
            succeeded,
            answers: vec![answer],
        };
        done(1, 10, Request::Txn(txn), answer)
    };
    let write = || put(2, 9, "1", 2, None);
    let found = || OpAnswer::Get(vec![("a".into(), entry("1", 2, 2, 1))]);
    assert!(ok(vec![write(), swap(2, false, found())]));
    assert!(!ok(vec![
        write(),
        swap(3, true, OpAnswer::Put(Some(entry("1", 2, 2, 1))))
    ]));
}

#[test]
fn revoked_lease_deletes_its_keys_in_one_revision() {
    let leased = |key: &str| Request::op(Op::Put(key.into(), "v".into(), 7));
    let lease = |revision| Answer::Lease { revision };
    let granted = || done(1, 2, Request::Grant(7), lease(1));
    let written = |from, key, revision| {
        done(
            from,
            from + 1,
            leased(key),
            answered(revision, OpAnswer::Put(None)),
        )
    };
    let nothing = |revision| {
        done(
            20,
            21,
            Request::get_all(),
            answered(revision, OpAnswer::Get(vec![])),
        )
    };
    let revoked = |revision| done(7, 8, Request::Revoke(7), lease(revision));
    let keys = || vec![granted(), written(3, "a", 2), written(5, "b", 3)];
    let with = |rest: &[Operation<Request, Answer>]| ok([&keys()[..], rest].concat());
    assert!(with(&[revoked(4), nothing(4)]));
    assert!(!with(&[revoked(5), nothing(5)]));
    assert!(!with(&[revoked(3)]));
    // An unanswered revocation whose effect is read.
    assert!(with(&[lost(7, Request::Revoke(7)), nothing(4)]));
    let refused = || done(30, 31, leased("c"), Answer::Refused(Refusal::LeaseNotFound));
    assert!(with(&[lost(7, Request::Revoke(7)), refused()]));
    assert!(!with(&[refused()]));
    // A lease without keys makes no revision.
    let missed = || done(5, 6, leased("a"), Answer::Refused(Refusal::LeaseNotFound));
    assert!(ok(vec![granted(), lost(3, Request::Revoke(7)), missed()]));
    assert!(!ok(vec![granted(), missed()]));
    // Only the unanswered grant can have created the lease.
    let seen = entry("v", 2, 2, 1);
    let seen = Entry { lease: 7, ..seen };
    assert!(ok(vec![
        lost(1, Request::Grant(7)),
        lost(2, leased("a")),
        get(3, 4, 2, Some(seen.clone())),
    ]));
    assert!(!ok(vec![lost(2, leased("a")), get(3, 4, 2, Some(seen))]));
}
