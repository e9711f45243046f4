//! `snapshot`: fetch one from a member, look at one, restore one.

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use portunus_bolt::Reader;
use portunus_bolt::snapshot::{self, verify_file};
use portunus_client::{Client, ClientError};

use crate::globals::Globals;
use crate::go::size::humanize;
use crate::offline;
use crate::outcome::{ExitWith, Failure, with_causes, write_err, write_out};
use crate::print::Answer;
use crate::restore::{InitialCluster, RestoreOptions, RevisionBump, restore};
use crate::terminal::Progress;

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Stores a snapshot of a member's data to a file
    Save(SaveArgs),
    /// Prints hash, revision, keys and size of a snapshot file
    Status(StatusArgs),
    /// Restores a snapshot file to a data directory in etcd's layout
    Restore(RestoreArgs),
}

/// Flags of `snapshot save`.
#[derive(Debug, Args)]
pub struct SaveArgs {
    #[arg(value_name = "FILENAME")]
    arguments: Vec<PathBuf>,
}

/// Flags of `snapshot status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[arg(value_name = "FILENAME")]
    arguments: Vec<PathBuf>,
}

/// Flags of `snapshot restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[arg(value_name = "FILENAME")]
    arguments: Vec<PathBuf>,
    /// Path to the output data directory [default: <name>.etcd]
    #[arg(long)]
    data_dir: Option<OsString>,
    /// Path to the WAL directory (in --data-dir if none given)
    #[arg(long)]
    wal_dir: Option<OsString>,
    /// Initial cluster configuration for restore bootstrap
    #[arg(long, default_value = "default=http://localhost:2380")]
    initial_cluster: String,
    /// Initial cluster token for the etcd cluster during restore bootstrap
    #[arg(long, default_value = "etcd-cluster")]
    initial_cluster_token: String,
    /// List of this member's peer URLs to advertise to the rest of the cluster
    #[arg(long, default_value = "http://localhost:2380")]
    initial_advertise_peer_urls: String,
    /// Human-readable name for this member
    #[arg(long, default_value = "default")]
    name: String,
    /// Ignore snapshot integrity hash value (required if copied from data directory)
    #[arg(long)]
    skip_hash_check: bool,
    /// How much to increase the latest revision after restore
    #[arg(long, default_value_t = 0)]
    bump_revision: u64,
    /// Accepted for etcdutl's scripts, without effect: no memory map is used
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    initial_memory_map_size: u64,
    /// Mark the latest revision after restore as the point of scheduled compaction (required if
    /// --bump-revision > 0, disallowed otherwise)
    #[arg(long)]
    mark_compacted: bool,
}

/// Runs the command.
pub async fn run(command: SnapshotCommand, globals: &Globals) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Save(args) => save(&args, globals).await,
        SnapshotCommand::Status(args) => status(&args, globals),
        SnapshotCommand::Restore(args) => restore_to_directory(args),
    }
}

async fn save(args: &SaveArgs, globals: &Globals) -> Result<(), Failure> {
    let [path] = args.arguments.as_slice() else {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "snapshot save expects one argument <filename>",
        ));
    };
    let interrupted = |message: String| Failure::new(ExitWith::Interrupted, message);
    if globals.client.endpoints.len() > 1 {
        let endpoints = globals.client.endpoints.join(" ");
        return Err(interrupted(format!(
            "snapshot must be requested to one selected node, not multiple [{endpoints}]"
        )));
    }
    let client = globals.connect().await?;
    let part = PartFile::for_target(path);
    let fetching = fetch(&client, &part);
    // A snapshot has no timeout unless the user set one.
    let fetched = if globals.command_timeout_given {
        match tokio::time::timeout(globals.command_timeout, fetching).await {
            Ok(fetched) => fetched,
            Err(_) => Err(interrupted("context deadline exceeded".to_owned())),
        }
    } else {
        fetching.await
    };
    let version = fetched.map_err(|failure| failure.exiting_with(ExitWith::Interrupted))?;
    let renamed = part.rename_to(path);
    renamed.map_err(|error| {
        let part = part.path.display();
        interrupted(format!(
            "could not rename {part} to {} ({error})",
            path.display()
        ))
    })?;
    let mut text = format!("Snapshot saved at {}\n", path.display());
    if !version.is_empty() {
        text += &format!("Server version {version}\n");
    }
    write_out(text.as_bytes())
}

