//! Rounds: every workload on every server, each time on a fresh one.
//!
//! Within a round both servers meet the same workload right after each other, and who is
//! first alternates; so what the machine does meanwhile hits both about alike.

use crate::machine::Machine;
use crate::report::{Outcome, Report, Sample, ServerSamples};
use crate::server::{Program, Server};
use crate::workload::{Scale, Workload, WorkloadError, groups};

/// What to run.
#[derive(Debug)]
pub struct Plan {
    /// etcd first, if it is there; Portunus last.
    pub programs: Vec<Program>,
    /// In this order.
    pub workloads: Vec<Workload>,
    /// How often.
    pub rounds: usize,
    /// How much.
    pub scale: Scale,
    /// Whether workloads that take long run in the first round only.
    pub is_quick: bool,
    /// Whether the figures mean nothing.
    pub is_smoke: bool,
}

/// Runs everything, with a line on stderr for each measurement.
pub async fn run(plan: &Plan, machine: Machine) -> Result<Report, WorkloadError> {
    let mut outcomes: Vec<Outcome> = plan
        .workloads
        .iter()
        .map(|workload| Outcome {
            workload: workload.name,
            title: workload.title,
            unit: workload.unit,
            clients: workload.clients.min(plan.scale.clients_max),
            servers: plan.programs.iter().map(no_samples).collect(),
        })
        .collect();
    for round in 0..plan.rounds {
        let mut first = 0;
        for group in groups(&plan.workloads) {
            let outcomes = &mut outcomes[first..first + group.len()];
            first += group.len();
            if plan.is_quick && round > 0 && group.iter().any(|workload| workload.is_long) {
                continue;
            }
            for turn in 0..plan.programs.len() {
                let at = (turn + round) % plan.programs.len();
                let program = &plan.programs[at];
                let mut server = Server::start(program).await?;
                for (workload, outcome) in group.iter().zip(outcomes.iter_mut()) {
                    let sample = workload.run(&mut server, &plan.scale).await?;
                    eprintln!(
                        "round {}/{}  {:<17} {:<15} {}",
                        round + 1,
                        plan.rounds,
                        workload.name,
                        program.label,
                        summary(&sample, workload.unit)
                    );
                    outcome.servers[at].samples.push(sample);
                }
                server.stop().await?;
            }
        }
    }
    Ok(Report {
        machine,
        rounds: plan.rounds,
        measured_seconds: plan.scale.pace.measured.as_secs_f64(),
        is_smoke: plan.is_smoke,
        outcomes,
    })
}

fn no_samples(program: &Program) -> ServerSamples {
    ServerSamples {
        server: program.label.clone(),
        samples: Vec::new(),
    }
}

fn summary(sample: &Sample, unit: &str) -> String {
    let micros = |value: Option<u32>| value.map_or("-".to_owned(), |us| format!("{us} us"));
    let failures = match sample.failures {
        0 => String::new(),
        count => format!(", {count} FAILED"),
    };
    format!(
        "{:.0} {unit}s/s, p50 {}, p99 {}, {:.1} us CPU/{unit}, {} MiB{failures}",
        sample.per_second,
        micros(sample.p50_us),
        micros(sample.p99_us),
        sample.server_cpu_us_per_operation.unwrap_or(0.0),
        sample.resident_bytes >> 20,
    )
}
