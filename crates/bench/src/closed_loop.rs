//! A closed loop: each client has one request in flight and sends the next after its answer.
//!
//! One task per connection runs all clients of that connection: answers received together are
//! handled together, and their next requests are sent together. So a request costs this
//! process neither a task nor a wake-up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::usage::UsageError;
use crate::window::{ClientResults, Window, WindowDurations, WindowUsage, micros};
use crate::wire::{Connection, Event, Method, StreamId};

/// The pause of a connection after a failure, so that a server that refuses every request is
/// not measured as a fast one.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(20);

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The operation is complete and counts.
    Done,
    /// The operation needs one more request.
    NeedsAnotherRequest,
    /// The request only prepared others.
    Prepared,
}

/// A client of a closed loop.
pub trait Requester: Send + 'static {
    /// Writes the next request into `message`, which is empty, and returns its method.
    fn next(&mut self, message: &mut Vec<u8>) -> Method;

    /// Checks the answer to the request; returns an error text if it is wrong.
    fn answered(&mut self, answer: &[u8]) -> Result<Completion, String>;
}

/// Runs the clients until the window is over. Clients share the connections evenly.
pub async fn closed_loop<R: Requester>(
    connections: Vec<Connection>,
    clients: Vec<R>,
    durations: WindowDurations,
    server_process_ids: &[u32],
) -> Result<(ClientResults, WindowUsage), UsageError> {
    let window = Arc::new(Window::default());
    let mut shares: Vec<Vec<ClientSlot<R>>> = connections.iter().map(|_| Vec::new()).collect();
    for (number, client) in clients.into_iter().enumerate() {
        let share = number % shares.len();
        shares[share].push(ClientSlot::of(client));
    }
    let mut tasks = JoinSet::new();
    for (connection, slots) in connections.into_iter().zip(shares) {
        let mut task = ConnectionTask {
            connection,
            slots,
            window: Arc::clone(&window),
            message: Vec::new(),
            results: ClientResults::default(),
        };
        tasks.spawn(async move {
            if let Err(error) = task.run().await {
                task.results.failed(error);
            }
            task.results
        });
    }
    let usage_in_window = window.run(durations, server_process_ids).await;
    let mut all = ClientResults::default();
    for results in tasks.join_all().await {
        all.merge(results);
    }
    Ok((all, usage_in_window?))
}

/// A client and its current request.
struct ClientSlot<R> {
    client: R,
    /// The stream of the current request.
    stream: StreamId,
    /// The open streaming call, if any.
    open_call: Option<(Method, StreamId)>,
    /// The message received before the end of the call.
    answer: Option<Bytes>,
    started: Instant,
    began_inside: bool,
}

impl<R: Requester> ClientSlot<R> {
    fn of(client: R) -> ClientSlot<R> {
        ClientSlot {
            client,
            stream: 0,
            open_call: None,
            answer: None,
            started: Instant::now(),
            began_inside: false,
        }
    }

    fn send(&mut self, connection: &mut Connection, message: &mut Vec<u8>) {
        message.clear();
        let method = self.client.next(message);
        if !method.is_streaming() {
            self.stream = connection.request(method, message);
            return;
        }
        let stream = match self.open_call {
            Some((open, stream)) if open == method => stream,
            _ => connection.start(method),
        };
        self.open_call = Some((method, stream));
        connection.send(stream, message);
        self.stream = stream;
    }

    fn is_on_open_call(&self) -> bool {
        self.open_call.is_some_and(|(_, open)| open == self.stream)
    }
}

/// All clients of one connection.
struct ConnectionTask<R> {
    connection: Connection,
    slots: Vec<ClientSlot<R>>,
    window: Arc<Window>,
    message: Vec<u8>,
    results: ClientResults,
}

impl<R: Requester> ConnectionTask<R> {
    async fn run(&mut self) -> Result<(), crate::wire::WireError> {
        for slot in &mut self.slots {
            slot.send(&mut self.connection, &mut self.message);
        }
        let window = Arc::clone(&self.window);
        let mut over = std::pin::pin!(window.until_over());
        while !self.window.is_over() {
            self.connection.flush().await?;
            tokio::select! {
                biased;
                received = self.connection.receive() => received?,
                () = &mut over => break,
            }
            let failures_before = self.results.failures;
            self.take_events();
            if self.results.failures > failures_before {
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
        Ok(())
    }

    fn take_events(&mut self) {
        let now = Instant::now();
        let is_inside = self.window.is_measuring();
        while let Some(event) = self.connection.next_event() {
            let (Event::Message(stream, _) | Event::End(stream)) = event;
            // Few clients share a connection, so a linear search is fast.
            let Some(slot) = self.slots.iter_mut().find(|slot| slot.stream == stream) else {
                continue;
            };
            let answer = match event {
                Event::Message(_, message) if slot.is_on_open_call() => Some(message),
                Event::Message(_, message) => {
                    slot.answer = Some(message);
                    continue;
                }
                Event::End(_) => {
                    if slot.is_on_open_call() {
                        slot.open_call = None;
                    }
                    slot.answer.take()
                }
            };
            let answered = match answer {
                Some(answer) => slot.client.answered(&answer),
                None => Err("the call ended without an answer".to_owned()),
            };
            match answered {
                Ok(Completion::Done) if slot.began_inside && is_inside => {
                    let latency = now.saturating_duration_since(slot.started);
                    self.results.latencies_us.push(micros(latency));
                }
                Ok(_) => {}
                Err(ref reason) => self.results.failed(reason),
            }
            if answered != Ok(Completion::NeedsAnotherRequest) {
                slot.started = now;
                slot.began_inside = is_inside;
            }
            slot.send(&mut self.connection, &mut self.message);
        }
    }
}
