//! The `json` format. etcdctl prints Go's structures, and those of its client library where they
//! differ from the messages: leases and watches flatten the header or capitalise names.

use portunus_proto::etcdserverpb::{
    DeleteRangeResponse, Member, MemberAddResponse, PutResponse, RangeResponse, ResponseHeader,
    ResponseOp, StatusResponse, TxnResponse, WatchResponse, response_op,
};
use portunus_proto::mvccpb::{Event, KeyValue};

use super::{Answer, auth, gate};
use crate::go::json::{Object, array, array_or_null, base64, string};

pub fn render(answer: &Answer<'_>, hex: bool) -> String {
    match answer {
        Answer::Put(response) => put(response),
        Answer::Range(response) => range(response),
        Answer::DeleteRange(response) => delete_range(response),
        Answer::Txn(response) => txn(response),
        Answer::Watch(response) => watch(response),
        Answer::LeaseGrant(response) => header_fields(response.header.as_ref())
            .raw("ID", response.id)
            .raw("TTL", response.ttl)
            .text("Error", &response.error)
            .end(),
        Answer::LeaseRevoke(_, response) => with_header(response.header.as_ref()).end(),
        Answer::KeepAlive(response) => header_fields(response.header.as_ref())
            .raw("ID", response.id)
            .raw("TTL", response.ttl)
            .end(),
        Answer::TimeToLive { response, .. } => header_fields(response.header.as_ref())
            .raw("id", response.id)
            .raw("ttl", response.ttl)
            .raw("granted-ttl", response.granted_ttl)
            .raw(
                "keys",
                array_or_null(response.keys.iter().map(|key| base64(key))),
            )
            .end(),
        Answer::Leases(response) => {
            let leases = response.leases.iter();
            let leases = leases.map(|lease| Object::default().raw("id", lease.id).end());
            header_fields(response.header.as_ref())
                .raw("leases", array(leases))
                .end()
        }
        Answer::Members(response) => members(response.header.as_ref(), &response.members, hex),
        Answer::MemberAdd { response, .. } => member_add(response, hex),
        Answer::MemberRemove(_, response) => {
            members(response.header.as_ref(), &response.members, hex)
        }
        Answer::MemberUpdate(_, response) => {
            members(response.header.as_ref(), &response.members, hex)
        }
        Answer::MemberPromote(_, response) => {
            members(response.header.as_ref(), &response.members, hex)
        }
        Answer::MoveLeader { response, .. } => with_header(response.header.as_ref()).end(),
        Answer::Downgrade { response, .. } => with_header(response.header.as_ref())
            .text_omit_empty("version", &response.version)
            .end(),
        Answer::DowngradeStatus(state) => Object::default()
            .text_omit_empty("state", state.text())
            .text_omit_empty("message", &state.to_string())
            .end(),
        Answer::Alarms(response) => {
            let alarms = response.alarms.iter().map(|alarm| {
                Object::default()
                    .number_omit_empty("memberID", alarm.member_id)
                    .number_omit_empty("alarm", alarm.alarm)
                    .end()
            });
            with_header(response.header.as_ref())
                .list_omit_empty("alarms", alarms)
                .end()
        }
        Answer::Health(list) => array_or_null(list.iter().map(|health| {
            Object::default()
                .text("endpoint", &health.endpoint)
                .raw("health", health.error.is_none())
                .text("took", &health.took_text())
                .text_omit_empty("error", health.error.as_deref().unwrap_or_default())
                .end()
        })),
        Answer::Status(list) => array_or_null(list.iter().map(|status| {
            Object::default()
                .text("Endpoint", &status.endpoint)
                .raw("Status", member_status(&status.response))
                .end()
        })),
        Answer::HashKv(list) => array_or_null(list.iter().map(|hash| {
            let response = &hash.response;
            let inner = with_header(response.header.as_ref())
                .number_omit_empty("hash", response.hash)
                .number_omit_empty("compact_revision", response.compact_revision)
                .number_omit_empty("hash_revision", response.hash_revision)
                .end();
            Object::default()
                .text("Endpoint", &hash.endpoint)
                .raw("HashKV", inner)
                .end()
        })),
        Answer::Gate(answer) => gate::json::render(*answer, hex),
        Answer::Auth(answer) => auth::json(*answer),
        Answer::Snapshot(status) => Object::default()
            .raw("hash", status.hash)
            .raw("revision", status.revision)
            .raw("totalKey", status.total_keys)
            .raw("totalSize", status.total_bytes)
            .text("version", &status.version)
            .end(),
        Answer::FileHash(hash) => Object::default()
            .raw("hash", hash.hash)
            .raw("hashRevision", hash.revision)
            .raw("compactRevision", hash.compact_revision)
            .end(),
        Answer::Migrated(done) => {
            let cluster = done.cluster_version.map(|it| it.to_string());
            let removed = done.removed_features.iter().map(|name| string(name));
            Object::default()
                .text("storageVersionBefore", &done.before.to_string())
                .text("storageVersion", &done.after.to_string())
                .text_omit_empty("clusterVersion", &cluster.unwrap_or_default())
                .raw("removedFeatures", array(removed))
                .text_omit_empty("overruled", done.overruled.as_deref().unwrap_or_default())
                .end()
        }
    }
}

