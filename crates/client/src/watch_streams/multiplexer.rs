//! Several watches over one stream: which requests to send, and to which watch a response goes.
//!
//! ```text
//!            add                created            canceled, out of order
//!  ─────▶ Waiting ──▶ Creating ─────────▶ Active ─────────────────────────▶ ended
//!           ▲ ▲           │                │ │
//!           │ └───────────┴─ disconnected ─┘ │ pause: the consumer is slow
//!           └──────────── resume ── Paused ◀─┘
//! ```
//!
//! Watches are created one after the other, as clientv3 does, because a server chooses their ids:
//! the response that confirms a creation belongs to the request before it. The multiplexer does no
//! I/O: it returns [effects](Effect).

use std::collections::{BTreeMap, VecDeque};

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
    watch_request::RequestUnion,
};

use super::end::WatchEnd;
use super::position::Position;

/// The watch id of a progress notice for all watches of a stream.
const ALL_WATCHES: i64 = -1;

/// The number of a watch in this client.
pub(super) type WatchNumber = u64;

/// What to do next.
#[derive(Debug)]
pub(super) enum Effect {
    /// Send a request.
    Send(WatchRequest),
    /// The server has created a watch, for the first time or again.
    Created(WatchNumber),
    /// Give a response to a watch.
    Deliver {
        /// The watch.
        watch: WatchNumber,
        /// The response.
        response: WatchResponse,
        /// The position before it, for [`Multiplexer::pause`].
        before: Position,
    },
    /// The server refused the token of the stream: open another stream, or end the watch.
    TokenRefused {
        /// The watch.
        watch: WatchNumber,
        /// The error of the server.
        error: EtcdError,
    },
    /// A watch has ended.
    End {
        /// The watch.
        watch: WatchNumber,
        /// The reason.
        end: WatchEnd,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchState {
    Waiting,
    Creating,
    Active { server_id: i64 },
    Paused,
}

#[derive(Debug)]
struct Watch {
    create: WatchCreateRequest,
    position: Position,
    state: WatchState,
}

/// The watches of one stream.
#[derive(Debug, Default)]
pub(super) struct Multiplexer {
    watches: BTreeMap<WatchNumber, Watch>,
    /// The active watches by the ids that the server chose.
    by_server_id: BTreeMap<i64, WatchNumber>,
    waiting: VecDeque<WatchNumber>,
    /// The watch whose creation was requested last and not confirmed yet, even if it was removed.
    creating: Option<WatchNumber>,
    is_connected: bool,
    is_progress_wanted: bool,
}

impl Multiplexer {
    /// Returns whether there is no watch.
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Returns the watches.
    pub(super) fn numbers(&self) -> Vec<WatchNumber> {
        self.watches.keys().copied().collect()
    }

    /// Adds a watch.
    pub(super) fn add(&mut self, number: WatchNumber, create: WatchCreateRequest) -> Vec<Effect> {
        let watch = Watch {
            position: Position::from_start(create.start_revision),
            create,
            state: WatchState::Waiting,
        };
        self.watches.insert(number, watch);
        self.waiting.push_back(number);
        self.send_next()
    }

    /// Removes a watch.
    pub(super) fn remove(&mut self, number: WatchNumber) -> Vec<Effect> {
        let Some(watch) = self.watches.remove(&number) else {
            return Vec::new();
        };
        match watch.state {
            WatchState::Active { server_id } => vec![self.cancel(server_id)],
            _ => Vec::new(),
        }
    }

    /// Cancels a watch at the server until [`Self::resume`]; its consumer did not take what came
    /// after `position`.
    pub(super) fn pause(&mut self, number: WatchNumber, position: Position) -> Vec<Effect> {
        let Some(watch) = self.watches.get_mut(&number) else {
            return Vec::new();
        };
        watch.position = position;
        let before = std::mem::replace(&mut watch.state, WatchState::Paused);
        match before {
            WatchState::Active { server_id } => vec![self.cancel(server_id)],
            _ => Vec::new(),
        }
    }

    /// Creates a paused watch again.
    pub(super) fn resume(&mut self, number: WatchNumber) -> Vec<Effect> {
        match self.watches.get_mut(&number) {
            Some(watch) if watch.state == WatchState::Paused => {
                watch.state = WatchState::Waiting;
                self.waiting.push_back(number);
                self.send_next()
            }
            _ => Vec::new(),
        }
    }

    /// Requests a progress notice for all watches, after those that are being created.
    pub(super) fn request_progress(&mut self) -> Vec<Effect> {
        self.is_progress_wanted = true;
        self.send_next()
    }

    /// A new stream takes requests.
    pub(super) fn connected(&mut self) -> Vec<Effect> {
        self.is_connected = true;
        self.send_next()
    }

    /// The stream is lost.
    pub(super) fn disconnected(&mut self) {
        self.is_connected = false;
        self.creating = None;
        self.by_server_id.clear();
        self.waiting.clear();
        for (number, watch) in &mut self.watches {
            if watch.state != WatchState::Paused {
                watch.state = WatchState::Waiting;
                self.waiting.push_back(*number);
            }
        }
    }

    /// Handles a response of the server.
    pub(super) fn response(&mut self, response: WatchResponse) -> Vec<Effect> {
        if response.created {
            return self.created(response);
        }
        if response.watch_id == ALL_WATCHES && !response.canceled {
            let active: Vec<_> = self.by_server_id.values().copied().collect();
            let progress = |number| self.progress(number, response.clone());
            return active.into_iter().filter_map(progress).collect();
        }
        // Responses of watches that were removed or paused arrive until the server has canceled
        // them.
        let Some(number) = self.by_server_id.get(&response.watch_id).copied() else {
            return Vec::new();
        };
        if response.canceled {
            vec![self.end(number, WatchEnd::of_response(&response))]
        } else if response.events.is_empty() {
            self.progress(number, response).into_iter().collect()
        } else {
            self.events(number, response)
        }
    }

    fn created(&mut self, response: WatchResponse) -> Vec<Effect> {
        let Some(number) = self.creating.take() else {
            return Vec::new();
        };
        let mut effects = Vec::new();
        match self.watches.get_mut(&number) {
            None if response.canceled => {}
            None => effects.push(send(RequestUnion::CancelRequest(WatchCancelRequest {
                watch_id: response.watch_id,
            }))),
            Some(_) if response.canceled => effects.push(match refused_token(&response) {
                Some(error) => Effect::TokenRefused {
                    watch: number,
                    error,
                },
                None => self.end(number, WatchEnd::of_response(&response)),
            }),
            Some(watch) => {
                let server_id = response.watch_id;
                watch.state = WatchState::Active { server_id };
                let newest = response.header.as_ref().map_or(0, |header| header.revision);
                watch.position.begin(newest);
                self.by_server_id.insert(server_id, number);
                effects.push(Effect::Created(number));
            }
        }
        effects.extend(self.send_next());
        effects
    }

    fn progress(&mut self, number: WatchNumber, response: WatchResponse) -> Option<Effect> {
        let watch = self.watches.get_mut(&number)?;
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        let before = watch.position;
        // Revision 0 is not a position: the consumer decides what to do with such a server.
        if revision != 0 && !watch.position.accept_progress(revision) {
            return None;
        }
        Some(Effect::Deliver {
            watch: number,
            response,
            before,
        })
    }

    fn events(&mut self, number: WatchNumber, mut response: WatchResponse) -> Vec<Effect> {
        let Some(watch) = self.watches.get_mut(&number) else {
            return Vec::new();
        };
        let before = watch.position;
        let fragment = response.fragment;
        match watch.position.accept(&mut response.events, fragment) {
            Ok(()) if response.events.is_empty() => Vec::new(),
            Ok(()) => vec![Effect::Deliver {
                watch: number,
                response,
                before,
            }],
            Err(error) => {
                let end = WatchEnd::OutOfOrder {
                    revision: error.revision,
                    delivered: before.next_revision - 1,
                };
                vec![self.cancel(response.watch_id), self.end(number, end)]
            }
        }
    }

    /// Ends a watch that the server has canceled or will cancel.
    fn end(&mut self, number: WatchNumber, end: WatchEnd) -> Effect {
        if let Some(watch) = self.watches.remove(&number)
            && let WatchState::Active { server_id } = watch.state
        {
            self.by_server_id.remove(&server_id);
        }
        Effect::End { watch: number, end }
    }

    fn cancel(&mut self, server_id: i64) -> Effect {
        self.by_server_id.remove(&server_id);
        send(RequestUnion::CancelRequest(WatchCancelRequest {
            watch_id: server_id,
        }))
    }

    /// Requests the next creation, or progress if there is none.
    fn send_next(&mut self) -> Vec<Effect> {
        if !self.is_connected || self.creating.is_some() {
            return Vec::new();
        }
        while let Some(number) = self.waiting.pop_front() {
            let Some(watch) = self.watches.get_mut(&number) else {
                continue;
            };
            watch.state = WatchState::Creating;
            self.creating = Some(number);
            let create = WatchCreateRequest {
                start_revision: watch.position.next_revision,
                ..watch.create.clone()
            };
            return vec![send(RequestUnion::CreateRequest(create))];
        }
        if std::mem::take(&mut self.is_progress_wanted) && !self.by_server_id.is_empty() {
            return vec![send(RequestUnion::ProgressRequest(WatchProgressRequest {}))];
        }
        Vec::new()
    }
}

fn send(union: RequestUnion) -> Effect {
    Effect::Send(WatchRequest {
        request_union: Some(union),
    })
}

/// Returns the error if the server refused a creation because of the token of the stream.
fn refused_token(response: &WatchResponse) -> Option<EtcdError> {
    let errors = [EtcdError::InvalidAuthToken, EtcdError::AuthOldRevision];
    errors
        .into_iter()
        .find(|error| response.cancel_reason.contains(error.text()))
}
