//! The chain that every request passes.
//!
//! ```text
//!  request info ──▶ in-flight limit ──▶ authentication ──▶ authorisation ──▶ body ──▶ handler
//!       │                 │                    │                  │            │
//!      404               429                  401                403          413
//! ```

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::X_CONTENT_TYPE_OPTIONS;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use portunus_client::kubernetes::Interface;
use portunus_objects::GroupResource;
use portunus_objects::status::Status;
use serde_json::Value;
use tokio::time::timeout;
use uuid::Uuid;

use crate::api::{Api, ApiError};
use crate::authn::Authenticator;
use crate::authz::{Authorizer, Decision};
use crate::body::Body;
use crate::definition::Definition;
use crate::discovery;
use crate::drain::Drain;
use crate::failure::{Failure, Outcome};
use crate::handlers::{self, Context};
use crate::health::Health;
use crate::identity::{Connection, Identity};
use crate::leases::Leases;
use crate::limits::{BODY_BYTES_MAX, LimitOptions, Limits};
use crate::metrics::{METRICS_MEDIA_TYPE, Metrics, RequestRecord};
use crate::openapi::OpenApi;
use crate::progress::ProgressRequests;
use crate::request::{Query, RequestInfo};
use crate::respond::{add_warnings, bytes_response, failure_response, json_response};
use crate::version::version_document;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The most bytes of an audit id that a client chooses.
const AUDIT_ID_BYTES_MAX: usize = 64;

/// The settings of a [`Service`].
pub struct ServiceOptions {
    /// The versions and flags that decide what is served.
    pub api: portunus_apis::Options,
    /// Finds the user of a request.
    pub authenticator: Arc<dyn Authenticator>,
    /// Decides what users may do.
    pub authorizer: Arc<dyn Authorizer>,
    /// Whether requests without credentials are those of an anonymous user, instead of refused.
    pub anonymous: bool,
    /// The prefix of all keys.
    pub storage_prefix: String,
    /// The limits of requests in flight.
    pub limits: LimitOptions,
    /// The metrics, which other parts of the process may share.
    pub metrics: Metrics,
    /// The end of the server.
    pub drain: Drain,
    /// The address that discovery shows, such as `localhost:6443`.
    pub address: String,
}

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) api: Api,
    pub(crate) store: Arc<dyn Interface>,
    pub(crate) storage_prefix: String,
    pub(crate) progress: ProgressRequests,
    pub(crate) leases: Leases,
    pub(crate) drain: Drain,
    pub(crate) metrics: Metrics,
    authenticator: Arc<dyn Authenticator>,
    authorizer: Arc<dyn Authorizer>,
    anonymous: bool,
    limits: Limits,
    openapi: OpenApi,
    health: Health,
    version: Value,
    address: String,
}

/// Answers requests. Clones are handles of the same service.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

impl Service {
    /// Creates the service of resources whose objects are in a store.
    ///
    /// # Errors
    /// If a definition is illegal, or the flags do not fit the definitions.
    pub fn new(
        definitions: impl IntoIterator<Item = Definition>,
        store: Arc<dyn Interface>,
        options: ServiceOptions,
    ) -> Result<Service, ApiError> {
        let version = version_document(&options.api.versions);
        let api = Api::new(definitions, options.api)?;
        let health = Health::new(
            options.drain.clone(),
            Arc::clone(&store),
            &options.storage_prefix,
        );
        let shared = Shared {
            api,
            store,
            storage_prefix: options.storage_prefix,
            progress: ProgressRequests::default(),
            leases: Leases::default(),
            drain: options.drain,
            limits: Limits::new(&options.limits, &options.metrics),
            metrics: options.metrics,
            authenticator: options.authenticator,
            authorizer: options.authorizer,
            anonymous: options.anonymous,
            openapi: OpenApi::default(),
            health,
            version,
            address: options.address,
        };
        Ok(Service {
            shared: Arc::new(shared),
        })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns what is served.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.shared.api
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>, connection: &Connection) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let begun = Instant::now();
        let (parts, body) = request.into_parts();
        let audit_id = audit_id(&parts);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let parsed = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let is_head = parts.method == Method::HEAD;
        let (info, is_path_good) = match parsed {
            Ok(info) => (info, true),
            Err(_) => (RequestInfo::default(), false),
        };
        let mut response = if is_path_good {
            self.shared
                .admit(parts, body, &info, &query, connection)
                .await
        } else {
            failure_response(&Status::unknown_path("").into())
        };
        let record = RequestRecord {
            is_known: self.shared.is_known(&info),
            info: &info,
            dry_run: query.find("dryRun").is_some(),
            code: response.status(),
            elapsed: begun.elapsed(),
        };
        self.shared.metrics.record(record);
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if is_head {
            *response.body_mut() = Body::empty();
        }
        response
    }
}

/// Returns the id under which a request is logged: the client's, or a new one.
fn audit_id(parts: &Parts) -> HeaderValue {
    let own = parts.headers.get(AUDIT_ID);
    let own = own.filter(|value| value.len() <= AUDIT_ID_BYTES_MAX && value.to_str().is_ok());
    own.cloned().unwrap_or_else(|| {
        let id = Uuid::new_v4().to_string();
        HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("unknown"))
    })
}

