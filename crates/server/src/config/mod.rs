//! The checked configuration of a member.

mod apply_settings;
mod auth;
mod checks;
mod cluster;
mod duration;
pub mod flags;
mod limits;
mod numbers;
mod old_gates;
pub mod tls;
mod values;

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::Duration;

use portunus_gates::{Assignments, EMULATION_FLAG, EffectiveVersion, FlagError, MIN_COMPAT_FLAG};
use thiserror::Error;

pub use apply_settings::{ApplySettings, DifferentSettings};
pub use auth::{AuthConfig, TokenKind};
use checks::Checks;
pub use checks::ConfigErrors;
pub use cluster::ClusterConfig;
pub use duration::parse_duration;
pub use limits::{ClientLimits, ConnectionLimits};
use numbers::Numbers;
pub use tls::TlsConfig;
pub use values::{UnrecognizedVariable, Values, ValuesError};

use portunus_features::version::effective_version;

/// The backend quota where none is given.
pub const QUOTA_BYTES_DEFAULT: i64 = 2 * 1024 * 1024 * 1024;
/// The quota above which etcd warns.
pub const QUOTA_BYTES_ADVISED_MAX: i64 = 8 * 1024 * 1024 * 1024;
const ELECTION_TIMEOUT_MS_MAX: u64 = 50_000;
/// Shortest election timeout in heartbeats; below it, elections start without cause.
const HEARTBEATS_PER_ELECTION_MIN: u64 = 5;

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Human-readable name.
    pub name: String,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The directory of the log.
    pub wal_dir: PathBuf,
    /// Applied entries between two snapshots of the log.
    pub snapshot_count: u64,
    /// Entries kept behind a snapshot of the log.
    pub snapshot_catchup_entries: u64,
    /// Time between two ticks of raft.
    pub heartbeat_interval: Duration,
    /// Time without a leader before an election.
    pub election_timeout: Duration,
    /// The URLs to listen at for clients.
    pub listen_client_urls: Vec<ListenUrl>,
    /// The client URLs of this member, as others reach them.
    pub advertise_client_urls: Vec<String>,
    /// The URLs to listen at for clients that use HTTP; if there are any, the other ones serve gRPC
    /// only.
    pub listen_client_http_urls: Vec<ListenUrl>,
    /// More URLs to listen at for metrics and health.
    pub listen_metrics_urls: Vec<ListenUrl>,
    /// The settings about the cluster.
    pub cluster: ClusterConfig,
    /// The settings about users and tokens.
    pub auth: AuthConfig,
    /// The settings about TLS.
    pub tls: TlsConfig,
    /// Size at which writes are refused; absent: no limit.
    pub quota_bytes: Option<u64>,
    /// Longest time before the backend commits.
    pub backend_batch_interval: Duration,
    /// Records after which the backend commits.
    pub backend_batch_limit: usize,
    /// The number of operations allowed in a transaction.
    pub max_txn_ops: usize,
    /// Largest client request.
    pub max_request_bytes: usize,
    /// Streams a client may open at a time.
    pub max_concurrent_streams: u32,
    /// How often an idle client is pinged.
    pub keepalive_interval: Duration,
    /// How long to wait for the answer to a ping.
    pub keepalive_timeout: Duration,
    /// Limits of what clients may use.
    pub limits: ClientLimits,
    /// Limits of connections of peers.
    pub peer_connections: ConnectionLimits,
    /// Limits of connections at the addresses for metrics.
    pub metrics_connections: ConnectionLimits,
    /// Automatic compaction of old revisions.
    pub auto_compaction: AutoCompaction,
    /// Bytes of values kept in memory; 0: all.
    pub resident_value_bytes_max: u64,
    /// Revisions removed in one step of compaction.
    pub compaction_batch_limit: usize,
    /// Pause between two steps of compaction.
    pub compaction_sleep: Duration,
    /// Time between two progress notices of a watch.
    pub watch_progress_interval: Duration,
    /// Applies that take longer are logged.
    pub warning_apply_duration: Duration,
    /// Unary requests that take longer are logged; zero: none.
    pub warning_unary_request_duration: Duration,
    /// The versions to emulate and to stay compatible with.
    pub version: EffectiveVersion,
    /// Server features to set, as given.
    pub feature_gates: Assignments,
    /// Cluster features that this member proposes, as given.
    pub cluster_feature_gates: Assignments,
    /// Refuse alpha features under emulation.
    pub strict_emulation: bool,
    /// The log settings.
    pub log: LogConfig,
    /// Whether to measure the duration of each RPC as well.
    pub metrics_extensive: bool,
    /// Flags that were set and have no effect.
    pub ignored: Vec<&'static str>,
    /// Environment variables that look like settings but are not.
    pub unrecognized_variables: Vec<UnrecognizedVariable>,
    /// The settings that differ from their defaults, as flags, for the log.
    pub changed_flags: String,
    /// Old names of gates that were used.
    pub old_names: Vec<&'static str>,
}

