//! Transcripts of kubectl against `portunus-apiserver dev`: each file under `testdata` is one.
//!
//! A step is a command, its input, `----`, and its output. After a change of behaviour,
//! `REWRITE=1 cargo test -p portunus-apiserver --test kubectl` writes the new output into the
//! files; read the diff before committing it. What differs from run to run is replaced: ids, times,
//! resource versions, addresses, ages.
//!
//! Commands:
//! - `file name`: writes the input to a file of the working directory
//! - `kubectl`: runs kubectl with each line of the input as arguments
//! - `watch N`: starts kubectl with the arguments of the input, and waits for N lines of its output
//! - `watched N`: waits until kubectl has printed N lines, stops it and shows them
//! - `restart flags`: stops the server and starts it with the flags of the input, on the same data
//!
//! kubectl is built from its Go module; without Go the tests are skipped.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(feature = "program")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use portunus_testkit::process::Process;
use portunus_testkit::{go_program, wait};
use regex::Regex;

/// A server, a directory and kubectl.
struct World {
    kubectl: PathBuf,
    directory: tempfile::TempDir,
    server: Option<Process>,
    watch: Option<Child>,
    replacements: Vec<(Regex, &'static str)>,
}

impl World {
    fn new(kubectl: PathBuf) -> World {
        let mut world = World {
            kubectl,
            directory: tempfile::tempdir().unwrap(),
            server: None,
            watch: None,
            replacements: replacements(),
        };
        world.start("");
        world
    }

    fn start(&mut self, flags: &str) {
        let data = self.directory.path().join("data");
        let kubeconfig = data.join("kubeconfig");
        let _ = fs::remove_file(&kubeconfig);
        let mut command = Command::new(env!("CARGO_BIN_EXE_portunus-apiserver"));
        command
            .args(["dev", "--data-dir"])
            .arg(&data)
            .args(flags.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        self.server = Some(Process::spawn(&mut command));
        wait::until_blocking("the server to be ready", || match kubeconfig.exists() {
            true => Ok(()),
            false => Err(()),
        });
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.signal(Signal::SIGTERM);
            let (status, log) = server.ended();
            assert!(status.success(), "{status}: {log}");
        }
    }

    fn run(&mut self, directive: &str, argument: &str, input: &str) -> String {
        match directive {
            "file" => {
                fs::write(self.directory.path().join(argument), input).unwrap();
                String::new()
            }
            "kubectl" => input.lines().map(|line| self.kubectl(line)).collect(),
            "watch" => {
                let output = fs::File::create(self.watch_output()).unwrap();
                let mut command = self.kubectl_command(input.trim());
                self.watch = Some(command.stdout(output).spawn().unwrap());
                self.wait_for_lines(argument);
                String::new()
            }
            "watched" => {
                let text = self.wait_for_lines(argument);
                self.stop_watch();
                self.replace(text)
            }
            "restart" => {
                self.stop();
                self.start(input.trim());
                String::new()
            }
            other => panic!("unknown command {other}"),
        }
    }

    fn kubectl_command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .args(split(line))
            .current_dir(self.directory.path())
            .env("KUBECONFIG", self.directory.path().join("data/kubeconfig"))
            // Discovery is cached there.
            .env("HOME", self.directory.path())
            .env("KUBE_EDITOR", "sh edit.sh")
            .stdin(Stdio::null());
        command
    }

    fn stop_watch(&mut self) {
        if let Some(mut kubectl) = self.watch.take() {
            kubectl.kill().unwrap();
            kubectl.wait().unwrap();
        }
    }

    fn watch_output(&self) -> PathBuf {
        self.directory.path().join("watch-output")
    }

    /// Waits until the watching kubectl has printed this many lines, and returns them.
    fn wait_for_lines(&self, count: &str) -> String {
        let count: usize = count.parse().unwrap();
        wait::until_blocking("lines of kubectl", || {
            let text = fs::read_to_string(self.watch_output()).unwrap();
            match text.lines().count() >= count && text.ends_with('\n') {
                true => Ok(text),
                false => Err(text),
            }
        })
    }

    fn kubectl(&self, line: &str) -> String {
        let output = self.kubectl_command(line).output().unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            text.push_str(&format!("! {line}\n"));
        }
        self.replace(text)
    }

    fn replace(&self, mut text: String) -> String {
        for (pattern, replacement) in &self.replacements {
            text = pattern.replace_all(&text, *replacement).into_owned();
        }
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop_watch();
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// What differs from run to run.
fn replacements() -> Vec<(Regex, &'static str)> {
    [
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "UID",
        ),
        (
            r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000)",
            "TIME",
        ),
        (r#"resourceVersion: "\d+""#, r#"resourceVersion: "N""#),
        (r"Resource Version: +\d+", "Resource Version:  N"),
        (r"127\.0\.0\.1:\d+", "SERVER"),
        (r"/[^ ]*/(LIVE|MERGED)-\d+", "$1"),
        (r"\b[0-9a-f]{15,16}\b", "MEMBER"),
        (r"(?m) +\d+s$", "   AGE"),
        (r"Since Index: +\d+", "Since Index:   N"),
        (r"(ALPHA +false +)\d+ ", "${1}N "),
        (r"v1\.37\.0\+portunus\.\d+\.\d+\.\d+", "VERSION"),
    ]
    .map(|(pattern, replacement)| (Regex::new(pattern).unwrap(), replacement))
    .into()
}

/// Splits a line into arguments; single quotes keep blanks.
fn split(line: &str) -> Vec<String> {
    let mut arguments = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => arguments.push(String::new()),
            letter => arguments.last_mut().unwrap().push(letter),
        }
    }
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

fn run(test: &str, file: &str) {
    let Some(kubectl) = go_program::build_for_test("kubectl", test) else {
        return;
    };
    datadriven::walk(&format!("tests/testdata/{file}.txt"), |file| {
        let mut world = World::new(kubectl.clone());
        file.run(|case| {
            let argument = case.args.keys().next().map_or("", String::as_str);
            world.run(&case.directive, argument, &case.input)
        });
    });
}

#[test]
fn kubectl_reads_and_changes_objects() {
    run("kubectl_reads_and_changes_objects", "kubectl");
}

/// Proves: S3-2, S3-14
#[test]
fn stories_of_gates_work_with_kubectl() {
    run("stories_of_gates_work_with_kubectl", "olm");
}
