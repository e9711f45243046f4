use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};

use portunus_client::concurrency::{Lock, Mutex, Session, SessionOptions};
use portunus_client::{Client, LeaseLost, Put, Range, Txn, Watch};
use portunus_testkit::wait::{soon, until};
use tokio::sync::watch;

use crate::nemesis::Nemesis;

/// What all workers of the test know.
#[derive(Default)]
struct Observed {
    /// The holder that has not released the lock, and its session.
    holder: Option<(i64, Session)>,
    revisions: BTreeSet<i64>,
    /// Fenced writes that were acknowledged, by fencing revision.
    written: Vec<i64>,
}

struct Worker {
    client: Client,
    observed: Arc<StdMutex<Observed>>,
    acquired: Arc<AtomicUsize>,
}

impl Worker {
    /// Locks, writes and unlocks until the test ends; begins again with a new session if it is lost.
    async fn run(self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let options = SessionOptions::with_ttl(10);
            let Ok(session) = Session::start(&self.client, options).await else {
                continue;
            };
            let mutex = Mutex::new(&session, "/lock");
            loop {
                let lock = tokio::select! {
                    lock = mutex.lock() => lock,
                    _ = stop.wait_for(|stop| *stop) => return,
                };
                match lock {
                    Ok(lock) => self.hold(&session, lock).await,
                    Err(_) => break,
                }
            }
        }
    }

    async fn hold(&self, session: &Session, lock: Lock) {
        let revision = lock.revision();
        {
            let mut observed = self.observed.lock().unwrap();
            self.acquired.fetch_add(1, Ordering::Relaxed);
            assert!(
                observed.revisions.insert(revision),
                "two holders at {revision}"
            );
            if let Some((before, session)) = observed.holder.take() {
                // Its worker has not noticed yet.
                assert!(
                    session.loss().is_some(),
                    "{before} and {revision} both hold the lock"
                );
                assert!(before < revision);
            }
            observed.holder = Some((revision, session.clone()));
        }
        let write = Txn::new()
            .when(lock.is_held())
            .then(Put::new("/data", revision.to_string()));
        let written = self.client.txn(write).await;
        let is_written = written.is_ok_and(|written| written.succeeded);
        self.release(revision, is_written);
        // A lock that is lost meanwhile is no failure of this test.
        let _ = lock.unlock().await;
    }

    fn release(&self, revision: i64, is_written: bool) {
        let mut observed = self.observed.lock().unwrap();
        if is_written {
            observed.written.push(revision);
        }
        observed.holder.take_if(|(holder, _)| *holder == revision);
    }
}

#[tokio::test]
async fn lock_has_one_holder_and_growing_fencing_revisions_during_faults() {
    const WORKERS: usize = 3;
    let test = "faults::lock_has_one_holder_and_growing_fencing_revisions";
    let mut nemesis = Nemesis::start(test).await;
    let observed = Arc::new(StdMutex::new(Observed::default()));
    let acquired = Arc::new(AtomicUsize::new(0));
    let (stop, stopped) = watch::channel(false);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let worker = Worker {
                client: nemesis.client(),
                observed: Arc::clone(&observed),
                acquired: Arc::clone(&acquired),
            };
            tokio::spawn(worker.run(stopped.clone()))
        })
        .collect();
    nemesis.every_fault(&acquired).await;
    stop.send(true).unwrap();
    for worker in workers {
        soon("end of a worker", worker).await.unwrap();
    }

    // Every acknowledged fenced write is in the history, and their revisions only grow.
    let client = nemesis.client();
    let last = client.range(Range::key("/data")).await.unwrap();
    let last = last.kvs.into_iter().next().expect("something was written");
    let mut watcher = client.watch(Watch::key("/data").from_revision(1));
    let mut history: Vec<i64> = Vec::new();
    let mut seen = 0;
    while seen < last.mod_revision {
        let response = soon("events", watcher.next()).await.unwrap().unwrap();
        for event in response.events {
            let kv = event.kv.unwrap();
            seen = kv.mod_revision;
            history.push(std::str::from_utf8(&kv.value).unwrap().parse().unwrap());
        }
    }
    assert!(
        history.windows(2).all(|pair| pair[0] < pair[1]),
        "{history:?}"
    );
    let observed = observed.lock().unwrap();
    let history: BTreeSet<i64> = history.into_iter().collect();
    assert!(
        observed
            .written
            .iter()
            .all(|revision| history.contains(revision))
    );
    assert!(
        history
            .iter()
            .all(|revision| observed.revisions.contains(revision))
    );
}

#[tokio::test]
async fn session_survives_restarts_leader_changes_and_partitions_that_are_shorter_than_its_ttl() {
    let test = "faults::session_survives_restarts_leader_changes_and_partitions";
    let mut nemesis = Nemesis::start(test).await;
    let session = Session::start(&nemesis.client(), SessionOptions::with_ttl(30)).await;
    let session = session.unwrap();
    let lock = Mutex::new(&session, "/lock").lock().await.unwrap();
    let progress = Arc::new(AtomicUsize::new(0));
    let (client, counted) = (nemesis.client(), Arc::clone(&progress));
    let reading = tokio::spawn(async move {
        loop {
            let read = client.range(Range::key("/data")).await;
            counted.fetch_add(usize::from(read.is_ok()), Ordering::Relaxed);
        }
    });
    nemesis.every_fault(&progress).await;
    reading.abort();
    assert!(session.loss().is_none(), "{:?}", session.loss());
    let held = Txn::new().when(lock.is_held());
    let client = nemesis.client();
    let held = until("answer", async || client.txn(held.clone()).await).await;
    assert!(held.succeeded);
    lock.unlock().await.unwrap();
}

#[tokio::test]
async fn session_whose_members_are_all_away_is_lost_and_its_waiters_are_told() {
    let test = "faults::session_whose_members_are_all_away_is_lost";
    let mut nemesis = Nemesis::start(test).await;
    let options = SessionOptions::with_ttl(4);
    let holder = Session::start(&nemesis.client(), SessionOptions::with_ttl(60)).await;
    let lock = Mutex::new(&holder.unwrap(), "/lock").lock().await.unwrap();
    let session = Session::start(&nemesis.client(), options).await.unwrap();
    let mutex = Mutex::new(&session, "/lock");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    for member in 0..3 {
        nemesis.cluster.kill(member);
    }
    let lost = soon("loss of the session", session.lost()).await;
    assert!(matches!(lost, LeaseLost::Expired { .. }), "{lost:?}");
    let refused = soon("end of the wait", waiter).await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("session is lost"), "{refused}");
    drop(lock);
}
