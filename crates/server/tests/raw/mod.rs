//! Below the libraries: sockets that say whatever a test likes, HTTP/2 frames written by
//! hand, and gRPC messages that are any bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::PATIENCE;
pub use crate::common::any_bytes::call;

/// What every HTTP/2 client says first.
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

/// A connection that says `bytes` and stays open.
pub fn say(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may have had enough and closed; that is its right.
    let _ = stream.write_all(bytes);
    stream
}

/// A connection that says `bytes` and nothing more; waits until the server closes it.
pub fn say_and_leave(address: SocketAddr, bytes: &[u8]) {
    let mut stream = say(address, bytes);
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
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

/// Reads whatever comes until nothing does for a moment.
pub fn listen_a_moment(stream: &mut TcpStream) {
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut sink = [0; 1 << 16];
    while let Ok(1..) = stream.read(&mut sink) {}
}

/// A frame; its length is the payload's.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    frame_of_length(length, kind, flags, stream, payload)
}

/// A frame that may lie about its length.
pub fn frame_of_length(length: u32, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Preface and settings: from here on the server takes requests.
pub fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// The headers of a gRPC call, uncompressed.
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
        // A literal that goes into no table.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A gRPC message that may lie about its length.
pub fn message_of_length(length: u32, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(length.to_be_bytes());
    message.extend(bytes);
    message
}
