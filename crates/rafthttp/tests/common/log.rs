//! Records the log lines of the thread that runs a test.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Subscriber, set_default};
use tracing::{Event, Level, Metadata};

/// The lines of level INFO and above, oldest first.
#[derive(Clone, Default)]
pub struct Log {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
}

impl Log {
    /// Records until the guard is dropped.
    pub fn record() -> (Log, DefaultGuard) {
        let log = Log::default();
        let guard = set_default(log.clone());
        (log, guard)
    }

    /// The level of the first line that contains `text`.
    pub fn level_of(&self, text: &str) -> Option<Level> {
        let lines = self.lines.lock().unwrap();
        let mut found = lines.iter().filter(|(_, line)| line.contains(text));
        found.next().map(|(level, _)| *level)
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = *event.metadata().level();
        self.lines.lock().unwrap().push((level, line.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
