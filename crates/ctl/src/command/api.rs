//! `api explain` and `api plan`: what `portunus-apiserver` serves with given flags, and what other
//! flags would change. Both ask the function that the server calls, and need no server.

use clap::{Args, Subcommand};
use portunus_apis::{
    Declarations, GroupVersionResource, Options, RuntimeConfig, Side, StartErrors, explain, plan,
    resolve,
};
use portunus_apiserver::resources::Resources;
use portunus_apiserver::{Api, kube_version};
use portunus_gates::{EMULATION_FLAG, MIN_COMPAT_FLAG, version_flag};
use serde_json::Value;

use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure, write_out};
use crate::print::Format;

/// Commands about APIs.
#[derive(Debug, Subcommand)]
pub enum ApiCommand {
    /// Explains why an API is served or not, and what would change that
    Explain(ExplainArgs),
    /// Shows what other flags of the API server would change
    Plan(PlanArgs),
}

/// Flags of `api explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Resource, version and group, such as olmconfigs.v1.operators.coreos.com
    #[arg(value_name = "RESOURCE.VERSION.GROUP", required = true)]
    name: String,
    #[command(flatten)]
    flags: ServerFlags,
}

/// Flags of `api plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    flags: ServerFlags,
    /// Emulation version after the change
    #[arg(long, value_name = "VERSION")]
    to_emulated_version: Option<String>,
    /// Minimum compatibility version after the change
    #[arg(long, value_name = "VERSION")]
    to_min_compatibility_version: Option<String>,
    /// Runtime-config after the change
    #[arg(long, value_name = "KEY=BOOL,...")]
    to_runtime_config: Option<String>,
}

/// Flags that the API server is started with.
#[derive(Debug, Args)]
pub struct ServerFlags {
    /// Emulation version of the API server
    #[arg(long, value_name = "VERSION")]
    emulated_version: Option<String>,
    /// Minimum compatibility version of the API server
    #[arg(long, value_name = "VERSION")]
    min_compatibility_version: Option<String>,
    /// Runtime-config of the API server
    #[arg(long, value_name = "KEY=BOOL,...")]
    runtime_config: Option<String>,
    /// Serve later versions of APIs that the emulated release serves
    #[arg(long)]
    emulation_forward_compatible: bool,
    /// Serve later APIs that runtime-config names
    #[arg(long)]
    runtime_config_emulation_forward_compatible: bool,
}

impl ServerFlags {
    fn options(&self) -> Result<Options, Failure> {
        let versions = kube_version().map_err(|error| failure(&error))?;
        let mut options = Options::new(versions);
        options.forward.emulation = self.emulation_forward_compatible;
        options.forward.runtime_config = self.runtime_config_emulation_forward_compatible;
        let values = [
            &self.emulated_version,
            &self.min_compatibility_version,
            &self.runtime_config,
        ];
        change(options, values)
    }
}

/// Applies versions and runtime-config, where they are given.
fn change(options: Options, values: [&Option<String>; 3]) -> Result<Options, Failure> {
    let [emulation, min_compat, runtime_config] = values;
    let version = |flag, text: &String| version_flag(flag, text).map_err(|error| failure(&error));
    let mut options = options;
    if let Some(text) = emulation {
        options
            .versions
            .set_emulation(version(EMULATION_FLAG, text)?);
    }
    if let Some(text) = min_compat {
        options
            .versions
            .set_min_compat(version(MIN_COMPAT_FLAG, text)?);
    }
    if let Some(text) = runtime_config {
        options.runtime_config = RuntimeConfig::parse(text);
    }
    Ok(options)
}

fn failure(error: &impl std::fmt::Display) -> Failure {
    Failure::new(ExitWith::BadArgs, error.to_string())
}

/// Runs the command.
pub fn run(command: ApiCommand, globals: &Globals) -> Result<(), Failure> {
    let declarations = declarations()?;
    match command {
        ApiCommand::Explain(args) => run_explain(&declarations, &args, globals),
        ApiCommand::Plan(args) => run_plan(&declarations, &args, globals),
    }
}

/// Returns the declarations of the API server's own resources.
fn declarations() -> Result<Declarations, Failure> {
    let definitions = Resources::new(1).definitions();
    let definitions = definitions.map_err(|error| failure(&error))?;
    let versions = kube_version().map_err(|error| failure(&error))?;
    let api = Api::new(definitions, Options::new(versions)).map_err(|error| failure(&error))?;
    Ok(api.declarations().clone())
}

fn run_explain(
    declarations: &Declarations,
    args: &ExplainArgs,
    globals: &Globals,
) -> Result<(), Failure> {
    let name = parse_name(&args.name).ok_or_else(|| {
        let text = format!(
            "{:?} is no resource: write resource, version and group, such as olmconfigs.v1.operators.coreos.com",
            args.name
        );
        failure(&text)
    })?;
    let options = args.flags.options()?;
    let explanation = explain(declarations, &options, &name).map_err(|error| failure(&error))?;
    print(
        globals,
        &explanation.to_string(),
        &serde_json::json!(explanation),
    )
}

fn run_plan(
    declarations: &Declarations,
    args: &PlanArgs,
    globals: &Globals,
) -> Result<(), Failure> {
    let before = args.flags.options()?;
    let values = [
        &args.to_emulated_version,
        &args.to_min_compatibility_version,
        &args.to_runtime_config,
    ];
    let after = change(before.clone(), values)?;
    let start: Result<_, StartErrors> = resolve(declarations, &before);
    start.map_err(|error| failure(&error))?;
    let side = |options| Side {
        declarations,
        options,
    };
    let planned = plan(side(&before), side(&after)).map_err(|error| failure(&error))?;
    let text = match planned.to_string() {
        text if text.is_empty() => "nothing changes\n".to_owned(),
        text => text,
    };
    print(globals, &text, &serde_json::json!(planned))?;
    if planned.is_blocked() {
        return Err(Failure {
            message: None,
            ..Failure::new(ExitWith::Blocked, "")
        });
    }
    Ok(())
}

/// Parses `resource.version.group`; the core group has no name.
fn parse_name(text: &str) -> Option<GroupVersionResource> {
    let (resource, rest) = text.split_once('.')?;
    let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
    let is_complete = !resource.is_empty() && !version.is_empty();
    is_complete.then(|| GroupVersionResource::new(group, version, resource))
}

fn print(globals: &Globals, text: &str, json: &Value) -> Result<(), Failure> {
    match globals.printer.format {
        Format::Json => write_out(format!("{json}\n").as_bytes()),
        _ => write_out(text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_resource_version_and_group() {
        let name = parse_name("olmconfigs.v1.operators.coreos.com").unwrap();
        assert_eq!(name.dotted(), "olmconfigs.v1.operators.coreos.com");
        assert_eq!(parse_name("namespaces.v1").unwrap().group, "");
        assert_eq!(parse_name("namespaces"), None);
        assert_eq!(parse_name(".v1"), None);
    }

    #[test]
    fn changes_apply_only_what_is_given() {
        let options = Options::new(kube_version().unwrap());
        let same = change(options.clone(), [&None, &None, &None]).unwrap();
        assert_eq!(same, options);
        let lower = change(options, [&Some("1.35".to_owned()), &None, &None]).unwrap();
        assert_eq!(lower.current().to_string(), "1.35");
    }
}
