//! The entries of a feature's history, which entry applies, and which histories are legal.
//!
//! A feature is a list of [`Spec`]s, oldest first. [`select`] is the only function that
//! picks the entry for a pair of versions.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::{Classified, ErrorClass};
use crate::stage::Stage;
use crate::version::{MajorMinor, Version};

/// Stage, default and lock of a feature from one version on.
///
/// Built in constants with one call per property; off and unlocked by default:
///
/// ```
/// use portunus_gates::Spec;
/// const HISTORY: &[Spec] = &[
///     Spec::alpha("3.6"),
///     Spec::beta("3.7").on(),
///     Spec::ga("3.8").on().locked(),
/// ];
/// assert!(HISTORY[2].default && HISTORY[2].locked);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Spec {
    /// The first version this entry applies to.
    pub version: MajorMinor,
    /// The stage from then on.
    pub stage: Stage,
    /// The value where none is set.
    pub default: bool,
    /// Whether the default cannot be changed.
    pub locked: bool,
    /// The entry applies only where the minimum compatibility version is at least this.
    /// Absent: always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_compat: Option<MajorMinor>,
}

impl Spec {
    const fn new(version: &str, stage: Stage) -> Spec {
        Spec {
            version: MajorMinor::literal(version),
            stage,
            default: false,
            locked: false,
            min_compat: None,
        }
    }

    /// Creates an entry that is alpha from `version` on.
    pub const fn alpha(version: &str) -> Spec {
        Spec::new(version, Stage::Alpha)
    }

    /// Creates an entry that is beta from `version` on.
    pub const fn beta(version: &str) -> Spec {
        Spec::new(version, Stage::Beta)
    }

    /// Creates an entry that is generally available from `version` on.
    pub const fn ga(version: &str) -> Spec {
        Spec::new(version, Stage::Ga)
    }

    /// Creates an entry that is deprecated from `version` on.
    pub const fn deprecated(version: &str) -> Spec {
        Spec::new(version, Stage::Deprecated)
    }

    /// Creates an entry that is removed from `version` on: it reads as off, and setting it
    /// is refused with a hint.
    pub const fn removed(version: &str) -> Spec {
        Spec::new(version, Stage::Removed).locked()
    }

    /// Creates an entry that applies at every version, for features without a history.
    pub const fn unversioned(stage: Stage, default: bool) -> Spec {
        let mut spec = Spec::new("0.0", stage);
        spec.default = default;
        spec
    }

    /// Sets the default to on.
    #[must_use]
    pub const fn on(mut self) -> Spec {
        self.default = true;
        self
    }

    /// Locks the default.
    #[must_use]
    pub const fn locked(mut self) -> Spec {
        self.locked = true;
        self
    }

    /// Limits the entry to minimum compatibility versions of at least this.
    #[must_use]
    pub const fn min_compat(mut self, version: &str) -> Spec {
        self.min_compat = Some(MajorMinor::literal(version));
        self
    }
}

/// A spec before validation, such as one from a document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSpec {
    /// The version text, if any.
    pub version: Option<String>,
    /// The stage.
    pub stage: Stage,
    /// The default.
    pub default: bool,
    /// Whether the default is fixed.
    #[serde(default)]
    pub locked: bool,
    /// The minimum compatibility version text, if any.
    #[serde(default)]
    pub min_compat: Option<String>,
}

impl From<Spec> for RawSpec {
    fn from(spec: Spec) -> RawSpec {
        RawSpec {
            version: Some(spec.version.to_string()),
            stage: spec.stage,
            default: spec.default,
            locked: spec.locked,
            min_compat: spec.min_compat.map(|version| version.to_string()),
        }
    }
}

/// The pair of versions that selects specs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Versions {
    /// The version whose behaviour applies.
    pub emulation: MajorMinor,
    /// The oldest version that must be able to read the data.
    pub min_compat: MajorMinor,
}

impl Versions {
    /// Creates a pair from both versions.
    pub const fn new(emulation: MajorMinor, min_compat: MajorMinor) -> Versions {
        Versions {
            emulation,
            min_compat,
        }
    }

