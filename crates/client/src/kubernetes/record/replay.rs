//! An implementation of the interface that answers from a recording.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use serde_json::Value;

use super::json::{Answer, to_error};
use super::recorder::calls;
use crate::kubernetes::{
    CountOptions, DeleteOptions, DeleteResponse, Error, GetOptions, GetResponse, Interface,
    ListOptions, ListResponse, PutOptions, PutResponse, RequestProgressOptions, WatchEvent,
    WatchEvents, WatchOptions,
};

/// The largest recording.
const RECORDING_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// It cannot be read.
    #[error("the recording cannot be read")]
    Read(#[from] io::Error),
    /// A line is not one of a recording.
    #[error("line {line} is not a line of a recording: {text:?}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The beginning of the line.
        text: String,
    },
    /// It is too large to be held in memory.
    #[error("the recording is larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
}

/// Answers calls from a recording.
///
/// A call gets the answers that were recorded for the same call, in their order, so that calls of
/// different tasks may come in another order than in the recording. A watch ends with
/// [`Error::Replay`] after its last recorded event.
#[derive(Debug)]
pub struct Replay {
    answers: Mutex<BTreeMap<String, VecDeque<Recorded>>>,
}

/// The answer to one call.
#[derive(Debug)]
enum Recorded {
    Answer(Value),
    Error(Error),
    Events(VecDeque<WatchEvent>),
}

impl Replay {
    /// Reads a recording.
    ///
    /// # Errors
    /// If it is malformed, too large or cannot be read.
    pub fn read(recording: impl BufRead) -> Result<Self, RecordingError> {
        let mut limited = recording.take(RECORDING_BYTES_MAX + 1);
        let mut order = Vec::new();
        let mut events: BTreeMap<u64, VecDeque<WatchEvent>> = BTreeMap::new();
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            if limited.read_line(&mut text)? == 0 {
                break;
            }
            if limited.limit() == 0 {
                return Err(RecordingError::TooLarge {
                    bytes_max: RECORDING_BYTES_MAX,
                });
            }
            let malformed = || RecordingError::Line {
                line,
                text: text.chars().take(80).collect(),
            };
            let parsed: Value = serde_json::from_str(&text).map_err(|_| malformed())?;
            match parse(parsed).ok_or_else(malformed)? {
                Line::Answer(call, recorded) => order.push((call, recorded)),
                Line::Watch(call, watch) => order.push((call, Parsed::Watch(watch))),
                Line::Event(watch, event) => events.entry(watch).or_default().push_back(event),
            }
        }
        let mut answers: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for (call, recorded) in order {
            let recorded = match recorded {
                Parsed::Answer(answer) => Recorded::Answer(answer),
                Parsed::Error(error) => Recorded::Error(error),
                Parsed::Watch(watch) => Recorded::Events(events.remove(&watch).unwrap_or_default()),
            };
            answers.entry(call).or_default().push_back(recorded);
        }
        Ok(Self {
            answers: Mutex::new(answers),
        })
    }

    /// Returns the calls of the recording that were not made yet, as JSON, in no particular order.
    pub fn remaining(&self) -> Vec<String> {
        let answers = self.lock();
        let remaining = answers.iter();
        remaining
            .flat_map(|(call, answers)| vec![call.clone(); answers.len()])
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, VecDeque<Recorded>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, call: &Value) -> Result<Recorded, Error> {
        let call = call.to_string();
        let recorded = self.lock().get_mut(&call).and_then(VecDeque::pop_front);
        recorded.ok_or(Error::Replay { call })
    }

    fn answer<T: Answer>(&self, call: &Value) -> Result<T, Error> {
        match self.take(call)? {
            Recorded::Answer(answer) => T::from_json(&answer).ok_or_else(|| malformed(call)),
            Recorded::Error(error) => Err(error),
            Recorded::Events(_) => Err(malformed(call)),
        }
    }
}

fn malformed(call: &Value) -> Error {
    Error::Replay {
        call: format!("{call} with a malformed answer"),
    }
}

enum Parsed {
    Answer(Value),
    Error(Error),
    Watch(u64),
}

enum Line {
    Answer(String, Parsed),
    Watch(String, u64),
    Event(u64, WatchEvent),
}

fn parse(mut line: Value) -> Option<Line> {
    let watch = line.get("watch").and_then(Value::as_u64);
    if let Some(event) = line.get("event") {
        return Some(Line::Event(watch?, WatchEvent::from_json(event)?));
    }
    let call = line.get("call")?.to_string();
    if let Some(watch) = watch {
        return Some(Line::Watch(call, watch));
    }
    if let Some(error) = line.get("error") {
        return Some(Line::Answer(call, Parsed::Error(to_error(error)?)));
    }
    let answer = line.get_mut("answer")?.take();
    Some(Line::Answer(call, Parsed::Answer(answer)))
}

#[async_trait]
impl Interface for Replay {
    async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Error> {
        self.answer(&calls::get(key, &options))
    }

    async fn list(&self, prefix: &[u8], options: ListOptions) -> Result<ListResponse, Error> {
        self.answer(&calls::list(prefix, &options))
    }

    async fn count(&self, prefix: &[u8], options: CountOptions) -> Result<i64, Error> {
        self.answer(&calls::count(prefix, &options))
    }

    async fn optimistic_put(
        &self,
        key: &[u8],
        value: Bytes,
        expected_revision: i64,
        options: PutOptions,
    ) -> Result<PutResponse, Error> {
        self.answer(&calls::put(key, &value, expected_revision, &options))
    }

    async fn optimistic_delete(
        &self,
        key: &[u8],
        expected_revision: i64,
        options: DeleteOptions,
    ) -> Result<DeleteResponse, Error> {
        self.answer(&calls::delete(key, expected_revision, &options))
    }

    async fn watch(&self, key: &[u8], options: WatchOptions) -> Result<WatchEvents, Error> {
        let call = calls::watch(key, &options);
        match self.take(&call)? {
            Recorded::Events(events) => Ok(WatchEvents::new(ReplayedEvents {
                events,
                end: Some(call.to_string()),
            })),
            Recorded::Error(error) => Err(error),
            Recorded::Answer(_) => Err(malformed(&call)),
        }
    }

    async fn request_progress(&self, options: RequestProgressOptions) -> Result<(), Error> {
        self.answer(&calls::progress(&options))
    }
}

struct ReplayedEvents {
    events: VecDeque<WatchEvent>,
    /// The call, until the watch has ended.
    end: Option<String>,
}

impl Stream for ReplayedEvents {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let next = match self.events.pop_front() {
            Some(error @ WatchEvent::Error(_)) => {
                self.end = None;
                Some(error)
            }
            Some(event) => Some(event),
            None => {
                let end = self.end.take();
                end.map(|call| WatchEvent::Error(Error::Replay { call }))
            }
        };
        Poll::Ready(next)
    }
}
