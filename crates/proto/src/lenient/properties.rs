//! Properties of lenient decoding, for messages of every type that a log entry can contain.
//!
//! Messages are generated from the descriptors and a list of random bytes, each of which is one
//! choice, so that a failing case shrinks with the list.

use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Deeper than the messages of any client, and well above the limit of strict decoding with
/// unknown groups inside.
const DEPTH_MAX: usize = 8;
/// No message has a field with this number.
const UNKNOWN_NUMBER: u64 = 20_000;

/// Random choices; zeros once they are used up, which end every message.
struct Choices(std::vec::IntoIter<u8>);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        usize::from(self.0.next().unwrap_or(0)) % count
    }

    fn number(&mut self) -> u64 {
        let bits = 8 * self.below(9) as u32;
        let number = (0..8).fold(0, |number, _| number << 8 | self.below(256) as u64);
        number.checked_shr(64 - bits).unwrap_or(0)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.below(5);
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

/// One message in two encodings.
#[derive(Debug, Default, Clone)]
struct Encoded {
    /// Without unknown fields.
    plain: Vec<u8>,
    /// As a Go member may have written it.
    logged: Vec<u8>,
}

impl Encoded {
    fn both(&mut self, bytes: &[u8]) {
        self.plain.extend(bytes);
        self.logged.extend(bytes);
    }
}

fn message(choices: &mut Choices, name: &str, depth: usize) -> Encoded {
    let fields = &MESSAGES[name];
    let mut numbers: Vec<u64> = fields.keys().copied().collect();
    numbers.sort_unstable();
    let mut encoded = Encoded::default();
    for _ in 0..choices.below(4) {
        if choices.below(3) == 0 {
            unknown(choices, fields, &mut encoded.logged);
        }
        if !numbers.is_empty() {
            let number = numbers[choices.below(numbers.len())];
            known(choices, number, &fields[&number], depth, &mut encoded);
        }
    }
    encoded
}

fn known(choices: &mut Choices, number: u64, field: &Field, depth: usize, encoded: &mut Encoded) {
    let mut bytes = Vec::new();
    encode_varint(number << 3 | u64::from(field.wire_type), &mut bytes);
    match &field.content {
        Content::Message(name) => {
            let inner = match depth {
                0 => Encoded::default(),
                _ => message(choices, name, depth - 1),
            };
            encoded.both(&bytes);
            length_and(&inner.plain, &mut encoded.plain);
            length_and(&inner.logged, &mut encoded.logged);
            return;
        }
        Content::Text => {
            let text = String::from_utf8_lossy(&choices.bytes()).into_owned();
            length_and(text.as_bytes(), &mut bytes);
        }
        Content::Numbers if choices.below(2) == 0 => {
            bytes.clear();
            encode_varint(number << 3 | u64::from(DELIMITED), &mut bytes);
            let mut packed = Vec::new();
            for _ in 0..choices.below(3) {
                value(choices, field.wire_type, &mut packed);
            }
            length_and(&packed, &mut bytes);
        }
        Content::Numbers | Content::Plain => value(choices, field.wire_type, &mut bytes),
    }
    encoded.both(&bytes);
}

fn value(choices: &mut Choices, wire_type: u8, bytes: &mut Vec<u8>) {
    match wire_type {
        SIXTY_FOUR_BIT => bytes.extend(choices.number().to_le_bytes()),
        THIRTY_TWO_BIT => bytes.extend((choices.number() as u32).to_le_bytes()),
        DELIMITED => length_and(&choices.bytes(), bytes),
        _ => encode_varint(choices.number(), bytes),
    }
}

fn length_and(content: &[u8], bytes: &mut Vec<u8>) {
    encode_varint(content.len() as u64, bytes);
    bytes.extend(content);
}

/// A field that Go keeps without looking at it.
fn unknown(choices: &mut Choices, fields: &Fields, bytes: &mut Vec<u8>) {
    let key = |wire_type| UNKNOWN_NUMBER << 3 | u64::from(wire_type);
    match choices.below(5) {
        0 => {
            let wire_type = [VARINT, SIXTY_FOUR_BIT, DELIMITED, THIRTY_TWO_BIT][choices.below(4)];
            encode_varint(key(wire_type), bytes);
            value(choices, wire_type, bytes);
        }
        1 => {
            // More bits than a number has.
            encode_varint(key(VARINT), bytes);
            bytes.extend([0xff; 9]);
            bytes.push(0x7f);
        }
        2 => {
            // Groups that end with another number, deeper than strict decoding goes.
            let groups = choices.below(200) as u64;
            (0..=groups).for_each(|_| encode_varint(key(START_GROUP), bytes));
            let other = (UNKNOWN_NUMBER + 1) << 3 | u64::from(END_GROUP);
            (0..=groups).for_each(|_| encode_varint(other, bytes));
        }
        3 => {
            // A number of more than 32 bits.
            encode_varint(1 << 40 | u64::from(VARINT), bytes);
            encode_varint(choices.number(), bytes);
        }
        _ => {
            // A known field with another wire type.
            let plain = fields
                .iter()
                .filter(|(_, field)| !matches!(field.content, Content::Numbers));
            if let Some((number, _)) = plain
                .filter(|(_, field)| field.wire_type != THIRTY_TWO_BIT)
                .min_by_key(|(number, _)| **number)
            {
                encode_varint(number << 3 | u64::from(THIRTY_TWO_BIT), bytes);
                bytes.extend([1, 2, 3, 4]);
            }
        }
    }
}

fn encoded() -> impl Strategy<Value = Encoded> {
    vec(any::<u8>(), 0..400).prop_map(|bytes| {
        let mut choices = Choices(bytes.into_iter());
        message(&mut choices, RAFT_REQUEST, DEPTH_MAX)
    })
}

/// One change of an encoding: bytes from `at` on are replaced.
#[derive(Debug, Clone)]
struct Edit {
    at: prop::sample::Index,
    removed: usize,
    inserted: Vec<u8>,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = (
        any::<prop::sample::Index>(),
        0..4_usize,
        vec(any::<u8>(), 0..4),
    );
    let edit = edit.prop_map(|(at, removed, inserted)| Edit {
        at,
        removed,
        inserted,
    });
    vec(edit, 1..4)
}

fn edited(mut data: Vec<u8>, edits: Vec<Edit>) -> Vec<u8> {
    for edit in edits {
        let from = edit.at.index(data.len() + 1);
        let to = (from + edit.removed).min(data.len());
        data.splice(from..to, edit.inserted);
    }
    data
}

fn strict(data: &[u8]) -> Result<InternalRaftRequest, DecodeError> {
    InternalRaftRequest::decode(data)
}

/// Decodes only what the repair leaves, even if that were not necessary.
fn repaired(data: &[u8]) -> Option<InternalRaftRequest> {
    strict(&known_fields(data, RAFT_REQUEST)?).ok()
}

/// What must hold for any bytes.
fn check(data: Vec<u8>) -> Result<(), TestCaseError> {
    let once = known_fields(&data, RAFT_REQUEST);
    if let Some(once) = once {
        let twice = known_fields(&once, RAFT_REQUEST);
        prop_assert_eq!(twice, Some(once), "a repaired message needs no repair");
    }
    let lenient = decode_raft_request(Bytes::from(data.clone()));
    match strict(&data) {
        Ok(request) => {
            prop_assert_eq!(repaired(&data), Some(request.clone()));
            prop_assert_eq!(lenient.ok(), Some(request));
        }
        Err(_) => prop_assert_eq!(lenient.ok(), repaired(&data)),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(data in vec(any::<u8>(), 0..300)) {
        check(data)?;
    }

    #[test]
    fn damaged_messages_are_decoded_or_refused(encoded in encoded(), edits in edits()) {
        check(edited(encoded.logged, edits))?;
    }

    #[test]
    fn unknown_fields_change_nothing_in_any_message(encoded in encoded()) {
        let expected = strict(&encoded.plain);
        prop_assert!(expected.is_ok(), "{:?}", expected);
        prop_assert_eq!(repaired(&encoded.plain), expected.clone().ok());
        prop_assert_eq!(decode_raft_request(Bytes::from(encoded.logged)), expected);
    }
}

/// `depth` transactions inside each other, the innermost with this content.
fn nested_transactions(depth: usize, innermost: &[u8]) -> Vec<u8> {
    // From the inside to the outside and reversed, because lengths come before contents.
    let mut reversed: Vec<u8> = innermost.iter().rev().copied().collect();
    let mut wrap = |number: u64| {
        let mut prefix = Vec::new();
        encode_varint(number << 3 | u64::from(DELIMITED), &mut prefix);
        encode_varint(reversed.len() as u64, &mut prefix);
        reversed.extend(prefix.iter().rev());
    };
    for _ in 0..depth {
        // RequestOp.request_txn, TxnRequest.success.
        wrap(4);
        wrap(2);
    }
    // InternalRaftRequest.txn.
    wrap(6);
    reversed.reverse();
    reversed
}

/// Shapes for which a decoder that calls itself would need gigabytes of stack, and one that
/// copies the content of each level would need minutes.
#[test]
fn deep_messages_take_linear_time_and_no_stack() {
    const LEVELS: usize = 200_000;
    let began = Instant::now();
    // Groups inside each other, and as many fields beside each other, of field 20004.
    let mut unknown = [0xa3, 0xe2, 0x09].repeat(LEVELS);
    unknown.extend([0xa4, 0xe2, 0x09].repeat(LEVELS));
    unknown.extend([0xa0, 0xe2, 0x09, 0x01].repeat(LEVELS));
    let logged = nested_transactions(LEVELS, &unknown);
    assert!(strict(&logged).is_err());
    let decoded = decode_raft_request(Bytes::from(logged)).map(|it| it.encode_to_vec());
    // Not compared as messages, and not printed: both may call themselves.
    assert!(decoded == Ok(nested_transactions(LEVELS, &[])));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}
