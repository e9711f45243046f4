//! The cause of a decision about cluster features: what changed since the decision before.
//!
//! The leader compares and writes the cause into the entry, so every member keeps the same
//! text. Nothing depends on it.

use std::collections::{BTreeMap, BTreeSet};

use portunus_gates::MajorMinor;

use crate::membership::{MemberRecord, Membership, ProposalRecord};

/// The longest cause that is written into an entry, in characters.
const MAX_CHARS: usize = 400;
const FIRST: &str = "first decision";
const UNSEEN: &str = "a change before this leader started";

/// What decisions are made from: the cluster version, and each member's role and proposal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecisionInputs {
    version: Option<MajorMinor>,
    members: BTreeMap<u64, Input>,
}

#[derive(Debug, Clone, PartialEq)]
struct Input {
    name: String,
    is_learner: bool,
    proposal: Option<ProposalRecord>,
}

impl DecisionInputs {
    /// The inputs that a membership holds.
    pub fn of(membership: &Membership) -> DecisionInputs {
        let input = |record: &MemberRecord| Input {
            name: record.name.clone(),
            is_learner: record.is_learner,
            proposal: record.proposal.clone(),
        };
        DecisionInputs {
            version: membership.cluster_version,
            members: membership
                .iter()
                .map(|record| (record.id, input(record)))
                .collect(),
        }
    }

    /// The inputs of a decision that comes with this cluster version.
    pub fn at(version: MajorMinor, membership: &Membership) -> DecisionInputs {
        DecisionInputs {
            version: Some(version),
            ..DecisionInputs::of(membership)
        }
    }

    /// The cause of a decision at `version` that is made from `membership`, where `self` is
    /// what the decision before was made from.
    pub fn cause(&self, membership: &Membership, version: MajorMinor) -> String {
        if membership.history.is_empty() {
            return FIRST.to_owned();
        }
        let now = DecisionInputs::of(membership);
        let mut events: Vec<String> = version_change(self.version, version).into_iter().collect();
        let ids: BTreeSet<u64> = self
            .members
            .keys()
            .chain(now.members.keys())
            .copied()
            .collect();
        for id in ids {
            events.extend(member_change(
                id,
                self.members.get(&id),
                now.members.get(&id),
            ));
        }
        if events.is_empty() {
            return UNSEEN.to_owned();
        }
        shortened(events.join("; "))
    }
}

/// Describes a change of the cluster version; `None` if it does not change.
pub fn version_change(before: Option<MajorMinor>, after: MajorMinor) -> Option<String> {
    let before = before.filter(|before| *before != after)?;
    Some(format!("cluster version {before} -> {after}"))
}

fn member_change(id: u64, before: Option<&Input>, after: Option<&Input>) -> Option<String> {
    let shown = after.or(before).map(|input| input.name.as_str());
    let name = match shown {
        None | Some("") => format!("{id:x}"),
        Some(name) => name.to_owned(),
    };
    match (before, after) {
        (None, None) => None,
        (Some(_), None) => Some(format!("{name} was removed")),
        (None, Some(input)) => {
            let role = if input.is_learner {
                " as a learner"
            } else {
                ""
            };
            Some(format!("{name} was added{role}"))
        }
        (Some(before), Some(after)) if before.is_learner && !after.is_learner => {
            Some(format!("{name} was promoted"))
        }
        (Some(before), Some(after)) => match (&before.proposal, &after.proposal) {
            (None, Some(_)) => Some(format!("{name} began to propose features")),
            (Some(_), None) => Some(format!("{name} proposes no features any more")),
            (Some(before), Some(after)) => flags_change(&name, before, after),
            (None, None) => None,
        },
    }
}

