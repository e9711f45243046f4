//! Versions and how they compare.
//!
//! [`Version`] is a version as binaries and operators write it: any number of
//! components, perhaps a pre-release. [`MajorMinor`] is the key of gate histories: two
//! numbers, a total order, cheap to copy and usable in constants. All comparisons of
//! version texts are in this module.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::{Classified, ErrorClass, quoted};

/// A release line such as `3.7`. Every selection of behaviour in this crate is by
/// `MajorMinor`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MajorMinor {
    major: u64,
    minor: u64,
}

impl MajorMinor {
    /// `0.0`: before every release. A spec registered here always applies.
    pub const ZERO: MajorMinor = MajorMinor::new(0, 0);

    /// Creates the release line `major.minor`.
    pub const fn new(major: u64, minor: u64) -> MajorMinor {
        MajorMinor { major, minor }
    }

    /// Parses `"3.7"` in a constant, so that a declaration with a malformed
    /// version does not compile.
    ///
    /// ```
    /// use portunus_gates::MajorMinor;
    /// const SINCE: MajorMinor = MajorMinor::literal("3.7");
    /// assert_eq!(SINCE, MajorMinor::new(3, 7));
    /// ```
    ///
    /// ```compile_fail
    /// const SINCE: portunus_gates::MajorMinor = portunus_gates::MajorMinor::literal("3");
    /// ```
    // Only for literals in declarations: the panic is a compile error there.
    #[allow(clippy::panic)]
    pub const fn literal(text: &str) -> MajorMinor {
        let bytes = text.as_bytes();
        let mut numbers = [0u64; 2];
        let mut digits = [0usize; 2];
        let mut part = 0;
        let mut i = 0;
        while i < bytes.len() {
            let byte = bytes[i];
            if byte == b'.' && part == 0 {
                part = 1;
            } else if byte.is_ascii_digit() && digits[part] < 9 {
                numbers[part] = numbers[part] * 10 + (byte - b'0') as u64;
                digits[part] += 1;
            } else {
                // Evaluated in constants: untrusted input never gets here.
                panic!("a version literal is two numbers with a dot, such as \"3.7\"");
            }
            i += 1;
        }
        if digits[0] == 0 || digits[1] == 0 {
            // Evaluated in constants: untrusted input never gets here.
            panic!("a version literal is two numbers with a dot, such as \"3.7\"");
        }
        MajorMinor::new(numbers[0], numbers[1])
    }

    /// Returns the first number.
    pub const fn major(self) -> u64 {
        self.major
    }

    /// Returns the second number.
    pub const fn minor(self) -> u64 {
        self.minor
    }

    /// Returns the version `by` minors earlier, never below minor 0 of the same major.
    #[must_use]
    pub const fn minus_minors(self, by: u64) -> MajorMinor {
        MajorMinor::new(self.major, self.minor.saturating_sub(by))
    }

    /// Returns the version `by` minors later.
    #[must_use]
    pub const fn plus_minors(self, by: u64) -> MajorMinor {
        MajorMinor::new(self.major, self.minor.saturating_add(by))
    }
}

impl fmt::Display for MajorMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Debug for MajorMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MajorMinor {
    type Err = VersionError;

    /// Parses any version and keeps its release line: `3.7`, `v3.7` and `3.7.2` are all `3.7`.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        Version::parse(text).map(|version| version.major_minor())
    }
}

impl TryFrom<String> for MajorMinor {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<MajorMinor> for String {
    fn from(version: MajorMinor) -> String {
        version.to_string()
    }
}

impl From<MajorMinor> for Version {
    fn from(version: MajorMinor) -> Version {
        Version {
            components: vec![version.major, version.minor],
            semantic: false,
            pre_release: String::new(),
            build: String::new(),
        }
    }
}

/// A version as operators and binaries write it.
///
/// Deliberately without `Ord`: [`Version::compare`] is not transitive. `1.33`
/// equals both `1.33.0` and `1.33.0-alpha.1`, which differ from each other; that
/// is what lets an alpha binary of 1.33 emulate 1.33.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version {
    components: Vec<u64>,
    semantic: bool,
    pre_release: String,
    build: String,
}

