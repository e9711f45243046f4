//! The status of feature gates over plain HTTP.
//!
//! `GET /featuregate` serves operators and scripts; `POST /v3/maintenance/featuregate` is the
//! RPC as JSON, with the field names of etcd's gateway.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_proto::etcdserverpb::{
    Feature, FeatureGateDetail, FeatureGateStatusRequest, FeatureGateStatusResponse,
    FeatureGateVote, ResponseHeader,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::{Shared, parameters};
use crate::grpc::Api;
use crate::grpc::access::Rpc;
use crate::member::Member;

super::endpoints! {
    /// Feature gates, on the client port.
    pub const GATES, pub(super) fn router;
    get "/featuregate" => read_one_or_all, "whether one feature is on (`?feature=NAME`), or all of them; `?isServerFeature=true`";
    post "/v3/maintenance/featuregate" => status, "`Maintenance.FeatureGateStatus` as JSON";
}

/// The RPC's request as JSON. Both spellings of a name are accepted, as in protobuf's JSON
/// mapping.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusBody {
    #[serde(rename = "isServerFeature", alias = "is_server_feature")]
    is_server_feature: bool,
    features: Vec<String>,
    #[serde(rename = "allKnown", alias = "all_known")]
    all_known: bool,
    serializable: bool,
}

async fn ask(
    member: Arc<Member>,
    (headers, extensions): (HeaderMap, Extensions),
    request: FeatureGateStatusRequest,
) -> Result<FeatureGateStatusResponse, Response> {
    if member.process.config.version.emulation() < CLUSTER_PARAMS_SINCE {
        return Err(super::not_found());
    }
    let api = Api::new(member);
    let metadata = MetadataMap::from_headers(headers);
    let permit = api.authorize(Rpc::FeatureGateStatus, &metadata, &extensions);
    permit.await.map_err(|status| failure(&status))?;
    let answer = api.gate_status(request).await;
    answer.map_err(|status| failure(&status))
}

/// Returns `true` or `false` for one name; without a name an object with all of them.
async fn read_one_or_all(
    State(member): Shared,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    extensions: Extensions,
) -> Response {
    let one = |name: &str| parameters(query.as_deref(), name).into_iter().next();
    let is_server_feature = match one("isServerFeature").as_deref() {
        None | Some("false") => false,
        Some("true" | "") => true,
        Some(other) => {
            let text = format!("isServerFeature is {other:?}: write true or false");
            return failure(&Status::new(Code::InvalidArgument, text));
        }
    };
    let name = one("feature");
    let request = FeatureGateStatusRequest {
        is_server_feature,
        features: name.clone().into_iter().collect(),
        all_known: name.is_none(),
        serializable: false,
    };
    let response = match ask(member, (headers, extensions), request).await {
        Ok(response) => response,
        Err(failure) => return failure,
    };
    let body = match name {
        Some(_) => Value::Bool(response.features.iter().any(|feature| feature.enabled)),
        None => Value::Object(
            response
                .details
                .into_iter()
                .map(|detail| (detail.name, Value::Bool(detail.enabled)))
                .collect(),
        ),
    };
    json_answer(StatusCode::OK, &body)
}

async fn status(
    State(member): Shared,
    headers: HeaderMap,
    extensions: Extensions,
    body: Bytes,
) -> Response {
    let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
    let body: StatusBody = match serde_json::from_slice(text) {
        Ok(body) => body,
        Err(error) => {
            let status = Status::new(Code::InvalidArgument, error.to_string());
            return failure(&status);
        }
    };
    let request = FeatureGateStatusRequest {
        is_server_feature: body.is_server_feature,
        features: body.features,
        all_known: body.all_known,
        serializable: body.serializable,
    };
    match ask(member, (headers, extensions), request).await {
        Ok(response) => json_answer(StatusCode::OK, &status_json(response)),
        Err(failure) => failure,
    }
}

/// Encodes as etcd's gateway does: 64-bit numbers as strings, zero values omitted.
fn status_json(response: FeatureGateStatusResponse) -> Value {
    let mut object = Map::new();
    let header = response.header.unwrap_or_default();
    object.insert("header".to_owned(), header_json(&header));
    put(&mut object, "isServerFeature", response.is_server_feature);
    let features: Vec<Value> = response.features.iter().map(feature_json).collect();
    if !features.is_empty() {
        object.insert("features".to_owned(), features.into());
    }
    let details: Vec<Value> = response.details.iter().map(detail_json).collect();
    if !details.is_empty() {
        object.insert("details".to_owned(), details.into());
    }
    if !response.min_compatibility_version.is_empty() {
        let version = response.min_compatibility_version.into();
        object.insert("minCompatibilityVersion".to_owned(), version);
    }
    Value::Object(object)
}

fn put(object: &mut Map<String, Value>, name: &str, value: bool) {
    if value {
        object.insert(name.to_owned(), Value::Bool(true));
    }
}

fn header_json(header: &ResponseHeader) -> Value {
    json!({
        "cluster_id": header.cluster_id.to_string(),
        "member_id": header.member_id.to_string(),
        "revision": header.revision.to_string(),
        "raft_term": header.raft_term.to_string(),
    })
}

fn feature_json(feature: &Feature) -> Value {
    let mut object = Map::new();
    object.insert("name".to_owned(), feature.name.clone().into());
    put(&mut object, "enabled", feature.enabled);
    Value::Object(object)
}

fn detail_json(detail: &FeatureGateDetail) -> Value {
    let votes: Vec<Value> = detail.votes.iter().map(vote_json).collect();
    json!({
        "name": detail.name,
        "level": detail.level,
        "enabled": detail.enabled,
        "stage": detail.stage,
        "default": detail.default,
        "locked": detail.locked,
        "explicit": detail.explicit,
        "source": detail.source,
        "reason": detail.reason,
        "version_used": detail.version_used,
        "since_index": detail.since_index.to_string(),
        "votes": votes,
    })
}

fn vote_json(vote: &FeatureGateVote) -> Value {
    let mut json = json!({"member_id": vote.member_id.to_string(), "vote": vote.vote});
    if !vote.if_promoted.is_empty() {
        json["if_promoted"] = vote.if_promoted.clone().into();
    }
    json
}

fn failure(status: &Status) -> Response {
    let code = match status.code() {
        Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = json!({
        "error": status.message(),
        "code": status.code() as i32,
        "message": status.message(),
    });
    json_answer(code, &body)
}

fn json_answer(code: StatusCode, body: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (code, kind, body.to_string()).into_response()
}
