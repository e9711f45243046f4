//! Leases: what a client that registers itself does, again and again.

use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::{Scale, WorkloadError};
use crate::client::Connections;
use crate::server::Server;
use crate::window::{Requester, Seen, Spent, closed_loop};

/// Long enough that none runs out while it is measured.
const LEASE_TTL_S: i64 = 3600;

pub(super) async fn run(
    server: &Server,
    connections: &Connections,
    clients: usize,
    scale: &Scale,
) -> Result<(Seen, Spent), WorkloadError> {
    let mut requesters = Vec::with_capacity(clients);
    for number in 0..clients {
        requesters.push(LeaseRequester::open(connections.of_client(number)).await?);
    }
    Ok(closed_loop(requesters, scale.pace, server.process_id()).await?)
}

struct LeaseRequester {
    lease: LeaseClient<Channel>,
    renewals: mpsc::Sender<LeaseKeepAliveRequest>,
    renewed: Streaming<LeaseKeepAliveResponse>,
}

impl LeaseRequester {
    async fn open(channel: Channel) -> Result<LeaseRequester, Status> {
        let mut lease = LeaseClient::new(channel);
        let (renewals, receiver) = mpsc::channel(1);
        // etcd answers a stream only once it has something to say, so ask first.
        let granted = grant(&mut lease).await?;
        let first = LeaseKeepAliveRequest { id: granted };
        renewals.try_send(first).map_err(|_| ended())?;
        let renewed = lease
            .lease_keep_alive(ReceiverStream::new(receiver))
            .await?;
        let mut requester = LeaseRequester {
            lease,
            renewals,
            renewed: renewed.into_inner(),
        };
        requester.await_renewal().await?;
        Ok(requester)
    }

    async fn await_renewal(&mut self) -> Result<(), Status> {
        let renewed = self.renewed.message().await?.ok_or_else(ended)?;
        if renewed.ttl <= 0 {
            return Err(Status::not_found("a lease was gone before its time"));
        }
        Ok(())
    }
}

impl Requester for LeaseRequester {
    async fn request(&mut self) -> Result<(), Status> {
        let id = grant(&mut self.lease).await?;
        let renewal = LeaseKeepAliveRequest { id };
        self.renewals.send(renewal).await.map_err(|_| ended())?;
        self.await_renewal().await
    }
}

async fn grant(lease: &mut LeaseClient<Channel>) -> Result<i64, Status> {
    let request = LeaseGrantRequest {
        ttl: LEASE_TTL_S,
        ..LeaseGrantRequest::default()
    };
    Ok(lease.lease_grant(request).await?.into_inner().id)
}

fn ended() -> Status {
    Status::unavailable("the keep-alive stream ended")
}
