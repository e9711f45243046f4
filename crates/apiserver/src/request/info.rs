//! What a request asks for, by its method and path.
//!
//! ```text
//!  /api/v1/namespaces/ns/things/name/status      the core group
//!  /apis/group/version/things                    all other groups
//!  anything else                                 not a resource: discovery, health, metrics
//! ```
//!
//! Authorisation and the handlers use the same value, so that what is authorised is what is done.

use http::Method;
use percent_encoding::percent_decode_str;

use super::query::Query;

/// The part of the path that a subresource or a name must not look like.
const SPECIAL_SEGMENTS: [&str; 2] = [".", ".."];

/// A request, by method and path. The words of verbs are those of Kubernetes' policies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestInfo {
    /// The path with decoded segments.
    pub path: String,
    /// Whether the path names a resource.
    pub is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; the
    /// method in lower case where the path names no resource.
    pub verb: &'static str,
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The namespace; empty for a cluster-scoped resource and for all namespaces.
    pub namespace: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The name of the object; empty for a collection. A collection that is selected by
    /// `metadata.name` has that name, so that a permission for one object suffices.
    pub name: String,
}

/// A path that cannot name anything: empty, `.` or `..` segments, encoded slashes, bad encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPath;

impl RequestInfo {
    /// Parses method, path and query.
    ///
    /// # Errors
    /// If the path is malformed.
    pub fn parse(method: &Method, path: &str, query: &Query) -> Result<RequestInfo, BadPath> {
        let segments = segments(path)?;
        let mut info = RequestInfo {
            path: format!("/{}", segments.join("/")),
            verb: plain_verb(method),
            ..RequestInfo::default()
        };
        let rest = match segments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["api", version, ..] => {
                version.clone_into(&mut info.version);
                &segments[2..]
            }
            ["apis", group, version, ..] => {
                group.clone_into(&mut info.group);
                version.clone_into(&mut info.version);
                &segments[3..]
            }
            _ => return Ok(info),
        };
        let Some(rest) = info.take_namespace(rest) else {
            return Ok(info);
        };
        info.is_resource = true;
        info.resource.clone_from(&rest[0]);
        if let Some(name) = rest.get(1) {
            info.name.clone_from(name);
        }
        if let Some(subresource) = rest.get(2) {
            info.subresource.clone_from(subresource);
        }
        if rest.len() > 3 {
            // Deeper paths belong to proxies and the like, which no resource here has.
            info.subresource = rest[2..].join("/");
        }
        info.verb = info.resource_verb(method, query);
        if info.name.is_empty() && matches!(info.verb, "list" | "watch" | "deletecollection") {
            info.name = query.selected_name().unwrap_or_default();
        }
        Ok(info)
    }

    /// Reads `namespaces/<name>/` before a resource. Returns the segments from the resource on;
    /// none if there is no resource.
    fn take_namespace<'path>(&mut self, rest: &'path [String]) -> Option<&'path [String]> {
        if rest.is_empty() {
            return None;
        }
        if rest[0] != "namespaces" || rest.len() < 2 {
            return Some(rest);
        }
        self.namespace.clone_from(&rest[1]);
        let is_namespace_itself =
            rest.len() == 2 || (rest.len() == 3 && matches!(&*rest[2], "status" | "finalize"));
        if is_namespace_itself {
            return Some(rest);
        }
        Some(&rest[2..])
    }

    fn resource_verb(&self, method: &Method, query: &Query) -> &'static str {
        let is_watch = query.flag("watch");
        match *method {
            Method::GET | Method::HEAD if self.name.is_empty() && is_watch => "watch",
            Method::GET | Method::HEAD if self.name.is_empty() => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if self.name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        }
    }

    /// Returns whether the request only reads.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch" | "head" | "options")
    }

    /// Returns whether the request lasts as long as the client wants.
    #[must_use]
    pub fn is_long_running(&self) -> bool {
        self.is_resource && self.verb == "watch"
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

/// Splits and decodes a path. One slash at the end is ignored.
fn segments(path: &str) -> Result<Vec<String>, BadPath> {
    let path = path.strip_prefix('/').ok_or(BadPath)?;
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    path.split('/').map(decode_segment).collect()
}

fn decode_segment(segment: &str) -> Result<String, BadPath> {
    let decoded = percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| BadPath)?;
    let is_bad = decoded.is_empty()
        || SPECIAL_SEGMENTS.contains(&&*decoded)
        || decoded.contains(['/', '\0', '%']);
    if is_bad {
        return Err(BadPath);
    }
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, target: &str) -> Result<RequestInfo, BadPath> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        RequestInfo::parse(&method, path, &Query::parse(query))
    }

    fn words(info: &RequestInfo) -> [&str; 7] {
        [
            info.verb,
            &info.group,
            &info.version,
            &info.namespace,
            &info.resource,
            &info.name,
            &info.subresource,
        ]
    }

    #[test]
    fn paths_of_resources_are_parsed() {
        let cases = [
            (
                "GET",
                "/apis/g/v1/things",
                ["list", "g", "v1", "", "things", "", ""],
            ),
            (
                "GET",
                "/apis/g/v1/things?watch=1",
                ["watch", "g", "v1", "", "things", "", ""],
            ),
            (
                "GET",
                "/apis/g/v1/things?watch=false",
                ["list", "g", "v1", "", "things", "", ""],
            ),
            (
                "GET",
                "/apis/g/v1/things/a?watch=1",
                ["get", "g", "v1", "", "things", "a", ""],
            ),
            (
                "POST",
                "/api/v1/namespaces/n/things",
                ["create", "", "v1", "n", "things", "", ""],
            ),
            (
                "PUT",
                "/api/v1/namespaces/n/things/a/status",
                ["update", "", "v1", "n", "things", "a", "status"],
            ),
            (
                "GET",
                "/api/v1/namespaces/n",
                ["get", "", "v1", "n", "namespaces", "n", ""],
            ),
            (
                "GET",
                "/api/v1/namespaces/n/status",
                ["get", "", "v1", "n", "namespaces", "n", "status"],
            ),
            (
                "GET",
                "/api/v1/namespaces",
                ["list", "", "v1", "", "namespaces", "", ""],
            ),
            (
                "DELETE",
                "/apis/g/v1/things",
                ["deletecollection", "g", "v1", "", "things", "", ""],
            ),
            (
                "DELETE",
                "/apis/g/v1/things/a/",
                ["delete", "g", "v1", "", "things", "a", ""],
            ),
            (
                "PATCH",
                "/apis/g/v1/things/a%20b",
                ["patch", "g", "v1", "", "things", "a b", ""],
            ),
            (
                "GET",
                "/apis/g/v1/things?fieldSelector=metadata.name%3Da",
                ["list", "g", "v1", "", "things", "a", ""],
            ),
        ];
        for (method, target, expected) in cases {
            let info = info(method, target).unwrap();
            assert!(info.is_resource, "{target}");
            assert_eq!(words(&info), expected, "{target}");
        }
    }

    #[test]
    fn other_paths_name_no_resource() {
        for target in [
            "/",
            "/api",
            "/apis",
            "/apis/g",
            "/apis/g/v1",
            "/api/v1",
            "/healthz",
            "/openapi/v3/apis/g/v1",
        ] {
            let info = info("GET", target).unwrap();
            assert!(!info.is_resource, "{target}");
            assert_eq!(info.verb, "get");
            assert_eq!(info.path, target);
        }
    }

    #[test]
    fn tricks_with_paths_are_refused() {
        for target in [
            "",
            "apis",
            "//apis",
            "/apis//g",
            "/apis/g/v1/things//",
            "/apis/g/v1/../v2",
            "/apis/g/v1/%2e%2e/x",
            "/apis/g/v1/things/a%2fb",
            "/apis/g/v1/things/a%00",
            "/apis/g/v1/things/a%252fb",
            "/apis/g/v1/things/%ff",
            "/apis/g/./v1",
        ] {
            assert_eq!(info("GET", target), Err(BadPath), "{target}");
        }
    }
}
