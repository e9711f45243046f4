//! The effective versions of a process: binary, emulation and minimum compatibility
//! version, and the lowest value of the latter two.

use serde::Serialize;
use thiserror::Error;

use crate::error::{Classified, ErrorClass};
use crate::spec::Versions;
use crate::version::{MajorMinor, Version, VersionError, version_reply_number};

/// How many minors back a binary can emulate, as in Kubernetes.
pub const EMULATED_MINORS_MAX: u64 = 3;

/// The flag that sets the emulation version, without its dashes.
pub const EMULATION_FLAG: &str = "emulated-version";
/// The flag that sets the minimum compatibility version, without its dashes.
pub const MIN_COMPAT_FLAG: &str = "min-compatibility-version";

/// Reads the value of a flag that is a version without a patch number.
pub fn version_flag(flag: &'static str, text: &str) -> Result<MajorMinor, VersionFlagError> {
    let value = || text.to_owned();
    let version = Version::parse(text).map_err(|source| VersionFlagError::BadVersion {
        flag,
        value: value(),
        source,
    })?;
    let wanted = version.major_minor();
    if version.components().iter().skip(2).any(|&part| part != 0) {
        return Err(VersionFlagError::Patch {
            flag,
            value: value(),
            wanted,
        });
    }
    Ok(wanted)
}

/// Binary, emulation and minimum compatibility version of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveVersion {
    binary: Version,
    emulation: MajorMinor,
    min_compat: MajorMinor,
    emulation_floor: Option<MajorMinor>,
    min_compat_floor: Option<MajorMinor>,
}

impl EffectiveVersion {
    /// Emulates the binary version, with data readable by one minor back, without floors.
    pub fn new(binary: Version) -> EffectiveVersion {
        let versions = Versions::emulating(binary.major_minor());
        EffectiveVersion {
            binary,
            emulation: versions.emulation,
            min_compat: versions.min_compat,
            emulation_floor: None,
            min_compat_floor: None,
        }
    }

    /// Creates the versions of a build that may have no version yet: `0.0` stands for
    /// `unreleased`.
    pub fn for_build(binary: Version, unreleased: MajorMinor) -> EffectiveVersion {
        if binary.major_minor() == MajorMinor::ZERO {
            EffectiveVersion::new(unreleased.into())
        } else {
            EffectiveVersion::new(binary)
        }
    }

    /// Sets the lowest emulation and minimum compatibility versions.
    #[must_use]
    pub fn with_floors(
        mut self,
        emulation_floor: impl Into<Option<MajorMinor>>,
        min_compat_floor: impl Into<Option<MajorMinor>>,
    ) -> EffectiveVersion {
        self.emulation_floor = emulation_floor.into();
        self.min_compat_floor = min_compat_floor.into();
        self
    }

    /// Sets both floors to three minors back, but never below `earliest`, the first
    /// release that has compatibility versions.
    #[must_use]
    pub fn with_usual_floors(self, earliest: MajorMinor) -> EffectiveVersion {
        let floor = self
            .binary
            .major_minor()
            .minus_minors(EMULATED_MINORS_MAX)
            .max(earliest);
        self.with_floors(floor, floor)
    }

    /// With the versions that the flags `--emulated-version` and `--min-compatibility-version`
    /// set, checked. This is how a server reads them, and how a plan does.
    pub fn with_flags(
        mut self,
        emulated: Option<&str>,
        min_compat: Option<&str>,
    ) -> Result<EffectiveVersion, VersionFlagError> {
        if let Some(text) = emulated {
            self.set_emulation(version_flag(EMULATION_FLAG, text)?);
        }
        if let Some(text) = min_compat {
            self.set_min_compat(version_flag(MIN_COMPAT_FLAG, text)?);
        }
        self.validate()?;
        Ok(self)
    }

    /// Sets the emulation version. The minimum compatibility version becomes one minor
    /// below, raised to its floor; set it afterwards if it is to differ.
    pub fn set_emulation(&mut self, version: MajorMinor) {
        let usual = version.minus_minors(1);
        self.emulation = version;
        self.min_compat = self
            .min_compat_floor
            .map_or(usual, |floor| usual.max(floor));
    }

    /// Sets the minimum compatibility version.
    pub fn set_min_compat(&mut self, version: MajorMinor) {
        self.min_compat = version;
    }

    /// Returns the binary version.
    pub fn binary(&self) -> &Version {
        &self.binary
    }

    /// Returns the emulation version.
    pub fn emulation(&self) -> MajorMinor {
        self.emulation
    }

    /// Returns the minimum compatibility version.
    pub fn min_compat(&self) -> MajorMinor {
        self.min_compat
    }

    /// Returns whether a format may be written that only versions from `tolerated_since` on
    /// can read. By default a format is written one release after it became readable,
    /// because the minimum is one minor below the emulation version.
    pub fn may_write(&self, tolerated_since: MajorMinor) -> bool {
        self.min_compat >= tolerated_since
    }

    /// Returns the pair that selects specs.
    pub fn versions(&self) -> Versions {
        Versions::new(self.emulation, self.min_compat)
    }

    /// Returns whether the emulation version is below the binary version.
    pub fn is_emulating(&self) -> bool {
        self.emulation < self.binary.major_minor()
    }

    /// Returns the version nearest to `version` that this binary can emulate.
    pub(crate) fn clamped(&self, version: MajorMinor) -> MajorMinor {
        let highest = self.binary.major_minor();
        let lowest = self
            .emulation_floor
            .unwrap_or(MajorMinor::ZERO)
            .min(highest);
        version.clamp(lowest, highest)
    }

