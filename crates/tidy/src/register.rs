//! The register of requirements, parsed from `docs/requirements.md`.
//!
//! Every table row of that file is one requirement: identifier, one line of text, state.
//! This module parses the rows and checks that none is missing; `requirements` checks
//! whether the states are true.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::workspace::TextFile;

const RULE: &str = "register";
const REASON_LETTERS_MIN: usize = 20;

/// The path of the register.
pub const PATH: &str = "docs/requirements.md";

/// The families of requirements, each numbered from 1 to the count without a gap.
pub const FAMILIES: &[(&str, usize)] = &[
    ("G", 135),
    ("S0-", 51),
    ("S0-A", 28),
    ("S1-", 17),
    ("S1-A", 6),
    ("S2-", 53),
    ("S2-A", 15),
    ("S3-", 17),
    ("S3-A", 9),
    ("S4-", 19),
    ("S4-A", 8),
    ("X", 15),
    ("C", 40),
    ("K", 39),
];

/// The state of a requirement's proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// At least one test proves it.
    Proven,
    /// No test proves it yet.
    Planned,
    /// Tests prove a part; the register names what is missing.
    PartlyPlanned,
    /// No test can prove it; the register gives the reason.
    NotTestable,
}

/// A row of the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The identifier.
    pub id: String,
    /// The state of its proof.
    pub state: State,
    /// The line in the register.
    pub line: usize,
}

/// Parses every row; a malformed row becomes a finding.
#[must_use]
pub fn read(file: &TextFile) -> (Vec<Requirement>, Vec<Finding>) {
    let mut rows = Vec::new();
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let Some(cells) = cells(line) else { continue };
        match requirement(&cells, index + 1) {
            Ok(row) => rows.push(row),
            Err(message) => findings.push(Finding::new(&file.path, index + 1, RULE, message)),
        }
    }
    (rows, findings)
}

/// Checks that the rows are exactly the families: none missing, unknown or repeated.
#[must_use]
pub fn check_complete(rows: &[Requirement], families: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        if let Some(first) = lines.insert(&row.id, row.line) {
            let message = format!("`{}` is already in line {first}: keep one", row.id);
            findings.push(Finding::new(PATH, row.line, RULE, message));
        }
    }
    for (prefix, count) in families {
        for number in 1..=*count {
            let id = format!("{prefix}{number}");
            if lines.remove(id.as_str()).is_none() {
                let message = format!("`{id}` is missing: add its row");
                findings.push(Finding::new(PATH, 1, RULE, message));
            }
        }
    }
    for (id, line) in lines {
        let message = format!(
            "`{id}` belongs to no family: correct it, or extend FAMILIES in crates/tidy/src/register.rs"
        );
        findings.push(Finding::new(PATH, line, RULE, message));
    }
    findings
}

/// Returns the cells of a table row; `None` for prose, headings of tables and their rulers.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for letter in inner.chars() {
        match letter {
            '|' if !escaped => cells.push(String::new()),
            _ => cells.last_mut()?.push(letter),
        }
        escaped = letter == '\\' && !escaped;
    }
    let cells: Vec<_> = cells.iter().map(|cell| cell.trim().to_owned()).collect();
    let first = cells.first()?;
    let is_ruler = !first.is_empty() && first.bytes().all(|byte| b"-:".contains(&byte));
    (first != "ID" && !is_ruler).then_some(cells)
}

fn requirement(cells: &[String], line: usize) -> Result<Requirement, String> {
    let [id, text, state] = cells else {
        return Err("a row has three cells: ID, requirement, state".into());
    };
    if text.is_empty() {
        return Err(format!(
            "`{id}` has no text: write the requirement in one line"
        ));
    }
    Ok(Requirement {
        id: id.clone(),
        state: parse_state(state).map_err(|problem| format!("`{id}`: {problem}"))?,
        line,
    })
}

fn parse_state(text: &str) -> Result<State, String> {
    let (name, detail) = match text.split_once(':') {
        Some((name, detail)) => (name.trim(), Some(detail.trim())),
        None => (text, None),
    };
    match (name, detail) {
        ("proven", None) => Ok(State::Proven),
        ("planned", None) => Ok(State::Planned),
        ("planned", Some(missing)) if !missing.is_empty() => Ok(State::PartlyPlanned),
        ("planned", Some(_)) => {
            Err("write what is missing after `planned:`, or drop the colon".into())
        }
        ("not testable", Some(reason)) if reason.chars().count() >= REASON_LETTERS_MIN => {
            Ok(State::NotTestable)
        }
        ("not testable", _) => Err(format!(
            "`not testable:` needs a reason of at least {REASON_LETTERS_MIN} letters"
        )),
        _ => Err(format!(
            "`{text}` is no state: write `proven`, `planned`, `planned: what is missing` or `not testable: reason`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> (Vec<Requirement>, Vec<Finding>) {
        read(&TextFile::new(PATH, text))
    }

    #[test]
    fn rows_are_parsed_with_their_state_and_line() {
        let (rows, findings) = read_text(
            "# Title\n\n| ID | Requirement | State |\n|----|:---:|---|\n| G1 | a \\| b | proven |\n| G2 | b | planned |\n| G3 | c | planned: the wire part |\n| G4 | d | not testable: it is a matter of taste |\n",
        );
        assert!(findings.is_empty(), "{findings:?}");
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row.id.as_str(), row.state, row.line))
            .collect();
        assert_eq!(
            found,
            [
                ("G1", State::Proven, 5),
                ("G2", State::Planned, 6),
                ("G3", State::PartlyPlanned, 7),
                ("G4", State::NotTestable, 8),
            ]
        );
    }

    #[test]
    fn malformed_row_is_reported() {
        for row in [
            "| G1 | text | done |",
            "| G1 | text | |",
            "| G1 | text | Proven |",
            "| G1 | text | proven: by hand |",
            "| G1 | text | planned: |",
            "| G1 | text | not testable |",
            "| G1 | text | not testable: too short |",
            "| G1 |  | planned |",
            "| G1 | planned |",
            "| G1 | a | b | planned |",
        ] {
            let (rows, findings) = read_text(row);
            assert_eq!((rows.len(), findings.len()), (0, 1), "{row}");
        }
    }

    #[test]
    fn missing_repeated_and_unknown_identifiers_are_reported() {
        let families = [("G", 2), ("S0-A", 1)];
        let check = |text: &str| check_complete(&read_text(text).0, &families).len();
        let row = |id: &str| format!("| {id} | text | planned |\n");
        assert_eq!(check(&[row("G1"), row("G2"), row("S0-A1")].concat()), 0);
        assert_eq!(check(&[row("G1"), row("S0-A1")].concat()), 1);
        assert_eq!(check(&[row("G1"), row("G2")].concat()), 1);
        assert_eq!(
            check(&[row("G1"), row("G2"), row("G2"), row("S0-A1")].concat()),
            1
        );
        assert_eq!(
            check(&[row("G1"), row("G2"), row("G3"), row("S0-A1")].concat()),
            1
        );
        assert_eq!(check(""), 3);
    }
}
