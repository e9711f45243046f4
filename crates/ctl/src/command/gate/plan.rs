//! `gate plan`: what a change would do, before it is made. Nothing here changes anything.

use clap::{Args, Subcommand};
use portunus_features::version::ETCD_VERSION;
use portunus_gates::cluster::{Member, MemberId, Publication};
use portunus_gates::plan::{Change, FleetMember};
use portunus_gates::{
    Assignments, EMULATION_FLAG, MIN_COMPAT_FLAG, MajorMinor, Origin, Version, version_flag,
};

use super::{bad_arguments, own_features};
use crate::gates::collect;
use crate::gates::fleet::{ObservedFleet, observe};
use crate::gates::plan::{knows_features_of, plan_change};
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};
use crate::print::{Answer, GateAnswer};

/// The name of a new member without a name in a plan.
const NEW_MEMBER: &str = "new";

/// The changes that can be planned.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Restarts every member at a later version with its flags
    Upgrade(VersionArgs),
    /// Lowers the cluster version by one minor and restarts every member at that version
    Downgrade(VersionArgs),
    /// Cancels the downgrade that is enabled
    Cancel,
    /// Restarts one member; flags that are not given stay as they are
    Restart(RestartArgs),
    /// Adds a member and starts it
    Add(AddArgs),
    /// Removes a member
    Remove(MemberArgs),
    /// Makes a learner a voting member
    Promote(MemberArgs),
}

/// Flags of `gate plan upgrade` and `gate plan downgrade`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    #[arg(value_name = "VERSION")]
    arguments: Vec<String>,
}

/// Flags of `gate plan restart`.
#[derive(Debug, Args)]
pub struct RestartArgs {
    /// Name or ID of the member
    #[arg(value_name = "MEMBER")]
    arguments: Vec<String>,
    #[command(flatten)]
    flags: MemberFlags,
}

/// Flags of `gate plan add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Name of the new member [default: new]
    #[arg(value_name = "NAME")]
    arguments: Vec<String>,
    /// Add it as a learner, which has no vote
    #[arg(long)]
    learner: bool,
    #[command(flatten)]
    flags: MemberFlags,
}

/// Flags of `gate plan remove` and `gate plan promote`.
#[derive(Debug, Args)]
pub struct MemberArgs {
    /// Name or ID of the member
    #[arg(value_name = "MEMBER")]
    arguments: Vec<String>,
}

/// What a member is started with. A flag stands for all of its values.
#[derive(Debug, Args)]
struct MemberFlags {
    /// All values of --feature-gates that the member is started with
    #[arg(long, value_name = "NAME=BOOL,...")]
    feature_gates: Option<String>,
    /// All values of --cluster-feature-gates that the member is started with
    #[arg(long, value_name = "NAME=BOOL,...")]
    cluster_feature_gates: Option<String>,
    /// The version that the member emulates
    #[arg(long, alias = "emulation-version", value_name = "VERSION")]
    emulated_version: Option<String>,
    /// The earliest version that must be able to read what the member writes
    #[arg(long, value_name = "VERSION")]
    min_compatibility_version: Option<String>,
}

/// Runs the command.
pub async fn run(command: PlanCommand, globals: &Globals) -> Result<(), Failure> {
    let requested = RequestedChange::parse(command)?;
    let own = own_features()?;
    let report = collect::collect(globals, false).await?;
    let observed = observe(&report, &own);
    let change = requested.change(&observed)?;
    let planned = plan_change(observed, &own, &change);
    let answer = Answer::Gate(GateAnswer::Plan(&planned));
    globals.printer.print(&answer)?;
    match planned.plan.is_blocked() {
        true => Err(Failure::reported(ExitWith::Blocked)),
        false => Ok(()),
    }
}

/// A change as given, before the members of the cluster are known.
#[derive(Debug)]
enum RequestedChange {
    Upgrade(MajorMinor),
    Downgrade(MajorMinor),
    Cancel,
    Restart(String, StartFlags),
    Add {
        name: String,
        learner: bool,
        started: StartFlags,
    },
    Remove(String),
    Promote(String),
}

#[derive(Debug)]
struct StartFlags {
    server_flags: Option<Assignments>,
    cluster_flags: Option<Assignments>,
    version: Option<MajorMinor>,
    min_compat: Option<MajorMinor>,
}

