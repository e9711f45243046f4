//! The register of requirements, as read from `docs/requirements.md`.
//!
//! Every table row of that file is one requirement: identifier, one line of text, state.
//! This module reads rows and checks that none is missing; whether the states are true is
//! asked in `requirements`.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::workspace::TextFile;

const RULE: &str = "register";
const REASON_LETTERS_MIN: usize = 20;

/// Where the register lives.
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
    ("X", 15),
    ("C", 40),
    ("K", 39),
];

/// How far the proof of a requirement has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// At least one test proves it.
    Proven,
    /// No test yet.
    Planned,
    /// Tests prove a part; the register says what is missing.
    PartlyPlanned,
    /// No test could prove it; the register says why.
    NotTestable,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Its identifier.
    pub id: String,
    /// How far its proof has come.
    pub state: State,
    /// Line in the register.
    pub line: usize,
}

/// Reads every row; a row that cannot be understood becomes a finding.
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

/// Checks that the rows are exactly the families: nothing missing, unknown or twice.
#[must_use]
pub fn check_complete(rows: &[Requirement], families: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        if let Some(first) = lines.insert(&row.id, row.line) {
            let message = format!("`{}` already stands in line {first}: keep one", row.id);
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

/// The cells of a table row; `None` for prose, headings of tables and their rulers.
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
            "`{id}` says nothing: write the requirement in one line"
        ));
    }
    Ok(Requirement {
        id: id.clone(),
        state: parse_state(state).map_err(|problem| format!("`{id}`: {problem}"))?,
        line,
    })
}

fn parse_state(text: &str) -> Result<State, String> {
    let (word, detail) = match text.split_once(':') {
        Some((word, detail)) => (word.trim(), Some(detail.trim())),
        None => (text, None),
    };
    match (word, detail) {
        ("proven", None) => Ok(State::Proven),
        ("planned", None) => Ok(State::Planned),
        ("planned", Some(missing)) if !missing.is_empty() => Ok(State::PartlyPlanned),
        ("planned", Some(_)) => {
            Err("say what is missing after `planned:`, or drop the colon".into())
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
    fn rows_are_read_with_their_state_and_line() {
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
    fn a_row_that_says_too_little_is_reported() {
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
    fn gaps_repeats_and_strangers_are_reported() {
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