impl Shared {
    /// Limits a request in number and time, and lets it through to [`Shared::serve`].
    async fn admit<B>(
        self: &Arc<Self>,
        parts: Parts,
        body: B,
        info: &RequestInfo,
        query: &Query,
        connection: &Connection,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let permit = match self.limits.admit(info) {
            Ok(permit) => permit,
            Err(refused) => return refused.response(),
        };
        let served = self.serve(parts, body, info, query, connection);
        let served = match timeout(self.limits.request_timeout(), served).await {
            Ok(served) => served,
            Err(_) => {
                let text = "request did not complete within the allotted timeout";
                Err(Status::timeout(text, 0).into())
            }
        };
        match served {
            Ok(response) if info.is_long_running() => {
                let counted = self.metrics.long_running(info, self.is_known(info));
                response.map(|body| body.holding((permit, counted)))
            }
            Ok(response) => response,
            Err(failure) => failure_response(&failure),
        }
    }

    /// Authenticates and authorises a request, and answers it.
    async fn serve<B>(
        self: &Arc<Self>,
        mut parts: Parts,
        body: B,
        info: &RequestInfo,
        query: &Query,
        connection: &Connection,
    ) -> Outcome<Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let identity = self.authenticate(&mut parts, connection)?;
        self.authorize(&identity, info)?;
        if !info.is_resource {
            return self.document(&parts, info, query).await;
        }
        let target = self.api.find(&info.group, &info.version, &info.resource)?;
        if let Some(deprecation) = &target.served.deprecation {
            let removed = deprecation.removed_release.map(|it| it.to_string());
            let removed = removed.unwrap_or_default();
            self.metrics.requested_deprecated(info, &removed);
        }
        let body = match parts.method {
            Method::GET | Method::HEAD => Bytes::new(),
            _ => read_body(body).await?,
        };
        let context = Context::new(self, target, info, query, &parts.headers, body);
        let mut response = match handlers::handle(&context).await {
            Ok(response) => response,
            Err(failure) => failure_response(&failure),
        };
        add_warnings(&mut response, &context.warnings());
        Ok(response)
    }

    fn authenticate(&self, parts: &mut Parts, connection: &Connection) -> Outcome<Identity> {
        match self
            .authenticator
            .authenticate(&mut parts.headers, connection)
        {
            Ok(Some(identity)) => Ok(identity),
            Ok(None) if self.anonymous => Ok(Identity::anonymous()),
            Ok(None) => Err(Status::unauthorized("Unauthorized").into()),
            Err(refused) => {
                tracing::warn!(
                    peer = %connection.peer_text(),
                    reason = %refused.reason,
                    "Unable to authenticate the request"
                );
                Err(Status::unauthorized("Unauthorized").into())
            }
        }
    }

    fn authorize(&self, identity: &Identity, info: &RequestInfo) -> Outcome<()> {
        match self.authorizer.authorize(identity, info) {
            Decision::Allowed => Ok(()),
            Decision::Denied { reason } => Err(forbidden(identity, info, &reason)),
        }
    }

    /// Returns whether the server serves what a request names; others are not labels of metrics.
    fn is_known(&self, info: &RequestInfo) -> bool {
        let found = self.api.find(&info.group, &info.version, &info.resource);
        found.is_ok_and(|target| {
            info.subresource.is_empty() || target.served.subresource(&info.subresource).is_some()
        })
    }

    /// Answers a request that names no resource.
    async fn document(
        &self,
        parts: &Parts,
        info: &RequestInfo,
        query: &Query,
    ) -> Outcome<Response<Body>> {
        let answer = self.read_document(parts, info, query).await?;
        // A path that does not exist has no methods at all.
        match parts.method {
            Method::GET | Method::HEAD => Ok(answer),
            _ => Err(Status::method_not_allowed().into()),
        }
    }

    async fn read_document(
        &self,
        parts: &Parts,
        info: &RequestInfo,
        query: &Query,
    ) -> Outcome<Response<Body>> {
        if let Some(response) = self.health.answer(&info.path, query).await {
            return Ok(response);
        }
        let segments: Vec<&str> = info.path.split('/').filter(|it| !it.is_empty()).collect();
        match &segments[..] {
            [] => Ok(discovery::index(&self.api)),
            ["version"] => Ok(json_response(StatusCode::OK, &self.version)),
            ["openapi", rest @ ..] => self.openapi.answer(&self.api, rest, &parts.headers, query),
            ["metrics"] => Ok(metrics_response(&self.metrics)),
            ["api" | "apis", ..] => {
                let answer = discovery::answer(&self.api, &segments, &parts.headers, &self.address);
                answer.unwrap_or_else(|| Err(Status::unknown_path("").into()))
            }
            _ => Err(Status::unknown_path("").into()),
        }
    }
}

fn metrics_response(metrics: &Metrics) -> Response<Body> {
    bytes_response(StatusCode::OK, METRICS_MEDIA_TYPE, metrics.render())
}

/// Reads the body of a request, up to the limit.
async fn read_body<B>(body: B) -> Outcome<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let why = format!("limit is {BODY_BYTES_MAX}");
            Err(Status::request_entity_too_large(&why).into())
        }
        Err(error) => {
            let why = format!("the body of the request could not be read: {error}");
            Err(Status::bad_request(&why).into())
        }
    }
}

/// Returns the answer to a request that its user may not make, in the words of Kubernetes.
fn forbidden(identity: &Identity, info: &RequestInfo, reason: &str) -> Failure {
    let user = &identity.user;
    let verb = info.verb;
    let reason = match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    if !info.is_resource {
        let why = format!("User {user:?} cannot {verb} path {:?}{reason}", info.path);
        return Status::forbidden(&GroupResource::default(), "", &why).into();
    }
    let resource = match &*info.subresource {
        "" => info.resource.clone(),
        subresource => format!("{}/{subresource}", info.resource),
    };
    let scope = match &*info.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let why = format!(
        "User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}{reason}",
        info.group
    );
    let name = GroupResource::new(&info.group, &info.resource);
    Status::forbidden(&name, &info.name, &why).into()
}
