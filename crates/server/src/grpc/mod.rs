//! The etcd v3 API: requests are checked, then proposed or read.

pub mod access;
mod auth;
mod authorize;
mod cluster;
mod feature_gates;
mod gate_history;
mod kv;
mod lease;
mod long_answer;
mod maintenance;
mod oversized;
mod permitted_stream;
mod piece;
mod required;
mod snapshot;
mod watch;
mod watch_codec;

use std::sync::Arc;

use portunus_gates::MajorMinor;
use portunus_gates::cluster::MemberId;
use portunus_mvcc::ReadError;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::auth_server::AuthServer;
use portunus_proto::etcdserverpb::cluster_server::ClusterServer;
use portunus_proto::etcdserverpb::kv_server::KvServer;
use portunus_proto::etcdserverpb::lease_server::LeaseServer;
use portunus_proto::etcdserverpb::maintenance_server::MaintenanceServer;
use portunus_proto::portunuspb::feature_gates_server::FeatureGatesServer;
use portunus_proto::wire;
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use crate::error_chain::chain;
use crate::member::Member;
use crate::metrics::Kind;
pub use long_answer::{AnswerBody, send_in_pieces, take_range_bytes};
pub use oversized::translate_response as translate_oversized;
pub use piece::Piece;
use required::Required;
pub(crate) use snapshot::STALL_MAX as SNAPSHOT_STALL_MAX;
pub use watch_codec::WATCH_PATH;
use watch_codec::WatchService;

/// The router of all services of this version; any other service is `UNIMPLEMENTED`.
pub fn router(member: &Arc<Member>) -> axum::Router {
    routes(member).into_axum_router()
}

/// Returns why no service takes a gRPC call with this path: the alternative where etcd has the
/// service, else the message of Go's gRPC library.
pub fn unknown_call(path: &str) -> String {
    let mut names = path.trim_start_matches('/').splitn(2, '/');
    let service = names.next().unwrap_or_default();
    match service {
        "v3lockpb.Lock" | "v3electionpb.Election" => format!(
            "service {service} is not supported by this version: use a lease and transactions, as the locks and elections of etcd's client libraries do"
        ),
        _ => format!("unknown service {service}"),
    }
}

fn routes(member: &Arc<Member>) -> Routes {
    let receive_bytes = wire::grpc_receive_bytes_max(member.process.config.max_request_bytes);
    let api = Api::new(Arc::clone(member));
    macro_rules! limited {
        ($server:ident) => {
            $server::new(api.clone())
                .max_decoding_message_size(receive_bytes)
                .max_encoding_message_size(wire::RESPONSE_BYTES_MAX)
        };
    }
    Routes::new(limited!(KvServer))
        .add_service(WatchService { api: api.clone() })
        .add_service(limited!(LeaseServer))
        .add_service(limited!(MaintenanceServer))
        .add_service(limited!(ClusterServer))
        .add_service(limited!(AuthServer))
        .add_service(limited!(FeatureGatesServer))
        .add_service(HealthServer::new(HealthService::from_health_reporter(
            member.process.health.clone(),
        )))
}

/// Implements all services over one member.
#[derive(Clone)]
pub struct Api {
    member: Arc<Member>,
}

impl Api {
    /// Creates the services of a member.
    pub fn new(member: Arc<Member>) -> Api {
        Api { member }
    }
}

impl Api {
    /// Checks what holds for every request, and counts it by the client's version.
    fn check_metadata(&self, kind: Kind, metadata: &MetadataMap) -> Result<Required, Status> {
        if self.member.consensus.status().is_learner {
            return Err(self.refuse(EtcdError::NotSupportedForLearner));
        }
        self.check_metadata_for_learners(kind, metadata)
    }

    /// Checks a request that a learner serves, too.
    fn check_metadata_for_learners(
        &self,
        kind: Kind,
        metadata: &MetadataMap,
    ) -> Result<Required, Status> {
        use wire::metadata::{CLIENT_API_VERSION, HAS_LEADER, HAS_LEADER_TRUE};
        let version = metadata
            .get(CLIENT_API_VERSION)
            .map(|value| std::str::from_utf8(value.as_bytes()))
            .transpose()
            .map_err(|_| self.refuse(EtcdError::InvalidClientApiVersion))?;
        self.member
            .process
            .metrics
            .client_requests
            .count(kind, version);
        let needs_leader = metadata
            .get(HAS_LEADER)
            .is_some_and(|value| value.as_bytes() == HAS_LEADER_TRUE.as_bytes());
        if needs_leader && self.member.consensus.status().leader == MemberId::NONE {
            return Err(self.member.process.status(EtcdError::NoLeader));
        }
        self.required(metadata)
    }

    /// Refuses a method that the emulated version does not have, as that version would.
    fn check_method(&self, since: MajorMinor, service: &str, method: &str) -> Result<(), Status> {
        if self.member.process.config.version.emulation() >= since {
            return Ok(());
        }
        let text = format!("unknown method {method} for service {service}");
        Err(Status::new(Code::Unimplemented, text))
    }

    fn refuse(&self, error: EtcdError) -> Status {
        self.member.process.status(error)
    }

    /// The status of a failed read. Only damaged data stops the member.
    fn read_failed(&self, error: ReadError) -> Status {
        match error {
            ReadError::Refused(refusal) => self.refuse(refusal),
            error if error.is_damage() => {
                self.member.process.stop.fatal(&error);
                Status::new(Code::Unavailable, EtcdError::Stopped.text())
            }
            error => {
                let reason = chain(&error);
                tracing::error!(reason, "a read failed");
                Status::unavailable(format!("etcdserver: {reason}"))
            }
        }
    }
}
