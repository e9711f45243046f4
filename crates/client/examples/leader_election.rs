//! A leader election with fencing: several processes want to do a job, one of them does it, and a
//! leader that was replaced without noticing it can do no harm.
//!
//! `cargo run -p portunus-client --example leader_election -- NAME 127.0.0.1:2379`, several times with
//! different names, against a running store. Stop the leader and see the next one take over.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use portunus_client::concurrency::{Election, Leadership, Session, SessionOptions};
use portunus_client::{Client, Options, Put, Txn};

const ELECTION: &str = "/example/election";
/// What only the leader may write.
const JOB: &str = "/example/job";
/// How long the others wait for a leader that died.
const TTL_S: i64 = 10;

/// A resource outside of the store, such as a disk or another service. It keeps the largest fencing
/// revision that it has seen and refuses smaller ones.
#[derive(Debug, Default)]
pub struct Resource {
    newest: i64,
    /// What was done, and by which leader.
    pub done: Vec<(i64, String)>,
}

impl Resource {
    /// Does something for a leader, unless a later one was here before.
    pub fn act(&mut self, fencing_revision: i64, what: &str) -> bool {
        if fencing_revision < self.newest {
            return false;
        }
        self.newest = fencing_revision;
        self.done.push((fencing_revision, what.to_owned()));
        true
    }
}

/// Writes a step of the job to the store. The condition makes the store refuse it if another leader was
/// elected, even if this process was asleep meanwhile.
pub async fn write_step(
    client: &Client,
    leadership: &Leadership,
    step: &str,
) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let write = Txn::new()
        .when(leadership.is_leader())
        .then(Put::new(JOB, format!("{} {step}", leadership.revision())));
    Ok(client.txn(write).await?.succeeded)
}

/// Waits until this process is the leader and does `steps` of the job. Returns how many were done before
/// the leadership was lost.
pub async fn lead(
    client: &Client,
    name: &str,
    steps: usize,
    pause: Duration,
) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let session = Session::start(client, SessionOptions::with_ttl(TTL_S)).await?;
    let leadership = Election::new(&session, ELECTION)
        .campaign(name.to_owned())
        .await?;
    println!(
        "{name} leads with fencing revision {}",
        leadership.revision()
    );
    for step in 0..steps {
        let text = format!("{name} {step}");
        let did = tokio::select! {
            // The lease is gone, and perhaps another leader is there.
            lost = session.lost() => {
                println!("{name} is not the leader any longer: {lost}");
                return Ok(step);
            }
            did = write_step(client, &leadership, &text) => did?,
        };
        if !did {
            println!("{name} was replaced");
            return Ok(step);
        }
        tokio::time::sleep(pause).await;
    }
    // The next candidate does not have to wait for the lease to expire.
    leadership.resign().await?;
    session.close().await?;
    Ok(steps)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "somebody".to_owned());
    let client = Client::connect(Options {
        endpoints: arguments.collect(),
        ..Options::default()
    })?;
    let done = lead(&client, &name, 60, Duration::from_secs(1)).await?;
    println!("{name} did {done} steps");
    Ok(())
}
