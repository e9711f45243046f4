//! `del`: removes a key or a range.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use portunus_proto::etcdserverpb::DeleteRangeRequest;

use super::keys;
use crate::globals::Globals;
use crate::go::quote::quote;
use crate::outcome::{ExitWith, Failure, write_err};
use crate::print::Answer;

/// The time to cancel the deletion of a range with Ctrl-C.
const CANCEL_DELAY: Duration = Duration::from_secs(2);

/// Flags of `del`.
#[derive(Debug, Args)]
pub struct DelArgs {
    /// Key, and the end of a range
    #[arg(value_name = "KEY [RANGE_END]")]
    pub arguments: Vec<OsString>,
    /// Delete keys with matching prefix
    #[arg(long)]
    pub prefix: bool,
    /// Return deleted key-value pairs
    #[arg(long)]
    pub prev_kv: bool,
    /// Delete keys that are greater than or equal to the given key using byte compare
    #[arg(long)]
    pub from_key: bool,
    /// Delete a range of keys without the delay
    #[arg(long)]
    pub range: bool,
}

/// Runs the command.
pub async fn run(args: DelArgs, globals: &Globals) -> Result<(), Failure> {
    let request = request(&args)?;
    warn_before_range_delete(&args);
    let response = globals
        .connect_for_data()
        .await?
        .delete_range(request)
        .await?;
    globals.printer.print(&Answer::DeleteRange(&response))
}

/// The request the flags describe; `txn` uses it too.
pub fn request(args: &DelArgs) -> Result<DeleteRangeRequest, Failure> {
    if args.arguments.is_empty() || args.arguments.len() > 2 {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "del command needs one argument as key and an optional argument as range_end",
        ));
    }
    let (key, range_end) = keys::range(&args.arguments, args.prefix, args.from_key)?;
    Ok(DeleteRangeRequest {
        key,
        range_end,
        prev_kv: args.prev_kv,
    })
}

/// Warns and waits before a range is deleted: the user may have meant the second argument as
/// another key.
pub fn warn_before_range_delete(args: &DelArgs) {
    let [from, to] = args.arguments.as_slice() else {
        return;
    };
    if args.range {
        return;
    }
    let (from, to) = (quote(from.as_encoded_bytes()), quote(to.as_encoded_bytes()));
    let warning = format!(
        "Warning: Keys between {from} and {to} will be deleted. Please interrupt the command within \
         next 2 seconds to cancel. You can provide `--range` flag to avoid the delay.\n"
    );
    write_err(warning.as_bytes());
    std::thread::sleep(CANCEL_DELAY);
}