impl Version {
    /// Parses strict semver first, else the generic form, as flags do.
    pub fn parse(text: &str) -> Result<Version, VersionError> {
        match Version::parse_semantic(text) {
            Ok(version) => Ok(version),
            Err(_) => Version::parse_generic(text),
        }
    }

    /// Parses at least two numbers; the text behind them is dropped (`1.30abc` is 1.30).
    pub fn parse_generic(text: &str) -> Result<Version, VersionError> {
        let numbers = Numbers::read(text)?;
        if numbers.values.len() < 2 {
            return Err(VersionError::TooFew {
                text: quoted(text),
                at: numbers.end,
            });
        }
        if let Some(&(0, at)) = numbers.leading_zeros.first() {
            return Err(VersionError::LeadingZero {
                text: quoted(text),
                at,
            });
        }
        Ok(Version {
            components: numbers.values,
            semantic: false,
            pre_release: String::new(),
            build: String::new(),
        })
    }

    /// Parses exactly three numbers without leading zeros, then `-pre` and `+build` if any.
    pub fn parse_semantic(text: &str) -> Result<Version, VersionError> {
        let numbers = Numbers::read(text)?;
        if numbers.values.len() != 3 {
            return Err(VersionError::NotThree {
                text: quoted(text),
                at: numbers.end,
            });
        }
        if let Some(&(_, at)) = numbers.leading_zeros.first() {
            return Err(VersionError::LeadingZero {
                text: quoted(text),
                at,
            });
        }
        let rest = text[numbers.end..].trim_end();
        let (before_build, build) = match rest.split_once('+') {
            Some((before, build)) => (before, Some(build)),
            None => (rest, None),
        };
        let pre_release = match before_build.strip_prefix('-') {
            Some(pre_release) => Some(pre_release),
            None if before_build.is_empty() => None,
            None => {
                return Err(VersionError::Trailing {
                    text: quoted(text),
                    at: numbers.end,
                });
            }
        };
        for identifiers in [pre_release, build].into_iter().flatten() {
            if !identifiers.split('.').all(is_identifier) {
                return Err(VersionError::Trailing {
                    text: quoted(text),
                    at: numbers.end,
                });
            }
        }
        Ok(Version {
            components: numbers.values,
            semantic: true,
            pre_release: pre_release.unwrap_or_default().to_owned(),
            build: build.unwrap_or_default().to_owned(),
        })
    }

    /// Returns all numbers, at least two.
    pub fn components(&self) -> &[u64] {
        &self.components
    }

    /// Returns the release line of this version.
    pub fn major_minor(&self) -> MajorMinor {
        MajorMinor::new(self.component(0), self.component(1))
    }

    /// Returns the third number, or 0 where there is none.
    pub fn patch(&self) -> u64 {
        self.component(2)
    }

    /// Returns whether it was parsed as strict semver; only then is a pre-release compared.
    pub fn is_semantic(&self) -> bool {
        self.semantic
    }

    /// Returns the text after `-`, empty where there is none.
    pub fn pre_release(&self) -> &str {
        &self.pre_release
    }

    /// Returns the text after `+`, empty where there is none.
    pub fn build_metadata(&self) -> &str {
        &self.build
    }

    /// Returns two components: `by` minors earlier on the same major, never below minor 0.
    #[must_use]
    pub fn minus_minors(&self, by: u64) -> Version {
        self.major_minor().minus_minors(by).into()
    }

    /// Returns two components: `by` minors later on the same major.
    #[must_use]
    pub fn plus_minors(&self, by: u64) -> Version {
        self.major_minor().plus_minors(by).into()
    }