fn header_fields(header: Option<&ResponseHeader>) -> Object {
    let Some(header) = header else {
        return Object::default();
    };
    Object::default()
        .number_omit_empty("cluster_id", header.cluster_id)
        .number_omit_empty("member_id", header.member_id)
        .number_omit_empty("revision", header.revision)
        .number_omit_empty("raft_term", header.raft_term)
}

pub(super) fn with_header(header: Option<&ResponseHeader>) -> Object {
    let header = header.map(|header| header_fields(Some(header)).end());
    Object::default().raw_omit_empty("header", header)
}

fn hex_header(header: Option<&ResponseHeader>) -> String {
    let Some(header) = header else {
        return "null".to_owned();
    };
    Object::default()
        .text("cluster_id", &format!("{:x}", header.cluster_id))
        .text("member_id", &format!("{:x}", header.member_id))
        .number_omit_empty("revision", header.revision)
        .number_omit_empty("raft_term", header.raft_term)
        .end()
}

fn key_value(kv: &KeyValue) -> String {
    Object::default()
        .bytes_omit_empty("key", &kv.key)
        .number_omit_empty("create_revision", kv.create_revision)
        .number_omit_empty("mod_revision", kv.mod_revision)
        .number_omit_empty("version", kv.version)
        .bytes_omit_empty("value", &kv.value)
        .number_omit_empty("lease", kv.lease)
        .end()
}

fn put(response: &PutResponse) -> String {
    with_header(response.header.as_ref())
        .raw_omit_empty("prev_kv", response.prev_kv.as_ref().map(key_value))
        .end()
}

fn range(response: &RangeResponse) -> String {
    with_header(response.header.as_ref())
        .list_omit_empty("kvs", response.kvs.iter().map(key_value))
        .bool_omit_empty("more", response.more)
        .number_omit_empty("count", response.count)
        .end()
}

fn delete_range(response: &DeleteRangeResponse) -> String {
    with_header(response.header.as_ref())
        .number_omit_empty("deleted", response.deleted)
        .list_omit_empty("prev_kvs", response.prev_kvs.iter().map(key_value))
        .end()
}

fn txn(response: &TxnResponse) -> String {
    with_header(response.header.as_ref())
        .bool_omit_empty("succeeded", response.succeeded)
        .list_omit_empty("responses", response.responses.iter().map(operation))
        .end()
}