    /// Creates the default pair: data readable by one minor back.
    pub const fn emulating(emulation: MajorMinor) -> Versions {
        Versions::new(emulation, emulation.minus_minors(1))
    }

    /// Creates a pair of equal versions. Cluster features are decided with it, since all
    /// members share one log.
    pub const fn exactly(version: MajorMinor) -> Versions {
        Versions::new(version, version)
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.emulation == self.min_compat {
            return write!(f, "version {}", self.emulation);
        }
        write!(
            f,
            "version {} (data readable by {})",
            self.emulation, self.min_compat
        )
    }
}

/// The spec in force with its position in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Selected {
    /// The entry, or the synthetic pre-alpha one.
    pub spec: Spec,
    /// Its position; absent where no entry applies.
    pub entry: Option<usize>,
}

/// Returns the newest entry that both versions allow; before all of them, a synthetic one
/// that is pre-alpha and off.
///
/// `min_compat` can hide even a locked entry: an older, unlocked entry then applies, so
/// whether a feature is locked depends on both versions.
pub fn select(specs: &[Spec], versions: Versions) -> Selected {
    let found = specs.iter().enumerate().rev().find(|(_, spec)| {
        spec.version <= versions.emulation
            && spec
                .min_compat
                .is_none_or(|min_compat| versions.min_compat >= min_compat)
    });
    match found {
        Some((entry, spec)) => Selected {
            spec: *spec,
            entry: Some(entry),
        },
        None => Selected {
            spec: Spec::new("0.0", Stage::PreAlpha),
            entry: None,
        },
    }
}

/// Checks a history and completes it: an absent `min_compat` inherits the one before.
///
/// Before a first entry that has a `min_compat` and is on, an entry is inserted that is off
/// and has no `min_compat`: below that version the feature exists but is off.
pub fn complete(raw: &[RawSpec]) -> Result<Vec<Spec>, SpecError> {
    let mut specs: Vec<Spec> = Vec::with_capacity(raw.len() + 1);
    for (entry, raw) in raw.iter().enumerate() {
        let spec = read(entry, raw)?;
        let Some(previous) = specs.last().copied() else {
            check_first(entry, &spec)?;
            if spec.min_compat.is_some() {
                specs.push(Spec {
                    default: false,
                    min_compat: None,
                    ..spec
                });
            }
            specs.push(spec);
            continue;
        };
        let completed = Spec {
            min_compat: spec.min_compat.or(previous.min_compat),
            ..spec
        };
        check_successor(entry, &previous, &spec, &completed)?;
        specs.push(completed);
    }
    if specs.is_empty() {
        return Err(SpecError::Empty);
    }
    Ok(specs)
}

fn read(entry: usize, raw: &RawSpec) -> Result<Spec, SpecError> {
    let text = raw
        .version
        .as_deref()
        .filter(|text| !text.trim().is_empty())
        .ok_or(SpecError::NoVersion { entry })?;
    let version = two_components(text).ok_or_else(|| SpecError::PatchVersion {
        entry,
        version: crate::error::quoted(text),
    })?;
    let min_compat = match raw.min_compat.as_deref() {
        None => None,
        Some(text) => Some(
            two_components(text).ok_or_else(|| SpecError::MinCompatPatch {
                entry,
                version: crate::error::quoted(text),
            })?,
        ),
    };
    if let Some(min_compat) = min_compat.filter(|min_compat| *min_compat > version) {
        return Err(SpecError::MinCompatHigh {
            entry,
            min_compat,
            version,
        });
    }
    match raw.stage {
        Stage::PreAlpha => return Err(SpecError::PreAlphaDeclared { entry }),
        Stage::Removed if raw.default => return Err(SpecError::RemovedOn { entry }),
        _ => {}
    }
    Ok(Spec {
        version,
        stage: raw.stage,
        default: raw.default,
        locked: raw.locked || raw.stage == Stage::Removed,
        min_compat,
    })
}

