//! `get`: reads a key or a range.

use std::ffi::OsString;

use clap::Args;
use portunus_proto::etcdserverpb::RangeRequest;
use portunus_proto::etcdserverpb::range_request::{SortOrder, SortTarget};

use super::keys;
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};
use crate::print::{Answer, Format};

/// Flags of `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Key, and the end of a range
    #[arg(value_name = "KEY [RANGE_END]", hide = false)]
    pub arguments: Vec<OsString>,
    /// Linearizable(l) or serializable(s)
    #[arg(long, default_value = "l")]
    pub consistency: String,
    /// Order of results; ASCEND or DESCEND (ASCEND by default)
    #[arg(long, default_value = "", hide_default_value = true)]
    pub order: String,
    /// Sort target; CREATE, KEY, MODIFY, VALUE, or VERSION
    #[arg(long, default_value = "", hide_default_value = true)]
    pub sort_by: String,
    /// Maximum number of results
    #[arg(long, default_value_t = 0)]
    pub limit: i64,
    /// Get keys with matching prefix
    #[arg(long)]
    pub prefix: bool,
    /// Get keys that are greater than or equal to the given key using byte compare
    #[arg(long)]
    pub from_key: bool,
    /// Revision to read at
    #[arg(long, default_value_t = 0)]
    pub rev: i64,
    /// Get only the keys
    #[arg(long)]
    pub keys_only: bool,
    /// Get only the count; needs `--write-out=fields`
    #[arg(long)]
    pub count_only: bool,
    /// Only write values when using the "simple" output format
    #[arg(long)]
    pub print_value_only: bool,
    /// Minimum create revision
    #[arg(long, default_value_t = 0)]
    pub min_create_rev: i64,
    /// Maximum create revision
    #[arg(long, default_value_t = 0)]
    pub max_create_rev: i64,
    /// Minimum modification revision
    #[arg(long, default_value_t = 0)]
    pub min_mod_rev: i64,
    /// Maximum modification revision
    #[arg(long, default_value_t = 0)]
    pub max_mod_rev: i64,
    /// Use the RangeStream call
    #[arg(long)]
    pub stream: bool,
}

/// Runs the command.
pub async fn run(args: GetArgs, globals: &Globals) -> Result<(), Failure> {
    let request = request(&args)?;
    let client = globals.connect_for_data().await?;
    let response = if args.stream {
        client.range_stream(request).await?
    } else {
        client.range(request).await?
    };
    let bad = |message: &str| Err(Failure::new(ExitWith::BadArgs, message));
    if args.count_only && globals.printer.format != Format::Fields {
        return bad("--count-only is only for `--write-out=fields`");
    }
    let mut printer = globals.printer;
    if args.print_value_only {
        if printer.format != Format::Simple {
            return bad("print-value-only is only for `--write-out=simple`");
        }
        printer.value_only = true;
    }
    printer.print(&Answer::Range(&response))
}

/// The request the flags describe; `txn` uses it too.
pub fn request(args: &GetArgs) -> Result<RangeRequest, Failure> {
    if args.arguments.is_empty() {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "get command needs one argument as key and an optional argument as range_end",
        ));
    }
    if args.keys_only && args.count_only {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "`--keys-only` and `--count-only` cannot be set at the same time, choose one",
        ));
    }
    let (key, range_end) = keys::range(&args.arguments, args.prefix, args.from_key)?;
    let serializable = keys::is_serializable(&args.consistency)?;
    let (sort_order, sort_target) = sort_options(args)?;
    refuse_inverted_bounds("CreateRev", args.min_create_rev, args.max_create_rev)?;
    refuse_inverted_bounds("ModRev", args.min_mod_rev, args.max_mod_rev)?;
    Ok(RangeRequest {
        key,
        range_end,
        limit: args.limit,
        revision: args.rev.max(0),
        sort_order: sort_order.into(),
        sort_target: sort_target.into(),
        serializable,
        keys_only: args.keys_only,
        count_only: args.count_only,
        min_mod_revision: args.min_mod_rev.max(0),
        max_mod_revision: args.max_mod_rev.max(0),
        min_create_revision: args.min_create_rev.max(0),
        max_create_revision: args.max_create_rev.max(0),
    })
}

fn sort_options(args: &GetArgs) -> Result<(SortOrder, SortTarget), Failure> {
    let order = match args.order.to_uppercase().as_str() {
        "ASCEND" => SortOrder::Ascend,
        "DESCEND" => SortOrder::Descend,
        "" => SortOrder::None,
        _ => {
            let message = format!("bad sort order {}", args.order);
            return Err(Failure::new(ExitWith::BadFeature, message));
        }
    };
    let target = match args.sort_by.to_uppercase().as_str() {
        "CREATE" => SortTarget::Create,
        "KEY" | "" => SortTarget::Key,
        "MODIFY" => SortTarget::Mod,
        "VALUE" => SortTarget::Value,
        "VERSION" => SortTarget::Version,
        _ => {
            let message = format!("bad sort target {}", args.sort_by);
            return Err(Failure::new(ExitWith::BadFeature, message));
        }
    };
    // Keys come ascending anyway; asking for it would cost the server a sort.
    if target == SortTarget::Key && order == SortOrder::Ascend {
        return Ok((SortOrder::None, target));
    }
    Ok((order, target))
}

fn refuse_inverted_bounds(what: &str, min: i64, max: i64) -> Result<(), Failure> {
    if max > 0 && min > max {
        let message = format!("getMin{what}(={min}) > getMax{what}(={max})");
        return Err(Failure::new(ExitWith::BadFeature, message));
    }
    Ok(())
}
