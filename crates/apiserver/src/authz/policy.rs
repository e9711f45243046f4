//! A file of policies in the ABAC format of Kubernetes.
//!
//! One JSON object per line; empty lines and lines that begin with `#` are skipped:
//!
//! ```text
//!  {"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",
//!   "spec":{"group":"readers","readonly":true,"apiGroup":"*","resource":"*","namespace":"*"}}
//! ```
//!
//! A policy allows; none denies. `*` as user or group is every user with credentials. The file is
//! read once: a changed file needs a restart, as in Kubernetes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::{Authorizer, Decision};
use crate::identity::{AUTHENTICATED, Identity};
use crate::request::RequestInfo;

const API_VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const KIND: &str = "Policy";
const ALL: &str = "*";
/// What the answer to a denied request says, as in Kubernetes.
const NO_MATCH: &str = "No policy matched.";

/// The policies of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyFile {
    policies: Vec<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Policy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    spec: Spec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    #[serde(default)]
    user: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    readonly: bool,
    #[serde(default, rename = "apiGroup")]
    api_group: String,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    non_resource_path: String,
}

/// Why a file of policies cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum PolicyFileError {
    /// The file cannot be read.
    #[error("cannot read the policy file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A line is no policy.
    #[error(
        "line {line} of the policy file is no policy: write one JSON object per line with \
         apiVersion, kind and spec"
    )]
    Json {
        line: usize,
        source: serde_json::Error,
    },
    /// A line is an object of another kind.
    #[error(
        "line {line} of the policy file is of {found}: write \"apiVersion\":\"{API_VERSION}\" and \
         \"kind\":\"{KIND}\""
    )]
    Kind { line: usize, found: String },
    /// A policy that matches no user.
    #[error(
        "line {line} of the policy file names neither a user nor a group, so that it allows \
         nothing: set spec.user or spec.group, * for all users"
    )]
    NoSubject { line: usize },
    /// A policy that matches no request.
    #[error(
        "line {line} of the policy file names neither a resource nor a path, so that it allows \
         nothing: set spec.resource and spec.apiGroup, or spec.nonResourcePath"
    )]
    NoObject { line: usize },
}

impl PolicyFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read or a line is malformed.
    pub fn from_file(path: &Path) -> Result<PolicyFile, PolicyFileError> {
        let text = fs::read_to_string(path).map_err(|source| PolicyFileError::Read {
            path: path.to_owned(),
            source,
        })?;
        PolicyFile::parse(&text)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// If a line is malformed.
    pub fn parse(text: &str) -> Result<PolicyFile, PolicyFileError> {
        let lines = text.lines().enumerate();
        let lines = lines.map(|(at, text)| (at + 1, text.trim()));
        let lines = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
        let policies = lines.map(|(line, text)| parse_line(line, text));
        Ok(PolicyFile {
            policies: policies.collect::<Result<_, _>>()?,
        })
    }
}

fn parse_line(line: usize, text: &str) -> Result<Spec, PolicyFileError> {
    let policy: Policy =
        serde_json::from_str(text).map_err(|source| PolicyFileError::Json { line, source })?;
    if policy.api_version != API_VERSION || policy.kind != KIND {
        let found = format!("{:?} {:?}", policy.api_version, policy.kind);
        return Err(PolicyFileError::Kind { line, found });
    }
    let mut spec = policy.spec;
    let is_for_all = spec.user == ALL || spec.group == ALL;
    if spec.user == ALL {
        spec.user.clear();
    }
    if is_for_all && (spec.group.is_empty() || spec.group == ALL) {
        // Never anonymous requests. A user or a group beside the `*` must still match.
        AUTHENTICATED.clone_into(&mut spec.group);
    }
    if spec.user.is_empty() && spec.group.is_empty() {
        return Err(PolicyFileError::NoSubject { line });
    }
    if spec.resource.is_empty() && spec.non_resource_path.is_empty() {
        return Err(PolicyFileError::NoObject { line });
    }
    Ok(spec)
}

