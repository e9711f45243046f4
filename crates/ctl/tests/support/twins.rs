//! The same commands through etcdctl and through `portctl`, each on a server of its own.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use portunus_testkit::program::Program;

use super::{Ran, Server, clean, run};

const FORMATS: [&str; 5] = ["simple", "json", "fields", "table", "protobuf"];

/// A server for each of the two programs.
pub struct Twins<'t> {
    /// The server of `portctl`.
    pub ours: Server,
    /// The server of etcdctl.
    pub theirs: Server,
    etcdctl: &'t Path,
}

impl<'t> Twins<'t> {
    pub fn start(program: &Program, etcdctl: &'t Path) -> Self {
        let [ours, theirs] = Server::start_twins(program);
        Self {
            ours,
            theirs,
            etcdctl,
        }
    }

    pub fn both_with(&self, arguments: &[&str], input: &str, environment: &[(&str, &str)]) -> Ran {
        let one = |program: &OsStr, server: &Server| {
            let mut command = clean(Command::new(program));
            command
                .env("ETCDCTL_ENDPOINTS", server.endpoint())
                .envs(environment.iter().copied());
            let mut ran = run(command.args(arguments), input.as_bytes());
            ran.out = comparable(&ran.out, server);
            ran.err = comparable(&ran.err, server);
            ran
        };
        let ours = one(env!("CARGO_BIN_EXE_portctl").as_ref(), &self.ours);
        let theirs = one(self.etcdctl.as_os_str(), &self.theirs);
        assert_eq!(ours, theirs, "portctl, then etcdctl: {arguments:?}");
        ours
    }

    /// Runs a command with both programs and compares them.
    #[track_caller]
    pub fn both(&self, arguments: &[&str]) -> Ran {
        self.both_with(arguments, "", &[])
    }

    /// Runs a command with something on standard input.
    #[track_caller]
    pub fn both_reading(&self, arguments: &[&str], input: &str) -> Ran {
        self.both_with(arguments, input, &[])
    }

    /// Runs a command in every format.
    pub fn in_all_formats(&self, arguments: &[&str]) {
        for format in FORMATS {
            let formatted = [arguments, &["-w", format]].concat();
            self.both(&formatted);
            self.both(&[formatted.as_slice(), &["--hex"]].concat());
        }
    }
}

/// Removes what differs between two runs: addresses, times, log lines of etcdctl, and the
/// complaints of the `stty` that it runs when standard input is not a terminal.
fn comparable(text: &str, server: &Server) -> String {
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        if line.starts_with("{\"level\"") || line.starts_with("stty:") {
            continue;
        }
        let has_no_time = line.contains("\"took\":\"\"") || line == "\"Took\" : \n";
        match line.find("took").or_else(|| line.find("\"Took\"")) {
            Some(start) if !has_no_time => shown.push_str(&format!("{}…\n", &line[..start])),
            _ => shown.push_str(line),
        }
    }
    shown.replace(&server.endpoint(), "<endpoint>")
}
