//! The keys of objects, in the layout of kube-apiserver for custom resources.

use portunus_objects::GroupResource;

/// The keys of one resource below a prefix such as `/registry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Ends with a slash.
    prefix: String,
}

impl Keys {
    pub(crate) fn new(root: &str, resource: &GroupResource) -> Keys {
        let root = root.trim_end_matches('/');
        let prefix = if resource.group.is_empty() {
            format!("{root}/{}/", resource.resource)
        } else {
            format!("{root}/{}/{}/", resource.group, resource.resource)
        };
        Keys { prefix }
    }

    /// Returns the prefix of the objects of a namespace; of all objects if it is empty.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        if namespace.is_empty() {
            return self.prefix.clone();
        }
        format!("{}{namespace}/", self.prefix)
    }

    /// Returns the key of an object.
    pub(crate) fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}{name}", self.collection(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: K3
    #[test]
    fn keys_have_the_layout_of_custom_resources() {
        let keys = Keys::new("/registry/", &GroupResource::new("example.io", "widgets"));
        assert_eq!(keys.collection(""), "/registry/example.io/widgets/");
        assert_eq!(keys.collection("ns"), "/registry/example.io/widgets/ns/");
        assert_eq!(keys.object("ns", "a"), "/registry/example.io/widgets/ns/a");
        assert_eq!(keys.object("", "a"), "/registry/example.io/widgets/a");
        let core = Keys::new("/registry", &GroupResource::new("", "namespaces"));
        assert_eq!(core.object("", "n"), "/registry/namespaces/n");
    }
}
