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

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, header};
use axum::routing::future::RouteFuture;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;
use tonic::Code;
use tower_service::Service as _;

use crate::grpc;
use crate::handles::Process;
use crate::handles::connections::{Connection, OpenRequest};
use crate::metrics::Running;

/// A router whose gRPC requests are counted.
#[derive(Clone)]
pub struct Counted {
    router: Router,
    process: Arc<Process>,
    connection: Arc<Connection>,
    /// Whether the client version of this connection was counted.
    is_judged: Arc<AtomicBool>,
}

impl Counted {
    /// Wraps a router to count in the metrics of the process and for the connection.
    pub fn new(router: Router, process: Arc<Process>, connection: Arc<Connection>) -> Counted {
        Counted {
            router,
            process,
            connection,
            is_judged: Arc::default(),
        }
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

impl Service<Request<Incoming>> for Counted {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = Counting;

    fn call(&self, mut request: Request<Incoming>) -> Counting {
        self.judge_version(request.headers());
        let running = self.process.metrics.rpcs.start(request.uri().path());
        // Only this service needs it, and an extension costs an allocation.
        if request.uri().path() == grpc::WATCH_PATH {
            request.extensions_mut().insert(self.connection.id);
        }
        // A router is always ready, and cheap to clone.
        let answer = self.router.clone().call(request.map(Body::new));
        Counting {
            answer,
            running,
            open: Some(self.connection.start_request()),
        }
    }
}

pin_project! {
    /// A request until its response starts.
    pub struct Counting {
        #[pin]
        answer: RouteFuture<Infallible>,
        running: Option<Running>,
        open: Option<OpenRequest>,
    }
}

impl Future for Counting {
    type Output = Result<Response<CountedBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.answer.poll(context))?;
        let mut running = this.running.take();
        if let Some(request) = &mut running {
            grpc::translate_oversized(&mut response);
            // A refusal has its code here; other responses have it in their trailers.
            if let Some(code) = code(response.headers()) {
                request.end(code);
            }
        }
        let response = grpc::send_in_pieces(response);
        let open = this.open.take();
        Poll::Ready(Ok(response.map(|inner| CountedBody {
            inner,
            running,
            _open: open,
        })))
    }
}

fn code(headers: &HeaderMap) -> Option<Code> {
    let status = headers.get("grpc-status")?;
    Some(Code::from_bytes(status.as_bytes()))
}

/// A response body, until its trailers arrive.
pub struct CountedBody {
    inner: grpc::AnswerBody,
    running: Option<Running>,
    _open: Option<OpenRequest>,
}

impl http_body::Body for CountedBody {
    type Data = grpc::Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<grpc::Piece>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(running) = &mut self.running {
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
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
