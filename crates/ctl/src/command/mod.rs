//! One module per command: its flags, its checks in etcdctl's order and with its texts, its calls.
//!
//! A command reads arguments, asks the client and hands the answer to the printer. It keeps no
//! state and knows nothing of other commands, except that `txn` reads its requests as `get`,
//! `put` and `del` read theirs.

pub mod alarm;
pub mod api;
pub mod auth;
pub mod check;
mod check_datascale;
mod check_kubernetes;
pub mod compaction;
pub mod completion;
pub mod defrag;
pub mod del;
pub mod downgrade;
pub mod elect;
pub mod endpoint;
pub mod gate;
pub mod get;
pub mod hashkv;
pub mod keys;
pub mod lease;
pub mod lock;
pub mod make_mirror;
pub mod member;
pub mod migrate;
pub mod move_leader;
pub mod options;
pub mod put;
pub mod role;
pub mod snapshot;
pub mod txn;
pub mod user;
pub mod version;
pub mod watch;

mod load;
mod members;
mod no_args;
mod watch_request;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Returns the end of a program that did not succeed, as Go prints it.
fn exit_status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal: {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

/// Returns Go's name of a signal that ends programs.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        6 => "aborted",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
