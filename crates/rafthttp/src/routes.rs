//! The routes for peers under `/raft`.
//!
//! A Go member that receives 403 or 410 stops permanently, so only members for which
//! [`Raft::is_removed`] is true receive them. After any other refusal the peer retries.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use portunus_proto::raftpb::Message;
use prost::Message as _;

use crate::body::{self, CollectError};
use crate::headers::{Incompatible, SERVER_FROM, parse_hex, sender};
use crate::peer::StreamKind;
use crate::raft::Raft;
use crate::shared::Shared;
use crate::snapshot::{self, Answer};
use crate::transport::Transport;
use crate::{headers, probing};

/// Returns the routes to mount on every peer address.
pub(crate) fn router(transport: Arc<Transport>) -> Router {
    Router::new()
        .route("/raft", any(pipeline))
        .route("/raft/stream/{*rest}", any(stream))
        .route("/raft/snapshot", any(receive_snapshot))
        .route(probing::PATH, any(probe))
        .with_state(transport)
}

/// Checks that a message is addressed to this member and its sender was not removed.
pub(crate) fn check_message(
    shared: &Shared,
    raft: &dyn Raft,
    message: &Message,
) -> Result<(), Answer> {
    if message.from == 0 {
        let text = "error processing raft message".to_owned();
        return Err((StatusCode::BAD_REQUEST, text));
    }
    if raft.is_removed(message.from) {
        let text = "cannot process message from removed member".to_owned();
        return Err((StatusCode::FORBIDDEN, text));
    }
    if message.to != shared.identity.member_id {
        let text = Incompatible::To.to_string();
        return Err((StatusCode::PRECONDITION_FAILED, text));
    }
    Ok(())
}

/// Builds a response with a line of text, or without a body if the text is empty.
fn answer((status, mut text): Answer) -> Response {
    if !text.is_empty() {
        text.push('\n');
    }
    let plain = !text.is_empty();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    if plain {
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

/// A refusal before the body is read.
type Refusal = Box<Response>;

/// Checks method and headers of a request; returns the attached member.
fn attached_member<'a>(
    shared: &'a Shared,
    request: &Request,
    method: Method,
) -> Result<&'a Arc<dyn Raft>, Refusal> {
    if request.method() != method {
        let text = "Method Not Allowed".to_owned();
        let mut refusal = answer((StatusCode::METHOD_NOT_ALLOWED, text));
        if let Ok(allowed) = HeaderValue::from_str(method.as_str()) {
            refusal.headers_mut().insert(ALLOW, allowed);
        }
        return Err(Box::new(refusal));
    }
    let Some(raft) = shared.raft.get() else {
        let text = "the member is starting".to_owned();
        return Err(Box::new(answer((StatusCode::SERVICE_UNAVAILABLE, text))));
    };
    match shared.identity.check_request(request.headers()) {
        Ok(()) => Ok(raft),
        Err(incompatible) => {
            let text = incompatible.to_string();
            Err(Box::new(answer((StatusCode::PRECONDITION_FAILED, text))))
        }
    }
}

/// Adds this member's headers to a response and logs refusals.
fn add_headers(
    shared: &Shared,
    from: &str,
    path: &str,
    mut response: Response,
    of_stream: bool,
) -> Response {
    shared
        .identity
        .add_response_headers(response.headers_mut(), of_stream);
    let status = response.status();
    if !status.is_success() {
        shared.refusals.log(from, path, status.as_str());
    }
    response
}

/// Returns the unverified sender of a request, for the log.
fn from_text(request: &Request) -> String {
    let from = request.headers().get(SERVER_FROM);
    let from = from.and_then(|value| value.to_str().ok()).unwrap_or("");
    from.chars().take(32).collect()
}

async fn pipeline(State(transport): State<Arc<Transport>>, request: Request) -> Response {
    let shared = transport.shared();
    let from = from_text(&request);
    let response = match attached_member(shared, &request, Method::POST) {
        Ok(raft) => {
            add_sender_as_remote(&transport, &**raft, &request);
            answer(receive_message(&transport, &**raft, request.into_body()).await)
        }
        Err(refusal) => *refusal,
    };
    add_headers(shared, &from, "/raft", response, false)
}

