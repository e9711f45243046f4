//! `docs/limits.md`: every limit of the product, as the code enforces it.

use std::collections::BTreeSet;
use std::fmt::Write;

use portunus_server::config::flags::{FLAGS, Flag, Kind, Support, find};
use portunus_server::limits::{Limit, Setting, groups};

use super::assert_current;
use crate::common::{Server, data_dir};

const HEAD: &str = "# Limits

Generated from `crates/server/src/limits.rs`. To regenerate it:
`REWRITE=1 cargo test -p portunus-server --test documents`.

Every resource that a client or a peer can take has a limit. What exceeds it is refused, and other
clients are served as before. A limit with a flag has the flag's default here;
[flags.md](flags.md) has the environment variables. Limits without a flag are fixed.

";

/// Returns the flag or its absence, and the value.
fn setting(limit: &Limit) -> (String, String) {
    match &limit.setting {
        Setting::Flag(name) => {
            let flag = find(name).unwrap_or_else(|| panic!("no flag {name}"));
            assert_eq!(flag.support, Support::Works, "{name}");
            (format!("`--{name}`"), format!("`{}`", flag.default))
        }
        Setting::Fixed(value) => ("–".to_owned(), value.clone()),
    }
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    for group in groups() {
        writeln!(text, "## {}\n", group.title).unwrap();
        text.push_str("| Limit of | Flag | Value | At the limit | Metric |\n");
        text.push_str("| --- | --- | --- | --- | --- |\n");
        for limit in &group.limits {
            let (flag, value) = setting(limit);
            let metric = match limit.metric {
                "" => "–".to_owned(),
                metric => format!("`{metric}`"),
            };
            let (name, effect) = (limit.name, &limit.effect);
            writeln!(text, "| {name} | {flag} | {value} | {effect} | {metric} |").unwrap();
        }
        text.push('\n');
    }
    text.pop();
    text
}

#[test]
fn document_of_limits_is_current() {
    assert_current("limits.md", &document());
}

#[test]
fn every_flag_of_a_limit_is_in_the_table_of_limits() {
    let groups = groups();
    let listed: BTreeSet<&str> = groups
        .iter()
        .flat_map(|group| &group.limits)
        .filter_map(|limit| match limit.setting {
            Setting::Flag(name) => Some(name),
            Setting::Fixed(_) => None,
        })
        .collect();
    let is_limit = |flag: &&Flag| {
        let is_named_so = flag.name.starts_with("max-") || flag.name.ends_with("-timeout");
        let is_number = matches!(flag.kind, Kind::Number | Kind::Duration);
        // The time after which an election starts is no limit of a resource.
        is_named_so
            && is_number
            && flag.support == Support::Works
            && flag.name != "election-timeout"
    };
    for flag in FLAGS.iter().filter(is_limit) {
        assert!(listed.contains(flag.name), "--{} is not listed", flag.name);
    }
}

#[test]
fn metrics_of_limits_exist() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let metrics = server.get("/metrics").body;
    for limit in groups().iter().flat_map(|group| &group.limits) {
        let series = |line: &str| line.starts_with(limit.metric);
        assert!(metrics.lines().any(series), "no metric {}", limit.metric);
    }
}
