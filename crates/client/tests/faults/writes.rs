use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portunus_client::{Delete, Put, Range};
use portunus_testkit::wait::soon;

use crate::nemesis::Nemesis;

/// Every call is made once by the test; the client must not make it twice.
#[tokio::test]
async fn write_is_never_made_twice_and_an_acknowledged_one_is_kept() {
    let test = "faults::write_is_never_made_twice";
    let mut nemesis = Nemesis::start(test).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let progress = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..3)
        .map(|task| {
            let progress = Arc::clone(&progress);
            let (client, stopped) = (nemesis.client(), stopped.clone());
            tokio::spawn(async move {
                let mut outcomes = Vec::new();
                while !*stopped.borrow() {
                    let key = format!("/once/{task}/{:05}", outcomes.len());
                    let put = client.put(Put::new(&key, "")).await;
                    progress.fetch_add(usize::from(put.is_ok()), Ordering::Relaxed);
                    outcomes.push((key, put.is_ok()));
                }
                outcomes
            })
        })
        .collect();
    nemesis.every_fault(&progress).await;
    stop.send(true).unwrap();
    let client = nemesis.client();
    let (mut made, mut unknown) = (0, 0);
    for task in tasks {
        for (key, is_acknowledged) in soon("end of the writes", task).await.unwrap() {
            let read = client.range(Range::key(&key)).await.unwrap();
            let version = read.kvs.first().map_or(0, |kv| kv.version);
            assert!(version <= 1, "{key} was written {version} times");
            assert!(!is_acknowledged || version == 1, "{key} is lost");
            made += 1;
            unknown += usize::from(!is_acknowledged);
        }
    }
    assert!(unknown > 0, "no write was disturbed by a fault");
    let deleted = client.delete_range(Delete::prefix("/once/")).await.unwrap();
    assert!(usize::try_from(deleted.deleted).unwrap() >= made - unknown);
}
