//! The completion scripts.

use std::process::{Command, Stdio};

use super::leaves;

fn script(shell: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_portctl"))
        .args(["completion", shell])
        .output()
        .unwrap();
    assert!(output.status.success(), "{shell}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Every word of every command, and flags, are in the script of every shell of etcdctl.
#[test]
fn completions_of_every_shell_have_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = script(shell);
        for leaf in leaves() {
            for word in leaf.path.split(' ') {
                assert!(script.contains(word), "{shell}: {}", leaf.path);
            }
        }
        for flag in ["print-value-only", "dest-insecure-transport", "write-out"] {
            assert!(script.contains(flag), "{shell}: {flag}");
        }
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_portctl"))
        .args(["completion", "tcsh"])
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(1));
}

/// The shells that are installed accept their scripts.
#[test]
fn installed_shells_parse_their_completions() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let file = dir.path().join(shell);
        std::fs::write(&file, script(shell)).unwrap();
        let parsed = Command::new(shell)
            .arg(check)
            .arg(&file)
            .stdin(Stdio::null())
            .output();
        match parsed {
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
            // bash runs the scripts of this repository, so it is there.
            Err(error) => assert_ne!(shell, "bash", "{error}"),
        }
    }
}

/// bash completes commands, subcommands and flags with the script.
#[test]
fn bash_completes_commands_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("portctl.bash");
    std::fs::write(&file, script("bash")).unwrap();
    let complete = |words: &[&str]| {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!(
            "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; _portctl portctl; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            file.display(),
            quoted.join(" "),
            words.len() - 1
        );
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = complete(&["portctl", "make"]);
    assert!(commands.contains("make-mirror"), "{commands}");
    let below = complete(&["portctl", "lease", "keep"]);
    assert!(below.contains("keep-alive"), "{below}");
    let flags = complete(&["portctl", "get", "--print"]);
    assert!(flags.contains("--print-value-only"), "{flags}");
}
