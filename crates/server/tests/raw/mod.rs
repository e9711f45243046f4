//! Raw sockets: any bytes, handmade HTTP/2 frames, and gRPC messages of any bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::WAIT_MAX;
pub use crate::common::any_bytes::call;

/// The connection preface of an HTTP/2 client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const CONTINUATION: u8 = 9;

/// Flags of frames.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Opens a connection, sends `bytes` and keeps it open.
pub fn say(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may have closed it already.
    let _ = stream.write_all(bytes);
    stream
}

/// Opens a connection, sends `bytes` and waits until the server closes it.
pub fn say_and_leave(address: SocketAddr, bytes: &[u8]) {
    let mut stream = say(address, bytes);
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let mut sink = [0; 1 << 16];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the server did not close the connection: {error}"),
        }
    }
}

/// Reads until nothing arrives for a moment.
pub fn listen_a_moment(stream: &mut TcpStream) {
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut sink = [0; 1 << 16];
    while let Ok(1..) = stream.read(&mut sink) {}
}

/// Encodes a frame; its length is the payload's.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    frame_of_length(length, kind, flags, stream, payload)
}

/// Encodes a frame with a possibly wrong length.
pub fn frame_of_length(length: u32, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The preface and settings, after which the server takes requests.
pub fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Encodes the headers of a gRPC call, uncompressed.
pub fn call_headers(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        block.extend(header(name, value));
    }
    block
}

/// Encodes one header, as a literal that is not indexed.
pub fn header(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0];
    for text in [name, value] {
        block.push(u8::try_from(text.len()).unwrap());
        block.extend(text.as_bytes());
    }
    block
}

/// Encodes a gRPC message with a possibly wrong length.
pub fn message_of_length(length: u32, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(length.to_be_bytes());
    message.extend(bytes);
    message
}
