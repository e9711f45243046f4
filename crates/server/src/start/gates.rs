//! The server gates of a member, and the checks of its gate flags.

use portunus_features::{OwnFeatures, ServerFeatures};
use portunus_gates::Gates;
use portunus_statemachine::membership::Membership;

use super::{StartError, start_line};
use crate::config::Config;
use crate::handles::cluster_gates::publishes_proposal;

/// Resolves the server gates from the flags, and warns about what has no effect.
pub(super) fn resolve(
    config: &Config,
    own: &OwnFeatures,
) -> Result<Gates<ServerFeatures>, StartError> {
    let gates = own
        .server
        .gates(config.version.versions(), &config.feature_gates)?;
    check_emulation(config, &gates)?;
    start_line::log(config, &gates);
    // Checked again for the cluster's version; but at a first start an unusable flag must not
    // leave a data directory behind.
    if !config.data_dir.exists() {
        own.cluster_specs()
            .check_flags(
                config.version.emulation(),
                None,
                &config.cluster_feature_gates,
            )
            .map_err(StartError::ClusterGates)?;
    }
    for warning in gates.warnings() {
        tracing::warn!("{warning}");
    }
    start_line::warn_about_flags(config);
    Ok(gates)
}

/// Checks the flags of cluster gates at the stored cluster version, and warns about those without
/// effect.
pub(super) fn check_cluster_flags(
    config: &Config,
    own: &OwnFeatures,
    gates: &Gates<ServerFeatures>,
    membership: &Membership,
) -> Result<(), StartError> {
    let (specs, flags) = (own.cluster_specs(), &config.cluster_feature_gates);
    let warnings = specs
        .check_flags(
            config.version.emulation(),
            membership.cluster_version,
            flags,
        )
        .map_err(StartError::ClusterGates)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let proposes = publishes_proposal(gates);
    if proposes {
        for unwritten in specs.unwritten(config.version.versions(), flags) {
            tracing::warn!("{unwritten}; {}", unwritten.advice());
        }
    }
    if !proposes && !flags.is_empty() {
        tracing::warn!(
            "--cluster-feature-gates has no effect and every cluster feature stays off: this member publishes no proposal; set --feature-gates=ClusterFeatureGate=true, the default from 3.8 on"
        );
    }
    Ok(())
}

fn check_emulation(config: &Config, gates: &Gates<ServerFeatures>) -> Result<(), StartError> {
    if !config.version.is_emulating() {
        return Ok(());
    }
    let emulation = config.version.emulation();
    for status in gates.statuses() {
        if !status.enabled || status.stage != portunus_gates::Stage::Alpha {
            continue;
        }
        if config.strict_emulation {
            return Err(StartError::AlphaUnderEmulation {
                name: status.name,
                emulation: emulation.to_string(),
            });
        }
        let warning = portunus_gates::Warning::AlphaUnderEmulation {
            name: status.name,
            emulation,
        };
        tracing::warn!("{warning}");
    }
    Ok(())
}
