//! A test of application code without a server: the application takes any
//! [`Interface`](portunus_client::kubernetes::Interface), the test gives it a
//! [`Memory`](portunus_client::kubernetes::Memory) and moves its clock.
//!
//! The application registers a worker under a lease and lists the workers that are alive.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use bytes::Bytes;
use portunus_client::kubernetes::{Error, Interface, ListOptions, Memory, PutOptions};

const WORKERS: &[u8] = b"/workers/";

/// Registers a worker, unless another one has its name.
pub async fn register(store: &dyn Interface, name: &str, lease: i64) -> Result<bool, Error> {
    let key = [WORKERS, name.as_bytes()].concat();
    let options = PutOptions {
        lease_id: lease,
        ..PutOptions::default()
    };
    let put = store.optimistic_put(&key, Bytes::new(), 0, options).await?;
    Ok(put.succeeded)
}

/// Returns the names of the workers that are alive.
pub async fn alive(store: &dyn Interface) -> Result<Vec<String>, Error> {
    let list = store.list(WORKERS, ListOptions::default()).await?;
    let names = list.kvs.iter().map(|kv| &kv.key[WORKERS.len()..]);
    Ok(names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

/// The test: a worker that does not renew its lease disappears.
pub async fn test_that_a_silent_worker_disappears() -> Result<(), Error> {
    let store = Memory::new();
    let (silent, busy) = (
        store.grant_lease(Duration::from_secs(10)),
        store.grant_lease(Duration::from_secs(10)),
    );
    assert!(register(&store, "a", silent).await?);
    assert!(register(&store, "b", busy).await?);
    assert!(!register(&store, "a", busy).await?);

    store.advance(Duration::from_secs(9));
    store.renew_lease(busy)?;
    store.advance(Duration::from_secs(1));
    assert_eq!(alive(&store).await?, ["b"]);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    test_that_a_silent_worker_disappears().await?;
    println!("passed");
    Ok(())
}
