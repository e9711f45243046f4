//! A leader is stopped, dies, or loses the quorum. Pending requests end as soon as there is
//! another leader, and a request that was never proposed never takes effect.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::cluster::Cluster;
use common::requests::{get, put};
use common::{Clients, eventually, soon};
use nix::sys::signal::Signal;
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, RangeRequest, RequestOp, TxnRequest, range_request,
};
use tokio::task::JoinHandle;

/// Shorter than the five seconds and two election timeouts after which a member fails a
/// request: within this time only a new leader ends one.
const BEFORE_THE_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients that write through some members, one request after the other.
struct Writers {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(cluster: &Cluster, members: &[usize]) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let written = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for (number, member) in members.iter().cycle().take(8 * members.len()).enumerate() {
            let mut clients = cluster.clients(*member);
            let (stop, written) = (Arc::clone(&stop), Arc::clone(&written));
            let key = format!("writer-{number}");
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let request = clients.kv.put(put(&key, "x"));
                    let answer = tokio::time::timeout(BEFORE_THE_TIMEOUT, request).await;
                    let answer = answer.expect("a request waited although there was a leader");
                    if answer.is_ok() {
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        Writers {
            stop,
            written,
            tasks,
        }
    }

    /// Waits until some more writes have succeeded.
    async fn go_on(&self) {
        let before = self.written.load(Ordering::Relaxed);
        eventually("more writes", async || {
            let written = self.written.load(Ordering::Relaxed);
            let has_failed = self.tasks.iter().any(JoinHandle::is_finished);
            (written > before + 50 || has_failed).then_some(())
        })
        .await;
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

fn without(cluster: &Cluster, one: usize) -> Vec<usize> {
    let others = cluster.running().into_iter();
    others.filter(|member| *member != one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_leader_transfers_leadership_and_writes_continue() {
    let mut cluster = Cluster::start("leader_told_to_stop", 3, &[]).await;
    let leader = cluster.leader().await;
    let others = without(&cluster, leader);
    let writers = Writers::start(&cluster, &others);
    writers.go_on().await;
    let process = cluster.members[leader].process.take().unwrap();
    let (status, log) = tokio::task::spawn_blocking(|| process.terminate())
        .await
        .unwrap();
    assert!(status.success(), "{status}:\n{log}");
    assert!(
        log.contains("leadership transferred before the stop"),
        "{log}"
    );
    writers.go_on().await;
    writers.end().await;
    cluster.start_one(leader).await;
    cluster.agree().await;
}

/// The leader is paused before it dies, so that the requests of the others are certainly lost.
#[tokio::test(flavor = "multi_thread")]
async fn requests_forwarded_to_a_dead_leader_end_after_the_next_election() {
    let mut cluster = Cluster::start("requests_of_a_dead_leader", 3, &[]).await;
    let leader = cluster.leader().await;
    let others = without(&cluster, leader);
    let process = cluster.members[leader].process.as_ref().unwrap();
    process.signal(Signal::SIGSTOP);
    let mut requests = Vec::new();
    for member in &others {
        let mut clients = cluster.clients(*member);
        requests.push(tokio::spawn(async move {
            let request = clients.kv.put(put("lost", "x"));
            tokio::time::timeout(BEFORE_THE_TIMEOUT, request).await
        }));
        let mut clients = cluster.clients(*member);
        requests.push(tokio::spawn(async move {
            let read = clients.kv.range(get("lost"));
            let read = tokio::time::timeout(BEFORE_THE_TIMEOUT, read).await;
            read.map(|read| {
                // Reads can be retried, and are.
                read.expect("the next leader answers a read");
                Err(tonic::Status::ok("a read"))
            })
        }));
    }
    for request in requests {
        let answer = request.await.unwrap();
        let answer = answer.expect("a request waited although there was a leader");
        // Whether it took effect is unknown, and the error reports that.
        if let Err(status) = answer
            && status.code() != tonic::Code::Ok
        {
            assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
            assert!(status.message().contains("leader failure"), "{status}");
        }
    }
    cluster.kill(leader);
    cluster.start_one(leader).await;
    cluster.agree().await;
}

/// A client relies on a reported failure, unless the request was proposed.
#[tokio::test(flavor = "multi_thread")]
async fn put_that_failed_without_a_leader_is_not_applied_when_a_leader_returns() {
    let mut cluster = Cluster::start("put_without_a_leader", 3, &[]).await;
    let lonely = cluster.leader().await;
    let others = without(&cluster, lonely);
    for member in &others {
        cluster.kill(*member);
    }
    eventually("the leader to step down", async || {
        let status = cluster.status(lonely).await?;
        (status.leader == 0).then_some(())
    })
    .await;
    let mut clients = cluster.clients(lonely);
    let mut hasty = clients.clone();
    let (refused, given_up) = tokio::join!(
        soon("a refusal", clients.kv.put(put("refused", "x"))),
        // This client does not wait for the response.
        tokio::time::timeout(
            Duration::from_millis(500),
            hasty.kv.put(put("given up", "x"))
        ),
    );
    assert!(refused.is_err() && given_up.is_err());

    cluster.start_all(&others).await;
    cluster.leader().await;
    let later = clients.kv.put(put("later", "x"));
    soon("a write", later).await.unwrap();
    for key in ["refused", "given up"] {
        let read = clients.kv.range(get(key)).await.unwrap().into_inner();
        assert_eq!(read.count, 0, "{key:?} was applied after all");
    }
}

/// Keeps the apply thread of a member busy, and of no other: only the member that received a
/// transaction executes its reads.
async fn keep_busy(clients: &mut Clients) -> JoinHandle<()> {
    for batch in 0..40 {
        let puts = (0..120).map(|number| RequestOp {
            request: Some(Request::RequestPut(put(
                &format!("{batch}-{number}"),
                &"x".repeat(100),
            ))),
        });
        let request = TxnRequest {
            success: puts.collect(),
            ..TxnRequest::default()
        };
        clients.kv.txn(request).await.unwrap();
    }
    let sorted = RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        limit: 1,
        sort_order: range_request::SortOrder::Descend.into(),
        sort_target: range_request::SortTarget::Value.into(),
        ..RangeRequest::default()
    };
    let mut operations = vec![Request::RequestPut(put("busy", "x"))];
    operations.extend((0..100).map(|_| Request::RequestRange(sorted.clone())));
    let request = TxnRequest {
        success: (operations.into_iter())
            .map(|it| RequestOp { request: Some(it) })
            .collect(),
        ..TxnRequest::default()
    };
    let mut clients = clients.clone();
    tokio::spawn(async move {
        clients.kv.txn(request).await.unwrap();
    })
}

/// The lease was granted through a follower, which has applied more than the leader.
#[tokio::test(flavor = "multi_thread")]
async fn keep_alive_at_a_leader_that_lags_finds_a_lease_that_was_granted() {
    let mut cluster = Cluster::start("keep_alive_at_a_leader_that_lags", 3, &[]).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let mut at_leader = cluster.clients(leader);
    let busy = keep_busy(&mut at_leader).await;
    eventually("the leader to lag", async || {
        let status = cluster.status(leader).await?;
        (status.raft_index > status.raft_applied_index).then_some(())
    })
    .await;
    let grant = LeaseGrantRequest { id: 77, ttl: 60 };
    let granted = cluster.clients(follower).lease.lease_grant(grant).await;
    assert_eq!(granted.unwrap().into_inner().ttl, 60);
    let was_busy = !busy.is_finished();
    let renewal = tokio_stream::iter([LeaseKeepAliveRequest { id: 77 }]);
    let mut answers = at_leader
        .lease
        .lease_keep_alive(renewal)
        .await
        .unwrap()
        .into_inner();
    let answer = soon("an answer", answers.message()).await.unwrap().unwrap();
    assert_eq!((answer.id, answer.ttl), (77, 60), "busy: {was_busy}");
    busy.await.unwrap();
}
