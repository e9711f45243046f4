//! `/livez`, `/readyz` and `/healthz`: whether the process lives, and whether it can serve.
//!
//! Paths, parameters and texts are those of kube-apiserver:
//!
//! | request | answer |
//! | --- | --- |
//! | `/readyz` | `ok`, or 500 with one line per check |
//! | `/readyz?verbose` | one line per check |
//! | `/readyz?exclude=store` | without a check |
//! | `/readyz/store` | one check |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use portunus_client::kubernetes::{GetOptions, Interface};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::body::{Body, full_body};
use crate::drain::{Drain, Phase};
use crate::request::Query;

/// How long the store may take to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The shortest time between two probes of the store; an answer in between is the last one.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The key below the prefix of the store that is read. It does not exist.
const PROBE_KEY: &str = "/health";

/// The health of a server. Clones share it.
#[derive(Clone)]
pub struct Health {
    shared: Arc<Shared>,
}

struct Shared {
    drain: Drain,
    store: StoreProbe,
}

struct StoreProbe {
    store: Arc<dyn Interface>,
    key: String,
    /// Held while the store is probed, so that callers at the same time share one probe.
    last: Mutex<Option<(Instant, CheckResult)>>,
}

type CheckResult = Result<(), String>;

impl fmt::Debug for Health {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Health").finish_non_exhaustive()
    }
}

/// The three endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Healthz,
    Livez,
    Readyz,
}

/// The checks, in the order in which they are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The process answers.
    Ping,
    /// The process can log: the call returns.
    Log,
    /// The store answers a linearizable read of an absent key.
    Store,
    /// The server is not draining.
    Shutdown,
}

impl Endpoint {
    fn name(self) -> &'static str {
        match self {
            Endpoint::Healthz => "healthz",
            Endpoint::Livez => "livez",
            Endpoint::Readyz => "readyz",
        }
    }

    fn checks(self) -> &'static [Check] {
        match self {
            // A server without its store must not be restarted: that would not help.
            Endpoint::Livez => &[Check::Ping, Check::Log],
            Endpoint::Healthz => &[Check::Ping, Check::Log, Check::Store],
            Endpoint::Readyz => &[Check::Ping, Check::Log, Check::Store, Check::Shutdown],
        }
    }

    /// Splits a path into the endpoint and the name of a single check.
    fn of(path: &str) -> Option<(Endpoint, Option<&str>)> {
        let path = path.strip_prefix('/')?;
        let (first, check) = match path.split_once('/') {
            Some((first, check)) => (first, Some(check)),
            None => (path, None),
        };
        let all = [Endpoint::Healthz, Endpoint::Livez, Endpoint::Readyz];
        let endpoint = all.into_iter().find(|endpoint| endpoint.name() == first)?;
        Some((endpoint, check))
    }
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Check::Ping => "ping",
            Check::Log => "log",
            Check::Store => "store",
            Check::Shutdown => "shutdown",
        }
    }
}

impl Health {
    /// Creates the health of a server whose objects are in a store, below a prefix such as
    /// `/registry`.
    #[must_use]
    pub fn new(drain: Drain, store: Arc<dyn Interface>, prefix: &str) -> Health {
        let store = StoreProbe {
            store,
            key: format!("{}{PROBE_KEY}", prefix.trim_end_matches('/')),
            last: Mutex::new(None),
        };
        Health {
            shared: Arc::new(Shared { drain, store }),
        }
    }

    /// Answers a request; none if the path is not one of health, or names no check.
    pub async fn answer(&self, path: &str, query: &Query) -> Option<Response<Body>> {
        let (endpoint, check) = Endpoint::of(path)?;
        match check {
            None => Some(self.all(endpoint, query).await),
            Some(name) => {
                let mut checks = endpoint.checks().iter();
                let check = checks.find(|check| check.name() == name)?;
                Some(match self.run(*check).await {
                    Ok(()) => text(StatusCode::OK, "ok".to_owned()),
                    Err(reason) => {
                        let body = format!("internal server error: {reason}\n");
                        text(StatusCode::INTERNAL_SERVER_ERROR, body)
                    }
                })
            }
        }
    }

