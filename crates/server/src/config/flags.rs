//! Every flag of etcd, and what this program does with it.
//!
//! One table serves the command line, the environment (`ETCD_…`), the config file, the help and
//! `docs/flags.md`. A flag is never read and then ignored: an unsupported flag is refused when it
//! is set to another value than its default.

/// How a flag is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The flag works.
    Works,
    /// Not supported yet, with the feature it belongs to. Its default is accepted.
    Later(&'static str),
    /// Accepted for old callers; it has no effect in the emulated versions either.
    Ignored,
    /// Removed, with what to do instead.
    Removed(&'static str),
    /// The name of a feature's flag before it was a gate: works as the gate in versions that have
    /// both, is refused in later ones.
    OldGate(OldGate),
}

/// The gate that an old flag name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldGate {
    /// The flag that sets the gate.
    pub flag: &'static str,
    /// The gate.
    pub gate: &'static str,
    /// What to do where the old name is removed.
    pub instead: &'static str,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`; the bare flag means true.
    Bool,
    /// A whole number.
    Number,
    /// A Go duration; whole nanoseconds in a config file.
    Duration,
}

/// One flag of the command line.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its name without dashes.
    pub name: &'static str,
    /// How its value is written.
    pub kind: Kind,
    /// Its value where it is not set.
    pub default: &'static str,
    /// What it does; empty for flags that are not in the help.
    pub help: &'static str,
    /// How it is supported.
    pub support: Support,
    /// Whether etcd has no such flag.
    pub is_own: bool,
}

impl Flag {
    /// Its environment variable.
    pub fn variable(&self) -> String {
        format!("ETCD_{}", self.name.to_uppercase().replace('-', "_"))
    }
}

const fn works(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        help,
        support: Support::Works,
        is_own: false,
    }
}

const fn own(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag {
        is_own: true,
        ..works(name, kind, default, help)
    }
}

const fn later(name: &'static str, kind: Kind, default: &'static str, part: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        help: "",
        support: Support::Later(part),
        is_own: false,
    }
}

const fn ignored(name: &'static str) -> Flag {
    Flag {
        name,
        kind: Kind::Text,
        default: "",
        help: "",
        support: Support::Ignored,
        is_own: false,
    }
}

const fn removed(name: &'static str, instead: &'static str) -> Flag {
    Flag {
        name,
        kind: Kind::Bool,
        default: "",
        help: "",
        support: Support::Removed(instead),
        is_own: false,
    }
}

const fn old_gate(name: &'static str, gate: &'static str, instead: &'static str) -> Flag {
    old(name, "feature-gates", gate, instead)
}

const fn old_cluster_gate(name: &'static str, gate: &'static str, instead: &'static str) -> Flag {
    old(name, "cluster-feature-gates", gate, instead)
}

const fn old(
    name: &'static str,
    flag: &'static str,
    gate: &'static str,
    instead: &'static str,
) -> Flag {
    Flag {
        name,
        kind: Kind::Bool,
        default: "",
        help: "",
        support: Support::OldGate(OldGate {
            flag,
            gate,
            instead,
        }),
        is_own: false,
    }
}

const DISCOVERY: &str = "discovery";
const SOCKET_OPTIONS: &str = "socket options";
const TRACING: &str = "distributed tracing";

use Kind::{Bool, Duration, Number, Text};

