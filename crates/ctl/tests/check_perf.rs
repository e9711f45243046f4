//! `check perf` to its end, which takes a minute: by `portctl` and etcdctl, against both servers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ffi::OsString;
use std::thread;

use portunus_testkit::program::Program;
use support::{Ran, Server, etcdctl, run};

const TEST: &str = "check_perf::check_perf_prints_the_verdict_of_etcdctl";

/// The lines of a verdict, in their order, each as passed and as failed; a number is `#`.
const VERDICT: [[&str; 2]; 4] = [
    [
        "PASS: Throughput is # writes/s",
        "FAIL: Throughput too low: # writes/s",
    ],
    [
        "PASS: Slowest request took #s",
        "Slowest request took too long: #s",
    ],
    ["PASS: Stddev is #s", "Stddev too high: #s"],
    ["PASS", "FAIL"],
];

/// Replaces every number by `#`.
fn without_numbers(line: &str) -> String {
    let mut shown = String::new();
    for letter in line.chars() {
        match letter {
            '0'..='9' | '.' if shown.ends_with('#') => {}
            '0'..='9' => shown.push('#'),
            letter => shown.push(letter),
        }
    }
    shown
}

fn check(program: &Program, tool: &OsString) -> (Ran, String) {
    let server = Server::start(program);
    let mut command = server.command(tool);
    let ran = run(
        command.args(["check", "perf", "--auto-compact", "--auto-defrag"]),
        b"",
    );
    let left = server.portctl(["get", "", "--prefix", "--keys-only"]).ok();
    (ran, left)
}

/// The speed of this machine is not tested: a line may be that of a pass or of a failure, but the
/// last line and the exit code agree with all others.
#[test]
fn check_perf_prints_the_verdict_of_etcdctl() {
    let mut tools = vec![OsString::from(env!("CARGO_BIN_EXE_portctl"))];
    tools.extend(etcdctl(TEST).map(|path| path.into_os_string()));
    let programs = [Some(Program::portunus()), Program::etcd(TEST)];
    let runs = thread::scope(|scope| {
        let mut runs = Vec::new();
        for program in programs.iter().flatten() {
            for tool in &tools {
                runs.push(scope.spawn(move || (tool, check(program, tool))));
            }
        }
        let runs = runs.into_iter().map(|run| run.join().unwrap());
        runs.collect::<Vec<_>>()
    });
    for (tool, (ran, left)) in runs {
        let lines: Vec<String> = ran.out.lines().map(without_numbers).collect();
        assert_eq!(lines.len(), 8, "{tool:?}: {ran:?}");
        let cleaned = ["Compacting with revision #", "Compacted with revision #"];
        assert_eq!(lines[..2], cleaned, "{tool:?}");
        assert!(lines[2].starts_with("Defragmenting "), "{tool:?}: {ran:?}");
        assert!(lines[3].starts_with("Defragmented "), "{tool:?}: {ran:?}");
        let mut passed = Vec::new();
        for (line, forms) in lines[4..].iter().zip(VERDICT) {
            let form = forms.iter().position(|form| form == line);
            passed.push(form.unwrap_or_else(|| panic!("{tool:?}: {line}")) == 0);
        }
        let all = passed[..3].iter().all(|passed| *passed);
        assert_eq!(passed[3], all, "{tool:?}: {ran:?}");
        assert_eq!(ran.code, Some(i32::from(!all)), "{tool:?}: {ran:?}");
        assert_eq!(left, "", "{tool:?} left keys");
    }
}
