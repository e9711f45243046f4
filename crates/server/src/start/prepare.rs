//! Everything before raft runs: the directory, the store, the log, and the checks.

use std::sync::Arc;

use portunus_consensus::bootstrap::Boot;
use portunus_features::OwnFeatures;
use portunus_mvcc::Store;
use portunus_statemachine::State;
use portunus_statemachine::membership::MemberRecord;

use super::boot::{Booted, boot, snapshots_in_log};
use super::tls::Tls;
use super::{StartError, checks, gates};
use crate::config::ApplySettings;
use crate::handles::Process;
use crate::handles::open_store::open_store;
use crate::peers::{self, Peers};

/// The parts of a member that exist before raft runs.
pub(super) struct Prepared {
    pub(super) store: Store,
    /// The state of the store beside the keys.
    pub(super) state: State,
    /// The log and raft's initial state.
    pub(super) boot: Boot,
    /// Members reported by peers, not read from the log.
    pub(super) remotes: Vec<MemberRecord>,
    pub(super) peers: Arc<Peers>,
    pub(super) tls: Tls,
}

/// Prepares a member; on failure removes what this start created, for which a later start has no
/// use: raft has not run.
pub(super) fn prepare_or_clean_up(
    process: Process,
    own: &OwnFeatures,
) -> Result<(Arc<Process>, Prepared), StartError> {
    let wal_dir_is_new = !process.config.wal_dir.exists();
    match prepare(&process, own) {
        Ok(prepared) => Ok((Arc::new(process), prepared)),
        Err(error) => {
            let wal_dir = wal_dir_is_new.then_some(process.config.wal_dir.as_path());
            process.data_dir.remove_if_created(wal_dir);
            Err(error)
        }
    }
}

fn prepare(process: &Process, own: &OwnFeatures) -> Result<Prepared, StartError> {
    let (config, server_gates) = (&process.config, &process.gates);
    // First: certificates that cannot be used leave the data as it is.
    let tls = Tls::load(process)?;
    recover_directory(process)?;
    let runtime = peers::runtime()?;
    let client = peers::early_client(tls.peer_dials.clone());
    let (store, state) = load_store(process)?;
    let membership = &state.membership;
    gates::check_cluster_flags(config, own, server_gates, membership)?;
    let Booted { boot, remotes } =
        boot(config, &store, state.conf_state.clone(), &runtime, &client)?;
    checks::check_cluster_version(config, membership, &boot, &runtime, &client)?;
    checks::check_skew(config, membership, &boot, &runtime, &client)?;
    let identity = boot.identity;
    let (metrics, dials) = (process.metrics.registry(), tls.peer_dials.clone());
    let peers = Peers::new(config, identity, metrics, runtime, dials)?;
    let known: Vec<&MemberRecord> = membership.iter().chain(&remotes).collect();
    checks::check_settings(config, &peers, identity, &known)?;
    checks::check_corruption(server_gates, &peers, membership, identity, &store)?;
    Ok(Prepared {
        store,
        state,
        boot,
        remotes,
        peers: Arc::new(peers),
        tls,
    })
}

/// Takes over data of etcd, and installs a snapshot that the log has and the backend lacks.
fn recover_directory(process: &Process) -> Result<(), StartError> {
    // Before the directory changes: which snapshots are installed and which files removed depends
    // on the whole log.
    let snapshots_in_log = snapshots_in_log(&process.config)?;
    process.data_dir.take_over()?;
    if let Some(in_log) = snapshots_in_log {
        process.data_dir.install_pending(&in_log)?;
    }
    Ok(())
}

fn load_store(process: &Process) -> Result<(Store, State), StartError> {
    let (config, metrics) = (&process.config, &process.metrics.disk);
    let backend = process.data_dir.backend();
    let (store, restored) = open_store(&backend, config, metrics, &process.stop)?;
    tracing::info!(
        records = restored.records,
        revision = restored.revision,
        took_ms = process.started.elapsed().as_millis() as u64,
        "store opened"
    );
    let state = State::load(&store, ApplySettings::of(config).lease_ttl_s_min)?;
    Ok((store, state))
}
