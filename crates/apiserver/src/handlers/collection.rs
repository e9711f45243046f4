//! Resources whose objects come from a collection: reads and watches.

use std::sync::Arc;

use http::{Response, StatusCode};
use portunus_objects::metadata;
use portunus_objects::status::Status;
use portunus_objects::table::ListMeta;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::context::Context;
use super::list_options::{Consistency, ListOptions, WatchOptions, check_not_too_new};
use super::selection::Selection;
use super::watch::{response, timeout};
use crate::body::Body;
use crate::collection::{Collection, History};
use crate::failure::Outcome;
use crate::respond::json_response;
use crate::watch_events::{EventKind, EventPrinter};

pub(super) async fn handle(
    context: &Context<'_>,
    states: &watch::Receiver<Arc<History>>,
) -> Outcome<Response<Body>> {
    match context.info.verb {
        "get" => get(context, &states.borrow().newest()),
        "list" => list(context, &states.borrow().newest()),
        "watch" => watch_changes(context, states.clone()),
        _ => Err(super::not_supported(context)),
    }
}

/// Returns an object of a state in the version of the request.
fn shown(context: &Context<'_>, state: &Collection, object: &Value) -> Outcome<Value> {
    let mut object = context.to_request_version(object.clone())?;
    metadata::set(&mut object, "resourceVersion", state.version.to_string());
    Ok(object)
}

fn get(context: &Context<'_>, state: &Collection) -> Outcome<Response<Body>> {
    let object = state.objects.get(&context.info.name);
    let object = object.ok_or_else(|| context.not_found())?;
    let object = shown(context, state, object)?;
    let printing = context.printing()?;
    context.check_form(printing)?;
    let document = printing.object(&context.target.version.columns, object);
    Ok(json_response(StatusCode::OK, &document))
}

fn selected(
    context: &Context<'_>,
    state: &Collection,
    selection: &Selection,
) -> Outcome<Vec<Value>> {
    let objects = state.objects.values();
    let objects = objects.map(|object| shown(context, state, object));
    let matches = |object: &Outcome<Value>| match object {
        Ok(object) => selection.matches(context.target.resource, object),
        Err(_) => true,
    };
    objects.filter(matches).collect()
}

/// Lists all objects; a collection is small, so a limit has no effect.
fn list(context: &Context<'_>, state: &Collection) -> Outcome<Response<Body>> {
    let printing = context.printing()?;
    let options = ListOptions::parse(context.query)?;
    match options.consistency {
        Consistency::Newest { at_least } => check_not_too_new(at_least, state.version)?,
        Consistency::At(revision) if revision == state.version => {}
        Consistency::At(_) | Consistency::Continue(_) => {
            let text = "The resourceVersion for the provided list is too old.";
            return Err(Status::expired(text).into());
        }
    }
    let selection = Selection::parse(context)?;
    let items = selected(context, state, &selection)?;
    context.check_form(printing)?;
    let list = ListMeta {
        resource_version: state.version.to_string(),
        ..ListMeta::default()
    };
    let document = printing.list(context.target, items, list);
    Ok(json_response(StatusCode::OK, &document))
}

/// One object of a collection before and after a change.
type Step = (EventKind, Value);

fn watch_changes(
    context: &Context<'_>,
    mut states: watch::Receiver<Arc<History>>,
) -> Outcome<Response<Body>> {
    let printing = context.printing()?;
    let options = WatchOptions::parse(context.query)?;
    let selection = Selection::parse(context)?;
    let deadline = Instant::now() + timeout(context)?;
    let mut printer = EventPrinter::new(context.target, printing, &context.shared.metrics);
    let history = Arc::clone(&states.borrow_and_update());
    let (mut state, initial) = match options.after {
        Some(after) => match history.at(after) {
            Some(state) => (state, Vec::new()),
            None => {
                let status =
                    Status::expired("The resourceVersion for the provided watch is too old.");
                let line = printer.error(&status);
                return Ok(response(async_stream::stream! { yield line; }));
            }
        },
        None if options.sends_initial_events => {
            let state = history.newest();
            let items = selected(context, &state, &selection)?;
            (state, items)
        }
        None => (history.newest(), Vec::new()),
    };
    let shared = Arc::clone(context.shared);
    let (group, version, plural) = (
        context.info.group.clone(),
        context.info.version.clone(),
        context.info.resource.clone(),
    );
    Ok(response(async_stream::stream! {
        for object in initial {
            yield printer.line(EventKind::Added, object);
        }
        if options.marks_end_of_initial_events {
            yield printer.end_of_initial_events(state.version);
        }
        loop {
            let history = Arc::clone(&states.borrow_and_update());
            let newest = history.newest();
            if let Some(resource) = shared.api.resource(&group, &plural) {
                for (kind, mut object) in steps(&state, &newest) {
                    let converted = resource.conversions.convert(&mut object, &version);
                    metadata::set(&mut object, "resourceVersion", newest.version.to_string());
                    if converted.is_ok() && selection.matches(resource, &object) {
                        yield printer.line(kind, object);
                    }
                }
            }
            state = newest;
            tokio::select! {
                () = sleep_until(deadline) => break,
                () = shared.drain.ending() => break,
                changed = states.changed() => if changed.is_err() { break },
            }
        }
        if options.sends_bookmarks {
            yield printer.bookmark(state.version);
        }
    }))
}

/// Returns the changes between two states.
fn steps(before: &Collection, after: &Collection) -> Vec<Step> {
    if before.version == after.version {
        return Vec::new();
    }
    let gone = before.objects.iter();
    let gone = gone.filter(|(name, _)| !after.objects.contains_key(*name));
    let gone = gone.map(|(_, object)| (EventKind::Deleted, object.clone()));
    let changed =
        after
            .objects
            .iter()
            .filter_map(|(name, object)| match before.objects.get(name) {
                None => Some((EventKind::Added, object.clone())),
                Some(old) if old != object => Some((EventKind::Modified, object.clone())),
                Some(_) => None,
            });
    gone.chain(changed).collect()
}
