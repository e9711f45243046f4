//! Rounds: every group of workloads on every server, each time on a new cluster.
//!
//! Within a round a workload runs on both servers one directly after the other, in alternating
//! order, so that other load of the machine affects both equally.

use crate::access::Access;
use crate::cluster::Cluster;
use crate::machine::Machine;
use crate::report::{Measure, Outcome, Report, Sample, ServerSamples};
use crate::server::Program;
use crate::workload::{Scale, Workload, WorkloadError, groups};

/// The plan of a comparison.
#[derive(Debug)]
pub struct Plan {
    /// The servers: etcd first, if available; Portunus last.
    pub programs: Vec<Program>,
    /// How clients reach both servers.
    pub access: Access,
    /// Members of each cluster.
    pub members: usize,
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    /// Number of rounds.
    pub rounds: usize,
    /// Sizes and durations of the workloads.
    pub scale: Scale,
    /// Whether long workloads run in the first round only.
    pub is_quick: bool,
    /// Whether this is a smoke run, whose figures are meaningless.
    pub is_smoke: bool,
}

/// Runs the plan; prints a line to stderr for each measurement.
pub async fn run(plan: &Plan, machine: Machine) -> Result<Report, WorkloadError> {
    let mut outcomes: Vec<Outcome> = plan
        .workloads
        .iter()
        .map(|workload| Outcome {
            workload: workload.name,
            title: plan.access.mode().title_of(workload),
            mode: plan.access.mode(),
            unit: workload.unit,
            clients: workload.clients.min(plan.scale.clients_max),
            measure: workload.measure,
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
                let flags = group.first().map_or(&[][..], |first| first.server_flags);
                let mut cluster =
                    Cluster::start(program, plan.members, flags, &plan.access).await?;
                for (workload, outcome) in group.iter().zip(outcomes.iter_mut()) {
                    let sample = workload.run(&mut cluster, &plan.scale).await?;
                    eprintln!(
                        "round {}/{}  {:<22} {:<15} {}",
                        round + 1,
                        plan.rounds,
                        workload.name,
                        program.label,
                        match workload.measure {
                            Measure::Rate => summary(&sample, workload.unit),
                            Measure::Duration => duration_summary(&sample),
                        }
                    );
                    outcome.servers[at].samples.push(sample);
                }
                cluster.stop().await?;
            }
        }
    }
    Ok(Report {
        machine,
        members: plan.members,
        rounds: plan.rounds,
        measured_seconds: plan.scale.durations.measured.as_secs_f64(),
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

fn duration_summary(sample: &Sample) -> String {
    let millis = |micros: Option<u32>| micros.map_or(0.0, |us| f64::from(us) / 1e3);
    let transfer = sample.transfer.map_or(String::new(), |transfer| {
        format!(
            ", sender {} MiB and {} MiB extra, receiver {} MiB at its peak",
            transfer.sender_resident_before_bytes >> 20,
            transfer.sender_extra_bytes >> 20,
            transfer.receiver_peak_bytes >> 20
        )
    });
    format!(
        "median {:.0} ms, worst {:.0} ms of {}{transfer}{}",
        millis(sample.p50_us),
        millis(sample.worst_us),
        sample.operations,
        failures(sample)
    )
}

fn failures(sample: &Sample) -> String {
    match sample.failures {
        0 => String::new(),
        count => format!(", {count} FAILED"),
    }
}

fn summary(sample: &Sample, unit: &str) -> String {
    let micros = |value: Option<u32>| value.map_or("-".to_owned(), |us| format!("{us} us"));
    format!(
        "{:.0} {unit}s/s, p50 {}, p99 {}, {:.1} us CPU/{unit}, {} MiB{}",
        sample.per_second,
        micros(sample.p50_us),
        micros(sample.p99_us),
        sample.server_cpu_us_per_operation.unwrap_or(0.0),
        sample.resident_bytes >> 20,
        failures(sample),
    )
}