/// Receives the whole snapshot into the part file, durably and with its digest checked. Returns
/// the storage version of the server.
async fn fetch(client: &Client, part: &PartFile) -> Result<String, Failure> {
    let failed = |doing: &str, error: &dyn std::fmt::Display| {
        Failure::new(ExitWith::Interrupted, format!("{doing}: {error}"))
    };
    let mut stream = client.snapshot().await?;
    let file = part
        .create()
        .map_err(|error| failed(&format!("could not open {}", part.path.display()), &error))?;
    let mut out = BufWriter::new(file);
    let mut version = String::new();
    let mut received_bytes = 0;
    let mut bar = Progress::new("receiving");
    while let Some(piece) = stream
        .message()
        .await
        .map_err(|status| failed("could not write snapshot", &ClientError::from(status)))?
    {
        out.write_all(&piece.blob)
            .map_err(|error| failed("could not write snapshot", &error))?;
        if !piece.version.is_empty() {
            version = piece.version;
        }
        received_bytes += piece.blob.len() as u64;
        let all_bytes = received_bytes + piece.remaining_bytes;
        bar.part(received_bytes, all_bytes, humanize);
    }
    drop(bar);
    if !snapshot::carries_digest(received_bytes) {
        let message = format!("sha256 checksum not found [bytes: {received_bytes}]");
        return Err(Failure::new(ExitWith::Interrupted, message));
    }
    out.into_inner()
        .map_err(io::IntoInnerError::into_error)
        .and_then(|file| file.sync_all())
        .map_err(|error| failed("could not fsync snapshot", &error))?;
    verify_file(&part.path).map_err(|error| failed("the received snapshot is damaged", &error))?;
    Ok(version)
}

/// A temporary file that is removed unless it is renamed to its final name.
struct PartFile {
    path: PathBuf,
}

impl PartFile {
    fn for_target(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(".part");
        Self { path: name.into() }
    }

    /// Never an existing file: that one may be readable by others.
    fn create(&self) -> io::Result<File> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&self.path)
    }

    fn rename_to(&self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        File::open(dir)?.sync_all()
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        // It does not exist any more if it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

fn status(args: &StatusArgs, globals: &Globals) -> Result<(), Failure> {
    let [path] = args.arguments.as_slice() else {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "snapshot status requires exactly one argument",
        ));
    };
    let failed = |error: &dyn Error| {
        let message = format!("{}: {}", path.display(), with_causes(error));
        Failure::new(ExitWith::Error, message)
    };
    offline::require_path(path).map_err(|error| Failure::new(ExitWith::Error, error))?;
    let reader = Reader::open(path).map_err(|error| failed(&error))?;
    let status = snapshot::status(&reader).map_err(|error| failed(&error))?;
    globals.printer.print(&Answer::Snapshot(&status))
}

fn restore_to_directory(args: RestoreArgs) -> Result<(), Failure> {
    let bad = |message: &str| Err(Failure::new(ExitWith::BadArgs, message));
    let [snapshot] = args.arguments.as_slice() else {
        return bad("snapshot restore requires exactly one argument");
    };
    if (args.bump_revision > 0) != args.mark_compacted {
        return bad("--mark-compacted required if --revision-bump > 0");
    }
    // Scripts pass an empty path for none.
    let given = |path: Option<OsString>| path.filter(|path| !path.is_empty()).map(PathBuf::from);
    let cluster = InitialCluster::new(
        &args.initial_cluster,
        &args.initial_cluster_token,
        &args.name,
        &args.initial_advertise_peer_urls,
    )
    .map_err(|error| Failure::new(ExitWith::Error, error))?;
    let options = RestoreOptions {
        snapshot: snapshot.clone(),
        data_dir: given(args.data_dir).unwrap_or_else(|| format!("{}.etcd", args.name).into()),
        wal_dir: given(args.wal_dir),
        cluster,
        skip_hash_check: args.skip_hash_check,
        revision_bump: args
            .mark_compacted
            .then_some(RevisionBump(args.bump_revision)),
    };
    let mut bar = Progress::new("restoring");
    let progress = |done: u64, all: u64| bar.part(done, all, humanize);
    let restored = restore(&options, progress);
    drop(bar);
    restored.map_err(|error| Failure::new(ExitWith::Error, with_causes(&error)))?;
    let line = format!(
        "restored {} into {} as member {:x} of cluster {:x}\n",
        options.snapshot.display(),
        options.data_dir.display(),
        options.cluster.local_id,
        options.cluster.cluster_id,
    );
    write_err(line.as_bytes());
    Ok(())
}