    /// Checks that both versions are in range.
    pub fn validate(&self) -> Result<(), VersionRangeErrors> {
        let mut errors = Vec::new();
        let binary = self.binary.major_minor();
        let floor = self.emulation_floor.unwrap_or(MajorMinor::ZERO);
        if self.emulation < floor || self.emulation > binary {
            errors.push(VersionRangeError::Emulation {
                version: self.emulation,
                lowest: floor,
                highest: binary,
            });
        }
        let floor = self.min_compat_floor.unwrap_or(MajorMinor::ZERO);
        if self.min_compat < floor || self.min_compat > self.emulation {
            errors.push(VersionRangeError::MinCompat {
                version: self.min_compat,
                lowest: floor,
                highest: self.emulation,
            });
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(VersionRangeErrors(errors))
        }
    }

    /// Formats the emulation range for `--help`: `3.5..3.8(default:3.8)`.
    pub fn emulation_help(&self) -> String {
        help(
            self.emulation_floor,
            self.binary.major_minor(),
            self.emulation,
        )
    }

    /// Formats the minimum compatibility range for `--help`.
    pub fn min_compat_help(&self) -> String {
        help(
            self.min_compat_floor,
            self.binary.major_minor(),
            self.min_compat,
        )
    }

    /// Returns the version part of a `/version` reply.
    pub fn info(&self, git_version: Option<&str>) -> VersionInfo {
        let number = version_reply_number;
        let binary = self.binary.major_minor();
        VersionInfo {
            major: number(binary.major()),
            minor: number(binary.minor()),
            emulation_major: number(self.emulation.major()),
            emulation_minor: number(self.emulation.minor()),
            min_compatibility_major: number(self.min_compat.major()),
            min_compatibility_minor: number(self.min_compat.minor()),
            git_version: git_version.map_or_else(|| format!("v{}", self.binary), str::to_owned),
        }
    }
}

fn help(floor: Option<MajorMinor>, highest: MajorMinor, current: MajorMinor) -> String {
    let lowest = floor.unwrap_or(MajorMinor::ZERO);
    format!("{lowest}..{highest}(default:{current})")
}

/// The version part of a `/version` reply; a number that is zero is the empty string,
/// and optional fields that are empty are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// The major number of the binary version.
    pub major: String,
    /// The minor number of the binary version.
    pub minor: String,
    /// The major number of the emulation version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub emulation_major: String,
    /// The minor number of the emulation version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub emulation_minor: String,
    /// The major number of the minimum compatibility version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub min_compatibility_major: String,
    /// The minor number of the minimum compatibility version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub min_compatibility_minor: String,
    /// The whole version text.
    pub git_version: String,
}

/// The two flags that allow newer APIs to be served under emulation. They are valid only
/// while an older version is emulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardCompatibility {
    /// `--emulation-forward-compatible`
    pub emulation: bool,
    /// `--runtime-config-emulation-forward-compatible`
    pub runtime_config: bool,
}

impl ForwardCompatibility {
    /// Refuses either flag where no older version is emulated.
    pub fn validate(self, version: &EffectiveVersion) -> Result<(), ForwardCompatibilityError> {
        if version.is_emulating() {
            return Ok(());
        }
        match (self.emulation, self.runtime_config) {
            (true, _) => Err(ForwardCompatibilityError {
                flag: "--emulation-forward-compatible",
            }),
            (_, true) => Err(ForwardCompatibilityError {
                flag: "--runtime-config-emulation-forward-compatible",
            }),
            (false, false) => Ok(()),
        }
    }
}

/// The error for a forward-compatibility flag without emulation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{flag} needs an emulated version below the binary version: remove it or set --emulated-version"
)]
pub struct ForwardCompatibilityError {
    /// The refused flag.
    pub flag: &'static str,
}

impl Classified for ForwardCompatibilityError {
    fn id(&self) -> &'static str {
        "E-FORWARD-WITHOUT-EMULATION"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Range
    }
}

/// The error for a version outside its range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum VersionRangeError {
    /// The emulation version is below its floor or above the binary version.
    #[error("emulation version {version} is out of range: choose one from {lowest} to {highest}")]
    Emulation {
        version: MajorMinor,
        lowest: MajorMinor,
        highest: MajorMinor,
    },
    /// The minimum compatibility version is below its floor or above the emulation version.
    #[error(
        "minimum compatibility version {version} is out of range: {}",
        if lowest <= highest {
            format!("choose one from {lowest} to {highest}")
        } else {
            "correct the emulation version first".to_owned()
        }
    )]
    MinCompat {
        version: MajorMinor,
        lowest: MajorMinor,
        highest: MajorMinor,
    },
}

impl Classified for VersionRangeError {
    fn id(&self) -> &'static str {
        match self {
            VersionRangeError::Emulation { .. } => "E-EMU-RANGE",
            VersionRangeError::MinCompat { .. } => "E-MINCOMPAT-RANGE",
        }
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Range
    }
}

/// A flag for a version that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum VersionFlagError {
    /// Not a version.
    #[error("--{flag}={value} cannot be used: it takes major.minor")]
    BadVersion {
        flag: &'static str,
        value: String,
        source: VersionError,
    },
    /// A version with a patch number.
    #[error(
        "--{flag}={value} cannot be used: it takes major.minor without a patch number, so write {wanted}"
    )]
    Patch {
        flag: &'static str,
        value: String,
        wanted: MajorMinor,
    },
    /// A version out of range.
    #[error(transparent)]
    Range(#[from] VersionRangeErrors),
}

/// One or both range errors.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct VersionRangeErrors(pub Vec<VersionRangeError>);
