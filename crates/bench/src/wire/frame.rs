//! HTTP/2 frames: a header of nine bytes and a payload.

use bytes::{Buf, BufMut, BytesMut};

const HEADER_BYTES: usize = 9;

/// The frame types that this client handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data = 0,
    Headers = 1,
    ResetStream = 3,
    Settings = 4,
    Ping = 6,
    GoAway = 7,
    WindowUpdate = 8,
}

/// Bits of a frame's flags.
pub(super) mod flag {
    /// The last frame of a stream in this direction.
    pub const END_STREAM: u8 = 0x1;
    /// The acknowledgement of settings or a ping.
    pub const ACK: u8 = 0x1;
    /// No continuation follows.
    pub const END_HEADERS: u8 = 0x4;
    /// The payload begins with the length of its padding.
    pub const PADDED: u8 = 0x8;
}

/// Names of settings.
pub(super) mod setting {
    /// Size of the dynamic header table.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Initial window of a stream.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Length of the payload.
    pub length: usize,
    /// `None` for a type that is skipped.
    pub kind: Option<Kind>,
    pub flags: u8,
    pub stream: u32,
}

impl FrameHeader {
    /// Removes the header of the first frame if the frame is complete.
    pub fn cut(bytes: &mut BytesMut) -> Option<FrameHeader> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let [a, b, c, kind, flags, stream @ ..] = *header;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if bytes.len() < HEADER_BYTES + length {
            return None;
        }
        let [d, e, f, g] = stream;
        bytes.advance(HEADER_BYTES);
        Some(FrameHeader {
            length,
            kind: kind_of(kind),
            flags,
            stream: u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff,
        })
    }
}

fn kind_of(byte: u8) -> Option<Kind> {
    let known = [
        Kind::Data,
        Kind::Headers,
        Kind::ResetStream,
        Kind::Settings,
        Kind::Ping,
        Kind::GoAway,
        Kind::WindowUpdate,
    ];
    known.into_iter().find(|kind| *kind as u8 == byte)
}

pub(super) fn put_header(out: &mut BytesMut, length: usize, kind: Kind, flags: u8, stream: u32) {
    out.put_uint(length as u64, 3);
    out.put_u8(kind as u8);
    out.put_u8(flags);
    out.put_u32(stream);
}

pub(super) fn put_settings(out: &mut BytesMut, settings: &[(u16, u32)]) {
    put_header(out, settings.len() * 6, Kind::Settings, 0, 0);
    for (name, value) in settings {
        out.put_u16(*name);
        out.put_u32(*value);
    }
}

/// Increases the window of the connection.
pub(super) fn put_window_update(out: &mut BytesMut, bytes: u32) {
    put_header(out, 4, Kind::WindowUpdate, 0, 0);
    out.put_u32(bytes);
}

/// Returns the value of a setting in the payload of a settings frame.
pub(super) fn setting_in(payload: &[u8], name: u16) -> Option<u32> {
    payload.chunks_exact(6).find_map(|entry| {
        let [a, b, value @ ..] = *entry.first_chunk::<6>()?;
        (u16::from_be_bytes([a, b]) == name).then(|| u32::from_be_bytes(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_cut_only_when_complete() {
        let mut bytes = BytesMut::new();
        put_header(&mut bytes, 3, Kind::Data, flag::END_STREAM, 7);
        bytes.put_slice(b"ab");
        assert_eq!(FrameHeader::cut(&mut bytes), None);
        bytes.put_slice(b"cd");
        let header = FrameHeader::cut(&mut bytes).unwrap();
        assert_eq!((header.length, header.kind), (3, Some(Kind::Data)));
        assert_eq!((header.flags, header.stream), (flag::END_STREAM, 7));
        assert_eq!(&bytes[..], b"abcd");
    }

    #[test]
    fn setting_is_found_by_name() {
        let mut bytes = BytesMut::new();
        put_settings(&mut bytes, &[(3, 100), (setting::HEADER_TABLE_SIZE, 4096)]);
        let header = FrameHeader::cut(&mut bytes).unwrap();
        assert_eq!(header.kind, Some(Kind::Settings));
        assert_eq!(setting_in(&bytes, setting::HEADER_TABLE_SIZE), Some(4096));
        assert_eq!(setting_in(&bytes, 9), None);
    }
}