    async fn all(&self, endpoint: Endpoint, query: &Query) -> Response<Body> {
        let mut excluded: Vec<&str> = query.all("exclude").collect();
        excluded.sort_unstable();
        excluded.dedup();
        let mut lines = String::new();
        let mut is_failed = false;
        for check in endpoint.checks() {
            let name = check.name();
            if let Some(at) = excluded.iter().position(|excluded| *excluded == name) {
                excluded.remove(at);
                lines.push_str(&format!("[+]{name} excluded: ok\n"));
                continue;
            }
            match self.run(*check).await {
                Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
                Err(reason) => {
                    tracing::warn!(
                        endpoint = endpoint.name(),
                        check = name,
                        reason,
                        "health check failed"
                    );
                    is_failed = true;
                    lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
                }
            }
        }
        if !excluded.is_empty() {
            let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let names = names.join(",");
            lines.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {names}\n"
            ));
        }
        let name = endpoint.name();
        match (is_failed, query.find("verbose")) {
            (true, _) => {
                let body = format!("{lines}{name} check failed\n");
                text(StatusCode::INTERNAL_SERVER_ERROR, body)
            }
            (false, None) => text(StatusCode::OK, "ok".to_owned()),
            (false, Some(_)) => text(StatusCode::OK, format!("{lines}{name} check passed\n")),
        }
    }

    async fn run(&self, check: Check) -> CheckResult {
        match check {
            Check::Ping => Ok(()),
            Check::Log => {
                tracing::debug!("health check of the log");
                Ok(())
            }
            Check::Store => self.shared.store.check().await,
            Check::Shutdown => match self.shared.drain.phase() {
                Phase::Serving => Ok(()),
                Phase::NotReady | Phase::Ending => Err("process is shutting down".to_owned()),
            },
        }
    }
}

impl StoreProbe {
    /// Returns the last result if it is young; probes the store otherwise.
    async fn check(&self) -> CheckResult {
        let mut last = self.last.lock().await;
        if let Some((at, result)) = &*last
            && at.elapsed() < PROBE_INTERVAL
        {
            return result.clone();
        }
        let result = self.probe().await;
        *last = Some((Instant::now(), result.clone()));
        result
    }

    async fn probe(&self) -> CheckResult {
        let get = self.store.get(self.key.as_bytes(), GetOptions::default());
        match timeout(PROBE_TIMEOUT, get).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("the store failed: {error}")),
            Err(_) => Err(format!(
                "the store did not answer within {} s",
                PROBE_TIMEOUT.as_secs()
            )),
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(full_body(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, plain);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use bytes::Bytes;
    use http_body_util::BodyExt;
    use portunus_client::kubernetes::{
        CountOptions, DeleteOptions, DeleteResponse, Error, GetResponse, ListOptions, ListResponse,
        Memory, PutOptions, PutResponse, RequestProgressOptions, WatchEvents, WatchOptions,
    };

    use super::*;

    /// A store that counts reads, and answers them after a while or never.
    struct Slow {
        memory: Memory,
        reads: AtomicUsize,
        delay: Option<Duration>,
    }

    #[async_trait]
    impl Interface for Slow {
        async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Error> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            match self.delay {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
            self.memory.get(key, options).await
        }

        async fn list(&self, _: &[u8], _: ListOptions) -> Result<ListResponse, Error> {
            unreachable!()
        }

        async fn count(&self, _: &[u8], _: CountOptions) -> Result<i64, Error> {
            unreachable!()
        }

        async fn optimistic_put(
            &self,
            _: &[u8],
            _: Bytes,
            _: i64,
            _: PutOptions,
        ) -> Result<PutResponse, Error> {
            unreachable!()
        }

        async fn optimistic_delete(
            &self,
            _: &[u8],
            _: i64,
            _: DeleteOptions,
        ) -> Result<DeleteResponse, Error> {
            unreachable!()
        }

        async fn watch(&self, _: &[u8], _: WatchOptions) -> Result<WatchEvents, Error> {
            unreachable!()
        }

        async fn request_progress(&self, _: RequestProgressOptions) -> Result<(), Error> {
            unreachable!()
        }
    }

    fn slow(delay: Option<Duration>) -> Arc<Slow> {
        Arc::new(Slow {
            memory: Memory::new(),
            reads: AtomicUsize::new(0),
            delay,
        })
    }

    async fn get(health: &Health, target: &str) -> Option<(u16, String)> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let response = health.answer(path, &Query::parse(query)).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Some((status, String::from_utf8(body.to_vec()).unwrap()))
    }

