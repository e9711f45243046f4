//! Reading a collection, whole or in parts.

use bytes::Bytes;
use http::{Response, StatusCode};
use portunus_client::kubernetes::{self, Error, GetOptions, KeyValue};
use portunus_objects::table::ListMeta;
use serde_json::Value;

use super::context::Context;
use super::list_options::{Consistency, ListOptions, check_not_too_new};
use super::selection::Selection;
use crate::body::Body;
use crate::failure::{Failure, Outcome};
use crate::respond::json_response;
use crate::store::{ContinueToken, INCONSISTENT, expired_continue};

/// The most objects that one request to the store reads.
const PAGE_MAX: i64 = 10_000;
/// The size of the first page of a list without a limit.
const PAGE_FIRST: i64 = 500;

/// A part of a collection.
pub(super) struct Part {
    /// The selected objects in the version of the request.
    pub(super) items: Vec<Value>,
    /// The revision of the state.
    pub(super) revision: i64,
    continue_token: String,
    remaining: Option<i64>,
}

pub(super) async fn list(context: &Context<'_>) -> Outcome<Response<Body>> {
    let printing = context.printing()?;
    let options = ListOptions::parse(context.query)?;
    let selection = Selection::parse(context)?;
    let part = read(context, &options, &selection).await?;
    context.check_form(printing)?;
    let list = ListMeta {
        resource_version: part.revision.to_string(),
        continue_token: part.continue_token,
        remaining_item_count: part.remaining,
    };
    let document = printing.list(context.target, part.items, list);
    Ok(json_response(StatusCode::OK, &document))
}

/// Reads the selected objects.
pub(super) async fn read(
    context: &Context<'_>,
    options: &ListOptions,
    selection: &Selection,
) -> Outcome<Part> {
    let is_whole_namespace =
        !context.target.resource.definition.namespaced || !context.namespace().is_empty();
    let at_least = match options.consistency {
        Consistency::Newest { at_least } => Some(at_least),
        // One object is not a list in parts: the limit does not count.
        Consistency::At(revision) if options.is_exact_by_limit => Some(revision),
        _ => None,
    };
    let single_name = selection.name().filter(|_| is_whole_namespace);
    if let (Some(name), Some(at_least)) = (single_name, at_least) {
        return read_one(context, at_least, selection, name).await;
    }
    let mut part = Pages::new(context, options, selection).read().await?;
    if single_name.is_some() {
        // The only object was found, or there is none.
        part.continue_token.clear();
        part.remaining = None;
    }
    Ok(part)
}

/// Reads the only object that a field selector can select.
async fn read_one(
    context: &Context<'_>,
    at_least: i64,
    selection: &Selection,
    name: &str,
) -> Outcome<Part> {
    let key = context.keys.object(context.namespace(), name);
    let read = context.store().get(key.as_bytes(), GetOptions::default());
    let read = read.await.map_err(|error| context.store_failure(&error))?;
    check_not_too_new(at_least, read.revision)?;
    let mut items = Vec::new();
    if let Some(kv) = read.kv {
        let object = context.decode(&kv.value, kv.mod_revision)?;
        if selection.matches(context.target.resource, &object) {
            items.push(object);
        }
    }
    Ok(Part {
        items,
        revision: read.revision,
        continue_token: String::new(),
        remaining: None,
    })
}

/// The pages of one list. The first page fixes the revision of the others.
struct Pages<'list> {
    context: &'list Context<'list>,
    options: &'list ListOptions,
    selection: &'list Selection,
    prefix: String,
    items: Vec<Value>,
}

