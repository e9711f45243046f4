//! Follows the leaders of an election.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_core::Stream;
use portunus_proto::etcdserverpb::{ResponseHeader, WatchResponse};
use portunus_proto::mvccpb::KeyValue;
use portunus_proto::mvccpb::event::EventType;

use super::Proposal;
use super::election::leader_of;
use super::queue::prefix_of;
use super::session::until_answered;
use crate::connection::Client;
use crate::error::ClientError;
use crate::request::{Range, Watch};
use crate::watch::Watcher;

/// The proposals of the leaders of an election: the current one, then every change. Proposals of
/// leaders that were replaced quickly may be left out.
#[derive(Debug)]
pub struct Observer {
    client: Client,
    prefix: Bytes,
    phase: Phase,
    ready: VecDeque<Proposal>,
    /// The key and the mod revision of the last proposal, so that it is not repeated after a
    /// compaction. A leader may have made its proposal before the last one of its predecessor.
    reported: Option<(Bytes, i64)>,
}

#[derive(Debug)]
enum Phase {
    /// The leader is unknown.
    Reading,
    /// There is no leader; the watch sees the first candidate.
    Vacant(Box<Watcher>),
    /// The watch sees the key of the leader.
    Following(Box<Watcher>),
}

impl Observer {
    /// Follows an election without taking part in it; no session is necessary.
    #[must_use]
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Self {
        Self::of_prefix(client, prefix_of(name.as_ref()))
    }

    pub(super) fn of_prefix(client: &Client, prefix: Bytes) -> Self {
        Self {
            client: client.clone(),
            prefix,
            phase: Phase::Reading,
            ready: VecDeque::new(),
            reported: None,
        }
    }

    /// Waits for the next proposal. Dropping the future loses none.
    ///
    /// # Errors
    /// The server's error. An unavailable member is none: another one is asked.
    pub async fn next(&mut self) -> Result<Proposal, ClientError> {
        loop {
            if let Some(proposal) = self.ready.pop_front() {
                return Ok(proposal);
            }
            match &mut self.phase {
                Phase::Reading => self.read().await?,
                Phase::Vacant(watcher) => {
                    let response = watcher.next().await?;
                    self.take_first_candidate(response)?;
                }
                Phase::Following(watcher) => {
                    let response = watcher.next().await?;
                    self.follow(response)?;
                }
            }
        }
    }

    /// Returns the proposals as a stream, which ends after an error.
    pub fn into_stream(mut self) -> impl Stream<Item = Result<Proposal, ClientError>> + Send {
        async_stream::stream! {
            loop {
                let proposal = self.next().await;
                let is_over = proposal.is_err();
                yield proposal;
                if is_over {
                    return;
                }
            }
        }
    }

    async fn read(&mut self) -> Result<(), ClientError> {
        let (client, prefix) = (&self.client, &self.prefix);
        let found = until_answered(|| leader_of(client, prefix)).await?;
        match found {
            Some(leader) => self.begin(leader),
            None => {
                // The revision is needed, which an absent leader does not have.
                let count = Range::prefix(prefix).count_only();
                let read = until_answered(|| client.range(count.clone())).await?;
                if read.count > 0 {
                    return Ok(());
                }
                let revision = read.header.map_or(0, |header| header.revision);
                let watch = Watch::prefix(prefix)
                    .from_revision(revision + 1)
                    .without_deletes();
                self.phase = Phase::Vacant(Box::new(client.watch(watch)));
            }
        }
        Ok(())
    }

    /// Reports a leader and follows its key.
    fn begin(&mut self, leader: Proposal) {
        let watch = Watch::key(&leader.kv.key).from_revision(leader.header.revision + 1);
        self.phase = Phase::Following(Box::new(self.client.watch(watch)));
        self.report(leader);
    }

    fn report(&mut self, proposal: Proposal) {
        let identity = Some((proposal.kv.key.clone(), proposal.kv.mod_revision));
        if identity != self.reported {
            self.reported = identity;
            self.ready.push_back(proposal);
        }
    }

    fn take_first_candidate(&mut self, response: Option<WatchResponse>) -> Result<(), ClientError> {
        let Some(response) = self.events_of(response)? else {
            return Ok(());
        };
        let header = response.header.unwrap_or_default();
        let mut pairs = response.events.into_iter().filter_map(|event| event.kv);
        if let Some(kv) = pairs.next() {
            self.begin(proposal(header, kv));
        }
        Ok(())
    }

    fn follow(&mut self, response: Option<WatchResponse>) -> Result<(), ClientError> {
        let Some(response) = self.events_of(response)? else {
            return Ok(());
        };
        let header = response.header.unwrap_or_default();
        for event in response.events {
            if event.r#type() == EventType::Delete {
                self.phase = Phase::Reading;
                return Ok(());
            }
            if let Some(kv) = event.kv {
                self.report(proposal(header, kv));
            }
        }
        Ok(())
    }

    /// Returns a response with events; begins again if the history was compacted.
    fn events_of(
        &mut self,
        response: Option<WatchResponse>,
    ) -> Result<Option<WatchResponse>, ClientError> {
        let response = response.ok_or(ClientError::StreamEnded)?;
        if !response.canceled {
            return Ok(Some(response));
        }
        if response.compact_revision == 0 {
            return Err(ClientError::Canceled {
                reason: response.cancel_reason,
            });
        }
        self.phase = Phase::Reading;
        Ok(None)
    }
}

/// Returns a proposal with the revision at which it was made.
fn proposal(header: ResponseHeader, kv: KeyValue) -> Proposal {
    let revision = kv.mod_revision;
    Proposal {
        header: ResponseHeader { revision, ..header },
        kv,
    }
}
