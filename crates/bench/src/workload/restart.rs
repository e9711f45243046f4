//! How long clients wait for a member that was restarted on its data.

use std::time::Instant;

use super::{Scale, WorkloadError, sample_of};
use crate::client::Connections;
use crate::report::Sample;
use crate::server::{Ending, Server};
use crate::usage;
use crate::window::{Seen, Spent, micros};

pub(super) async fn run(
    server: &mut Server,
    scale: &Scale,
    ending: Ending,
) -> Result<Sample, WorkloadError> {
    let connections = Connections::open(&server.endpoint(), 1).await?;
    connections.fill(scale.restart_keys).await?;
    drop(connections);

    let own_process_id = std::process::id();
    let client_before = usage::cpu_time(own_process_id)?;
    let began = Instant::now();
    let took = server.restart(ending).await?;
    let spent = Spent {
        elapsed: began.elapsed(),
        // A new process: all it has used, it used for starting.
        server_cpu: usage::cpu_time(server.process_id())?,
        client_cpu: usage::cpu_time(own_process_id)?.saturating_sub(client_before),
    };
    let seen = Seen {
        latencies_us: vec![micros(took)],
        ..Seen::default()
    };
    sample_of(server, seen, spent)
}
