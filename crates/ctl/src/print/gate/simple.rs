//! For people: rows without frame, explanations as lines.

use std::io::Write;

use super::GateAnswer;
use super::{rows, table};
use crate::gates::foresight::Foresight;
use crate::gates::story::Story;

/// Appends formatted text; writing to memory cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{
        let _ = writeln!($out, $($format)*);
    }};
}

pub fn render(out: &mut Vec<u8>, answer: GateAnswer<'_>) {
    match answer {
        GateAnswer::Enabled(response) => {
            let enabled = rows::single(response).is_some_and(|feature| feature.enabled);
            line!(out, "{enabled}");
        }
        GateAnswer::EndpointsEnabled(list) => {
            for (endpoint, feature) in rows::endpoints(list) {
                line!(out, "{endpoint}, {}", feature.enabled);
            }
        }
        GateAnswer::Story(told) => {
            for (name, value) in story(told) {
                match name {
                    "" => line!(out, "{value}"),
                    name => line!(out, "  {name:<10}{value}"),
                }
            }
        }
        GateAnswer::Plan(foresight) => {
            for row in foresight.notable() {
                line!(out, "{}", in_one_line(&rows::plan_cells(foresight, row)));
            }
            for text in around(foresight) {
                line!(out, "{text}");
            }
        }
        GateAnswer::Event { response, names } => {
            let decision = response.decision.as_ref().filter(|it| it.index != 0);
            let Some(decision) = decision else {
                return line!(out, "nothing was decided yet");
            };
            let changed = response.changed.iter();
            let decided = rows::Decided {
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
                for text in rows::gateless(report) {
                    line!(out, "{text}");
                }
            }
        }
    }
}

/// The lines of an explanation; the one without a name is its heading.
pub fn story(story: &Story) -> Vec<(&'static str, String)> {
    let detail = &story.detail;
    let (name, level) = (&detail.name, &detail.level);
    let heading = match story.enabled {
        Some(value) => {
            let value = rows::value(Some(value));
            format!("{name} ({level} feature) is {value}: {}", detail.reason)
        }
        None => format!("{name} ({level} feature) is on for some members and off for others"),
    };
    let mut lines = vec![("", heading)];
    if !story.what.is_empty() {
        lines.push(("what", story.what.clone()));
    }
    let locked = if detail.locked { ", locked" } else { "" };
    let entry = match story.spec.as_str() {
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
    if let Some(reason) = &story.inert {
        lines.push(("note", format!("it has no effect here: {reason}")));
    }
    if let Some(note) = &story.not_written {
        lines.push(("note", note.clone()));
    }
    let whose = if level == "cluster" { "vote" } else { "member" };
    for word in &story.members {
        let text = format!("{} ({:x}) {}", word.name, word.member_id, word.word);
        lines.push((whose, text));
    }
    for (need, enabled) in &story.needs {
        lines.push(("needs", format!("{need} ({})", rows::value(Some(*enabled)))));
    }
    for assumption in &story.assumptions {
        lines.push(("assumed", assumption.clone()));
    }
    for way in &story.to_change {
        lines.push(("change", way.clone()));
    }
    lines.push(("next", story.next.clone()));
    lines
}

/// `Feature (level, member): before -> after: why`
fn in_one_line(cells: &[String]) -> String {
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
pub fn around(foresight: &Foresight) -> Vec<String> {
    let plan = &foresight.plan;
    let version = |version: Option<_>| {
        version.map_or_else(|| "undecided".to_owned(), |version| format!("{version}"))
    };
    let (before, after) = (
        version(foresight.cluster_version_before),
        version(plan.cluster_version),
    );
    let mut lines = vec![match before == after {
        true => format!("cluster version: {after}"),
        false => format!("cluster version: {before} -> {after}"),
    }];
    lines.extend(foresight.writes().map(|row| rows::write(foresight, row)));
    let to_drop = plan.flags_to_drop.iter();
    lines.extend(to_drop.map(|it| format!("flag to drop: {}", rows::flag_to_drop(foresight, it))));
    let obstacles = plan.obstacles.iter();
    lines.extend(obstacles.map(|obstacle| format!("obstacle: {obstacle}")));
    let assumptions = foresight.assumptions.iter();
    lines.extend(assumptions.map(|assumption| format!("assumed: {assumption}")));
    let nothing = match foresight.notable().next().is_none() {
        true => "no feature changes, nothing",
        false => "nothing",
    };
    let verdict = match (plan.is_blocked(), plan.flags_to_drop.is_empty()) {
        (true, _) => "blocked".to_owned(),
        (false, true) => format!("{nothing} stands in the way"),
        (false, false) => format!("{nothing} stands in the way once these flags are dropped"),
    };
    lines.push(format!("{}: {verdict}", foresight.change));
    lines
}
