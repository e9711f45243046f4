//! Compaction that several API servers coordinate, on a real store.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use portunus_apiserver::compact_periodically;
use portunus_client::{Client, Options, Put, Range};
use portunus_testkit::standalone::{Server, data_dir};
use portunus_testkit::wait;

/// Proves: K22, C19
#[tokio::test(flavor = "multi_thread")]
async fn servers_compact_in_turn_and_keep_a_round_of_history() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let options = Options {
        endpoints: vec![server.url()],
        command_timeout: Some(Duration::from_secs(10)),
        ..Options::default()
    };
    let client = Client::connect(options).unwrap();
    let every = Duration::from_millis(200);
    let servers = [(); 3].map(|()| tokio::spawn(compact_periodically(client.clone(), every)));
    wait::eventually("a compaction", async || {
        client.put(Put::new("k", "v")).await.unwrap();
        let old = client.range(Range::key("k").at_revision(2)).await;
        old.is_err().then_some(())
    })
    .await;
    // One write per round, whatever the number of servers.
    let key = client.range(Range::key("compact_rev_key")).await.unwrap();
    let (rounds, revision) = (key.kvs[0].version, key.header.unwrap().revision);
    assert!(rounds < revision, "{rounds} rounds at revision {revision}");
    let value = String::from_utf8(key.kvs[0].value.to_vec()).unwrap();
    let seen: i64 = value.parse().unwrap();
    assert!(seen < key.kvs[0].mod_revision);
    // The round before the last is history: its revision can still be read.
    client
        .range(Range::key("k").at_revision(revision))
        .await
        .unwrap();
    for server in servers {
        server.abort();
    }
    server.stop();
}
