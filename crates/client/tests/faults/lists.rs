use portunus_client::{Put, Range, Txn};
use portunus_testkit::wait::soon;

use crate::store::Store;

/// Far more bytes than a connection buffers, so that the list is not complete when it breaks.
const KEYS: usize = 2000;
const VALUE_BYTES: usize = 8 * 1024;

#[tokio::test]
async fn list_goes_on_at_its_revision_after_the_server_restarts() {
    let test = "faults::list_goes_on_at_its_revision_after_the_server_restarts";
    for mut store in Store::both(test).await {
        let key = |number: usize| format!("/list/{number:05}");
        for first in (0..KEYS).step_by(100) {
            let value = vec![b'x'; VALUE_BYTES];
            let puts =
                (first..first + 100).map(|number| Put::new(key(number), value.clone()).into());
            store.client.txn(Txn::new().then_all(puts)).await.unwrap();
        }
        let client = store.client.clone();
        let mut list = client.list(Range::prefix("/list/"));
        let mut keys = Vec::new();
        while let Some(kv) = soon("pair", list.next()).await.unwrap() {
            assert_eq!(kv.version, 1, "{kv:?}");
            keys.push(String::from_utf8_lossy(&kv.key).into_owned());
            if keys.len() == 700 {
                store.member.kill();
                store.member.launch(&[]);
                store.wait_until_serving().await;
                for number in [0, 1500, KEYS - 1, KEYS] {
                    client.put(Put::new(key(number), "changed")).await.unwrap();
                }
            }
        }
        assert_eq!(keys, (0..KEYS).map(key).collect::<Vec<_>>());
    }
}
