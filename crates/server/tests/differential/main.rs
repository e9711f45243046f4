//! The same random requests to Portunus and to a real etcd: the same responses, the same
//! refusals, the same revisions, the same hash.
//!
//! `portunus_testkit::go` documents where etcd comes from. Without one the test prints a warning
//! that it proved nothing. `PORTUNUS_DIFFERENTIAL_REQUESTS` sets how many requests are sent,
//! `PORTUNUS_TEST_SEED` repeats a run.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod administration;
mod auth;
#[path = "../common/mod.rs"]
mod common;
mod requests;

use std::collections::BTreeSet;

use common::random::Random;
use common::{Clients, Server, data_dir, eventually};
use portunus_proto::etcdserverpb::{HashKvRequest, PutRequest, RangeRequest, range_request};
use portunus_testkit::member::Member;
use portunus_testkit::program::Program;
use requests::{Credentials, Request, answer, clear, deletes, puts, request, send};

const REQUESTS: u64 = 10_000;

/// The number of requests of a test.
fn requests_wanted() -> u64 {
    let wanted = std::env::var("PORTUNUS_DIFFERENTIAL_REQUESTS");
    wanted.map_or(REQUESTS, |text| text.parse().unwrap())
}

/// Starts a Go etcd with a new data directory.
async fn start_etcd(
    program: Program,
    guard: &tempfile::TempDir,
    flags: &[&str],
) -> (Member, Clients) {
    let mut etcd = Member::new("etcd", program, guard.path()).unwrap();
    // Only its responses matter; durability is not tested.
    etcd.flags = vec!["--log-level=error".into(), "--unsafe-no-fsync".into()];
    etcd.flags
        .extend(flags.iter().map(|flag| (*flag).to_owned()));
    etcd.launch(&[]);
    eventually("listening etcd", async || {
        std::net::TcpStream::connect(etcd.client).ok()
    })
    .await;
    let clients = common::connect(etcd.client).await;
    (etcd, clients)
}

async fn newest(clients: &mut Clients) -> i64 {
    let request = RangeRequest {
        key: "zz".into(),
        ..RangeRequest::default()
    };
    clients
        .kv
        .range(request)
        .await
        .unwrap()
        .into_inner()
        .header
        .unwrap()
        .revision
}

async fn hash(clients: &mut Clients, revision: i64) -> String {
    let request = HashKvRequest { revision };
    let result = clients.maintenance.hash_kv(request).await;
    answer(result, |m| clear(&mut m.header))
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_have_the_answers_of_etcd() {
    const TEST: &str = "random_requests_have_the_answers_of_etcd";
    let Some(program) = Program::etcd(TEST) else {
        return;
    };
    let requests = requests_wanted();
    let anonymous = Credentials::default();
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut own = server.connect().await;
    let etcd_dir = tempfile::tempdir().unwrap();
    let (_etcd, mut theirs) = start_etcd(program, &etcd_dir, &[]).await;
    // A fixed seed, so that a failure is caused by a change of code. To search for unknown
    // differences, set another seed, and more requests.
    let mut random = Random::seeded_or("differential", 20_261_116);
    // A transaction may delete a range and then put one of its keys again. A Go etcd that is
    // compacted to exactly that revision loses the key, and ends when it is read, so there is
    // nothing to compare with. Such revisions are not compacted to.
    let mut unsafe_to_compact = BTreeSet::new();
    // The first compaction may be to revision 0, which is skipped: a Go etcd then stores the
    // hash of nothing as that of revision 0, and returns it for the newest revision.
    let mut is_compacted = false;
    for number in 0..requests {
        let newest = newest(&mut own).await;
        let request = request(&mut random, newest);
        if matches!(&request, Request::Compact(r) if unsafe_to_compact.contains(&r.revision)) {
            continue;
        }
        if matches!(&request, Request::Compact(r) if r.revision == 0 && !is_compacted) {
            continue;
        }
        let (ours, expected) = tokio::join!(
            send(&mut own, request.clone(), &anonymous),
            send(&mut theirs, request.clone(), &anonymous)
        );
        assert_eq!(ours, expected, "request {number}: {request:#?}");
        if matches!(&request, Request::Txn(txn) if deletes(txn) && puts(txn)) {
            unsafe_to_compact.insert(newest + 1);
        }
        if matches!(&request, Request::Compact(_)) && ours.starts_with("CompactionResponse") {
            is_compacted = true;
        }
        if number % 50 == 0 {
            // At the newest revision, by 0: for a revision that was just compacted to, the
            // response may come from the compaction's own hash, which both compute in the
            // background.
            let (ours, expected) = (hash(&mut own, 0).await, hash(&mut theirs, 0).await);
            assert_eq!(ours, expected, "hash after request {number}");
        }
    }
}

/// Enough keys for several pieces, with distinct sort values.
#[tokio::test(flavor = "multi_thread")]
async fn range_streams_with_a_sort_target_equal_etcd() {
    const TEST: &str = "range_streams_with_a_sort_target_equal_etcd";
    const KEYS: u64 = 60;
    let Some(program) = Program::etcd(TEST) else {
        return;
    };
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut own = server.connect().await;
    let etcd_dir = tempfile::tempdir().unwrap();
    let (_etcd, mut theirs) = start_etcd(program, &etcd_dir, &[]).await;
    let anonymous = Credentials::default();
    for number in 0..KEYS {
        // 17 and 7 are coprime to the number of keys: two other orders of the same numbers.
        let put = PutRequest {
            key: format!("k{:02}", number * 17 % KEYS).into(),
            value: format!("v{:02}", number * 7 % KEYS).into(),
            ..PutRequest::default()
        };
        own.kv.put(put.clone()).await.unwrap();
        theirs.kv.put(put).await.unwrap();
    }
    for sort_target in 0..5 {
        for limit in [0, 1, 7, 25, 100] {
            let request = Request::RangeStream(RangeRequest {
                key: "k".into(),
                range_end: "l".into(),
                limit,
                // Among others the version, which is 1 for all keys.
                sort_target,
                keys_only: limit == 25,
                ..RangeRequest::default()
            });
            // Go's sort is not stable, so the order of equal keys is its own.
            if sort_target == range_request::SortTarget::Version as i32 && limit != 7 {
                continue;
            }
            let (ours, expected) = tokio::join!(
                send(&mut own, request.clone(), &anonymous),
                send(&mut theirs, request.clone(), &anonymous)
            );
            assert_eq!(ours, expected, "{request:#?}");
        }
    }
}