/// Parses a version of exactly two numbers.
fn two_components(text: &str) -> Option<MajorMinor> {
    let version = Version::parse(text).ok()?;
    (version.components().len() == 2).then(|| version.major_minor())
}

fn check_first(entry: usize, spec: &Spec) -> Result<(), SpecError> {
    if spec.min_compat.is_some() && !spec.default {
        // The feature is off with and without this entry, so it has no effect.
        return Err(SpecError::MinCompatOrphan { entry });
    }
    if spec.stage == Stage::Removed {
        return Err(SpecError::RemovedFirst { entry });
    }
    if spec.stage == Stage::Deprecated && spec.version.minor() != 0 {
        return Err(SpecError::DeprecatedFirst { entry });
    }
    Ok(())
}

fn check_successor(
    entry: usize,
    previous: &Spec,
    given: &Spec,
    completed: &Spec,
) -> Result<(), SpecError> {
    if given.version < previous.version {
        return Err(SpecError::Decreasing { entry });
    }
    if let (Some(min_compat), Some(before)) = (given.min_compat, previous.min_compat)
        && min_compat < before
    {
        return Err(SpecError::MinCompatDecreasing { entry });
    }
    if given.min_compat.is_some()
        && given.version != previous.version
        // The inherited value may be written out, as exported lists do.
        && given.min_compat != previous.min_compat
    {
        return Err(SpecError::MinCompatOrphan { entry });
    }
    if given.version == previous.version {
        if completed.min_compat == previous.min_compat {
            return Err(SpecError::Duplicate { entry });
        }
        if given.stage != previous.stage {
            return Err(SpecError::StageSameVersion { entry });
        }
        if given.locked != previous.locked {
            return Err(SpecError::LockSameVersion { entry });
        }
    }
    if previous.stage == Stage::Removed
        || (previous.stage == Stage::Deprecated
            && !matches!(given.stage, Stage::Deprecated | Stage::Removed))
    {
        return Err(SpecError::Resurrect { entry });
    }
    let regresses = match given.stage {
        Stage::Alpha => matches!(previous.stage, Stage::Beta | Stage::Ga),
        Stage::Beta => previous.stage == Stage::Ga,
        _ => false,
    };
    if regresses {
        return Err(SpecError::Regress { entry });
    }
    if previous.locked && !given.locked {
        return Err(SpecError::Unlock { entry });
    }
    if (given.stage, given.default, given.locked)
        == (previous.stage, previous.default, previous.locked)
    {
        return Err(SpecError::NoChange { entry });
    }
    Ok(())
}

