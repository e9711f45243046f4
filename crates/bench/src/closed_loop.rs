//! Clients that each have one request under way, and send the next when it is answered.
//!
//! One task per connection plays all clients of that connection: answers that came together
//! are looked at together, and the requests they lead to leave together. So a request costs
//! this process neither a task nor a wake-up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::usage::UsageError;
use crate::window::{Pace, Seen, Spent, Window, micros};
use crate::wire::{Connection, Event, Method, StreamId};

/// After a failure a connection waits, or a server that refuses everything would be
/// measured as a fast one.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(20);

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// The operation is done, and counts.
    Done,
    /// One more request belongs to the operation.
    HalfWay,
    /// It was only to prepare others.
    Prepared,
}

/// A client.
pub trait Requester: Send + 'static {
    /// Writes the next request into `message`, which is empty, and says what is called.
    fn next(&mut self, message: &mut Vec<u8>) -> Method;

    /// Looks at the answer to it, and says what is wrong with it if anything is.
    fn answered(&mut self, answer: &[u8]) -> Result<Answered, String>;
}

/// Lets every client send one request after the other until the window is over. Clients
/// share the connections evenly.
pub async fn closed_loop<R: Requester>(
    connections: Vec<Connection>,
    clients: Vec<R>,
    pace: Pace,
    server_process_ids: &[u32],
) -> Result<(Seen, Spent), UsageError> {
    let window = Arc::new(Window::default());
    let mut shares: Vec<Vec<Seat<R>>> = connections.iter().map(|_| Vec::new()).collect();
    for (number, client) in clients.into_iter().enumerate() {
        let share = number % shares.len();
        shares[share].push(Seat::of(client));
    }
    let mut tasks = JoinSet::new();
    for (connection, seats) in connections.into_iter().zip(shares) {
        let mut table = Table {
            connection,
            seats,
            window: Arc::clone(&window),
            message: Vec::new(),
            seen: Seen::default(),
        };
        tasks.spawn(async move {
            if let Err(error) = table.run().await {
                table.seen.failed(error);
            }
            table.seen
        });
    }
    let spent = window.pass(pace, server_process_ids).await;
    let mut all = Seen::default();
    for seen in tasks.join_all().await {
        all.merge(seen);
    }
    Ok((all, spent?))
}

/// A client and where it stands.
struct Seat<R> {
    client: R,
    /// The call that is under way.
    stream: StreamId,
    /// A call that takes many messages, once it is open.
    open_call: Option<(Method, StreamId)>,
    /// Kept until the call ends.
    answer: Option<Bytes>,
    started: Instant,
    began_inside: bool,
}

impl<R: Requester> Seat<R> {
    fn of(client: R) -> Seat<R> {
        Seat {
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
struct Table<R> {
    connection: Connection,
    seats: Vec<Seat<R>>,
    window: Arc<Window>,
    message: Vec<u8>,
    seen: Seen,
}

impl<R: Requester> Table<R> {
    async fn run(&mut self) -> Result<(), crate::wire::WireError> {
        for seat in &mut self.seats {
            seat.send(&mut self.connection, &mut self.message);
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
            let failures_before = self.seen.failures;
            self.take_events();
            if self.seen.failures > failures_before {
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
            // A handful of clients share a connection, so this is as fast as any index.
            let Some(seat) = self.seats.iter_mut().find(|seat| seat.stream == stream) else {
                continue;
            };
            let answer = match event {
                Event::Message(_, message) if seat.is_on_open_call() => Some(message),
                Event::Message(_, message) => {
                    seat.answer = Some(message);
                    continue;
                }
                Event::End(_) => {
                    if seat.is_on_open_call() {
                        seat.open_call = None;
                    }
                    seat.answer.take()
                }
            };
            let answered = match answer {
                Some(answer) => seat.client.answered(&answer),
                None => Err("the call ended without an answer".to_owned()),
            };
            match answered {
                Ok(Answered::Done) if seat.began_inside && is_inside => {
                    let latency = now.saturating_duration_since(seat.started);
                    self.seen.latencies_us.push(micros(latency));
                }
                Ok(_) => {}
                Err(ref reason) => self.seen.failed(reason),
            }
            if answered != Ok(Answered::HalfWay) {
                seat.started = now;
                seat.began_inside = is_inside;
            }
            seat.send(&mut self.connection, &mut self.message);
        }
    }
}
