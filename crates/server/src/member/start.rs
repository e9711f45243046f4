//! Starting and stopping a member.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use portunus_consensus::bootstrap::{Boot, Identity};
use portunus_consensus::core::Role;
use portunus_consensus::{FatalError, Hooks, Leadership, PeerSink, RequestIds};
use portunus_gates::cluster::ClusterSpecs;
use portunus_gates::{Gates, RegisterError, SetErrors};
use portunus_mvcc::backend::{BackendError, Lmdb, LmdbConfig};
use portunus_mvcc::watch::Limits;
use portunus_mvcc::{OpenError, Store};
use thiserror::Error;
use tonic_health::server::HealthReporter;

use super::applied::Applied;
use super::boot::{BootError, Booted, boot, snapshots_in_log};
use super::cluster_gates::ClusterGates;
use super::downgrade::{self, ClusterVersionAbove};
use super::founding::{self, Founding};
use super::hashing::HashSlots;
use super::leadership::Leaders;
use super::leases::Leases;
use super::settings::{self, ApplySettings};
use super::skew::{self, SkewTooLarge};
use super::stop::{StopReason, StopSwitch};
use super::waiters::Waiters;
use super::watches::{StoreHistory, Watches};
use super::{Member, corruption, first_election, leases, start_line, upkeep, versions};
use crate::apply::{ApplyThread, CompactionProgress};
use crate::config::{Config, QUOTA_BYTES_ADVISED_MAX};
use crate::grpc::SnapshotSlots;
use crate::metrics::{Metrics, MetricsError};
use crate::peers::{self, Heartbeats, Peers, PeersError};
use crate::serve::{self, ListenError, MetricsServers, Servers};
use portunus_datadir::{DataDir, DataDirError};
use portunus_features::{ClusterFeatureGate, InitialCorruptCheck, OwnFeatures, ServerFeatures};
use portunus_statemachine::membership::{MemberRecord, Membership};
use portunus_statemachine::{LoadError, Settings, State, StateMachine, wrap};

/// A running member.
pub struct Running {
    /// The state that its threads and services share.
    pub member: Arc<Member>,
    /// The servers for clients.
    pub servers: Servers,
    metrics_servers: MetricsServers,
    threads: Vec<JoinHandle<()>>,
}

