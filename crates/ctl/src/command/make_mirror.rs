//! `make-mirror`: copies the keys of one cluster to another and then every change of them.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clap::Args;
use portunus_client::{Client, ClientError, Options};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use portunus_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
    WatchResponse, request_op::Request,
};
use portunus_proto::mvccpb::Event;
use portunus_proto::mvccpb::event::EventType;
use tokio::task::JoinSet;

use super::keys::{ZERO, argument_bytes, prefix_end};
use super::lock::connect_without_timeout;
use crate::globals::{Globals, open};
use crate::identity::Identity;
use crate::outcome::{ExitWith, Failure, write_out};
use crate::terminal::Progress;
use crate::transport::Destination;

/// Keys in one page of the first copy.
const PAGE_KEYS: i64 = 1000;
/// Writes of the first copy that are sent before the first of them is answered. Their keys differ, so
/// their order does not matter.
const WRITES_IN_FLIGHT_MAX: usize = 64;
/// The time between two lines with the number of mirrored keys.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// Flags of `make-mirror`.
#[derive(Debug, Args)]
pub struct MakeMirrorArgs {
    #[arg(value_name = "DESTINATION")]
    arguments: Vec<String>,
    /// Prefix of the keys to mirror
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: OsString,
    /// Revision to start at; without it the current keys are copied first
    #[arg(long, default_value_t = 0)]
    rev: i64,
    /// Most operations in one transaction at the destination
    #[arg(long, default_value_t = 128)]
    max_txn_ops: usize,
    /// Prefix of the keys at the destination, instead of --prefix
    #[arg(long, default_value = "", hide_default_value = true)]
    dest_prefix: OsString,
    /// Write the keys without --prefix at the destination
    #[arg(long)]
    no_dest_prefix: bool,
    #[command(flatten)]
    destination: Destination,
    /// USER[:PASSWORD] at the destination; a missing password is asked for
    #[arg(long, default_value = "", hide_default_value = true)]
    dest_user: String,
    /// Password at the destination; --dest-user then has none
    #[arg(long, default_value = "", hide_default_value = true)]
    dest_password: String,
}

/// Runs the command until the watch or the destination fails.
pub async fn run(args: MakeMirrorArgs, globals: &Globals) -> Result<(), Failure> {
    let bad = |message: &str| Failure::new(ExitWith::BadArgs, message);
    let [destination] = args.arguments.as_slice() else {
        return Err(bad("make-mirror takes one destination argument"));
    };
    let identity = Identity::asking(
        args.dest_user.clone(),
        args.dest_password.clone(),
        "Destination Password: ",
    );
    // Nothing here has a timeout: a mirror waits for its clusters.
    let at_destination = open(Options {
        endpoints: vec![destination.clone()],
        command_timeout: None,
        credentials: identity.credentials()?,
        tls: args.destination.tls()?,
        ..globals.client.clone()
    });
    let at_destination = at_destination.await?;
    let at_source = connect_without_timeout(globals).await?;
    if args.no_dest_prefix && !args.dest_prefix.is_empty() {
        return Err(bad(
            "`--dest-prefix` and `--no-dest-prefix` cannot be set at the same time, choose one",
        ));
    }
    let mirror = Mirror {
        source: at_source,
        destination: at_destination,
        rename: Rename::new(&args),
        ops_max: args.max_txn_ops,
        copied: Arc::default(),
        revision: AtomicI64::new(0),
    };
    let mut failure = tokio::select! {
        failure = mirror.run(args.rev) => failure,
        failure = report(Arc::clone(&mirror.copied)) => failure,
    };
    let mirrored = mirror.revision.load(Ordering::Relaxed);
    if mirrored > 0 {
        let next = mirrored + 1;
        failure.note = Some(format!(
            "mirrored up to revision {mirrored}: continue with --rev={next}"
        ));
    }
    Err(failure)
}

/// Prints the number of mirrored keys again and again; returns if that fails.
async fn report(copied: Arc<AtomicU64>) -> Failure {
    let mut ticks = tokio::time::interval(REPORT_INTERVAL);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let line = format!("{}\n", copied.load(Ordering::Relaxed));
        if let Err(failure) = write_out(line.as_bytes()) {
            return failure;
        }
    }
}

