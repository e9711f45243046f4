//! Watch streams: requests in, responses out, both through the hub.

use std::pin::Pin;
use std::sync::Arc;

use portunus_mvcc::watch::{RequestError, ResponseReceiver, StreamId, StreamOptions, Wake};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WatchRequest;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::oversized::in_words_of_go;
use super::required::Required;
use super::watch_codec::Outgoing;
use super::{Api, Kind};
use crate::handles::watches::Watches;

/// The responses of one watch stream.
pub type Responses = Pin<Box<dyn Stream<Item = Result<Outgoing, Status>> + Send>>;

impl Api {
    /// Opens a watch stream.
    pub(super) fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let required = self.check_metadata(Kind::Stream, request.metadata())?;
        let member = &self.member;
        let waker = Arc::new(StreamWaker {
            readable: Notify::new(),
            drained: Notify::new(),
            watches: Arc::clone(&member.watches),
        });
        let options = StreamOptions {
            now: member.watches.now(),
            progress_interval: member.process.config.watch_progress_interval,
            connection: request.extensions().get().copied(),
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
                Arc::clone(&member.watches),
                id,
                Arc::clone(&waker),
                request.into_inner(),
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
    watches: Arc<Watches>,
    id: StreamId,
    waker: Arc<StreamWaker>,
    mut requests: Streaming<WatchRequest>,
) -> Result<(), Status> {
    while let Some(request) = requests.next().await {
        let request = request.map_err(in_words_of_go)?;
        let Some(union) = request.request_union else {
            continue;
        };
        loop {
            let result = {
                let mut hub = watches.lock();
                match &union {
                    RequestUnion::CreateRequest(create) => {
                        hub.create(id, create.clone()).map(|_| ())
                    }
                    RequestUnion::CancelRequest(cancel) => {
                        hub.cancel(id, cancel.watch_id).map(|_| ())
                    }
                    RequestUnion::ProgressRequest(_) => hub.request_progress(id).map(|_| ()),
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
        self.api.member.watches.lock().close_stream(self.id);
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
