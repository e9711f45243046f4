//! The watch service on the wire.
//!
//! Handwritten instead of generated because a response is a list of encoded pieces that all
//! watchers of an event share. They are copied into the connection's buffer as they are;
//! nothing is decoded or built per watcher.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut};
use portunus_mvcc::watch::Response as HubResponse;
use portunus_proto::etcdserverpb::{ResponseHeader, WatchRequest};
use portunus_proto::wire;
use prost::Message;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::codegen::{Body as HttpBody, Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status};

use super::Api;
use super::watch::Responses;

/// The path of watch streams.
pub const WATCH_PATH: &str = "/etcdserverpb.Watch/Watch";

/// A response with its header, not yet encoded.
pub struct Outgoing {
    /// The header, with this member's ids and term.
    pub header: ResponseHeader,
    /// The encoded pieces from the hub.
    pub response: HubResponse,
}

/// The service `etcdserverpb.Watch`.
#[derive(Clone)]
pub struct WatchService {
    pub(super) api: Api,
}

impl NamedService for WatchService {
    const NAME: &'static str = "etcdserverpb.Watch";
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<B> Service<http::Request<B>> for WatchService
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Answer {
        let api = self.api.clone();
        Box::pin(async move {
            if request.uri().path() != WATCH_PATH {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let receive = wire::grpc_receive_bytes_max(api.member.process.config.max_request_bytes);
            let mut grpc = Grpc::new(WatchCodec)
                .apply_max_message_size_config(Some(receive), Some(wire::RESPONSE_BYTES_MAX));
            Ok(grpc.streaming(WatchMethod(api), request).await)
        })
    }
}

struct WatchMethod(Api);

impl StreamingService<WatchRequest> for WatchMethod {
    type Response = Outgoing;
    type ResponseStream = Responses;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Responses>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<WatchRequest>>) -> Self::Future {
        let api = self.0.clone();
        Box::pin(async move { api.watch(request).await })
    }
}

#[derive(Clone, Copy)]
struct WatchCodec;

impl Codec for WatchCodec {
    type Encode = Outgoing;
    type Decode = WatchRequest;
    type Encoder = WatchCodec;
    type Decoder = WatchCodec;

    fn encoder(&mut self) -> WatchCodec {
        WatchCodec
    }

    fn decoder(&mut self) -> WatchCodec {
        WatchCodec
    }
}

impl Encoder for WatchCodec {
    type Item = Outgoing;
    type Error = Status;

    fn encode(&mut self, item: Outgoing, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        for chunk in item.response.chunks(&item.header) {
            buffer.put(chunk);
        }
        Ok(())
    }
}

impl Decoder for WatchCodec {
    type Item = WatchRequest;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<WatchRequest>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        WatchRequest::decode(bytes)
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
