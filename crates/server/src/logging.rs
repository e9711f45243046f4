//! Log output: text on a terminal, JSON otherwise.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::{LogConfig, LogLevel};

/// Whether the process has printed why it ends. Threads that still run log nothing after that
/// line, so that it is the last one. Read and set under the lock of standard error.
static FATAL_PRINTED: AtomicBool = AtomicBool::new(false);

/// Writes to standard error until the process has printed why it ends, then discards.
struct UntilTheEnd;

impl Write for UntilTheEnd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        match FATAL_PRINTED.load(Ordering::Relaxed) {
            true => Ok(bytes.len()),
            false => stderr.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

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
        BoxMakeWriter::new(|| UntilTheEnd)
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(writer)
        // Write errors would be reported on standard error, with a panic if that cannot be
        // written either: a full disk under a log file must not end a member.
        .log_internal_errors(false)
        .with_target(false);
    // A second initialisation fails, and the first one stays.
    if config.json.unwrap_or(!is_terminal) {
        let _ = builder.json().flatten_event(true).try_init();
    } else {
        let _ = builder.with_ansi(is_terminal).try_init();
    }
}

/// Prints why the process ends to stderr, if there is one.
pub fn print_fatal(message: &str) {
    let mut stderr = io::stderr().lock();
    FATAL_PRINTED.store(true, Ordering::Relaxed);
    let _ = writeln!(stderr, "{message}");
}