    fn answer(status: u16, body: &str) -> Option<(u16, String)> {
        Some((status, body.to_owned()))
    }

    #[tokio::test]
    async fn texts_are_those_of_kubernetes() {
        let health = Health::new(Drain::new(), Arc::new(Memory::new()), "/registry");
        for path in [
            "/healthz",
            "/livez",
            "/readyz",
            "/readyz/ping",
            "/healthz/store",
        ] {
            assert_eq!(get(&health, path).await, answer(200, "ok"), "{path}");
        }
        let all = "[+]ping ok\n[+]log ok\n[+]store ok\n[+]shutdown ok\nreadyz check passed\n";
        assert_eq!(get(&health, "/readyz?verbose").await, answer(200, all));
        let some = "[+]ping ok\n[+]log ok\n[+]store excluded: ok\n\
                    warn: some health checks cannot be excluded: no matches for \"none\"\n\
                    healthz check passed\n";
        let target = "/healthz?verbose=1&exclude=store&exclude=none";
        assert_eq!(get(&health, target).await, answer(200, some));
        for path in [
            "/readyz/none",
            "/livez/store",
            "/health",
            "/",
            "/readyz/ping/x",
        ] {
            assert_eq!(get(&health, path).await, None, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn draining_server_is_alive_and_not_ready() {
        let drain = Drain::new();
        let health = Health::new(drain.clone(), Arc::new(Memory::new()), "/registry");
        drain.begin(Duration::ZERO).await;
        let failed = "[+]ping ok\n[+]log ok\n[+]store ok\n\
                      [-]shutdown failed: reason withheld\nreadyz check failed\n";
        assert_eq!(get(&health, "/readyz").await, answer(500, failed));
        assert_eq!(
            get(&health, "/readyz?exclude=shutdown").await,
            answer(200, "ok")
        );
        assert_eq!(get(&health, "/livez").await, answer(200, "ok"));
        let reason = "internal server error: process is shutting down\n";
        assert_eq!(get(&health, "/readyz/shutdown").await, answer(500, reason));
    }

    /// Proves: K23
    #[tokio::test(start_paused = true)]
    async fn callers_share_one_probe_of_the_store() {
        let store = slow(Some(Duration::from_millis(300)));
        let health = Health::new(Drain::new(), Arc::clone(&store) as _, "/registry/");
        let callers = (0..50).map(|_| {
            let health = health.clone();
            tokio::spawn(async move { get(&health, "/readyz").await })
        });
        for caller in callers.collect::<Vec<_>>() {
            assert_eq!(caller.await.unwrap(), answer(200, "ok"));
        }
        assert_eq!(store.reads.load(Ordering::Relaxed), 1);
        tokio::time::advance(PROBE_INTERVAL).await;
        assert_eq!(get(&health, "/healthz").await, answer(200, "ok"));
        assert_eq!(store.reads.load(Ordering::Relaxed), 2);
    }

    /// Proves: K23
    #[tokio::test(start_paused = true)]
    async fn silent_store_is_not_ready_within_the_time_limit() {
        let health = Health::new(Drain::new(), slow(None), "/registry");
        let started = Instant::now();
        let failed = "[+]ping ok\n[+]log ok\n[-]store failed: reason withheld\n\
                      healthz check failed\n";
        assert_eq!(get(&health, "/healthz").await, answer(500, failed));
        assert_eq!(started.elapsed(), PROBE_TIMEOUT);
        assert_eq!(get(&health, "/livez").await, answer(200, "ok"));
    }
}