impl Authorizer for PolicyFile {
    fn authorize(&self, identity: &Identity, request: &RequestInfo) -> Decision {
        let mut policies = self.policies.iter();
        match policies.any(|policy| policy.allows(identity, request)) {
            true => Decision::Allowed,
            false => Decision::Denied {
                reason: NO_MATCH.to_owned(),
            },
        }
    }
}

impl Spec {
    fn allows(&self, identity: &Identity, request: &RequestInfo) -> bool {
        self.has_subject(identity)
            && (request.is_read_only() || !self.readonly)
            && match request.is_resource {
                true => self.has_resource(request),
                false => self.has_path(&request.path),
            }
    }

    fn has_subject(&self, identity: &Identity) -> bool {
        let is_user = self.user.is_empty() || self.user == identity.user;
        let is_group = self.group.is_empty() || identity.is_in(&self.group);
        is_user && is_group
    }

    /// Subresources belong to their resource.
    fn has_resource(&self, request: &RequestInfo) -> bool {
        let matches = |own: &str, asked: &str| own == ALL || own == asked;
        matches(&self.namespace, &request.namespace)
            && matches(&self.resource, &request.resource)
            && matches(&self.api_group, &request.group)
    }

    fn has_path(&self, path: &str) -> bool {
        match self.non_resource_path.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix.trim_end_matches('*')),
            None => !self.non_resource_path.is_empty() && self.non_resource_path == path,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::Query;

    fn file(specs: &[&str]) -> PolicyFile {
        let lines = specs.iter().map(|spec| {
            format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","spec":{spec}}}"#)
        });
        let lines: Vec<String> = lines.collect();
        PolicyFile::parse(&lines.join("\n")).unwrap()
    }

    fn allows(spec: &str, identity: &Identity, method: &str, path: &str) -> bool {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = RequestInfo::parse(&method, path, &Query::default()).unwrap();
        file(&[spec]).authorize(identity, &request) == Decision::Allowed
    }

