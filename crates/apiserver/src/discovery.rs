//! The documents of discovery over HTTP: both forms, with entity tags.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use portunus_apis::discovery::{
    Format, Part, ServerAddress, aggregated, core_versions, group, group_list, resource_list,
};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::api::Api;
use crate::body::Body;
use crate::failure::Outcome;
use crate::negotiate::{first_json, is_aggregated};
use crate::respond::json_response;

const AGGREGATED_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_V2BETA1: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// Answers `/api` and `/apis` and what is below them; none for other paths and for groups and
/// versions that are not served.
pub(crate) fn answer(
    api: &Api,
    segments: &[&str],
    headers: &HeaderMap,
    address: &str,
) -> Option<Outcome<Response<Body>>> {
    let served = api.served();
    let found = |document: &dyn erased::Document| Some(Ok(document.response()));
    match segments {
        ["api"] => Some(root(api, Part::Core, headers, address)),
        ["apis"] => Some(root(api, Part::Groups, headers, address)),
        ["api", version] => found(&resource_list(served, "", version)?),
        ["apis", name] => found(&group(served, name)?),
        ["apis", name, version] => found(&resource_list(served, name, version)?),
        _ => None,
    }
}

mod erased {
    use http::{Response, StatusCode};
    use serde::Serialize;

    use crate::body::Body;
    use crate::respond::json_response;

    /// A document of any type.
    pub(super) trait Document {
        fn response(&self) -> Response<Body>;
    }

    impl<T: Serialize> Document for T {
        fn response(&self) -> Response<Body> {
            json_response(StatusCode::OK, self)
        }
    }
}

/// The forms of the two root documents.
#[derive(Clone, Copy)]
enum RootForm {
    Legacy,
    Aggregated(Format),
}

fn root(api: &Api, part: Part, headers: &HeaderMap, address: &str) -> Outcome<Response<Body>> {
    let form = first_json(headers, |media_type| {
        if is_aggregated(media_type, "v2") {
            Some(RootForm::Aggregated(Format::V2))
        } else if is_aggregated(media_type, "v2beta1") {
            Some(RootForm::Aggregated(Format::V2Beta1))
        } else if media_type.parameter("as").is_empty() {
            Some(RootForm::Legacy)
        } else {
            None
        }
    })?;
    let served = api.served();
    let mut response = match (form, part) {
        (RootForm::Legacy, Part::Core) => {
            let everywhere = ServerAddress {
                client_cidr: "0.0.0.0/0".to_owned(),
                server_address: address.to_owned(),
            };
            json_response(StatusCode::OK, &core_versions(served, vec![everywhere]))
        }
        (RootForm::Legacy, Part::Groups) => json_response(StatusCode::OK, &group_list(served)),
        (RootForm::Aggregated(format), part) => {
            let media_type = match format {
                Format::V2 => AGGREGATED_V2,
                Format::V2Beta1 => AGGREGATED_V2BETA1,
            };
            tagged(&aggregated(served, part, format), media_type, headers)
        }
    };
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// Returns a document with its entity tag, or 304 if the client has it.
fn tagged(
    document: &impl Serialize,
    media_type: &'static str,
    headers: &HeaderMap,
) -> Response<Body> {
    let mut response = json_response(StatusCode::OK, document);
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    let tag = format!("\"{:X}\"", Sha256::digest(&bytes));
    let known = headers.get(IF_NONE_MATCH).and_then(|it| it.to_str().ok());
    if known.is_some_and(|known| known.split(',').any(|it| it.trim() == tag)) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    // A copy can be kept: its tag tells whether it is still true.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Returns the paths that are served, for `/`.
pub(crate) fn index(api: &Api) -> Response<Body> {
    let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
    for group in api.served().groups() {
        if !group.name.is_empty() {
            paths.push(format!("/apis/{}", group.name));
        }
        for version in &group.versions {
            let root = if group.name.is_empty() {
                "/api"
            } else {
                "/apis"
            };
            paths.push(format!("{root}/{}", version.name));
        }
    }
    let others = [
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ];
    paths.extend(others.iter().map(|path| (*path).to_owned()));
    paths.sort();
    json_response(StatusCode::OK, &json!({"paths": paths}))
}
