//! The three flags of a process that hosts several components, parsed but not validated.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::assignments::{Assignments, FlagError, Origin, parse_pair, segments};
use crate::error::{Classified, ErrorClass, quoted};
use crate::version::{MajorMinor, Version};

/// The component of a flag value without a component prefix.
pub const DEFAULT_COMPONENT: &str = "kube";

/// The values of the flags, by component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComponentFlags {
    /// `--emulated-version`
    pub emulation: BTreeMap<String, MajorMinor>,
    /// `--min-compatibility-version`
    pub min_compat: BTreeMap<String, MajorMinor>,
    /// `--feature-gates`
    pub gates: BTreeMap<String, Assignments>,
}

impl ComponentFlags {
    /// Parses each flag; a flag given several times is several texts.
    pub fn parse<T: AsRef<str>>(
        emulated_version: &[T],
        min_compatibility_version: &[T],
        feature_gates: &[T],
    ) -> Result<ComponentFlags, ComponentFlagError> {
        Ok(ComponentFlags {
            emulation: parse_versions("--emulated-version", emulated_version)?,
            min_compat: parse_versions("--min-compatibility-version", min_compatibility_version)?,
            gates: parse_gates(feature_gates)?,
        })
    }
}

/// Parses `component=major.minor` or `major.minor`, separated by commas or repeated.
fn parse_versions<T: AsRef<str>>(
    flag: &'static str,
    texts: &[T],
) -> Result<BTreeMap<String, MajorMinor>, ComponentFlagError> {
    let mut versions = BTreeMap::new();
    for text in texts {
        for (at, item) in segments(text.as_ref()) {
            let (component, value) = match item.split_once('=') {
                Some((component, value)) => (component.trim(), value),
                None => (DEFAULT_COMPONENT, item),
            };
            let version = match Version::parse(value) {
                Ok(version) => version,
                Err(source) => return Err(ComponentFlagError::BadVersion { flag, at, source }),
            };
            if version.components().iter().skip(2).any(|&part| part != 0)
                || !version.pre_release().is_empty()
            {
                return Err(ComponentFlagError::Patch {
                    flag,
                    at,
                    component: quoted(component),
                    version: quoted(value.trim()),
                    wanted: version.major_minor(),
                });
            }
            let second = version.major_minor();
            if let Some(first) = versions.insert(component.to_owned(), second) {
                return Err(ComponentFlagError::DuplicateVersion {
                    flag,
                    at,
                    component: quoted(component),
                    first,
                    second,
                });
            }
        }
    }
    Ok(versions)
}

/// Parses `component:Name=bool` or `Name=bool`, separated by commas or repeated; later wins.
fn parse_gates<T: AsRef<str>>(
    texts: &[T],
) -> Result<BTreeMap<String, Assignments>, ComponentFlagError> {
    let mut gates: BTreeMap<String, Assignments> = BTreeMap::new();
    let (mut bare, mut prefixed) = (false, false);
    for text in texts {
        for (at, item) in segments(text.as_ref()) {
            let (component, pair) = match item.split_once(':') {
                Some((component, pair)) => (component.trim(), pair),
                None => (DEFAULT_COMPONENT, item),
            };
            if component == DEFAULT_COMPONENT {
                if item.contains(':') {
                    prefixed = true;
                } else {
                    bare = true;
                }
                if bare && prefixed {
                    return Err(ComponentFlagError::MixedPrefix { at });
                }
            }
            let (name, value) = parse_pair(at, pair)?;
            let assigned = gates.entry(component.to_owned()).or_default();
            assigned.set(Origin::Flag, name, value);
        }
    }
    Ok(gates)
}

/// Why a flag could not be parsed. `at` is the byte within the flag's text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ComponentFlagError {
    /// The value is no version.
    #[error("{flag} has no readable version at byte {at}")]
    BadVersion {
        flag: &'static str,
        at: usize,
        source: crate::version::VersionError,
    },
    /// The version has a patch number or a pre-release.
    #[error("{flag} takes major.minor, not {version} (byte {at}): write {wanted}")]
    Patch {
        flag: &'static str,
        at: usize,
        component: String,
        version: String,
        wanted: MajorMinor,
    },
    /// A component is set twice.
    #[error("{flag} sets {component} twice (byte {at}): keep one")]
    DuplicateVersion {
        flag: &'static str,
        at: usize,
        component: String,
        first: MajorMinor,
        second: MajorMinor,
    },
    /// Both `Name` and `kube:Name` are used in one process.
    #[error(
        "--feature-gates mixes names with and without the prefix {DEFAULT_COMPONENT}: (byte {at}): use one form"
    )]
    MixedPrefix { at: usize },
    /// A gate is not of the form `Name=bool`.
    #[error(transparent)]
    Gate(#[from] FlagError),
}

