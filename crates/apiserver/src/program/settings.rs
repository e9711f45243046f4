//! Everything that flags decide, checked before anything is opened.

use std::error::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use portunus_apiserver::authn::AnyOf;
use portunus_apiserver::authz::FirstAllowed;
use portunus_apiserver::{Api, LimitOptions, ListenerOptions, Metrics};
use portunus_client::Client;
use portunus_tls::ServerTls;

use crate::flags::{ServerFlags, VersionFlags};
use crate::versions::{self, ProcessVersions};
use crate::{security, store};
use portunus_apiserver::resources::Resources;

/// The checked settings of a server.
pub struct Settings {
    pub versions: ProcessVersions,
    pub tls: ServerTls,
    pub authenticator: Arc<AnyOf>,
    pub authorizer: Arc<FirstAllowed>,
    pub resources: Resources,
    pub store: Client,
    pub limits: LimitOptions,
    pub listener: ListenerOptions,
    pub metrics: Metrics,
}

impl Settings {
    /// Checks the flags and reads the files that they name. Needs a runtime.
    pub fn from_flags(flags: &ServerFlags) -> Result<Settings, Box<dyn Error>> {
        let (versions, resources) = check_apis(&flags.versions)?;
        let metrics = Metrics::new();
        let samples = portunus_gates::KUBERNETES_FEATURE_ENABLED;
        metrics.set_samples(&versions.components.samples(samples));
        let store = store::connect(&flags.store)?;
        Ok(Settings {
            tls: security::tls(&flags.listen)?,
            authenticator: Arc::new(security::authenticator(&flags.authentication, &metrics)?),
            authorizer: Arc::new(security::authorizer(&flags.authorization)?),
            resources: resources.with_event_ttl(flags.store.event_ttl),
            store,
            limits: LimitOptions {
                reads_max: flags.limits.max_requests_inflight,
                writes_max: flags.limits.max_mutating_requests_inflight,
                long_running_max: flags.limits.max_longrunning_requests,
                request_timeout: flags.limits.request_timeout,
            },
            listener: ListenerOptions {
                connections_max: flags.limits.max_connections,
                drain_timeout: flags.limits.request_timeout,
                ..ListenerOptions::default()
            },
            versions,
            metrics,
        })
    }
}

/// Checks the flags about versions, features and runtime-config against the resources of the
/// program.
pub fn check_apis(flags: &VersionFlags) -> Result<(ProcessVersions, Resources), Box<dyn Error>> {
    let versions = versions::resolve(flags, |name| std::env::var(name).ok())?;
    let resources = Resources::new(now_unix_s());
    Api::new(resources.definitions()?, versions.api.clone())?;
    Ok((versions, resources))
}

/// Returns the time in seconds since 1970.
fn now_unix_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}
