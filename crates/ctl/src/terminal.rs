//! Progress and colour, for people at a terminal only.
//!
//! Both go to standard error, so that standard output has the same bytes on a terminal and in a
//! pipe. Colour also needs a terminal that is not `dumb`, and an unset or empty `NO_COLOR`.

use std::env;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crate::outcome::write_err;

/// The shortest time between two redraws of a progress line.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// The cells of a progress bar.
const BAR_CELLS: u64 = 30;
/// Returns to the first column and erases the line.
const ERASE_LINE: &str = "\r\x1b[K";

/// One line on standard error that shows how far long work is. Erased when dropped.
#[derive(Debug)]
pub struct Progress {
    label: &'static str,
    is_shown: bool,
    drawn_at: Option<Instant>,
}

impl Progress {
    /// A progress line; without a terminal nothing is ever written.
    pub fn new(label: &'static str) -> Self {
        Self {
            label,
            is_shown: io::stderr().is_terminal(),
            drawn_at: None,
        }
    }

    /// Shows that `done` of `all` parts are finished; `unit` formats a number of parts.
    pub fn part(&mut self, done: u64, all: u64, unit: impl Fn(u64) -> String) {
        if self.is_due() {
            let line = bar_line(self.label, done, all, unit);
            self.draw(&line);
        }
    }

    /// Shows a text, for work whose end is unknown.
    pub fn text(&mut self, text: impl FnOnce() -> String) {
        if self.is_due() {
            let line = format!("{} {}", self.label, text());
            self.draw(&line);
        }
    }

    /// Erases the line, before something else is printed.
    pub fn clear(&mut self) {
        if self.drawn_at.take().is_some() {
            write_err(ERASE_LINE.as_bytes());
        }
    }

    fn is_due(&self) -> bool {
        let is_old = |at: Instant| at.elapsed() >= REDRAW_INTERVAL;
        self.is_shown && self.drawn_at.is_none_or(is_old)
    }

    fn draw(&mut self, line: &str) {
        self.drawn_at = Some(Instant::now());
        write_err(format!("{ERASE_LINE}{line}").as_bytes());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the label, a bar, the percentage and both numbers.
fn bar_line(label: &str, done: u64, all: u64, unit: impl Fn(u64) -> String) -> String {
    let done = done.min(all);
    let share = |parts: u64| done.saturating_mul(parts).checked_div(all).unwrap_or(0);
    let (cells, percent) = (share(BAR_CELLS), share(100));
    let bar: String = (0..BAR_CELLS)
        .map(|cell| if cell < cells { '#' } else { '.' })
        .collect();
    format!("{label} [{bar}] {percent}% {} of {}", unit(done), unit(all))
}

/// Returns whether text on standard error may have colour.
pub fn is_coloured_stderr() -> bool {
    io::stderr().is_terminal() && allows_colour(|name| env::var(name).ok())
}

/// Returns whether text on standard output may have colour.
pub fn is_coloured_stdout() -> bool {
    io::stdout().is_terminal() && allows_colour(|name| env::var(name).ok())
}

/// The rule of no-color.org: a variable that is set and not empty forbids colour.
fn allows_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_forbidden = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_forbidden && variable("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Failures.
    Red,
    /// Successes.
    Green,
    /// What was skipped.
    Yellow,
}

impl Colour {
    /// Returns the text in this colour, or unchanged if `is_coloured` is not set.
    pub fn paint(self, text: &str, is_coloured: bool) -> String {
        if !is_coloured {
            return text.to_owned();
        }
        let code = match self {
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_shows_share_percentage_and_numbers() {
        let line = bar_line("restoring", 5, 10, |parts| format!("{parts} MB"));
        let bar = format!("{}{}", "#".repeat(15), ".".repeat(15));
        assert_eq!(line, format!("restoring [{bar}] 50% 5 MB of 10 MB"));
        let empty = bar_line("x", 0, 0, |parts| parts.to_string());
        assert!(empty.ends_with("] 0% 0 of 0"), "{empty}");
        let beyond = bar_line("x", 20, 10, |parts| parts.to_string());
        assert!(beyond.ends_with("] 100% 10 of 10"), "{beyond}");
    }

    #[test]
    fn no_color_and_dumb_terminals_forbid_colour() {
        for (variables, expected) in [
            (&[][..], true),
            (&[("NO_COLOR", "")], true),
            (&[("NO_COLOR", "1")], false),
            (&[("TERM", "xterm")], true),
            (&[("TERM", "dumb")], false),
        ] {
            let lookup = |name: &str| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(allows_colour(lookup), expected, "{variables:?}");
        }
        assert_eq!(Colour::Red.paint("x", false), "x");
        assert_eq!(Colour::Green.paint("x", true), "\x1b[32mx\x1b[0m");
    }
}
