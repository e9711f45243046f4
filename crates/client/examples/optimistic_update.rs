//! An update that several writers make at the same time without losing one of them: read, change,
//! write if nobody else wrote meanwhile, else start from what the other one wrote.
//!
//! `cargo run -p portunus-client --example optimistic_update -- 127.0.0.1:2379` increments a
//! counter in a running store.
#![allow(clippy::print_stdout)]

use std::error::Error as StdError;

use portunus_client::kubernetes::{Error, GetOptions, Interface, KeyValue, Kubernetes, PutOptions};
use portunus_client::{Client, Options};

/// Increments the number at a key and returns it.
pub async fn increment(store: &dyn Interface, key: &[u8]) -> Result<u64, Error> {
    let mut current = store.get(key, GetOptions::default()).await?.kv;
    loop {
        let next = number(current.as_ref()) + 1;
        let expected = current.as_ref().map_or(0, |kv| kv.mod_revision);
        let options = PutOptions {
            get_on_failure: true,
            ..PutOptions::default()
        };
        let value = next.to_string().into();
        match store.optimistic_put(key, value, expected, options).await {
            Ok(put) if put.succeeded => return Ok(next),
            // The answer has the pair of the other writer: no read is needed.
            Ok(put) => current = put.kv,
            // The write may have happened: the counter would be incremented twice by a second one,
            // so the caller has to decide.
            Err(error) => return Err(error),
        }
    }
}

fn number(kv: Option<&KeyValue>) -> u64 {
    let text = kv.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn StdError>> {
    let endpoints: Vec<String> = std::env::args().skip(1).collect();
    let client = Client::connect(Options {
        endpoints,
        ..Options::default()
    })?;
    let number = increment(&Kubernetes::new(client), b"/example/counter").await?;
    println!("{number}");
    Ok(())
}
