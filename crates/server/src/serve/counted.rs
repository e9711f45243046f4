//! The outermost service of a connection: counts each request and how it ended.
//!
//! Two things about a response are changed here and nowhere else, each for the reason in its module:
//! the refusal of an oversized request ([`grpc::translate_oversized`]), and the body of a long range
//! ([`grpc::send_in_pieces`]).

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{Extensions, HeaderMap, Request, Response, StatusCode, header};
use axum::routing::future::RouteFuture;
use bytes::Buf;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;
use portunus_proto::EtcdError;
use portunus_tls::ClientCertificate;
use tonic::{Code, Status};
use tower_service::Service as _;

use super::deadline::{self, Deadline};
use crate::grpc;
use crate::handles::address_block::AddressBlock;
use crate::handles::caller_limits::ClientAddress;
use crate::handles::connections::{Connection, OpenRequest};
use crate::handles::range_budget::RangeBytes;
use crate::handles::{Auth, Process};
use crate::metrics::Running;

/// Shorter frames do not count as pending: the count would cost more than their memory.
const COUNTED_BYTES: usize = 4 * 1024;

/// A router whose gRPC requests are counted.
#[derive(Clone)]
pub struct Counted {
    router: Router,
    process: Arc<Process>,
    connection: Arc<Connection>,
    /// Whether the client version of this connection was counted.
    is_judged: Arc<AtomicBool>,
    client: Client,
}

/// The client of a connection, as its requests show it to the services.
#[derive(Clone)]
pub struct Client {
    /// Its address.
    pub address: AddressBlock,
    /// Its verified certificate.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Whether authentication is enabled.
    pub auth: Arc<Auth>,
}

impl Client {
    /// Adds what services need to identify the caller to the extensions of a request. Each costs
    /// an allocation.
    fn mark(&self, extensions: &mut Extensions) {
        if let Some(certificate) = &self.certificate {
            extensions.insert(Arc::clone(certificate));
        }
        if self.auth.state().is_enabled() {
            extensions.insert(ClientAddress(self.address));
        }
    }
}

impl Counted {
    /// Wraps a router to count in the metrics of the process and for the connection of a client.
    pub fn new(
        router: Router,
        process: Arc<Process>,
        connection: Arc<Connection>,
        client: Client,
    ) -> Counted {
        Counted {
            router,
            process,
            connection,
            is_judged: Arc::default(),
            client,
        }
    }

    /// Checks what a connection may send, before any handler.
    fn check_limits(&self, request: &Request<Incoming>) -> Result<(), Status> {
        let (limits, metrics) = (&self.process.config.limits, &self.process.metrics.limits);
        let header_bytes = header_bytes(request);
        if header_bytes > limits.header_bytes_max {
            metrics.refused_header_bytes.inc();
            let text = format!(
                "etcdserver: headers of {header_bytes} bytes are too long, at most {} are allowed",
                limits.header_bytes_max
            );
            return Err(Status::resource_exhausted(text));
        }
        // The library refuses further ones, without telling.
        if self.connection.open_requests() == self.process.config.max_concurrent_streams as usize {
            metrics.streams_exhausted.inc();
        }
        if self.connection.pending_response_bytes() > limits.pending_response_bytes_max {
            metrics.refused_pending_response_bytes.inc();
            let text = EtcdError::TooManyRequests.text();
            return Err(Status::resource_exhausted(text));
        }
        Ok(())
    }

    /// Counts the version skew of the client, from the first request of the connection.
    fn judge_version(&self, headers: &HeaderMap) {
        if self.is_judged.load(Ordering::Relaxed) || self.is_judged.swap(true, Ordering::Relaxed) {
            return;
        }
        let agent = headers.get(header::USER_AGENT);
        if let Some(agent) = agent.and_then(|agent| agent.to_str().ok()) {
            let skew = &self.process.metrics.client_skew;
            skew.count(&self.process.config.version, agent);
        }
    }
}

/// Returns a refusal as the client understands it: as the status of a call, or of HTTP.
fn refused(headers: &HeaderMap, refusal: Status) -> Response<Body> {
    let content_type = headers.get(header::CONTENT_TYPE);
    if content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return refusal.into_http();
    }
    let mut response = Response::new(Body::from(format!("{}\n", refusal.message())));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response
}

/// Returns the size of the header list as HTTP/2 counts it.
fn header_bytes(request: &Request<Incoming>) -> usize {
    const ADDED_BYTES: usize = 32;
    let path = request
        .uri()
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    let headers = request.headers().iter();
    headers.fold(path, |sum, (name, value)| {
        sum + name.as_str().len() + value.len() + ADDED_BYTES
    })
}

impl Service<Request<Incoming>> for Counted {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = Counting;