/// The keys at the source and at the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rename {
    prefix: Bytes,
    dest_prefix: Bytes,
}

impl Rename {
    fn new(args: &MakeMirrorArgs) -> Self {
        let prefix = argument_bytes(&args.prefix);
        let dest_prefix = match (args.no_dest_prefix, args.dest_prefix.is_empty()) {
            (true, _) => Bytes::new(),
            (false, true) => prefix.clone(),
            (false, false) => argument_bytes(&args.dest_prefix),
        };
        Self {
            prefix,
            dest_prefix,
        }
    }

    /// Returns the range of all keys with the prefix.
    fn range(&self) -> (Bytes, Bytes) {
        match self.prefix.is_empty() {
            true => (Bytes::from_static(ZERO), Bytes::from_static(ZERO)),
            false => (self.prefix.clone(), prefix_end(&self.prefix)),
        }
    }

    /// Returns the key at the destination.
    fn apply(&self, key: &[u8]) -> Bytes {
        let rest = key.strip_prefix(&*self.prefix).unwrap_or(key);
        let mut renamed = BytesMut::with_capacity(self.dest_prefix.len() + rest.len());
        renamed.extend_from_slice(&self.dest_prefix);
        renamed.extend_from_slice(rest);
        renamed.freeze()
    }
}

struct Mirror {
    source: Client,
    destination: Client,
    rename: Rename,
    ops_max: usize,
    /// Keys written or deleted at the destination.
    copied: Arc<AtomicU64>,
    /// The revision up to which the destination has everything; 0 before the first copy is complete.
    revision: AtomicI64,
}

impl Mirror {
    /// Mirrors until something fails.
    async fn run(&self, revision: i64) -> Failure {
        // A mirror that starts at a revision has the keys before it already.
        let start = match revision.saturating_sub(1).max(0) {
            0 => match self.copy_all().await {
                Ok(revision) => revision,
                Err(failure) => return failure,
            },
            revision => revision,
        };
        match self.follow(start + 1).await {
            Ok(()) => Failure::new(ExitWith::Error, "the watch ended: start the mirror again"),
            Err(failure) => failure,
        }
    }

    /// Copies the current keys and returns their revision.
    async fn copy_all(&self) -> Result<i64, Failure> {
        let (mut key, range_end) = self.rename.range();
        let mut revision = 0;
        let mut progress = Progress::new("copying");
        let mut writes: JoinSet<Result<(), ClientError>> = JoinSet::new();
        let mut copied = 0;
        loop {
            let page = self.source.range(RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: PAGE_KEYS,
                revision,
                sort_order: SortOrder::Ascend.into(),
                sort_target: SortTarget::Key.into(),
                ..RangeRequest::default()
            });
            let page = page.await?;
            if revision == 0 {
                revision = page.header.as_ref().map_or(0, |header| header.revision);
            }
            let all = copied + u64::try_from(page.count).unwrap_or_default();
            let last = page.kvs.last().map(|kv| kv.key.clone());
            for kv in page.kvs {
                if writes.len() >= WRITES_IN_FLIGHT_MAX {
                    self.written(writes.join_next().await)?;
                }
                writes.spawn(self.put(&kv.key, kv.value));
                copied += 1;
                progress.part(copied, all, |keys| format!("{keys} keys"));
            }
            let Some(last) = last.filter(|_| page.more) else {
                break;
            };
            // The smallest key after the last one.
            key = [&last[..], ZERO].concat().into();
        }
        while let Some(write) = writes.join_next().await {
            self.written(Some(write))?;
        }
        self.revision.store(revision, Ordering::Relaxed);
        Ok(revision)
    }

    fn put(
        &self,
        key: &[u8],
        value: Bytes,
    ) -> impl Future<Output = Result<(), ClientError>> + use<> {
        let destination = self.destination.clone();
        let request = PutRequest {
            key: self.rename.apply(key),
            value,
            ..PutRequest::default()
        };
        async move { destination.put(request).await.map(|_| ()) }
    }

    fn written(
        &self,
        write: Option<Result<Result<(), ClientError>, tokio::task::JoinError>>,
    ) -> Result<(), Failure> {
        match write {
            Some(Ok(outcome)) => outcome?,
            Some(Err(error)) => return Err(Failure::new(ExitWith::Error, error)),
            None => return Ok(()),
        }
        self.copied.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Applies the changes from a revision on; returns when the server ends the watch.
    async fn follow(&self, start_revision: i64) -> Result<(), Failure> {
        let (key, range_end) = self.rename.range();
        let mut watcher = self.source.watch(WatchCreateRequest {
            key,
            range_end,
            start_revision,
            ..WatchCreateRequest::default()
        });
        let mut progress = Progress::new("mirroring");
        while let Some(response) = watcher.next().await? {
            if response.compact_revision != 0 {
                return Err(ClientError::Etcd(EtcdError::Compacted).into());
            }
            for operations in transactions(&response, self.ops_max, &self.rename) {
                let number = operations.len() as u64;
                let request = TxnRequest {
                    success: operations,
                    ..TxnRequest::default()
                };
                self.destination.txn(request).await?;
                self.copied.fetch_add(number, Ordering::Relaxed);
            }
            let Some(revision) = response.events.last().map(revision_of) else {
                continue;
            };
            self.revision.store(revision, Ordering::Relaxed);
            let copied = self.copied.load(Ordering::Relaxed);
            progress.text(|| format!("{copied} keys, up to revision {revision}"));
        }
        Ok(())
    }
}