/// Why a history is not legal. `entry` counts from 0, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum SpecError {
    /// The feature has no spec.
    #[error("it has no spec: give it at least one, from the version that introduces it")]
    Empty,
    /// The entry has no version.
    #[error("entry {entry} has no version: give the first major.minor it applies to")]
    NoVersion { entry: usize },
    /// The version is not exactly `major.minor`.
    #[error("entry {entry} is at {version}: specs are keyed by exactly major.minor")]
    PatchVersion { entry: usize, version: String },
    /// No entry at the same version applies below the minimum compatibility version.
    #[error(
        "entry {entry} has a minimum compatibility version but no entry before it at the same version: add one for lower minimum compatibility versions"
    )]
    MinCompatOrphan { entry: usize },
    /// The minimum compatibility version is not exactly `major.minor`.
    #[error(
        "entry {entry} has the minimum compatibility version {version}: it is exactly major.minor"
    )]
    MinCompatPatch { entry: usize, version: String },
    /// The minimum compatibility version is above the entry's own version.
    #[error(
        "entry {entry} has a minimum compatibility version {min_compat} above its own version {version}: lower it"
    )]
    MinCompatHigh {
        entry: usize,
        min_compat: MajorMinor,
        version: MajorMinor,
    },
    /// The minimum compatibility version is below that of the entry before.
    #[error("entry {entry} lowers the minimum compatibility version: it can only rise")]
    MinCompatDecreasing { entry: usize },
    /// The history begins as deprecated.
    #[error(
        "entry {entry} begins the history as deprecated: add an x.0 entry that shows what it was before"
    )]
    DeprecatedFirst { entry: usize },
    /// The history begins as removed.
    #[error("entry {entry} begins the history as removed: there is nothing to remove")]
    RemovedFirst { entry: usize },
    /// The entry is removed, but on.
    #[error(
        "entry {entry} is removed and on: a removed feature reads as off; if its code stays on for good, keep it deprecated and locked"
    )]
    RemovedOn { entry: usize },
    /// The entry declares pre-alpha.
    #[error("entry {entry} declares pre-alpha: that is what a feature is before its first entry")]
    PreAlphaDeclared { entry: usize },
    /// The entry is at a lower version than the one before.
    #[error("entry {entry} is at a lower version than the one before: order them oldest first")]
    Decreasing { entry: usize },
    /// The entry repeats both versions of the one before.
    #[error(
        "entry {entry} repeats the version and minimum compatibility version of the one before"
    )]
    Duplicate { entry: usize },
    /// Two entries at one version have different stages.
    #[error("entry {entry} has another stage than the one before at the same version")]
    StageSameVersion { entry: usize },
    /// Two entries at one version differ in being locked.
    #[error("entry {entry} has another lock than the one before at the same version")]
    LockSameVersion { entry: usize },
    /// The entry changes neither stage, default nor lock.
    #[error("entry {entry} changes neither stage nor default nor lock: remove it")]
    NoChange { entry: usize },
    /// The entry unlocks a locked feature.
    #[error("entry {entry} unlocks the feature: a lock stays; use a new feature name")]
    Unlock { entry: usize },
    /// The entry follows a deprecated or removed one with an earlier stage.
    #[error(
        "entry {entry} brings the feature back after deprecation or removal: use a new feature name"
    )]
    Resurrect { entry: usize },
    /// The entry has an earlier stage than the one before.
    #[error("entry {entry} goes back to an earlier stage: use a new feature name")]
    Regress { entry: usize },
}

impl Classified for SpecError {
    fn id(&self) -> &'static str {
        match self {
            SpecError::Empty => "E-NOSPEC",
            SpecError::NoVersion { .. } => "E-NOVERSION",
            SpecError::PatchVersion { .. } => "E-PATCHVERSION",
            SpecError::MinCompatOrphan { .. } => "E-MINCOMPAT-ORPHAN",
            SpecError::MinCompatPatch { .. } => "E-MINCOMPAT-PATCH",
            SpecError::MinCompatHigh { .. } => "E-MINCOMPAT-HIGH",
            SpecError::MinCompatDecreasing { .. } => "E-MINCOMPAT-DECREASING",
            SpecError::DeprecatedFirst { .. } => "E-DEPRECATED-FIRST",
            SpecError::RemovedFirst { .. } => "E-REMOVED-FIRST",
            SpecError::RemovedOn { .. } => "E-REMOVED-ON",
            SpecError::PreAlphaDeclared { .. } => "E-PREALPHA-DECLARED",
            SpecError::Decreasing { .. } => "E-DECREASING",
            SpecError::Duplicate { .. } => "E-DUP",
            SpecError::StageSameVersion { .. } => "E-STAGE-SAMEVER",
            SpecError::LockSameVersion { .. } => "E-LOCK-SAMEVER",
            SpecError::NoChange { .. } => "E-NOCHANGE",
            SpecError::Unlock { .. } => "E-UNLOCK",
            SpecError::Resurrect { .. } => "E-RESURRECT",
            SpecError::Regress { .. } => "E-REGRESS",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            SpecError::Duplicate { .. } => ErrorClass::Duplicate,
            _ => ErrorClass::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(specs: &[Spec]) -> Result<Vec<Spec>, SpecError> {
        let raw: Vec<RawSpec> = specs.iter().copied().map(RawSpec::from).collect();
        complete(&raw)
    }

    fn id(specs: &[Spec]) -> &'static str {
        completed(specs).map_or_else(|error| error.id(), |_| "ok")
    }

