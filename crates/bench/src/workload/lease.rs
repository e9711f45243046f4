//! Granting and renewing leases.

use portunus_proto::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest};

use super::kv::write;
use super::{Load, LoadOutcome, WorkloadError};
use crate::answer::{Fields, field};
use crate::closed_loop::{Completion, Requester, closed_loop};
use crate::wire::Method;

/// Longer than a measurement.
const LEASE_TTL_S: i64 = 3600;

/// The operation of a lease load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseKind {
    /// Grant a lease and renew it once.
    GrantAndKeepAlive,
    /// Renew a lease that was granted at the beginning.
    KeepAlive,
}

pub(super) async fn run(kind: LeaseKind, load: &Load<'_>) -> Result<LoadOutcome, WorkloadError> {
    let clients = (0..load.clients).map(|_| LeaseRequester {
        kind,
        lease: 0,
        is_granting: false,
    });
    let connections = load.connect().await?;
    let clients = clients.collect();
    Ok(closed_loop(
        connections,
        clients,
        load.scale.durations,
        &load.process_ids,
    )
    .await?)
}

/// A client that renews on one stream.
struct LeaseRequester {
    kind: LeaseKind,
    /// The lease, or 0.
    lease: i64,
    is_granting: bool,
}

impl Requester for LeaseRequester {
    fn next(&mut self, message: &mut Vec<u8>) -> Method {
        self.is_granting = self.lease == 0;
        if self.is_granting {
            let grant = LeaseGrantRequest {
                ttl: LEASE_TTL_S,
                ..LeaseGrantRequest::default()
            };
            write(&grant, message);
            return Method::LeaseGrant;
        }
        write(&LeaseKeepAliveRequest { id: self.lease }, message);
        Method::LeaseKeepAlive
    }

    fn answered(&mut self, answer: &[u8]) -> Result<Completion, String> {
        let fields = Fields::of(answer);
        if fields.number(field::LEASE_TTL) <= 0 {
            return Err("a lease expired before its TTL".to_owned());
        }
        if self.is_granting {
            self.lease = fields.number(field::LEASE_ID);
            return Ok(match self.kind {
                LeaseKind::GrantAndKeepAlive => Completion::NeedsAnotherRequest,
                LeaseKind::KeepAlive => Completion::Prepared,
            });
        }
        if self.kind == LeaseKind::GrantAndKeepAlive {
            self.lease = 0;
        }
        Ok(Completion::Done)
    }
}
