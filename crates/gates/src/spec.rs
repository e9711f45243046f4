//! One entry of a feature's history, which entry applies, and what a legal history is.
//!
//! A feature is a list of [`Spec`]s, oldest first. At a given pair of versions
//! [`select`] picks one; everything else in this crate asks that one function.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::{Classified, ErrorClass};
use crate::stage::Stage;
use crate::version::{MajorMinor, Version};

/// What a feature is from one version on.
///
/// Built in constants with one call per fact, off and unlocked unless said otherwise:
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
    /// The first version this entry holds for.
    pub version: MajorMinor,
    /// The stage from then on.
    pub stage: Stage,
    /// The value where nobody says anything.
    pub default: bool,
    /// Whether the default cannot be changed.
    pub locked: bool,
    /// The entry holds only where the data must be readable by this version at the
    /// oldest. Absent: always.
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

    /// Alpha from `version` on.
    pub const fn alpha(version: &str) -> Spec {
        Spec::new(version, Stage::Alpha)
    }

    /// Beta from `version` on.
    pub const fn beta(version: &str) -> Spec {
        Spec::new(version, Stage::Beta)
    }

    /// Generally available from `version` on.
    pub const fn ga(version: &str) -> Spec {
        Spec::new(version, Stage::Ga)
    }

    /// Deprecated from `version` on.
    pub const fn deprecated(version: &str) -> Spec {
        Spec::new(version, Stage::Deprecated)
    }

    /// Gone from `version` on. Reads as off; setting it is refused with a hint.
    pub const fn removed(version: &str) -> Spec {
        Spec::new(version, Stage::Removed).locked()
    }

    /// Valid at every version, for features without a history.
    pub const fn unversioned(stage: Stage, default: bool) -> Spec {
        let mut spec = Spec::new("0.0", stage);
        spec.default = default;
        spec
    }

    /// On by default.
    #[must_use]
    pub const fn on(mut self) -> Spec {
        self.default = true;
        self
    }

    /// The default cannot be changed.
    #[must_use]
    pub const fn locked(mut self) -> Spec {
        self.locked = true;
        self
    }

    /// Holds only where the minimum compatibility version is at least this.
    #[must_use]
    pub const fn min_compat(mut self, version: &str) -> Spec {
        self.min_compat = Some(MajorMinor::literal(version));
        self
    }
}

/// A spec as it comes from outside: nothing about it is known to be legal.
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
    /// Behave as this version.
    pub emulation: MajorMinor,
    /// What is written must be readable by this version.
    pub min_compat: MajorMinor,
}

impl Versions {
    /// Both given.
    pub const fn new(emulation: MajorMinor, min_compat: MajorMinor) -> Versions {
        Versions {
            emulation,
            min_compat,
        }
    }

    /// The usual pair: readable one minor back.
    pub const fn emulating(emulation: MajorMinor) -> Versions {
        Versions::new(emulation, emulation.minus_minors(1))
    }

    /// No skew: emulation and minimum compatibility are the same version. A cluster
    /// decides this way, since all its members share one log.
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

/// The spec in force, and where in the list it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Selected {
    /// The entry, or the synthetic pre-alpha one.
    pub spec: Spec,
    /// Its position; absent where no entry applies.
    pub entry: Option<usize>,
}

/// The newest entry that both versions allow; before all of them, a synthetic one
/// that is pre-alpha and off.
///
/// Because of `min_compat` even a locked entry may be invisible: the feature then
/// behaves as its older, unlocked self. Locked or not depends on both versions.
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
/// A first entry with a `min_compat` that turns the feature on gets a twin before it,
/// off, without `min_compat`: below that version the feature exists but is off.
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

/// `3.7` and nothing more.
fn two_components(text: &str) -> Option<MajorMinor> {
    let version = Version::parse(text).ok()?;
    (version.components().len() == 2).then(|| version.major_minor())
}

