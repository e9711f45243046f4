//! The help of commands: usage, examples, and no flags but the command's own.
//!
//! The flags that every command has are printed by `options`, as with etcdctl.

use clap::{Arg, Command};

use crate::examples::{self, Example};

const OPTIONS: &str = "Use \"portctl options\" for the flags that every command has.";
const MORE: &str = "Use \"portctl COMMAND --help\" for the flags and examples of a command.";

/// Shapes the help of every command.
pub fn shape(portctl: Command) -> Command {
    let portctl = portctl.mut_args(hide_if_global);
    let more = format!("{MORE}\n{OPTIONS}");
    shape_below(portctl.after_help(more), "")
}

fn hide_if_global(arg: Arg) -> Arg {
    match arg.get_help_heading() {
        Some("Global options") => arg.hide(true),
        _ => arg,
    }
}

fn shape_below(command: Command, path: &str) -> Command {
    let path = path.to_owned();
    command.mut_subcommands(move |command| {
        let path = match path.as_str() {
            "" => command.get_name().to_owned(),
            path => format!("{path} {}", command.get_name()),
        };
        let command = command.mut_args(hide_if_global);
        if command.has_subcommands() {
            let more = format!("{MORE}\n{OPTIONS}");
            return shape_below(command.after_help(more), &path);
        }
        let usage = usage(&path, &command);
        let after = format!("{}\n\n{OPTIONS}", text_of(&examples::of(&path)));
        command.override_usage(usage).after_help(after)
    })
}

/// Returns how a command without subcommands is written.
pub fn usage(path: &str, command: &Command) -> String {
    let positionals = command.get_positionals().map(|positional| {
        let names = positional.get_value_names().unwrap_or_default();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        match positional.is_last_set() {
            true => format!(" [-- {}...]", names.join(" ")),
            false => format!(" {}", names.join(" ")),
        }
    });
    format!(
        "portctl {path} [OPTIONS]{}",
        positionals.collect::<String>()
    )
}

fn text_of(examples: &[Example]) -> String {
    let lines = examples
        .iter()
        .map(|(what, line)| format!("  # {what}\n  {line}"));
    let lines: Vec<String> = lines.collect();
    format!("Examples:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    fn help(line: &[&str]) -> String {
        let portctl = shape(crate::cli::command_line());
        let error = portctl.try_get_matches_from(line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelp);
        error.to_string()
    }

    #[test]
    fn help_of_a_command_has_its_own_flags_and_examples_only() {
        let help = help(&["portctl", "lock", "--help"]);
        assert!(
            help.contains("Usage: portctl lock [OPTIONS] NAME [COMMAND...]\n"),
            "{help}"
        );
        assert!(help.contains("--ttl"), "{help}");
        assert!(!help.contains("--endpoints"), "{help}");
        assert!(help.contains("Examples:\n  # "), "{help}");
        assert!(help.trim_end().ends_with(OPTIONS), "{help}");
    }

    #[test]
    fn help_of_a_family_names_its_commands() {
        let help = help(&["portctl", "lease", "--help"]);
        assert!(help.contains("keep-alive"), "{help}");
        assert!(!help.contains("--cacert"), "{help}");
        assert!(help.trim_end().ends_with(OPTIONS), "{help}");
    }
}