    fn call(&self, mut request: Request<Incoming>) -> Counting {
        self.client.mark(request.extensions_mut());
        self.judge_version(request.headers());
        let running = self.process.metrics.rpcs.start(request.uri().path());
        let open = Some(self.connection.start_request());
        let checked = self.check_limits(&request);
        let timeout = checked.and_then(|()| deadline::timeout(request.headers()));
        let timeout = match timeout {
            Ok(timeout) => timeout,
            Err(refusal) => {
                let refusal = refused(request.headers(), refusal);
                return Counting::refused(refusal, running, open);
            }
        };
        let deadline = timeout.and_then(|timeout| {
            let started = running.as_ref().map_or_else(Instant::now, Running::started);
            started.checked_add(timeout)
        });
        // Only this service needs it, and an extension costs an allocation.
        if request.uri().path() == grpc::WATCH_PATH {
            request.extensions_mut().insert(self.connection.id);
        }
        // A router is always ready, and cheap to clone.
        let answer = self.router.clone().call(request.map(Body::new));
        Counting {
            answer: Some(answer),
            refusal: None,
            deadline: Deadline::new(deadline),
            running,
            open,
        }
    }
}

pin_project! {
    /// A request until its response starts.
    pub struct Counting {
        #[pin]
        answer: Option<RouteFuture<Infallible>>,
        // The response of a request that no handler gets.
        refusal: Option<Response<Body>>,
        #[pin]
        deadline: Deadline,
        running: Option<Running>,
        open: Option<OpenRequest>,
    }
}

impl Counting {
    fn refused(
        refusal: Response<Body>,
        running: Option<Running>,
        open: Option<OpenRequest>,
    ) -> Counting {
        Counting {
            answer: None,
            refusal: Some(refusal),
            deadline: Deadline::new(None),
            running,
            open,
        }
    }
}

impl Future for Counting {
    type Output = Result<Response<CountedBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let answered = match this.answer.as_mut().as_pin_mut() {
            Some(answer) => answer.poll(context),
            None => Poll::Pending,
        };
        let mut response = match (answered, this.refusal.take()) {
            (Poll::Ready(response), _) => response?,
            (Poll::Pending, Some(refusal)) => refusal,
            (Poll::Pending, None) => {
                ready!(this.deadline.as_mut().poll_passed(context));
                // What the handler holds is released at once.
                this.answer.set(None);
                deadline::exceeded().into_http()
            }
        };
        let mut running = this.running.take();
        if let Some(request) = &mut running {
            grpc::translate_oversized(&mut response);
            // A refusal has its code here; other responses have it in their trailers.
            if let Some(code) = code(response.headers()) {
                request.end(code);
            }
        }
        let range_bytes = grpc::take_range_bytes(&mut response);
        let response = grpc::send_in_pieces(response);
        let open = this.open.take();
        let deadline = this.deadline.at();
        Poll::Ready(Ok(response.map(|inner| CountedBody {
            inner: Some(inner),
            deadline: Deadline::new(deadline),
            running,
            open,
            range_bytes,
        })))
    }
}

fn code(headers: &HeaderMap) -> Option<Code> {
    let status = headers.get("grpc-status")?;
    Some(Code::from_bytes(status.as_bytes()))
}

pin_project! {
    /// A response body, until its trailers arrive.
    pub struct CountedBody {
        // None after the deadline.
        inner: Option<grpc::AnswerBody>,
        #[pin]
        deadline: Deadline,
        running: Option<Running>,
        open: Option<OpenRequest>,
        // Shared with the frames that were not sent yet.
        range_bytes: Option<Arc<RangeBytes>>,
    }
}

impl http_body::Body for CountedBody {
    type Data = grpc::Piece;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<grpc::Piece>, axum::Error>>> {
        let this = self.project();
        let Some(inner) = this.inner else {
            return Poll::Ready(None);
        };
        let frame = match Pin::new(inner).poll_frame(context) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(this.deadline.poll_passed(context));
                // What the stream holds is released at once.
                *this.inner = None;
                Some(Ok(Frame::trailers(trailers_of(&deadline::exceeded()))))
            }
        };
        if let Some(running) = this.running {
            match &frame {
                Some(Ok(frame)) => {
                    if let Some(code) = frame.trailers_ref().and_then(code) {
                        running.end(code);
                    }
                }
                Some(Err(_)) => running.end(Code::Internal),
                None => running.end(Code::Ok),
            }
        }
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(frame);
        };
        let open = &*this.open;
        Poll::Ready(Some(Ok(frame.map_data(|piece| {
            match (piece.remaining(), open) {
                (bytes @ COUNTED_BYTES.., Some(open)) => {
                    piece.pending(open.pending(bytes, this.range_bytes.clone()))
                }
                _ => piece,
            }
        }))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner
            .as_ref()
            .is_none_or(|inner| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.as_ref();
        inner.map_or_else(SizeHint::default, |inner| inner.size_hint())
    }
}

fn trailers_of(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // A text of ASCII letters is always a header.
    let _ = status.add_header(&mut trailers);
    trailers
}
