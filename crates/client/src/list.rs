//! A list of a range at one revision, of any size.
//!
//! ```text
//!  first page: Range ──more──▶ RangeStream from the key after it, at the revision of the first page
//!       │                          │ not implemented, or not for this request
//!       └─ no more: done           └─▶ Range page by page, at that revision
//! ```
//!
//! A small list is one request. After a broken connection the list goes on after the last key that it
//! returned, at the same revision: no key is left out or repeated, whatever other clients write. If the
//! revision is compacted meanwhile, the list ends with `Compacted`.

use std::collections::VecDeque;
use std::time::Duration;

use futures_core::Stream;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use portunus_proto::etcdserverpb::{RangeRequest, RangeResponse, RangeStreamResponse};
use portunus_proto::mvccpb::KeyValue;
use tokio::time::{Instant, sleep, timeout};
use tonic::Streaming;

use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;
use crate::key_range::key_after;

/// The keys of a page, unless the caller chooses another number.
const PAGE_KEYS_DEFAULT: i64 = 500;
/// The pause before a broken stream is opened again.
const RESUME_PAUSE: Duration = Duration::from_millis(100);

/// A list; see [`Client::list`].
#[derive(Debug)]
pub struct List {
    client: Client,
    /// What is left to read: its key advances, its revision is fixed by the first page.
    rest: RangeRequest,
    /// The keys that the caller wants at most; `None` for all.
    remaining: Option<i64>,
    page_keys: i64,
    phase: Phase,
    ready: VecDeque<KeyValue>,
    count: i64,
    /// When reading the next part first failed.
    broken_since: Option<Instant>,
}

#[derive(Debug)]
enum Phase {
    /// Nothing was read.
    Begin,
    /// The rest is read with a streaming call.
    Streaming(Option<Box<Streaming<RangeStreamResponse>>>),
    /// The rest is read page by page.
    Paging,
    Done,
}

impl Client {
    /// Lists a range at one revision, in the order of its keys. Nothing is sent before the first
    /// [`List::next`].
    ///
    /// A range with another order or with filters by revision is read with a single request.
    #[must_use]
    pub fn list(&self, range: impl Into<RangeRequest>) -> List {
        let rest: RangeRequest = range.into();
        List {
            client: self.clone(),
            remaining: Some(rest.limit).filter(|limit| *limit > 0),
            rest,
            page_keys: PAGE_KEYS_DEFAULT,
            phase: Phase::Begin,
            ready: VecDeque::new(),
            count: 0,
            broken_since: None,
        }
    }
}

impl List {
    /// Reads this many keys with a request, except with a streaming call.
    #[must_use]
    pub fn page_keys(mut self, keys: i64) -> Self {
        self.page_keys = keys.max(1);
        self
    }

    /// Returns the revision of the list; `None` before the first key, unless the caller chose it. A
    /// watch that begins at the revision after it misses nothing.
    #[must_use]
    pub fn revision(&self) -> Option<i64> {
        Some(self.rest.revision).filter(|revision| *revision > 0)
    }

    /// Returns the number of keys in the range, regardless of a limit; 0 before the first key.
    #[must_use]
    pub fn count(&self) -> i64 {
        self.count
    }

    /// Returns the next pair; `None` at the end. Dropping the future loses none.
    ///
    /// # Errors
    /// The server's error, or a timeout: the command timeout applies to each response.
    pub async fn next(&mut self) -> Result<Option<KeyValue>, ClientError> {
        loop {
            if let Some(kv) = self.ready.pop_front() {
                return Ok(Some(kv));
            }
            match &self.phase {
                Phase::Begin => self.read_first_page().await?,
                Phase::Streaming(_) | Phase::Paging => self.read_part().await?,
                Phase::Done => return Ok(None),
            }
        }
    }

