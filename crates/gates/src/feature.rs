//! Declaring a feature beside the code it guards, and collecting declarations into a
//! registry whose handles are checked by the compiler.
//!
//! [`feature!`](crate::feature!) makes a unit type: the handle. [`registry!`](crate::registry!)
//! lists handles and gives each its position, so that a check is an array access: no
//! lock, no hash, no allocation. A handle of one registry does not compile against the
//! gates of another, so a server feature cannot be looked up as a cluster feature.

use serde::{Deserialize, Serialize};

use crate::effective::EffectiveVersion;
use crate::spec::Spec;
use crate::version::MajorMinor;

/// The level at which a feature's value is decided. It never changes: a feature declared
/// at the wrong level is replaced by one with a new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Decided by each process from its own flags, fixed at start.
    Server,
    /// Decided for all members through the replicated log.
    Cluster,
    /// Decided by one of several components in a process.
    Component,
}

impl Level {
    /// Returns the name for messages.
    pub const fn text(self) -> &'static str {
        match self {
            Level::Server => "server",
            Level::Cluster => "cluster",
            Level::Component => "component",
        }
    }

    /// Returns the flag that sets features of this level.
    pub const fn flag(self) -> &'static str {
        match self {
            Level::Cluster => "--cluster-feature-gates",
            Level::Server | Level::Component => "--feature-gates",
        }
    }
}

/// What a feature changes; where it changes several, the one that lasts longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Touches {
    /// Only the behaviour of the process.
    Nothing,
    /// Structures in memory that a restart rebuilds.
    Memory,
    /// Messages to clients or peers.
    Wire,
    /// Entries of the replicated log.
    Log,
    /// Records in the store.
    Backend,
}

/// Whether a feature can be turned off again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reversibility {
    /// It can be turned off at any time.
    Free,
    /// It can be turned off until data written with it exists.
    UntilUsed,
    /// It cannot be turned off without losing data or behaviour.
    Never,
}

/// The declaration of a feature. Registry, documentation, help text, metrics and status
/// all come from it.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The name users write.
    pub name: &'static str,
    /// The level that decides its value.
    pub level: Level,
    /// What it does: the doc comment of the declaration.
    pub doc: &'static str,
    /// The team or module that maintains it.
    pub owner: &'static str,
    /// What it changes.
    pub touches: Touches,
    /// Whether it can be turned off again.
    pub reversible: Reversibility,
    /// Its history, oldest first.
    pub specs: &'static [Spec],
    /// The features that must be on for it to be on.
    pub depends_on: &'static [&'static str],
    /// The reason why the gate is known but has no effect in this program, if so.
    pub inert: Option<&'static str>,
    /// The first version that can read what a member writes with the feature. A member writes
    /// it only if its minimum compatibility version is this one or a later one. Absent where
    /// every version reads it.
    pub readable_since: Option<MajorMinor>,
    /// The records of its own that the feature writes to the store: the name of the bucket and the
    /// key of each. They are removed with the versions that have the feature.
    pub stores: &'static [(&'static str, &'static [u8])],
}

impl Declaration {
    /// Returns whether a member with this version writes with the feature while it is on.
    pub fn is_written_by(&self, version: &EffectiveVersion) -> bool {
        self.readable_since
            .is_none_or(|since| version.may_write(since))
    }

    /// Returns the first version that has the feature: that of its first spec.
    pub const fn since(&self) -> MajorMinor {
        self.specs[0].version
    }
}

/// A handle made by [`feature!`](crate::feature!).
pub trait Feature: Copy + 'static {
    /// The feature's declaration.
    const DECLARATION: Declaration;
}

/// A list of features made by [`registry!`](crate::registry!).
pub trait FeatureSet: Copy + 'static {
    /// The level of all features in the set.
    const LEVEL: Level;
    /// The declarations; a handle's position is its index here.
    const DECLARATIONS: &'static [Declaration];
}

/// Marks a feature as part of a registry and holds its position there.
pub trait MemberOf<Set: FeatureSet>: Feature {
    /// The position in [`FeatureSet::DECLARATIONS`].
    const INDEX: usize;
}

