//! In which releases a type was introduced, deprecated and removed, and what replaces it.

use portunus_gates::MajorMinor;
use serde::Serialize;

use crate::names::{GroupVersionKind, Stability};

/// How many minors after its introduction a type that is not GA is deprecated, and how many
/// minors after that it is removed, where the declaration states nothing else.
pub const POLICY_MINORS: u64 = 3;

/// The declared lifecycle of a type in one API version.
///
/// ```
/// use portunus_apis::{Lifecycle, Stability};
///
/// let beta = Lifecycle::since("1.30").at(Stability::Beta);
/// assert_eq!(beta.deprecated.unwrap().to_string(), "1.33");
/// assert_eq!(beta.removed.unwrap().to_string(), "1.36");
///
/// let ga = Lifecycle::since("1.30").at(Stability::Ga);
/// assert_eq!((ga.deprecated, ga.removed), (None, None));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    introduced: MajorMinor,
    deprecated: Milestone,
    removed: Milestone,
    replacement: Option<GroupVersionKind>,
}

/// When a step of a lifecycle happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Milestone {
    /// Not stated: by policy.
    Policy,
    /// Stated: never.
    Never,
    /// Stated: at this release.
    At(MajorMinor),
}

impl Milestone {
    /// 0.0 states that the step does not happen.
    fn stated(release: Option<MajorMinor>) -> Milestone {
        match release {
            None | Some(MajorMinor::ZERO) => Milestone::Never,
            Some(release) => Milestone::At(release),
        }
    }

    fn or_policy(self, policy: Option<MajorMinor>) -> Option<MajorMinor> {
        match self {
            Milestone::Policy => policy,
            Milestone::Never => None,
            Milestone::At(release) => Some(release),
        }
    }
}

impl Lifecycle {
    /// A type that has always been there, without deprecation and removal.
    pub const fn always() -> Lifecycle {
        Lifecycle {
            introduced: MajorMinor::ZERO,
            deprecated: Milestone::Never,
            removed: Milestone::Never,
            replacement: None,
        }
    }

    /// A type introduced in the release `major.minor`. Only for literals in declarations; see
    /// [`Lifecycle::introduced_in`].
    pub const fn since(release: &str) -> Lifecycle {
        Lifecycle::introduced_in(MajorMinor::literal(release))
    }

    /// A type introduced in this release. Deprecation and removal follow the policy of its
    /// stability until they are stated.
    pub const fn introduced_in(release: MajorMinor) -> Lifecycle {
        Lifecycle {
            introduced: release,
            deprecated: Milestone::Policy,
            removed: Milestone::Policy,
            replacement: None,
        }
    }

    /// States the release of the deprecation. Only for literals in declarations.
    #[must_use]
    pub fn deprecated(self, release: &str) -> Lifecycle {
        self.deprecated_in(Some(MajorMinor::literal(release)))
    }

    /// States the release of the deprecation; none or 0.0 means never.
    #[must_use]
    pub fn deprecated_in(mut self, release: Option<MajorMinor>) -> Lifecycle {
        self.deprecated = Milestone::stated(release);
        self
    }

    /// States the release of the removal. Only for literals in declarations.
    #[must_use]
    pub fn removed(self, release: &str) -> Lifecycle {
        self.removed_in(Some(MajorMinor::literal(release)))
    }

    /// States the release of the removal; none or 0.0 means never.
    #[must_use]
    pub fn removed_in(mut self, release: Option<MajorMinor>) -> Lifecycle {
        self.removed = Milestone::stated(release);
        self
    }

    /// States that neither deprecation nor removal is planned.
    #[must_use]
    pub fn kept(self) -> Lifecycle {
        self.deprecated_in(None).removed_in(None)
    }

    /// States the kind that replaces this one.
    #[must_use]
    pub fn replaced_by(mut self, replacement: GroupVersionKind) -> Lifecycle {
        self.replacement = Some(replacement);
        self
    }

    /// Returns the lifecycle with the policy of a stability filled in: a type that is not GA
    /// is deprecated [`POLICY_MINORS`] after its introduction and removed [`POLICY_MINORS`]
    /// after that. A GA type, and one without a release of introduction, has only the steps
    /// that are stated.
    pub fn at(&self, stability: Stability) -> Releases {
        let by_policy = |from: Option<MajorMinor>| {
            let has_policy = stability != Stability::Ga && self.introduced != MajorMinor::ZERO;
            from.filter(|_| has_policy)
                .map(|from| from.plus_minors(POLICY_MINORS))
        };
        let deprecated = self.deprecated.or_policy(by_policy(Some(self.introduced)));
        Releases {
            introduced: self.introduced,
            deprecated,
            removed: self.removed.or_policy(by_policy(deprecated)),
            replacement: self.replacement.clone(),
        }
    }
}

/// A lifecycle with the policy filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Releases {
    /// The first release that has the type; 0.0 for every release.
    pub introduced: MajorMinor,
    /// The first release in which it is deprecated.
    pub deprecated: Option<MajorMinor>,
    /// The first release without it.
    pub removed: Option<MajorMinor>,
    /// The kind to use instead.
    pub replacement: Option<GroupVersionKind>,
}

impl Releases {
    /// Returns whether a release has the type.
    pub fn exists_in(&self, release: MajorMinor) -> bool {
        self.introduced <= release && !self.is_removed_in(release)
    }

    /// Returns whether the type was removed in this release or before.
    pub fn is_removed_in(&self, release: MajorMinor) -> bool {
        self.removed.is_some_and(|removed| removed <= release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BETA: Lifecycle = Lifecycle::since("1.30");

    fn steps(lifecycle: &Lifecycle, stability: Stability) -> (Option<String>, Option<String>) {
        let releases = lifecycle.at(stability);
        let text = |release: Option<MajorMinor>| release.map(|release| release.to_string());
        (text(releases.deprecated), text(releases.removed))
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// Proves: G91, G92
    #[test]
    fn policy_fills_only_what_is_not_stated_and_only_before_ga() {
        for (lifecycle, stability, expected) in [
            (BETA, Stability::Beta, (some("1.33"), some("1.36"))),
            (BETA, Stability::Alpha, (some("1.33"), some("1.36"))),
            (BETA, Stability::Unstated, (some("1.33"), some("1.36"))),
            (BETA, Stability::Ga, (None, None)),
            (
                BETA.deprecated("1.31"),
                Stability::Beta,
                (some("1.31"), some("1.34")),
            ),
            (
                BETA.removed("1.32"),
                Stability::Beta,
                (some("1.33"), some("1.32")),
            ),
            (BETA.kept(), Stability::Beta, (None, None)),
            (BETA.deprecated_in(None), Stability::Beta, (None, None)),
            (
                BETA.deprecated("0.0").removed("1.40"),
                Stability::Beta,
                (None, some("1.40")),
            ),
            (BETA.deprecated("1.40"), Stability::Ga, (some("1.40"), None)),
            (Lifecycle::always(), Stability::Beta, (None, None)),
        ] {
            assert_eq!(steps(&lifecycle, stability), expected, "{lifecycle:?}");
        }
        assert!(
            Lifecycle::always()
                .at(Stability::Ga)
                .exists_in(MajorMinor::ZERO)
        );
    }
}
