use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portunus_client::concurrency::{Election, Observer, Session, SessionOptions};
use portunus_testkit::wait::soon;

use crate::nemesis::Nemesis;

#[tokio::test]
async fn observer_sees_every_proclamation_once_during_faults() {
    let test = "faults::observer_sees_every_proclamation_once_during_faults";
    let mut nemesis = Nemesis::start(test).await;
    let client = nemesis.client();
    let mut observer = Observer::new(&client, "/election");
    let observing = tokio::spawn(async move {
        let mut seen = Vec::new();
        loop {
            let proposal = observer.next().await.unwrap();
            let value = String::from_utf8_lossy(&proposal.kv.value).into_owned();
            let is_last = value == "end";
            seen.push((value, proposal.kv.mod_revision));
            if is_last {
                return seen;
            }
        }
    });
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let options = SessionOptions::with_ttl(30);
    let session = Session::start(&client, options).await.unwrap();
    let progress = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&progress);
    let leading = tokio::spawn(async move {
        let election = Election::new(&session, "/election");
        let mut leadership = election.campaign("begin").await.unwrap();
        let mut acknowledged = Vec::new();
        let mut number = 0;
        while !*stopped.borrow() {
            number += 1;
            if leadership.proclaim(number.to_string()).await.is_ok() {
                acknowledged.push(number.to_string());
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
        while leadership.proclaim("end").await.is_err() {
            tokio::task::yield_now().await;
        }
        acknowledged
    });
    nemesis.every_fault(&progress).await;
    stop.send(true).unwrap();
    let acknowledged = soon("end of the leader", leading).await.unwrap();
    let seen = soon("end of the observer", observing).await.unwrap();
    assert!(
        seen.windows(2).all(|pair| pair[0].1 < pair[1].1),
        "{seen:?}"
    );
    let values: Vec<&String> = seen.iter().map(|(value, _)| value).collect();
    for value in &acknowledged {
        let count = values.iter().filter(|seen| **seen == value).count();
        assert_eq!(count, 1, "{value}");
    }
}