impl Classified for ComponentFlagError {
    fn id(&self) -> &'static str {
        match self {
            ComponentFlagError::BadVersion { source, .. } => source.id(),
            ComponentFlagError::Patch { .. } => "E-PATCH",
            ComponentFlagError::DuplicateVersion { .. } => "E-DUP-VERSION",
            ComponentFlagError::MixedPrefix { .. } => "E-MIXED-PREFIX",
            ComponentFlagError::Gate(source) => source.id(),
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            ComponentFlagError::BadVersion { source, .. } => source.class(),
            ComponentFlagError::Patch { .. } => ErrorClass::Range,
            ComponentFlagError::DuplicateVersion { .. } => ErrorClass::Duplicate,
            ComponentFlagError::MixedPrefix { .. } => ErrorClass::MixedPrefix,
            ComponentFlagError::Gate(source) => source.class(),
        }
    }
}

/// The programs of a control plane that differ in these flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Program {
    /// An API server.
    ApiServer,
    /// A controller manager.
    ControllerManager,
    /// A scheduler.
    Scheduler,
    /// A node agent.
    NodeAgent,
    /// A node proxy.
    NodeProxy,
}

impl Program {
    /// Returns the flags about gates and versions that it accepts.
    pub const fn flags(self) -> &'static [&'static str] {
        const ALL: &[&str] = &[
            "feature-gates",
            "emulated-version",
            "min-compatibility-version",
            "emulation-forward-compatible",
            "runtime-config-emulation-forward-compatible",
        ];
        match self {
            Program::ApiServer => ALL,
            Program::ControllerManager | Program::Scheduler => ALL.split_at(3).0,
            Program::NodeAgent | Program::NodeProxy => ALL.split_at(1).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(texts: &[&str]) -> Result<Vec<(String, String)>, &'static str> {
        ComponentFlags::parse(texts, &[], &[])
            .map(|flags| {
                let show = |(name, version): (String, MajorMinor)| (name, version.to_string());
                flags.emulation.into_iter().map(show).collect()
            })
            .map_err(|error| error.id())
    }

    fn gates(texts: &[&str]) -> Result<Vec<(String, String, bool)>, &'static str> {
        ComponentFlags::parse(&[], &[], texts)
            .map(|flags| {
                let mut all = Vec::new();
                for (component, assigned) in &flags.gates {
                    for (name, value, _) in assigned.iter() {
                        all.push((component.clone(), name.to_owned(), value));
                    }
                }
                all
            })
            .map_err(|error| error.id())
    }

    /// Proves: G80, G81, S2-A11
    #[test]
    fn version_flags_parse_per_component_and_refuse_patches_and_duplicates() {
        let kube = |version: &str| vec![("kube".to_owned(), version.to_owned())];
        assert_eq!(versions(&["1.31"]), Ok(kube("1.31")));
        assert_eq!(versions(&["kube=v1.31.0"]), Ok(kube("1.31")));
        assert_eq!(
            versions(&["wardle=1.2,kube=1.31"]),
            Ok(vec![
                ("kube".to_owned(), "1.31".to_owned()),
                ("wardle".to_owned(), "1.2".to_owned())
            ])
        );
        assert_eq!(versions(&["wardle=1.2", "1.31"]).unwrap().len(), 2);
        assert_eq!(versions(&[]), Ok(vec![]));
        assert_eq!(versions(&["1.31.1"]), Err("E-PATCH"));
        assert_eq!(versions(&["1.31.0-alpha.1"]), Err("E-PATCH"));
        assert_eq!(versions(&["1.31,kube=1.31"]), Err("E-DUP-VERSION"));
        assert_eq!(versions(&["kube=1.30", "kube=1.30"]), Err("E-DUP-VERSION"));
        assert_eq!(versions(&["kube=new"]), Err("E-BADVERSION"));
        assert_eq!(versions(&["kube="]), Err("E-BADVERSION"));
        let error = ComponentFlags::parse(&[], &["1.2.3"], &[]).unwrap_err();
        assert!(
            error.to_string().starts_with("--min-compatibility-version"),
            "{error}"
        );
    }

    /// Proves: G82
    #[test]
    fn gate_flags_parse_per_component_and_refuse_mixed_prefixes() {
        let row =
            |component: &str, name: &str, value| (component.to_owned(), name.to_owned(), value);
        assert_eq!(
            gates(&["A=true,wardle:B=false", "A=false"]),
            Ok(vec![row("kube", "A", false), row("wardle", "B", false)])
        );
        assert_eq!(
            gates(&["wardle:B:C=true"]),
            Ok(vec![row("wardle", "B:C", true)])
        );
        assert_eq!(gates(&["A=true,kube:B=true"]), Err("E-MIXED-PREFIX"));
        assert_eq!(gates(&["kube:B=true", "A=true"]), Err("E-MIXED-PREFIX"));
        assert_eq!(gates(&["wardle:B"]), Err("E-MISSING-BOOL"));
        assert_eq!(gates(&["wardle:B=maybe"]), Err("E-BAD-BOOL"));
    }

    /// Proves: G85
    #[test]
    fn programs_accept_only_their_gate_and_version_flags() {
        assert_eq!(Program::ApiServer.flags().len(), 5);
        assert_eq!(
            Program::Scheduler.flags(),
            Program::ControllerManager.flags()
        );
        assert!(
            !Program::Scheduler
                .flags()
                .contains(&"emulation-forward-compatible")
        );
        assert_eq!(Program::NodeAgent.flags(), ["feature-gates"]);
        assert_eq!(Program::NodeProxy.flags(), ["feature-gates"]);
    }
}
