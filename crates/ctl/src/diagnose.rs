//! The state of the cluster after a command timed out.
//!
//! "context deadline exceeded" alone does not distinguish an unreachable member from a cluster
//! without a quorum. Each endpoint is asked for its status, which needs no quorum, all at once
//! and with a short timeout.

use std::time::Duration;

use portunus_client::{Client, ClientError, Options};
use portunus_proto::etcdserverpb::StatusResponse;
use tokio::task::JoinSet;

use crate::globals::Globals;
use crate::outcome::Failure;

/// Longest wait for one endpoint; the command itself has waited already.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Adds what the endpoints report to a failure that was a timeout.
pub async fn explain_timeout(failure: Failure, globals: &Globals) -> Failure {
    if !failure.timed_out {
        return failure;
    }
    // The command has asked for a password if it needs one.
    let Ok(settings) = globals.options() else {
        return failure;
    };
    let mut requests = JoinSet::new();
    for (number, endpoint) in globals.client.endpoints.iter().cloned().enumerate() {
        let options = Options {
            endpoints: vec![endpoint.clone()],
            dial_timeout: REPLY_TIMEOUT,
            command_timeout: Some(REPLY_TIMEOUT),
            ..settings.clone()
        };
        requests.spawn(async move {
            let report = status(options).await;
            // The line begins with the endpoint already.
            let own = format!("cannot connect to {endpoint}: ");
            let report = report.map_err(|why| why.replace(&own, ""));
            (number, endpoint, report)
        });
    }
    let mut reports = requests.join_all().await;
    reports.sort_by_key(|(number, ..)| *number);
    let reports: Vec<_> = reports
        .into_iter()
        .map(|(_, endpoint, report)| (endpoint, report))
        .collect();
    Failure {
        note: Some(describe(&reports).join("\n")),
        ..failure
    }
}

async fn status(options: Options) -> Result<StatusResponse, String> {
    let client = Client::connect(options).map_err(|error| error.to_string())?;
    client.status().await.map_err(|error| match error {
        ClientError::DeadlineExceeded {
            last_attempt: Some(cause),
        } => cause.to_string(),
        error => error.to_string(),
    })
}

/// One line per endpoint, and what to do if none of them has a leader.
fn describe(reports: &[(String, Result<StatusResponse, String>)]) -> Vec<String> {
    let mut lines: Vec<String> = reports
        .iter()
        .map(|(endpoint, report)| match report {
            Ok(status) if status.leader == 0 => {
                let errors = status.errors.join(", ");
                format!(
                    "{endpoint} is reachable: {errors}, term {}",
                    status.raft_term
                )
            }
            Ok(status) => format!(
                "{endpoint} is reachable: leader {:x}, term {}",
                status.leader, status.raft_term
            ),
            Err(why) => format!("{endpoint} is not reachable: {why}"),
        })
        .collect();
    let answers: Vec<&StatusResponse> = reports
        .iter()
        .filter_map(|(_, report)| report.as_ref().ok())
        .collect();
    if !answers.is_empty() && answers.iter().all(|status| status.leader == 0) {
        lines.push(
            "The cluster has no leader: writes and linearizable reads need a majority of its \
             members. Start the missing members; until then --consistency=s reads what one \
             member has."
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(leader: u64) -> Result<StatusResponse, String> {
        let errors = match leader {
            0 => vec![
                "etcdserver: no leader".to_owned(),
                "no leader for 12s".to_owned(),
            ],
            _ => Vec::new(),
        };
        Ok(StatusResponse {
            leader,
            errors,
            raft_term: 7,
            ..StatusResponse::default()
        })
    }

    #[test]
    fn endpoints_without_a_leader_are_reported_with_the_remedy() {
        let reports = [
            ("a:1".to_owned(), status(0)),
            ("b:2".to_owned(), Err("Connection refused".to_owned())),
        ];
        let lines = describe(&reports);
        assert_eq!(
            lines[..2],
            [
                "a:1 is reachable: etcdserver: no leader, no leader for 12s, term 7",
                "b:2 is not reachable: Connection refused"
            ]
        );
        assert!(lines[2].contains("--consistency=s"), "{lines:?}");
    }

    #[test]
    fn timeout_with_a_known_leader_suggests_no_quorum_remedy() {
        let reports = [
            ("a:1".to_owned(), status(0)),
            ("b:2".to_owned(), status(0x1f)),
        ];
        let lines = describe(&reports);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], "b:2 is reachable: leader 1f, term 7");
        let silent = [("a:1".to_owned(), Err("refused".to_owned()))];
        assert_eq!(describe(&silent).len(), 1);
    }
}
