//! Following a collection: a list, then a watch from its version, which is resumed where it ended.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use portunus_objects::metadata;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::cache::Change;
use super::client::{Client, ClientError};
use super::resources::Collection;

/// The pause after the first failure in a row. It doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Follows a collection until the receiver of the changes is dropped.
pub async fn follow(client: Arc<Client>, collection: Collection, changes: mpsc::Sender<Change>) {
    let mut follower = Follower {
        client,
        collection,
        changes,
        version: None,
        pause: PAUSE_MIN,
    };
    loop {
        match follower.step().await {
            Ok(Step::Continue) => {}
            Ok(Step::Stop) => return,
            Err(error) => {
                // 410: the versions since the last event are gone; only a list helps.
                if error.is_status(410) {
                    follower.version = None;
                }
                tracing::warn!(collection = collection.path(), %error, "following a collection failed; retrying");
                sleep(follower.pause).await;
                follower.pause = (follower.pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

enum Step {
    Continue,
    /// The controller has ended.
    Stop,
}

struct Follower {
    client: Arc<Client>,
    collection: Collection,
    changes: mpsc::Sender<Change>,
    /// The version up to which all changes were sent; none before the first list.
    version: Option<String>,
    pause: Duration,
}

impl Follower {
    async fn step(&mut self) -> Result<Step, ClientError> {
        match self.version.clone() {
            None => self.list().await,
            Some(version) => self.watch(&version).await,
        }
    }

    async fn list(&mut self) -> Result<Step, ClientError> {
        let path = self.collection.path();
        let mut list = self.client.request(Method::GET, path, None).await?;
        let version = metadata::resource_version(&list).to_owned();
        let items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let step = self.send(Change::Listed(self.collection, items)).await;
        self.version = Some(version);
        Ok(step)
    }

    async fn watch(&mut self, version: &str) -> Result<Step, ClientError> {
        let path = self.collection.path();
        let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let mut events = self.client.watch(&format!("{path}?{query}")).await?;
        self.pause = PAUSE_MIN;
        while let Some(mut event) = events.next().await? {
            let object = event["object"].take();
            let kind = event["type"].as_str().unwrap_or_default();
            if kind == "ERROR" {
                return Err(refused(&object));
            }
            self.version = Some(metadata::resource_version(&object).to_owned());
            let change = match kind {
                "ADDED" | "MODIFIED" => Change::Changed(self.collection, object),
                "DELETED" => Change::Deleted(self.collection, object),
                _ => continue,
            };
            if let Step::Stop = self.send(change).await {
                return Ok(Step::Stop);
            }
        }
        // The server ended the watch, by its time or because it stops.
        sleep(PAUSE_MIN).await;
        Ok(Step::Continue)
    }

    async fn send(&self, change: Change) -> Step {
        match self.changes.send(change).await {
            Ok(()) => Step::Continue,
            Err(_) => Step::Stop,
        }
    }
}

/// Returns the error of a watch that the server ended with a `Status`.
fn refused(status: &Value) -> ClientError {
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    ClientError::Status {
        code: code.unwrap_or(500),
        reason: text("reason"),
        message: text("message"),
    }
}