impl<'list> Pages<'list> {
    fn new(
        context: &'list Context<'list>,
        options: &'list ListOptions,
        selection: &'list Selection,
    ) -> Pages<'list> {
        Pages {
            prefix: context.keys.collection(context.namespace()),
            context,
            options,
            selection,
            items: Vec::new(),
        }
    }

    async fn read(mut self) -> Outcome<Part> {
        let (mut revision, mut from) = self.start();
        let limit = self.options.limit;
        let mut page = if limit > 0 {
            limit.min(PAGE_MAX)
        } else {
            PAGE_FIRST
        };
        loop {
            let read = self.read_page(revision, &from, page).await?;
            if revision == 0 {
                if let Consistency::Newest { at_least } = self.options.consistency {
                    check_not_too_new(at_least, read.revision)?;
                }
                revision = read.revision;
            }
            let returned = i64::try_from(read.kvs.len()).unwrap_or(i64::MAX);
            let mut used = 0;
            let mut last_key = Bytes::new();
            for kv in read.kvs {
                if self.is_full() {
                    break;
                }
                used += 1;
                last_key = kv.key.clone();
                self.take(kv)?;
            }
            let remaining = read.count - used;
            if remaining <= 0 || returned == 0 {
                return Ok(self.part(revision, None, remaining));
            }
            from = after(&last_key);
            if self.is_full() {
                return Ok(self.part(revision, Some(&from), remaining));
            }
            page = (page * 2).min(PAGE_MAX);
        }
    }

    /// Returns the revision to read, or 0, and the first key, or empty.
    fn start(&self) -> (i64, Bytes) {
        match &self.options.consistency {
            Consistency::Newest { .. } => (0, Bytes::new()),
            Consistency::At(revision) => (*revision, Bytes::new()),
            Consistency::Continue(token) => {
                let from = format!("{}{}", self.prefix, token.start);
                let revision = match token.revision {
                    INCONSISTENT => 0,
                    revision => revision,
                };
                (revision, from.into())
            }
        }
    }

    async fn read_page(
        &self,
        revision: i64,
        from: &Bytes,
        page: i64,
    ) -> Outcome<kubernetes::ListResponse> {
        let options = kubernetes::ListOptions {
            revision,
            limit: page,
            continue_key: from.clone(),
        };
        let store = self.context.store();
        match store.list(self.prefix.as_bytes(), options).await {
            Ok(read) => Ok(read),
            Err(Error::FutureRevision) => Err(self.too_new(revision).await),
            Err(error) => Err(self.failure(from, &error)),
        }
    }

    /// Returns the answer to a revision that the store has not reached, with the newest one.
    async fn too_new(&self, revision: i64) -> Failure {
        let store = self.context.store();
        let read = store.get(self.prefix.as_bytes(), GetOptions::default());
        match read.await {
            Ok(read) => match check_not_too_new(revision, read.revision) {
                Err(failure) => failure,
                // The store has reached it meanwhile; the client may try again.
                Ok(()) => self.context.store_failure(&Error::FutureRevision),
            },
            Err(error) => self.context.store_failure(&error),
        }
    }

    fn failure(&self, from: &Bytes, error: &Error) -> Failure {
        let start = from
            .strip_prefix(self.prefix.as_bytes())
            .unwrap_or_default();
        match error {
            Error::Compacted { .. } if !start.is_empty() => {
                let (mut failure, token) = expired_continue(&String::from_utf8_lossy(start));
                failure.status_mut().metadata.continue_token = token;
                failure
            }
            error => self.context.store_failure(error),
        }
    }

    fn is_full(&self) -> bool {
        let limit = usize::try_from(self.options.limit).unwrap_or_default();
        limit > 0 && self.items.len() >= limit
    }

    fn take(&mut self, kv: KeyValue) -> Outcome<()> {
        let object = self.context.decode(&kv.value, kv.mod_revision)?;
        let resource = self.context.target.resource;
        if self.selection.matches(resource, &object) {
            self.items.push(object);
        }
        Ok(())
    }

    fn part(self, revision: i64, next: Option<&Bytes>, remaining: i64) -> Part {
        let start = next.and_then(|key| key.strip_prefix(self.prefix.as_bytes()));
        let token = start.map(|start| ContinueToken {
            revision,
            start: String::from_utf8_lossy(start).into_owned(),
        });
        let shows_remaining = token.is_some() && self.selection.is_everything();
        Part {
            items: self.items,
            revision,
            continue_token: token.map(|token| token.encode()).unwrap_or_default(),
            remaining: shows_remaining.then_some(remaining),
        }
    }
}

/// Returns the first key after a key.
fn after(key: &[u8]) -> Bytes {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}
