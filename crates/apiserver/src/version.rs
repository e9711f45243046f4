//! The `/version` document, in Kubernetes' line of versions.
//!
//! kubectl parses `gitVersion` and warns about a difference of more than one minor, so the server
//! shows the Kubernetes release whose API conventions it implements. The fields of the emulation
//! and minimum compatibility version are those of kube-apiserver; `binaryMajor` and `binaryMinor`
//! are ours, and clients ignore them.

use portunus_gates::{EffectiveVersion, MajorMinor, Version, VersionError, version_reply_number};
use serde_json::{Value, json};

/// The Kubernetes release whose API conventions are implemented.
pub const KUBE_VERSION: &str = "1.37.0";
/// The lowest release that can be emulated, and that data can be kept readable for.
pub const KUBE_FLOOR: MajorMinor = MajorMinor::literal("1.34");

/// Returns the versions of a server without flags.
///
/// # Errors
/// Never: a test parses the version.
pub fn kube_version() -> Result<EffectiveVersion, VersionError> {
    let binary = Version::parse(KUBE_VERSION)?;
    Ok(EffectiveVersion::new(binary).with_floors(KUBE_FLOOR, KUBE_FLOOR))
}

/// Returns the document. It never changes while a server runs.
#[must_use]
pub fn version_document(versions: &EffectiveVersion) -> Value {
    let package = env!("CARGO_PKG_VERSION");
    let git_version = format!("v{}+portunus.{package}", versions.binary());
    let info = versions.info(Some(&git_version));
    let binary = versions.binary().major_minor();
    let mut document = json!({
        "major": info.major,
        "minor": info.minor,
        "binaryMajor": version_reply_number(binary.major()),
        "binaryMinor": version_reply_number(binary.minor()),
        "gitVersion": info.git_version,
        // Builds do not record these.
        "gitCommit": "unknown",
        "gitTreeState": "unknown",
        "buildDate": "unknown",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture()),
    });
    let optional = [
        ("emulationMajor", info.emulation_major),
        ("emulationMinor", info.emulation_minor),
        ("minCompatibilityMajor", info.min_compatibility_major),
        ("minCompatibilityMinor", info.min_compatibility_minor),
    ];
    for (name, number) in optional {
        if !number.is_empty() {
            document[name] = Value::String(number);
        }
    }
    document
}

/// Returns the architecture by its name in Go, which clients expect.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: G132, S2-24
    #[test]
    fn document_has_binary_emulation_and_minimum_compatibility_version() {
        let mut versions = kube_version().unwrap();
        let document = version_document(&versions);
        let git_version = document["gitVersion"].as_str().unwrap();
        assert!(
            git_version.starts_with("v1.37.0+portunus."),
            "{git_version}"
        );
        let text = |document: &Value, name: &str| document[name].as_str().unwrap().to_owned();
        let numbers = |document: &Value| {
            ["", "emulation", "minCompatibility", "binary"].map(|prefix| {
                let name = |part: &str| match prefix {
                    "" => part.to_lowercase(),
                    prefix => format!("{prefix}{part}"),
                };
                let parts = [
                    text(document, &name("Major")),
                    text(document, &name("Minor")),
                ];
                parts.join(".")
            })
        };
        assert_eq!(numbers(&document), ["1.37", "1.37", "1.36", "1.37"]);
        versions.set_emulation(MajorMinor::literal("1.35"));
        let emulating = version_document(&versions);
        assert_eq!(numbers(&emulating), ["1.37", "1.35", "1.34", "1.37"]);
        assert_eq!(text(&emulating, "gitVersion"), git_version);
    }

    #[test]
    fn empty_numbers_are_left_out() {
        let mut versions = kube_version().unwrap();
        versions.set_min_compat(MajorMinor::ZERO);
        let document = version_document(&versions);
        assert_eq!(document.get("minCompatibilityMajor"), None);
        assert_eq!(document["platform"].as_str().unwrap().split('/').count(), 2);
    }
}