    /// Returns all pairs that are left.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn collect(mut self) -> Result<Vec<KeyValue>, ClientError> {
        let mut all = Vec::new();
        while let Some(kv) = self.next().await? {
            all.push(kv);
        }
        Ok(all)
    }

    /// Returns the pairs as a stream, which ends after an error.
    pub fn into_stream(mut self) -> impl Stream<Item = Result<KeyValue, ClientError>> + Send {
        async_stream::stream! {
            loop {
                match self.next().await {
                    Ok(Some(kv)) => yield Ok(kv),
                    Ok(None) => return,
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
        }
    }

    /// Returns whether the range can be read in parts.
    fn has_parts(&self) -> bool {
        let rest = &self.rest;
        let is_sorted = rest.sort_order() != SortOrder::None
            && (rest.sort_target() != SortTarget::Key || rest.sort_order() != SortOrder::Ascend);
        let bounds = [
            rest.min_mod_revision,
            rest.max_mod_revision,
            rest.min_create_revision,
            rest.max_create_revision,
        ];
        !is_sorted && !rest.count_only && bounds == [0; 4]
    }

    async fn read_first_page(&mut self) -> Result<(), ClientError> {
        if !self.has_parts() {
            let whole = self.client.range(self.rest.clone()).await?;
            self.pin(&whole);
            self.take(whole.kvs);
            self.phase = Phase::Done;
            return Ok(());
        }
        let page = self.client.range(self.next_page()).await?;
        self.pin(&page);
        let more = page.more;
        self.take(page.kvs);
        self.go_on(more, Phase::Streaming(None));
        Ok(())
    }

    async fn read_page(&mut self) -> Result<(), ClientError> {
        let page = self.client.range(self.next_page()).await?;
        self.broken_since = None;
        let more = page.more;
        self.take(page.kvs);
        self.go_on(more, Phase::Paging);
        Ok(())
    }

    async fn read_piece(&mut self) -> Result<(), ClientError> {
        match self.next_piece().await? {
            Some(piece) => {
                self.broken_since = None;
                self.take(piece.kvs);
            }
            None => self.phase = Phase::Done,
        }
        Ok(())
    }

    /// Reads a part after the first page.
    async fn read_part(&mut self) -> Result<(), ClientError> {
        let read = match &self.phase {
            Phase::Streaming(_) => self.read_piece().await,
            _ => self.read_page().await,
        };
        let Err(error) = read else {
            return Ok(());
        };
        let is_streaming = matches!(self.phase, Phase::Streaming(_));
        if is_streaming && error.is_unimplemented() {
            self.phase = Phase::Paging;
            return Ok(());
        }
        // A member that is behind does not know the revision of the first page yet.
        let is_behind = self.rest.serializable && error.etcd() == Some(EtcdError::FutureRevision);
        let is_broken = is_streaming && error.is_unavailable();
        if !(is_behind || is_broken) || self.is_broken_for_long() {
            return Err(error);
        }
        if is_streaming {
            self.phase = Phase::Streaming(None);
        }
        sleep(RESUME_PAUSE).await;
        Ok(())
    }

    /// Returns whether no part of the list was read for the command timeout.
    fn is_broken_for_long(&mut self) -> bool {
        let since = *self.broken_since.get_or_insert_with(Instant::now);
        let limit = self.client.options().command_timeout;
        limit.is_some_and(|limit| since.elapsed() > limit)
    }

    /// Returns the next part of the stream; opens the stream first if necessary.
    async fn next_piece(&mut self) -> Result<Option<RangeResponse>, ClientError> {
        let mut rest = self.rest.clone();
        rest.limit = self.remaining.unwrap_or(0);
        let Phase::Streaming(stream) = &mut self.phase else {
            return Ok(None);
        };
        let stream = match stream {
            Some(stream) => stream,
            None => stream.insert(Box::new(self.client.open_range_stream(rest).await?)),
        };
        let received = match self.client.options().command_timeout {
            None => stream.message().await,
            Some(limit) => timeout(limit, stream.message())
                .await
                .map_err(|_| self.client.deadline_exceeded(None))?,
        };
        let piece = received?.map(|piece| piece.range_response.unwrap_or_default());
        Ok(piece)
    }

    fn next_page(&self) -> RangeRequest {
        let mut page = self.rest.clone();
        let remaining = self.remaining.unwrap_or(i64::MAX);
        page.limit = self.page_keys.min(remaining);
        page
    }

    /// Makes all further parts be read at the revision of the first.
    fn pin(&mut self, first: &RangeResponse) {
        self.count = first.count;
        if self.rest.revision == 0 {
            self.rest.revision = first.header.as_ref().map_or(0, |header| header.revision);
        }
    }

    fn take(&mut self, kvs: Vec<KeyValue>) {
        if let Some(last) = kvs.last() {
            self.rest.key = key_after(&last.key);
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining -= i64::try_from(kvs.len()).unwrap_or(i64::MAX);
        }
        self.ready.extend(kvs);
    }

    fn go_on(&mut self, more: bool, phase: Phase) {
        let is_enough = self.remaining.is_some_and(|remaining| remaining <= 0);
        self.phase = match more && !is_enough {
            true => phase,
            false => Phase::Done,
        };
    }
}

impl Client {
    /// Opens a stream of the parts of a range, within the command timeout.
    async fn open_range_stream(
        &self,
        request: RangeRequest,
    ) -> Result<Streaming<RangeStreamResponse>, ClientError> {
        self.call(calls::RANGE_STREAM, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request.clone()));
            async move { kv.range_stream(request).await }
        })
        .await
    }
}
