//! Requests: `get`, `put` and `del` lines, with the flags the commands have.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use portunus_proto::etcdserverpb::{RequestOp, request_op};

use crate::cli::go_style;
use crate::command::{del, get, put};
use crate::line_args;
use crate::outcome::{ExitWith, Failure};

#[derive(Debug, Parser)]
#[command(
    no_binary_name = true,
    infer_subcommands = true,
    args_override_self = true
)]
#[command(disable_help_flag = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    request: Request,
}

#[derive(Debug, Subcommand)]
enum Request {
    Get(get::GetArgs),
    Put(put::PutArgs),
    Del(del::DelArgs),
}

/// Reads one request.
pub fn parse(line: &str) -> Result<RequestOp, Failure> {
    let invalid = |message: String| Failure::new(ExitWith::InvalidInput, message);
    let words = line_args::split(line).map_err(|error| invalid(error.to_string()))?;
    if words.len() < 2 {
        return Err(invalid(format!("invalid txn compare request: {line}")));
    }
    let words = words.into_iter().map(OsString::from_vec);
    let parsed = go_style(Line::command())
        .try_get_matches_from(words)
        .and_then(|matches| Line::from_arg_matches(&matches))
        .map_err(|_| invalid(format!("invalid txn request: {line}")))?;
    let request = match parsed.request {
        Request::Get(args) => request_op::Request::RequestRange(get::request(&args)?),
        // What is left of standard input is the rest of the transaction, not a value.
        Request::Put(args) => request_op::Request::RequestPut(put::request(&args, || None)?),
        Request::Del(args) => {
            let request = del::request(&args)?;
            del::warn_before_range_delete(&args);
            request_op::Request::RequestDeleteRange(request)
        }
    };
    Ok(RequestOp {
        request: Some(request),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest};

    fn request(line: &str) -> request_op::Request {
        parse(line).unwrap().request.take().unwrap()
    }

    #[test]
    fn txn_request_takes_the_flags_of_its_command() {
        assert_eq!(
            request(r#"put key1 "over wrote" --prev-kv"#),
            request_op::Request::RequestPut(PutRequest {
                key: "key1".into(),
                value: "over wrote".into(),
                prev_kv: true,
                ..PutRequest::default()
            })
        );
        assert_eq!(
            request("get a --prefix --limit 5"),
            request_op::Request::RequestRange(RangeRequest {
                key: "a".into(),
                range_end: "b".into(),
                limit: 5,
                ..RangeRequest::default()
            })
        );
        assert_eq!(
            request("del a c --range"),
            request_op::Request::RequestDeleteRange(DeleteRangeRequest {
                key: "a".into(),
                range_end: "c".into(),
                prev_kv: false,
            })
        );
    }

    #[test]
    fn value_that_looks_like_a_flag_follows_two_dashes() {
        let request_op::Request::RequestPut(put) = request("put a -- -1") else {
            panic!();
        };
        assert_eq!(put.value, "-1");
    }

    #[test]
    fn invalid_request_is_refused_with_etcdctl_text() {
        for (line, message, exit) in [
            (
                "put",
                "invalid txn compare request: put",
                ExitWith::InvalidInput,
            ),
            (
                "foo bar",
                "invalid txn request: foo bar",
                ExitWith::InvalidInput,
            ),
            (
                "put a --bogus",
                "invalid txn request: put a --bogus",
                ExitWith::InvalidInput,
            ),
            (
                "put a",
                "put command needs 1 argument and input from stdin or 2 arguments",
                ExitWith::BadArgs,
            ),
        ] {
            let failure = parse(line).unwrap_err();
            assert_eq!(failure.message.as_deref(), Some(message));
            assert_eq!(failure.exit, exit);
        }
    }
}
