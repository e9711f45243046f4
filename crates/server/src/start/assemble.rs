//! Makes the state machine and the handles of a member.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use portunus_consensus::RequestIds;
use portunus_features::OwnFeatures;
use portunus_mvcc::Store;
use portunus_mvcc::watch::Limits;
use portunus_statemachine::{Settings, State, StateMachine};

use super::raft::Raft;
use crate::config::{ApplySettings, Config};
use crate::handles::auth::Tokens;
use crate::handles::caller_limits::CallerLimits;
use crate::handles::cluster_gates::ClusterGates;
use crate::handles::passwords::Passwords;
use crate::handles::{Auth, ClusterState, Leases, Process, StoreAccess, Watches};
use crate::member::Member;
use crate::peers::Peers;
use crate::proposals::Proposals;
use crate::serve;

/// Makes the handles over a store and its state. Nothing of them runs yet.
pub(super) fn assemble(
    process: Arc<Process>,
    own: &OwnFeatures,
    (store, state): (Store, State),
    tokens: Tokens,
    peers: Arc<Peers>,
    raft: &Raft,
) -> (Member, StateMachine) {
    let identity = raft.identity;
    let applied = store.applied().unwrap_or_default();
    let (reader, auth_state) = (store.reader(), state.auth.clone());
    let membership = state.membership.clone();
    let (revision, limits) = (store.revision(), watch_limits(&process.config));
    let settings = settings(&process.config, identity.member_id.0);
    let machine = StateMachine::new(settings, own, store, state, raft.last_wrapped);

    let view = Arc::clone(machine.view());
    let gates = ClusterGates::new(own, &process.gates, &process.config, view);
    let cluster = Arc::new(ClusterState::new(
        identity,
        membership,
        machine.alarms().clone(),
        gates,
        Arc::clone(&raft.leadership),
    ));
    let store = Arc::new(StoreAccess::new(
        Arc::clone(&process),
        identity,
        raft.handle.clone(),
        reader,
        applied,
    ));
    let auth = Arc::new(Auth::new(
        auth_state,
        tokens,
        Passwords::new(process.config.auth.bcrypt_cost, hash_threads()),
        CallerLimits::new(&process.config.limits, &process.metrics.limits),
    ));
    let proposals = Proposals::new(
        Arc::clone(&process),
        Arc::clone(&store),
        Arc::clone(&cluster),
        Arc::clone(&peers),
        raft.handle.clone(),
        RequestIds::new(identity.member_id.0, unix_ms()),
        serve::threads(),
    );
    let member = Member {
        process,
        store,
        cluster,
        auth,
        consensus: raft.handle.clone(),
        proposals: Arc::new(proposals),
        leases: Arc::new(Leases::new(machine.lessor().clone())),
        watches: Arc::new(Watches::new(revision, limits)),
        peers,
    };
    (member, machine)
}

/// Half of the cores hash passwords at most, so that logins never stop other requests.
fn hash_threads() -> usize {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, |cores| cores.get().div_ceil(2))
}

fn settings(config: &Config, member_id: u64) -> Settings {
    let ApplySettings {
        max_learners,
        lease_ttl_s_min,
    } = ApplySettings::of(config);
    Settings {
        member_id,
        version: config.version.emulation(),
        max_learners,
        lease_ttl_s_min,
        quota_bytes: config.quota_bytes,
        snapshot_count: config.snapshot_count,
    }
}

fn watch_limits(config: &Config) -> Limits {
    Limits {
        fragment_bytes: portunus_proto::wire::grpc_receive_bytes_max(config.max_request_bytes),
        watches_max: config.limits.watches_per_stream_max,
        connection_watches_max: config.limits.watches_per_connection_max,
        ..Limits::default()
    }
}

/// Milliseconds since 1970, for ids and seeds only.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
