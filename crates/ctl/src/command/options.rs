//! `options`: the flags that every command has.

use clap::builder::StyledStr;
use clap::{Arg, Command};

use crate::outcome::{Failure, write_out};

/// Runs the command.
pub fn run(portctl: &Command) -> Result<(), Failure> {
    let mut text = "The following options can be passed to any command:\n\n".to_owned();
    let flags: Vec<(String, String)> = global_flags(portctl)
        .map(|flag| (usage(flag), help(flag)))
        .collect();
    let width = flags.iter().map(|(usage, _)| usage.len()).max();
    let width = width.unwrap_or_default();
    for (usage, help) in flags {
        text += &format!("  {usage:width$}   {help}\n");
    }
    write_out(text.as_bytes())
}

/// Returns the flags of the whole program, without hidden ones.
pub fn global_flags(portctl: &Command) -> impl Iterator<Item = &Arg> {
    let is_shown = |flag: &&Arg| !flag.is_positional() && !flag.is_hide_set();
    portctl.get_arguments().filter(is_shown)
}

/// Returns a flag as it is written, such as `-w, --write-out <FORMAT>`.
pub fn usage(flag: &Arg) -> String {
    let short = match flag.get_short() {
        Some(short) => format!("-{short}, "),
        None => "    ".to_owned(),
    };
    let long = flag.get_long().unwrap_or_default();
    let is_switch = flag
        .get_num_args()
        .is_some_and(|number| number.min_values() == 0);
    let value = match flag.get_value_names().and_then(<[_]>::first) {
        Some(name) if !is_switch => format!(" <{name}>"),
        _ => String::new(),
    };
    format!("{short}--{long}{value}")
}

/// Returns the help of a flag in one line.
pub fn help(flag: &Arg) -> String {
    let help = flag.get_help().map(StyledStr::to_string);
    help.unwrap_or_default()
}
