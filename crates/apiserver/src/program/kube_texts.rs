//! The texts of kube-apiserver for wrong version and feature flags.
//!
//! Operators and tools match on these texts; the rules, and the remedies behind the texts, are
//! those of the gates library.

use portunus_gates::{ComponentError, ComponentFlagError, ValidateError, VersionRangeError};

/// Returns the text for flags that cannot be parsed.
pub fn flag_text(error: &ComponentFlagError) -> String {
    match error {
        ComponentFlagError::Patch {
            component,
            version,
            wanted,
            ..
        } => {
            let (component, version) = (unquoted(component), unquoted(version));
            format!("patch version not allowed, got: {component}={version}: write {wanted}")
        }
        ComponentFlagError::DuplicateVersion {
            component,
            first,
            second,
            ..
        } => {
            let component = unquoted(component);
            format!(
                "duplicate version flag, {component}={first} and {component}={second}: keep one"
            )
        }
        ComponentFlagError::MixedPrefix { .. } => "set kube feature gates with default empty \
             prefix or kube: prefix consistently, do not mix use"
            .to_owned(),
        other => with_causes(other),
    }
}

/// Returns the text for flags that do not fit the components.
pub fn component_text(error: &ComponentError) -> String {
    match error {
        ComponentError::Unknown { name } => {
            let name = unquoted(name);
            format!("component not registered: {name}: use kube or portunus")
        }
        ComponentError::MapFlag { name, from } => format!(
            "EmulationVersion of {name} is set by mapping, cannot set it by flag: set {from} instead"
        ),
        ComponentError::Flags(error) => flag_text(error),
        other => with_causes(other),
    }
}

/// Returns the texts for versions and features that are not allowed.
pub fn validate_texts(error: &ValidateError) -> Vec<String> {
    match error {
        ValidateError::Range { source, .. } => source.0.iter().map(range_text).collect(),
        other => vec![other.to_string()],
    }
}

fn range_text(error: &VersionRangeError) -> String {
    match error {
        VersionRangeError::Emulation {
            version,
            lowest,
            highest,
        } => format!("emulation version {version} is not between [{lowest}, {highest}]"),
        VersionRangeError::MinCompat {
            version,
            lowest,
            highest,
        } => format!(
            "minCompatibilityVersion version {version} is not between [{lowest}, {highest}]"
        ),
        other => other.to_string(),
    }
}

/// Returns a name without the quotation marks that the gates library puts around text of users.
fn unquoted(text: &str) -> &str {
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or(text)
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
