//! `docs/flags.md`, generated from the server's table of flags.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use portunus_server::config::flags::{FLAGS, Flag, GROUPS, GROUPS_LATER, Kind, Support, find};
use portunus_server::config::{Config, Values};
use portunus_testkit::go::{Tool, find_for_test};

use super::assert_current;

const HEAD: &str = "\
# Flags

Generated from `crates/server/src/config/flags.rs`; compared with the pinned etcd by
`crates/server/tests/documents`. To regenerate it: `REWRITE=1 cargo test -p portunus-server --test documents`.

A setting has one name in three places:

- the flag, with one dash or two: `--data-dir DIR`, `-data-dir=DIR`; a boolean flag without a value
  is `true`;
- the environment variable: `ETCD_` and the name in upper case, with `_` for `-`. A flag has
  precedence over its variable;
- the key in the YAML or JSON file of `--config-file`: the name itself. A duration is a whole number
  of nanoseconds or the text that the flag takes. With a config file all other flags and variables
  are ignored, except `--feature-gates`, `--cluster-feature-gates`, `--emulated-version`,
  `--min-compatibility-version` and `--strict-emulation`, which have precedence over the file.

No flag is read and then ignored without a notice. A start with settings that cannot be used ends
with exit code 1 and one error that names all of them; no file is created.

";

/// A section of the document: its title, its text and the flags in it.
struct Section {
    title: &'static str,
    text: &'static str,
    holds: fn(&Flag) -> bool,
}

const SECTIONS: &[Section] = &[
    Section {
        title: "Supported flags of etcd",
        text: "They have etcd's meaning.",
        holds: |flag| flag.support == Support::Works && !flag.is_own,
    },
    Section {
        title: "Flags of Portunus",
        text: "etcd does not have these. `--emulation-version` is a second name of `--emulated-version`.",
        holds: |flag| flag.support == Support::Works && flag.is_own,
    },
    Section {
        title: "Flags of etcd that are not supported yet",
        text: "The default is accepted, so that the command line of an etcd that does not use the \
               feature works. Any other value is refused: `--FLAG=VALUE is not supported yet (FEATURE): leave it out`.",
        holds: |flag| matches!(flag.support, Support::Later(_)),
    },
    Section {
        title: "Removed flags",
        text: "Any value is refused: `--FLAG is gone: WHAT TO DO`.",
        holds: |flag| matches!(flag.support, Support::Removed(_)),
    },
    Section {
        title: "Former names of feature gates",
        text: "A member with `--emulated-version` 3.5 or 3.6 takes the flag as the gate and logs a \
               warning. Later versions refuse it.",
        holds: |flag| matches!(flag.support, Support::OldGate(_)),
    },
    Section {
        title: "Flags without effect",
        text: "etcd accepts these flags of its first versions and ignores them. Portunus does the \
               same and logs a warning that names them.",
        holds: |flag| flag.support == Support::Ignored,
    },
];

fn kind(flag: &Flag) -> &'static str {
    match flag.kind {
        Kind::Text => "text",
        Kind::Bool => "boolean",
        Kind::Number => "number",
        Kind::Duration => "duration",
    }
}

/// The last column of a flag's row.
fn purpose(flag: &Flag) -> String {
    match flag.support {
        Support::Works => flag.help.to_owned(),
        Support::Later(part) => format!("refused: {part}"),
        Support::Ignored => "ignored with a warning".to_owned(),
        Support::Removed(instead) => format!("refused: {instead}"),
        Support::OldGate(old) => format!("`--{}={}=VALUE`", old.flag, old.gate),
    }
}

fn code(text: &str) -> String {
    match text {
        "" => "–".to_owned(),
        text => format!("`{text}`"),
    }
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        let flags = FLAGS.iter().filter(|flag| (section.holds)(flag));
        writeln!(text, "## {}\n\n{}\n", section.title, section.text).unwrap();
        text.push_str("| Flag and key | Environment variable | Value | Default | |\n");
        text.push_str("| --- | --- | --- | --- | --- |\n");
        for flag in flags {
            writeln!(
                text,
                "| `{}` | `{}` | {} | {} | {} |",
                flag.name,
                flag.variable(),
                kind(flag),
                code(flag.default),
                purpose(flag)
            )
            .unwrap();
        }
        text.push('\n');
    }
    text.push_str("## Groups of the config file\n\n");
    text.push_str("Each key of a group stands for a flag; a list is the text with commas.\n\n");
    text.push_str("| Group | Key | Flag |\n| --- | --- | --- |\n");
    for (group, keys) in GROUPS {
        for (key, flag) in *keys {
            writeln!(text, "| `{group}` | `{key}` | `{flag}` |").unwrap();
        }
    }
    text.push('\n');
    text.push_str("## Groups of the config file that are not supported yet\n\n");
    text.push_str("An empty group is accepted, any other is refused.\n\n");
    text.push_str("| Key | |\n| --- | --- |\n");
    for (group, part) in GROUPS_LATER {
        writeln!(text, "| `{group}` | refused: {part} |").unwrap();
    }
    text.push_str(
        "\n## Experimental names\n\nAny other flag `--experimental-NAME` is refused. If `--NAME` is a flag, the error names it.\n",
    );
    text
}

