//! For people: rows without frame, explanations as lines.

use std::io::Write;

use super::GateAnswer;
use super::{rows, table};
use crate::gates::explain::FeatureExplanation;
use crate::gates::plan::PlannedChange;

/// Appends formatted text; writing to memory cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{
        let _ = writeln!($out, $($format)*);
    }};
}

pub fn render(out: &mut Vec<u8>, answer: GateAnswer<'_>) {
    match answer {
        GateAnswer::Enabled(response) => {
            let enabled = rows::only_feature(response).is_some_and(|feature| feature.enabled);
            line!(out, "{enabled}");
        }
        GateAnswer::EndpointsEnabled(list) => {
            for (endpoint, feature) in rows::endpoints(list) {
                line!(out, "{endpoint}, {}", feature.enabled);
            }
        }
        GateAnswer::Explanation(explanation) => {
            for (name, value) in explanation_lines(explanation) {
                match name {
                    "" => line!(out, "{value}"),
                    name => line!(out, "  {name:<10}{value}"),
                }
            }
        }
        GateAnswer::Plan(planned) => {
            for row in planned.notable() {
                line!(out, "{}", plan_line(&rows::plan_cells(planned, row)));
            }
            for text in plan_summary(planned) {
                line!(out, "{text}");
            }
        }
        GateAnswer::Event { response, names } => {
            let decision = response.decision.as_ref().filter(|it| it.index != 0);
            let Some(decision) = decision else {
                return line!(out, "nothing was decided yet");
            };
            let changed = response.changed.iter();
            let decided = rows::DecisionRow {
                decision,
                changed: changed.map(|it| (it.name.clone(), it.enabled)).collect(),
            };
            line!(out, "{}", decided.cells(names).join(", "));
        }
        GateAnswer::List(_) | GateAnswer::Status(_) | GateAnswer::History { .. } => {
            let contents = table::contents(answer).unwrap_or_default();
            for row in contents.rows {
                line!(out, "{}", row.join(", "));
            }
            if let GateAnswer::List(report) | GateAnswer::Status(report) = answer {
                for text in rows::gateless_notes(report) {
                    line!(out, "{text}");
                }
            }
        }
    }
}

/// The lines of an explanation; the one without a name is its heading.
pub fn explanation_lines(explanation: &FeatureExplanation) -> Vec<(&'static str, String)> {
    let detail = &explanation.detail;
    let (name, level) = (&detail.name, &detail.level);
    let heading = match explanation.enabled {
        Some(value) => {
            let value = rows::value_text(Some(value));
            format!("{name} ({level} feature) is {value}: {}", detail.reason)
        }
        None => format!("{name} ({level} feature) is on for some members and off for others"),
    };
    let mut lines = vec![("", heading)];
    if !explanation.what.is_empty() {
        lines.push(("what", explanation.what.clone()));
    }
    let locked = if detail.locked { ", locked" } else { "" };
    let entry = match explanation.spec.as_str() {
        "" => detail.stage.as_str(),
        spec => spec,
    };
    lines.push((
        "spec",
        format!("{entry}, default {}{locked}", detail.default),
    ));
    let whose = if level == "cluster" { "cluster " } else { "" };
    lines.push(("at", format!("{whose}version {}", detail.version_used)));
    lines.push(("source", detail.source.clone()));
    if detail.since_index != 0 {
        lines.push(("since", format!("log index {}", detail.since_index)));
    }
    if let Some(reason) = &explanation.inert {
        lines.push(("note", format!("it has no effect here: {reason}")));
    }
    if let Some(note) = &explanation.not_written {
        lines.push(("note", note.clone()));
    }
    let whose = if level == "cluster" { "vote" } else { "member" };
    for vote in &explanation.members {
        let text = format!("{} ({:x}) {}", vote.name, vote.member_id, vote.vote);
        lines.push((whose, text));
    }
    for (need, enabled) in &explanation.needs {
        lines.push((
            "needs",
            format!("{need} ({})", rows::value_text(Some(*enabled))),
        ));
    }
    for assumption in &explanation.assumptions {
        lines.push(("assumed", assumption.clone()));
    }
    for way in &explanation.to_change {
        lines.push(("change", way.clone()));
    }
    lines.push(("next", explanation.next.clone()));
    lines
}

/// `Feature (level, member): before -> after: why`
fn plan_line(cells: &[String]) -> String {
    let [feature, level, member, before, after, block, why] = cells else {
        return cells.join(", ");
    };
    let of = match member.as_str() {
        "" => String::new(),
        member => format!(", {member}"),
    };
    match block.as_str() {
        "" => format!("{feature} ({level}{of}): {before} -> {after}: {why}"),
        block => format!("{feature} ({level}{of}): {before} -> {after}, BLOCKS ({block}): {why}"),
    }
}

/// The lines of a plan besides its rows, the verdict last.
pub fn plan_summary(planned: &PlannedChange) -> Vec<String> {
    let plan = &planned.plan;
    let version = |version: Option<_>| {
        version.map_or_else(|| "undecided".to_owned(), |version| format!("{version}"))
    };
    let (before, after) = (
        version(planned.cluster_version_before),
        version(plan.cluster_version),
    );
    let mut lines = vec![match before == after {
        true => format!("cluster version: {after}"),
        false => format!("cluster version: {before} -> {after}"),
    }];
    lines.extend(planned.writes().map(|row| rows::write_line(planned, row)));
    let to_drop = plan.flags_to_drop.iter();
    lines.extend(
        to_drop.map(|it| format!("flag to drop: {}", rows::flag_to_drop_line(planned, it))),
    );
    let obstacles = plan.obstacles.iter();
    lines.extend(obstacles.map(|obstacle| format!("obstacle: {obstacle}")));
    let assumptions = planned.assumptions.iter();
    lines.extend(assumptions.map(|assumption| format!("assumed: {assumption}")));
    let not_blocked = match planned.notable().next().is_none() {
        true => "no feature changes, not blocked",
        false => "not blocked",
    };
    let verdict = match (plan.is_blocked(), plan.flags_to_drop.is_empty()) {
        (true, _) => "blocked".to_owned(),
        (false, true) => not_blocked.to_owned(),
        (false, false) => format!("{not_blocked} once these flags are dropped"),
    };
    lines.push(format!("{}: {verdict}", planned.change));
    lines
}
