//! `check datascale`: the memory that a server needs to hold the data of a load.
//!
//! The memory is the server's own metric, before and after the writes, so the result includes what
//! else the server did meanwhile. Only the first endpoint is asked.

use bytes::Bytes;
use clap::Args;

use super::check::{clean_up, defragment, error_lines, interrupted, refuse_used_prefix};
use super::load::{WriterResult, Writers, key};
use crate::globals::Globals;
use crate::metrics;
use crate::outcome::{ExitWith, Failure, write_out};
use crate::signals::Signals;
use crate::terminal::Progress;

const KEY_BYTES: usize = 512;
const VALUE_BYTES: usize = 512;
/// The metric of the server's memory.
const RESIDENT_MEMORY: &str = "process_resident_memory_bytes";

/// Flags of `check datascale`.
#[derive(Debug, Args)]
pub struct DatascaleArgs {
    /// Load: s(small), m(medium), l(large), xl(xLarge); differs in keys and clients
    #[arg(long, default_value = "s")]
    load: String,
    /// Prefix of the keys that are written, and deleted afterwards
    #[arg(long, default_value = "/etcdctl-check-datascale/")]
    prefix: String,
    /// Compact storage with last revision after test is finished
    #[arg(long)]
    auto_compact: bool,
    /// Defragment storage after test is finished
    #[arg(long)]
    auto_defrag: bool,
}

/// The load: number of keys and of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    keys: u64,
    clients: usize,
}

impl Scale {
    /// The load with etcdctl's short or long name.
    fn named(name: &str) -> Option<Self> {
        let (keys, clients) = match name {
            "s" | "small" => (10_000, 50),
            "m" | "medium" => (100_000, 200),
            "l" | "large" => (1_000_000, 500),
            "xl" | "xLarge" => (3_000_000, 1_000),
            _ => return None,
        };
        Some(Self { keys, clients })
    }
}

/// Runs the command.
pub async fn run(args: DatascaleArgs, globals: &Globals) -> Result<(), Failure> {
    let Some(scale) = Scale::named(&args.load) else {
        let message = format!("unknown load option {}", args.load);
        return Err(Failure::new(ExitWith::BadFeature, message));
    };
    let writers = Writers::start(scale.clients, &globals.options()?).await?;
    refuse_used_prefix(&globals.connect().await?, &args.prefix).await?;
    let before = memory_bytes(globals, "before").await?;
    let mut signals = Signals::new()?;
    let line = format!(
        "Start data scale check for work load [{} key-value pairs, {} bytes per key-value, {} \
         concurrent clients].\n",
        scale.keys,
        KEY_BYTES + VALUE_BYTES,
        scale.clients
    );
    write_out(line.as_bytes())?;
    let written = tokio::select! {
        written = write_all(writers, scale, &args.prefix) => written,
        failure = interrupted(&mut signals, globals, &args.prefix) => return Err(failure),
    };
    // The keys are deleted also if the memory is unknown.
    let after = memory_bytes(globals, "after").await;
    clean_up(globals, &args.prefix, args.auto_compact).await?;
    let after = after?;
    if args.auto_defrag {
        defragment(globals).await?;
    }
    if !written.errors.is_empty() {
        write_out((error_lines(&written.errors).join("\n") + "\n").as_bytes())?;
        return Err(Failure::reported(ExitWith::Error));
    }
    let used_mb = (after - before) / (1024.0 * 1024.0);
    let line = format!("PASS: Approximate system memory used : {used_mb:.2} MB.\n");
    write_out(line.as_bytes())
}

/// Writes all keys, as fast as the server answers.
async fn write_all(writers: Writers, scale: Scale, prefix: &str) -> WriterResult {
    let value = Bytes::from(vec![0; VALUE_BYTES]);
    let mut bar = Progress::new("writing");
    for number in 0..scale.keys {
        let key = key(prefix, number, KEY_BYTES);
        writers.write(key, value.clone()).await;
        bar.part(number, scale.keys, |keys| format!("{keys} keys"));
    }
    writers.finish().await
}

/// Returns the memory of the server behind the first endpoint.
async fn memory_bytes(globals: &Globals, when: &str) -> Result<f64, Failure> {
    let endpoint = globals.client.endpoints.first();
    let endpoint = endpoint.map(String::as_str).unwrap_or_default();
    let problem = match metrics::fetch(endpoint, globals).await {
        Ok(text) => match metrics::value_of(&text, RESIDENT_MEMORY) {
            Some(bytes) if bytes > 0.0 => return Ok(bytes),
            _ => format!("could not find: {RESIDENT_MEMORY}"),
        },
        Err(error) => format!("fetch error: {error}"),
    };
    let verdict = format!("FAIL: Could not read {RESIDENT_MEMORY} {when} the put operations.");
    write_out(format!("{problem}\n{verdict}\n").as_bytes())?;
    Err(Failure::reported(ExitWith::Error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_etcdctls_names_and_sizes() {
        assert_eq!(Scale::named("m"), Scale::named("medium"));
        let largest = Scale::named("xl").unwrap();
        assert_eq!((largest.keys, largest.clients), (3_000_000, 1_000));
        assert_eq!(Scale::named("huge"), None);
    }
}
