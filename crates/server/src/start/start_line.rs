//! The first log lines of a member: its versions, data directory and changed settings, and flags
//! to warn about.

use portunus_features::version::{ETCD_VERSION, version_text};
use portunus_gates::GateSet;

use crate::config::{Config, QUOTA_BYTES_ADVISED_MAX};

/// Logs the settings that a member starts with, and unrecognized environment variables.
pub(super) fn log(config: &Config, gates: &GateSet) {
    tracing::info!(
        portunus_version = env!("CARGO_PKG_VERSION"),
        etcd_version = %format_args!("{ETCD_VERSION}.0"),
        emulated_version = version_text(&config.version),
        data_dir = %config.data_dir.display(),
        changed_gates = changed_gates(gates),
        changed_flags = config.changed_flags,
        "starting an etcd server"
    );
    for variable in &config.unrecognized_variables {
        tracing::warn!(
            environment_variable = variable.name,
            similar = variable.similar,
            "unrecognized environment variable"
        );
    }
}

/// Warns about flags without effect, old names and a quota above the advised one.
pub(super) fn warn_about_flags(config: &Config) {
    if !config.ignored.is_empty() {
        tracing::warn!(
            flags = config.ignored.join(","),
            "these flags have no effect"
        );
    }
    if !config.old_names.is_empty() {
        tracing::warn!(
            flags = config.old_names.join(","),
            "these flags are gone from version 3.7 on: set the feature gates they stand for"
        );
    }
    let advised = u64::try_from(QUOTA_BYTES_ADVISED_MAX).unwrap_or(u64::MAX);
    if config.quota_bytes.is_some_and(|quota| quota > advised) {
        tracing::warn!(
            quota_bytes = config.quota_bytes,
            "the quota is above the 8 GiB that etcd advises"
        );
    }
}

/// The gates that differ from their defaults, as the flag takes them.
fn changed_gates(gates: &GateSet) -> String {
    let statuses = gates.statuses();
    let changed = statuses
        .iter()
        .filter(|status| status.enabled != status.default);
    let texts = changed.map(|status| format!("{}={}", status.name, status.enabled));
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use portunus_features::OwnFeatures;
    use portunus_features::version::effective_version;
    use portunus_gates::{Assignments, Origin};

    use super::*;

    #[test]
    fn gates_at_their_defaults_are_left_out() {
        let own = OwnFeatures::declared().unwrap();
        let at = |text: &str| {
            let said = Assignments::parse(Origin::Flag, text).unwrap();
            let gates = own.server.gates(effective_version().versions(), &said);
            changed_gates(&gates.unwrap())
        };
        assert_eq!(at(""), "");
        assert_eq!(at("InitialCorruptCheck=true"), "InitialCorruptCheck=true");
    }
}