    /// A `*` for one half of the subject does not widen the other half.
    #[test]
    fn star_beside_a_name_leaves_the_name_in_force() {
        let alice = Identity::new("alice", vec!["readers".to_owned()]);
        let bob = Identity::new("bob", Vec::new());
        let path = "/apis/g/v1/things";
        let rest = r#""apiGroup":"*","resource":"*","namespace":"*"}"#;
        for (subject, for_alice, for_bob) in [
            (r#"{"user":"bob","group":"*","#, false, true),
            (r#"{"user":"*","group":"readers","#, true, false),
            (r#"{"user":"*","group":"*","#, true, true),
            (r#"{"user":"*","#, true, true),
        ] {
            let spec = format!("{subject}{rest}");
            assert_eq!(allows(&spec, &alice, "GET", path), for_alice, "{spec}");
            assert_eq!(allows(&spec, &bob, "GET", path), for_bob, "{spec}");
            let anonymous = Identity::anonymous();
            assert!(!allows(&spec, &anonymous, "GET", path), "{spec}");
        }
    }

    #[test]
    fn policy_matches_subject_verb_and_resource() {
        let alice = Identity::new("alice", vec!["readers".to_owned()]);
        let things = "/apis/g/v1/namespaces/n/things";
        for (spec, method, path, expected) in [
            (
                r#"{"user":"alice","apiGroup":"g","resource":"things","namespace":"n"}"#,
                "POST",
                things,
                true,
            ),
            (
                r#"{"user":"alice","apiGroup":"g","resource":"things","namespace":"m"}"#,
                "POST",
                things,
                false,
            ),
            (
                r#"{"user":"alice","apiGroup":"h","resource":"things","namespace":"n"}"#,
                "POST",
                things,
                false,
            ),
            (
                r#"{"user":"alice","apiGroup":"g","resource":"others","namespace":"n"}"#,
                "POST",
                things,
                false,
            ),
            (
                r#"{"user":"bob","apiGroup":"*","resource":"*","namespace":"*"}"#,
                "GET",
                things,
                false,
            ),
            (
                r#"{"user":"alice","apiGroup":"*","resource":"*","namespace":"*"}"#,
                "DELETE",
                things,
                true,
            ),
            (
                r#"{"group":"readers","readonly":true,"apiGroup":"*","resource":"*","namespace":"*"}"#,
                "GET",
                things,
                true,
            ),
            (
                r#"{"group":"readers","readonly":true,"apiGroup":"*","resource":"*","namespace":"*"}"#,
                "PUT",
                things,
                false,
            ),
            (
                r#"{"user":"alice","group":"admins","apiGroup":"*","resource":"*","namespace":"*"}"#,
                "GET",
                things,
                false,
            ),
            (
                r#"{"user":"alice","group":"readers","apiGroup":"*","resource":"*","namespace":"*"}"#,
                "GET",
                things,
                true,
            ),
            (
                r#"{"user":"alice","apiGroup":"g","resource":"things"}"#,
                "GET",
                things,
                false,
            ),
            (
                r#"{"user":"alice","apiGroup":"g","resource":"things"}"#,
                "GET",
                "/apis/g/v1/things/a/status",
                true,
            ),
            (
                r#"{"user":"alice","resource":"*","namespace":"*"}"#,
                "GET",
                things,
                false,
            ),
            (
                r#"{"user":"alice","resource":"*","namespace":"*"}"#,
                "GET",
                "/api/v1/namespaces/n",
                true,
            ),
            (
                r#"{"user":"alice","nonResourcePath":"*"}"#,
                "GET",
                things,
                false,
            ),
            (
                r#"{"user":"alice","nonResourcePath":"*"}"#,
                "GET",
                "/metrics",
                true,
            ),
            (
                r#"{"user":"alice","nonResourcePath":"/met*"}"#,
                "GET",
                "/metrics",
                true,
            ),
            (
                r#"{"user":"alice","nonResourcePath":"/metrics"}"#,
                "GET",
                "/metrics/x",
                false,
            ),
            (
                r#"{"user":"alice","nonResourcePath":"/metrics","readonly":true}"#,
                "POST",
                "/metrics",
                false,
            ),
            (
                r#"{"user":"alice","apiGroup":"*","resource":"*","namespace":"*"}"#,
                "GET",
                "/metrics",
                false,
            ),
        ] {
            assert_eq!(
                allows(spec, &alice, method, path),
                expected,
                "{spec} {method} {path}"
            );
        }
    }

    #[test]
    fn star_is_every_user_but_not_anonymous_requests() {
        for subject in ["user", "group"] {
            let spec = format!(r#"{{"{subject}":"*","nonResourcePath":"*"}}"#);
            let alice = Identity::new("alice", Vec::new());
            assert!(allows(&spec, &alice, "GET", "/metrics"));
            assert!(!allows(&spec, &Identity::anonymous(), "GET", "/metrics"));
        }
        let spec = r#"{"group":"system:unauthenticated","nonResourcePath":"/metrics"}"#;
        assert!(allows(spec, &Identity::anonymous(), "GET", "/metrics"));
    }

    #[test]
    fn file_without_policies_denies_with_a_reason() {
        let request = RequestInfo::parse(&Method::GET, "/metrics", &Query::default()).unwrap();
        let decision = file(&[]).authorize(&Identity::new("alice", Vec::new()), &request);
        let reason = NO_MATCH.to_owned();
        assert_eq!(decision, Decision::Denied { reason });
    }

    #[test]
    fn malformed_lines_are_refused_with_number_and_remedy() {
        let line = |spec: &str| {
            format!(
                "# comment\n\n{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"Policy\",\"spec\":{spec}}}"
            )
        };
        for (text, expected) in [
            ("{".to_owned(), "line 1 of the policy file is no policy"),
            (
                line(r#"{"user":"a","resources":"*"}"#),
                "line 3 of the policy file is no policy",
            ),
            (
                line(r#"{"resource":"*"}"#),
                "names neither a user nor a group",
            ),
            (
                line(r#"{"user":"a","namespace":"*"}"#),
                "names neither a resource nor a path",
            ),
            (
                r#"{"kind":"Policy","spec":{}}"#.to_owned(),
                "write \"apiVersion\":\"abac",
            ),
        ] {
            let refused = PolicyFile::parse(&text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }
}
