//! The `fields` format: one `"Name" : value` line per field. etcdctl has none for changes of the
//! cluster.

use std::fmt::{Display, Write};

use portunus_proto::etcdserverpb::{
    AlarmType, DeleteRangeResponse, PutResponse, RangeResponse, ResponseHeader, StatusResponse,
    TxnResponse, response_op,
};
use portunus_proto::mvccpb::KeyValue;
use portunus_proto::mvccpb::event::EventType;

use super::{Answer, auth, gate};
use crate::go::quote::quote;

pub fn render(answer: &Answer<'_>, hex: bool) -> Option<String> {
    let mut lines = Lines {
        text: String::new(),
        hex,
    };
    match answer {
        Answer::Put(response) => lines.put(response),
        Answer::Range(response) => lines.range(response),
        Answer::DeleteRange(response) => lines.delete_range(response),
        Answer::Txn(response) => lines.txn(response),
        Answer::Watch(response) => {
            lines.header(response.header.as_ref());
            for event in &response.events {
                lines.field("Type", event_type(event.r#type));
                if let Some(previous) = &event.prev_kv {
                    lines.key_value("Prev", previous);
                }
                lines.key_value("", &event.kv.clone().unwrap_or_default());
            }
        }
        Answer::LeaseGrant(response) => {
            lines.header(response.header.as_ref());
            lines.lease_id(response.id);
            lines.field("TTL", response.ttl);
        }
        Answer::LeaseRevoke(_, response) => lines.header(response.header.as_ref()),
        Answer::KeepAlive(response) => {
            lines.header(response.header.as_ref());
            lines.lease_id(response.id);
            lines.field("TTL", response.ttl);
        }
        Answer::TimeToLive { response, .. } => {
            lines.header(response.header.as_ref());
            lines.lease_id(response.id);
            lines.field("TTL", response.ttl);
            lines.field("GrantedTTL", response.granted_ttl);
            for key in &response.keys {
                lines.field("Key", quote(key));
            }
        }
        Answer::Leases(response) => {
            lines.header(response.header.as_ref());
            for lease in &response.leases {
                lines.lease_id(lease.id);
            }
        }
        Answer::Members(response) => {
            lines.header(response.header.as_ref());
            for member in &response.members {
                lines.member_id("ID", member.id);
                lines.field("Name", quote(member.name.as_bytes()));
                for url in &member.peer_urls {
                    lines.field("PeerURL", quote(url.as_bytes()));
                }
                for url in &member.client_urls {
                    lines.field("ClientURL", quote(url.as_bytes()));
                }
                lines.field("IsLearner", member.is_learner);
                lines.blank();
            }
        }
        Answer::Alarms(response) => {
            lines.header(response.header.as_ref());
            for alarm in &response.alarms {
                lines.member_id("MemberID", alarm.member_id);
                let name = AlarmType::try_from(alarm.alarm).map(|alarm| alarm.as_str_name());
                match name {
                    Ok(name) => lines.field("AlarmType", name),
                    Err(_) => lines.field("AlarmType", alarm.alarm),
                }
                lines.blank();
            }
        }
        Answer::Health(list) => {
            for health in *list {
                lines.field("Endpoint", quote(health.endpoint.as_bytes()));
                lines.field("Health", health.error.is_none());
                lines.field("Took", health.took_text());
                lines.field("Error", health.error.as_deref().unwrap_or_default());
                lines.blank();
            }
        }
        Answer::Status(list) => {
            for status in *list {
                lines.status(&status.endpoint, &status.response);
            }
        }
        Answer::HashKv(list) => {
            for hash in *list {
                lines.header(hash.response.header.as_ref());
                lines.field("Endpoint", quote(hash.endpoint.as_bytes()));
                lines.field("Hash", hash.response.hash);
                lines.field("HashRevision", hash.response.hash_revision);
                lines.blank();
            }
        }
        Answer::Gate(answer) => gate::fields::render(&mut lines, *answer),
        Answer::Auth(answer) => auth::fields(&mut lines, *answer)?,
        Answer::Snapshot(status) => {
            lines.field("Hash", status.hash);
            lines.field("Revision", status.revision);
            lines.field("Keys", status.total_keys);
            lines.field("Size", status.total_bytes);
            lines.field("Version", &status.version);
        }
        Answer::FileHash(hash) => {
            lines.field("Hash", hash.hash);
            lines.field("Hash revision", hash.revision);
            lines.field("Compact revision", hash.compact_revision);
        }
        Answer::Migrated(_)
        | Answer::MemberAdd { .. }
        | Answer::MemberRemove(..)
        | Answer::MemberUpdate(..)
        | Answer::MemberPromote(..)
        | Answer::MoveLeader { .. }
        | Answer::Downgrade { .. }
        | Answer::DowngradeStatus(_) => return None,
    }
    Some(lines.text)
}

/// The name of an event's type; a number if it is newer than we are.
pub fn event_type(number: i32) -> String {
    match EventType::try_from(number) {
        Ok(kind) => kind.as_str_name().to_owned(),
        Err(_) => number.to_string(),
    }
}

pub(super) struct Lines {
    text: String,
    hex: bool,
}

impl Lines {
    pub(super) fn field(&mut self, name: &str, value: impl Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "\"{name}\" : {value}");
    }

    /// Several values in one line.
    pub(super) fn list(&mut self, name: &str, values: impl Iterator<Item = String>) {
        let values: String = values.map(|value| format!(" {value}")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "\"{name}\" :{values}");
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    pub(super) fn member_id(&mut self, name: &str, id: u64) {
        if self.hex {
            self.field(name, format_args!("{id:x}"));
        } else {
            self.field(name, id);
        }
    }

    fn lease_id(&mut self, id: i64) {
        if self.hex {
            self.field("ID", format_args!("{id:016x}"));
        } else {
            self.field("ID", id);
        }
    }

    pub(super) fn header(&mut self, header: Option<&ResponseHeader>) {
        let header = header.cloned().unwrap_or_default();
        self.member_id("ClusterID", header.cluster_id);
        self.member_id("MemberID", header.member_id);
        if header.revision > 0 {
            self.field("Revision", header.revision);
        }
        self.field("RaftTerm", header.raft_term);
    }

    fn key_value(&mut self, prefix: &str, kv: &KeyValue) {
        self.field(&format!("{prefix}Key"), quote(&kv.key));
        self.field(&format!("{prefix}CreateRevision"), kv.create_revision);
        self.field(&format!("{prefix}ModRevision"), kv.mod_revision);
        self.field(&format!("{prefix}Version"), kv.version);
        self.field(&format!("{prefix}Value"), quote(&kv.value));
        let lease = format!("{prefix}Lease");
        if self.hex {
            self.field(&lease, format_args!("{:016x}", kv.lease));
        } else {
            self.field(&lease, kv.lease);
        }
    }

    fn put(&mut self, response: &PutResponse) {
        self.header(response.header.as_ref());
        if let Some(previous) = &response.prev_kv {
            self.key_value("Prev", previous);
        }
    }

    fn range(&mut self, response: &RangeResponse) {
        self.header(response.header.as_ref());
        for kv in &response.kvs {
            self.key_value("", kv);
        }
        self.field("More", response.more);
        self.field("Count", response.count);
    }

    fn delete_range(&mut self, response: &DeleteRangeResponse) {
        self.header(response.header.as_ref());
        self.field("Deleted", response.deleted);
        for previous in &response.prev_kvs {
            self.key_value("Prev", previous);
        }
    }

    fn txn(&mut self, response: &TxnResponse) {
        self.header(response.header.as_ref());
        self.field("Succeeded", response.succeeded);
        for operation in &response.responses {
            match &operation.response {
                Some(response_op::Response::ResponseDeleteRange(inner)) => self.delete_range(inner),
                Some(response_op::Response::ResponsePut(inner)) => self.put(inner),
                Some(response_op::Response::ResponseRange(inner)) => self.range(inner),
                // etcdctl calls it unknown, too: its transactions have no nested ones.
                other => self.field("Unknown", quote(format!("{other:?}").as_bytes())),
            }
        }
    }

    fn status(&mut self, endpoint: &str, status: &StatusResponse) {
        let downgrade = status.downgrade_info.clone().unwrap_or_default();
        self.header(status.header.as_ref());
        self.field("Version", quote(status.version.as_bytes()));
        self.field("StorageVersion", quote(status.storage_version.as_bytes()));
        self.field("DBSize", status.db_size);
        self.field("DBSizeInUse", status.db_size_in_use);
        self.field("DBSizeQuota", status.db_size_quota);
        self.field("Leader", status.leader);
        self.field("IsLearner", status.is_learner);
        self.field("RaftIndex", status.raft_index);
        self.field("RaftTerm", status.raft_term);
        self.field("RaftAppliedIndex", status.raft_applied_index);
        self.field("Errors", format_args!("[{}]", status.errors.join(" ")));
        self.field("Endpoint", quote(endpoint.as_bytes()));
        let target = quote(downgrade.target_version.as_bytes());
        self.field("DowngradeTargetVersion", target);
        self.field("DowngradeEnabled", downgrade.enabled);
        self.blank();
    }
}
