//! Log lines: for people on a terminal, as JSON otherwise.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::{LogConfig, LogLevel};

/// Sets up logging for the process. Later calls have no effect.
pub fn init(config: &LogConfig) {
    let level = match config.level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    let is_terminal = if config.stdout {
        io::stdout().is_terminal()
    } else {
        io::stderr().is_terminal()
    };
    let writer = if config.stdout {
        BoxMakeWriter::new(io::stdout)
    } else {
        BoxMakeWriter::new(io::stderr)
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(writer)
        // It would say so on standard error, and panic if that is what cannot be written: a full
        // disk under a log file must not end a member.
        .log_internal_errors(false)
        .with_target(false);
    // A second initialisation fails, and the first one stays; that is fine.
    if config.json.unwrap_or(!is_terminal) {
        let _ = builder.json().flatten_event(true).try_init();
    } else {
        let _ = builder.with_ansi(is_terminal).try_init();
    }
}

/// Tells a person why the process ends, if there is anywhere to tell it.
pub fn say_last_words(words: &str) {
    let _ = writeln!(io::stderr(), "{words}");
}
