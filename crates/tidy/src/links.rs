//! Rule: a Markdown link to a file of this repository resolves to a tracked file.
//!
//! Links to the web are not checked, nor is the part of a link behind `#`.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag};

use crate::finding::{Finding, line_at};
use crate::workspace::TextFile;

const RULE: &str = "links";

/// Checks every link and image of one Markdown file against the tracked paths.
#[must_use]
pub fn check(file: &TextFile, paths: &[String]) -> Vec<Finding> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let parser = Parser::new_ext(&file.text, Options::ENABLE_TABLES);
    for (event, range) in parser.into_offset_iter() {
        let (link_type, target) = match event {
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                ..
            }) => (link_type, dest_url),
            Event::Start(Tag::Image {
                link_type,
                dest_url,
                ..
            }) => (link_type, dest_url),
            _ => continue,
        };
        if matches!(link_type, LinkType::Autolink | LinkType::Email) || is_external(&target) {
            continue;
        }
        if !leads_to_tracked(&file.path, &target, paths) {
            let message =
                format!("link to `{target}` leads nowhere: fix the path, or add the file to git");
            findings.push(Finding::new(
                &file.path,
                line_at(&file.text, range.start),
                RULE,
                message,
            ));
        }
    }
    findings
}

fn is_external(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphabetic())
    }) || target.starts_with("//")
}

fn leads_to_tracked(from: &str, target: &str, paths: &[String]) -> bool {
    let target = target.split(['#', '?']).next().unwrap_or_default();
    if target.is_empty() {
        return true;
    }
    let Some(resolved) = resolve(from, &target.replace("%20", " ")) else {
        return false;
    };
    let paths: BTreeSet<&str> = paths.iter().map(String::as_str).collect();
    let folder = format!("{resolved}/");
    resolved.is_empty()
        || paths.contains(resolved.as_str())
        || paths.iter().any(|path| path.starts_with(&folder))
}

/// Resolves a link `target` in the file `from` to a path from the root; `None` if it leaves
/// the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let paths = [
            "README.md",
            "docs/a.md",
            "docs/b c.md",
            "crates/gates/src/lib.rs",
        ]
        .map(str::to_owned);
        let found = check(&TextFile::new("docs/a.md", text), &paths);
        found.iter().map(|found| found.line).collect()
    }

    #[test]
    fn link_to_a_missing_file_is_reported() {
        for text in [
            "\n[x](missing.md)",
            "\n![x](missing.png)",
            "\n[x](../docs/missing.md#part)",
            "\n[x](../../README.md)",
            "\n[x][y]\n\n[y]: missing.md",
            "\n[x](<missing file.md>)",
            "\n[x](missing.md \"title\")",
            "|a|\n|-|\n\n[x](/docs/missing.md)",
        ] {
            assert_eq!(lines(text).len(), 1, "{text}");
        }
        assert_eq!(lines("one\n\ntwo [x](missing.md)"), [3]);
    }

    #[test]
    fn links_to_files_folders_and_the_web_pass() {
        for text in [
            "[x](../README.md)",
            "[x](a.md#part)",
            "[x](#part)",
            "[x](b%20c.md)",
            "[x](../crates/gates)",
            "[x](../crates/gates/)",
            "[x](..)",
            "[x](https://example.org/missing.md) <https://example.org> [m](mailto:a@example.org)",
            "`[x](missing.md)`",
            "```\n[x](missing.md)\n```",
        ] {
            assert!(lines(text).is_empty(), "{text}");
        }
    }
}
