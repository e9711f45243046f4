//! Puts, gets, ranges and transactions, each in a closed loop.

use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::{
    Compare, RangeRequest, RequestOp, TxnRequest,
    compare::{CompareResult, CompareTarget, TargetUnion},
    request_op::Request as Op,
    response_op::Response as OpResponse,
};
use tonic::Status;
use tonic::transport::Channel;

use super::{Kind, Scale, WorkloadError};
use crate::client::{Connections, Numbers, key, put_of};
use crate::server::Server;
use crate::window::{Requester, Seen, Spent, closed_loop};

/// Keys in one answer of the range load.
const RANGE_KEYS: usize = 500;

pub(super) async fn run(
    kind: Kind,
    server: &Server,
    connections: &Connections,
    clients: usize,
    scale: &Scale,
) -> Result<(Seen, Spent), WorkloadError> {
    connections.fill(scale.hot_keys).await?;
    let clients = (0..clients).map(|number| KvRequester {
        kind,
        kv: KvClient::new(connections.of_client(number)),
        numbers: Numbers::of_client(number),
        hot_keys: scale.hot_keys,
        own_key: number,
        own_key_revision: 0,
    });
    Ok(closed_loop(clients.collect(), scale.pace, server.process_id()).await?)
}

struct KvRequester {
    kind: Kind,
    kv: KvClient<Channel>,
    numbers: Numbers,
    hot_keys: usize,
    /// The key that only this client updates, as a controller owns its objects.
    own_key: usize,
    /// Where it was last changed; 0 is not known yet.
    own_key_revision: i64,
}

impl Requester for KvRequester {
    async fn request(&mut self) -> Result<(), Status> {
        match self.kind {
            Kind::Put => {
                let number = self.numbers.below(self.hot_keys);
                self.kv.put(put_of(number)).await?;
            }
            Kind::Range => {
                let from = self.numbers.below(self.hot_keys.saturating_sub(RANGE_KEYS));
                let read = RangeRequest {
                    key: key(from),
                    range_end: key(from + RANGE_KEYS),
                    ..RangeRequest::default()
                };
                let found = self.kv.range(read).await?.into_inner().kvs.len();
                if found != RANGE_KEYS {
                    return Err(Status::data_loss(format!("{found} of {RANGE_KEYS} keys")));
                }
            }
            Kind::Txn => self.update_own_key().await?,
            _ => {
                let read = RangeRequest {
                    key: key(self.numbers.below(self.hot_keys)),
                    serializable: self.kind == Kind::GetSerializable,
                    ..RangeRequest::default()
                };
                let found = self.kv.range(read).await?.into_inner().kvs.len();
                if found != 1 {
                    return Err(Status::data_loss(format!("{found} values of one key")));
                }
            }
        }
        Ok(())
    }
}

impl KvRequester {
    /// As kube-apiserver updates an object: put if nobody was faster, else see what is there.
    async fn update_own_key(&mut self) -> Result<(), Status> {
        let own_key = key(self.own_key);
        let unchanged = Compare {
            key: own_key.clone(),
            target: CompareTarget::Mod.into(),
            result: CompareResult::Equal.into(),
            target_union: Some(TargetUnion::ModRevision(self.own_key_revision)),
            ..Compare::default()
        };
        let read = RangeRequest {
            key: own_key,
            ..RangeRequest::default()
        };
        let request = TxnRequest {
            compare: vec![unchanged],
            success: vec![RequestOp {
                request: Some(Op::RequestPut(put_of(self.own_key))),
            }],
            failure: vec![RequestOp {
                request: Some(Op::RequestRange(read)),
            }],
        };
        let response = self.kv.txn(request).await?.into_inner();
        let header_revision = response.header.map_or(0, |header| header.revision);
        self.own_key_revision = if response.succeeded {
            header_revision
        } else {
            let found = response
                .responses
                .into_iter()
                .find_map(|op| match op.response {
                    Some(OpResponse::ResponseRange(range)) => range.kvs.into_iter().next(),
                    _ => None,
                });
            found.map_or(0, |found| found.mod_revision)
        };
        Ok(())
    }
}
