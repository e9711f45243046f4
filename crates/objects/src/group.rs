//! Names of resources and kinds with their API group, as messages show them.

use std::fmt;

/// A resource of an API group, such as `olmconfigs.operators.coreos.com`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
}

impl GroupResource {
    /// Creates the name of a resource.
    #[must_use]
    pub fn new(group: &str, resource: &str) -> GroupResource {
        GroupResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }

    /// Returns whether neither group nor resource is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && self.resource.is_empty()
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, &self.resource, &self.group)
    }
}

/// A kind of an API group, such as `OLMConfig.operators.coreos.com`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// The group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

impl GroupKind {
    /// Creates the name of a kind.
    #[must_use]
    pub fn new(group: &str, kind: &str) -> GroupKind {
        GroupKind {
            group: group.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, &self.kind, &self.group)
    }
}

fn write_qualified(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    if group.is_empty() {
        return f.write_str(name);
    }
    write!(f, "{name}.{group}")
}
