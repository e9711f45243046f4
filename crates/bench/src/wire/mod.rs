//! gRPC at the least cost: one TCP connection with HTTP/2 on it, driven by one task.
//!
//! The load generator shares its cores with the server that it measures, so what it spends
//! per request limits what can be seen. A general client pays for tasks, locks, header maps
//! and bodies of every request; this one appends bytes to a buffer and cuts frames from
//! another, and the headers of a method are encoded once.
//!
//! ```text
//!   request, send ──▶ outgoing ──flush──▶ socket ──receive──▶ incoming ──▶ next_event
//! ```
//!
//! It is enough for this load and not more: plain TCP, no compression, messages below the
//! window of a stream, one message under way per stream. Headers of answers are not
//! decoded: a call that ends without a message has failed, which is what gRPC servers do.

mod frame;
mod headers;

use std::collections::{HashMap, VecDeque};
use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use frame::{FrameHeader, Kind, flag, setting};
use headers::HeaderBlocks;
pub use headers::Method;

/// What HTTP/2 clients say first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest window there is: answers are never held back by this client.
const WINDOW_BYTES_MAX: u32 = 0x7fff_ffff;
/// What a connection may receive before anything was said about it.
const WINDOW_BYTES_DEFAULT: u32 = 65_535;
/// Once so much was received, as much is granted again.
const WINDOW_BYTES_REGRANTED: u32 = 1 << 28;

/// Frames sent are not larger, as every peer must take this.
const FRAME_BYTES_MAX: usize = 16_384;

/// No message may be larger: each must fit into the window of a fresh stream.
pub const MESSAGE_BYTES_MAX: usize = 60_000;

/// How much is read at once, if there is so much.
const READ_BYTES: usize = 256 * 1024;

/// The byte that says "not compressed", and the length.
const MESSAGE_PREFIX_BYTES: usize = 5;

/// Dynamic header table of every peer that says nothing else.
const HEADER_TABLE_BYTES_DEFAULT: u32 = 4096;

/// A call on a connection.
pub type StreamId = u32;

/// What came from the server.
#[derive(Debug)]
pub enum Event {
    /// A whole message.
    Message(StreamId, Bytes),
    /// Nothing more comes on this stream.
    End(StreamId),
}

/// A connection that is of no use any more.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum WireError {
    /// The socket says so.
    #[error("the connection failed: is the server still running?")]
    Socket(#[from] io::Error),
    /// The server went away.
    #[error("the server closed the connection")]
    Closed,
    /// Something this client does not do.
    #[error("the server wants {what}, which this client cannot do")]
    Unsupported { what: &'static str },
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    outgoing: BytesMut,
    incoming: BytesMut,
    blocks: HeaderBlocks,
    next_stream: StreamId,
    /// What may be sent before the server grants more.
    send_window_bytes: i64,
    /// What waits for that, in order.
    held: VecDeque<(StreamId, Bytes, bool)>,
    /// Received since the last grant.
    received_bytes: u32,
    /// The beginnings of messages that came in several frames.
    partial: HashMap<StreamId, BytesMut>,
    /// The end of the last of them. Once its message is dropped there is room for another:
    /// fresh memory for every answer of 10 MB would cost more than receiving it.
    spare: BytesMut,
    /// Found in frames that were cut already.
    events: VecDeque<Event>,
}

impl Connection {
    /// Connects to `host:port`.
    pub async fn open(address: &str) -> Result<Connection, WireError> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let mut connection = Connection {
            socket,
            outgoing: BytesMut::with_capacity(READ_BYTES),
            incoming: BytesMut::with_capacity(READ_BYTES),
            blocks: HeaderBlocks::new(address),
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

    /// Queues the beginning of a call that takes many messages.
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

    /// Hands everything queued to the socket.
    pub async fn flush(&mut self) -> Result<(), WireError> {
        if !self.outgoing.is_empty() {
            self.socket.write_all(&self.outgoing).await?;
            self.outgoing.clear();
        }
        Ok(())
    }

    /// Waits for bytes and cuts them into events. Nothing is lost if it is not polled to
    /// its end.
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

    /// The next thing that came, if anything did.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A call with one message and one answer; for what is not measured.
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
                begun.reserve(whole_bytes(&payload));
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

/// A message with its prefix, in as many frames as it takes.
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

/// How many bytes the message that begins here will have, prefix included.
fn whole_bytes(begun: &[u8]) -> usize {
    match begun.first_chunk::<MESSAGE_PREFIX_BYTES>() {
        Some([_, length @ ..]) => MESSAGE_PREFIX_BYTES + u32::from_be_bytes(*length) as usize,
        None => MESSAGE_PREFIX_BYTES,
    }
}

/// Where the first message ends, if it is complete.
fn message_at_front(bytes: &[u8]) -> Option<usize> {
    let is_begun = bytes.len() >= MESSAGE_PREFIX_BYTES;
    let end = whole_bytes(bytes);
    (is_begun && bytes.len() >= end).then_some(end)
}

#[cfg(test)]
mod tests;