    fn raw(version: Option<&str>, min_compat: Option<&str>) -> RawSpec {
        RawSpec {
            version: version.map(str::to_owned),
            stage: Stage::Alpha,
            default: true,
            locked: false,
            min_compat: min_compat.map(str::to_owned),
        }
    }

    fn at(emulation: &str, min_compat: &str) -> Versions {
        Versions::new(
            MajorMinor::literal(emulation),
            MajorMinor::literal(min_compat),
        )
    }

    /// Proves: G7, G16, S2-A7
    #[test]
    fn illegal_history_is_refused_with_an_error_of_its_own() {
        for (specs, expected) in [
            (vec![], "E-NOSPEC"),
            (
                vec![Spec::alpha("3.6"), Spec::beta("3.7").on().min_compat("3.7")],
                "E-MINCOMPAT-ORPHAN",
            ),
            (
                vec![Spec::alpha("3.6").min_compat("3.6")],
                "E-MINCOMPAT-ORPHAN",
            ),
            (
                vec![Spec::alpha("3.6").on().min_compat("3.7")],
                "E-MINCOMPAT-HIGH",
            ),
            (vec![Spec::deprecated("3.6")], "E-DEPRECATED-FIRST"),
            (vec![Spec::removed("3.6")], "E-REMOVED-FIRST"),
            (
                vec![Spec::alpha("3.6"), Spec::removed("3.7").on()],
                "E-REMOVED-ON",
            ),
            (
                vec![Spec::unversioned(Stage::PreAlpha, false)],
                "E-PREALPHA-DECLARED",
            ),
            (vec![Spec::alpha("3.7"), Spec::beta("3.6")], "E-DECREASING"),
            (
                vec![
                    Spec::beta("3.6"),
                    Spec::beta("3.6").on().min_compat("3.6"),
                    Spec::ga("3.7").on().min_compat("3.5"),
                ],
                "E-MINCOMPAT-DECREASING",
            ),
            (vec![Spec::alpha("3.6"), Spec::alpha("3.6").on()], "E-DUP"),
            (
                vec![Spec::alpha("3.6"), Spec::beta("3.6").min_compat("3.6")],
                "E-STAGE-SAMEVER",
            ),
            (
                vec![
                    Spec::beta("3.6"),
                    Spec::beta("3.6").locked().min_compat("3.6"),
                ],
                "E-LOCK-SAMEVER",
            ),
            (vec![Spec::alpha("3.6"), Spec::alpha("3.7")], "E-NOCHANGE"),
            (
                vec![Spec::beta("3.6"), Spec::beta("3.6").min_compat("3.6")],
                "E-NOCHANGE",
            ),
            (
                vec![Spec::ga("3.6").on().locked(), Spec::deprecated("3.7").on()],
                "E-UNLOCK",
            ),
            (
                vec![
                    Spec::beta("3.5").on(),
                    Spec::deprecated("3.6"),
                    Spec::ga("3.7"),
                ],
                "E-RESURRECT",
            ),
            (
                vec![
                    Spec::beta("3.5"),
                    Spec::removed("3.6"),
                    Spec::deprecated("3.7").locked(),
                ],
                "E-RESURRECT",
            ),
            (vec![Spec::beta("3.6"), Spec::alpha("3.7")], "E-REGRESS"),
            (vec![Spec::ga("3.6"), Spec::beta("3.7")], "E-REGRESS"),
            (vec![Spec::ga("3.6"), Spec::alpha("3.7")], "E-REGRESS"),
            // Legal ones.
            (vec![Spec::alpha("3.6"), Spec::ga("3.7")], "ok"),
            (vec![Spec::beta("3.6"), Spec::deprecated("3.7")], "ok"),
            (vec![Spec::alpha("3.6"), Spec::deprecated("3.7")], "ok"),
            (
                vec![
                    Spec::beta("3.6"),
                    Spec::deprecated("3.7"),
                    Spec::deprecated("3.8").locked(),
                    Spec::removed("3.9"),
                ],
                "ok",
            ),
            (vec![Spec::deprecated("3.0")], "ok"),
            (vec![Spec::ga("3.6")], "ok"),
        ] {
            assert_eq!(id(&specs), expected, "{specs:?}");
        }
        for (specs, expected) in [
            (raw(None, None), "E-NOVERSION"),
            (raw(Some(" "), None), "E-NOVERSION"),
            (raw(Some("3.7.1"), None), "E-PATCHVERSION"),
            (raw(Some("three"), None), "E-PATCHVERSION"),
            (raw(Some("3.7"), Some("3.7.1")), "E-MINCOMPAT-PATCH"),
        ] {
            assert_eq!(
                complete(std::slice::from_ref(&specs)).unwrap_err().id(),
                expected,
                "{specs:?}"
            );
        }
    }

