//! Progress and colour: on a terminal, and nowhere else.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, Stdio};

use portunus_testkit::wait::until_blocking;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{Server, for_each_server, portctl, run};

/// Runs a command with standard output and error on a terminal and returns what it showed; the
/// command is killed at `until`, if that is given.
fn shown(command: &mut Command, until: Option<&str>) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap();
    let path = path.to_str().unwrap();
    let terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    command
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal);
    let mut child = command.spawn().unwrap();
    // The other ends of the terminal belong to the child alone.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut master = File::from(master);
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = master.read(&mut buffer) {
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if until.is_some_and(|until| text.contains(until)) {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    text
}

fn command(arguments: &[&str]) -> Command {
    let mut command = portctl();
    command.env_remove("NO_COLOR").args(arguments);
    command
}

#[test]
fn progress_and_colour_are_only_for_terminals() {
    for (arguments, coloured) in [
        (&["get"][..], "\x1b[31mError:\x1b[0m get command needs"),
        (&["frobnicate"], "\x1b["),
        (&["get", "--help"], "\x1b["),
    ] {
        let on_terminal = shown(&mut command(arguments), None);
        assert!(on_terminal.contains(coloured), "{on_terminal:?}");
        let plain = shown(command(arguments).env("NO_COLOR", "1"), None);
        assert!(!plain.contains('\x1b') && !plain.is_empty(), "{plain:?}");
        let dumb = shown(command(arguments).env("NO_COLOR", ""), None);
        assert!(dumb.contains(coloured), "{dumb:?}");
        let piped = run(&mut command(arguments), b"");
        let text = piped.out + &piped.err;
        assert!(!text.contains('\x1b') && !text.is_empty(), "{text:?}");
    }
}

/// A terminal shows what to do next; standard error of a script is etcdctl's.
#[test]
fn next_step_is_shown_on_a_terminal_only() {
    let arguments = ["lease", "grant"];
    let on_terminal = shown(&mut command(&arguments), None);
    let step = "Next step: `portctl lease grant --help` shows the arguments and examples";
    assert!(on_terminal.contains(step), "{on_terminal:?}");
    let piped = run(&mut command(&arguments), b"");
    assert_eq!(piped.err, "Error: lease grant command needs TTL argument\n");
}

/// Long work shows a line with its progress, and erases it before the result.
#[test]
fn long_work_shows_its_progress_on_a_terminal() {
    for_each_server("terminal::long_work_shows_its_progress", |program| {
        let mut server = Server::start(program);
        for key in ["a", "b", "c"] {
            server.portctl(["put", key, &"x".repeat(50_000)]).ok();
        }
        let with = |arguments: &[&str]| {
            let mut command = command(arguments);
            command.env("PORTCTL_ENDPOINTS", server.endpoint());
            command
        };
        let saved = server.path("saved.db").to_str().unwrap().to_owned();
        let restored = server.path("restored").to_str().unwrap().to_owned();
        let endpoint = server.endpoint();
        let restore = ["snapshot", "restore", &saved, "--data-dir", &restored];
        let mirror = ["make-mirror", &endpoint, "--prefix=a", "--dest-prefix=m"];
        let check = ["check", "kubernetes", "--keep-history"];
        for (arguments, label, until) in [
            (&["snapshot", "save", &saved][..], "receiving [", None),
            (&restore, "restoring [", None),
            (&["defrag"], "defragmenting ", None),
            (&mirror, "copying [", Some("mirroring ")),
            (&check, "checking [", None),
            (&["check", "datascale"], "writing [", None),
        ] {
            if label.starts_with("copying") {
                // The mirror shows a line when a change arrives.
                let mut copied = with(&["get", "m", "--prefix"]);
                let mut write = with(&["put", "a1", "1"]);
                let writing = std::thread::spawn(move || {
                    until_blocking("first copy", || match run(&mut copied, b"").ok() {
                        empty if empty.is_empty() => Err("no key"),
                        _ => Ok(()),
                    });
                    run(&mut write, b"").ok()
                });
                let text = shown(&mut with(arguments), until);
                writing.join().unwrap();
                assert!(
                    text.contains(label) && text.contains("mirroring "),
                    "{text:?}"
                );
                continue;
            }
            let text = shown(&mut with(arguments), until);
            let (before, after) = text.split_once(label).unwrap_or_else(|| panic!("{text:?}"));
            assert!(before.ends_with("\r\x1b[K"), "{text:?}");
            assert!(after.contains("\r\x1b[K"), "{text:?}");
        }
        // Into a pipe none of this is written.
        let piped = server.portctl(["snapshot", "save", &saved]);
        assert_eq!(piped.err, "");

        let data_dir = server.stop().to_str().unwrap().to_owned();
        let text = shown(&mut command(&["defrag", "--data-dir", &data_dir]), None);
        assert!(text.contains("defragmenting "), "{text:?}");
    });
}