/// All flags, grouped as in etcd's help.
pub const FLAGS: &[Flag] = &[
    // Member
    works(
        "name",
        Text,
        "default",
        "human-readable name of this member",
    ),
    works(
        "data-dir",
        Text,
        "",
        "where the data lives (default: NAME.etcd)",
    ),
    works(
        "wal-dir",
        Text,
        "",
        "where the write-ahead log lives (default: inside data-dir)",
    ),
    works(
        "snapshot-count",
        Number,
        "10000",
        "applied entries between two snapshots of the log",
    ),
    works(
        "heartbeat-interval",
        Number,
        "100",
        "milliseconds between heartbeats",
    ),
    works(
        "election-timeout",
        Number,
        "1000",
        "milliseconds without a leader before an election",
    ),
    works(
        "initial-election-tick-advance",
        Bool,
        "true",
        "let a lone member lead at once; false: after an election timeout",
    ),
    works(
        "listen-peer-urls",
        Text,
        "http://localhost:2380",
        "where peers connect",
    ),
    works(
        "listen-client-urls",
        Text,
        "http://localhost:2379",
        "where clients connect",
    ),
    works(
        "listen-client-http-urls",
        Text,
        "",
        "where clients connect with HTTP; --listen-client-urls then serve gRPC only",
    ),
    later("max-wals", Number, "5", "a limit on old log files"),
    later("memory-mlock", Bool, "false", "locking memory"),
    works(
        "quota-backend-bytes",
        Number,
        "0",
        "size at which writes are refused (0: 2 GiB, negative: no limit)",
    ),
    later(
        "backend-bbolt-freelist-type",
        Text,
        "map",
        "bbolt, which is not the storage engine here",
    ),
    works(
        "backend-batch-interval",
        Duration,
        "0s",
        "longest wait before the backend commits (0: 100ms)",
    ),
    works(
        "backend-batch-limit",
        Number,
        "0",
        "records before the backend commits (0: 10000)",
    ),
    works(
        "max-txn-ops",
        Number,
        "128",
        "operations allowed in a transaction",
    ),
    works(
        "max-request-bytes",
        Number,
        "1572864",
        "largest client request",
    ),
    works(
        "max-concurrent-streams",
        Number,
        "16384",
        "streams a client may open at a time on one connection (etcd: 4294967295)",
    ),
    later(
        "grpc-keepalive-min-time",
        Duration,
        "5s",
        "closing connections of clients that ping too often",
    ),
    works(
        "grpc-keepalive-interval",
        Duration,
        "2h0m0s",
        "how often an idle client is pinged",
    ),
    works(
        "grpc-keepalive-timeout",
        Duration,
        "20s",
        "wait for the answer to a ping",
    ),
    own(
        "max-client-connections",
        Number,
        "32768",
        "connections of clients (0: as many as there are file descriptors)",
    ),
    own(
        "max-client-connections-per-address",
        Number,
        "16384",
        "connections of clients from one address (0: no limit)",
    ),
    own(
        "max-peer-connections",
        Number,
        "1024",
        "connections of peers (0: an eighth of the file descriptors)",
    ),
    own(
        "max-peer-connections-per-address",
        Number,
        "512",
        "connections of peers from one address (0: no limit)",
    ),
    own(
        "max-metrics-connections",
        Number,
        "512",
        "connections at --listen-metrics-urls (0: an eighth of the file descriptors)",
    ),
    own(
        "max-metrics-connections-per-address",
        Number,
        "256",
        "connections at --listen-metrics-urls from one address (0: no limit)",
    ),
    own(
        "max-watches-per-stream",
        Number,
        "100000",
        "watches on one stream (0: no limit)",
    ),
    own(
        "max-watches-per-connection",
        Number,
        "200000",
        "watches on all streams of one connection (0: no limit)",
    ),
    own(
        "max-concurrent-snapshots",
        Number,
        "16",
        "snapshots sent to clients at once (0: no limit)",
    ),
    own(
        "max-range-bytes-in-flight",
        Number,
        "1073741824",
        "bytes of range responses of 256 KiB and more, and of range streams, that wait for their clients (0: no limit)",
    ),
    own(
        "max-pending-response-bytes",
        Number,
        "67108864",
        "bytes of responses that a connection may leave unread and still send requests (0: no limit)",
    ),
    own(
        "max-header-bytes",
        Number,
        "65536",
        "bytes of the headers of a request (0: no limit)",
    ),
    own(
        "max-unauthenticated-requests",
        Number,
        "1000",
        "requests per second without a valid user from one address, while authentication is enabled (0: no limit)",
    ),
    own(
        "max-failed-logins",
        Number,
        "10",
        "failed logins of one user from one address at once; then one per second (0: no limit)",
    ),
    own(
        "client-first-byte-timeout",
        Duration,
        "1m0s",
        "time for a new connection to begin with HTTP (0: no limit)",
    ),
    own(
        "client-idle-timeout",
        Duration,
        "1h0m0s",
        "time without a request or stream after which a connection is closed (0: never)",
    ),
    later("socket-reuse-port", Bool, "false", SOCKET_OPTIONS),
    later("socket-reuse-address", Bool, "false", SOCKET_OPTIONS),
    later("enable-grpc-gateway", Bool, "false", "the JSON gateway"),
    works(
        "raft-read-timeout",
        Duration,
        "5s",
        "silence after which a connection from a peer is given up",
    ),
    works(
        "raft-write-timeout",
        Duration,
        "5s",
        "time after which a peer that takes nothing is given up",
    ),
    // Cluster
    works(
        "initial-advertise-peer-urls",
        Text,
        "http://localhost:2380",
        "peer URLs of this member, as others see them",
    ),
    works(
        "initial-cluster",
        Text,
        "",
        "members a new cluster starts with (default: NAME=initial-advertise-peer-urls)",
    ),
    works("initial-cluster-state", Text, "new", "new or existing"),
    works(
        "initial-cluster-token",
        Text,
        "etcd-cluster",
        "tells clusters apart that start alike",
    ),
    works(
        "advertise-client-urls",
        Text,
        "http://localhost:2379",
        "client URLs of this member, as others see them",
    ),
    later("discovery-srv", Text, "", DISCOVERY),
    later("discovery-srv-name", Text, "", DISCOVERY),
    later("discovery-token", Text, "", DISCOVERY),
    later("discovery-endpoints", Text, "", DISCOVERY),
    later("discovery-dial-timeout", Duration, "2s", DISCOVERY),
    later("discovery-request-timeout", Duration, "5s", DISCOVERY),
    later("discovery-keepalive-time", Duration, "2s", DISCOVERY),
    later("discovery-keepalive-timeout", Duration, "6s", DISCOVERY),
    later("discovery-insecure-transport", Bool, "true", DISCOVERY),
    later(
        "discovery-insecure-skip-tls-verify",
        Bool,
        "false",
        DISCOVERY,
    ),
    later("discovery-cert", Text, "", DISCOVERY),
    later("discovery-key", Text, "", DISCOVERY),
    later("discovery-cacert", Text, "", DISCOVERY),
    later("discovery-user", Text, "", DISCOVERY),
    later("discovery-password", Text, "", DISCOVERY),
    later("discovery-fallback", Text, "exit", DISCOVERY),
    works(
        "strict-reconfig-check",
        Bool,
        "true",
        "refuse changes of membership that would cost the quorum",
    ),
    works(
        "pre-vote",
        Bool,
        "true",
        "ask whether an election could be won before disturbing the others",
    ),
    works(
        "auto-compaction-mode",
        Text,
        "periodic",
        "periodic or revision",
    ),
    works(
        "auto-compaction-retention",
        Text,
        "0",
        "how much history to keep: hours or a duration, or revisions (0: all)",
    ),
    // Security
    works(
        "cert-file",
        Text,
        "",
        "certificate of the client listeners, PEM",
    ),
    works("key-file", Text, "", "private key of --cert-file, PEM"),
    works(
        "client-cert-auth",
        Bool,
        "false",
        "require client certificates, and let their common names be users; needs --trusted-ca-file",
    ),
    works(
        "trusted-ca-file",
        Text,
        "",
        "CAs of client certificates, PEM; with it every client must present one",
    ),
    works(
        "client-cert-file",
        Text,
        "",
        "certificate for dials to client listeners; checked at start, no such dial is made",
    ),
    works(
        "client-key-file",
        Text,
        "",
        "private key of --client-cert-file, PEM",
    ),
    works(
        "client-crl-file",
        Text,
        "",
        "revoked client certificates, DER or PEM",
    ),
    works(
        "client-cert-allowed-hostname",
        Text,
        "",
        "host names or IP addresses, one of which a client certificate must have",
    ),
    own(
        "client-cert-allowed-cn",
        Text,
        "",
        "common names, one of which a client certificate must have; etcd has it in its config file only",
    ),
    own(
        "skip-client-san-verification",
        Bool,
        "false",
        "do not compare certificates with addresses at --listen-metrics-urls; etcd has it in its config file only",
    ),
    works(
        "auto-tls",
        Bool,
        "false",
        "create a self-signed certificate for the client listeners",
    ),
    works(
        "peer-cert-file",
        Text,
        "",
        "certificate of the peer listeners, and of dials to peers, PEM",
    ),
    works(
        "peer-key-file",
        Text,
        "",
        "private key of --peer-cert-file, PEM",
    ),
    works(
        "peer-client-cert-auth",
        Bool,
        "false",
        "require certificates of peers; needs --peer-trusted-ca-file",
    ),
    works(
        "peer-trusted-ca-file",
        Text,
        "",
        "CAs of peers' certificates, PEM; with it every peer must present one",
    ),
    works(
        "peer-client-cert-file",
        Text,
        "",
        "certificate for dials to peers, if not --peer-cert-file, PEM",
    ),
    works(
        "peer-client-key-file",
        Text,
        "",
        "private key of --peer-client-cert-file, PEM",
    ),
    works(
        "peer-crl-file",
        Text,
        "",
        "revoked certificates of peers, DER or PEM",
    ),
    works(
        "peer-cert-allowed-cn",
        Text,
        "",
        "common names, one of which a peer's certificate must have",
    ),
    works(
        "peer-cert-allowed-hostname",
        Text,
        "",
        "host names or IP addresses, one of which a peer's certificate must have",
    ),
    works(
        "peer-auto-tls",
        Bool,
        "false",
        "create a self-signed certificate for peers; encrypts, but verifies no peer",
    ),
    works(
        "peer-skip-client-san-verification",
        Bool,
        "false",
        "do not compare the names in peers' certificates with their addresses",
    ),
    works(
        "self-signed-cert-validity",
        Number,
        "1",
        "years that self-signed certificates are valid",
    ),
    works(
        "cipher-suites",
        Text,
        "",
        "allowed TLS cipher suites, by their names in Go (default: all supported)",
    ),
    works(
        "tls-min-version",
        Text,
        "TLS1.2",
        "lowest TLS version: TLS1.2 or TLS1.3",
    ),
    works(
        "tls-max-version",
        Text,
        "",
        "highest TLS version: TLS1.2 or TLS1.3 (default: the highest supported)",
    ),
    later("cors", Text, "*", "the JSON gateway"),
    later("host-whitelist", Text, "*", "the JSON gateway"),
    works(
        "auth-token",
        Text,
        "simple",
        "how users prove who they are after a login: simple, or jwt,sign-method=NAME,pub-key=FILE,priv-key=FILE,ttl=DURATION",
    ),
    works(
        "bcrypt-cost",
        Number,
        "10",
        "cost of hashing a password, 4 to 31; each step doubles the time",
    ),
    works(
        "auth-token-ttl",
        Number,
        "300",
        "seconds after its last use that a simple token expires",
    ),
    // Monitoring and logging
    later("enable-pprof", Bool, "false", "profiling"),
    works("metrics", Text, "basic", "basic or extensive"),
    works(
        "listen-metrics-urls",
        Text,
        "",
        "where metrics and health are served besides the client port",
    ),
    later("logger", Text, "zap", "other loggers"),
    works("log-outputs", Text, "default", "default, stderr or stdout"),
    works("log-level", Text, "info", "debug, info, warn or error"),
    works(
        "log-format",
        Text,
        "",
        "json or console (default: console on a terminal, else json)",
    ),
    later("enable-log-rotation", Bool, "false", "log rotation"),
    later("log-rotation-config-json", Text, "", "log rotation"),
    works(
        "warning-apply-duration",
        Duration,
        "100ms",
        "longer applies are logged",
    ),
    works(
        "warning-unary-request-duration",
        Duration,
        "300ms",
        "longer unary requests are logged (0: none)",
    ),
    later("enable-distributed-tracing", Bool, "false", TRACING),
    later(
        "distributed-tracing-address",
        Text,
        "localhost:4317",
        TRACING,
    ),
    later("distributed-tracing-service-name", Text, "etcd", TRACING),
    later("distributed-tracing-instance-id", Text, "", TRACING),
    later("distributed-tracing-sampling-rate", Number, "0", TRACING),
    // Features
    works(
        "feature-gates",
        Text,
        "",
        "server features to set, such as A=true,B=false",
    ),
    own(
        "cluster-feature-gates",
        Text,
        "",
        "cluster features this member wants on or off (NAME=true,...); all members decide",
    ),
    own("emulated-version", Text, "", "behave as this version"),
    own(
        "min-compatibility-version",
        Text,
        "",
        "write only what this version can read",
    ),
    own(
        "strict-emulation",
        Bool,
        "false",
        "refuse alpha features under emulation",
    ),
    own(
        "resident-value-bytes",
        Number,
        "134217728",
        "values kept in memory, oldest leave first (0: all)",
    ),
    works(
        "corrupt-check-time",
        Duration,
        "0s",
        "time between comparisons of all members' data (0: none)",
    ),
    works(
        "compact-hash-check-time",
        Duration,
        "1m0s",
        "time between comparisons of hashes of compactions (with CompactHashCheck)",
    ),
    works(
        "compaction-batch-limit",
        Number,
        "0",
        "revisions removed at a time (0: 1000)",
    ),
    works(
        "compaction-sleep-interval",
        Duration,
        "0s",
        "pause between two removals (0: 10ms)",
    ),
    works(
        "watch-progress-notify-interval",
        Duration,
        "0s",
        "time between progress notices (0: 10m)",
    ),
    later(
        "bootstrap-defrag-threshold-megabytes",
        Number,
        "0",
        "defragmenting at start",
    ),
    works("max-learners", Number, "1", "learners a cluster may have"),
    works(
        "downgrade-check-time",
        Duration,
        "5s",
        "time between looks for the end of a downgrade",
    ),
    works(
        "snapshot-catchup-entries",
        Number,
        "5000",
        "log entries kept for slow followers",
    ),
    // Unsafe and other
    works(
        "force-new-cluster",
        Bool,
        "false",
        "make a cluster of one of the data that is here",
    ),
    removed(
        "unsafe-no-fsync",
        "drop it: every acknowledged write is synced here",
    ),
    works(
        "config-file",
        Text,
        "",
        "read all settings from this YAML file; flags and environment are then ignored",
    ),
    // Accepted, without effect, as etcd does.
    ignored("cluster-active-size"),
    ignored("cluster-remove-delay"),
    ignored("cluster-sync-interval"),
    ignored("config"),
    ignored("force"),
    ignored("max-result-buffer"),
    ignored("max-retry-attempts"),
    ignored("peer-heartbeat-interval"),
    ignored("peer-election-timeout"),
    ignored("retry-interval"),
    ignored("snapshot"),
    ignored("v"),
    ignored("vv"),
    ignored("test.coverprofile"),
    ignored("test.outputdir"),
    // Removed.
    removed(
        "max-snapshots",
        "drop it: snapshots of the log need no files of their own",
    ),
    removed("v2-deprecation", "drop it: the v2 store is gone"),
    removed("enable-v2", "drop it: the v2 store is gone"),
    removed("discovery", "use discovery-token and discovery-endpoints"),
    removed("discovery-proxy", "drop it: the v2 discovery is gone"),
    old_gate(
        "experimental-initial-corrupt-check",
        "InitialCorruptCheck",
        "use --feature-gates=InitialCorruptCheck=true",
    ),
    old_gate(
        "experimental-compact-hash-check-enabled",
        "CompactHashCheck",
        "use --feature-gates=CompactHashCheck=true",
    ),
    old_gate(
        "experimental-stop-grpc-service-on-defrag",
        "StopGRPCServiceOnDefrag",
        "use --feature-gates=StopGRPCServiceOnDefrag=true",
    ),
    old_gate(
        "experimental-txn-mode-write-with-shared-buffer",
        "TxnModeWriteWithSharedBuffer",
        "use --feature-gates=TxnModeWriteWithSharedBuffer=true",
    ),
    old_cluster_gate(
        "experimental-enable-lease-checkpoint",
        "LeaseCheckpoint",
        "use --cluster-feature-gates=LeaseCheckpoint=true",
    ),
    old_cluster_gate(
        "experimental-enable-lease-checkpoint-persist",
        "LeaseCheckpointPersist",
        "use --cluster-feature-gates=LeaseCheckpointPersist=true",
    ),
];

