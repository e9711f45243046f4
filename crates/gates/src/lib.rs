//! Versioned feature gates, compatibility versions, and gates decided by a whole cluster.
//!
//! A *feature gate* is a named switch in front of code that is not yet, or no longer,
//! on for every user. Every gate has a history by version, values can be explained,
//! mistakes are refused with advice, and a change can be planned before it is made. The
//! crate is pure: no clock, no files, no threads, no global state. Gates are values that
//! callers pass on.
//!
//! # Ten minutes
//!
//! **Declare** a feature beside the code it guards, and list your features once:
//!
//! ```
//! use portunus_gates::{feature, registry};
//!
//! feature! {
//!     /// Compresses pages before they are written.
//!     ///
//!     /// Reading understands both forms, so it can be turned off again.
//!     pub PageCompression {
//!         level: Server,
//!         owner: "storage",
//!         touches: Backend,
//!         reversible: Free,
//!         specs: [
//!             Spec::alpha("1.4"),                // off unless a flag turns it on
//!             Spec::beta("1.5").on(),            // on unless a flag turns it off
//!             Spec::ga("1.6").on().locked(),     // always on
//!         ],
//!     }
//! }
//! feature! {
//!     /// Chooses the compression level by load.
//!     pub AdaptiveLevel {
//!         level: Server,
//!         owner: "storage",
//!         touches: Memory,
//!         reversible: Free,
//!         specs: [Spec::alpha("1.5")],
//!         depends_on: [PageCompression],
//!     }
//! }
//! registry! {
//!     /// The features that one server can switch.
//!     pub ServerFeatures: Server = [PageCompression, AdaptiveLevel]
//! }
//! ```
//!
//! **Build** the gates once at start, from versions and flags, and **check** by handle.
//! A check is an array access; a handle of another registry does not compile:
//!
//! ```
//! # use portunus_gates::{feature, registry};
//! # feature! {
//! #     /// Compresses pages before they are written.
//! #     pub PageCompression {
//! #         level: Server, owner: "storage", touches: Backend, reversible: Free,
//! #         specs: [Spec::alpha("1.4"), Spec::beta("1.5").on(), Spec::ga("1.6").on().locked()],
//! #     }
//! # }
//! # registry! {
//! #     /// The features that one server can switch.
//! #     pub ServerFeatures: Server = [PageCompression]
//! # }
//! use portunus_gates::{Assignments, EffectiveVersion, Features, MajorMinor, Origin, Version};
//!
//! let features = Features::<ServerFeatures>::declared()?;
//!
//! // A 1.6 binary that behaves as 1.5 did: compression can still be switched.
//! let mut version = EffectiveVersion::new(Version::parse("1.6.2")?)
//!     .with_usual_floors(MajorMinor::literal("1.4"));
//! version.set_emulation(MajorMinor::literal("1.5"));
//! version.validate()?;
//!
//! let flags = Assignments::parse(Origin::Flag, "PageCompression=false")?;
//! let gates = features.gates(version.versions(), &flags)?;
//! assert!(!gates.enabled(PageCompression));
//!
//! // The same flag is refused where the feature is locked, with the remedy.
//! version.set_emulation(MajorMinor::literal("1.6"));
//! let refused = features.gates(version.versions(), &flags).unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     "cannot set PageCompression to false: it is locked to true since 1.6; \
//!      remove it from the flags"
//! );
//!
//! // And every value can be explained.
//! let why = gates.explain("PageCompression")?;
//! assert_eq!(why.status.reason, "set to false by flag");
//! assert_eq!(why.to_change, ["restart with --feature-gates=PageCompression=true"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Two versions** select what a gate is: the *emulation version* (behave as this one)
//! and the *minimum compatibility version* (write only what this one can read). An entry
//! of a history may ask for the second with [`Spec::min_compat`]. With both, a new binary
//! can be rolled out first and its behaviour later, and rolled back without swapping
//! binaries. [`Components`] does the same for a process with several components.
//!
//! **Clusters**: a feature that changes how a replicated log is applied must be on for
//! every member or for none, from one log index on. [`cluster`] has the pure half of
//! that: what members publish, the decision and its reasons, which members may join.
//! [`plan`] computes beforehand what an upgrade, a flag or a member would change.
//!
//! **Lint** your own history in a test with [`lint()`]: against the list of the last
//! release (made by [`to_json`]) it finds what would break users, such as a feature that
//! was removed while flags could still set it.
//!
//! # Where to look
//!
//! | question | answer |
//! | --- | --- |
//! | which entry of a history applies? | [`select`] |
//! | what is a legal history? | [`complete`], [`SpecError`] |
//! | what may depend on what? | [`DependencyError`] |
//! | which values were set? | [`Assignments`], [`ComponentFlags`] |
//! | which values are in force? | [`GateSet`], [`Gates`], [`cluster::ClusterView`] |
//! | why? | [`GateSet::explain`], [`cluster::ClusterSpecs::explain`] |
//! | what would change it? | [`Explanation::to_change`], [`plan::plan`] |
//! | which error is it? | [`Classified::id`], [`ErrorClass`] |

mod assignments;
mod bits;
pub mod cluster;
mod component_flags;
mod components;
mod dependency;
mod document;
mod effective;
mod error;
mod feature;
mod gate;
mod help;
mod lint;
mod metrics;
pub mod plan;
mod registry;
mod resolve;
mod skew;
mod spec;
mod stage;
mod status;
mod suggest;
mod testing;
mod unwritten;
mod version;

pub use assignments::*;
pub use component_flags::*;
pub use components::*;
pub use dependency::{DependencyError, Pair};
pub use document::*;
pub use effective::*;
pub use error::{Classified, ErrorClass};
pub use feature::*;
pub use gate::*;
pub use help::*;
pub use lint::*;
pub use metrics::*;
pub use registry::*;
pub use resolve::{SetError, SetErrors, Source, Warning};
pub use skew::*;
pub use spec::*;
pub use stage::*;
pub use status::*;
pub use testing::TestGatesError;
pub use unwritten::Unwritten;
pub use version::*;