fn check_first(entry: usize, spec: &Spec) -> Result<(), SpecError> {
    if spec.min_compat.is_some() && !spec.default {
        // Nothing to fall back to and nothing to switch on: the entry says nothing.
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
        // What it would inherit anyway may be spelled out: exported lists do.
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
    /// A feature without any spec.
    #[error("it has no spec: give it at least one, from the version that introduces it")]
    Empty,
    /// No version.
    #[error("entry {entry} has no version: say from which major.minor on it holds")]
    NoVersion { entry: usize },
    /// A version with a patch part, or no version at all.
    #[error("entry {entry} is at {version}: specs are keyed by exactly major.minor")]
    PatchVersion { entry: usize, version: String },
    /// Nothing at this version to fall back to.
    #[error(
        "entry {entry} has a minimum compatibility version but no entry before it at the same version: add one that says what holds below it"
    )]
    MinCompatOrphan { entry: usize },
    /// A minimum compatibility version with a patch part.
    #[error(
        "entry {entry} has the minimum compatibility version {version}: it is exactly major.minor"
    )]
    MinCompatPatch { entry: usize, version: String },
    /// Above the entry's own version.
    #[error(
        "entry {entry} has a minimum compatibility version {min_compat} above its own version {version}: lower it"
    )]
    MinCompatHigh {
        entry: usize,
        min_compat: MajorMinor,
        version: MajorMinor,
    },
    /// Below the one before.
    #[error("entry {entry} lowers the minimum compatibility version: it can only rise")]
    MinCompatDecreasing { entry: usize },
    /// Born deprecated.
    #[error(
        "entry {entry} begins the history as deprecated: add an x.0 entry that shows what it was before"
    )]
    DeprecatedFirst { entry: usize },
    /// Begins as removed.
    #[error("entry {entry} begins the history as removed: there is nothing to remove")]
    RemovedFirst { entry: usize },
    /// Removed, but on.
    #[error(
        "entry {entry} is removed and on: a removed feature reads as off; if its code stays on for good, keep it deprecated and locked"
    )]
    RemovedOn { entry: usize },
    /// Pre-alpha cannot be declared.
    #[error("entry {entry} declares pre-alpha: that is what a feature is before its first entry")]
    PreAlphaDeclared { entry: usize },
    /// Versions fall.
    #[error("entry {entry} is at a lower version than the one before: order them oldest first")]
    Decreasing { entry: usize },
    /// Twice the same versions.
    #[error(
        "entry {entry} repeats the version and minimum compatibility version of the one before"
    )]
    Duplicate { entry: usize },
    /// Two stages at one version.
    #[error("entry {entry} has another stage than the one before at the same version")]
    StageSameVersion { entry: usize },
    /// Locked and unlocked at one version.
    #[error("entry {entry} has another lock than the one before at the same version")]
    LockSameVersion { entry: usize },
    /// Nothing new.
    #[error("entry {entry} changes neither stage nor default nor lock: remove it")]
    NoChange { entry: usize },
    /// A lock is for good.
    #[error("entry {entry} unlocks the feature: a lock stays; use a new feature name")]
    Unlock { entry: usize },
    /// Deprecated and removed are for good.
    #[error(
        "entry {entry} brings the feature back after deprecation or removal: use a new feature name"
    )]
    Resurrect { entry: usize },
    /// Less mature than before.
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
    fn every_illegal_history_has_its_own_error() {
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
    fn min_compat_is_inherited_and_duplicates_are_found_after_that() {
        let specs = completed(&[
            Spec::beta("3.6"),
            Spec::beta("3.6").on().min_compat("3.6"),
            Spec::ga("3.8").on(),
        ])
        .unwrap();
        assert_eq!(specs[2].min_compat, Some(MajorMinor::new(3, 6)));
        // Spelling out what is inherited is legal, so an exported list can be read back.
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
    fn a_lone_entry_with_min_compat_gets_an_off_twin() {
        let specs = completed(&[Spec::beta("3.7").on().min_compat("3.7")]).unwrap();
        assert_eq!(specs.len(), 2);
        assert!(!select(&specs, at("3.7", "3.6")).spec.default);
        assert_eq!(select(&specs, at("3.7", "3.6")).spec.stage, Stage::Beta);
        assert!(select(&specs, at("3.7", "3.7")).spec.default);
    }

    /// Proves: G11, G12, G13, G14, S2-11
    #[test]
    fn both_versions_select() {
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
        // The locked entry inherited 1.28: below it the feature is beta, off and unlocked.
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
    fn stages_have_the_texts_users_know() {
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
