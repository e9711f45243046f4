//! Encoded messages decode to the same messages in pieces of any size; any other bytes are an
//! error and never a panic.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use bytes::{Bytes, BytesMut};
use portunus_proto::raftpb::{Entry, Message, MessageType, Snapshot, SnapshotMetadata};
use portunus_rafthttp::codec::{link_heartbeat, message, msgapp_v2};
use proptest::collection::vec;
use proptest::prelude::*;

const LIMIT: u64 = 1 << 20;

fn data() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..50).prop_map(Bytes::from)
}

fn entry() -> impl Strategy<Value = Entry> {
    (0..3i32, 0..4u64, 0..6u64, data()).prop_map(|(kind, term, index, data)| Entry {
        r#type: kind,
        term,
        index,
        data,
    })
}

/// Small numbers, so that appends often continue the previous one.
fn append() -> impl Strategy<Value = Message> {
    let numbers = (0..4u64, 0..4u64, 0..6u64, any::<u64>());
    (numbers, vec(entry(), 0..4)).prop_map(|((term, log_term, index, commit), entries)| Message {
        r#type: MessageType::MsgApp as i32,
        from: 1,
        to: 2,
        term,
        log_term,
        index,
        commit,
        entries,
        ..Message::default()
    })
}

/// Appends as a leader sends them: each continues the previous one.
fn replication() -> impl Strategy<Value = Vec<Message>> {
    vec((vec(data(), 0..4), any::<bool>()), 1..10).prop_map(|steps| {
        let (mut term, mut index, mut messages) = (1, 0, Vec::new());
        for (payloads, new_term) in steps {
            let log_term = term;
            term += u64::from(new_term);
            let first = index;
            let entries = payloads.into_iter().map(|data| {
                index += 1;
                Entry {
                    term,
                    index,
                    data,
                    ..Entry::default()
                }
            });
            let entries: Vec<_> = entries.collect();
            messages.push(Message {
                r#type: MessageType::MsgApp as i32,
                from: 1,
                to: 2,
                term,
                log_term,
                index: first,
                commit: first,
                entries,
                ..Message::default()
            });
        }
        messages
    })
}

fn any_message() -> impl Strategy<Value = Message> {
    let numbers = (any::<[u64; 7]>(), 0..24i32, any::<bool>());
    let snapshot = proptest::option::of((data(), any::<u64>()));
    (numbers, vec(entry(), 0..4), data(), snapshot).prop_map(
        |((n, kind, reject), entries, context, snapshot)| Message {
            r#type: kind,
            to: n[0],
            from: n[1],
            term: n[2],
            log_term: n[3],
            index: n[4],
            commit: n[5],
            reject_hint: n[6],
            reject,
            entries,
            context,
            snapshot: snapshot.map(|(data, index)| Snapshot {
                data,
                metadata: Some(SnapshotMetadata {
                    index,
                    ..SnapshotMetadata::default()
                }),
            }),
            ..Message::default()
        },
    )
}

/// Splits bytes into pieces of these sizes, in a cycle.
fn pieces<'a>(bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    let mut sizes = sizes.iter().cycle();
    std::iter::from_fn(move || {
        let size = *sizes.next()?;
        if rest.is_empty() {
            return None;
        }
        let (piece, tail) = rest.split_at(size.min(rest.len()));
        rest = tail;
        Some(piece)
    })
}

fn read_appends(bytes: &[u8], sizes: &[usize]) -> Vec<Message> {
    let mut decoder = msgapp_v2::Decoder::new(2, 1, LIMIT);
    let mut messages = Vec::new();
    for piece in pieces(bytes, sizes) {
        decoder.feed(piece);
        while let Some(message) = decoder.next_message().unwrap() {
            messages.push(message);
        }
    }
    messages
}

proptest! {
    #[test]
    fn messages_round_trip_through_the_message_stream(
        messages in vec(any_message(), 1..6),
        sizes in vec(1..40usize, 1..5),
    ) {
        let mut bytes = BytesMut::new();
        for one in &messages {
            message::encode(one, &mut bytes);
        }
        let mut decoder = message::Decoder::new(LIMIT);
        let mut read = Vec::new();
        for piece in pieces(&bytes, &sizes) {
            decoder.feed(piece);
            while let Some(message) = decoder.next_message().unwrap() {
                read.push(message);
            }
        }
        prop_assert_eq!(read, messages);
        prop_assert!(decoder.into_rest().is_empty());
    }

    #[test]
    fn appends_round_trip_through_the_msgapp_stream(
        appends in vec(prop_oneof![9 => append(), 1 => Just(link_heartbeat())], 1..10),
        sizes in vec(1..40usize, 1..5),
    ) {
        let mut bytes = BytesMut::new();
        let mut encoder = msgapp_v2::Encoder::default();
        for append in &appends {
            encoder.encode(append, &mut bytes);
        }
        prop_assert_eq!(read_appends(&bytes, &sizes), appends);
    }

    #[test]
    fn appends_in_log_order_use_the_short_encoding(
        appends in replication(),
        sizes in vec(1..40usize, 1..5),
    ) {
        let mut bytes = BytesMut::new();
        let mut encoder = msgapp_v2::Encoder::default();
        let mut whole = 0;
        for append in &appends {
            let at = bytes.len();
            encoder.encode(append, &mut bytes);
            whole += usize::from(bytes[at] == 2);
        }
        let new_terms = appends.iter().filter(|append| append.term != append.log_term);
        prop_assert!(whole <= 1 + new_terms.count());
        prop_assert_eq!(read_appends(&bytes, &sizes), appends);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), start in 0..4u8) {
        let mut messages = message::Decoder::new(LIMIT);
        messages.feed(&[0; 7]);
        messages.feed(&bytes);
        while let Ok(Some(_)) = messages.next_message() {}
        let mut appends = msgapp_v2::Decoder::new(2, 1, LIMIT);
        appends.feed(&[start, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        appends.feed(&bytes);
        while let Ok(Some(_)) = appends.next_message() {}
    }
}
