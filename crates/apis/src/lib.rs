//! What an API server serves, stores and warns about, derived from declared lifecycles.
//!
//! A group, version or resource declares in which release it was introduced, deprecated and
//! removed. This crate derives everything else from that, for an emulation version, a minimum
//! compatibility version and a runtime-config, by the rules of kube-apiserver. It is pure: no
//! I/O, no clock, no global state.
//!
//! # Ten minutes
//!
//! **Declare** what the binary knows. `things` was a beta, on by default, and is GA since 1.36;
//! the beta will be removed three releases after its deprecation:
//!
//! ```
//! use portunus_apis::*;
//!
//! fn declarations() -> Result<Declarations, DeclarationErrors> {
//!     let replacement = GroupVersionKind::new("example.io", "v1", "Thing");
//!     let beta = Resource::new(
//!         "things",
//!         "Thing",
//!         Lifecycle::since("1.34").deprecated("1.36").replaced_by(replacement),
//!     );
//!     let ga = Resource::new("things", "Thing", Lifecycle::since("1.36"))
//!         .with_short_names(["th"])
//!         .with_subresource(Subresource::new("status"));
//!     Declarations::new([Group::new("example.io")
//!         .with_version(Version::new("v1beta1").served_by_default(true).with_resource(beta))
//!         .with_version(Version::new("v1").with_resource(ga))])
//! }
//! # declarations().unwrap();
//! ```
//!
//! **Resolve** once at start, from the versions and flags of the process. Requests are then
//! looked up by name:
//!
//! ```
//! # use portunus_apis::*;
//! # fn declarations() -> Result<Declarations, DeclarationErrors> {
//! #     let replacement = GroupVersionKind::new("example.io", "v1", "Thing");
//! #     let beta = Lifecycle::since("1.34").deprecated("1.36").replaced_by(replacement);
//! #     let beta = Resource::new("things", "Thing", beta);
//! #     let ga = Resource::new("things", "Thing", Lifecycle::since("1.36"));
//! #     Declarations::new([Group::new("example.io")
//! #         .with_version(Version::new("v1beta1").served_by_default(true).with_resource(beta))
//! #         .with_version(Version::new("v1").with_resource(ga))])
//! # }
//! use portunus_gates::{EffectiveVersion, MajorMinor, Version as Release};
//!
//! let declarations = declarations()?;
//! let mut options = Options::new(EffectiveVersion::new(Release::parse("1.37.0")?));
//!
//! // A 1.37 binary serves both versions, and warns clients of the old one.
//! let apis = resolve(&declarations, &options)?;
//! let Lookup::Served(beta) = apis.lookup("example.io", "v1beta1", "things") else {
//!     panic!("not served");
//! };
//! assert_eq!(
//!     beta.deprecation.as_ref().unwrap().warning,
//!     "example.io/v1beta1 Thing is deprecated in v1.36+, unavailable in v1.39+; \
//!      use example.io/v1 Thing"
//! );
//! assert_eq!(beta.storage.version.as_str(), "v1");
//!
//! // Emulating 1.35 it serves and stores what 1.35 did.
//! options.versions.set_emulation(MajorMinor::literal("1.35"));
//! let apis = resolve(&declarations, &options)?;
//! let Lookup::NotServed(reason) = apis.lookup("example.io", "v1", "things") else {
//!     panic!("served or unknown");
//! };
//! assert_eq!(
//!     reason.to_string(),
//!     "it is introduced in 1.36, and this server emulates 1.35"
//! );
//! assert_eq!(apis.storage_version("example.io", "things").unwrap().version.as_str(), "v1beta1");
//!
//! // What would serve it, each tried before it is named:
//! let name = GroupVersionResource::new("example.io", "v1", "things");
//! let remedies = explain(&declarations, &options, &name)?.to_change;
//! let remedies: Vec<String> = remedies.iter().map(ToString::to_string).collect();
//! assert_eq!(
//!     remedies,
//!     ["--emulated-version=1.37", "--emulation-forward-compatible=true"]
//! );
//!
//! // And what a change would do, before it is made:
//! let after = options.after([&Change::Emulation(MajorMinor::literal("1.37"))]);
//! let side = |options| Side { declarations: &declarations, options };
//! assert_eq!(
//!     plan(side(&options), side(&after))?.to_string(),
//!     "~ things.v1beta1.example.io: example.io/v1beta1 Thing is deprecated in v1.36+, \
//!      unavailable in v1.39+; use example.io/v1 Thing\n\
//!      + things.v1.example.io: switched on by the default of its stability\n\
//!      ~ group \"example.io\": preferred version v1beta1 -> v1\n\
//!      ~ things.example.io: stored as v1beta1 -> v1\n"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Serve** discovery from [`discovery`], and the warnings of a response through
//! [`WarningHeaders`].
//!
//! # Where to look
//!
//! | question | answer |
//! | --- | --- |
//! | what may be declared? | [`Resource`], [`Lifecycle`], [`DeclarationError`] |
//! | which flags count? | [`Options`], [`RuntimeConfig`] |
//! | what is switched on, and by what? | [`Enablement`] |
//! | what is served? | [`resolve()`], [`ServedApis::lookup`] |
//! | why not? | [`NotServed`], [`explain()`], [`not_served_message`] |
//! | in which version are objects stored? | [`StorageVersion`] |
//! | what stops the start, what is only warned about? | [`StartError`], [`StartWarning`] |
//! | what would a flag or another binary change? | [`plan()`] |
//! | which feature lacks its API? | [`ServedApis::unmet_requirements`] |

mod availability;
mod change;
mod check;
mod declare;
mod deprecation;
pub mod discovery;
mod enablement;
mod explain;
mod lifecycle;
mod names;
mod options;
mod plan;
mod requirement;
mod resolve;
mod runtime_config;
mod served;
mod storage;
#[cfg(feature = "testing")]
pub mod testing;
mod warning_headers;
mod warnings;

pub use change::Change;
pub use check::{DeclarationError, DeclarationErrors};
pub use declare::*;
pub use deprecation::*;
pub use enablement::*;
pub use explain::*;
pub use lifecycle::*;
pub use names::*;
pub use options::*;
pub use plan::*;
pub use requirement::*;
pub use resolve::*;
pub use runtime_config::{Class, RuntimeConfig, RuntimeConfigError};
pub use served::*;
pub use storage::{StorageRule, StorageVersion};
pub use warning_headers::*;
pub use warnings::StartWarning;
