//! The commands and flags of etcdctl and etcdutl, read from their own help.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use portunus_testkit::go::{Tool, find_for_test};

use super::differences::REFUSED_FLAGS;

/// Commands below a path with their flags, as the help of a Go program prints them.
struct GoHelp {
    commands: Vec<String>,
    flags: BTreeSet<String>,
}

impl GoHelp {
    fn read(program: &Path, path: &[String]) -> Self {
        let output = Command::new(program).args(path).arg("--help").output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let mut help = Self {
            commands: Vec::new(),
            flags: BTreeSet::new(),
        };
        let mut section = "";
        for line in text.lines() {
            match line.strip_prefix("  ") {
                None => section = line,
                Some(entry) if section.to_lowercase().contains("commands") => {
                    let name = entry.split_whitespace().next().unwrap_or_default();
                    help.commands.push(name.to_owned());
                }
                Some(entry) if section.ends_with("lags:") => help.flags.extend(flag(entry)),
                Some(_) => {}
            }
        }
        help
    }
}

/// Returns the name of the flag in a line of help.
fn flag(line: &str) -> Option<String> {
    let (_, name) = line.split_once("--")?;
    let name: String = name
        .chars()
        .take_while(|letter| letter.is_ascii_lowercase() || *letter == '-')
        .collect();
    (!name.is_empty()).then_some(name)
}

/// Adds every command of the Go program that `portctl` lacks, and every flag.
fn compare(
    program: &Path,
    path: &[String],
    own: &clap::Command,
    missing: &mut Vec<String>,
    compared: &mut usize,
) {
    let help = GoHelp::read(program, path);
    let shown = path.join(" ");
    for name in &help.flags {
        let mut flags = own.get_arguments().filter_map(clap::Arg::get_long);
        if name != "help" && !flags.any(|own| own == name) {
            missing.push(format!("{shown} --{name}"));
        }
        *compared += 1;
    }
    for name in help.commands {
        // Every command line has it.
        if name == "help" {
            continue;
        }
        let below = [path, std::slice::from_ref(&name)].concat();
        match own.find_subcommand(&name) {
            Some(own) => compare(program, &below, own, missing, compared),
            None => missing.push(below.join(" ")),
        }
    }
}

/// `portctl` has every command and every flag of both programs; those of [`REFUSED_FLAGS`] are
/// refused.
#[test]
fn portctl_has_every_command_and_flag_of_etcdctl_and_etcdutl() {
    const TEST: &str = "documents::portctl_has_every_command_and_flag_of_etcdctl_and_etcdutl";
    for tool in [Tool::Etcdctl, Tool::Etcdutl] {
        let Some(program) = find_for_test(tool, TEST) else {
            return;
        };
        let mut portctl = portunus_ctl::command_line();
        // Puts the global flags into every command.
        portctl.build();
        let mut missing = Vec::new();
        let mut compared = 0;
        compare(&program, &[], &portctl, &mut missing, &mut compared);
        assert!(missing.is_empty(), "{tool:?}: {missing:#?}");
        assert!(compared > 30, "{tool:?}: only {compared} flags were found");
    }
}

#[test]
fn portctl_has_every_global_flag_of_etcdctl() {
    const TEST: &str = "documents::portctl_has_every_global_flag_of_etcdctl";
    let Some(etcdctl) = find_for_test(Tool::Etcdctl, TEST) else {
        return;
    };
    let output = Command::new(etcdctl).arg("options").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let theirs: BTreeSet<String> = text.lines().filter_map(flag).collect();
    assert!(theirs.len() > 20, "{theirs:?}");
    let portctl = portunus_ctl::command_line();
    let find = |name: &str| {
        let mut flags = portctl.get_arguments();
        flags.find(|flag| flag.get_long() == Some(name))
    };
    for name in theirs {
        let own = find(&name).unwrap_or_else(|| panic!("--{name} is missing"));
        // A refused flag is not advertised.
        assert_eq!(own.is_hide_set(), REFUSED_FLAGS.contains(&&*name), "{name}");
    }
}
