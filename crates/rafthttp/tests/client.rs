//! The client for peer endpoints other than raft's.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use common::{TIMEOUT, quick, serve, url};
use http::{HeaderMap, Method, StatusCode};
use portunus_rafthttp::{PeerClient, RequestError};
use tokio::net::TcpListener;

/// A peer that echoes its requests.
async fn peer() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = |method: Method, headers: HeaderMap, body: Bytes| async move {
        let value_sent = headers
            .get("x-request")
            .map_or("", |value| value.to_str().unwrap());
        let text = format!("{method} {value_sent} {}", String::from_utf8_lossy(&body));
        (StatusCode::IM_A_TEAPOT, [("x-answer", "yes")], text)
    };
    let never = || async {
        std::future::pending::<()>().await;
    };
    let long = || async { vec![b'x'; 5000] };
    let router = Router::new()
        .route("/echo", any(echo))
        .route("/never", any(never))
        .route("/long", any(long));
    serve(listener, router);
    address
}

async fn get(
    url: &str,
    answer_bytes_max: usize,
    timeout: Duration,
) -> Result<(StatusCode, HeaderMap, Bytes), RequestError> {
    let client = PeerClient::new(&quick());
    let none = Bytes::new();
    client
        .request(Method::GET, url, &[], none, answer_bytes_max, timeout)
        .await
}

#[tokio::test]
async fn any_status_is_an_answer_and_get_sends_its_body() {
    let url = format!("{}/echo", url(peer().await));
    let client = PeerClient::new(&quick());
    for method in [Method::GET, Method::POST] {
        let body = Bytes::from_static(b"{\"revision\":5}");
        let headers = [("X-Request", "hello")];
        let answer = client.request(method.clone(), &url, &headers, body, 1000, TIMEOUT);
        let (status, headers, text) = answer.await.unwrap();
        assert_eq!(status, StatusCode::IM_A_TEAPOT);
        assert_eq!(headers["x-answer"], "yes");
        assert_eq!(text, format!("{method} hello {{\"revision\":5}}"));
    }
}

#[tokio::test]
async fn missing_answers_are_errors_by_cause() {
    let peer = url(peer().await);
    let soon = Duration::from_millis(50);
    let never = get(&format!("{peer}/never"), 10, soon).await;
    assert!(matches!(never, Err(RequestError::TimedOut { .. })));
    let long = get(&format!("{peer}/long"), 4999, TIMEOUT).await;
    assert!(matches!(long, Err(RequestError::AnswerTooLong { .. })));
    assert!(get(&format!("{peer}/long"), 5000, TIMEOUT).await.is_ok());
    for unreachable in ["http://127.0.0.1:1/", "https://127.0.0.1:1/"] {
        let answer = get(unreachable, 10, TIMEOUT).await;
        assert!(
            matches!(answer, Err(RequestError::Unreachable(_))),
            "{unreachable}"
        );
    }
    let nowhere = get("no address at all", 10, TIMEOUT).await;
    assert!(matches!(nowhere, Err(RequestError::Malformed { .. })));
}
