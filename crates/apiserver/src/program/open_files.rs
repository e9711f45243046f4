//! The limit of open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to the one that the system allows, as the runtime of Go does for
/// kube-apiserver. Where that fails, there are fewer connections.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
