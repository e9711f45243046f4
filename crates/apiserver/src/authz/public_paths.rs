//! Paths that no policy needs to name: health for everybody, discovery for every user.
//!
//! In Kubernetes these are the cluster roles that every cluster has. Requests for resources are
//! never allowed here.

use crate::identity::{AUTHENTICATED, Identity};
use crate::request::RequestInfo;

use super::{Authorizer, Decision};

/// Readable by everybody, each with the paths below it.
const HEALTH: [&str; 3] = ["/healthz", "/livez", "/readyz"];
/// Readable by every user with credentials, each with the paths below it.
const DISCOVERY: [&str; 4] = ["/api", "/apis", "/openapi", "/version"];

/// Allows to read the paths of health and discovery.
#[derive(Debug, Clone, Copy, Default)]
pub struct PublicPaths;

impl Authorizer for PublicPaths {
    fn authorize(&self, identity: &Identity, request: &RequestInfo) -> Decision {
        let is_read = !request.is_resource && matches!(request.verb, "get" | "head");
        let is_user = || identity.is_in(AUTHENTICATED);
        Decision::from_allowed(
            is_read
                && (is_below(&request.path, &HEALTH)
                    || is_user() && is_below(&request.path, &DISCOVERY)),
        )
    }
}

fn is_below(path: &str, roots: &[&str]) -> bool {
    roots.iter().any(|root| match path.strip_prefix(root) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::Query;

    fn is_allowed(identity: &Identity, method: Method, path: &str) -> bool {
        let request = RequestInfo::parse(&method, path, &Query::default()).unwrap();
        PublicPaths.authorize(identity, &request) == Decision::Allowed
    }

    #[test]
    fn health_is_for_everybody_and_discovery_for_users() {
        let (anonymous, user) = (Identity::anonymous(), Identity::new("alice", Vec::new()));
        for (path, for_anonymous, for_user) in [
            ("/healthz", true, true),
            ("/livez/ping", true, true),
            ("/readyz/store", true, true),
            ("/readyzz", false, false),
            ("/version", false, true),
            ("/api", false, true),
            ("/api/v1", false, true),
            ("/apis/g/v1", false, true),
            ("/apis/g/v1/things", false, false),
            ("/api/v1/namespaces", false, false),
            ("/openapi/v3/apis/g/v1", false, true),
            ("/metrics", false, false),
            ("/", false, false),
        ] {
            assert_eq!(
                is_allowed(&anonymous, Method::GET, path),
                for_anonymous,
                "{path}"
            );
            assert_eq!(is_allowed(&user, Method::GET, path), for_user, "{path}");
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
                assert!(!is_allowed(&user, method.clone(), path), "{method} {path}");
            }
        }
    }
}
