//! Watch streams: requests in, responses out, both through the hub.

use std::pin::Pin;
use std::sync::Arc;

use portunus_auth::{AuthState, Caller};
use portunus_mvcc::watch::{RequestError, ResponseReceiver, StreamId, StreamOptions, Wake};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{WatchCreateRequest, WatchRequest};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Request, Response, Status, Streaming};

use super::access::Rpc;
use super::oversized::in_words_of_go;
use super::required::Required;
use super::watch_codec::Outgoing;
use super::{Api, Kind};
use crate::handles::watches::{Watches, watch_key};

/// The responses of one watch stream.
pub type Responses = Pin<Box<dyn Stream<Item = Result<Outgoing, Status>> + Send>>;

impl Api {
    /// Opens a watch stream.
    pub(super) async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let required = self.check_metadata(Kind::Stream, request.metadata())?;
        let (metadata, extensions, requests) = request.into_parts();
        if !required.is_empty() {
            let permit = self.authorize(Rpc::Watch, &metadata, &extensions).await?;
            let check = AuthState::check_authenticated;
            self.permit(permit.caller, check).await?;
            self.check_required(&required)?;
        }
        let member = &self.member;
        let waker = Arc::new(StreamWaker {
            readable: Notify::new(),
            drained: Notify::new(),
            watches: Arc::clone(&member.watches),
        });
        let options = StreamOptions {
            now: member.watches.now(),
            progress_interval: member.process.config.watch_progress_interval,
            connection: extensions.get().copied(),
        };
        let wake: Arc<dyn Wake> = Arc::<StreamWaker>::clone(&waker);
        let (id, receiver) = member.watches.lock().open_stream(options, wake);
        let mut stream = ResponseStream {
            gates_changed: member.cluster.gates.subscribe(),
            api: self.clone(),
            required,
            id,
            receiver,
            requests: Some(tokio::spawn(read_requests(
                self.clone(),
                id,
                Arc::clone(&waker),
                (metadata, extensions),
                requests,
            ))),
            waker,
        };
        let responses = async_stream::stream! {
            loop {
                let item = stream.next().await;
                let is_last = item.is_err();
                yield item;
                if is_last {
                    return;
                }
            }
        };
        Ok(Response::new(Box::pin(responses)))
    }
}

/// Wakes the tasks of one stream.
struct StreamWaker {
    readable: Notify,
    drained: Notify,
    watches: Arc<Watches>,
}

impl Wake for StreamWaker {
    fn readable(&self) {
        self.readable.notify_one();
    }

    fn drained(&self) {
        self.drained.notify_one();
        self.watches.wake();
    }
}

/// Passes requests to the hub until the client closes its side or sends an invalid request.
async fn read_requests(
    api: Api,
    id: StreamId,
    waker: Arc<StreamWaker>,
    credentials: (MetadataMap, Extensions),
    mut requests: Streaming<WatchRequest>,
) -> Result<(), Status> {
    let watches = &api.member.watches;
    while let Some(request) = requests.next().await {
        let request = request.map_err(in_words_of_go)?;
        let Some(union) = request.request_union else {
            continue;
        };
        let permitted = match &union {
            RequestUnion::CreateRequest(create) => api.permit_watch(&credentials, create).await,
            _ => Ok(Caller::default()),
        };
        loop {
            let result = match (&union, &permitted) {
                (RequestUnion::CreateRequest(create), Ok(caller)) => {
                    let auth = &api.member.auth;
                    watches.create(id, create, caller, auth)
                }
                (RequestUnion::CreateRequest(_), Err(reason)) => {
                    watches.lock().refuse(id, reason.clone())
                }
                (RequestUnion::CancelRequest(cancel), _) => {
                    watches.lock().cancel(id, cancel.watch_id).map(|_| ())
                }
                (RequestUnion::ProgressRequest(_), _) => {
                    watches.lock().request_progress(id).map(|_| ())
                }
            };
            match result {
                Ok(()) => break,
                // The client does not read its responses; it gets no more until it does.
                Err(RequestError::Backpressure) => waker.drained.notified().await,
                Err(_) => return Ok(()),
            }
        }
        watches.wake();
    }
    Ok(())
}

impl Api {
    /// Identifies the caller of a create request and checks that it may read the range. The error
    /// is the reason in the response.
    async fn permit_watch(
        &self,
        (metadata, extensions): &(MetadataMap, Extensions),
        create: &WatchCreateRequest,
    ) -> Result<Caller, String> {
        // etcd refuses a negative revision before it looks at permissions.
        if create.start_revision < 0 || !self.member.auth.state().is_enabled() {
            return Ok(Caller::default());
        }
        let permit = self.authorize(Rpc::Watch, metadata, extensions).await;
        let caller = permit.map_err(|status| reason(&status))?.caller;
        let check = |auth: &AuthState, caller: &Caller| {
            auth.check_range(caller, watch_key(create), &create.range_end)
        };
        let permit = self.permit(caller, check).await;
        Ok(permit.map_err(|status| reason(&status))?.caller)
    }
}

/// The reason of a refused watch, as etcd's server formats its errors.
fn reason(status: &Status) -> String {
    let code = match status.code() {
        Code::Unauthenticated => "Unauthenticated",
        Code::InvalidArgument => "InvalidArgument",
        Code::PermissionDenied => "PermissionDenied",
        code => return format!("{}: {}", code.description(), status.message()),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

/// The responses of one stream. Dropping it, when the client has disconnected, closes the
/// stream in the hub.
struct ResponseStream {
    id: StreamId,
    receiver: ResponseReceiver,
    waker: Arc<StreamWaker>,
    /// The stream ends when one of these features is disabled.
    required: Required,
    gates_changed: watch::Receiver<Option<u64>>,
    api: Api,
    /// None once the client has closed its side.
    requests: Option<JoinHandle<Result<(), Status>>>,
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if let Some(requests) = &self.requests {
            requests.abort();
        }
        self.api.member.watches.close_stream(self.id);
    }
}

impl ResponseStream {
    /// Returns the next response; an error ends the stream.
    async fn next(&mut self) -> Result<Outgoing, Status> {
        loop {
            if let Some(response) = self.receiver.take() {
                // Checked after taking it: an event that was applied after a feature was
                // disabled is published after that as well.
                self.api.check_required(&self.required)?;
                let header = self.api.member.store.header(0);
                return Ok(Outgoing { header, response });
            }
            tokio::select! {
                () = self.waker.readable.notified() => {}
                _ = self.gates_changed.changed(), if !self.required.is_empty() => {
                    self.api.check_required(&self.required)?;
                }
                ended = ended(&mut self.requests) => {
                    self.requests = None;
                    match ended {
                        // The client may close its side and go on receiving.
                        Ok(Ok(())) => {}
                        Ok(Err(status)) => return Err(status),
                        Err(_) => return Err(self.api.member.process.status(EtcdError::WatchCanceled)),
                    }
                }
                () = self.api.member.process.stop.stopped() => {
                    return Err(self.api.member.process.status(EtcdError::Stopped));
                }
            }
        }
    }
}

/// Waits for the end of the requests; pends forever if they have ended before.
async fn ended(
    requests: &mut Option<JoinHandle<Result<(), Status>>>,
) -> Result<Result<(), Status>, tokio::task::JoinError> {
    match requests {
        Some(requests) => requests.await,
        None => std::future::pending().await,
    }
}