impl RequestedChange {
    fn parse(command: PlanCommand) -> Result<Self, Failure> {
        Ok(match command {
            PlanCommand::Upgrade(args) => Self::Upgrade(target(&args.arguments)?),
            PlanCommand::Downgrade(args) => Self::Downgrade(target(&args.arguments)?),
            PlanCommand::Cancel => Self::Cancel,
            PlanCommand::Restart(args) => {
                Self::Restart(one_member(args.arguments)?, args.flags.parse()?)
            }
            PlanCommand::Add(mut args) => {
                let name = args.arguments.pop();
                if !args.arguments.is_empty() {
                    return Err(bad_arguments("too many arguments"));
                }
                Self::Add {
                    name: name.unwrap_or_else(|| NEW_MEMBER.to_owned()),
                    learner: args.learner,
                    started: args.flags.parse()?,
                }
            }
            PlanCommand::Remove(args) => Self::Remove(one_member(args.arguments)?),
            PlanCommand::Promote(args) => Self::Promote(one_member(args.arguments)?),
        })
    }

    fn change(self, observed: &ObservedFleet) -> Result<Change, Failure> {
        Ok(match self {
            Self::Upgrade(target) => Change::Upgrade(target),
            Self::Downgrade(target) => Change::Downgrade(target),
            Self::Cancel => Change::CancelDowngrade,
            Self::Restart(member, started) => Change::Restart {
                member: find_member(observed, &member)?,
                version: started.version,
                min_compat: started.min_compat,
                server_flags: started.server_flags,
                cluster_flags: started.cluster_flags,
            },
            Self::Add {
                name,
                learner,
                started,
            } => Change::Add(FleetMember {
                member: Member {
                    // No member has this id: member ids are hashes that are never zero.
                    id: MemberId(0),
                    name,
                    voter: !learner,
                    started: true,
                    publication: Publication::Nothing,
                },
                server_version: started.version.unwrap_or(ETCD_VERSION),
                min_compat: started.min_compat,
                server_flags: started.server_flags.unwrap_or_default(),
                cluster_flags: started.cluster_flags.unwrap_or_default(),
            }),
            Self::Remove(member) => Change::Remove(find_member(observed, &member)?),
            Self::Promote(member) => Change::Promote(find_member(observed, &member)?),
        })
    }
}

impl MemberFlags {
    fn parse(self) -> Result<StartFlags, Failure> {
        let version = self.emulated_version.as_deref();
        let min_compat = self.min_compatibility_version.as_deref();
        Ok(StartFlags {
            server_flags: parse_flags(self.feature_gates.as_deref())?,
            cluster_flags: parse_flags(self.cluster_feature_gates.as_deref())?,
            version: version
                .map(|text| require_known(parse_version_flag(EMULATION_FLAG, text)?))
                .transpose()?,
            min_compat: min_compat
                .map(|text| parse_version_flag(MIN_COMPAT_FLAG, text))
                .transpose()?,
        })
    }
}

fn parse_flags(text: Option<&str>) -> Result<Option<Assignments>, Failure> {
    let parsed = text.map(|text| Assignments::parse(Origin::Flag, text));
    parsed.transpose().map_err(bad_arguments)
}

fn target(arguments: &[String]) -> Result<MajorMinor, Failure> {
    match arguments {
        [] => Err(bad_arguments("VERSION not provided")),
        [version] => require_known(
            Version::parse(version)
                .map_err(bad_arguments)?
                .major_minor(),
        ),
        _ => Err(bad_arguments("too many arguments")),
    }
}

/// The version that a flag sets, read as a server reads it.
fn parse_version_flag(flag: &'static str, text: &str) -> Result<MajorMinor, Failure> {
    version_flag(flag, text).map_err(bad_arguments)
}

/// Refuses a version whose features this program does not know.
fn require_known(version: MajorMinor) -> Result<MajorMinor, Failure> {
    if !knows_features_of(version) {
        return Err(bad_arguments(format!(
            "this portctl knows features up to version {ETCD_VERSION}: use the portctl of {version}"
        )));
    }
    Ok(version)
}

fn one_member(mut arguments: Vec<String>) -> Result<String, Failure> {
    match (arguments.pop(), arguments.is_empty()) {
        (None, _) => Err(bad_arguments("MEMBER not provided")),
        (Some(member), true) => Ok(member),
        (Some(_), false) => Err(bad_arguments("too many arguments")),
    }
}

/// The member with this name, or else with this id in hexadecimal.
fn find_member(observed: &ObservedFleet, name_or_id: &str) -> Result<MemberId, Failure> {
    let members = || observed.fleet.members.iter().map(|it| &it.member);
    let named: Vec<&Member> = members().filter(|it| it.name == name_or_id).collect();
    match named.as_slice() {
        [] => {
            let id = u64::from_str_radix(name_or_id, 16).ok().map(MemberId);
            let found = members().find(|it| Some(it.id) == id);
            found.map(|it| it.id).ok_or_else(|| {
                bad_arguments(format!(
                    "there is no member {name_or_id}: see `portctl member list`"
                ))
            })
        }
        [one] => Ok(one.id),
        _ => Err(bad_arguments(format!(
            "several members are called {name_or_id}: name one by its ID"
        ))),
    }
}
