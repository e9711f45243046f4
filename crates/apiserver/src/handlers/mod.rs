//! What requests to resources do. A handler runs after authorisation.

mod collection;
mod context;
mod create;
mod delete;
mod delete_options;
mod get;
mod list;
mod list_options;
mod patch;
mod selection;
mod update;
mod watch;
mod write;

pub(crate) use context::Context;

use http::Response;
use portunus_objects::status::Status;

use crate::body::Body;
use crate::definition::Backing;
use crate::failure::{Failure, Outcome};

/// Answers a request to a resource.
pub(crate) async fn handle(context: &Context<'_>) -> Outcome<Response<Body>> {
    check_scope(context)?;
    check_subresource(context)?;
    context.warn_of_deprecation();
    if let Backing::Collection(states) = &context.target.resource.definition.backing {
        return collection::handle(context, states).await;
    }
    match context.info.verb {
        "get" => get::get(context).await,
        "list" => list::list(context).await,
        "watch" => watch::watch(context).await,
        "create" => create::create(context).await,
        "update" => update::update(context).await,
        "patch" => patch::patch(context).await,
        "delete" => delete::delete(context).await,
        "deletecollection" => delete::delete_collection(context).await,
        _ => Err(not_supported(context)),
    }
}

fn not_supported(context: &Context<'_>) -> Failure {
    let action = match context.info.verb {
        "" => "the method",
        verb => verb,
    };
    Status::method_not_supported(&context.target.resource.name, action).into()
}

/// Refuses paths with a namespace for a cluster-scoped resource, and the reverse.
fn check_scope(context: &Context<'_>) -> Outcome<()> {
    let info = context.info;
    let is_namespaced = context.target.resource.definition.namespaced;
    let is_namespace_itself = info.group.is_empty() && info.resource == "namespaces";
    let has_namespace = !info.namespace.is_empty() && !is_namespace_itself;
    if !is_namespaced && has_namespace {
        return Err(Status::unknown_path("").into());
    }
    if is_namespaced && !has_namespace {
        return match info.verb {
            "list" | "watch" => Ok(()),
            "deletecollection" | "create" => Err(Status::method_not_allowed().into()),
            _ => Err(Status::unknown_path("").into()),
        };
    }
    Ok(())
}

fn check_subresource(context: &Context<'_>) -> Outcome<()> {
    let info = context.info;
    if info.subresource.is_empty() {
        let needs_name = matches!(info.verb, "update" | "patch");
        let refuses_name = info.verb == "create";
        let is_named = !info.name.is_empty();
        return match (needs_name && !is_named) || (refuses_name && is_named) {
            true => Err(Status::method_not_allowed().into()),
            false => Ok(()),
        };
    }
    if context
        .target
        .served
        .subresource(&info.subresource)
        .is_none()
    {
        return Err(Status::unknown_path("").into());
    }
    match info.verb {
        "get" | "update" | "patch" => Ok(()),
        _ => Err(not_supported(context)),
    }
}
