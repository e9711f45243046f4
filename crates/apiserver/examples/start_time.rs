//! Measures how long `testing::start` takes: run it with
//! `cargo run -p portunus-apiserver --example start_time`.
//!
//! Every start is a new server with a new port and its objects in memory. The first start has no
//! warm caches; it is printed separately.

use std::time::{Duration, Instant};

use portunus_apis::Lifecycle;
use portunus_apiserver::{Definition, DefinitionError, VersionDefinition, testing};
use serde_json::json;

const STARTS: usize = 101;

fn widgets() -> Result<Definition, DefinitionError> {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let version = VersionDefinition::new("v1", Lifecycle::since("1.34"), schema)?;
    Ok(Definition::new("example.io", "Widget", "widgets").with_version(version))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut times: Vec<Duration> = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let begun = Instant::now();
        let server = testing::start([widgets()?]).await?;
        times.push(begun.elapsed());
        drop(server);
    }
    let first = times.remove(0);
    times.sort_unstable();
    let median = times[times.len() / 2];
    let longest = times.last().copied().unwrap_or_default();
    println!("testing::start: first {first:?}, median {median:?}, longest {longest:?}");
    Ok(())
}
