//! The `protobuf` format: the response message, encoded. Answers that etcdctl builds itself, and
//! some that its client library rewraps, have no such form; of those about leases only the
//! header is left.

use portunus_proto::etcdserverpb::ResponseHeader;
use prost::Message;

use super::{Answer, GateAnswer, auth};

pub fn render(answer: &Answer<'_>) -> Option<Vec<u8>> {
    match answer {
        Answer::Put(response) => Some(response.encode_to_vec()),
        Answer::Range(response) => Some(response.encode_to_vec()),
        Answer::DeleteRange(response) => Some(response.encode_to_vec()),
        Answer::Txn(response) => Some(response.encode_to_vec()),
        Answer::Members(response) => Some(response.encode_to_vec()),
        Answer::MemberAdd { response, .. } => Some(response.encode_to_vec()),
        Answer::MemberRemove(_, response) => Some(response.encode_to_vec()),
        Answer::MemberUpdate(_, response) => Some(response.encode_to_vec()),
        Answer::MemberPromote(_, response) => Some(response.encode_to_vec()),
        Answer::MoveLeader { response, .. } => Some(response.encode_to_vec()),
        Answer::Downgrade { response, .. } => Some(response.encode_to_vec()),
        Answer::Alarms(response) => Some(response.encode_to_vec()),
        Answer::Gate(GateAnswer::Enabled(response)) => Some(response.encode_to_vec()),
        Answer::Gate(GateAnswer::History { response, .. }) => Some(response.encode_to_vec()),
        Answer::Gate(GateAnswer::Event { response, .. }) => Some(response.encode_to_vec()),
        Answer::Auth(answer) => Some(auth::protobuf(*answer)),
        Answer::Watch(response) => {
            // What the client library does not pass on.
            let mut passed_on = (*response).clone();
            passed_on.watch_id = 0;
            passed_on.cancel_reason.clear();
            passed_on.fragment = false;
            Some(passed_on.encode_to_vec())
        }
        Answer::LeaseGrant(response) => Some(header(response.header.as_ref())),
        Answer::KeepAlive(response) => Some(header(response.header.as_ref())),
        Answer::TimeToLive { response, .. } => Some(header(response.header.as_ref())),
        Answer::Leases(response) => Some(header(response.header.as_ref())),
        _ => None,
    }
}

fn header(header: Option<&ResponseHeader>) -> Vec<u8> {
    header.map(Message::encode_to_vec).unwrap_or_default()
}
