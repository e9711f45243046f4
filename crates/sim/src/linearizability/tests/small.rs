//! Histories short enough to be judged by reading.

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

fn said(revision: i64, answer: OpAnswer) -> Answer {
    Answer::Txn {
        revision,
        succeeded: true,
        answers: vec![answer],
    }
}

/// `value` written as the `version`th of a key created at `create_revision`.
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
        said(revision, OpAnswer::Put(was)),
    )
}

fn get(from: u64, to: u64, revision: i64, found: Option<Entry>) -> Operation<Request, Answer> {
    let found = found.into_iter().map(|entry| ("a".into(), entry)).collect();
    done(
        from,
        to,
        Request::get("a"),
        said(revision, OpAnswer::Get(found)),
    )
}

fn ok(history: History) -> bool {
    is_linearizable(&Store::default(), &history)
}

#[test]
fn one_after_the_other() {
    assert!(ok(vec![]));
    assert!(ok(vec![
        get(1, 2, 1, None),
        put(3, 4, "1", 2, None),
        get(5, 6, 2, Some(entry("1", 2, 2, 1))),
    ]));
}

#[test]
fn requests_that_overlap_may_take_effect_in_either_order() {
    for (first, second) in [(2, 3), (3, 2)] {
        let was = |revision: i64, other: &str| (revision == 3).then(|| entry(other, 2, 2, 1));
        assert!(ok(vec![
            put(1, 10, "1", first, was(first, "2")),
            put(2, 9, "2", second, was(second, "1")),
        ]));
    }
    // But not when one was answered before the other was sent.
    assert!(!ok(vec![
        put(1, 2, "1", 3, Some(entry("2", 2, 2, 1))),
        put(3, 4, "2", 2, None),
    ]));
}

#[test]
fn a_stale_read_is_found() {
    assert!(!ok(vec![put(1, 2, "1", 2, None), get(3, 4, 1, None)]));
    // While the write is under way both answers are right.
    assert!(ok(vec![put(1, 4, "1", 2, None), get(2, 3, 1, None)]));
    assert!(ok(vec![
        put(1, 4, "1", 2, None),
        get(2, 3, 2, Some(entry("1", 2, 2, 1)))
    ]));
}

#[test]
fn a_lost_update_is_found() {
    assert!(!ok(vec![
        put(1, 5, "1", 2, None),
        put(2, 4, "2", 2, None),
        get(6, 7, 2, Some(entry("2", 2, 2, 1))),
    ]));
}

#[test]
fn a_write_that_was_seen_stays() {
    assert!(!ok(vec![
        lost(1, Request::put("a", "1")),
        get(2, 3, 2, Some(entry("1", 2, 2, 1))),
        get(4, 5, 1, None),
    ]));
}

#[test]
fn an_unanswered_write_may_take_effect_late_or_never() {
    let write = || lost(1, Request::put("a", "1"));
    let seen = || Some(entry("1", 2, 2, 1));
    assert!(ok(vec![write(), get(2, 3, 1, None)]));
    assert!(ok(vec![write(), get(2, 3, 1, None), get(4, 5, 2, seen())]));
    // Never twice.
    assert!(!ok(vec![
        write(),
        get(2, 3, 2, seen()),
        get(4, 5, 3, Some(entry("1", 2, 3, 2))),
    ]));
    // And not before it was sent.
    assert!(!ok(vec![
        get(1, 2, 2, seen()),
        lost(3, Request::put("a", "1"))
    ]));
}

#[test]
fn a_revision_never_goes_back_or_forward_by_itself() {
    assert!(!ok(vec![
        put(1, 2, "1", 2, None),
        put(3, 4, "2", 2, Some(entry("1", 2, 2, 1))),
    ]));
    assert!(!ok(vec![put(1, 2, "1", 3, None)]));
}

#[test]
fn a_condition_holds_at_the_moment_of_the_write() {
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
fn a_lease_ends_with_its_keys_in_one_revision() {
    let leased = |key: &str| Request::op(Op::Put(key.into(), "v".into(), 7));
    let lease = |revision| Answer::Lease { revision };
    let granted = || done(1, 2, Request::Grant(7), lease(1));
    let written = |from, key, revision| {
        done(
            from,
            from + 1,
            leased(key),
            said(revision, OpAnswer::Put(None)),
        )
    };
    let nothing = |revision| {
        done(
            20,
            21,
            Request::get_all(),
            said(revision, OpAnswer::Get(vec![])),
        )
    };
    let revoked = |revision| done(7, 8, Request::Revoke(7), lease(revision));
    let keys = || vec![granted(), written(3, "a", 2), written(5, "b", 3)];
    let with = |rest: &[Operation<Request, Answer>]| ok([&keys()[..], rest].concat());
    assert!(with(&[revoked(4), nothing(4)]));
    assert!(!with(&[revoked(5), nothing(5)]));
    assert!(!with(&[revoked(3)]));
    // Unanswered, but seen.
    assert!(with(&[lost(7, Request::Revoke(7)), nothing(4)]));
    let refused = || done(30, 31, leased("c"), Answer::Refused(Refusal::LeaseNotFound));
    assert!(with(&[lost(7, Request::Revoke(7)), refused()]));
    assert!(!with(&[refused()]));
    // A lease without keys makes no revision.
    let missed = || done(5, 6, leased("a"), Answer::Refused(Refusal::LeaseNotFound));
    assert!(ok(vec![granted(), lost(3, Request::Revoke(7)), missed()]));
    assert!(!ok(vec![granted(), missed()]));
    // Nobody but an unanswered grant can have made the lease.
    let seen = entry("v", 2, 2, 1);
    let seen = Entry { lease: 7, ..seen };
    assert!(ok(vec![
        lost(1, Request::Grant(7)),
        lost(2, leased("a")),
        get(3, 4, 2, Some(seen.clone())),
    ]));
    assert!(!ok(vec![lost(2, leased("a")), get(3, 4, 2, Some(seen))]));
}
