//! The Go program that answers with kube-apiserver's own functions: built by a script, asked
//! in JSON lines.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const SCRIPT: &str = "scripts/go-program";

/// Prints a line past the test harness, which captures `eprintln!`.
fn print_notice(notice: &str) {
    // A closed stderr is ignored.
    let _ = std::io::stderr().write_all(format!("\n{notice}\n").as_bytes());
}

fn build() -> Result<PathBuf, String> {
    if std::env::var_os("PORTUNUS_NO_GO").is_some() {
        return Err("PORTUNUS_NO_GO is set".to_owned());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join(SCRIPT))
        .arg("apis-oracle")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{SCRIPT} cannot be run: {error}"))?;
    let last_line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().last().unwrap_or_default().to_owned()
    };
    if output.status.success() {
        Ok(PathBuf::from(last_line(&output.stdout)))
    } else {
        Err(last_line(&output.stderr))
    }
}

/// Returns the program, or prints that the test is skipped. With `PORTUNUS_REQUIRE_GO` in the
/// environment the test fails instead.
pub fn find_for_test(test: &str) -> Option<PathBuf> {
    match build() {
        Ok(program) => Some(program),
        Err(why) => {
            let is_required = std::env::var_os("PORTUNUS_REQUIRE_GO").is_some();
            assert!(!is_required, "PORTUNUS_REQUIRE_GO is set, and {why}");
            print_notice(&format!("SKIPPED {test}: {why}"));
            None
        }
    }
}

/// Kills the program if the test ends early.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks one question per case and checks each answer. `check` makes the case again from its
/// number, so nothing is kept in memory.
pub fn compare(
    test: &str,
    cases: u64,
    question: impl Fn(u64) -> Value + Send + 'static,
    mut check: impl FnMut(u64, &Value),
) {
    let Some(program) = find_for_test(test) else {
        return;
    };
    let child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut running = Running(child.unwrap());
    let stdin = running.0.stdin.take().unwrap();
    let stdout = running.0.stdout.take().unwrap();
    let writer = std::thread::spawn(move || {
        let mut stdin = BufWriter::new(stdin);
        for case in 0..cases {
            // The reader reports a program that ended early.
            if writeln!(stdin, "{}", question(case)).is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(stdout).lines();
    for case in 0..cases {
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("the oracle ended at case {case}"))
            .unwrap();
        check(case, &serde_json::from_str(&line).unwrap());
    }
    assert!(lines.next().is_none(), "the oracle answered too often");
    writer.join().unwrap();
    let program = program.display();
    print_notice(&format!("COMPARED {test}: {cases} cases with {program}"));
}
