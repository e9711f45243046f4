//! In which version the objects of a resource are stored.
//!
//! Kubernetes' rule looks at introductions alone: the most preferred version that is not
//! alpha and that the minimum compatibility version already has, else the most preferred one
//! that the emulated release has. The design of compatibility versions asks for more: every
//! release from the minimum compatibility version to one after the emulated release must be
//! able to read what is written. [`StorageVersion`] is Kubernetes' choice wherever it is
//! readable in that whole window, so both rules agree as long as no version is removed in it.

use portunus_gates::MajorMinor;
use serde::Serialize;

use crate::declare::{Declarations, Group};
use crate::lifecycle::Releases;
use crate::names::{GroupResource, VersionName};
use crate::options::Options;

/// The rule that chose a storage version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageRule {
    /// Fixed by hand in the options.
    Override,
    /// The most preferred version, not alpha, that the minimum compatibility version has.
    MinCompat,
    /// The most preferred version that the emulated release has.
    Emulation,
    /// The most preferred version of the binary: no release in the window has any.
    Binary,
    /// The most preferred version that the whole window can read, because Kubernetes' choice
    /// is removed in it.
    Window,
    /// The most preferred version that the emulated release still has, because Kubernetes'
    /// choice is removed there and no version is readable in the whole window.
    NotRemoved,
}

/// The storage version of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorageVersion {
    /// The version in which objects are written.
    pub version: VersionName,
    /// The rule that chose it.
    pub rule: StorageRule,
    /// The releases from the minimum compatibility version to one after the emulated release
    /// that cannot read it.
    pub unreadable_in: Vec<MajorMinor>,
}

/// A version of a resource with its lifecycle.
struct Candidate {
    version: VersionName,
    releases: Releases,
}

impl Candidate {
    fn is_alpha(&self) -> bool {
        self.version.contains_alpha()
    }
}

/// Chooses the storage version of a resource; none where no version declares it.
pub(crate) fn choose(
    declarations: &Declarations,
    options: &Options,
    resource: &GroupResource,
) -> Option<StorageVersion> {
    let candidates = candidates(declarations.group(&resource.group)?, &resource.resource);
    let window = Window::of(options);
    let (chosen, rule) = match options.storage_overrides.get(resource) {
        Some(version) => {
            let named = candidates.iter().find(|other| other.version == *version)?;
            (named, StorageRule::Override)
        }
        None => {
            let (kubernetes, rule) = kubernetes_choice(&candidates, &window)?;
            readable_choice(&candidates, &window, kubernetes, rule)
        }
    };
    Some(StorageVersion {
        version: chosen.version.clone(),
        rule,
        unreadable_in: window.unreadable_in(&chosen.releases),
    })
}

/// Returns the versions that declare a resource, the most preferred first.
fn candidates(group: &Group, plural: &str) -> Vec<Candidate> {
    let versions = group.versions.iter();
    versions
        .filter_map(|version| {
            let resource = version.resource(plural)?;
            Some(Candidate {
                version: version.name.clone(),
                releases: resource.lifecycle.at(version.name.stability()),
            })
        })
        .collect()
}

/// Returns Kubernetes' choice.
fn kubernetes_choice<'a>(
    candidates: &'a [Candidate],
    window: &Window,
) -> Option<(&'a Candidate, StorageRule)> {
    let is_since = |candidate: &&Candidate, release| {
        window.ignores_lifecycles() || candidate.releases.introduced <= release
    };
    let mut stable = candidates.iter().filter(|candidate| !candidate.is_alpha());
    if let Some(found) = stable.find(|candidate| is_since(candidate, window.min_compat)) {
        return Some((found, StorageRule::MinCompat));
    }
    let mut all = candidates.iter();
    if let Some(found) = all.find(|candidate| is_since(candidate, window.emulation)) {
        return Some((found, StorageRule::Emulation));
    }
    candidates.first().map(|first| (first, StorageRule::Binary))
}

/// Returns Kubernetes' choice unless a removal makes another one better.
fn readable_choice<'a>(
    candidates: &'a [Candidate],
    window: &Window,
    kubernetes: &'a Candidate,
    rule: StorageRule,
) -> (&'a Candidate, StorageRule) {
    if window.ignores_lifecycles() || window.can_read(&kubernetes.releases) {
        return (kubernetes, rule);
    }
    let stable = || candidates.iter().filter(|candidate| !candidate.is_alpha());
    if let Some(found) = stable().find(|candidate| window.can_read(&candidate.releases)) {
        return (found, StorageRule::Window);
    }
    if !kubernetes.releases.is_removed_in(window.emulation) {
        return (kubernetes, rule);
    }
    let is_there = |candidate: &&Candidate| candidate.releases.exists_in(window.emulation);
    let found = stable()
        .find(is_there)
        .or_else(|| candidates.iter().find(is_there));
    found.map_or((kubernetes, rule), |found| (found, StorageRule::NotRemoved))
}

/// The releases that must be able to read what is written.
struct Window {
    min_compat: MajorMinor,
    emulation: MajorMinor,
}

impl Window {
    fn of(options: &Options) -> Window {
        Window {
            min_compat: options.versions.min_compat(),
            emulation: options.versions.emulation(),
        }
    }

    /// A minimum compatibility version of 0.0 stands for tests that use every version.
    fn ignores_lifecycles(&self) -> bool {
        self.min_compat == MajorMinor::ZERO
    }

    /// The last release of the window: a rolling upgrade to it may have begun.
    fn last(&self) -> MajorMinor {
        self.emulation.plus_minors(1)
    }

    fn can_read(&self, releases: &Releases) -> bool {
        releases.introduced <= self.min_compat && !releases.is_removed_in(self.last())
    }

    /// Returns the releases of the window that lack the type. The releases between are
    /// counted in minors of the emulated major.
    fn unreadable_in(&self, releases: &Releases) -> Vec<MajorMinor> {
        if self.ignores_lifecycles() {
            return Vec::new();
        }
        let last = self.last();
        let first = self.min_compat.max(MajorMinor::new(last.major(), 0));
        let between = last.minor().saturating_sub(first.minor());
        let minors = (0..=between.min(WINDOW_MINORS_MAX)).map(|by| last.minus_minors(by));
        let mut unreadable: Vec<MajorMinor> = minors
            .chain([self.min_compat])
            .filter(|release| !releases.exists_in(*release))
            .collect();
        unreadable.sort();
        unreadable.dedup();
        unreadable
    }
}

/// How many releases before the last one of a window are looked at; far more than a binary
/// can emulate.
const WINDOW_MINORS_MAX: u64 = 100;