/// Declares a feature. The doc comment becomes its documentation everywhere.
///
/// ```
/// use portunus_gates::feature;
///
/// feature! {
///     /// Answers renewals from memory when the lease is known.
///     pub FastRenew {
///         level: Server,
///         owner: "lease",
///         touches: Memory,
///         reversible: Free,
///         specs: [Spec::alpha("3.6"), Spec::beta("3.7").on()],
///     }
/// }
/// ```
///
/// Five optional lines: `name: "name",` at the start for a name that is no name of a type,
/// `inert: "reason",` after `reversible` for a gate that is known
/// but has no effect, then `readable_since: FirstSpec,` for one that writes what only versions
/// with the feature can read (or `readable_since: "3.8",` where other versions can), then
/// `stores: [("cluster", b"key")],` for the records that it writes to the store, and
/// `depends_on: [Other],` at the end, with other handles.
#[macro_export]
macro_rules! feature {
    (
        $(#[doc = $doc:literal])+
        $visibility:vis $name:ident {
            $(name: $written:literal,)?
            level: $level:ident,
            owner: $owner:literal,
            touches: $touches:ident,
            reversible: $reversible:ident,
            $(inert: $inert:literal,)?
            $(readable_since: $readable_since:tt,)?
            $(stores: [$(($bucket:literal, $key:literal)),+ $(,)?],)?
            specs: [$($spec:expr),+ $(,)?],
            $(depends_on: [$($dependency:ty),+ $(,)?],)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy)]
        $visibility struct $name;

        impl $crate::Feature for $name {
            const DECLARATION: $crate::Declaration = {
                #[allow(unused_mut, unused_assignments)]
                let mut inert: ::core::option::Option<&'static str> = ::core::option::Option::None;
                $(inert = ::core::option::Option::Some($inert);)?
                #[allow(unused_mut, unused_assignments)]
                let mut readable_since: ::core::option::Option<$crate::MajorMinor> =
                    ::core::option::Option::None;
                const SPECS: &[$crate::Spec] = {
                    #[allow(unused_imports)]
                    use $crate::Spec;
                    &[$($spec),+]
                };
                $(readable_since = ::core::option::Option::Some(
                    $crate::readable_since!($readable_since, SPECS),
                );)?
                #[allow(unused_mut, unused_assignments)]
                let mut name: &'static str = ::core::stringify!($name);
                $(name = $written;)?
                $crate::Declaration {
                    name,
                    level: $crate::Level::$level,
                    doc: ::core::concat!($($doc, "\n"),+),
                    owner: $owner,
                    touches: $crate::Touches::$touches,
                    reversible: $crate::Reversibility::$reversible,
                    specs: SPECS,
                    depends_on: &[$($(<$dependency as $crate::Feature>::DECLARATION.name),+)?],
                    inert,
                    readable_since,
                    stores: &[$($(($bucket, $key)),+)?],
                }
            };
        }
    };
}

/// Returns the version of a `readable_since` line. Used by [`feature!`](crate::feature!).
#[doc(hidden)]
#[macro_export]
macro_rules! readable_since {
    (FirstSpec, $specs:expr) => {
        $specs[0].version
    };
    ($version:literal, $specs:expr) => {
        $crate::MajorMinor::literal($version)
    };
}

/// Collects features into a registry type.
///
/// ```
/// # use portunus_gates::feature;
/// # feature! {
/// #     /// Answers renewals from memory when the lease is known.
/// #     pub FastRenew {
/// #         level: Server, owner: "lease", touches: Memory, reversible: Free,
/// #         specs: [Spec::beta("3.7").on()],
/// #     }
/// # }
/// portunus_gates::registry! {
///     /// The features that one server can switch.
///     pub ServerFeatures: Server = [FastRenew]
/// }
/// let registry = portunus_gates::Registry::of::<ServerFeatures>()?;
/// assert!(registry.get("FastRenew").is_some());
/// # Ok::<(), portunus_gates::RegisterError>(())
/// ```
///
/// A feature of another level, or one listed twice, does not compile:
///
/// ```compile_fail
/// # use portunus_gates::feature;
/// # feature! {
/// #     /// Answers renewals from memory when the lease is known.
/// #     pub FastRenew {
/// #         level: Server, owner: "lease", touches: Memory, reversible: Free,
/// #         specs: [Spec::beta("3.7").on()],
/// #     }
/// # }
/// portunus_gates::registry! {
///     /// The features that the cluster can switch.
///     pub ClusterFeatures: Cluster = [FastRenew]
/// }
/// let index = <FastRenew as portunus_gates::MemberOf<ClusterFeatures>>::INDEX;
/// ```
#[macro_export]
macro_rules! registry {
    (
        $(#[$attribute:meta])*
        $visibility:vis $name:ident: $level:ident = [$($feature:ty),* $(,)?]
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy)]
        $visibility struct $name;

        impl $crate::FeatureSet for $name {
            const LEVEL: $crate::Level = $crate::Level::$level;
            const DECLARATIONS: &'static [$crate::Declaration] =
                &[$(<$feature as $crate::Feature>::DECLARATION),*];
        }

        $(
            impl $crate::MemberOf<$name> for $feature {
                const INDEX: usize = $crate::position(
                    <$name as $crate::FeatureSet>::DECLARATIONS,
                    <$name as $crate::FeatureSet>::LEVEL,
                    <$feature as $crate::Feature>::DECLARATION.name,
                );
            }
            const _: usize = <$feature as $crate::MemberOf<$name>>::INDEX;
        )*
    };
}

/// Returns a feature's position in a registry. Used by [`registry!`](crate::registry!) in
/// constants.
// The panics are compile errors: this runs only in constants.
#[doc(hidden)]
#[allow(clippy::panic)]
pub const fn position(declarations: &[Declaration], level: Level, name: &str) -> usize {
    let mut i = 0;
    while i < declarations.len() {
        if same(declarations[i].name, name) {
            if declarations[i].level as u8 != level as u8 {
                // Evaluated in constants: it can never happen at run time.
                panic!("a feature's level must be the level of the registry that lists it");
            }
            return i;
        }
        i += 1;
    }
    // Evaluated in constants: it can never happen at run time.
    panic!("the feature is not in the registry");
}

const fn same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut i = 0;
    while i < left.len() {
        if left[i] != right[i] {
            return false;
        }
        i += 1;
    }
    true
}
