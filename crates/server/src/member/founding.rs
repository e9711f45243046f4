//! Founding: a member of a cluster whose version is not decided compares its version with the
//! other members' before it publishes its attributes or serves a client.
//!
//! The rule is [`next_founding_phase`]; this module collects its inputs and keeps a stopping
//! member answering. A member that takes no part in cluster features does not compare, nor do
//! etcd members.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use portunus_gates::MajorMinor;
use portunus_gates::cluster::{
    ClusterSpecs, FounderAnswer, FoundingPhase, MixedFounders, next_founding_phase,
};
use portunus_proto::LogIndex;

use super::Member;
use crate::config::Config;
use crate::peers::ask::{Asked, Versions, ask_each};
use portunus_statemachine::membership::{MemberRecord, Membership, hex};

/// Time between the first two rounds of questions to all other founders; doubled with each round,
/// so that many founders that wait for long do not occupy the machine.
const ASK_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Longest time between two rounds.
const ASK_INTERVAL_MAX: Duration = Duration::from_millis(500);
/// Longest wait for the answer of one founder.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);
/// Longest time that a stopping founder goes on answering the others.
const LINGER_TIME_MAX: Duration = Duration::from_secs(10);
/// Time between two log lines of a founder that waits for others.
const WAITING_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The answers of one round, and whether the cluster version is decided.
struct Round {
    others: Vec<(String, FounderAnswer)>,
    is_decided: bool,
}

/// Returns once this member may publish its attributes.
///
/// # Errors
/// If this member must not run together with the other members.
pub async fn compare_versions(member: &Member) -> Result<(), MixedFounders> {
    if member.cluster.founding.phase().is_none() {
        return Ok(());
    }
    let own = member.process.config.version.emulation();
    // The founders are in the first entries of the log, which are applied one by one.
    let commit = member.consensus.status().commit;
    tokio::select! {
        () = member.store.applied.wait_for(LogIndex(commit)) => {}
        () = member.process.stop.stopped() => return Ok(()),
    }
    let mut logged = Instant::now();
    let mut pause = ASK_INTERVAL_MIN;
    loop {
        if member.process.stop.is_stopping() {
            return Ok(());
        }
        let membership = member.cluster.membership_full();
        let round = ask_others(member, &membership).await;
        let phase = member
            .cluster
            .founding
            .phase()
            .unwrap_or(FoundingPhase::Serving);
        let next = match &round {
            // A joining member has no log yet.
            None => phase,
            Some(round) if round.is_decided => FoundingPhase::Serving,
            Some(round) => next_founding_phase(own, phase, &answers(round)),
        };
        member.cluster.founding.enter(next);
        match (next, round) {
            (FoundingPhase::Serving, _) => return Ok(()),
            (FoundingPhase::Stopping, Some(round)) => return linger(member, own, round).await,
            _ => {}
        }
        if logged.elapsed() >= WAITING_LOG_INTERVAL {
            logged = Instant::now();
            tracing::info!(%own, phase = next.text(), "waiting for a quorum of members of this new cluster");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(ASK_INTERVAL_MAX);
    }
}

fn answers(round: &Round) -> Vec<FounderAnswer> {
    round.others.iter().map(|(_, answer)| *answer).collect()
}

/// Goes on answering until every other founder has stopped as well or serves. A founder of the
/// own version that serves was ready before this one stopped: then this one serves, too.
async fn linger(member: &Member, own: MajorMinor, mut round: Round) -> Result<(), MixedFounders> {
    let why = MixedFounders::new((&member.process.config.name, own), &round.others);
    tracing::error!(error = %why, "members of a new cluster have different versions; stopping");
    let deadline = Instant::now() + LINGER_TIME_MAX;
    let mut has_seen = BTreeSet::new();
    loop {
        if next_founding_phase(own, FoundingPhase::Stopping, &answers(&round))
            == FoundingPhase::Serving
        {
            tracing::info!(%own, "a quorum of this member's version serves; going on");
            member.cluster.founding.enter(FoundingPhase::Serving);
            return Ok(());
        }
        for (name, answer) in &round.others {
            let is_settled = match answer {
                FounderAnswer::Silent => false,
                FounderAnswer::Exempt => true,
                FounderAnswer::Participant { phase, .. } => {
                    matches!(phase, FoundingPhase::Stopping | FoundingPhase::Serving)
                }
            };
            if is_settled {
                has_seen.insert(name.clone());
            }
        }
        if has_seen.len() >= round.others.len() || Instant::now() >= deadline {
            return Err(why);
        }
        tokio::time::sleep(ASK_INTERVAL_MIN).await;
        let membership = member.cluster.membership_full();
        if let Some(newer) = ask_others(member, &membership).await {
            round = newer;
        }
    }
}

/// Asks every other voter at once; `None` while this member is not in the membership yet.
async fn ask_others(member: &Member, membership: &Membership) -> Option<Round> {
    let specs = member.cluster.gates.specs();
    if specs.is_decided(membership.cluster_version) {
        return Some(Round {
            others: Vec::new(),
            is_decided: true,
        });
    }
    membership.get(member.cluster.own_id().0)?;
    let others = membership.iter();
    let others = others.filter(|it| it.id != member.cluster.own_id().0 && !it.is_learner);
    let others: Vec<&MemberRecord> = others.collect();
    let urls = others.iter().map(|it| it.peer_urls.clone());
    let urls = urls.map(Option::unwrap_or_default).collect();
    let versions = |peer: Asked| async move { peer.versions().await };
    let client = member.peers.client();
    let versions = ask_each(client, urls, ANSWER_TIME_MAX, versions).await;
    let is_decided = versions
        .iter()
        .flatten()
        .any(|it| knows_decision(specs, it));
    let names = others
        .iter()
        .map(|record| name(&member.process.config, record));
    Some(Round {
        // Without other voters there is nothing to compare.
        is_decided: is_decided || others.is_empty(),
        others: names.zip(versions.iter().map(answer)).collect(),
    })
}

fn knows_decision(specs: &ClusterSpecs, versions: &Versions) -> bool {
    specs.is_decided(versions.etcdcluster.parse().ok())
}

fn answer(versions: &Option<Versions>) -> FounderAnswer {
    let Some(versions) = versions else {
        return FounderAnswer::Silent;
    };
    let phase = versions.founding.as_deref().and_then(|it| it.parse().ok());
    match (phase, versions.server()) {
        (Some(phase), Some(version)) => FounderAnswer::Participant {
            version: version.major_minor(),
            phase,
        },
        _ => FounderAnswer::Exempt,
    }
}

/// The published name of a member, or the one in `--initial-cluster`, or its id.
fn name(config: &Config, record: &MemberRecord) -> String {
    if !record.name.is_empty() {
        return record.name.clone();
    }
    let urls = record.peer_urls.as_deref().unwrap_or_default();
    let mut listed = config.cluster.initial_members.iter();
    let listed = listed.find(|it| it.peer_urls.iter().any(|url| urls.contains(url)));
    listed.map_or_else(|| hex(record.id), |it| it.name.clone())
}
