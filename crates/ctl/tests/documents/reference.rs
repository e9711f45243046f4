//! `docs/portctl.md`: every command with its flags and examples.

use std::fmt::Write;
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Arg, Command};

use super::differences::DIFFERENCES;
use super::leaves;

const HEAD: &str = "\
# portctl

Generated from the definitions of the commands in `crates/ctl/src`. To regenerate it:
`REWRITE=1 cargo test -p portunus-ctl --test documents`.

`portctl` has the commands of etcdctl and the offline ones of etcdutl, with their flags, output and exit
codes: a script works with only the name changed. Tests run the same commands through etcdctl and
etcdutl 3.7 and compare exit code and output. What still differs is [listed below](#differences-from-etcdctl-and-etcdutl).

## Settings

A flag may be written before or after the command; a flag has precedence over the environment variable
`PORTCTL_FLAG`, that over `ETCDCTL_FLAG` (the name of the flag in upper case, with `_` for `-`). Switches
take an optional value after an equals sign: `--prefix`, `--prefix=false`. Durations are written as in
Go: `500ms`, `1m30s`.

## Exit codes

| Code | Meaning |
| --- | --- |
| 0 | success |
| 1 | the server refused, something failed, or the command line cannot be parsed |
| 2 | no usable connection, or a lease that is not there |
| 3 | text on standard input cannot be parsed, or the prefix of a check is in use |
| 4 | a flag with a value that is not supported |
| 5 | interrupted, or the server ended a watch or a snapshot |
| 7 | `gate plan`: something blocks the planned change |
| 128 | wrong number or kind of arguments |

`lock` with a command ends with the exit code of the command.

## Output

`-w` chooses the format. `simple`, `table` and `fields` are for people, `protobuf` is the response
message as it was on the wire. `json` is for programs, and stable: fields are added, never renamed or removed.

- The answer of a call is the response message of the API ([api.md](api.md)) in one line, as etcdctl prints
  it: the names of the fields, `header` with `cluster_id`, `member_id`, `revision` and `raft_term`, keys
  and values in base64 (in hexadecimal with `--hex`), numbers as numbers, fields with their zero value left
  out.
- `endpoint status`, `endpoint health` and `endpoint hashkv` print a list with one object per endpoint:
  `Endpoint` and `Status` or `HashKV` with the response; of `health` `endpoint`, `health`, `took`, `error`.
- `watch`, `lease keep-alive`, `lock` and `elect` print one object per line and event.
- `snapshot status` is `hash`, `revision`, `totalKey`, `totalSize`, `version`; `hashkv` is `hash`,
  `hashRevision`, `compactRevision`.
- `migrate` is `storageVersionBefore`, `storageVersion`, `clusterVersion`, `removedFeatures`, `overruled`.
- `check kubernetes` is `prefix`, `passed`, `failed`, `skipped` and `rules`: `id`, `outcome` (`pass`, `fail`,
  `skip`), `reason`, `description`, `requirements`, `milliseconds`.

Errors are one line on standard error, `Error: …`, in every format; a terminal also shows the next step.
Progress is shown on standard error
and only on a terminal. Colour is used only on a terminal, and not if `NO_COLOR` is set and not empty.

";

fn path_of(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

fn help(text: Option<&StyledStr>) -> String {
    cell(&text.map(StyledStr::to_string).unwrap_or_default())
}

/// Returns whether a flag may be written without a value.
fn is_switch(flag: &Arg) -> bool {
    let numbers = flag.get_num_args();
    numbers.is_some_and(|numbers| numbers.min_values() == 0)
}

fn flag_row(flag: &Arg) -> String {
    let short = flag.get_short();
    let short = short.map_or(String::new(), |short| format!("`-{short}`, "));
    let long = flag.get_long().unwrap();
    let value = match flag.get_value_names() {
        Some([name, ..]) if !is_switch(flag) => format!(" {name}"),
        _ => String::new(),
    };
    let mut text = help(flag.get_help());
    let default = flag.get_default_values().first();
    if let Some(default) = default.filter(|_| !flag.is_hide_default_value_set()) {
        write!(text, " (default `{}`)", default.to_string_lossy()).unwrap();
    }
    format!("| {short}`--{long}{value}` | {text} |\n")
}

fn flag_table<'a>(flags: impl Iterator<Item = &'a Arg>) -> String {
    let is_shown = |flag: &&Arg| flag.get_long().is_some() && !flag.is_hide_set();
    let rows: String = flags.filter(is_shown).map(flag_row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("| Flag | |\n| --- | --- |\n{rows}\n"),
    }
}

fn section(path: &str, command: &Command) -> String {
    let about = help(command.get_about());
    let mut text = format!(
        "### {path}\n\n{about}.\n\n```sh\n{}\n```\n\n",
        portunus_ctl::usage_of(path, command)
    );
    // The flags of the whole program are in a table of their own.
    let own = command.get_arguments().filter(|flag| {
        flag.get_id() != "require-feature" && flag.get_help_heading() != Some("Global options")
    });
    text += &flag_table(own);
    text += "```sh\n";
    for (what, line) in portunus_ctl::examples_of(path) {
        writeln!(text, "# {what}\n{line}").unwrap();
    }
    text + "```\n\n"
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    text += "## Flags of every command\n\n";
    text += &flag_table(portunus_ctl::command_line().get_arguments());
    text += "## Commands\n\n";
    for leaf in leaves() {
        text += &section(&leaf.path, &leaf.command);
    }
    text +=
        "## Differences from etcdctl and etcdutl\n\n| | portctl | Reason |\n| --- | --- | --- |\n";
    for difference in DIFFERENCES {
        let (of, what, why) = (difference.of, difference.what, difference.why);
        writeln!(text, "| {of} | {what} | {why} |").unwrap();
    }
    text
}

#[test]
fn document_of_portctl_is_current() {
    let generated = document();
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(path_of("portctl.md"), &generated).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(path_of("portctl.md")).unwrap_or_default();
    let difference = committed
        .lines()
        .zip(generated.lines())
        .find(|(committed, generated)| committed != generated);
    assert!(
        committed == generated,
        "docs/portctl.md is old: run this test with REWRITE=1; first difference: {difference:#?}"
    );
}
