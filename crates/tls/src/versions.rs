//! The versions of TLS that a connection may use.

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use thiserror::Error;

/// A version of TLS, as etcd's flags name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// `TLS1.2`.
    Tls12,
    /// `TLS1.3`.
    Tls13,
}

/// The lowest and the highest version that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    min: TlsVersion,
    max: TlsVersion,
}

/// Why a range of versions cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VersionError {
    /// The text names no supported version.
    #[error("unexpected TLS version {text:?} (must be one of: TLS1.2, TLS1.3)")]
    Unknown {
        /// The text as given.
        text: String,
    },
    /// The range is empty.
    #[error("min version (TLS1.3) is greater than max version (TLS1.2)")]
    Empty,
}

impl Default for VersionRange {
    /// TLS 1.2 and 1.3.
    fn default() -> VersionRange {
        VersionRange {
            min: TlsVersion::Tls12,
            max: TlsVersion::Tls13,
        }
    }
}

impl VersionRange {
    /// Parses the values of `--tls-min-version` and `--tls-max-version`. An empty text sets no
    /// bound.
    ///
    /// # Errors
    /// If a text names no version, or the first version is above the second.
    pub fn parse(min: &str, max: &str) -> Result<VersionRange, VersionError> {
        let min = parse(min)?.unwrap_or(TlsVersion::Tls12);
        let max = parse(max)?.unwrap_or(TlsVersion::Tls13);
        match min <= max {
            true => Ok(VersionRange { min, max }),
            false => Err(VersionError::Empty),
        }
    }

    /// Returns whether TLS 1.3 is the only version.
    #[must_use]
    pub fn is_only_tls13(self) -> bool {
        self.min == TlsVersion::Tls13
    }

    pub(crate) fn protocols(self) -> Vec<&'static SupportedProtocolVersion> {
        let allowed = self.min..=self.max;
        let known = [(TlsVersion::Tls13, &TLS13), (TlsVersion::Tls12, &TLS12)];
        let known = known.into_iter();
        known
            .filter(|(version, _)| allowed.contains(version))
            .map(|(_, protocol)| protocol)
            .collect()
    }
}

fn parse(text: &str) -> Result<Option<TlsVersion>, VersionError> {
    match text {
        "" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::Tls12)),
        "TLS1.3" => Ok(Some(TlsVersion::Tls13)),
        _ => Err(VersionError::Unknown {
            text: text.chars().take(60).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_has_the_named_versions() {
        for (min, max, versions) in [
            ("", "", 2),
            ("TLS1.2", "", 2),
            ("TLS1.2", "TLS1.2", 1),
            ("TLS1.2", "TLS1.3", 2),
            ("TLS1.3", "", 1),
            ("TLS1.3", "TLS1.3", 1),
        ] {
            let range = VersionRange::parse(min, max).unwrap();
            assert_eq!(range.protocols().len(), versions, "{min} {max}");
            assert_eq!(range.is_only_tls13(), min == "TLS1.3");
        }
    }

    #[test]
    fn unknown_version_and_empty_range_are_refused() {
        let unknown = VersionRange::parse("TLS1.1", "").unwrap_err();
        assert!(unknown.to_string().contains("TLS1.2, TLS1.3"), "{unknown}");
        let empty = VersionRange::parse("TLS1.3", "TLS1.2");
        assert_eq!(empty, Err(VersionError::Empty));
    }
}
