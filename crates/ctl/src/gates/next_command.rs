//! The next command for an operator who wants a feature to have the other value.
//!
//! Commands that change a cluster are run on other machines with settings portctl does not know.
//! So the next command is the plan of that change, with the flags spelled out; the operator reads
//! the effect in the plan and puts the flags into the member's settings.

use portunus_gates::cluster::{Decision, FeatureDecision, Hold, MemberId, Outcome, Reason};
use portunus_gates::plan::FleetMember;
use portunus_gates::{Assignments, Level, MajorMinor, Origin, Registered, Versions};

use super::fleet::{MECHANISM, ObservedFleet};
use super::member_flags::flag_text;

/// The next command about one of the cluster's features.
pub fn for_cluster(
    observed: &ObservedFleet,
    feature: &Registered,
    decision: &Decision,
    decided: Option<&FeatureDecision>,
    enabled: bool,
) -> String {
    let name = feature.name.as_str();
    let propose = |ids: &[MemberId], value| {
        let mut members = ids.iter().filter_map(|id| observed.member(*id));
        members.next().map(|member| propose(member, name, value))
    };
    let voters = || -> Vec<MemberId> {
        let voters = observed.fleet.members.iter().filter(|it| it.member.voter);
        voters.map(|it| it.member.id).collect()
    };
    let command = match decided.map(|decided| &decided.reason) {
        None => match decision.outcome {
            Outcome::Hold(Hold::WaitingFor(_)) => Some("portctl member list".to_owned()),
            Outcome::Hold(_) => Some("portctl endpoint status --cluster".to_owned()),
            _ => Some(format!("portctl gate plan upgrade {}", feature.since())),
        },
        Some(Reason::Foreign(ids)) => take_part(observed, ids, name),
        Some(Reason::Veto(ids) | Reason::NotUnanimous(ids)) => propose(ids, true),
        Some(Reason::Dependency(needs)) => {
            let need = needs.first();
            need.map(|need| format!("portctl gate explain {need}"))
        }
        Some(Reason::Unanimous | Reason::Default) => propose(&voters(), !enabled),
        Some(Reason::Lock | Reason::Absent) => {
            let version = observed.fleet.cluster_version;
            version.and_then(|version| other_version(feature, version, !enabled))
        }
        Some(Reason::CarriedOver) => None,
    };
    command.unwrap_or_else(|| "portctl gate history".to_owned())
}

/// The next command about a server feature of one member.
pub fn for_server(member: &FleetMember, feature: &Registered, enabled: bool) -> String {
    let name = feature.name.as_str();
    let version = member.server_version;
    let spec = feature.at(Versions::emulating(version)).spec;
    let who = member.member.display_name();
    if !spec.stage.exists() || spec.locked {
        let at = feature
            .specs
            .iter()
            .rev()
            .find(|other| other.stage.exists() && (!other.locked || other.default != enabled));
        return match at {
            Some(at) => format!(
                "portctl gate plan restart {who} --emulated-version={}",
                at.version
            ),
            None => "portctl gate list".to_owned(),
        };
    }
    let mut flags = member.server_flags.clone();
    flags.set(Origin::Flag, name, !enabled);
    format!(
        "portctl gate plan restart {who} {}",
        flag(Level::Server, &flags)
    )
}

/// The plan of a restart in which the member proposes this value. Its other flags stay.
fn propose(member: &FleetMember, name: &str, value: bool) -> String {
    let mut flags = member.cluster_flags.clone();
    flags.set(Origin::Flag, name, value);
    let who = member.member.display_name();
    format!(
        "portctl gate plan restart {who} {}",
        flag(Level::Cluster, &flags)
    )
}

/// The plan that turns the mechanism on at the first of these members that knows gates, or else
/// removes the first one.
fn take_part(observed: &ObservedFleet, ids: &[MemberId], name: &str) -> Option<String> {
    let switched_off = ids.iter().find(|id| !observed.gateless.contains(id));
    let Some(id) = switched_off else {
        let gateless = ids.first()?;
        return Some(format!(
            "portctl gate plan remove {}",
            observed.name_of(*gateless)
        ));
    };
    let member = observed.member(*id)?;
    let mut server = member.server_flags.clone();
    server.set(Origin::Flag, MECHANISM, true);
    let cluster = Assignments::from_map(Origin::Flag, [(name, true)]);
    Some(format!(
        "portctl gate plan restart {} {} {}",
        member.member.display_name(),
        flag(Level::Server, &server),
        flag(Level::Cluster, &cluster),
    ))
}

/// The plan of a move to a version at which the feature can have the value.
fn other_version(feature: &Registered, current: MajorMinor, wanted: bool) -> Option<String> {
    let allows = |version: MajorMinor| {
        let spec = feature.at(Versions::exactly(version)).spec;
        spec.stage.exists() && (!spec.locked || spec.default == wanted)
    };
    let later = feature.specs.iter().map(|spec| spec.version);
    let mut later = later.filter(|version| *version > current && allows(*version));
    if let Some(target) = later.next() {
        return Some(format!("portctl gate plan upgrade {target}"));
    }
    // A cluster goes back one minor at a time.
    let target = current.minus_minors(1);
    allows(target).then(|| format!("portctl gate plan downgrade {target}"))
}

fn flag(level: Level, flags: &Assignments) -> String {
    format!("{}={}", level.flag(), flag_text(flags))
}