fn operation(response: &ResponseOp) -> String {
    let empty = Object::default();
    let inner = match &response.response {
        Some(response_op::Response::ResponseRange(inner)) => {
            empty.raw("response_range", range(inner))
        }
        Some(response_op::Response::ResponsePut(inner)) => empty.raw("response_put", put(inner)),
        Some(response_op::Response::ResponseDeleteRange(inner)) => {
            empty.raw("response_delete_range", delete_range(inner))
        }
        Some(response_op::Response::ResponseTxn(inner)) => empty.raw("response_txn", txn(inner)),
        None => empty,
    };
    Object::default().raw("Response", inner.end()).end()
}

fn watch(response: &WatchResponse) -> String {
    Object::default()
        .raw("Header", header_fields(response.header.as_ref()).end())
        .raw("Events", array_or_null(response.events.iter().map(event)))
        .raw("CompactRevision", response.compact_revision)
        .raw("Canceled", response.canceled)
        .raw("Created", response.created)
        .text("CancelReason", &response.cancel_reason)
        .end()
}

fn event(event: &Event) -> String {
    Object::default()
        .number_omit_empty("type", event.r#type)
        .raw_omit_empty("kv", event.kv.as_ref().map(key_value))
        .raw_omit_empty("prev_kv", event.prev_kv.as_ref().map(key_value))
        .end()
}

fn texts(list: &[String]) -> impl Iterator<Item = String> + '_ {
    list.iter().map(|text| crate::go::json::string(text))
}

fn members(header: Option<&ResponseHeader>, list: &[Member], hex: bool) -> String {
    if hex {
        return Object::default()
            .raw("header", hex_header(header))
            .raw("members", array(list.iter().map(hex_member)))
            .end();
    }
    with_header(header)
        .list_omit_empty("members", list.iter().map(member))
        .end()
}

fn member_add(response: &MemberAddResponse, hex: bool) -> String {
    let (header, added) = (response.header.as_ref(), response.member.as_ref());
    let everybody = response.members.iter();
    if hex {
        let added = added.map_or("null".to_owned(), hex_member);
        return Object::default()
            .raw("header", hex_header(header))
            .raw("member", added)
            .raw("members", array(everybody.map(hex_member)))
            .end();
    }
    with_header(header)
        .raw_omit_empty("member", added.map(member))
        .list_omit_empty("members", everybody.map(member))
        .end()
}

fn member(member: &Member) -> String {
    member_fields(Object::default().number_omit_empty("ID", member.id), member)
}

fn hex_member(member: &Member) -> String {
    let id = format!("{:x}", member.id);
    member_fields(Object::default().text("ID", &id), member)
}

fn member_fields(object: Object, member: &Member) -> String {
    object
        .text_omit_empty("name", &member.name)
        .list_omit_empty("peerURLs", texts(&member.peer_urls))
        .list_omit_empty("clientURLs", texts(&member.client_urls))
        .bool_omit_empty("isLearner", member.is_learner)
        .end()
}

fn member_status(status: &StatusResponse) -> String {
    let downgrade = status.downgrade_info.as_ref().map(|info| {
        Object::default()
            .bool_omit_empty("enabled", info.enabled)
            .text_omit_empty("targetVersion", &info.target_version)
            .end()
    });
    with_header(status.header.as_ref())
        .text_omit_empty("version", &status.version)
        .number_omit_empty("dbSize", status.db_size)
        .number_omit_empty("leader", status.leader)
        .number_omit_empty("raftIndex", status.raft_index)
        .number_omit_empty("raftTerm", status.raft_term)
        .number_omit_empty("raftAppliedIndex", status.raft_applied_index)
        .list_omit_empty("errors", texts(&status.errors))
        .number_omit_empty("dbSizeInUse", status.db_size_in_use)
        .bool_omit_empty("isLearner", status.is_learner)
        .text_omit_empty("storageVersion", &status.storage_version)
        .number_omit_empty("dbSizeQuota", status.db_size_quota)
        .raw_omit_empty("downgradeInfo", downgrade)
        .end()
}
