//! The stable identifier of each error of this crate, and its class, which every surface
//! (flags, RPC, HTTP, command line) maps the same way.

/// The classes of refusals, the same on every surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// No such feature.
    Unknown,
    /// The feature does not exist yet at the version in force.
    PreAlpha,
    /// The feature no longer exists at the version in force.
    Removed,
    /// The value is fixed at the version in force.
    Locked,
    /// A value is no boolean.
    BadBool,
    /// A name has no value.
    MissingBool,
    /// A dependency of a feature is off, or the dependency itself is illegal.
    Dependency,
    /// Registration after the registry was closed.
    Closed,
    /// A version outside its allowed range.
    Range,
    /// The same feature, component or version was given twice.
    Duplicate,
    /// Names with and without a component prefix in one process.
    MixedPrefix,
    /// No such component, or one that has no gates.
    ComponentUnknown,
    /// A request needs a feature that is off. On the wire: FailedPrecondition.
    NotEnabled,
    /// The server lacks the mechanism. On the wire: Unimplemented.
    NotImplemented,
    /// Input or a declaration that breaks a rule of its own format.
    Invalid,
}

/// An error with a stable identifier. Programs and tests match on these, never on text.
pub trait Classified {
    /// Returns the identifier, such as `E-UNKNOWN`.
    fn id(&self) -> &'static str;
    /// Returns the class shared by all surfaces.
    fn class(&self) -> ErrorClass;
}

/// How many characters of an input text an error message repeats.
const QUOTED_CHARS_MAX: usize = 60;

/// Formats an input text for an error message: in quotes, escaped, and cut.
pub(crate) fn quoted(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(QUOTED_CHARS_MAX).collect();
    if chars.next().is_some() {
        format!("{head:?}... ({} bytes)", text.len())
    } else {
        format!("{head:?}")
    }
}