    /// Proves: G17
    #[test]
    fn duplicate_entries_are_detected_after_min_compat_is_inherited() {
        let specs = completed(&[
            Spec::beta("3.6"),
            Spec::beta("3.6").on().min_compat("3.6"),
            Spec::ga("3.8").on(),
        ])
        .unwrap();
        assert_eq!(specs[2].min_compat, Some(MajorMinor::new(3, 6)));
        // Writing out the inherited version is legal, so an exported list can be read back.
        assert_eq!(completed(&specs).unwrap(), specs);
        assert_eq!(
            id(&[
                Spec::beta("3.6"),
                Spec::beta("3.6").on().min_compat("3.6"),
                Spec::beta("3.6"),
            ]),
            "E-DUP"
        );
    }

    /// Proves: S2-A7
    #[test]
    fn first_entry_with_min_compat_is_off_below_it() {
        let specs = completed(&[Spec::beta("3.7").on().min_compat("3.7")]).unwrap();
        assert_eq!(specs.len(), 2);
        assert!(!select(&specs, at("3.7", "3.6")).spec.default);
        assert_eq!(select(&specs, at("3.7", "3.6")).spec.stage, Stage::Beta);
        assert!(select(&specs, at("3.7", "3.7")).spec.default);
    }

    /// Proves: G11, G12, G13, G14, S2-11
    #[test]
    fn select_returns_the_newest_entry_that_both_versions_allow() {
        let specs = completed(&[
            Spec::alpha("1.26"),
            Spec::beta("1.28"),
            Spec::beta("1.28").on().min_compat("1.28"),
            Spec::ga("1.30").on().locked(),
        ])
        .unwrap();
        let entry = |emulation, min_compat| select(&specs, at(emulation, min_compat)).entry;
        assert_eq!(entry("1.25", "1.25"), None);
        assert_eq!(entry("1.27", "1.26"), Some(0));
        assert_eq!(entry("1.28", "1.27"), Some(1));
        assert_eq!(entry("1.28", "1.28"), Some(2));
        assert_eq!(entry("1.30", "1.28"), Some(3));
        // The locked entry inherits min_compat 1.28: below it the feature is beta, off, unlocked.
        assert_eq!(entry("1.30", "1.27"), Some(1));
        assert!(!select(&specs, at("1.30", "1.27")).spec.locked);

        let before = select(&specs, at("1.25", "1.24")).spec;
        assert_eq!(before.stage, Stage::PreAlpha);
        assert_eq!((before.default, before.locked), (false, false));
        assert_eq!(before.version, MajorMinor::ZERO);

        let always = [Spec::unversioned(Stage::Beta, true)];
        assert_eq!(select(&always, at("0.1", "0.0")).entry, Some(0));
        assert_eq!(
            select(&specs, Versions::emulating(MajorMinor::new(1, 28))).entry,
            Some(1)
        );
    }

    /// Proves: G7
    #[test]
    fn stages_have_the_wire_texts_of_kubernetes() {
        let texts: Vec<&str> = [
            Stage::PreAlpha,
            Stage::Alpha,
            Stage::Beta,
            Stage::Ga,
            Stage::Deprecated,
            Stage::Removed,
        ]
        .into_iter()
        .map(Stage::wire_text)
        .collect();
        assert_eq!(
            texts,
            ["PRE-ALPHA", "ALPHA", "BETA", "", "DEPRECATED", "REMOVED"]
        );
    }
}
