//! A gRPC client with low overhead: one HTTP/2 connection, driven by one task.
//!
//! The load generator shares the cores with the measured server, so its own cost per request
//! limits the measurement. A general client needs tasks, locks, header maps and bodies for
//! every request; this one appends bytes to a buffer, cuts frames from another, and encodes
//! the headers of a method once.
//!
//! ```text
//!   request, send ──▶ outgoing ──flush──▶ socket ──receive──▶ incoming ──▶ next_event
//! ```
//!
//! It supports only this load: no compression, messages below the window of a
//! stream, one message in flight per stream. Headers of answers are not decoded: a call that
//! ends without a message has failed.

mod frame;
mod headers;
mod socket;

use std::collections::{HashMap, VecDeque};
use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::endpoint::Endpoint;
use frame::{FrameHeader, Kind, flag, setting};
use headers::HeaderBlocks;
pub use headers::Method;
use socket::Socket;

/// The connection preface of HTTP/2 clients.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest window, so that the server never waits for this client.
const WINDOW_BYTES_MAX: u32 = 0x7fff_ffff;
/// The default window of a connection.
const WINDOW_BYTES_DEFAULT: u32 = 65_535;
/// After this many received bytes, the window is increased by the same number.
const WINDOW_BYTES_REGRANTED: u32 = 1 << 28;

/// The largest frame sent; every server must accept it.
const FRAME_BYTES_MAX: usize = 16_384;

/// The largest message sent, which must fit into the initial window of a stream.
pub const MESSAGE_BYTES_MAX: usize = 60_000;

/// The most bytes read at once.
const READ_BYTES: usize = 256 * 1024;

/// The compression flag and the length.
const MESSAGE_PREFIX_BYTES: usize = 5;

/// The default size of the dynamic header table.
const HEADER_TABLE_BYTES_DEFAULT: u32 = 4096;

/// A call on a connection.
pub type StreamId = u32;

/// An event from the server.
#[derive(Debug)]
pub enum Event {
    /// A complete message.
    Message(StreamId, Bytes),
    /// The end of the stream.
    End(StreamId),
}

