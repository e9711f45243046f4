//! What this program is and which versions it can behave as.

use portunus_gates::{EffectiveVersion, MajorMinor};

/// The version of etcd whose behaviour this program has. Gates, cluster version,
/// downgrade and emulation are all in etcd's version line.
pub const ETCD_VERSION: MajorMinor = MajorMinor::literal("3.8");

/// The earliest version that can be emulated.
pub const EMULATION_FLOOR: MajorMinor = MajorMinor::literal("3.5");

/// The first cluster version that has cluster features.
pub const CLUSTER_PARAMS_SINCE: MajorMinor = MajorMinor::literal("3.7");

/// The cluster version that stands for "not decided yet".
pub const CLUSTER_VERSION_UNDECIDED: MajorMinor = MajorMinor::literal("3.0");

/// The versions of a process that was told nothing.
pub fn effective_version() -> EffectiveVersion {
    EffectiveVersion::new(ETCD_VERSION.into()).with_floors(EMULATION_FLOOR, EMULATION_FLOOR)
}

/// The version text clients see: of the emulated release line.
pub fn version_text(version: &EffectiveVersion) -> String {
    format!("{}.0", version.emulation())
}
