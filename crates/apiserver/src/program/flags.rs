//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::duration::{parse_duration, parse_positive_duration};
use crate::versions;

const NEXT_STEPS: &str = "\
Next steps:
  portunus-apiserver dev
      starts a store and an API server with generated certificates, and writes a kubeconfig
  portunus-apiserver --etcd-servers=https://127.0.0.1:2379 --etcd-cafile=ca.crt \\
      --tls-cert-file=server.crt --tls-private-key-file=server.key --client-ca-file=users.crt
      serves clients with certificates of users.crt; members of system:masters may do everything
  docs/apiserver.md
      describes flags, authentication and policies";

/// Serves Kubernetes-style APIs from etcd or Portunus
#[derive(Debug, Parser)]
#[command(name = "portunus-apiserver", version, after_help = NEXT_STEPS)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub server: ServerFlags,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a store and an API server for development, and write a kubeconfig
    Dev(DevFlags),
}

/// The flags of a server.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerFlags {
    #[command(flatten)]
    pub listen: ListenFlags,
    #[command(flatten)]
    pub authentication: AuthenticationFlags,
    #[command(flatten)]
    pub authorization: AuthorizationFlags,
    #[command(flatten)]
    pub store: StoreFlags,
    #[command(flatten)]
    pub versions: VersionFlags,
    #[command(flatten)]
    pub limits: LimitFlags,
    #[command(flatten)]
    pub log: LogFlags,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Listening")]
pub struct ListenFlags {
    /// Port of HTTPS; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub secure_port: u16,
    /// Address to listen at
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Certificate chain of the server in PEM format; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the server in PEM format
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Lowest version of TLS: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    pub tls_min_version: String,
    /// Cipher suites by their names in Go; all supported ones if empty
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// Time between the failure of /readyz and the end of watches at a stop
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub shutdown_delay_duration: Duration,
}

impl Default for ListenFlags {
    fn default() -> ListenFlags {
        ListenFlags {
            secure_port: 0,
            bind_address: IpAddr::from([127, 0, 0, 1]),
            tls_cert_file: None,
            tls_private_key_file: None,
            tls_min_version: "VersionTLS12".to_owned(),
            tls_cipher_suites: Vec::new(),
            shutdown_delay_duration: Duration::ZERO,
        }
    }
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationFlags {
    /// CAs of users: the common name is the user, the organizations are the groups
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Tokens as lines of token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// CAs of front proxies, whose X-Remote-* headers are trusted
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; any if empty
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user
    #[arg(
        long,
        value_name = "HEADER,...",
        value_delimiter = ',',
        default_value = "X-Remote-User"
    )]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the id of the user
    #[arg(
        long,
        value_name = "HEADER,...",
        value_delimiter = ',',
        default_value = "X-Remote-Uid"
    )]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the groups
    #[arg(
        long,
        value_name = "HEADER,...",
        value_delimiter = ',',
        default_value = "X-Remote-Group"
    )]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with further attributes
    #[arg(
        long,
        value_name = "PREFIX,...",
        value_delimiter = ',',
        default_value = "X-Remote-Extra-"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// Serve requests without credentials as system:anonymous instead of refusing them
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, require_equals = true)]
    pub anonymous_auth: bool,
}

/// The authorizers beside system:masters and the public paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuthorizationMode {
    /// The policies of --authorization-policy-file
    #[value(name = "ABAC")]
    Abac,
    /// Everything for everybody
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationFlags {
    /// What allows requests beside membership in system:masters
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    pub authorization_mode: Vec<AuthorizationMode>,
    /// Policies in Kubernetes' ABAC format, one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Store")]
pub struct StoreFlags {
    /// Members of the store, such as https://127.0.0.1:2379
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// CA of the store
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// Certificate that this server presents to the store
    #[arg(long, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,
    /// How often the history of the store is compacted; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = parse_duration)]
    pub etcd_compaction_interval: Duration,
    /// How long Events are kept after their last change; 0s for ever
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = parse_duration)]
    pub event_ttl: Duration,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Versions and features")]
pub struct VersionFlags {
    /// Behave as this version
    #[arg(long, value_name = "[COMPONENT=]MAJOR.MINOR,...")]
    pub emulated_version: Vec<String>,
    /// Store only what this version can read
    #[arg(long, value_name = "[COMPONENT=]MAJOR.MINOR,...")]
    pub min_compatibility_version: Vec<String>,
    /// Under emulation, serve newer versions of APIs that the emulated version has
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, require_equals = true)]
    pub emulation_forward_compatible: bool,
    /// Under emulation, let --runtime-config serve APIs that the emulated version does not have
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, require_equals = true)]
    pub runtime_config_emulation_forward_compatible: bool,
    /// Refuse alpha APIs and features under emulation instead of warning
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, require_equals = true)]
    pub strict_emulation: bool,
    /// APIs to switch on or off, such as example.io/v1beta1=true or api/alpha=true
    #[arg(long, value_name = "KEY=BOOL,...")]
    pub runtime_config: Vec<String>,
    /// Features to switch on or off
    #[arg(long, value_name = "[COMPONENT:]NAME=BOOL,...")]
    pub feature_gates: Vec<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitFlags {
    /// Most reads at a time; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = portunus_apiserver::READS_MAX)]
    pub max_requests_inflight: usize,
    /// Most writes at a time; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = portunus_apiserver::WRITES_MAX)]
    pub max_mutating_requests_inflight: usize,
    /// Most watches at a time; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = portunus_apiserver::LONG_RUNNING_MAX)]
    pub max_longrunning_requests: usize,
    /// Most connections at a time
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Time limit of requests other than watches
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = parse_positive_duration)]
    pub request_timeout: Duration,
}

