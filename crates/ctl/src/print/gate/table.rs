//! The cells of what is drawn as a table, and the lines below it.

use super::super::table::{Contents, draw};
use super::{GateAnswer, rows, simple};

/// The drawn table, if the answer has one.
pub fn render(answer: GateAnswer<'_>) -> Option<String> {
    let mut text = draw(&contents(answer)?);
    let below: Vec<String> = match answer {
        GateAnswer::Plan(planned) => simple::plan_summary(planned),
        GateAnswer::List(report) | GateAnswer::Status(report) => {
            rows::gateless_notes(report).collect()
        }
        _ => Vec::new(),
    };
    for line in below {
        text += &line;
        text.push('\n');
    }
    Some(text)
}

/// The cells, if the answer has some.
pub fn contents(answer: GateAnswer<'_>) -> Option<Contents> {
    let contents = match answer {
        GateAnswer::Enabled(response) => Contents {
            heading: vec!["FEATURE", "ENABLED"],
            rows: rows::only_feature(response)
                .map(|it| vec![it.name.clone(), it.enabled.to_string()])
                .into_iter()
                .collect(),
        },
        GateAnswer::EndpointsEnabled(list) => Contents {
            heading: vec!["ENDPOINT", "FEATURE", "ENABLED"],
            rows: rows::endpoints(list)
                .map(|(endpoint, feature)| {
                    let enabled = feature.enabled.to_string();
                    vec![endpoint.to_owned(), feature.name.clone(), enabled]
                })
                .collect(),
        },
        GateAnswer::List(report) => Contents {
            heading: vec![
                "NAME", "LEVEL", "ENABLED", "STAGE", "DEFAULT", "LOCKED", "SOURCE", "ENDPOINT",
            ],
            rows: rows::all_features(report)
                .into_iter()
                .filter_map(|feature_row| {
                    let detail = feature_row.detail?;
                    Some(vec![
                        feature_row.name.to_owned(),
                        feature_row.level().to_owned(),
                        feature_row.enabled.to_string(),
                        detail.stage.clone(),
                        detail.default.to_string(),
                        detail.locked.to_string(),
                        detail.source.clone(),
                        feature_row.endpoint_or_dash().to_owned(),
                    ])
                })
                .collect(),
        },
        GateAnswer::Status(report) => Contents {
            heading: vec!["NAME", "LEVEL", "ENABLED", "ENDPOINT", "REASON"],
            rows: rows::requested_features(report)
                .into_iter()
                .map(|feature_row| {
                    vec![
                        feature_row.name.to_owned(),
                        feature_row.level().to_owned(),
                        feature_row.enabled.to_string(),
                        feature_row.endpoint_or_dash().to_owned(),
                        feature_row.reason().to_owned(),
                    ]
                })
                .collect(),
        },
        GateAnswer::Explanation(explanation) => Contents {
            heading: vec!["FIELD", "VALUE"],
            rows: simple::explanation_lines(explanation)
                .into_iter()
                .map(|(name, value)| {
                    let name = if name.is_empty() { "feature" } else { name };
                    vec![name.to_owned(), value]
                })
                .collect(),
        },
        GateAnswer::Plan(planned) => Contents {
            heading: vec![
                "FEATURE", "LEVEL", "MEMBER", "BEFORE", "AFTER", "BLOCK", "WHY",
            ],
            rows: planned
                .notable()
                .map(|row| rows::plan_cells(planned, row))
                .collect(),
        },
        GateAnswer::History { response, names } => Contents {
            heading: vec![
                "INDEX",
                "TIME",
                "CLUSTER VERSION",
                "DECIDED BY",
                "CHANGED",
                "CAUSE",
            ],
            rows: rows::decisions(&response.decisions)
                .iter()
                .map(|decided| decided.cells(names))
                .collect(),
        },
        // A watch does not end, so it cannot be drawn as a table.
        GateAnswer::Event { .. } => return None,
    };
    Some(contents)
}
