//! Watch streams: requests in, responses out, both through the hub.

use std::pin::Pin;
use std::sync::Arc;

use portunus_mvcc::watch::{Outlet, RequestError, StreamId, StreamOptions, Wake};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::watch_server::Watch;
use portunus_proto::etcdserverpb::{WatchRequest, WatchResponse};
use tokio::sync::Notify;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::Api;
use crate::member::Member;
use crate::member::watches::Watches;

type Responses = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Watch for Api {
    type WatchStream = Responses;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Responses>, Status> {
        self.check_metadata(request.metadata())?;
        let member = Arc::clone(&self.member);
        let bells = Arc::new(Bells {
            readable: Notify::new(),
            drained: Notify::new(),
            watches: Arc::clone(&member.watches),
        });
        let options = StreamOptions {
            now: member.watches.now(),
            progress_interval: member.config.watch_progress_interval,
        };
        let (id, outlet) = member.watches.lock().open_stream(options, Arc::clone(&bells) as _);
        let guard = StreamGuard {
            member: Arc::clone(&member),
            id,
        };
        let requests = tokio::spawn(read_requests(member, id, Arc::clone(&bells), request.into_inner()));
        let responses = Outgoing {
            member: Arc::clone(&self.member),
            outlet,
            bells,
            requests,
            _guard: guard,
        };
        let stream = tokio_stream::StreamExt::take_while(
            futures_unfold(responses),
            |item: &Option<Result<WatchResponse, Status>>| item.is_some(),
        )
        .filter_map(|item| item);
        Ok(Response::new(Box::pin(stream)))
    }
}

/// Tells a stream's tasks that they have something to do.
struct Bells {
    readable: Notify,
    drained: Notify,
    watches: Arc<Watches>,
}

impl Wake for Bells {
    fn readable(&self) {
        self.readable.notify_one();
    }

    fn drained(&self) {
        self.drained.notify_one();
        self.watches.ring();
    }
}

/// Forgets a stream when its client is gone.
struct StreamGuard {
    member: Arc<Member>,
    id: StreamId,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.member.watches.lock().close_stream(self.id);
    }
}

/// Hands requests to the hub until the client has no more, or says something wrong.
async fn read_requests(
    member: Arc<Member>,
    id: StreamId,
    bells: Arc<Bells>,
    mut requests: Streaming<WatchRequest>,
) -> Result<(), Status> {
    while let Some(request) = requests.next().await {
        let Some(union) = request?.request_union else {
            continue;
        };
        loop {
            let result = {
                let mut hub = member.watches.lock();
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
                // The client does not read its answers; it gets no more until it does.
                Err(RequestError::Backpressure) => bells.drained.notified().await,
                Err(_) => return Ok(()),
            }
        }
        member.watches.ring();
    }
    Ok(())
}

/// The way out of one stream.
struct Outgoing {
    member: Arc<Member>,
    outlet: Outlet,
    bells: Arc<Bells>,
    requests: tokio::task::JoinHandle<Result<(), Status>>,
    _guard: StreamGuard,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.requests.abort();
    }
}

impl Outgoing {
    /// The next response, or the end.
    async fn next(&mut self) -> Option<Result<WatchResponse, Status>> {
        loop {
            if let Some(response) = self.outlet.take() {
                let header = self.member.header(0);
                return Some(
                    response
                        .to_message(&header)
                        .map_err(|error| Status::internal(error.to_string())),
                );
            }
            tokio::select! {
                () = self.bells.readable.notified() => {}
                ended = &mut self.requests, if !self.requests.is_finished() => match ended {
                    // The client may close its side and go on listening.
                    Ok(Ok(())) => {}
                    Ok(Err(status)) => return Some(Err(status)),
                    Err(_) => return None,
                },
                () = self.member.stop.stopped() => {
                    return Some(Err(self.member.status(EtcdError::Stopped)));
                }
            }
        }
    }
}

/// A stream of what `next` gives; `None` marks the end.
fn futures_unfold(outgoing: Outgoing) -> impl Stream<Item = Option<Result<WatchResponse, Status>>> {
    async_stream::stream! {
        let mut outgoing = outgoing;
        loop {
            let item = outgoing.next().await;
            let is_last = !matches!(item, Some(Ok(_)));
            yield item;
            if is_last {
                return;
            }
        }
    }
}
