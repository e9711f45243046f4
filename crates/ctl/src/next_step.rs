//! What the user can do about a failure.
//!
//! Standard error has etcdctl's line and nothing else, because scripts compare it; at a terminal a
//! second line has the next step.

use crate::outcome::{ExitWith, Failure};

/// Parts of error texts, each with the next step.
const STEPS: &[(&str, &str)] = &[
    (
        "user name is empty",
        "authentication is enabled: log in with --user=NAME, the password is asked for",
    ),
    (
        "invalid user ID or password",
        "check --user and --password; `portctl user passwd NAME` sets a new password",
    ),
    (
        "invalid auth token",
        "log in again with --user=NAME, or pass a token that has not expired",
    ),
    (
        "etcdserver: permission denied",
        "`portctl user get NAME --detail` shows what a user may do; root grants more with \
         `portctl role grant-permission`",
    ),
    (
        "root user does not exist",
        "`portctl user add root`, then enable authentication again",
    ),
    (
        "root user does not have root role",
        "`portctl user grant-role root root`, then enable authentication again",
    ),
    (
        "database space exceeded",
        "compact (`portctl compaction REVISION`), release the space (`portctl defrag --cluster`), then \
         `portctl alarm disarm`",
    ),
    (
        "required revision has been compacted",
        "the history up to that revision is gone: use a later revision, or none for the newest",
    ),
    (
        "required revision is a future revision",
        "`portctl endpoint status` shows the current revision with -w json",
    ),
    (
        "requested lease not found",
        "`portctl lease list` shows the leases that exist",
    ),
    (
        "member not found",
        "`portctl member list` shows the ids of the members",
    ),
    (
        "can only promote a learner member which is in sync with leader",
        "wait until the learner has caught up: `portctl endpoint status --cluster -w table`",
    ),
    (
        "not enough started members",
        "start the missing members first: `portctl endpoint health --cluster`",
    ),
    (
        "unhealthy cluster",
        "`portctl endpoint status --cluster -w table` shows each member; start those that are down",
    ),
    (
        "request is too large",
        "split the request, or raise --max-request-bytes of the members",
    ),
    (
        "too many operations in txn request",
        "split the transaction, or raise --max-txn-ops of the members",
    ),
    (
        "no leader",
        "a majority of the members must run: `portctl endpoint health --cluster`",
    ),
    (
        "is not leader",
        "include the endpoint of the leader: `portctl endpoint status --cluster -w table`",
    ),
    (
        "user name already exists",
        "`portctl user passwd NAME` changes the password of a user",
    ),
    ("user name not found", "`portctl user list` shows the users"),
    ("role name not found", "`portctl role list` shows the roles"),
    (
        "certificate",
        "--cacert names the CA of the server, --cert and --key the certificate of this client",
    ),
];

/// Returns the next step after a failure of a command, if one is known; `command` is its path.
pub fn next_step(failure: &Failure, command: &str) -> Option<String> {
    let message = failure.message.as_deref()?;
    if failure.exit == ExitWith::BadArgs {
        let step = format!("`portctl {command} --help` shows the arguments and examples");
        return Some(step);
    }
    let known = STEPS.iter().find(|(part, _)| message.contains(part));
    known.map(|(_, step)| (*step).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(exit: ExitWith, message: &str) -> Option<String> {
        next_step(&Failure::new(exit, message), "lease grant")
    }

    #[test]
    fn wrong_arguments_lead_to_the_help_of_the_command() {
        let step = step(ExitWith::BadArgs, "bad TTL").unwrap();
        assert!(step.contains("portctl lease grant --help"), "{step}");
    }

    #[test]
    fn errors_of_the_server_have_a_next_step_and_others_none() {
        for (error, part) in [
            (portunus_proto::EtcdError::NoSpace, "portctl defrag"),
            (portunus_proto::EtcdError::Compacted, "later revision"),
            (
                portunus_proto::EtcdError::PermissionDenied,
                "grant-permission",
            ),
            (
                portunus_proto::EtcdError::LeaseNotFound,
                "portctl lease list",
            ),
            (
                portunus_proto::EtcdError::MemberNotFound,
                "portctl member list",
            ),
        ] {
            let step = step(ExitWith::Error, &error.to_string()).unwrap();
            assert!(step.contains(part), "{error}: {step}");
        }
        assert_eq!(step(ExitWith::Error, "something else"), None);
    }
}