impl Default for LimitFlags {
    fn default() -> LimitFlags {
        let limits = portunus_apiserver::LimitOptions::default();
        LimitFlags {
            max_requests_inflight: limits.reads_max,
            max_mutating_requests_inflight: limits.writes_max,
            max_longrunning_requests: limits.long_running_max,
            max_connections: portunus_apiserver::ListenerOptions::default().connections_max,
            request_timeout: limits.request_timeout,
        }
    }
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Log")]
pub struct LogFlags {
    /// Detail of the log: 4 and above log every connection
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    pub verbosity: u8,
}

/// The flags of `dev`.
#[derive(Debug, Clone, Args)]
pub struct DevFlags {
    /// Directory of the store, the certificates and the kubeconfig
    #[arg(long, value_name = "DIR", default_value = "./portunus-dev")]
    pub data_dir: PathBuf,
    /// Keep everything in a temporary directory that is removed at the end
    #[arg(long, conflicts_with = "data_dir")]
    pub ephemeral: bool,
    /// Where to write the kubeconfig; in the data directory if not given
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Port of HTTPS; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub secure_port: u16,
    #[command(flatten)]
    pub versions: VersionFlags,
    #[command(flatten)]
    pub log: LogFlags,
}

/// What is printed instead of running: help, the version, or why the command line is wrong.
pub struct Answer(clap::Error);

impl Answer {
    /// Prints the text. Wrong flags exit with 1, as those that only a later step finds.
    pub fn print(&self) -> ExitCode {
        // A closed pipe is no failure.
        let _ = self.0.print();
        match self.0.use_stderr() {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        }
    }
}

impl CommandLine {
    /// Reads the command line of the process.
    pub fn read() -> Result<CommandLine, Answer> {
        let matches = command().try_get_matches().map_err(Answer)?;
        CommandLine::from_arg_matches(&matches).map_err(Answer)
    }
}

/// Returns the command line with the version ranges and features of this binary in its help.
fn command() -> clap::Command {
    let command = CommandLine::command();
    let Ok(help) = versions::components().map(|mut components| components.add_flags()) else {
        return command;
    };
    let lines = [
        ("emulated_version", help.emulated_version),
        ("min_compatibility_version", help.min_compatibility_version),
        ("feature_gates", help.feature_gates),
    ];
    let extend = |command: clap::Command| {
        lines.iter().fold(command, |command, (name, lines)| {
            command.mut_arg(name, |argument| {
                let before = argument.get_help().map(StyledStr::to_string);
                let help = std::iter::once(before.unwrap_or_default());
                let help = help.chain(lines.iter().map(|line| format!("  {line}")));
                argument.help(help.collect::<Vec<_>>().join("\n"))
            })
        })
    };
    extend(command).mut_subcommand("dev", extend)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<CommandLine, clap::Error> {
        let program = ["portunus-apiserver"].into_iter();
        let matches = command().try_get_matches_from(program.chain(arguments.iter().copied()))?;
        CommandLine::from_arg_matches(&matches)
    }

    #[test]
    fn command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn defaults_of_flags_are_those_of_the_library() {
        let flags = parse(&[]).unwrap().server;
        let (own, default) = (flags.limits, LimitFlags::default());
        assert_eq!(own.max_requests_inflight, default.max_requests_inflight);
        assert_eq!(
            own.max_mutating_requests_inflight,
            default.max_mutating_requests_inflight
        );
        assert_eq!(
            own.max_longrunning_requests,
            default.max_longrunning_requests
        );
        assert_eq!(own.max_connections, default.max_connections);
        assert_eq!(own.request_timeout, default.request_timeout);
        assert!(flags.authentication.anonymous_auth);
        assert_eq!(flags.store.etcd_prefix, "/registry");
        let event_ttl = portunus_apiserver::resources::EVENT_TTL;
        assert_eq!(flags.store.event_ttl, event_ttl);
    }

    #[test]
    fn booleans_are_written_as_in_kubernetes() {
        for (argument, expected) in [
            ("--anonymous-auth", true),
            ("--anonymous-auth=true", true),
            ("--anonymous-auth=false", false),
        ] {
            let flags = parse(&[argument]).unwrap().server;
            assert_eq!(flags.authentication.anonymous_auth, expected, "{argument}");
        }
        assert!(
            parse(&["--strict-emulation"])
                .unwrap()
                .server
                .versions
                .strict_emulation
        );
    }

    #[test]
    fn help_names_version_ranges_and_next_steps() {
        let help = command().render_long_help().to_string();
        for expected in [
            "kube=1.34..1.37(default:1.37)",
            "portunus=3.5..3.8(default:3.8)",
            "portunus-apiserver dev",
        ] {
            assert!(help.contains(expected), "{help}");
        }
    }
}