/// A URL to listen at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenUrl {
    /// The URL as given.
    pub url: String,
    /// Host and port.
    pub authority: String,
    /// Whether connections use TLS.
    pub is_tls: bool,
}

/// Automatic compaction of old revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoCompaction {
    /// No automatic compaction.
    Off,
    /// Compact revisions older than this.
    Periodic(Duration),
    /// Compact all but this many revisions.
    Revision(i64),
}

/// The log settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The least severe level that is shown.
    pub level: LogLevel,
    /// JSON lines or text lines; absent: JSON unless the output is a terminal.
    pub json: Option<bool>,
    /// Log to stdout instead of stderr.
    pub stdout: bool,
}

/// The levels of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Every line.
    Debug,
    /// Regular events.
    Info,
    /// Events that need an operator's attention.
    Warn,
    /// Errors that end the process.
    Error,
}

impl Config {
    /// Heartbeat intervals in an election timeout.
    pub fn election_ticks(&self) -> usize {
        let heartbeat_ms = self.heartbeat_interval.as_millis().max(1);
        usize::try_from(self.election_timeout.as_millis() / heartbeat_ms).unwrap_or(usize::MAX)
    }

    /// Checks every setting, and reports every one that cannot be used.
    pub fn from_values(values: &Values) -> Result<Config, ConfigErrors> {
        let mut checks = Checks::of(values);
        let config = Config::checked(values, &mut checks);
        if let Some(config) = &config {
            checks.errors.extend(tls::check_urls(config));
        }
        match config {
            Some(config) if checks.errors.is_empty() => Ok(config),
            _ => Err(ConfigErrors(checks.errors)),
        }
    }

    fn checked(values: &Values, checks: &mut Checks) -> Option<Config> {
        let name = values.get("name").to_owned();
        let data_dir = match values.get("data-dir") {
            "" => PathBuf::from(format!("{name}.etcd")),
            dir => PathBuf::from(dir),
        };
        let wal_dir = match values.get("wal-dir") {
            "" => data_dir.join("member").join("wal"),
            dir => PathBuf::from(dir),
        };
        let timing = checks.ok(timing(values));
        if values.is_set("listen-client-urls") && !values.is_set("advertise-client-urls") {
            checks.errors.push(ConfigError::AdvertiseMissing);
        }
        let cluster = ClusterConfig::from_values(values, &name, checks);
        let version = checks.ok(version(values));
        let feature_gates = checks.ok(values.gates("feature-gates"));
        let cluster_feature_gates = values
            .gates("cluster-feature-gates")
            .map_err(ConfigError::ClusterFeatureGates);
        let mut gates = [
            ("feature-gates", feature_gates),
            ("cluster-feature-gates", checks.ok(cluster_feature_gates)),
        ];
        let mut old_names = Vec::new();
        for (flag, gates) in &mut gates {
            if let (Some(version), Some(gates)) = (&version, gates) {
                let names = checks.ok(old_gates::add(values, version, flag, gates));
                old_names.extend(names.unwrap_or_default());
            }
        }
        let [(_, feature_gates), (_, cluster_feature_gates)] = gates;
        let numbers = Numbers::of(values, checks);
        let auth = AuthConfig::from_values(values, checks);
        let limits = ClientLimits::of(values, checks);
        let peer_connections = ConnectionLimits::of_peers(values, checks);
        let metrics_connections = ConnectionLimits::of_metrics(values, checks);
        let listen_client_urls = checks.ok(listen_urls(values, "listen-client-urls"));
        let advertise_client_urls = checks.ok(urls(values, "advertise-client-urls"));
        let listen_client_http_urls =
            checks.ok(optional_listen_urls(values, "listen-client-http-urls"));
        let listen_metrics_urls = checks.ok(optional_listen_urls(values, "listen-metrics-urls"));
        let tls = TlsConfig::from_values(values, checks);
        let auto_compaction = checks.ok(auto_compaction(values));
        let strict_emulation = checks.ok(boolean(values, "strict-emulation"));
        let log = checks.ok(log(values));
        let metrics = checks.ok(one_of(values, "metrics", &["basic", "extensive"]));
        let (heartbeat_interval, election_timeout) = timing?;
        let numbers = numbers?;
        Some(Config {
            data_dir,
            wal_dir,
            snapshot_count: numbers.snapshot_count,
            snapshot_catchup_entries: numbers.snapshot_catchup_entries,
            heartbeat_interval,
            election_timeout,
            listen_client_urls: listen_client_urls?,
            advertise_client_urls: advertise_client_urls?,
            listen_client_http_urls: listen_client_http_urls?,
            listen_metrics_urls: listen_metrics_urls?,
            cluster: cluster?,
            auth: auth?,
            tls: tls?,
            quota_bytes: numbers.quota_bytes,
            backend_batch_interval: numbers.backend_batch_interval,
            backend_batch_limit: numbers.backend_batch_limit,
            max_txn_ops: numbers.max_txn_ops,
            max_request_bytes: numbers.max_request_bytes,
            max_concurrent_streams: numbers.max_concurrent_streams,
            keepalive_interval: numbers.keepalive_interval,
            keepalive_timeout: numbers.keepalive_timeout,
            limits: limits?,
            peer_connections: peer_connections?,
            metrics_connections: metrics_connections?,
            auto_compaction: auto_compaction?,
            resident_value_bytes_max: numbers.resident_value_bytes_max,
            compaction_batch_limit: numbers.compaction_batch_limit,
            compaction_sleep: numbers.compaction_sleep,
            watch_progress_interval: numbers.watch_progress_interval,
            warning_apply_duration: numbers.warning_apply_duration,
            warning_unary_request_duration: numbers.warning_unary_request_duration,
            version: version?,
            feature_gates: feature_gates?,
            cluster_feature_gates: cluster_feature_gates?,
            strict_emulation: strict_emulation?,
            log: log?,
            metrics_extensive: metrics? == "extensive",
            ignored: values.ignored.clone(),
            unrecognized_variables: values.unrecognized.clone(),
            changed_flags: values.changed(),
            old_names,
            name,
        })
    }
}

