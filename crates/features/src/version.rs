//! The version of this program and the versions that it can emulate.

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

/// The versions of a process started without version flags.
pub fn effective_version() -> EffectiveVersion {
    EffectiveVersion::new(ETCD_VERSION.into()).with_floors(EMULATION_FLOOR, EMULATION_FLOOR)
}

/// The patch release that is reported for each emulated version. Clients draw conclusions from
/// it: Kubernetes relies on progress notifications from 3.5.13 on only. So it is a release of etcd
/// whose fixes this program has.
const REPORTED_PATCHES: [(MajorMinor, u32); 3] = [
    (MajorMinor::literal("3.5"), 21),
    (MajorMinor::literal("3.6"), 5),
    (MajorMinor::literal("3.7"), 1),
];

/// The version text clients see: of the emulated release line.
pub fn version_text(version: &EffectiveVersion) -> String {
    let emulation = version.emulation();
    let reported = REPORTED_PATCHES
        .iter()
        .find(|(minor, _)| *minor == emulation);
    let patch = reported.map_or(0, |(_, patch)| *patch);
    format!("{emulation}.{patch}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_gates::Version;

    #[test]
    fn emulated_versions_report_a_patch_that_clients_trust() {
        let reported = |minor: &str| {
            let mut version = effective_version();
            version.set_emulation(minor.parse().unwrap());
            version_text(&version)
        };
        // From here on Kubernetes uses progress requests.
        let safe = Version::parse("3.5.13").unwrap();
        assert!(
            Version::parse(&reported("3.5"))
                .unwrap()
                .compare(&safe)
                .is_ge()
        );
        assert_eq!(reported("3.6"), "3.6.5");
        assert_eq!(reported("3.7"), "3.7.1");
        assert_eq!(reported("3.8"), "3.8.0");
    }
}
