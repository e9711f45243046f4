//! `"Name" : value` lines.

use super::super::fields::Lines;
use super::{GateAnswer, GateReport, MemberNames, rows, simple};
use crate::go::quote::quote;

pub fn render(lines: &mut Lines, answer: GateAnswer<'_>) {
    let text = |text: &str| quote(text.as_bytes());
    match answer {
        GateAnswer::Enabled(response) => {
            lines.header(response.header.as_ref());
            for feature in &response.features {
                lines.field("Feature", text(&feature.name));
                lines.field("Enabled", feature.enabled);
            }
        }
        GateAnswer::EndpointsEnabled(list) => {
            for it in list {
                lines.header(it.response.header.as_ref());
                for feature in &it.response.features {
                    lines.field("Feature", text(&feature.name));
                    lines.field("Enabled", feature.enabled);
                }
                lines.field("Endpoint", text(&it.endpoint));
                lines.blank();
            }
        }
        GateAnswer::List(report) => {
            feature_row(lines, rows::all_features(report));
            gateless(lines, report);
        }
        GateAnswer::Status(report) => {
            feature_row(lines, rows::requested_features(report));
            gateless(lines, report);
        }
        GateAnswer::Explanation(explanation) => {
            lines.field("Feature", text(&explanation.detail.name));
            for (name, value) in simple::explanation_lines(explanation).into_iter().skip(1) {
                lines.field(&capitalised(name), text(&value));
            }
        }
        GateAnswer::Plan(planned) => {
            let names = [
                "Feature", "Level", "Member", "Before", "After", "Block", "Why",
            ];
            for row in planned.notable() {
                for (name, cell) in names.iter().zip(rows::plan_cells(planned, row)) {
                    lines.field(name, text(&cell));
                }
                lines.blank();
            }
            for row in planned.writes() {
                lines.field("Writes", text(&rows::write_line(planned, row)));
            }
            for it in &planned.plan.flags_to_drop {
                lines.field("FlagToDrop", text(&rows::flag_to_drop_line(planned, it)));
            }
            for obstacle in &planned.plan.obstacles {
                lines.field("Obstacle", text(obstacle));
            }
            for assumption in &planned.assumptions {
                lines.field("Assumed", text(assumption));
            }
            let version = planned.plan.cluster_version;
            let version = version.map_or_else(String::new, |version| version.to_string());
            lines.field("ClusterVersion", text(&version));
            lines.field("Blocked", planned.plan.is_blocked());
        }
        GateAnswer::History { response, names } => {
            lines.header(response.header.as_ref());
            for it in rows::decisions(&response.decisions) {
                decision(lines, &it, names);
            }
        }
        GateAnswer::Event { response, names } => {
            lines.header(response.header.as_ref());
            if let Some(it) = &response.decision {
                let changed = response.changed.iter();
                let decided = rows::DecisionRow {
                    decision: it,
                    changed: changed.map(|it| (it.name.clone(), it.enabled)).collect(),
                };
                decision(lines, &decided, names);
            }
        }
    }
}

fn gateless(lines: &mut Lines, report: &GateReport) {
    for endpoint in &report.gateless {
        lines.field("KnowsNoGates", quote(endpoint.as_bytes()));
    }
}

fn feature_row(lines: &mut Lines, list: Vec<rows::FeatureRow<'_>>) {
    let text = |text: &str| quote(text.as_bytes());
    for feature_row in list {
        lines.field("Name", text(feature_row.name));
        lines.field("Level", text(feature_row.level()));
        lines.field("Enabled", feature_row.enabled);
        if let Some(detail) = feature_row.detail {
            lines.field("Stage", text(&detail.stage));
            lines.field("Default", detail.default);
            lines.field("Locked", detail.locked);
            lines.field("Explicit", detail.explicit);
            lines.field("Source", text(&detail.source));
            lines.field("VersionUsed", text(&detail.version_used));
            if detail.since_index != 0 {
                lines.field("SinceIndex", detail.since_index);
            }
        }
        lines.field("Reason", text(feature_row.reason()));
        if !feature_row.endpoint.is_empty() {
            lines.field("Endpoint", text(feature_row.endpoint));
        }
        lines.blank();
    }
}

fn decision(lines: &mut Lines, decided: &rows::DecisionRow<'_>, names: &MemberNames) {
    let it = decided.decision;
    lines.field("Index", it.index);
    lines.field("DecidedUnixSeconds", it.decided_unix_seconds);
    lines.field("ClusterVersion", quote(it.cluster_version.as_bytes()));
    lines.member_id("DecidedBy", it.decided_by);
    lines.field(
        "DecidedByName",
        quote(names.display_name(it.decided_by).as_bytes()),
    );
    for (name, value) in &decided.changed {
        let changed = format!("{name}={value}");
        lines.field("Changed", quote(changed.as_bytes()));
    }
    if !it.cause.is_empty() {
        lines.field("Cause", quote(it.cause.as_bytes()));
    }
    lines.blank();
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
