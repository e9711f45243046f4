//! What a run of the contract suite found.

use std::fmt;
use std::time::Duration;

/// The outcome of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The store keeps the rule.
    Passed,
    /// The store breaks the rule.
    Failed {
        /// How.
        what: String,
    },
    /// The rule could not be checked.
    Skipped {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => formatter.write_str("PASS"),
            Self::Failed { what } => write!(formatter, "FAIL: {what}"),
            Self::Skipped { reason } => write!(formatter, "SKIP: {reason}"),
        }
    }
}

/// The report of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleReport {
    /// The id of the rule.
    pub id: &'static str,
    /// What the rule demands.
    pub description: &'static str,
    /// The requirements behind the rule.
    pub requirements: &'static [&'static str],
    /// Whether the store keeps it.
    pub outcome: Outcome,
    /// How long the check took.
    pub duration: Duration,
}

/// The report of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The rules, in the order in which they were checked.
    pub rules: Vec<RuleReport>,
}

impl Report {
    /// Returns the rules that the store breaks.
    pub fn failed(&self) -> impl Iterator<Item = &RuleReport> {
        let rules = self.rules.iter();
        rules.filter(|rule| matches!(rule.outcome, Outcome::Failed { .. }))
    }

    /// Returns the rules that could not be checked.
    pub fn skipped(&self) -> impl Iterator<Item = &RuleReport> {
        let rules = self.rules.iter();
        rules.filter(|rule| matches!(rule.outcome, Outcome::Skipped { .. }))
    }

    /// Returns whether no rule failed.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.failed().next().is_none()
    }
}
