//! Handmade snapshots of a leader.

use portunus_bolt::{BulkOptions, FileWriter, Planner, StreamWriter};
use portunus_mvcc::Revision;
use portunus_mvcc::revision::RecordKey;
use portunus_proto::authpb::User;
use portunus_proto::mvccpb::KeyValue;
use portunus_proto::raftpb::Message;
use prost::Message as _;

/// The content of a leader's snapshot.
pub struct Database {
    /// Its applied index.
    pub index: u64,
    /// The number of keys; the more, the longer the installation takes.
    pub records: usize,
    /// The number of records that cannot be decoded, after the others.
    pub damaged_records: usize,
    /// Whether one of the users cannot be decoded.
    pub has_damaged_user: bool,
    /// Whether it is in the order in which Portunus sends it; else in that of a bbolt file.
    pub in_order: bool,
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

impl Database {
    /// Returns a snapshot with one key, applied to `index`.
    pub fn at(index: u64) -> Database {
        Database {
            index,
            records: 1,
            damaged_records: 0,
            has_damaged_user: false,
            in_order: true,
        }
    }

    fn records(&self) -> Entries {
        let key = |main: usize| {
            let main = i64::try_from(main).unwrap();
            RecordKey::put(Revision { main, sub: 0 }).encode().to_vec()
        };
        let first_damaged = self.records + 2;
        let sound = (2..first_damaged).map(|main| {
            let record = KeyValue {
                key: format!("key/{main}").into(),
                create_revision: main as i64,
                mod_revision: main as i64,
                version: 1,
                value: "value".into(),
                ..KeyValue::default()
            };
            (key(main), record.encode_to_vec())
        });
        // A truncated field.
        let damaged = (first_damaged..first_damaged + self.damaged_records)
            .map(|main| (key(main), vec![0x0a, 9]));
        sound.chain(damaged).collect()
    }

    /// Returns the bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        // To make it longer than a few pages.
        let users = (0..2000_u32).map(|number| {
            let name = format!("user{number:08}");
            let user = User {
                name: name.clone().into(),
                password: vec![7; 80].into(),
                ..User::default()
            };
            let is_damaged = self.has_damaged_user && number == 1000;
            let record = match is_damaged {
                true => vec![0x0a, 9],
                false => user.encode_to_vec(),
            };
            (name.into_bytes(), record)
        });
        let meta = vec![
            (
                b"consistent_index".to_vec(),
                self.index.to_be_bytes().to_vec(),
            ),
            (b"term".to_vec(), 5_u64.to_be_bytes().to_vec()),
        ];
        let buckets: [(&str, Entries); 3] = [
            ("authUsers", users.collect()),
            ("key", self.records()),
            ("meta", meta),
        ];
        match self.in_order {
            true => in_order(&buckets),
            false => as_file(&buckets),
        }
    }
}

fn in_order(buckets: &[(&str, Entries)]) -> Vec<u8> {
    let mut planner = Planner::new(BulkOptions::for_stream_reader());
    for (name, entries) in buckets {
        planner.bucket(name.as_bytes()).unwrap();
        for (key, value) in entries {
            planner.entry(key, value.len() as u64).unwrap();
        }
    }
    let mut writer = StreamWriter::new(planner.finish().unwrap(), Vec::new()).unwrap();
    for (name, entries) in buckets {
        writer.bucket(name.as_bytes()).unwrap();
        for (key, value) in entries {
            writer.entry(key, value).unwrap();
        }
    }
    writer.finish().unwrap()
}

fn as_file(buckets: &[(&str, Entries)]) -> Vec<u8> {
    let file = std::io::Cursor::new(Vec::new());
    let mut writer = FileWriter::new(BulkOptions::default(), file).unwrap();
    for (name, entries) in buckets {
        writer.bucket(name.as_bytes()).unwrap();
        for (key, value) in entries {
            writer.entry(key, value).unwrap();
        }
    }
    writer.finish().unwrap().0.into_inner()
}

/// Encodes a message as it precedes its database.
pub fn envelope(message: &Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&(bytes.len() as u64).to_be_bytes()[..], &bytes].concat()
}
