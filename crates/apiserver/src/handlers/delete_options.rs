//! Options of deletions, from the query and the body.

use portunus_objects::GroupResource;
use portunus_objects::decode::decode_object;
use portunus_objects::field::{FieldError, Path};
use portunus_objects::metadata;
use portunus_objects::status::Status;
use serde::Deserialize;
use serde_json::Value;

use super::context::{Context, dry_run_error, invalid_options};
use crate::failure::{Failure, Outcome};
use crate::negotiate::{BodyFormat, body_format};
use crate::protobuf;
use crate::store::Stored;

const POLICIES: [&str; 3] = ["Foreground", "Background", "Orphan"];
/// The policies as the refusal lists them: none is allowed too.
const POLICIES_SHOWN: [&str; 4] = ["Foreground", "Background", "Orphan", "nil"];

/// What must hold of an object that is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The options of a deletion. Policies about dependents are checked, and have no effect: no
/// controller here collects them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DeleteOptions {
    preconditions: Option<Preconditions>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    grace_period_seconds: Option<i64>,
    dry_run: Vec<String>,
}

impl DeleteOptions {
    /// Reads the options of a request.
    pub(super) fn parse(context: &Context<'_>) -> Outcome<DeleteOptions> {
        let mut options = if context.body.is_empty() {
            DeleteOptions::default()
        } else {
            let value = decode(context)?;
            check_kind(&value)?;
            serde_json::from_value(value).map_err(|error| unreadable(&error.to_string()))?
        };
        let policy = context.query.get("propagationPolicy");
        if !policy.is_empty() {
            options.propagation_policy = Some(policy.to_owned());
        }
        let dry_run = context.query.all("dryRun").map(str::to_owned);
        options.dry_run.extend(dry_run);
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Outcome<()> {
        let mut errors = Vec::new();
        if let Some(policy) = &self.propagation_policy
            && !POLICIES.contains(&policy.as_str())
        {
            errors.push(FieldError::not_supported(
                &Path::new("propagationPolicy"),
                policy.as_str(),
                POLICIES_SHOWN,
            ));
        }
        if self.propagation_policy.is_some() && self.orphan_dependents.is_some() {
            errors.push(FieldError::invalid(
                &Path::new("propagationPolicy"),
                self.propagation_policy.clone(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        errors.extend(dry_run_error(&self.dry_run));
        if errors.is_empty() {
            return Ok(());
        }
        Err(invalid_options("DeleteOptions", &errors))
    }

    pub(super) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// Refuses an object that does not meet the preconditions.
    pub(super) fn check_object(
        &self,
        context: &Context<'_>,
        name: &str,
        stored: &Stored,
    ) -> Outcome<()> {
        let Some(preconditions) = &self.preconditions else {
            return Ok(());
        };
        let uid = metadata::uid(&stored.object);
        let version = stored.revision.to_string();
        let pairs = [
            (
                "UID",
                &preconditions.uid,
                uid,
                "The object might have been deleted and then recreated",
            ),
            (
                "ResourceVersion",
                &preconditions.resource_version,
                &version,
                "The object might have been modified",
            ),
        ];
        for (what, wanted, found, guess) in pairs {
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). {guess}"
                );
                // Kubernetes names the kind here, not the resource.
                let kind = &context.target.resource.kind;
                let kind = GroupResource::new(&kind.group, &kind.kind);
                return Err(Status::conflict(&kind, name, &why).into());
            }
        }
        Ok(())
    }
}

/// Decodes the body, which is no object of the resource but has its formats.
fn decode(context: &Context<'_>) -> Outcome<Value> {
    let has_protobuf = context.target.version.protobuf.is_some();
    match body_format(context.headers, has_protobuf)? {
        BodyFormat::Json => decode_object(&context.body)
            .map(|decoded| decoded.value)
            .map_err(|error| unreadable(&error.to_string())),
        BodyFormat::Protobuf => {
            let decoder = protobuf::decode_message::<protobuf::DeleteOptions>;
            protobuf::decode(&context.body, decoder).map_err(|error| unreadable(&error.to_string()))
        }
    }
}

/// Refuses a body of another kind; without one it is taken for options.
fn check_kind(options: &Value) -> Outcome<()> {
    match metadata::kind(options) {
        "" | "DeleteOptions" => Ok(()),
        kind => {
            let why = format!("the body of a deletion is a {kind}; it must be DeleteOptions");
            Err(Status::bad_request(&why).into())
        }
    }
}

fn unreadable(error: &str) -> Failure {
    let why = format!("couldn't get version/kind; json parse error: {error}");
    Status::bad_request(&why).into()
}
