//! `txn`: reads conditions and requests from standard input and runs them as one.

use std::ffi::OsString;
use std::io::{self, BufRead};

use clap::Args;
use portunus_proto::etcdserverpb::TxnRequest;

use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure, write_out};
use crate::print::Answer;
use crate::txn::{compare, request};

/// Flags of `txn`.
///
/// Standard input holds three blocks, each ended by an empty line: conditions such as
/// `mod("key") > "0"`, requests for when all of them hold, requests for when not.
#[derive(Debug, Args)]
pub struct TxnArgs {
    #[arg(hide = true)]
    arguments: Vec<OsString>,
    /// Prompt for each block
    #[arg(short = 'i', long)]
    interactive: bool,
}

/// Runs the command.
pub async fn run(args: TxnArgs, globals: &Globals) -> Result<(), Failure> {
    if !args.arguments.is_empty() {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "txn command does not accept argument",
        ));
    }
    let client = globals.connect_for_data().await?;
    let mut input = io::stdin().lock();
    let prompt = |text: &str| match args.interactive {
        true => write_out(format!("{text}\n").as_bytes()),
        false => Ok(()),
    };
    prompt("compares:")?;
    let compare = block(&mut input, compare::parse)?;
    prompt("success requests (get, put, del):")?;
    let success = block(&mut input, request::parse)?;
    prompt("failure requests (get, put, del):")?;
    let failure = block(&mut input, request::parse)?;
    drop(input);

    let response = client
        .txn(TxnRequest {
            compare,
            success,
            failure,
        })
        .await?;
    globals.printer.print(&Answer::Txn(&response))
}

/// Reads lines up to an empty one. A block without one was cut off, which is an error.
fn block<T>(
    input: &mut impl BufRead,
    parse: impl Fn(&str) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let invalid = |message: &str| Failure::new(ExitWith::InvalidInput, message);
    let mut items = Vec::new();
    loop {
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(invalid("EOF"));
        }
        let line = String::from_utf8(line)
            .map_err(|_| invalid("a line is not valid UTF-8; write such bytes as \"\\xff\""))?;
        let line = line.trim();
        if line.is_empty() {
            return Ok(items);
        }
        items.push(parse(line)?);
    }
}
