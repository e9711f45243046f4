use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use portunus_client::concurrency::{ConcurrencyError, Lock, Mutex, Session, SessionOptions};
use portunus_client::{Client, Delete, Options, Put, Range, Txn};
use portunus_testkit::wait::{eventually, soon};
use tokio::time::timeout;

use crate::store::Store;

async fn waiting(store: &Store, name: &str) -> usize {
    let read = Range::prefix(format!("{name}/")).keys_only();
    store.client.range(read).await.unwrap().kvs.len()
}

#[tokio::test]
async fn holders_exclude_each_other_and_fencing_revisions_grow() {
    const HOLDERS: usize = 4;
    const ROUNDS: usize = 5;
    let test = "concurrency::holders_exclude_each_other";
    for store in Store::both(test).await {
        let is_held = Arc::new(AtomicBool::new(false));
        let newest = Arc::new(AtomicI64::new(0));
        let mut tasks = Vec::new();
        for _ in 0..HOLDERS {
            let mutex = Mutex::new(&store.session().await, "/locks/a");
            let (is_held, newest) = (Arc::clone(&is_held), Arc::clone(&newest));
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let lock = mutex.lock().await.unwrap();
                    assert!(!is_held.swap(true, Ordering::SeqCst), "two holders");
                    let before = newest.swap(lock.revision(), Ordering::SeqCst);
                    assert!(before < lock.revision(), "{before} {}", lock.revision());
                    tokio::task::yield_now().await;
                    is_held.store(false, Ordering::SeqCst);
                    lock.unlock().await.unwrap();
                }
            }));
        }
        for task in tasks {
            soon("end of a holder", task).await.unwrap();
        }
        assert_eq!(waiting(&store, "/locks/a").await, 0);
    }
}

#[tokio::test]
async fn tasks_of_one_session_exclude_each_other() {
    let store = Store::portunus().await;
    let session = store.session().await;
    let (first, second) = (Mutex::new(&session, "a"), Mutex::new(&session, "a"));
    let lock = first.lock().await.unwrap();
    assert!(second.try_lock().await.unwrap().is_none());
    let blocked = timeout(Duration::from_millis(200), second.lock()).await;
    assert!(blocked.is_err());
    let revision = lock.revision();
    lock.unlock().await.unwrap();
    let lock = soon("lock", second.lock()).await.unwrap();
    assert!(lock.revision() > revision);
}

#[tokio::test]
async fn try_lock_returns_at_once_and_leaves_no_key() {
    let test = "concurrency::try_lock_returns_at_once";
    for store in Store::both(test).await {
        let mutex = Mutex::new(&store.session().await, "a");
        let other = Mutex::new(&store.session().await, "a");
        let lock = mutex.try_lock().await.unwrap().expect("the lock is free");
        assert!(other.try_lock().await.unwrap().is_none());
        assert_eq!(waiting(&store, "a").await, 1);
        lock.unlock().await.unwrap();
        assert!(other.try_lock().await.unwrap().is_some());
    }
}

#[tokio::test]
async fn dropped_lock_and_dropped_wait_leave_the_queue() {
    let store = Store::portunus().await;
    let mutex = Mutex::new(&store.session().await, "a");
    let waiter = Mutex::new(&store.session().await, "a");
    let lock = mutex.lock().await.unwrap();
    let abandoned = timeout(Duration::from_millis(300), waiter.lock()).await;
    assert!(abandoned.is_err());
    eventually("key of the waiter removed", async || {
        (waiting(&store, "a").await == 1).then_some(())
    })
    .await;
    drop(lock);
    let lock = soon("lock", waiter.lock()).await.unwrap();
    drop(lock);
    eventually("empty queue", async || {
        (waiting(&store, "a").await == 0).then_some(())
    })
    .await;
}

/// Writes in the same store happen only while the lock is held.
#[tokio::test]
async fn write_with_the_condition_of_a_lock_fails_after_the_lock_is_lost() {
    let test = "concurrency::write_with_the_condition_of_a_lock";
    for store in Store::both(test).await {
        let session = store.session().await;
        let lock = Mutex::new(&session, "a").lock().await.unwrap();
        let write = |lock: &Lock| Txn::new().when(lock.is_held()).then(Put::new("data", "1"));
        assert!(store.client.txn(write(&lock)).await.unwrap().succeeded);
        store
            .client
            .delete_range(Delete::key(lock.key()))
            .await
            .unwrap();
        assert!(!store.client.txn(write(&lock)).await.unwrap().succeeded);
        let next = Mutex::new(&store.session().await, "a")
            .lock()
            .await
            .unwrap();
        assert!(next.revision() > lock.revision());
        assert!(!store.client.txn(write(&lock)).await.unwrap().succeeded);
        let lost = lock.unlock().await.unwrap_err();
        assert!(
            matches!(lost, ConcurrencyError::KeyDeleted { .. }),
            "{lost:?}"
        );
        // The other lock is untouched.
        assert!(store.client.txn(write(&next)).await.unwrap().succeeded);
    }
}

