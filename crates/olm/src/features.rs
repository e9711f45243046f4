//! The gated features of OLM.

use portunus_gates::{MajorMinor, Versions, feature, registry};

feature! {
    /// Removes the copies of cluster-scoped operators from all namespaces.
    ///
    /// It was a field of OLMConfig before it became a gate, so the field and the entry of the
    /// list always agree.
    pub DisableCopiedCsvs {
        name: "disableCopiedCSVs",
        level: Component,
        owner: "copied-csvs",
        touches: Nothing,
        reversible: Free,
        specs: [Spec::beta("0.19")],
    }
}

registry! {
    /// The features that OLMConfig can switch.
    pub OlmFeatures: Component = [DisableCopiedCsvs]
}

/// The version of OLM whose behaviour this crate has.
pub const OLM_VERSION: MajorMinor = MajorMinor::literal("0.22");

/// Returns the versions at which OLM's gates are resolved.
#[must_use]
pub fn olm_versions() -> Versions {
    Versions::emulating(OLM_VERSION)
}