/// Why a member cannot start. Each message is one line with the next step.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum StartError {
    /// The program's own gates are declared wrongly.
    #[error("the features of this program are declared wrongly")]
    Declarations(#[from] RegisterError),
    /// `--feature-gates` cannot be applied.
    #[error("--feature-gates cannot be applied")]
    Gates(#[from] SetErrors),
    /// `--cluster-feature-gates` cannot be applied.
    #[error("--cluster-feature-gates cannot be applied")]
    ClusterGates(#[source] SetErrors),
    /// Another member has different settings.
    #[error(transparent)]
    Settings(#[from] settings::DifferentSettings),
    /// Founders have different versions.
    #[error(transparent)]
    MixedFounders(#[from] portunus_gates::cluster::MixedFounders),
    /// An alpha feature is on under strict emulation.
    #[error(
        "alpha feature {name} is on while {emulation} is emulated: turn it off or drop --strict-emulation"
    )]
    AlphaUnderEmulation { name: String, emulation: String },
    /// A listen address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The backend cannot be opened.
    #[error("the backend cannot be opened")]
    Backend(#[from] BackendError),
    /// The store cannot be opened.
    #[error("the store cannot be opened")]
    Store(#[from] OpenError),
    /// The state beside the keys cannot be loaded from the store.
    #[error(transparent)]
    State(#[from] LoadError),
    /// The member is too far ahead of its cluster.
    #[error(transparent)]
    Skew(#[from] SkewTooLarge),
    /// The cluster version is above the version to emulate.
    #[error(transparent)]
    ClusterVersionAbove(#[from] ClusterVersionAbove),
    /// The log cannot be created or opened, or the cluster cannot be joined.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The data differs from other members' data.
    #[error(transparent)]
    Inconsistent(#[from] corruption::InconsistentError),
    /// The data cannot be read.
    #[error("the data cannot be read")]
    Read(#[from] portunus_mvcc::ReadError),
    /// The connections to peers cannot be set up.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// Raft cannot start.
    #[error("consensus cannot start")]
    Consensus(#[from] portunus_consensus::StartError),
    /// The metrics cannot be registered.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A thread or its runtime could not be started.
    #[error("no thread could be started")]
    Thread(#[source] std::io::Error),
}

/// Starts a member. Returns once it serves clients.
pub fn start(config: Config) -> Result<Running, StartError> {
    let started = Instant::now();
    let own = OwnFeatures::declared()?;
    let gates = own
        .server
        .gates(config.version.versions(), &config.feature_gates)?;
    check_emulation(&config, &gates)?;
    start_line::log(&config, &gates);
    let emulation = config.version.emulation();
    // Checked again below for the cluster's version; but at a first start an unusable flag must
    // not leave a data directory behind.
    if !config.data_dir.exists() {
        own.cluster_specs()
            .check_flags(emulation, None, &config.cluster_feature_gates)
            .map_err(StartError::ClusterGates)?;
    }
    for warning in gates.warnings() {
        tracing::warn!("{warning}");
    }
    warn_about(&config);
    let listeners = serve::bind(&config.listen_client_urls, "listen-client-urls")?;
    let metrics_listeners = serve::bind(&config.listen_metrics_urls, "listen-metrics-urls")?;
    let peer_listeners = serve::reserve(&config.cluster.listen_peer_urls, "listen-peer-urls")?;
    let data_dir = DataDir::open(&config.data_dir)?;
    let wal_dir_is_new = !config.wal_dir.exists();
    let prepared = match prepare(&config, &own, &gates, &data_dir, started) {
        Ok(prepared) => prepared,
        Err(error) => {
            // Raft has not run, so a later start has no use for what this one has created.
            data_dir.remove_if_created(wal_dir_is_new.then_some(config.wal_dir.as_path()));
            return Err(error);
        }
    };
    let Prepared {
        stop,
        metrics,
        store,
        state,
        boot,
        remotes,
        peers,
    } = prepared;
    let membership = state.membership.clone();
    let proposes = gates.enabled(ClusterFeatureGate);
    let leadership = Arc::new(Leaders::default());
    let log = metrics.disk.measure_log(boot.wal);
    let heartbeats = Heartbeats::new(
        config.heartbeat_interval,
        metrics.heartbeat_failures.clone(),
    );
    let hooks = hooks(&stop, peers.sink(heartbeats), &leadership, &metrics);
    let entries = boot.initial.entries.iter();
    let wrapped = entries.filter(|entry| wrap::is_wrapped(&entry.data));
    let last_wrapped = wrapped.map(|entry| entry.index).max().unwrap_or(0);
    let (handle, committed) =
        portunus_consensus::start(raft_config(&config), log, boot.initial, hooks)?;
    let applied = store.applied().unwrap_or_default();
    let cluster_gates = ClusterGates::new(
        &own,
        proposes,
        emulation,
        &config.cluster_feature_gates,
        !config.cluster.is_existing,
        membership.params.as_ref(),
    );
    let auth_revision = state.auth_revision;
    let settings = Settings {
        member_id: boot.identity.member_id,
        version: emulation,
        max_learners: config.cluster.max_learners,
        lease_ttl_s_min: ApplySettings::of(&config).lease_ttl_s_min,
        quota_bytes: config.quota_bytes,
        snapshot_count: config.snapshot_count,
    };
    let (reader, revision) = (store.reader(), store.revision());
    let machine = StateMachine::new(settings, &own, store, state, last_wrapped);
    let hashes_refused = metrics.hashes_refused.clone();
    let member = Arc::new(Member {
        identity: boot.identity,
        cluster_gates,
        gates,
        store_reader: ArcSwap::from_pointee(reader),
        waiters: Arc::new(Waiters::new(serve::threads())),
        applied: Applied::new(applied.index, applied.term),
        leases: Leases::new(machine.lessor().clone()),
        watches: Arc::new(Watches::new(revision, watch_limits(&config))),
        compactions: CompactionProgress::default(),
        alarms: ArcSwap::from_pointee(machine.alarms().clone()),
        auth_revision: AtomicU64::new(auth_revision),
        membership: ArcSwap::from_pointee(membership),
        request_ids: RequestIds::new(boot.identity.member_id, unix_ms()),
        started,
        metrics,
        health: HealthReporter::new(),
        stop,
        peers,
        founding: Founding::new(proposes),
        leadership,
        versions_changed: tokio::sync::Notify::new(),
        receiving_snapshot: Arc::default(),
        snapshot_slots: SnapshotSlots::default(),
        client_hashes: HashSlots::new(hashes_refused.clone()),
        peer_hashes: HashSlots::new(hashes_refused),
        data_dir,
        consensus: handle,
        config,
    });
    let threads = start_threads(&member, machine, committed)?;
    let peer_addresses = member.peers.attach(&member, peer_listeners)?;
    member.peers.add_remotes(&remotes);
    tracing::info!(addresses = joined(&peer_addresses), "listening for peers");
    let metrics_servers = serve::serve_metrics(&member, metrics_listeners)?;
    if !metrics_servers.addresses.is_empty() {
        tracing::info!(
            addresses = joined(&metrics_servers.addresses),
            "serving metrics"
        );
    }
    introduce(&member)?;
    let servers = serve::serve(&member, listeners)?;
    Ok(Running {
        member,
        servers,
        metrics_servers,
        threads,
    })
}

/// The parts of a member that exist before raft runs.
struct Prepared {
    stop: Arc<StopSwitch>,
    metrics: Metrics,
    store: Store,
    state: State,
    boot: Boot,
    remotes: Vec<MemberRecord>,
    peers: Peers,
}

/// Opens the store and the log, and makes every check that precedes raft.
fn prepare(
    config: &Config,
    own: &OwnFeatures,
    gates: &Gates<ServerFeatures>,
    data_dir: &DataDir,
    started: Instant,
) -> Result<Prepared, StartError> {
    let emulation = config.version.emulation();
    // Before the directory changes: which snapshots are installed and which files removed depends
    // on the whole log.
    let snapshots_in_log = snapshots_in_log(config)?;
    data_dir.take_over()?;
    if let Some(in_log) = snapshots_in_log {
        data_dir.install_pending(&in_log)?;
    }
    let runtime = peers::runtime()?;
    let stop = Arc::new(StopSwitch::default());

    let metrics = Metrics::new(
        config.metrics_extensive,
        config.warning_unary_request_duration,
    )?;
    let backend = Lmdb::open(&data_dir.backend(), LmdbConfig::default())?;
    let backend = metrics.disk.measure_backend(backend);
    let (store, restored) = Store::open(backend, store_config(config), store_hooks(&stop))?;
    tracing::info!(
        records = restored.records,
        revision = restored.revision,
        took_ms = started.elapsed().as_millis() as u64,
        "store opened"
    );
    let state = State::load(&store, ApplySettings::of(config).lease_ttl_s_min)?;
    let membership = &state.membership;
    let specs = own.cluster_specs();
    let warnings = specs
        .check_flags(
            emulation,
            membership.cluster_version,
            &config.cluster_feature_gates,
        )
        .map_err(StartError::ClusterGates)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    warn_about_cluster_gates(config, &specs, gates.enabled(ClusterFeatureGate));
    let Booted { boot, remotes } = boot(config, &store, state.conf_state.clone(), &runtime)?;
    check_cluster_version(config, membership, &boot, &runtime)?;
    check_skew(config, membership, &boot, &runtime)?;
    let peers = Peers::new(config, boot.identity, metrics.registry(), runtime)?;
    let others = settings::others(
        config,
        boot.identity.member_id,
        membership.iter().chain(&remotes),
    );
    check_settings(config, &peers, boot.identity.cluster_id, others)?;
    if gates.enabled(InitialCorruptCheck) {
        check_corruption(&peers, membership, boot.identity, &store)?;
    }
    Ok(Prepared {
        stop,
        metrics,
        store,
        state,
        boot,
        remotes,
        peers,
    })
}

/// Warns about cluster gates that this member sets without effect.
fn warn_about_cluster_gates(config: &Config, specs: &ClusterSpecs, proposes: bool) {
    let flags = &config.cluster_feature_gates;
    if proposes {
        for unwritten in specs.unwritten(config.version.versions(), flags) {
            tracing::warn!("{unwritten}; {}", unwritten.advice());
        }
    }
    if !proposes && !flags.is_empty() {
        tracing::warn!(
            "--cluster-feature-gates has no effect and every cluster feature stays off: this member publishes no proposal; set --feature-gates=ClusterFeatureGate=true, the default from 3.8 on"
        );
    }
}

impl Running {
    /// Logs that the member serves clients. The caller must be ready to stop the member.
    pub fn log_ready(&self) {
        let member = &self.member;
        tracing::info!(
            name = member.config.name,
            member = %format_args!("{:x}", member.identity.member_id),
            cluster = %format_args!("{:x}", member.identity.cluster_id),
            addresses = joined(&self.servers.addresses),
            took_ms = member.started.elapsed().as_millis() as u64,
            "ready to serve client requests"
        );
    }

    /// Stops the servers for clients first, then the log, then the store.
    pub fn stop(self) -> StopReason {
        self.member.stop.stop(StopReason::Requested("stopped"));
        self.servers.join();
        self.metrics_servers.join();
        self.member.consensus.stop();
        self.member.peers.stop();
        for thread in self.threads {
            // A panic ends the process anyway.
            let _ = thread.join();
        }
        self.member
            .stop
            .reason()
            .unwrap_or(StopReason::Requested("stopped"))
    }
}

fn check_emulation(config: &Config, gates: &Gates<ServerFeatures>) -> Result<(), StartError> {
    if !config.version.is_emulating() {
        return Ok(());
    }
    let emulation = config.version.emulation();
    for status in gates.statuses() {
        if !status.enabled || status.stage != portunus_gates::Stage::Alpha {
            continue;
        }
        if config.strict_emulation {
            return Err(StartError::AlphaUnderEmulation {
                name: status.name,
                emulation: emulation.to_string(),
            });
        }
        let warning = portunus_gates::Warning::AlphaUnderEmulation {
            name: status.name,
            emulation,
        };
        tracing::warn!("{warning}");
    }
    Ok(())
}

fn warn_about(config: &Config) {
    if !config.ignored.is_empty() {
        tracing::warn!(
            flags = config.ignored.join(","),
            "these flags have no effect"
        );
    }
    if !config.old_names.is_empty() {
        tracing::warn!(
            flags = config.old_names.join(","),
            "these flags are gone from version 3.7 on: set the feature gates they stand for"
        );
    }
    let advised = u64::try_from(QUOTA_BYTES_ADVISED_MAX).unwrap_or(u64::MAX);
    if config.quota_bytes.is_some_and(|quota| quota > advised) {
        tracing::warn!(
            quota_bytes = config.quota_bytes,
            "the quota is above the 8 GiB that etcd advises"
        );
    }
}

/// Refuses data of a cluster version above the member's own. The stored version may be older than
/// that of the log or of the peers, so a downgrade known to any of them is enough; the member
/// checks again before it serves.
fn check_cluster_version(
    config: &Config,
    membership: &Membership,
    boot: &Boot,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), ClusterVersionAbove> {
    let emulation = config.version.emulation();
    let Err(refusal) = downgrade::check_version(membership, emulation) else {
        return Ok(());
    };
    if downgrade::is_in_log(&boot.initial.entries, emulation) {
        return Ok(());
    }
    let own_id = boot.identity.member_id;
    let peers = membership.iter().filter(|record| record.id != own_id);
    let peers = peers.map(|record| record.peer_urls.clone().unwrap_or_default());
    let client = portunus_rafthttp::PeerClient::new(&portunus_rafthttp::Config::default());
    let known = downgrade::is_known_to_peers(&client, peers.collect(), emulation);
    match runtime.block_on(known) {
        true => Ok(()),
        false => Err(refusal),
    }
}

/// Refuses a version more than one minor above that of a cluster with other members. The log or a
/// peer may have a newer cluster version than the store.
fn check_skew(
    config: &Config,
    membership: &Membership,
    boot: &Boot,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), SkewTooLarge> {
    let emulation = config.version.emulation();
    let own_id = boot.identity.member_id;
    let others: Vec<_> = membership.iter().filter(|it| it.id != own_id).collect();
    if others.is_empty() {
        return Ok(());
    }
    let known = membership.cluster_version;
    let known = known.max(skew::newest_in_log(&boot.initial.entries));
    if skew::check(known, emulation).is_ok() {
        return Ok(());
    }
    let peers = others.iter();
    let peers = peers.map(|record| record.peer_urls.clone().unwrap_or_default());
    let client = portunus_rafthttp::PeerClient::new(&portunus_rafthttp::Config::default());
    let told = runtime.block_on(skew::newest_of_peers(&client, peers.collect()));
    skew::check(known.max(told), emulation)
}

/// Compares the settings that apply depends on with those of the members that answer.
fn check_settings(
    config: &Config,
    peers: &Peers,
    cluster_id: u64,
    others: Vec<settings::ToAsk>,
) -> Result<(), StartError> {
    let own = ApplySettings::of(config);
    let compared = settings::differences(peers.client(), cluster_id, own, others);
    let mut found = peers.runtime().block_on(compared);
    match found.pop() {
        Some(different) => Err(different.into()),
        None => Ok(()),
    }
}

/// Compares the data with that of the members that answer.
fn check_corruption(
    peers: &Peers,
    membership: &Membership,
    identity: Identity,
    store: &Store,
) -> Result<(), StartError> {
    if membership.iter().count() < 2 {
        return Ok(());
    }
    let own = store.reader().hash_kv(0)?;
    let checked = corruption::check_at_start(peers, membership, identity, &own);
    Ok(peers.runtime().block_on(checked)?)
}

/// The store's part of the configuration.
pub fn store_config(config: &Config) -> portunus_mvcc::Config {
    portunus_mvcc::Config {
        commit_interval: config.backend_batch_interval,
        commit_records: config.backend_batch_limit,
        resident_value_bytes_max: usize::try_from(config.resident_value_bytes_max)
            .unwrap_or(usize::MAX),
        compaction_batch_limit: config.compaction_batch_limit,
        ..portunus_mvcc::Config::default()
    }
}

/// The hooks by which the store reports faults and its progress of opening.
pub fn store_hooks(stop: &Arc<StopSwitch>) -> portunus_mvcc::Hooks {
    let stop = Arc::clone(stop);
    portunus_mvcc::Hooks::default()
        .on_fault(move |fault| stop.fatal(fault))
        .on_progress(|progress| {
            if progress.records > 0 {
                tracing::info!(
                    records = progress.records,
                    revision = progress.revision,
                    "opening the store"
                );
            }
        })
}

fn raft_config(config: &Config) -> portunus_consensus::Config {
    portunus_consensus::Config {
        tick_interval: config.heartbeat_interval,
        election_ticks: config.election_ticks(),
        catch_up_entries: config.snapshot_catchup_entries,
        pre_vote: config.cluster.pre_vote,
        leads_at_once_if_alone: config.cluster.leads_at_once_if_alone,
        seed: unix_ms(),
        ..portunus_consensus::Config::default()
    }
}

fn hooks(
    stop: &Arc<StopSwitch>,
    peers: Box<dyn PeerSink>,
    leaders: &Arc<Leaders>,
    metrics: &Metrics,
) -> Hooks {
    let stop = Arc::clone(stop);
    let leaders = Arc::clone(leaders);
    let leader_changes = metrics.leader_changes.clone();
    Hooks {
        peers,
        on_fatal: Box::new(move |error: FatalError| stop.fatal(&error)),
        on_leadership: Box::new(move |leadership: Leadership| {
            if leaders.set(leadership) {
                leader_changes.inc();
            }
            tracing::info!(
                leader = %format_args!("{:x}", leadership.leader),
                term = leadership.term,
                role = role_name(leadership.role),
                "leadership changed"
            );
        }),
    }
}

/// The name of a raft state in etcd.
fn role_name(role: Role) -> &'static str {
    match role {
        Role::Follower => "follower",
        Role::PreCandidate => "pre-candidate",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
    }
}

/// Formats addresses for the log.
fn joined(addresses: &[SocketAddr]) -> String {
    let texts = addresses.iter().map(SocketAddr::to_string);
    texts.collect::<Vec<_>>().join(",")
}

fn watch_limits(config: &Config) -> Limits {
    Limits {
        fragment_bytes: portunus_proto::wire::grpc_receive_bytes_max(config.max_request_bytes),
        ..Limits::default()
    }
}

fn start_threads(
    member: &Arc<Member>,
    machine: StateMachine,
    committed: portunus_consensus::CommittedReceiver,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(StartError::Thread)
    };
    let (orders, order_receiver) = std::sync::mpsc::channel();
    let apply_thread = ApplyThread::new(Arc::clone(member), machine, committed, orders);
    let upkeep_runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let for_snapshots = Arc::clone(member);
    let for_watches = Arc::clone(member);
    let for_upkeep = Arc::clone(member);
    Ok(vec![
        spawn("apply", Box::new(move || apply_thread.run()))?,
        spawn(
            "log-snapshots",
            Box::new(move || upkeep::run_snapshots(&for_snapshots, &order_receiver)),
        )?,
        spawn(
            "watch-catch-up",
            Box::new(move || {
                for_watches
                    .watches
                    .run_catch_up(&StoreHistory::of(&for_watches));
            }),
        )?,
        spawn(
            "upkeep",
            Box::new(move || {
                upkeep_runtime.block_on(async {
                    tokio::join!(
                        leases::revoke_expired(Arc::clone(&for_upkeep)),
                        leases::follow_leadership(Arc::clone(&for_upkeep)),
                        first_election::hasten(Arc::clone(&for_upkeep)),
                        upkeep::keep_announced(Arc::clone(&for_upkeep)),
                        upkeep::probe_held_peers(Arc::clone(&for_upkeep)),
                        leases::checkpoint(Arc::clone(&for_upkeep)),
                        versions::monitor(Arc::clone(&for_upkeep)),
                        downgrade::end_downgrades(Arc::clone(&for_upkeep)),
                        settings::warn_about_differences(Arc::clone(&for_upkeep)),
                        corruption::check_periodically(Arc::clone(&for_upkeep)),
                        corruption::check_compactions(Arc::clone(&for_upkeep)),
                        upkeep::compact_automatically(Arc::clone(&for_upkeep)),
                    );
                });
            }),
        )?,
    ])
}

/// Waits until the member has compared its settings and version with the others', has applied its
/// log, has published its attributes and has a cluster version.
fn introduce(member: &Arc<Member>) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    runtime.block_on(async {
        settings::compare(member).await?;
        founding::compare_versions(member).await?;
        upkeep::announce(member).await?;
        Ok(())
    })
}

/// Milliseconds since 1970, for ids only.
fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
