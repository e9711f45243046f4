//! Rule: no file names a developer's machine or a package registry's host.
//!
//! Such a path or address works on one machine only, and reveals its layout.

use crate::finding::Finding;
use crate::workspace::TextFile;

const RULE: &str = "leaks";

// Concatenated from parts, so that this file does not break its own rule.
const HOMES: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
];
const HOSTS: &[&str] = &[
    concat!("static.", "crates.io"),
    concat!("index.", "crates.io"),
    concat!("proxy.", "golang.org"),
    concat!("sum.", "golang.org"),
    concat!("registry.", "npmjs.org"),
    concat!("files.", "pythonhosted.org"),
    concat!("pypi.", "org/simple"),
];

/// Checks one text file of any kind.
#[must_use]
pub fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut report = |message: String| {
            findings.push(Finding::new(&file.path, index + 1, RULE, message));
        };
        for home in HOMES {
            if line
                .match_indices(home)
                .any(|(at, _)| is_absolute(line, at))
            {
                report(format!(
                    "`{home}` is a path of one machine: use a relative path or a temporary folder"
                ));
            }
        }
        for host in HOSTS {
            if line.contains(host) {
                report(format!(
                    "`{host}` is a registry's host: leave it to the user's own configuration"
                ));
            }
        }
    }
    findings
}

/// Returns whether a path begins at `at`, not in the middle of a longer path or a URL.
fn is_absolute(line: &str, at: usize) -> bool {
    let inside_path = |letter: char| letter.is_alphanumeric() || "._-)}]~*".contains(letter);
    !line
        .get(..at)
        .is_some_and(|before| before.ends_with(inside_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(line: &str) -> usize {
        check(&TextFile::new("a.md", &format!("first\n{line}\n"))).len()
    }

    #[test]
    fn machine_path_is_reported_wherever_a_path_can_begin() {
        for home in HOMES {
            for line in [
                format!("cd {home}x"),
                format!("\"{home}x\""),
                format!("--dir={home}x"),
                format!("file://{home}x"),
                format!("{home}x"),
            ] {
                assert_eq!(count(&line), 1, "{line}");
            }
        }
    }

    #[test]
    fn folder_of_the_same_name_inside_a_path_passes() {
        for home in HOMES {
            for before in ["docs", "$HOME", "${DIR}", "..", "https://example.org"] {
                assert_eq!(count(&format!("{before}{home}x")), 0, "{before}{home}");
            }
        }
        assert_eq!(count("user root/role root at home"), 0);
    }

    #[test]
    fn registry_host_is_reported() {
        for host in HOSTS {
            assert_eq!(count(&format!("https://{host}/x")), 1, "{host}");
        }
    }
}
