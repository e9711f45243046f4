//! `put`: writes a key.

use std::ffi::OsString;
use std::io::{self, Read};

use bytes::Bytes;
use clap::Args;
use portunus_proto::etcdserverpb::PutRequest;

use super::keys::argument_bytes;
use crate::globals::Globals;
use crate::go::integer;
use crate::outcome::{ExitWith, Failure};
use crate::print::Answer;

const ARGUMENTS_NEEDED: &str = "put command needs 1 argument and input from stdin or 2 arguments";

/// Flags of `put`.
///
/// A value that begins with '-' is written after '--'. Without a value, it is read from standard
/// input.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Key and value; without a value it is read from standard input
    #[arg(value_name = "KEY [VALUE]")]
    pub arguments: Vec<OsString>,
    /// Lease ID (in hexadecimal) to attach to the key
    #[arg(long, default_value = "0")]
    pub lease: String,
    /// Return the previous key-value pair before modification
    #[arg(long)]
    pub prev_kv: bool,
    /// Updates the key using its current value
    #[arg(long)]
    pub ignore_value: bool,
    /// Updates the key using its current lease
    #[arg(long)]
    pub ignore_lease: bool,
}

/// Runs the command.
pub async fn run(args: PutArgs, globals: &Globals) -> Result<(), Failure> {
    let request = request(&args, value_from_stdin)?;
    let response = globals.connect_for_data().await?.put(request).await?;
    globals.printer.print(&Answer::Put(&response))
}

/// The request the flags describe; `txn` uses it too, without a standard input to read from.
pub fn request(
    args: &PutArgs,
    value_from_elsewhere: impl FnOnce() -> Option<Vec<u8>>,
) -> Result<PutRequest, Failure> {
    let bad = |message: String| Failure::new(ExitWith::BadArgs, message);
    let Some(key) = args.arguments.first() else {
        return Err(bad(ARGUMENTS_NEEDED.to_owned()));
    };
    if args.ignore_value && args.arguments.len() > 1 {
        let message = "put command needs only 1 argument when 'ignore-value' is set";
        return Err(bad(message.to_owned()));
    }
    let value = match args.arguments.get(1) {
        _ if args.ignore_value => Bytes::new(),
        Some(value) => argument_bytes(value),
        None => value_from_elsewhere()
            .ok_or_else(|| bad(ARGUMENTS_NEEDED.to_owned()))?
            .into(),
    };
    let lease = integer::parse_i64(&args.lease, 16)
        .map_err(|problem| bad(format!("bad lease ID ({problem}), expecting ID in Hex")))?;
    Ok(PutRequest {
        key: argument_bytes(key),
        value,
        lease,
        prev_kv: args.prev_kv,
        ignore_value: args.ignore_value,
        ignore_lease: args.ignore_lease,
    })
}

/// Everything on standard input; nothing there is the same as no value.
fn value_from_stdin() -> Option<Vec<u8>> {
    let mut value = Vec::new();
    io::stdin().lock().read_to_end(&mut value).ok()?;
    (!value.is_empty()).then_some(value)
}
