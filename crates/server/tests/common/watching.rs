//! One watch stream, from a client's side.

use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use portunus_proto::mvccpb::Event;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Clients, soon};

/// A watch stream of a client.
pub struct WatchStream {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl WatchStream {
    pub async fn open(clients: &Clients) -> WatchStream {
        let (requests, receiver) = mpsc::channel(1024);
        let mut watch = clients.watch.clone();
        let responses = soon("a watch stream", watch.watch(ReceiverStream::new(receiver))).await;
        WatchStream {
            requests,
            responses: responses.unwrap().into_inner(),
        }
    }

    pub async fn send(&self, union: RequestUnion) {
        let request = WatchRequest {
            request_union: Some(union),
        };
        self.requests.send(request).await.unwrap();
    }

    /// Creates a watch and returns the first response.
    pub async fn create(&mut self, create: WatchCreateRequest) -> WatchResponse {
        self.send(RequestUnion::CreateRequest(create)).await;
        let created = self.next().await;
        assert!(created.created, "{created:?}");
        created
    }

    pub async fn cancel(&self, watch_id: i64) {
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }))
            .await;
    }

    pub async fn request_progress(&self) {
        self.send(RequestUnion::ProgressRequest(WatchProgressRequest {}))
            .await;
    }

    /// Returns the next response, which must come.
    pub async fn next(&mut self) -> WatchResponse {
        self.next_or_end()
            .await
            .expect("the stream goes on")
            .unwrap()
    }

    /// Returns the next response or how the stream ended.
    pub async fn next_or_end(&mut self) -> Option<Result<WatchResponse, Status>> {
        soon("a watch response", self.responses.next()).await
    }

    /// Collects responses until there are that many events.
    pub async fn events(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < count {
            let response = self.next().await;
            assert!(!response.canceled && !response.created, "{response:?}");
            events.extend(response.events);
        }
        assert_eq!(events.len(), count, "{events:?}");
        events
    }

    /// Closes the client's side; responses still arrive.
    pub fn close_requests(&mut self) {
        self.requests = mpsc::channel(1).0;
    }
}

/// A watch of one key, from now on.
pub fn watch(key: &str) -> WatchCreateRequest {
    WatchCreateRequest {
        key: key.to_owned().into(),
        ..WatchCreateRequest::default()
    }
}

/// A watch of all keys from a revision on.
pub fn watch_all(start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        start_revision,
        ..WatchCreateRequest::default()
    }
}

/// Formats an event as `PUT key=value@revision` or `DELETE key@revision`.
pub fn show(event: &Event) -> String {
    use portunus_proto::mvccpb::event::EventType;
    let kv = event.kv.as_ref().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match event.r#type() {
        EventType::Put => {
            format!(
                "PUT {}={}@{}",
                text(&kv.key),
                text(&kv.value),
                kv.mod_revision
            )
        }
        EventType::Delete => format!("DELETE {}@{}", text(&kv.key), kv.mod_revision),
    }
}
