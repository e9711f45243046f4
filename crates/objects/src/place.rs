//! Where a value stands in a document, written as a path only when an error needs it.
//!
//! Names of fields come from the client and may be megabytes long, so the length of a path and the
//! number of reports are limited.

use std::fmt::{self, Write};

use crate::field::Path;

/// The most bytes of a path in a report; the rest is cut.
pub(crate) const PATH_BYTES_MAX: usize = 1024;

/// The most repeated or unknown fields that are reported for one document.
pub(crate) const REPORTS_MAX: usize = 100;

/// The place of a value, as a list of steps on the stack of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'path> {
    Root,
    Field(&'path Place<'path>, &'path str),
    Item(&'path Place<'path>, usize),
    /// A value of a map, in brackets.
    Key(&'path Place<'path>, &'path str),
}

impl Place<'_> {
    pub(crate) fn is_root(&self) -> bool {
        matches!(self, Place::Root)
    }

    pub(crate) fn path(&self) -> Path {
        Path::from_text(self.text())
    }

    /// Returns the path as text, cut to [`PATH_BYTES_MAX`].
    pub(crate) fn text(&self) -> String {
        let mut text = LimitedText(String::new());
        // A failed write means that the limit is reached.
        let _ = write!(text, "{self}");
        text.0
    }
}

/// Formats `spec.list[0].name`; the root is empty.
impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Root => Ok(()),
            Place::Field(parent, name) if parent.is_root() => f.write_str(name),
            Place::Field(parent, name) => write!(f, "{parent}.{name}"),
            Place::Item(parent, index) => write!(f, "{parent}[{index}]"),
            Place::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

struct LimitedText(String);

impl Write for LimitedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(PATH_BYTES_MAX - self.0.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.push_str(&text[..end]);
        if end < text.len() {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_cut() {
        let long = "é".repeat(PATH_BYTES_MAX);
        let parent = Place::Field(&Place::Root, "spec");
        let place = Place::Field(&parent, &long);
        let text = Place::Item(&place, 3).text();
        assert!(text.starts_with("spec.éé"));
        assert!(text.len() <= PATH_BYTES_MAX);
        assert_eq!(Place::Item(&parent, 3).text(), "spec[3]");
    }
}
