//! `docs/portctl.md` is current, and `portctl` has every command and flag of etcdctl and etcdutl.
//!
//! `REWRITE=1 cargo test -p portunus-ctl --test documents` writes the document anew.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod completions;
mod differences;
mod reference;
mod surface;

use clap::Command;

/// A command with its path, such as `lease grant`.
struct Leaf {
    path: String,
    command: Command,
}

/// Returns every command without subcommands, in the order of the help.
fn leaves() -> Vec<Leaf> {
    let mut found = Vec::new();
    collect(&portunus_ctl::command_line(), "", &mut found);
    found
}

fn collect(command: &Command, path: &str, found: &mut Vec<Leaf>) {
    for below in command.get_subcommands() {
        let path = format!("{path} {}", below.get_name());
        let path = path.trim_start();
        if below.has_subcommands() {
            collect(below, path, found);
        } else {
            found.push(Leaf {
                path: path.to_owned(),
                command: below.clone(),
            });
        }
    }
}
