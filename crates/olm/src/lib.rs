//! OLMConfig: the configuration of the Operator Lifecycle Manager with feature gates.
//!
//! The object has a list of gates, `spec.features.gates`. Code checks a gate by handle in a
//! structure in memory that follows the object; nothing reads the object at a check. The crate has
//! the rules; an API server calls them for each request, and a controller for each change.
//!
//! ```text
//!  request ─▶ v1 ──convert──▶ v2alpha1 ─▶ normalize ─▶ schema ─▶ review ─▶ stored as v1
//!                                         (field and entry       (errors, warnings)
//!                                          agree)                      │
//!                                                       LiveGates ◀────┘ each change: built
//!                                                        │   │           anew and swapped
//!                                   enabled(Handle) ◀────┘   └────▶ condition GatesValid
//! ```
//!
//! A gated feature is added by one declaration and one check; the API does not change:
//!
//! ```
//! use portunus_gates::{Features, MajorMinor, Versions, feature, registry};
//! use portunus_olm::{DisableCopiedCsvs, LiveGates};
//! use serde_json::json;
//!
//! feature! {
//!     /// Accepts bundles with optional manifests.
//!     pub EnableOptionalManifest {
//!         name: "enableOptionalManifest",
//!         level: Component, owner: "bundles", touches: Nothing, reversible: Free,
//!         specs: [Spec::alpha("0.22")],
//!     }
//! }
//! registry! {
//!     /// The features of this program.
//!     pub MyFeatures: Component = [DisableCopiedCsvs, EnableOptionalManifest]
//! }
//!
//! let versions = Versions::emulating(MajorMinor::literal("0.22"));
//! let gates = LiveGates::new(Features::<MyFeatures>::declared()?, versions)?;
//! assert!(!gates.enabled(EnableOptionalManifest));
//!
//! let object = json!({"spec": {"features": {"gates": [{"name": "enableOptionalManifest", "value": true}]}}});
//! gates.follow(Some(&object));
//! assert!(gates.enabled(EnableOptionalManifest));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod api;
mod condition;
mod conversion;
mod features;
mod gate_list;
mod live;
mod normalize;
mod review;

pub use api::*;
pub use condition::*;
pub use conversion::*;
pub use features::*;
pub use gate_list::{COPIED_CSVS_GATE, GateEntry, gates, old_field};
pub use live::*;
pub use normalize::*;
pub use review::*;