/// Returns the operations of each transaction: those of one revision, at most `ops_max` each (0: no
/// limit).
fn transactions(response: &WatchResponse, ops_max: usize, rename: &Rename) -> Vec<Vec<RequestOp>> {
    let ops_max = if ops_max == 0 { usize::MAX } else { ops_max };
    response
        .events
        .chunk_by(|one, next| revision_of(one) == revision_of(next))
        .flat_map(|events| events.chunks(ops_max))
        .map(|events| {
            let operations = events.iter().map(|event| operation(event, rename));
            operations.collect()
        })
        .collect()
}

fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn operation(event: &Event, rename: &Rename) -> RequestOp {
    let kv = event.kv.clone().unwrap_or_default();
    let key = rename.apply(&kv.key);
    let request = match event.r#type() {
        EventType::Put => Request::RequestPut(PutRequest {
            key,
            value: kv.value,
            ..PutRequest::default()
        }),
        EventType::Delete => Request::RequestDeleteRange(DeleteRangeRequest {
            key,
            ..DeleteRangeRequest::default()
        }),
    };
    RequestOp {
        request: Some(request),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_proto::mvccpb::KeyValue;

    fn rename(prefix: &str, dest_prefix: &str) -> Rename {
        Rename {
            prefix: prefix.to_owned().into(),
            dest_prefix: dest_prefix.to_owned().into(),
        }
    }

    #[test]
    fn prefix_is_replaced_once_and_only_at_the_start() {
        assert_eq!(rename("a/", "b/").apply(b"a/a/x"), "b/a/x");
        assert_eq!(rename("", "b/").apply(b"x"), "b/x");
        assert_eq!(rename("a/", "").apply(b"a/x"), "x");
    }

    #[test]
    fn events_of_one_revision_are_one_transaction_up_to_the_limit() {
        let event = |key: &str, mod_revision| Event {
            kv: Some(KeyValue {
                key: key.to_owned().into(),
                mod_revision,
                ..KeyValue::default()
            }),
            ..Event::default()
        };
        let events = vec![
            event("a", 5),
            event("b", 5),
            event("c", 5),
            event("a", 6),
            event("b", 7),
        ];
        let response = WatchResponse {
            events,
            ..WatchResponse::default()
        };
        let sizes = |ops_max| -> Vec<usize> {
            let transactions = transactions(&response, ops_max, &rename("", ""));
            transactions.iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(128), [3, 1, 1]);
        assert_eq!(sizes(2), [2, 1, 1, 1]);
        assert_eq!(sizes(0), [3, 1, 1]);
    }
}
