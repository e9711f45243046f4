//! The `simple` format, for people. Keys and values are printed as raw bytes.

use std::io::Write;

use portunus_datadir::migrate::Migrated;
use portunus_proto::etcdserverpb::{
    AlarmMember, AlarmType, DeleteRangeResponse, LeaseTimeToLiveResponse, MemberAddResponse,
    PutResponse, RangeResponse, ResponseHeader, TxnResponse, response_op,
};
use portunus_proto::mvccpb::KeyValue;

use super::fields::event_type;
use super::{Answer, Printed, Printer, auth, gate, table};
use crate::go::quote::quote;

/// Appends formatted text; writing to memory cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{
        let _ = writeln!($out, $($format)*);
    }};
}

pub fn render(answer: &Answer<'_>, printer: &Printer) -> Printed {
    let mut printed = Printed::default();
    let out = &mut printed.out;
    match answer {
        Answer::Put(response) => put(out, response, printer),
        Answer::Range(response) => range(out, response, printer),
        Answer::DeleteRange(response) => delete_range(out, response, printer),
        Answer::Txn(response) => txn(out, response, printer),
        Answer::Watch(response) => {
            for event in &response.events {
                line!(out, "{}", event_type(event.r#type));
                for kv in event.prev_kv.iter().chain(&event.kv) {
                    key_value(out, kv, printer);
                }
            }
        }
        Answer::LeaseGrant(response) => {
            line!(
                out,
                "lease {:016x} granted with TTL({}s)",
                response.id,
                response.ttl
            );
        }
        Answer::LeaseRevoke(id, _) => line!(out, "lease {id:016x} revoked"),
        Answer::KeepAlive(response) => {
            line!(
                out,
                "lease {:016x} keepalived with TTL({})",
                response.id,
                response.ttl
            );
        }
        Answer::TimeToLive { response, keys } => time_to_live(out, response, *keys),
        Answer::Leases(response) => {
            line!(out, "found {} leases", response.leases.len());
            for lease in &response.leases {
                line!(out, "{:016x}", lease.id);
            }
        }
        Answer::MemberAdd {
            response,
            name,
            peer_urls,
        } => member_add(out, response, name, peer_urls),
        Answer::MemberRemove(id, response) => {
            let cluster_id = cluster_id(response.header.as_ref());
            line!(out, "Member {id:16x} removed from cluster {cluster_id:16x}");
        }
        Answer::MemberUpdate(id, response) => {
            let cluster_id = cluster_id(response.header.as_ref());
            line!(out, "Member {id:16x} updated in cluster {cluster_id:16x}");
        }
        Answer::MemberPromote(id, response) => {
            let cluster_id = cluster_id(response.header.as_ref());
            line!(out, "Member {id:16x} promoted in cluster {cluster_id:16x}");
        }
        Answer::MoveLeader { from, to, .. } => {
            line!(out, "Leadership transferred from {from:x} to {to:x}");
        }
        Answer::Downgrade { did, response } => {
            let version = &response.version;
            line!(out, "Downgrade {did} success, cluster version {version}");
        }
        Answer::DowngradeStatus(state) => line!(out, "{}: {state}", state.text()),
        Answer::Alarms(response) => {
            for member in &response.alarms {
                line!(out, "{}", alarm(member));
            }
        }
        Answer::Health(list) => {
            for health in *list {
                let endpoint = &health.endpoint;
                match &health.error {
                    None => {
                        let took = health.took_text();
                        line!(
                            printed.out,
                            "{endpoint} is healthy: successfully committed proposal: took = {took}"
                        );
                    }
                    Some(error) => line!(
                        printed.err,
                        "{endpoint} is unhealthy: failed to commit proposal: {error}"
                    ),
                }
            }
        }
        Answer::Gate(answer) => gate::simple::render(out, *answer),
        Answer::Auth(answer) => auth::simple(out, *answer),
        Answer::Migrated(done) => migrated(out, done),
        Answer::Members(_)
        | Answer::Status(_)
        | Answer::HashKv(_)
        | Answer::Snapshot(_)
        | Answer::FileHash(_) => {
            let table = table::contents(answer).unwrap_or_default();
            for row in table.rows {
                line!(out, "{}", row.join(", "));
            }
        }
    }
    printed
}

fn migrated(out: &mut Vec<u8>, done: &Migrated) {
    if let Some(refusal) = &done.overruled {
        line!(out, "overruled: {refusal}");
    }
    match done.before == done.after {
        true => line!(out, "storage version {} is up to date", done.after),
        false => line!(out, "storage version {} -> {}", done.before, done.after),
    }
    if let Some(version) = done.cluster_version {
        line!(out, "cluster version {version}");
    }
    if !done.removed_features.is_empty() {
        line!(out, "removed: {}", done.removed_features.join(", "));
    }
}

fn put(out: &mut Vec<u8>, response: &PutResponse, printer: &Printer) {
    line!(out, "OK");
    if let Some(previous) = &response.prev_kv {
        key_value(out, previous, printer);
    }
}

fn range(out: &mut Vec<u8>, response: &RangeResponse, printer: &Printer) {
    for kv in &response.kvs {
        key_value(out, kv, printer);
    }
}

fn delete_range(out: &mut Vec<u8>, response: &DeleteRangeResponse, printer: &Printer) {
    line!(out, "{}", response.deleted);
    for previous in &response.prev_kvs {
        key_value(out, previous, printer);
    }
}

fn txn(out: &mut Vec<u8>, response: &TxnResponse, printer: &Printer) {
    line!(
        out,
        "{}",
        if response.succeeded {
            "SUCCESS"
        } else {
            "FAILURE"
        }
    );
    for operation in &response.responses {
        line!(out, "");
        match &operation.response {
            Some(response_op::Response::ResponseDeleteRange(inner)) => {
                delete_range(out, inner, printer);
            }
            Some(response_op::Response::ResponsePut(inner)) => put(out, inner, printer),
            Some(response_op::Response::ResponseRange(inner)) => range(out, inner, printer),
            // No transaction this program can write has nested ones.
            other => line!(out, "unexpected response {other:?}"),
        }
    }
}

/// Ends with the settings the new member starts with.
fn member_add(out: &mut Vec<u8>, response: &MemberAddResponse, name: &str, peer_urls: &str) {
    let added = response.member.clone().unwrap_or_default();
    let as_what = if added.is_learner { "as learner " } else { "" };
    let cluster_id = cluster_id(response.header.as_ref());
    let id = added.id;
    line!(
        out,
        "Member {id:16x} added {as_what}to cluster {cluster_id:16x}\n"
    );
    let mut initial_cluster = Vec::new();
    for member in &response.members {
        // The new member has not published its name yet.
        let name = if member.id == id { name } else { &member.name };
        let urls = member.peer_urls.iter();
        initial_cluster.extend(urls.map(|url| format!("{name}={url}")));
    }
    let quoted = |text: &str| quote(text.as_bytes());
    line!(out, "ETCD_NAME={}", quoted(name));
    let initial_cluster = quoted(&initial_cluster.join(","));
    line!(out, "ETCD_INITIAL_CLUSTER={initial_cluster}");
    line!(
        out,
        "ETCD_INITIAL_ADVERTISE_PEER_URLS={}",
        quoted(peer_urls)
    );
    line!(out, "ETCD_INITIAL_CLUSTER_STATE=\"existing\"");
}

fn cluster_id(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, |header| header.cluster_id)
}

fn key_value(out: &mut Vec<u8>, kv: &KeyValue, printer: &Printer) {
    let mut bytes = |bytes: &[u8]| {
        if printer.hex {
            for byte in bytes {
                out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            }
        } else {
            out.extend_from_slice(bytes);
        }
        out.push(b'\n');
    };
    if !printer.value_only {
        bytes(&kv.key);
    }
    bytes(&kv.value);
}

fn time_to_live(out: &mut Vec<u8>, response: &LeaseTimeToLiveResponse, with_keys: bool) {
    let (id, ttl, granted) = (response.id, response.ttl, response.granted_ttl);
    if granted == 0 && ttl == -1 {
        return line!(out, "lease {id:016x} already expired");
    }
    let start = format!("lease {id:016x} granted with TTL({granted}s), remaining({ttl}s)");
    out.extend_from_slice(start.as_bytes());
    if with_keys {
        out.extend_from_slice(b", attached keys([");
        out.extend_from_slice(&response.keys.join(&b' '));
        out.extend_from_slice(b"])");
    }
    out.push(b'\n');
}

/// A message as Go prints it.
fn alarm(member: &AlarmMember) -> String {
    let mut parts = Vec::new();
    if member.member_id != 0 {
        parts.push(format!("memberID:{}", member.member_id));
    }
    match AlarmType::try_from(member.alarm) {
        Ok(AlarmType::None) => {}
        Ok(kind) => parts.push(format!("alarm:{}", kind.as_str_name())),
        Err(_) => parts.push(format!("alarm:{}", member.alarm)),
    }
    parts.join(" ")
}