fn bad(values: &Values, flag: &'static str, wanted: &'static str) -> ConfigError {
    ConfigError::BadValue {
        flag,
        value: values.get(flag).chars().take(60).collect(),
        wanted,
    }
}

fn number<T: std::str::FromStr>(values: &Values, flag: &'static str) -> Result<T, ConfigError> {
    values
        .get(flag)
        .trim()
        .parse()
        .map_err(|_| bad(values, flag, "a whole number in range"))
}

fn duration(values: &Values, flag: &'static str) -> Result<Duration, ConfigError> {
    parse_duration(values.get(flag))
        .ok_or_else(|| bad(values, flag, "a duration such as 100ms, 5s or 1h30m"))
}

fn boolean(values: &Values, flag: &'static str) -> Result<bool, ConfigError> {
    match values.get(flag) {
        "true" | "1" | "t" | "T" | "TRUE" | "True" => Ok(true),
        "false" | "0" | "f" | "F" | "FALSE" | "False" => Ok(false),
        _ => Err(bad(values, flag, "true or false")),
    }
}

fn one_of<'a>(
    values: &'a Values,
    flag: &'static str,
    allowed: &'static [&'static str],
) -> Result<&'a str, ConfigError> {
    let value = values.get(flag);
    if allowed.contains(&value) {
        return Ok(value);
    }
    Err(ConfigError::NotOneOf {
        flag,
        value: value.chars().take(60).collect(),
        allowed,
    })
}

/// The heartbeat interval and the election timeout.
fn timing(values: &Values) -> Result<(Duration, Duration), ConfigError> {
    let heartbeat_ms: u64 = number(values, "heartbeat-interval")?;
    let election_ms: u64 = number(values, "election-timeout")?;
    check_timing(heartbeat_ms, election_ms)?;
    Ok((
        Duration::from_millis(heartbeat_ms),
        Duration::from_millis(election_ms),
    ))
}

fn check_timing(heartbeat_ms: u64, election_ms: u64) -> Result<(), ConfigError> {
    let election_ms_min = heartbeat_ms.saturating_mul(HEARTBEATS_PER_ELECTION_MIN);
    if heartbeat_ms == 0 || election_ms < election_ms_min {
        return Err(ConfigError::ElectionTooShort {
            election_ms,
            heartbeat_ms,
        });
    }
    if election_ms > ELECTION_TIMEOUT_MS_MAX {
        return Err(ConfigError::ElectionTooLong { election_ms });
    }
    Ok(())
}