async fn receive_message(transport: &Transport, raft: &dyn Raft, body: Body) -> Answer {
    let shared = transport.shared();
    let config = &shared.config;
    let bytes_max = usize::try_from(config.message_bytes_max).unwrap_or(usize::MAX);
    let refuse = |status: StatusCode, text: &str| {
        shared.metrics.received_failures_of_unknown().inc();
        (status, text.to_owned())
    };
    let bytes = match body::collect(body, bytes_max, Some(config.stream_read_timeout)).await {
        Ok(bytes) => bytes,
        Err(CollectError::TooLong) => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "raft message is too long");
        }
        Err(_) => return refuse(StatusCode::BAD_REQUEST, "error reading raft message"),
    };
    let length = bytes.len() as u64;
    let Ok(message) = Message::decode(bytes) else {
        return refuse(StatusCode::BAD_REQUEST, "error unmarshalling raft message");
    };
    let peer = transport.peer_or_remote(message.from);
    match &peer {
        Some(peer) => peer.metrics.received_bytes.inc_by(length),
        None => shared.metrics.received_bytes_of_unknown().inc_by(length),
    }
    if peer.as_ref().is_some_and(|peer| peer.is_cut()) {
        // To the sender this looks like a message that was received and then lost.
        return (StatusCode::NO_CONTENT, String::new());
    }
    let taken = check_message(shared, raft, &message).and_then(|()| {
        raft.step(message).map_err(|refused| {
            tracing::debug!(reason = %refused, "failed to process Raft message");
            let text = "error processing raft message".to_owned();
            (StatusCode::INTERNAL_SERVER_ERROR, text)
        })
    });
    match taken {
        Ok(()) => (StatusCode::NO_CONTENT, String::new()),
        Err(refusal) => {
            match &peer {
                Some(peer) => peer.metrics.received_failures.inc(),
                None => shared.metrics.received_failures_of_unknown().inc(),
            }
            refusal
        }
    }
}

/// Adds the sender of a request as a remote, so that responses can reach it.
fn add_sender_as_remote(transport: &Transport, raft: &dyn Raft, request: &Request) {
    if let Some((id, urls)) = sender(request.headers()) {
        transport.add_unknown_remote(raft, id, urls);
    }
}

async fn stream(State(transport): State<Arc<Transport>>, request: Request) -> Response {
    let shared = transport.shared();
    let from = from_text(&request);
    let response = match attached_member(shared, &request, Method::GET) {
        Ok(raft) => open_stream(&transport, &**raft, &request),
        Err(refusal) => *refusal,
    };
    add_headers(shared, &from, "/raft/stream", response, true)
}

fn open_stream(transport: &Transport, raft: &dyn Raft, request: &Request) -> Response {
    let not_found = |text: &str| answer((StatusCode::NOT_FOUND, text.to_owned()));
    let path = request.uri().path();
    let parts = path
        .strip_prefix("/raft/stream/")
        .and_then(|rest| rest.split_once('/'));
    let Some((kind, reader)) =
        parts.and_then(|(kind, reader)| Some((StreamKind::named(kind)?, reader)))
    else {
        return not_found("invalid path");
    };
    let Some(reader) = parse_hex(reader) else {
        return not_found("invalid from");
    };
    if raft.is_removed(reader) {
        return answer((StatusCode::GONE, "removed member".into()));
    }
    let Some(peer) = transport.peer(reader) else {
        let urls = request.headers().get(headers::PEER_URLS);
        if let Some(urls) = urls.and_then(|urls| urls.to_str().ok()) {
            transport.add_unknown_remote(raft, reader, urls);
        }
        return not_found("error sender not found");
    };
    let shared = transport.shared();
    if let Err(mismatch) = shared.identity.check_target(request.headers()) {
        return answer((StatusCode::PRECONDITION_FAILED, mismatch.to_string()));
    }
    Response::new(Body::new(peer.attach(kind)))
}

async fn receive_snapshot(State(transport): State<Arc<Transport>>, request: Request) -> Response {
    let shared = transport.shared();
    let from = from_text(&request);
    let response = match attached_member(shared, &request, Method::POST) {
        Ok(raft) => {
            add_sender_as_remote(&transport, &**raft, &request);
            let known = |id| transport.peer_or_remote(id);
            answer(snapshot::receive(shared, raft, request.into_body(), known).await)
        }
        Err(refusal) => {
            shared.metrics.snapshots_of_unknown().failures.inc();
            *refusal
        }
    };
    add_headers(shared, &from, "/raft/snapshot", response, false)
}

async fn probe() -> Response {
    let mut response = Response::new(Body::from(probing::answer()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