#[tokio::test]
async fn waiter_whose_key_is_deleted_does_not_get_the_lock() {
    let store = Store::portunus().await;
    let lock = Mutex::new(&store.session().await, "a")
        .lock()
        .await
        .unwrap();
    let session = store.session().await;
    let mutex = Mutex::new(&session, "a");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    eventually("waiter", async || {
        (waiting(&store, "a").await == 2).then_some(())
    })
    .await;
    let key = format!("a/{:x}", session.lease());
    store.client.delete_range(Delete::key(key)).await.unwrap();
    lock.unlock().await.unwrap();
    let refused = soon("end of the wait", waiter).await.unwrap().unwrap_err();
    assert!(
        matches!(refused, ConcurrencyError::KeyDeleted { .. }),
        "{refused:?}"
    );
}

#[tokio::test]
async fn lock_of_a_closed_session_goes_to_the_next_waiter() {
    let store = Store::portunus().await;
    let session = store.session().await;
    let lock = Mutex::new(&session, "a").lock().await.unwrap();
    let other = Mutex::new(&store.session().await, "a");
    let waiter = tokio::spawn(async move { other.lock().await });
    eventually("waiter", async || {
        (waiting(&store, "a").await == 2).then_some(())
    })
    .await;
    session.close().await.unwrap();
    let next = soon("lock", waiter).await.unwrap().unwrap();
    assert!(next.revision() > lock.revision());
    let lost = lock.unlock().await.unwrap_err();
    assert!(matches!(lost, ConcurrencyError::SessionLost(_)), "{lost:?}");
}

#[tokio::test]
async fn etcdctl_and_this_client_exclude_each_other() {
    let test = "concurrency::etcdctl_and_this_client_exclude_each_other";
    for store in Store::both(test).await {
        let mutex = Mutex::new(&store.session().await, "shared");
        let lock = mutex.lock().await.unwrap();
        let Some(etcdctl) = store.etcdctl(test, &["lock", "shared"]) else {
            return;
        };
        eventually("etcdctl in the queue", async || {
            (waiting(&store, "shared").await == 2).then_some(())
        })
        .await;
        lock.unlock().await.unwrap();
        // etcdctl holds the lock until it is stopped.
        eventually("etcdctl as the holder", async || {
            (waiting(&store, "shared").await == 1).then_some(())
        })
        .await;
        assert!(mutex.try_lock().await.unwrap().is_none());
        let waiter = tokio::spawn(async move { mutex.lock().await });
        eventually("waiter", async || {
            (waiting(&store, "shared").await == 2).then_some(())
        })
        .await;
        tokio::task::spawn_blocking(|| etcdctl.terminate())
            .await
            .unwrap();
        let _lock = soon("lock", waiter).await.unwrap().unwrap();
    }
}

/// A request without an answer may be applied after the lock was released.
#[tokio::test]
async fn key_that_a_late_request_puts_back_is_removed() {
    let store = Store::portunus().await;
    let impatient = Client::connect(Options {
        endpoints: vec![store.member.endpoint()],
        command_timeout: Some(Duration::from_millis(500)),
        ..Options::default()
    });
    let session = Session::start(&impatient.unwrap(), SessionOptions::with_ttl(60)).await;
    let session = session.unwrap();
    let mutex = Mutex::new(&session, "a");
    let process = store.member.process.as_ref().unwrap();
    process.signal(Signal::SIGSTOP);
    let locking = tokio::spawn(async move { mutex.lock().await });
    // Several attempts, none of them answered.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!locking.is_finished());
    process.signal(Signal::SIGCONT);
    let lock = soon("lock", locking).await.unwrap().unwrap();
    let key = lock.key().clone();
    lock.unlock().await.unwrap();

    let late = Put::new(&key, "").lease(session.lease());
    let late = store.client.put(late).await.unwrap().header.unwrap();
    eventually("removal of the late key", async || {
        let read = store.client.range(Range::key(&key)).await.unwrap();
        read.kvs.is_empty().then_some(())
    })
    .await;
    // A lock of the session itself is not removed.
    let lock = Mutex::new(&session, "a").lock().await.unwrap();
    assert!(lock.revision() > late.revision);
    let held = store.client.txn(Txn::new().when(lock.is_held())).await;
    assert!(held.unwrap().succeeded);
}