/// The flags that a member set, changed or dropped.
fn flags_change(name: &str, before: &ProposalRecord, after: &ProposalRecord) -> Option<String> {
    let flags: BTreeSet<&String> = before.flags.keys().chain(after.flags.keys()).collect();
    let changed = flags
        .into_iter()
        .filter(|flag| before.flags.get(*flag) != after.flags.get(*flag));
    let changed: Vec<String> = changed
        .map(|flag| match after.flags.get(flag) {
            Some(value) => format!("set {flag}={value}"),
            None => format!("dropped {flag}"),
        })
        .collect();
    (!changed.is_empty()).then(|| format!("{name} {}", changed.join(" and ")))
}

/// Names and flags are as long as members publish them; an entry is not to grow with them.
fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::membership::ParamsDecision;

    fn version(text: &str) -> MajorMinor {
        text.parse().unwrap()
    }

    type Flags<'a> = &'a [(&'a str, bool)];
    /// Id, whether it is a learner, flags; `None` is no proposal.
    type Given<'a> = (u64, bool, Option<Flags<'a>>);

    fn inputs(members: &[Given<'_>]) -> DecisionInputs {
        let flags = |flags: &[(&str, bool)]| {
            let flags = flags.iter().map(|(name, on)| ((*name).to_owned(), *on));
            flags.collect()
        };
        let input = |(id, is_learner, said): &Given<'_>| Input {
            name: format!("m{id}"),
            is_learner: *is_learner,
            proposal: said.map(|said| ProposalRecord {
                version: "3.8".to_owned(),
                flags: flags(said),
            }),
        };
        DecisionInputs {
            version: Some(version("3.8")),
            members: members.iter().map(|it| (it.0, input(it))).collect(),
        }
    }

    /// Two members that propose and set no flags, with one decision made.
    fn membership() -> Membership {
        let record = |id| MemberRecord {
            id,
            peer_urls: None,
            is_learner: false,
            name: String::new(),
            client_urls: Vec::new(),
            proposal: Some(ProposalRecord {
                version: "3.8".to_owned(),
                flags: BTreeMap::new(),
            }),
        };
        let mut membership = Membership::of_members([record(1), record(2)]);
        membership.cluster_version = Some(version("3.8"));
        membership.history = Arc::new(vec![ParamsDecision::default()]);
        membership
    }

    #[test]
    fn cause_names_each_change_since_the_decision_before() {
        let none: Option<Flags<'_>> = Some(&[]);
        let cases: &[(&[Given<'_>], &str)] = &[
            (&[(1, false, none), (2, false, none)], UNSEEN),
            (
                &[(1, false, none), (2, false, none), (3, false, none)],
                "m3 was removed",
            ),
            (&[(1, false, none)], "2 was added"),
            (&[(1, false, none), (2, true, none)], "2 was promoted"),
            (
                &[(1, false, none), (2, false, None)],
                "2 began to propose features",
            ),
            (
                &[
                    (1, false, Some(&[("A", true)])),
                    (2, false, Some(&[("B", false)])),
                ],
                "1 dropped A; 2 dropped B",
            ),
        ];
        for (before, expected) in cases {
            let cause = inputs(before).cause(&membership(), version("3.8"));
            assert_eq!(cause, *expected, "{before:?}");
        }
    }

    #[test]
    fn cause_names_flags_with_values_and_version_changes() {
        let before = inputs(&[(3, false, Some(&[("A", true), ("C", true)]))]);
        let after = inputs(&[(3, false, Some(&[("A", false), ("B", true)]))]);
        assert_eq!(
            member_change(3, before.members.get(&3), after.members.get(&3)).unwrap(),
            "m3 set A=false and set B=true and dropped C"
        );
        let now = membership();
        let cause = DecisionInputs::of(&now).cause(&now, version("3.7"));
        assert_eq!(cause, "cluster version 3.8 -> 3.7");
    }

    #[test]
    fn first_decision_is_named_so_and_long_causes_are_cut() {
        let mut new = membership();
        new.history = Arc::default();
        assert_eq!(DecisionInputs::default().cause(&new, version("3.8")), FIRST);
        let long = shortened("ä".repeat(10_000));
        assert_eq!(long.chars().count(), MAX_CHARS + 3);
    }
}
