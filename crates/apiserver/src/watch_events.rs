//! Events of watches as JSON lines.

use bytes::Bytes;
use portunus_objects::metadata;
use portunus_objects::status::Status;
use portunus_objects::table::Columns;
use prometheus::IntCounter;
use serde_json::{Value, json};

use crate::api::Target;
use crate::metrics::Metrics;
use crate::negotiate::Form;
use crate::respond::Printing;

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The type of an event with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

impl EventKind {
    fn word(self) -> &'static str {
        match self {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        }
    }
}

/// Prints the events of one watch in the form of its client.
pub(crate) struct EventPrinter {
    printing: Printing,
    columns: Columns,
    api_version: String,
    kind: String,
    has_printed_headings: bool,
    /// Counts the events.
    printed: IntCounter,
}

impl EventPrinter {
    pub(crate) fn new(target: Target<'_>, printing: Printing, metrics: &Metrics) -> EventPrinter {
        let definition = &target.resource.definition;
        let (group, version) = (&definition.group, &target.version.name);
        EventPrinter {
            printed: metrics.watch_events(group, version, &definition.plural),
            printing,
            columns: target.version.columns.clone(),
            api_version: target.resource.api_version(&target.version.name),
            kind: target.resource.definition.kind.clone(),
            has_printed_headings: false,
        }
    }

    /// Prints an event with an object.
    pub(crate) fn line(&mut self, kind: EventKind, object: Value) -> Bytes {
        let mut object = self.printing.object(&self.columns, object);
        self.leave_out_headings(&mut object);
        self.print(kind.word(), &object)
    }

    /// Prints a bookmark: an object with a resource version and nothing else.
    pub(crate) fn bookmark(&mut self, revision: i64) -> Bytes {
        let object = self.empty_object(revision);
        self.print_bookmark(object)
    }

    /// Prints the bookmark after the initial events.
    pub(crate) fn end_of_initial_events(&mut self, revision: i64) -> Bytes {
        let mut object = self.empty_object(revision);
        metadata::set_annotation(&mut object, INITIAL_EVENTS_END, Some("true"));
        self.print_bookmark(object)
    }

    /// Prints the last event of a watch that failed.
    pub(crate) fn error(&self, status: &Status) -> Bytes {
        self.print("ERROR", &json!(status))
    }

    fn empty_object(&self, revision: i64) -> Value {
        json!({
            "kind": self.kind,
            "apiVersion": self.api_version,
            "metadata": {"resourceVersion": revision.to_string()},
        })
    }

    fn print_bookmark(&mut self, object: Value) -> Bytes {
        let mut object = match self.printing.form {
            Form::Object => object,
            Form::Table | Form::Metadata | Form::MetadataList => {
                self.printing.object(&self.columns, object)
            }
        };
        self.leave_out_headings(&mut object);
        self.print("BOOKMARK", &object)
    }

    fn print(&self, kind: &str, object: &Value) -> Bytes {
        self.printed.inc();
        line(kind, object)
    }

    /// Only the first table of a watch has headings.
    fn leave_out_headings(&mut self, table: &mut Value) {
        if self.printing.form != Form::Table {
            return;
        }
        if self.has_printed_headings
            && let Some(definitions) = table.get_mut("columnDefinitions")
        {
            *definitions = Value::Null;
        }
        self.has_printed_headings = true;
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(b"{\"type\":\"");
    bytes.extend_from_slice(kind.as_bytes());
    bytes.extend_from_slice(b"\",\"object\":");
    // A value always can be encoded; a vector takes every byte.
    let _ = serde_json::to_writer(&mut bytes, object);
    bytes.extend_from_slice(b"}\n");
    bytes.into()
}
