//! The written data of a member: its log, and its records in a snapshot.

use std::collections::BTreeMap;
use std::path::Path;

use portunus_proto::etcdserverpb::{InternalRaftRequest, SnapshotRequest};
use portunus_proto::raftpb::EntryType;
use portunus_wal::{Record, read_records};
use prost::Message;
use tokio_stream::StreamExt;

use super::Clients;

/// Returns the keys and values of a bucket of the backend.
pub async fn bucket(clients: &mut Clients, name: &str) -> BTreeMap<String, Vec<u8>> {
    let pieces = clients.maintenance.snapshot(SnapshotRequest {}).await;
    let mut pieces = pieces.unwrap().into_inner();
    let mut file = Vec::new();
    while let Some(piece) = pieces.next().await {
        file.extend_from_slice(&piece.unwrap().blob);
    }
    let reader = portunus_bolt::Reader::from_bytes(file.into()).unwrap();
    let bucket = reader.bucket(name.as_bytes()).unwrap().unwrap();
    let pairs = bucket.iter().map(Result::unwrap);
    pairs
        .map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), value.to_vec()))
        .collect()
}

/// Returns the requests in the log of a member.
pub fn logged_requests(data_dir: &Path) -> Vec<InternalRaftRequest> {
    let records = read_records(&data_dir.join("member").join("wal")).unwrap();
    let mut requests = Vec::new();
    for located in records {
        if let Record::Entry(entry) = located.unwrap().record
            && entry.r#type() == EntryType::EntryNormal
            && !entry.data.is_empty()
        {
            requests.push(InternalRaftRequest::decode(entry.data).unwrap());
        }
    }
    requests
}
