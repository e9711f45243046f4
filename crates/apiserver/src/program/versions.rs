//! The versions and features of the process, from its flags.
//!
//! Two components have versions: `kube`, the API server's own line and the default of flags
//! without a component, and `portunus`, the store's line. They are shown beside each other;
//! neither is mapped to the other.

use portunus_apis::{ONE_MORE_RELEASE_VARIABLE, Options, STRICT_IN_ALPHA_VARIABLE, SwitchError};
use portunus_apiserver::kube_version;
use portunus_features::version::effective_version;
use portunus_gates::{
    ComponentError, ComponentFlags, Components, DEFAULT_COMPONENT, Features, ForwardCompatibility,
    registry,
};
use thiserror::Error;

use crate::flags::VersionFlags;
use crate::kube_texts::{component_text, flag_text, validate_texts};

/// The component of the store.
pub const STORE_COMPONENT: &str = "portunus";

registry! {
    /// The features of the API server. There are none yet.
    pub ApiServerFeatures: Server = []
}

/// Why the version flags cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VersionsError {
    /// One or more flags are wrong. The texts are those of kube-apiserver.
    #[error("{}", .0.join("\n"))]
    Flags(Vec<String>),
    /// A variable of the environment is no boolean.
    #[error(transparent)]
    Environment(#[from] SwitchError),
    /// The binary's own declarations are wrong; a test prevents it.
    #[error("the components of this binary are declared wrongly: {0}")]
    Declared(String),
}

/// The versions of a process.
pub struct ProcessVersions {
    /// What selects the APIs that are served.
    pub api: Options,
    /// All components, for metrics.
    pub components: Components,
}

/// Returns the components of this binary, with their default versions.
pub fn components() -> Result<Components, VersionsError> {
    let declared = |error: &dyn std::error::Error| VersionsError::Declared(error.to_string());
    let features = Features::<ApiServerFeatures>::declared().map_err(|error| declared(&error))?;
    let kube = kube_version().map_err(|error| declared(&error))?;
    let mut components = Components::new();
    let register = || -> Result<(), ComponentError> {
        let registry = features.registry().clone();
        components.register(DEFAULT_COMPONENT, kube, Some(registry))?;
        components.register(STORE_COMPONENT, effective_version(), None)
    };
    register().map_err(|error| declared(&error))?;
    Ok(components)
}

/// Applies the flags and the environment.
pub fn resolve(
    flags: &VersionFlags,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<ProcessVersions, VersionsError> {
    let mut components = components()?;
    components.add_flags();
    let parsed = ComponentFlags::parse(
        &flags.emulated_version,
        &flags.min_compatibility_version,
        &flags.feature_gates,
    );
    let parsed = parsed.map_err(|error| VersionsError::Flags(vec![flag_text(&error)]))?;
    let set = components.set(&parsed);
    set.map_err(|error| VersionsError::Flags(vec![component_text(&error)]))?;
    let warnings = components
        .validate(flags.strict_emulation)
        .map_err(|errors| VersionsError::Flags(errors.iter().flat_map(validate_texts).collect()))?;
    for warning in warnings {
        tracing::warn!(%warning, "feature gates");
    }
    let Some(kube) = components.version(DEFAULT_COMPONENT) else {
        return Err(VersionsError::Declared("kube is missing".to_owned()));
    };
    let mut api = Options::new(kube.clone()).with_environment(
        variable(ONE_MORE_RELEASE_VARIABLE).as_deref(),
        variable(STRICT_IN_ALPHA_VARIABLE).as_deref(),
    )?;
    for text in &flags.runtime_config {
        api.runtime_config.add(text);
    }
    api.forward = ForwardCompatibility {
        emulation: flags.emulation_forward_compatible,
        runtime_config: flags.runtime_config_emulation_forward_compatible,
    };
    api.strict_emulation = flags.strict_emulation;
    Ok(ProcessVersions { api, components })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(emulated: &[&str], min_compat: &[&str], gates: &[&str]) -> VersionFlags {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        VersionFlags {
            emulated_version: owned(emulated),
            min_compatibility_version: owned(min_compat),
            feature_gates: owned(gates),
            ..VersionFlags::default()
        }
    }

    fn refusal(flags: &VersionFlags) -> String {
        match resolve(flags, |_| None) {
            Ok(_) => panic!("accepted {flags:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn components_have_versions_of_their_own() {
        let resolved = resolve(&flags(&["1.35,portunus=3.7"], &[], &[]), |_| None).unwrap();
        let emulated = |name| {
            resolved
                .components
                .version(name)
                .unwrap()
                .emulation()
                .to_string()
        };
        assert_eq!(
            (emulated("kube"), emulated("portunus")),
            ("1.35".into(), "3.7".into())
        );
        assert_eq!(resolved.api.current().to_string(), "1.35");
        let resolved = resolve(&flags(&["kube=1.36"], &["1.34"], &[]), |_| None).unwrap();
        assert_eq!(resolved.api.versions.min_compat().to_string(), "1.34");
    }

    #[test]
    fn wrong_flags_have_the_texts_of_kubernetes() {
        for (emulated, min_compat, gates, expected) in [
            (
                &["1.38"][..],
                &[][..],
                &[][..],
                "emulation version 1.38 is not between [1.34, 1.37]",
            ),
            (
                &["1.33"],
                &[],
                &[],
                "emulation version 1.33 is not between [1.34, 1.37]",
            ),
            (
                &["portunus=3.9"],
                &[],
                &[],
                "emulation version 3.9 is not between [3.5, 3.8]",
            ),
            (
                &["1.35"],
                &["1.36"],
                &[],
                "minCompatibilityVersion version 1.36 is not between [1.34, 1.35]",
            ),
            (
                &["kube=1.35.1"],
                &[],
                &[],
                "patch version not allowed, got: kube=1.35.1",
            ),
            (
                &["1.35", "kube=1.36"],
                &[],
                &[],
                "duplicate version flag, kube=1.35 and kube=1.36",
            ),
            (
                &["wardle=1.2"],
                &[],
                &[],
                "component not registered: wardle",
            ),
            (
                &[],
                &[],
                &["wardle:A=true"],
                "component not registered: wardle",
            ),
            (
                &[],
                &[],
                &["A=true", "kube:B=true"],
                "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
            ),
            (
                &["new"],
                &[],
                &[],
                "--emulated-version has no readable version",
            ),
        ] {
            let refused = refusal(&flags(emulated, min_compat, gates));
            assert!(
                refused.contains(expected),
                "{emulated:?} {gates:?}: {refused}"
            );
        }
        assert!(refusal(&flags(&[], &[], &["Unknown=true"])).contains("Unknown"));
    }

    #[test]
    fn environment_switches_are_read() {
        let variable = |value: &'static str| {
            move |name: &str| (name == ONE_MORE_RELEASE_VARIABLE).then(|| value.to_owned())
        };
        let flags = VersionFlags::default();
        let resolved = resolve(&flags, variable("true")).unwrap();
        assert!(resolved.api.serve_removed_one_more_release);
        assert!(resolve(&flags, variable("maybe")).is_err());
    }
}