    /// Compares number by number, missing ones as 0; the pre-release only if both sides
    /// are semver.
    pub fn compare(&self, other: &Version) -> Ordering {
        let longest = self.components.len().max(other.components.len());
        for i in 0..longest {
            match self.component(i).cmp(&other.component(i)) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        if self.semantic && other.semantic {
            compare_pre_release(&self.pre_release, &other.pre_release)
        } else {
            Ordering::Equal
        }
    }

    fn component(&self, i: usize) -> u64 {
        self.components.get(i).copied().unwrap_or(0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, component) in self.components.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            write!(f, "{component}")?;
        }
        if !self.pre_release.is_empty() {
            write!(f, "-{}", self.pre_release)?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        Version::parse(text)
    }
}

/// Formats one number of a version for `/version` replies, where zero is the empty
/// string and optional fields with it are left out.
pub fn version_reply_number(number: u64) -> String {
    if number == 0 {
        String::new()
    } else {
        number.to_string()
    }
}

/// Why a text is not a version; `at` is the byte where reading stopped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VersionError {
    /// The text does not begin with a number.
    #[error("{text} is not a version (byte {at}): write it as major.minor, such as 3.7")]
    NoNumber {
        /// The text, shortened for display.
        text: String,
        /// Byte offset.
        at: usize,
    },
    /// The text has only one number.
    #[error("{text} has only one number (byte {at}): write it as major.minor, such as 3.7")]
    TooFew {
        /// The text, shortened for display.
        text: String,
        /// Byte offset.
        at: usize,
    },
    /// A semantic version does not have exactly three numbers.
    #[error("{text} is not a semantic version (byte {at}): it needs exactly three numbers")]
    NotThree {
        /// The text, shortened for display.
        text: String,
        /// Byte offset.
        at: usize,
    },
    /// A number has a leading zero, as in `03.7`.
    #[error("{text} has a number with a leading zero (byte {at}): remove the zero")]
    LeadingZero {
        /// The text, shortened for display.
        text: String,
        /// Byte offset.
        at: usize,
    },
    /// A number does not fit 64 bits.
    #[error("{text} has a number that is too large (byte {at})")]
    TooLarge {
        /// The text, shortened for display.
        text: String,
        /// Byte offset.
        at: usize,
    },
    /// The text behind the three numbers is neither a pre-release nor build metadata.
    #[error(
        "{text} is not a semantic version (byte {at}): after the numbers only -pre and +build may follow"
    )]
    Trailing {
        /// The text, shortened for display.
        text: String,
        /// Byte offset.
        at: usize,
    },
}

impl Classified for VersionError {
    fn id(&self) -> &'static str {
        "E-BADVERSION"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Invalid
    }
}

/// The leading numbers of a version text.
struct Numbers {
    values: Vec<u64>,
    /// (component, byte) of every number written with a superfluous zero.
    leading_zeros: Vec<(usize, usize)>,
    /// The byte offset where the numbers end.
    end: usize,
}

