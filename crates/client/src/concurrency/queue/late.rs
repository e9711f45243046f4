//! Deletes a key that a late request puts back into a queue.
//!
//! A request to queue a key that was not answered may arrive at the leader after the key was deleted, such
//! as when a partition heals. The lease of the session lives, so the key would stop the queue.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::super::session::{Session, WeakSession};
use super::delete;
use crate::connection::Client;
use crate::request::Watch;

/// How long a late request is expected: several times longer than servers wait for a proposal.
const LATE_REQUEST_WITHIN: Duration = Duration::from_secs(60);

/// Returns a task that deletes the key if it is put back after a revision. It does not keep the session
/// alive.
pub(super) fn delete_late(
    session: &Session,
    key: &Bytes,
    after_revision: i64,
) -> impl Future<Output = ()> + Send + 'static {
    let (client, session, key) = (session.client().clone(), session.downgrade(), key.clone());
    async move {
        let deleted = watch_and_delete(&client, &session, &key, after_revision);
        // After the time limit no request is expected any longer.
        let _ = timeout(LATE_REQUEST_WITHIN, deleted).await;
    }
}

async fn watch_and_delete(client: &Client, session: &WeakSession, key: &Bytes, after: i64) {
    let watch = Watch::key(key).from_revision(after + 1).without_deletes();
    let mut watcher = client.watch(watch);
    while let Ok(Some(response)) = watcher.next().await {
        for kv in response.events.into_iter().filter_map(|event| event.kv) {
            let Some(session) = session.upgrade() else {
                return;
            };
            // A task of the session that uses the key has taken it over.
            let Some(_turn) = session.try_turn(key) else {
                return;
            };
            if delete(&session, key, kv.create_revision).await.is_err() {
                return;
            }
        }
    }
}
