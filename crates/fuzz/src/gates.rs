//! Texts about feature gates, versions and APIs, of flags and of other members.

use std::cmp::Ordering;
use std::sync::LazyLock;

use portunus_apis::{RuntimeConfig, compare_kube_aware, resolve, testing};
use portunus_features::OwnFeatures;
use portunus_features::version::effective_version;
use portunus_gates::{Assignments, MajorMinor, Origin, Version};

static OWN: LazyLock<OwnFeatures> =
    LazyLock::new(|| OwnFeatures::declared().expect("legal features"));

/// Parses gates as flags, environment variables and values of a config file, and resolves them.
pub fn feature_gates(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (text, versions) = text.split_once('\n').unwrap_or((text, ""));
    let (emulation, min_compat) = versions.split_once(',').unwrap_or((versions, ""));
    let emulation = (!emulation.is_empty()).then_some(emulation);
    let min_compat = (!min_compat.is_empty()).then_some(min_compat);
    let version = effective_version().with_flags(emulation, min_compat);
    let version = version.unwrap_or_else(|_| effective_version());
    let variables = text.split(',').filter_map(|pair| pair.split_once('='));
    let (of_environment, _) = Assignments::from_environment("F_", variables);
    let mut given = of_environment;
    if let Ok(value) = serde_json::from_str(text)
        && let Ok(of_file) = Assignments::from_value(Origin::Config, &value)
    {
        given.merge(&of_file);
    }
    if let Ok(of_flag) = Assignments::parse(Origin::Flag, text) {
        given.merge(&of_flag);
    }
    match OWN.server.gates(version.versions(), &given) {
        Ok(gates) => {
            for status in gates.statuses() {
                let explicit = given.get(&status.name);
                assert!(explicit.is_none_or(|(value, _)| value == status.enabled));
            }
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
    let specs = OWN.cluster_specs();
    let _ = specs.check_flags(version.emulation(), None, &given);
    let _ = specs.unwritten(version.versions(), &given).len();
}

/// Parses versions in every form, and compares two of them.
pub fn versions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (left, right) = text.split_once('\n').unwrap_or((text, "3.7.1-rc.0+go"));
    if let Ok(minor) = left.parse::<MajorMinor>() {
        assert_eq!(minor.to_string().parse(), Ok(minor));
    }
    for parse in [
        Version::parse,
        Version::parse_generic,
        Version::parse_semantic,
    ] {
        let Ok(version) = parse(left) else {
            continue;
        };
        let again = parse(&version.to_string()).expect("the text of a version");
        assert_eq!(again.to_string(), version.to_string());
        assert_eq!(again.compare(&version), Ordering::Equal);
        let _ = version.major_minor();
        let _ = version.plus_minors(3);
        let _ = version.minus_minors(3);
        if let Ok(other) = parse(right) {
            assert_eq!(version.compare(&other), other.compare(&version).reverse());
        }
    }
    let order = compare_kube_aware(left, right);
    assert_eq!(order, compare_kube_aware(right, left).reverse());
}

/// Parses a runtime-config, and decides what is served with it.
pub fn runtime_configs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let config = RuntimeConfig::parse(text);
    let parts: Vec<String> = config
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let is_plain = |part: &String| !part.contains(',') && part.matches('=').count() == 1;
    if parts.iter().all(is_plain) {
        let again = RuntimeConfig::parse(&parts.join(","));
        assert_eq!(again.iter().count(), config.iter().count());
    }
    let declarations = testing::declarations().expect("legal declarations");
    for emulation in [testing::BEFORE, testing::STEP] {
        let mut options = testing::options(emulation);
        options.runtime_config = config.clone();
        match resolve(&declarations, &options) {
            Ok(served) => assert!(served.warnings().len() < 1000),
            Err(errors) => assert!(!errors.to_string().is_empty()),
        }
    }
}
