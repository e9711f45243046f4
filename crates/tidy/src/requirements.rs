//! Rule: the register of requirements and the claims of the tests agree.
//!
//! A requirement is proven if and only if a test that runs names it. Ignored tests do not
//! run by default, so they prove nothing. This module compares the rows of `register` with
//! the claims of `proofs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::proofs::Test;
use crate::register::{PATH, Requirement, State};

const RULE: &str = "requirements";

/// Compares the register with the tests.
#[must_use]
pub fn check(rows: &[Requirement], tests: &[Test]) -> Vec<Finding> {
    let known: BTreeMap<&str, State> = rows
        .iter()
        .map(|row| (row.id.as_str(), row.state))
        .collect();
    let mut findings = Vec::new();
    let mut proven = BTreeSet::new();
    for test in tests {
        for claim in &test.claims {
            if !test.ignored {
                proven.insert(claim.id.as_str());
            }
            let problem = match known.get(claim.id.as_str()) {
                Some(State::Proven | State::PartlyPlanned) => continue,
                Some(State::Planned) => format!(
                    "test `{}` proves `{}`, which {PATH} calls planned: mark it proven, or write `planned: what is missing`",
                    test.name, claim.id
                ),
                Some(State::NotTestable) => format!(
                    "test `{}` proves `{}`, which {PATH} calls not testable: mark it proven",
                    test.name, claim.id
                ),
                None => format!(
                    "`{}` is not in {PATH}: name single requirements, separated by commas, no ranges",
                    claim.id
                ),
            };
            findings.push(Finding::new(&claim.path, claim.line, RULE, problem));
        }
    }
    for row in rows {
        if row.state == State::Proven && !proven.contains(row.id.as_str()) {
            let problem = format!(
                "`{}` is marked proven but no test that runs has `/// Proves: {}`: write the test, or mark it planned",
                row.id, row.id
            );
            findings.push(Finding::new(PATH, row.line, RULE, problem));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proofs::Claim;

    fn row(id: &str, state: State) -> Requirement {
        Requirement {
            id: id.to_owned(),
            state,
            line: 9,
        }
    }

    fn test(id: &str, ignored: bool) -> Test {
        Test {
            name: "t".to_owned(),
            ignored,
            claims: vec![Claim {
                id: id.to_owned(),
                path: "crates/gates/src/lib.rs".to_owned(),
                line: 3,
            }],
        }
    }

    #[test]
    fn proven_requirement_without_a_test_that_runs_is_reported() {
        let rows = [row("G1", State::Proven)];
        assert!(check(&rows, &[test("G1", false)]).is_empty());
        let found = check(&rows, &[]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), (PATH, 9));
        assert_eq!(check(&rows, &[test("G1", true)]).len(), 1);
    }

    #[test]
    fn planned_requirement_with_a_test_is_reported_unless_the_missing_part_is_named() {
        assert!(check(&[row("G1", State::Planned)], &[]).is_empty());
        let found = check(&[row("G1", State::Planned)], &[test("G1", false)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("mark it proven"), "{}", found[0]);
        assert!(check(&[row("G1", State::PartlyPlanned)], &[test("G1", false)]).is_empty());
        assert!(check(&[row("G1", State::PartlyPlanned)], &[]).is_empty());
    }

    #[test]
    fn not_testable_requirement_with_a_test_is_reported() {
        assert!(check(&[row("G1", State::NotTestable)], &[]).is_empty());
        assert_eq!(
            check(&[row("G1", State::NotTestable)], &[test("G1", false)]).len(),
            1
        );
    }

    #[test]
    fn unknown_identifiers_and_ranges_are_reported_at_the_test() {
        let rows = [row("G1", State::Proven)];
        for id in ["G2", "G1-G6", "g1", "G1."] {
            let found = check(&rows, &[test("G1", false), test(id, false)]);
            assert_eq!(found.len(), 1, "{id}: {found:?}");
            assert_eq!(
                (found[0].path.as_str(), found[0].line),
                ("crates/gates/src/lib.rs", 3)
            );
        }
    }
}