/// A failed connection.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum WireError {
    /// A socket error.
    #[error("the connection failed: is the server still running?")]
    Socket(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server requires a feature that this client does not have.
    #[error("the server requires {what}, which this client does not support")]
    Unsupported { what: &'static str },
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    outgoing: BytesMut,
    incoming: BytesMut,
    blocks: HeaderBlocks,
    next_stream: StreamId,
    /// The remaining send window of the connection.
    send_window_bytes: i64,
    /// Messages that wait for the window, in order.
    held: VecDeque<(StreamId, Bytes, bool)>,
    /// Bytes received since the last window update.
    received_bytes: u32,
    /// Incomplete messages, by stream.
    partial: HashMap<StreamId, BytesMut>,
    /// The buffer of the last such message, reused once the message is dropped: new memory for
    /// every answer of 10 MB would cost more than receiving it.
    spare: BytesMut,
    /// Events of received frames.
    events: VecDeque<Event>,
}

impl Connection {
    /// Connects to an endpoint.
    pub async fn open(endpoint: &Endpoint) -> Result<Connection, WireError> {
        let mut connection = Connection {
            socket: Socket::open(endpoint).await?,
            outgoing: BytesMut::with_capacity(READ_BYTES),
            incoming: BytesMut::with_capacity(READ_BYTES),
            blocks: HeaderBlocks::new(endpoint),
            next_stream: 1,
            send_window_bytes: i64::from(WINDOW_BYTES_DEFAULT),
            held: VecDeque::new(),
            received_bytes: 0,
            partial: HashMap::new(),
            spare: BytesMut::new(),
            events: VecDeque::new(),
        };
        let out = &mut connection.outgoing;
        out.put_slice(PREFACE);
        frame::put_settings(out, &[(setting::INITIAL_WINDOW_SIZE, WINDOW_BYTES_MAX)]);
        frame::put_window_update(out, WINDOW_BYTES_MAX - WINDOW_BYTES_DEFAULT);
        connection.flush().await?;
        Ok(connection)
    }

    /// Queues a call with its only message.
    pub fn request(&mut self, method: Method, message: &[u8]) -> StreamId {
        let stream = self.start(method);
        self.send_message(stream, message, true);
        stream
    }

    /// Queues the headers of a streaming call.
    pub fn start(&mut self, method: Method) -> StreamId {
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.blocks.of(method);
        frame::put_header(
            &mut self.outgoing,
            block.len(),
            Kind::Headers,
            flag::END_HEADERS,
            stream,
        );
        self.outgoing.put_slice(block);
        stream
    }

    /// Queues a message of a call.
    pub fn send(&mut self, stream: StreamId, message: &[u8]) {
        self.send_message(stream, message, false);
    }

    fn send_message(&mut self, stream: StreamId, message: &[u8], is_last: bool) {
        assert!(message.len() <= MESSAGE_BYTES_MAX, "{}", message.len());
        let length = message.len() + MESSAGE_PREFIX_BYTES;
        if self.held.is_empty() && self.send_window_bytes >= length as i64 {
            self.send_window_bytes -= length as i64;
            put_message(&mut self.outgoing, stream, message, is_last);
        } else {
            let message = Bytes::copy_from_slice(message);
            self.held.push_back((stream, message, is_last));
        }
    }

    fn send_held(&mut self) {
        while let Some((_, message, _)) = self.held.front() {
            let length = (message.len() + MESSAGE_PREFIX_BYTES) as i64;
            if self.send_window_bytes < length {
                return;
            }
            self.send_window_bytes -= length;
            if let Some((stream, message, is_last)) = self.held.pop_front() {
                put_message(&mut self.outgoing, stream, &message, is_last);
            }
        }
    }

    /// Writes everything queued to the socket.
    pub async fn flush(&mut self) -> Result<(), WireError> {
        if !self.outgoing.is_empty() {
            self.socket.write_all(&self.outgoing).await?;
            self.outgoing.clear();
        }
        Ok(())
    }

    /// Waits for bytes and turns complete frames into events. Cancel safe.
    pub async fn receive(&mut self) -> Result<(), WireError> {
        self.incoming.reserve(READ_BYTES);
        if self.socket.read_buf(&mut self.incoming).await? == 0 {
            return Err(WireError::Closed);
        }
        while let Some(header) = FrameHeader::cut(&mut self.incoming) {
            let payload = self.incoming.split_to(header.length).freeze();
            self.take_frame(header, payload)?;
        }
        Ok(())
    }

    /// Returns the next received event, if any.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Sends one message and waits for its answer; for calls that are not measured.
    pub async fn call(
        &mut self,
        method: Method,
        message: &[u8],
    ) -> Result<Option<Bytes>, WireError> {
        let called = self.request(method, message);
        let mut answer = None;
        loop {
            self.flush().await?;
            self.receive().await?;
            while let Some(event) = self.next_event() {
                match event {
                    Event::Message(stream, message) if stream == called => answer = Some(message),
                    Event::End(stream) if stream == called => return Ok(answer),
                    _ => {}
                }
            }
        }
    }

    fn take_frame(&mut self, header: FrameHeader, payload: Bytes) -> Result<(), WireError> {
        match header.kind {
            Some(Kind::Data) => self.take_data(header, payload)?,
            Some(Kind::Settings) if header.flags & flag::ACK == 0 => {
                let table_bytes = frame::setting_in(&payload, setting::HEADER_TABLE_SIZE);
                if table_bytes.is_some_and(|bytes| bytes < HEADER_TABLE_BYTES_DEFAULT) {
                    return Err(WireError::Unsupported {
                        what: "a smaller table of headers",
                    });
                }
                frame::put_header(&mut self.outgoing, 0, Kind::Settings, flag::ACK, 0);
            }
            Some(Kind::Ping) if header.flags & flag::ACK == 0 => {
                frame::put_header(&mut self.outgoing, payload.len(), Kind::Ping, flag::ACK, 0);
                self.outgoing.put_slice(&payload);
            }
            Some(Kind::WindowUpdate) if header.stream == 0 => {
                if let Some(granted) = payload.first_chunk::<4>() {
                    self.send_window_bytes += i64::from(u32::from_be_bytes(*granted));
                    self.send_held();
                }
            }
            Some(Kind::GoAway) => return Err(WireError::Closed),
            Some(Kind::ResetStream) => self.end(header.stream),
            Some(Kind::Headers) if header.flags & flag::END_STREAM != 0 => {
                self.end(header.stream);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_data(&mut self, header: FrameHeader, mut payload: Bytes) -> Result<(), WireError> {
        if header.flags & flag::PADDED != 0 {
            return Err(WireError::Unsupported { what: "padding" });
        }
        self.received_bytes += payload.len() as u32;
        if self.received_bytes >= WINDOW_BYTES_REGRANTED {
            frame::put_window_update(&mut self.outgoing, self.received_bytes);
            self.received_bytes = 0;
        }
        let stream = header.stream;
        if let Some(mut begun) = self.partial.remove(&stream) {
            begun.extend_from_slice(&payload);
            while let Some(message) = message_at_front(&begun).map(|end| begun.split_to(end)) {
                let message = message.freeze().slice(MESSAGE_PREFIX_BYTES..);
                self.events.push_back(Event::Message(stream, message));
            }
            if begun.is_empty() {
                self.spare = begun;
            } else {
                self.partial.insert(stream, begun);
            }
        } else {
            while let Some(end) = message_at_front(&payload) {
                let message = payload.split_to(end).slice(MESSAGE_PREFIX_BYTES..);
                self.events.push_back(Event::Message(stream, message));
            }
            if !payload.is_empty() {
                let mut begun = std::mem::take(&mut self.spare);
                begun.reserve(message_bytes(&payload));
                begun.extend_from_slice(&payload);
                self.partial.insert(stream, begun);
            }
        }
        if header.flags & flag::END_STREAM != 0 {
            self.end(stream);
        }
        Ok(())
    }

    fn end(&mut self, stream: StreamId) {
        self.partial.remove(&stream);
        self.events.push_back(Event::End(stream));
    }
}

/// Writes a message with its prefix, in one or more frames.
fn put_message(out: &mut BytesMut, stream: StreamId, message: &[u8], is_last: bool) {
    let mut prefix = [0; MESSAGE_PREFIX_BYTES];
    prefix[1..].copy_from_slice(&(message.len() as u32).to_be_bytes());
    let mut whole = Buf::chain(&prefix[..], message);
    loop {
        let length = whole.remaining().min(FRAME_BYTES_MAX);
        let ends_stream = is_last && length == whole.remaining();
        let flags = if ends_stream { flag::END_STREAM } else { 0 };
        frame::put_header(out, length, Kind::Data, flags, stream);
        out.put(Buf::take(&mut whole, length));
        if !whole.has_remaining() {
            return;
        }
    }
}

/// Returns the size of the message at the front, including its prefix.
fn message_bytes(begun: &[u8]) -> usize {
    match begun.first_chunk::<MESSAGE_PREFIX_BYTES>() {
        Some([_, length @ ..]) => MESSAGE_PREFIX_BYTES + u32::from_be_bytes(*length) as usize,
        None => MESSAGE_PREFIX_BYTES,
    }
}

/// Returns the end of the first message, if it is complete.
fn message_at_front(bytes: &[u8]) -> Option<usize> {
    let is_begun = bytes.len() >= MESSAGE_PREFIX_BYTES;
    let end = message_bytes(bytes);
    (is_begun && bytes.len() >= end).then_some(end)
}

#[cfg(test)]
mod tests;
