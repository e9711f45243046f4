//! The configuration of a server: flags, environment variables and the config file.

use portunus_server::config::{Config, Values, parse_duration};
use portunus_tls::{CipherSuites, VersionRange};

/// The settings whose hosts are looked up.
const LISTEN_FLAGS: [&str; 4] = [
    "listen-client-urls",
    "listen-peer-urls",
    "listen-client-http-urls",
    "listen-metrics-urls",
];

/// Addresses without a name, for settings whose default has one.
const ADDRESSES: [(&str, &str); 3] = [
    ("ETCD_LISTEN_CLIENT_URLS", "http://127.0.0.1:2379"),
    ("ETCD_ADVERTISE_CLIENT_URLS", "http://127.0.0.1:2379"),
    ("ETCD_LISTEN_PEER_URLS", "http://127.0.0.1:2380"),
];

/// Checks the settings, unless that would look up a host name.
fn check(values: &Values) {
    let is_local = |url: &str| {
        let (_, authority) = url.split_once("://").unwrap_or(("", url));
        let host = authority.trim_end_matches('/');
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        host.bytes()
            .all(|byte| byte.is_ascii_hexdigit() || b".:[]".contains(&byte))
            && host.contains(['.', ':'])
            || url.is_empty()
    };
    let is_local = |flag: &&'static str| values.get(flag).split(',').map(str::trim).all(is_local);
    if !LISTEN_FLAGS.iter().all(is_local) {
        return;
    }
    match Config::from_values(values) {
        Err(errors) => assert!(!errors.to_string().is_empty()),
        Ok(config) => {
            assert!(config.election_ticks() > 0);
            assert!(!config.heartbeat_interval.is_zero());
            assert!(config.election_timeout >= config.heartbeat_interval);
            assert!(!config.cluster.initial_members.is_empty());
        }
    }
}

/// Reads a config file.
pub fn config_files(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut values = Values::from_config_file(text);
    values.add_environment(ADDRESSES);
    let _ = values.changed();
    check(&values);
    values.add_beside_file(&Values::from_arguments(&[
        "--feature-gates=A=true".to_owned()
    ]));
    check(&values);
}

/// Parses a command line: one argument per line, and environment variables after an empty one.
pub fn flags(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (arguments, variables) = text.split_once("\n\n").unwrap_or((text, ""));
    let arguments: Vec<String> = arguments.lines().map(str::to_owned).collect();
    let mut values = Values::from_arguments(&arguments);
    values.add_environment(variables.lines().filter_map(|line| line.split_once('=')));
    values.add_environment(ADDRESSES);
    let _ = values.changed();
    check(&values);
    for argument in &arguments {
        let _ = parse_duration(argument);
        let _ = CipherSuites::parse(argument.split(','));
        let (min, max) = argument.split_once(',').unwrap_or((argument, ""));
        let _ = VersionRange::parse(min, max);
    }
}
