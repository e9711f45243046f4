//! The log: text on a terminal, JSON lines otherwise, as the log of the store.

use portunus_server::config::{LogConfig, LogLevel};

use crate::flags::LogFlags;

/// From this detail on, debug lines are logged, as kube-apiserver does.
const DEBUG_FROM: u8 = 4;

/// Sets up the log of the process. `quiet` is without lines about the normal course.
pub fn init(flags: &LogFlags, quiet: bool) {
    let level = match (flags.verbosity, quiet) {
        (DEBUG_FROM.., _) => LogLevel::Debug,
        (0, true) => LogLevel::Warn,
        _ => LogLevel::Info,
    };
    portunus_server::logging::init(&LogConfig {
        level,
        json: None,
        stdout: false,
    });
}