fn urls(values: &Values, flag: &'static str) -> Result<Vec<String>, ConfigError> {
    let texts = values.get(flag).split(',').map(str::trim);
    let urls: Vec<String> = texts
        .filter(|text| !text.is_empty())
        .map(|text| url(flag, text))
        .collect::<Result<_, _>>()?;
    if urls.is_empty() {
        return Err(bad(
            values,
            flag,
            "at least one URL such as http://localhost:2379",
        ));
    }
    Ok(urls)
}

/// Checks a URL without a path.
fn url(flag: &'static str, text: &str) -> Result<String, ConfigError> {
    let text = text.trim();
    let authority = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
        .map(|rest| rest.trim_end_matches('/'));
    let is_good = authority.is_some_and(|authority| {
        !authority.contains('/')
            && authority
                .rsplit_once(':')
                .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    });
    if !is_good {
        return Err(ConfigError::BadUrl {
            flag,
            url: text.to_owned(),
        });
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn listen_urls(values: &Values, flag: &'static str) -> Result<Vec<ListenUrl>, ConfigError> {
    let urls = urls(values, flag)?;
    urls.iter().map(|url| listen_url(url)).collect()
}

fn optional_listen_urls(
    values: &Values,
    flag: &'static str,
) -> Result<Vec<ListenUrl>, ConfigError> {
    match values.get(flag) {
        "" => Ok(Vec::new()),
        _ => listen_urls(values, flag),
    }
}

fn listen_url(url: &str) -> Result<ListenUrl, ConfigError> {
    let is_tls = url.starts_with("https://");
    let authority = url
        .trim_start_matches("https://")
        .trim_start_matches("http://")
        .to_owned();
    // A host name that does not resolve is refused now rather than at bind time.
    if authority
        .to_socket_addrs()
        .map_or(true, |mut addresses| addresses.next().is_none())
    {
        return Err(ConfigError::NoAddress {
            url: url.to_owned(),
        });
    }
    Ok(ListenUrl {
        url: url.to_owned(),
        authority,
        is_tls,
    })
}

fn auto_compaction(values: &Values) -> Result<AutoCompaction, ConfigError> {
    const FLAG: &str = "auto-compaction-retention";
    let text = values.get(FLAG);
    match one_of(values, "auto-compaction-mode", &["periodic", "revision"])? {
        "revision" => match text.parse::<i64>() {
            Ok(0) => Ok(AutoCompaction::Off),
            Ok(keep) if keep > 0 => Ok(AutoCompaction::Revision(keep)),
            _ => Err(bad(values, FLAG, "a number of revisions")),
        },
        _ => {
            // A plain number means hours.
            let retention = match text.parse::<u32>() {
                Ok(hours) => Some(Duration::from_secs(u64::from(hours) * 3600)),
                Err(_) => parse_duration(text),
            };
            match retention {
                Some(Duration::ZERO) => Ok(AutoCompaction::Off),
                Some(retention) => Ok(AutoCompaction::Periodic(retention)),
                None => Err(bad(values, FLAG, "hours, or a duration such as 30m")),
            }
        }
    }
}

fn version(values: &Values) -> Result<EffectiveVersion, ConfigError> {
    let given = |flag| Some(values.get(flag)).filter(|text| !text.is_empty());
    let (emulated, min_compat) = (given(EMULATION_FLAG), given(MIN_COMPAT_FLAG));
    Ok(effective_version().with_flags(emulated, min_compat)?)
}

fn log(values: &Values) -> Result<LogConfig, ConfigError> {
    Ok(LogConfig {
        level: match one_of(values, "log-level", &["debug", "info", "warn", "error"])? {
            "debug" => LogLevel::Debug,
            "warn" => LogLevel::Warn,
            "error" => LogLevel::Error,
            _ => LogLevel::Info,
        },
        json: match one_of(values, "log-format", &["", "json", "console"])? {
            "json" => Some(true),
            "console" => Some(false),
            _ => None,
        },
        stdout: one_of(values, "log-outputs", &["default", "stderr", "stdout"])? == "stdout",
    })
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ConfigError {
    /// A value that cannot be read.
    #[error("--{flag}={value} cannot be used: it takes {wanted}")]
    BadValue {
        flag: &'static str,
        value: String,
        wanted: &'static str,
    },
    /// A value that is not one of those allowed.
    #[error("--{flag}={value} cannot be used: choose one of {}", allowed.join(", "))]
    NotOneOf {
        flag: &'static str,
        value: String,
        allowed: &'static [&'static str],
    },
    /// Timing that would lead to elections without cause.
    #[error(
        "--election-timeout={election_ms} is too short: it must be at least five times --heartbeat-interval={heartbeat_ms}"
    )]
    ElectionTooShort { election_ms: u64, heartbeat_ms: u64 },
    /// An election timeout above the maximum.
    #[error("--election-timeout={election_ms} is too long: it can be at most 50000 ms")]
    ElectionTooLong { election_ms: u64 },
    /// `--listen-client-urls` is set without `--advertise-client-urls`.
    #[error("--advertise-client-urls is required when --listen-client-urls is set")]
    AdvertiseMissing,
    /// A cost that bcrypt does not have.
    #[error("--bcrypt-cost={cost} cannot be used: it takes a number from 4 to 31")]
    BcryptCost { cost: u32 },
    /// A kind of token that does not exist.
    #[error("--auth-token={kind} cannot be used: choose simple or jwt,sign-method=...")]
    TokenKind { kind: String },
    /// Options of signed tokens that cannot be used.
    #[error("--auth-token cannot be used")]
    JwtOptions(#[source] portunus_auth::jwt::OptionsError),
    /// A URL that needs TLS, which is not supported yet.
    #[error("--{flag}={url} asks for TLS, which is not supported yet: use http://")]
    TlsUrl { flag: &'static str, url: String },
    /// Settings about TLS that cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsConfigError),
    /// A value that is not a URL.
    #[error("--{flag}={url} is no URL with a port, such as http://127.0.0.1:2379")]
    BadUrl { flag: &'static str, url: String },
    /// The host has no address.
    #[error("{url} has no address on this machine: check the host name")]
    NoAddress { url: String },
    /// `--initial-cluster` does not name this member.
    #[error(
        "--initial-cluster has no member named {name}: give --name and --initial-cluster the same name"
    )]
    NotInCluster { name: String },
    /// `--initial-cluster` has a peer URL twice.
    #[error("--initial-cluster has {url} twice: give each member its own")]
    DuplicatePeerUrl { url: String },
    /// The two lists of peer URLs differ.
    #[error(
        "--initial-cluster has other URLs for {name} than --initial-advertise-peer-urls: make them the same"
    )]
    PeerUrlsDiffer { name: String },
    /// `--feature-gates` cannot be read.
    #[error("--feature-gates cannot be read")]
    FeatureGates(#[from] FlagError),
    /// `--cluster-feature-gates` cannot be read.
    #[error("--cluster-feature-gates cannot be read")]
    ClusterFeatureGates(#[source] FlagError),
    /// A gate is set by its old name as well.
    #[error("--{old} is the old name of --{flag}={gate}: set only the gate")]
    BothNames {
        old: &'static str,
        flag: &'static str,
        gate: &'static str,
    },
    /// Versions that cannot be used.
    #[error("the versions are not allowed")]
    Versions(#[from] portunus_gates::VersionFlagError),
    /// Settings that could not be collected.
    #[error(transparent)]
    Values(#[from] ValuesError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(words: &[&str]) -> Result<Config, ConfigErrors> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Config::from_values(&Values::from_arguments(&words))
    }

    #[test]
    fn every_error_is_reported_at_once() {
        let errors = config(&[
            "--nmae=m1",
            "--max-txn-ops=many",
            "--heartbeat-interval=x",
            "--emulated-version=9.9",
            "--max-learners=-1",
            "--log-level=loud",
            "--feature-gates=A=perhaps",
            "--initial-cluster-state=old",
        ]);
        let text = errors.unwrap_err().to_string();
        for flag in [
            "--nmae",
            "--max-txn-ops",
            "--heartbeat-interval",
            "9.9",
            "--max-learners",
            "--log-level",
            "perhaps",
            "--initial-cluster-state",
        ] {
            assert!(text.contains(flag), "{flag}: {text}");
        }
        assert_eq!(text.lines().count(), 8, "{text}");
    }

    #[test]
    fn heartbeat_interval_of_any_length_is_checked() {
        // Five times the second one exceeds 64 bits by 4.
        for heartbeat_ms in [u64::MAX, u64::MAX / 5 + 1, 0] {
            let errors = config(&[&format!("--heartbeat-interval={heartbeat_ms}")]);
            let text = errors.unwrap_err().to_string();
            assert!(text.contains(&heartbeat_ms.to_string()), "{text}");
        }
    }

    #[test]
    fn changed_flags_are_those_that_differ_from_their_defaults() {
        let words = [
            "--name=m1",
            "--max-txn-ops=128",
            "--feature-gates=AllAlpha=true",
        ];
        let config = config(&words).unwrap();
        assert_eq!(
            config.changed_flags,
            "--feature-gates=AllAlpha=true --name=m1"
        );
    }

    #[test]
    fn defaults_equal_etcd() {
        let config = config(&[]).unwrap();
        assert_eq!(config.data_dir, PathBuf::from("default.etcd"));
        assert_eq!(config.wal_dir, PathBuf::from("default.etcd/member/wal"));
        assert_eq!(config.quota_bytes, Some(2 << 30));
        assert_eq!(config.election_timeout, Duration::from_secs(1));
        assert_eq!(config.backend_batch_interval, Duration::from_millis(100));
        assert_eq!(config.max_request_bytes, 1_572_864);
        assert_eq!(config.auto_compaction, AutoCompaction::Off);
        assert_eq!(config.listen_client_urls[0].authority, "localhost:2379");
        assert_eq!(config.listen_metrics_urls, []);
        let unary = config.warning_unary_request_duration;
        assert_eq!(unary, Duration::from_millis(300));
        let cluster = config.cluster;
        assert_eq!(cluster.raft_read_timeout, Duration::from_secs(5));
        assert_eq!(cluster.raft_write_timeout, Duration::from_secs(5));
        assert!(cluster.leads_at_once_if_alone);
    }

    #[test]
    fn refused_values_name_the_remedy() {
        for (words, expected) in [
            (&["--election-timeout=100"][..], "five times"),
            (&["--election-timeout=60000"], "50000"),
            (
                &["--listen-client-urls=http://127.0.0.1:0"],
                "--advertise-client-urls is required",
            ),
            (
                &[
                    "--listen-client-urls=https://127.0.0.1:1",
                    "--advertise-client-urls=http://a:1",
                ],
                "--cert-file",
            ),
            (
                &["--initial-cluster=a=http://localhost:2380,b=http://b:1"],
                "no member named default",
            ),
            (
                &["--initial-cluster=default=http://localhost:2380,b=http://localhost:2380"],
                "twice",
            ),
            (&["--initial-cluster-state=old"], "choose one of"),
            (
                &["--initial-cluster=default=http://other:2380"],
                "make them the same",
            ),
            (&["--max-txn-ops=many"], "whole number"),
            (&["--backend-batch-interval=5"], "a duration"),
            (&["--emulated-version=3.4"], "versions are not allowed"),
            (&["--feature-gates=A"], "cannot be read"),
            (
                &["--experimental-initial-corrupt-check=true"],
                "use --feature-gates=InitialCorruptCheck=true",
            ),
            (
                &[
                    "--emulated-version=3.6",
                    "--experimental-initial-corrupt-check=perhaps",
                ],
                "true or false",
            ),
            (
                &[
                    "--emulated-version=3.6",
                    "--experimental-initial-corrupt-check",
                    "--feature-gates=InitialCorruptCheck=false",
                ],
                "set only the gate",
            ),
            (&["--log-level=loud"], "choose one of"),
            (&["--auto-compaction-retention=soon"], "hours"),
            (&["--raft-read-timeout=1ms"], "at least 100ms"),
            (&["--raft-write-timeout=0s"], "at least 100ms"),
            (
                &["--listen-metrics-urls=https://127.0.0.1:1"],
                "--cert-file",
            ),
            (&["--listen-client-http-urls=unix://a:1"], "no URL"),
            (&["--listen-metrics-urls=127.0.0.1:1"], "no URL"),
        ] {
            let error = config(words).unwrap_err().to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn zero_and_negative_values_have_their_documented_meaning() {
        assert_eq!(
            config(&["--quota-backend-bytes=-1"]).unwrap().quota_bytes,
            None
        );
        let hours = config(&["--auto-compaction-retention=2"])
            .unwrap()
            .auto_compaction;
        assert_eq!(hours, AutoCompaction::Periodic(Duration::from_secs(7200)));
        let words = [
            "--auto-compaction-mode=revision",
            "--auto-compaction-retention=5",
        ];
        assert_eq!(
            config(&words).unwrap().auto_compaction,
            AutoCompaction::Revision(5)
        );
        let single = config(&["--initial-cluster=default=http://localhost:2380"]);
        assert!(single.is_ok());
    }
}
