//! `docs/operations.md`: its configuration files can be used, and its alert rules name metrics that
//! members have.

use std::collections::BTreeSet;

use portunus_server::config::{Config, Values};
use serde_json::Value;

use super::path_of;
use crate::common::cluster::Cluster;
use crate::common::http_at;

const SETTINGS_MISMATCH: &str = "portunus_server_settings_mismatch";
const METRICS: &str = include_str!("../../src/metrics/mod.rs");

/// Returns the fenced blocks of a language, with the file name in their first line.
fn blocks(language: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path_of("operations.md")).unwrap();
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != format!("```{language}") {
            continue;
        }
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let name = block[0].strip_prefix("# ").expect("a file name").to_owned();
        blocks.push((name, block.join("\n")));
    }
    blocks
}

const RULES: &str = "portunus.rules.yaml";

#[test]
fn configuration_files_of_the_document_are_valid() {
    let blocks = blocks("yaml");
    let files: Vec<_> = blocks.iter().filter(|(name, _)| name != RULES).collect();
    assert_eq!(files.len(), 3);
    for (name, text) in &files {
        let config = Config::from_values(&Values::from_config_file(text));
        let config = config.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            config.data_dir.to_str(),
            Some("/var/lib/portunus"),
            "{name}"
        );
        assert!(config.ignored.is_empty(), "{name}");
    }
    // The unit starts one of them.
    let (_, unit) = &self::blocks("ini")[0];
    let is_started =
        |(name, _): &&(String, String)| unit.contains(&format!("--config-file {name}\n"));
    assert!(files.into_iter().any(|file| is_started(&file)), "{unit}");
}

/// The names in an expression that begin as those of metrics do. Those of histograms are without
/// the suffix of their series.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let is_of_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let prefixes = ["etcd_", "portunus_", "grpc_", "process_", "os_", "version_"];
    expression
        .split(|it: char| !is_of_name(it))
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .map(|name| name.trim_end_matches("_bucket").to_owned())
        .collect()
}

#[tokio::test]
async fn alert_rules_name_existing_metrics() {
    let test = "alert_rules_name_existing_metrics";
    let blocks = blocks("yaml");
    let (_, text) = blocks.iter().find(|(name, _)| name == RULES).unwrap();
    let rules: Value = serde_yaml_ng::from_str(text).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    let cluster = Cluster::start(test, 3, &[]).await;
    let mut served = BTreeSet::new();
    for member in cluster.running() {
        let address = cluster.members[member].client;
        http_at(address, "GET", "/readyz", &[], b"");
        let answer = http_at(address, "GET", "/metrics", &[], b"");
        let types = answer
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        served.extend(
            types
                .filter_map(|line| line.split(' ').next())
                .map(str::to_owned),
        );
    }
    let mut count = 0;
    for rule in rules {
        let alert = rule["alert"].as_str().unwrap();
        for metric in metrics_in(rule["expr"].as_str().unwrap()) {
            count += 1;
            let has = match metric.as_str() {
                // It has no series while all members have the same settings.
                SETTINGS_MISMATCH => METRICS.contains(&format!("{SETTINGS_MISMATCH:?}")),
                metric => served.contains(metric),
            };
            assert!(has, "{alert}: {metric}");
        }
    }
    assert!(count >= 15, "{count}");
}
