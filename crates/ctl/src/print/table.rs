//! The `table` format, for answers that are lists. `simple` prints the same rows without frame.

use portunus_proto::etcdserverpb::StatusResponse;

use super::{Answer, gate};
use crate::go::size::humanize;

/// A heading and rows of as many cells.
#[derive(Debug, Default)]
pub struct Contents {
    pub heading: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// The drawn table, if the answer is a list.
pub fn render(answer: &Answer<'_>) -> Option<String> {
    match answer {
        Answer::Gate(answer) => gate::table::render(*answer),
        answer => contents(answer).map(|contents| draw(&contents)),
    }
}

/// The cells, if the answer is a list.
pub fn contents(answer: &Answer<'_>) -> Option<Contents> {
    let contents = match answer {
        Answer::Members(response) => Contents {
            heading: vec![
                "ID",
                "STATUS",
                "NAME",
                "PEER ADDRS",
                "CLIENT ADDRS",
                "IS LEARNER",
            ],
            rows: response
                .members
                .iter()
                .map(|member| {
                    let started = !member.name.is_empty();
                    vec![
                        format!("{:x}", member.id),
                        if started { "started" } else { "unstarted" }.to_owned(),
                        member.name.clone(),
                        member.peer_urls.join(","),
                        member.client_urls.join(","),
                        member.is_learner.to_string(),
                    ]
                })
                .collect(),
        },
        Answer::Health(list) => Contents {
            heading: vec!["ENDPOINT", "HEALTH", "TOOK", "ERROR"],
            rows: list
                .iter()
                .map(|health| {
                    vec![
                        health.endpoint.clone(),
                        health.error.is_none().to_string(),
                        health.took_text(),
                        health.error.clone().unwrap_or_default(),
                    ]
                })
                .collect(),
        },
        Answer::Status(list) => Contents {
            heading: vec![
                "ENDPOINT",
                "ID",
                "VERSION",
                "STORAGE VERSION",
                "DB SIZE",
                "IN USE",
                "PERCENTAGE NOT IN USE",
                "QUOTA",
                "IS LEADER",
                "IS LEARNER",
                "RAFT TERM",
                "RAFT INDEX",
                "RAFT APPLIED INDEX",
                "ERRORS",
                "DOWNGRADE TARGET VERSION",
                "DOWNGRADE ENABLED",
            ],
            rows: list
                .iter()
                .map(|status| status_row(&status.endpoint, &status.response))
                .collect(),
        },
        Answer::HashKv(list) => Contents {
            heading: vec!["ENDPOINT", "HASH", "HASH REVISION"],
            rows: list
                .iter()
                .map(|hash| {
                    vec![
                        hash.endpoint.clone(),
                        hash.response.hash.to_string(),
                        hash.response.hash_revision.to_string(),
                    ]
                })
                .collect(),
        },
        Answer::Snapshot(status) => Contents {
            heading: vec!["HASH", "REVISION", "TOTAL KEYS", "TOTAL SIZE", "VERSION"],
            rows: vec![vec![
                format!("{:x}", status.hash),
                status.revision.to_string(),
                status.total_keys.to_string(),
                humanize(status.total_bytes),
                status.version.clone(),
            ]],
        },
        Answer::FileHash(hash) => Contents {
            heading: vec!["HASH", "HASH REVISION", "COMPACT REVISION"],
            rows: vec![vec![
                hash.hash.to_string(),
                hash.revision.to_string(),
                hash.compact_revision.to_string(),
            ]],
        },
        _ => return None,
    };
    Some(contents)
}

fn status_row(endpoint: &str, status: &StatusResponse) -> Vec<String> {
    let member_id = status.header.as_ref().map_or(0, |header| header.member_id);
    let size = |bytes: i64| humanize(u64::try_from(bytes).unwrap_or_default());
    // A store of no bytes has none unused.
    let percent_used = (status.db_size_in_use.saturating_mul(100))
        .checked_div(status.db_size)
        .unwrap_or(100);
    let downgrade = status.downgrade_info.clone().unwrap_or_default();
    vec![
        endpoint.to_owned(),
        format!("{member_id:x}"),
        status.version.clone(),
        status.storage_version.clone(),
        size(status.db_size),
        size(status.db_size_in_use),
        format!("{}%", 100 - percent_used),
        size(status.db_size_quota),
        (status.leader == member_id).to_string(),
        status.is_learner.to_string(),
        status.raft_term.to_string(),
        status.raft_index.to_string(),
        status.raft_applied_index.to_string(),
        status.errors.join(", "),
        downgrade.target_version,
        downgrade.enabled.to_string(),
    ]
}

pub(super) fn draw(contents: &Contents) -> String {
    let cell = |text: &String| text.trim().to_owned();
    let rows = contents.rows.iter();
    let rows: Vec<Vec<String>> = rows.map(|row| row.iter().map(cell).collect()).collect();
    let widths: Vec<usize> = contents
        .heading
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max();
            widest.unwrap_or(0).max(title.chars().count())
        })
        .collect();

    let rule = |left: &str, middle: &str, right: &str| {
        let parts: Vec<String> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
        format!("{left}{}{right}\n", parts.join(middle))
    };
    let row = |cells: Vec<String>| format!("│ {} │\n", cells.join(" │ "));

    let mut drawn = rule("┌", "┬", "┐");
    let titles = contents.heading.iter().zip(&widths);
    drawn += &row(titles
        .map(|(title, width)| format!("{title:^width$}"))
        .collect());
    if !rows.is_empty() {
        drawn += &rule("├", "┼", "┤");
    }
    for cells in &rows {
        let cells = cells.iter().zip(&widths);
        drawn += &row(cells
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect());
    }
    drawn + &rule("└", "┴", "┘")
}