/// Groups of the config file that are not supported yet, with the feature they belong to. An empty
/// group is accepted.
pub const GROUPS_LATER: &[(&str, &str)] = &[
    ("discovery-config", DISCOVERY),
    ("socket-options", SOCKET_OPTIONS),
];

/// The flag that a key of a group in the config file stands for. `Err` has the known keys.
pub fn find_in_group(group: &str, key: &str) -> Option<Result<&'static Flag, Vec<&'static str>>> {
    let (_, keys) = GROUPS.iter().find(|(name, _)| *name == group)?;
    let flag = keys.iter().find(|(name, _)| *name == key);
    let flag = flag.and_then(|(_, flag)| find(flag));
    Some(flag.ok_or_else(|| keys.iter().map(|(name, _)| *name).collect()))
}

/// A group of the config file: its keys and their flags.
type Group = (&'static str, &'static [(&'static str, &'static str)]);

/// The groups of the config file.
pub const GROUPS: &[Group] = &[
    (
        "client-transport-security",
        &[
            ("cert-file", "cert-file"),
            ("key-file", "key-file"),
            ("client-cert-file", "client-cert-file"),
            ("client-key-file", "client-key-file"),
            ("client-cert-auth", "client-cert-auth"),
            ("trusted-ca-file", "trusted-ca-file"),
            ("auto-tls", "auto-tls"),
            ("allowed-cn", "client-cert-allowed-cn"),
            ("allowed-hostname", "client-cert-allowed-hostname"),
            (
                "skip-client-san-verification",
                "skip-client-san-verification",
            ),
        ],
    ),
    (
        "peer-transport-security",
        &[
            ("cert-file", "peer-cert-file"),
            ("key-file", "peer-key-file"),
            ("client-cert-file", "peer-client-cert-file"),
            ("client-key-file", "peer-client-key-file"),
            ("client-cert-auth", "peer-client-cert-auth"),
            ("trusted-ca-file", "peer-trusted-ca-file"),
            ("auto-tls", "peer-auto-tls"),
            ("allowed-cn", "peer-cert-allowed-cn"),
            ("allowed-hostname", "peer-cert-allowed-hostname"),
            (
                "skip-client-san-verification",
                "peer-skip-client-san-verification",
            ),
        ],
    ),
];

/// Finds a flag by name; both spellings of the emulation flag are one.
pub fn find(name: &str) -> Option<&'static Flag> {
    let name = if name == "emulation-version" {
        "emulated-version"
    } else {
        name
    };
    FLAGS.iter().find(|flag| flag.name == name)
}
