//! The contract suite against the in-memory store, Portunus, Go's etcd, and a broken store for each
//! rule.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod broken;

use std::time::Duration;

use portunus_client::kubernetes::contract::{self, Control, NoControl, Outcome, Report, RunError};
use portunus_client::kubernetes::{Interface, Kubernetes, Memory, PutOptions};
use portunus_client::{Client, Options};
use portunus_testkit::cluster::Cluster;
use portunus_testkit::member::Member;
use portunus_testkit::program::Program;
use portunus_testkit::wait::{WAIT_MAX, until};

use broken::Broken;

/// How long a rule waits for events that a broken store does not send.
const BROKEN_WAIT_MAX: Duration = Duration::from_millis(500);

async fn run<S: Interface + Control>(store: &S) -> Report {
    let options = contract::Options {
        wait_max: WAIT_MAX,
        ..contract::Options::default()
    };
    let report = contract::run(store, store, &options, |_| {}).await;
    report.unwrap()
}

fn client(endpoints: Vec<String>) -> Kubernetes {
    let options = Options {
        endpoints,
        command_timeout: Some(Duration::from_secs(30)),
        ..Options::default()
    };
    Kubernetes::new(Client::connect(options).unwrap())
}

#[track_caller]
fn assert_all_passed(report: &Report) {
    let failed: Vec<_> = report.failed().chain(report.skipped()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Proves: S4-1, S4-3, S4-4, S4-5, S4-6, S4-7, S4-8, S4-10, S4-14, S4-15, S4-17,
/// S4-A2, S4-A3, S4-A5, S4-A7, S4-A8, K30, K32, K35, K39
#[tokio::test]
async fn memory_keeps_every_rule() {
    let memory = Memory::new();
    assert_all_passed(&run(&memory).await);
    assert_eq!(memory.count(b"", Default::default()).await.unwrap(), 0);
}

/// Proves: K4, K8, K9, K10, K11, K25, K26, C17
#[tokio::test]
async fn one_member_and_etcd_keep_every_rule() {
    let test = "contract::one_member_and_etcd_keep_every_rule";
    let portunus = Some(Program::portunus());
    for program in [portunus, Program::etcd(test)].into_iter().flatten() {
        eprintln!("{test}: against {:?}", program.kind);
        assert_all_passed(&run_against_one_member(program).await);
    }
}

async fn run_against_one_member(program: Program) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let mut member = Member::new("m1", program, directory.path()).unwrap();
    member.launch(&[]);
    let store = client(vec![member.endpoint()]);
    until("healthy member", async || {
        store.count(b"", Default::default()).await
    })
    .await;
    let report = run(&store).await;
    assert_eq!(store.count(b"", Default::default()).await.unwrap(), 0);
    report
}

/// Versions before 3.7 have no streams of ranges; all other rules hold.
///
/// Proves: S4-12
#[tokio::test]
async fn earlier_etcds_keep_every_rule_of_their_calls() {
    let test = "contract::earlier_etcds_keep_every_rule_of_their_calls";
    for program in Program::earlier_etcds(test) {
        let report = run_against_one_member(program).await;
        let failed: Vec<_> = report.failed().collect();
        assert!(failed.is_empty(), "{failed:#?}");
        let skipped: Vec<_> = report.skipped().map(|it| it.id).collect();
        assert_eq!(skipped, ["stream-equals-list"]);
    }
}

/// Proves: S4-12, K6, K17, K19
#[tokio::test]
async fn three_members_keep_every_rule() {
    let cluster = Cluster::start("contract::three_members_keep_every_rule", 3, &[]).await;
    cluster.leader().await;
    let members = cluster.members.iter();
    let store = client(members.map(Member::endpoint).collect());
    assert_all_passed(&run(&store).await);
}

/// Proves: K39
#[tokio::test]
async fn every_rule_fails_against_a_store_that_breaks_it() {
    for rule in contract::rules() {
        let store = Broken::new(rule.id);
        let options = contract::Options {
            wait_max: BROKEN_WAIT_MAX,
            only: vec![rule.id.to_owned()],
            ..contract::Options::default()
        };
        let report = contract::run(&store, &store, &options, |_| {}).await;
        let report = report.unwrap();
        let failed: Vec<_> = report.failed().map(|it| it.id).collect();
        assert_eq!(failed, [rule.id], "{report:?}");
    }
}

#[tokio::test]
async fn wrapper_without_a_fault_keeps_every_rule() {
    assert_all_passed(&run(&Broken::new("nothing")).await);
}

#[tokio::test]
async fn rules_are_skipped_with_the_reason_if_the_store_lacks_a_control() {
    let memory = Memory::new();
    let options = contract::Options::default();
    let mut seen = Vec::new();
    let report = contract::run(&memory, &NoControl, &options, |rule| seen.push(rule.id)).await;
    let report = report.unwrap();
    assert!(report.is_passed());
    let ids: Vec<_> = contract::rules().iter().map(|rule| rule.id).collect();
    assert_eq!(seen, ids);
    let skipped = report
        .skipped()
        .find(|it| it.id == "watch-fails-after-compaction");
    let expected = Outcome::Skipped {
        reason: "the store has no compaction".to_owned(),
    };
    assert_eq!(skipped.unwrap().outcome, expected);

    let keep_history = contract::Options {
        compaction: false,
        ..contract::Options::default()
    };
    let report = contract::run(&memory, &memory, &keep_history, |_| {}).await;
    let report = report.unwrap();
    assert!(report.is_passed());
    assert_eq!(memory.compact_revision(), 0);
    assert!(report.skipped().count() < ids.len() / 4);
}

#[tokio::test]
async fn run_refuses_a_used_prefix_and_unknown_rules() {
    let memory = Memory::new();
    let run = async |options: contract::Options| {
        contract::run(&memory, &memory, &options, |_| {})
            .await
            .unwrap_err()
    };
    let unknown = contract::Options {
        only: vec!["no-such-rule".to_owned()],
        ..contract::Options::default()
    };
    assert!(matches!(run(unknown).await, RunError::UnknownRule { .. }));
    let open = contract::Options {
        prefix: "/x".into(),
        ..contract::Options::default()
    };
    assert!(matches!(run(open).await, RunError::Prefix { .. }));
    let options = contract::Options::default();
    let key = [&options.prefix[..], b"a"].concat();
    let put = memory.optimistic_put(&key, "".into(), 0, PutOptions::default());
    put.await.unwrap();
    assert!(matches!(
        run(options).await,
        RunError::PrefixInUse { count: 1, .. }
    ));
}