impl Numbers {
    fn read(text: &str) -> Result<Numbers, VersionError> {
        let bytes = text.as_bytes();
        let mut at = text.len() - text.trim_start().len();
        if bytes.get(at) == Some(&b'v') {
            at += 1;
        }
        let mut numbers = Numbers {
            values: Vec::new(),
            leading_zeros: Vec::new(),
            end: at,
        };
        loop {
            let start = at;
            let mut value = 0u64;
            while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
                value = value
                    .checked_mul(10)
                    .and_then(|value| value.checked_add(u64::from(digit - b'0')))
                    .ok_or_else(|| VersionError::TooLarge {
                        text: quoted(text),
                        at: start,
                    })?;
                at += 1;
            }
            if at == start {
                // A dot without digits behind it is not part of the numbers.
                break;
            }
            if bytes[start] == b'0' && at - start > 1 {
                numbers.leading_zeros.push((numbers.values.len(), start));
            }
            numbers.values.push(value);
            numbers.end = at;
            if bytes.get(at) != Some(&b'.') {
                break;
            }
            at += 1;
        }
        if numbers.values.is_empty() {
            return Err(VersionError::NoNumber {
                text: quoted(text),
                at: numbers.end,
            });
        }
        Ok(numbers)
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Compares by semver 2.0 precedence: no pre-release above any; numeric identifiers below
/// alphanumeric ones; fewer identifiers below more.
fn compare_pre_release(left: &str, right: &str) -> Ordering {
    match (left.is_empty(), right.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut lefts, mut rights) = (left.split('.'), right.split('.'));
    loop {
        let (left, right) = match (lefts.next(), rights.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => (left, right),
        };
        let order = match (left.parse::<u64>(), right.parse::<u64>()) {
            (Ok(left), Ok(right)) => left.cmp(&right),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => left.cmp(right),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(left: &str, right: &str) -> Ordering {
        Version::parse(left)
            .unwrap()
            .compare(&Version::parse(right).unwrap())
    }

    /// Proves: G1, G2, G3
    #[test]
    fn version_text_parses_or_is_refused_with_its_byte_offset() {
        for (text, shown, semantic) in [
            ("1.30", "1.30", false),
            (" v1.30 ", "1.30", false),
            ("1.30abc", "1.30", false),
            ("1.30.", "1.30", false),
            ("1.2.3.4", "1.2.3.4", false),
            ("1.2.3", "1.2.3", true),
            ("v1.2.3-alpha.1+git.5", "1.2.3-alpha.1+git.5", true),
            ("1.02", "1.2", false),
            ("1.02.3", "1.2.3", false),
            ("1.2.3-", "1.2.3", false),
            ("0.0", "0.0", false),
        ] {
            let version = Version::parse(text).unwrap();
            assert_eq!(version.to_string(), shown, "{text}");
            assert_eq!(version.is_semantic(), semantic, "{text}");
        }
        assert_eq!(Version::parse("1.2.3-rc.1").unwrap().pre_release(), "rc.1");
        assert_eq!(Version::parse("1.2.3+abc").unwrap().build_metadata(), "abc");
        for (text, at) in [
            ("", 0),
            ("1", 1),
            ("1.foo", 1),
            ("foo", 0),
            ("01.2", 0),
            ("-1.2", 0),
            ("  x", 2),
            ("1.99999999999999999999", 2),
        ] {
            let error = Version::parse(text).unwrap_err();
            assert_eq!(error.id(), "E-BADVERSION");
            assert!(
                error.to_string().contains(&format!("byte {at}")),
                "{text}: {error}"
            );
        }
        assert!(matches!(
            Version::parse_semantic("1.02.3"),
            Err(VersionError::LeadingZero { at: 2, .. })
        ));
        assert!(matches!(
            Version::parse_semantic("1.2"),
            Err(VersionError::NotThree { .. })
        ));
        assert!(matches!(
            Version::parse_semantic("1.2.3-a..b"),
            Err(VersionError::Trailing { .. })
        ));
    }

    /// Proves: G4
    #[test]
    fn pre_release_is_compared_only_between_semantic_versions() {
        use Ordering::{Equal, Greater, Less};
        for (left, right, expected) in [
            ("1.33", "1.33.0-alpha.1", Equal),
            ("1.33", "1.33.0", Equal),
            ("1.33.0-alpha.1", "1.33.0", Less),
            ("1.33.0-alpha.2", "1.33.0-alpha.10", Less),
            ("1.33.0-alpha.1", "1.33.0-alpha.beta", Less),
            ("1.33.0-alpha", "1.33.0-alpha.0", Less),
            ("1.33.0-rc.1", "1.33.0-beta.9", Greater),
            ("1.33.1", "1.33", Greater),
            ("1.9", "1.10", Less),
            ("2.0", "1.99", Greater),
            ("1.2.0.0", "1.2", Equal),
            ("1.2.3+a", "1.2.3+b", Equal),
        ] {
            assert_eq!(order(left, right), expected, "{left} against {right}");
            assert_eq!(
                order(right, left),
                expected.reverse(),
                "{right} against {left}"
            );
        }
    }

    /// Proves: G5, G6
    #[test]
    fn minors_saturate_and_zero_renders_empty() {
        let version = Version::parse("3.2.9-rc.1").unwrap();
        assert_eq!(version.minus_minors(1).to_string(), "3.1");
        assert_eq!(version.minus_minors(9).to_string(), "3.0");
        assert_eq!(version.plus_minors(2).to_string(), "3.4");
        assert_eq!(MajorMinor::new(3, 0).minus_minors(1), MajorMinor::new(3, 0));
        assert_eq!(version_reply_number(0), "");
        assert_eq!(version_reply_number(37), "37");
    }

    #[test]
    fn major_minor_round_trips_through_json() {
        let version: MajorMinor = serde_json::from_str("\"3.7\"").unwrap();
        assert_eq!(serde_json::to_string(&version).unwrap(), "\"3.7\"");
        assert!(serde_json::from_str::<MajorMinor>("\"three\"").is_err());
    }
}