#[test]
fn document_of_flags_is_current() {
    assert_current("flags.md", &document());
}

#[test]
fn keys_of_groups_are_flags() {
    for (group, keys) in GROUPS {
        for (key, flag) in *keys {
            assert!(find(flag).is_some(), "{group}.{key}: no flag {flag}");
        }
    }
}

#[test]
fn every_flag_is_in_one_section() {
    for flag in FLAGS {
        let sections = SECTIONS.iter().filter(|section| (section.holds)(flag));
        assert_eq!(sections.count(), 1, "{}", flag.name);
    }
}

/// The configuration with these values, without the list of the flags that were set.
fn effect(values: &Values) -> Result<String, String> {
    let config = Config::from_values(values).map_err(|error| error.to_string())?;
    let config = Config {
        changed_flags: String::new(),
        ..config
    };
    Ok(format!("{config:?}"))
}

/// The server treats each flag as its section states.
#[test]
fn server_accepts_refuses_and_ignores_flags_as_documented() {
    for flag in FLAGS {
        let given = |value: &str| Values::from_arguments(&[format!("--{}={value}", flag.name)]);
        let other = match flag.kind {
            Kind::Bool if flag.default == "true" => "false",
            Kind::Bool => "true",
            Kind::Number => "77",
            Kind::Duration => "77s",
            Kind::Text => "other",
        };
        let name = flag.name;
        match flag.support {
            Support::Works => {
                let with_default = given(flag.default);
                assert!(with_default.errors.is_empty(), "{name}");
                // Read where the file is opened, before there is a configuration.
                if name != "config-file" {
                    let has_effect = effect(&with_default) != effect(&given(other));
                    assert!(has_effect, "--{name} has no effect");
                }
            }
            Support::Later(_) => {
                assert!(given(flag.default).errors.is_empty(), "{name}");
                assert!(!given(other).errors.is_empty(), "{name}");
            }
            Support::Removed(_) => assert!(!given(other).errors.is_empty(), "{name}"),
            Support::Ignored => {
                let values = given(other);
                assert!(values.errors.is_empty(), "{name}");
                assert_eq!(values.ignored, [name]);
            }
            Support::OldGate(old) => {
                assert!(Config::from_values(&given("true")).is_err(), "{name}");
                let emulated = [format!("--{name}"), "--emulated-version=3.6".to_owned()];
                let config = Config::from_values(&Values::from_arguments(&emulated)).unwrap();
                assert_eq!(config.old_names, [name]);
                let gates = match old.flag {
                    "feature-gates" => &config.feature_gates,
                    _ => &config.cluster_feature_gates,
                };
                assert!(gates.get(old.gate).is_some(), "{name}");
            }
        }
    }
}

/// Returns the flags in etcd's help.
fn flags_in_help(etcd: &Path) -> BTreeSet<String> {
    let output = Command::new(etcd).arg("--help").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text)
        .unwrap()
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"))
        .filter_map(|line| line.split_whitespace().next())
        // The text before the list names flags in parentheses.
        .map(|name| name.trim_end_matches([',', ')']).to_owned())
        .collect()
}

/// Whether etcd has the flag, in its help or not: it names the first flag that it does not know.
fn is_defined(etcd: &Path, flag: &str) -> bool {
    let output = Command::new(etcd)
        .arg(format!("--{flag}=1"))
        .arg("--no-such-flag=1")
        .output()
        .unwrap();
    assert!(!output.status.success(), "{flag}: {output:?}");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    !text.contains(&format!("flag provided but not defined: -{flag}\n"))
}

#[test]
fn flags_are_those_of_etcd_and_the_own_ones() {
    let test = "flags_are_those_of_etcd_and_the_own_ones";
    let Some(etcd) = find_for_test(Tool::Etcd, test) else {
        return;
    };
    let in_help = flags_in_help(&etcd);
    assert!(in_help.len() > 100, "{in_help:?}");
    let missing: Vec<&String> = in_help.iter().filter(|name| find(name).is_none()).collect();
    assert!(missing.is_empty(), "flags of etcd: {missing:?}");
    for flag in FLAGS {
        // Versions before the pinned one had the removed flags and the former names of gates.
        let may_be_missing = matches!(flag.support, Support::Removed(_));
        let is_missing = flag.is_own || matches!(flag.support, Support::OldGate(_));
        let defined = is_defined(&etcd, flag.name);
        assert!(
            may_be_missing || defined != is_missing,
            "--{}: etcd has it: {defined}",
            flag.name
        );
    }
}
