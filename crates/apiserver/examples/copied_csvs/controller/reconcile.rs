//! The loop: a change of a collection, a decision, its actions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;
use portunus_gates::Features;
use portunus_objects::metadata;
use portunus_olm::{LiveGates, OlmFeatures, olm_versions};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::cache::{Cache, Change};
use super::client::{Client, ClientError};
use super::conditions::with_conditions;
use super::decide::{Action, Decision, Observed, decide};
use super::event;
use super::follow::follow;
use super::resources::{self, Collection};

/// How long after actions the controller decides again, also without a change.
const REEVALUATION_DELAY: Duration = Duration::from_secs(5);
/// How often one request is sent. What fails then is tried again at the next decision.
const ATTEMPTS_MAX: usize = 3;
/// The pause before a request is sent again.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);
/// The most changes that wait for the controller.
const CHANGES_MAX: usize = 256;
/// The HTTP status for an object that exists, or that has a newer version.
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// The controller.
pub struct Controller {
    client: Arc<Client>,
    gates: LiveGates<OlmFeatures>,
    protected: BTreeSet<String>,
    cache: Cache,
    /// The ids of CSVs that have their Warning event since copies were disabled.
    warned: BTreeSet<String>,
}

impl Controller {
    /// Creates a controller whose gates have their defaults. The protected namespaces keep their
    /// copies while copies are disabled.
    ///
    /// # Errors
    /// If the features of OLM are declared wrongly.
    pub fn new(client: Client, protected: Vec<String>) -> Result<Controller, std::io::Error> {
        let invalid = |error: &dyn std::error::Error| std::io::Error::other(error.to_string());
        let features = Features::<OlmFeatures>::declared().map_err(|error| invalid(&error))?;
        Ok(Controller {
            client: Arc::new(client),
            gates: LiveGates::new(features, olm_versions()).map_err(|error| invalid(&error))?,
            protected: protected.into_iter().collect(),
            cache: Cache::default(),
            warned: BTreeSet::new(),
        })
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let (sender, mut changes) = mpsc::channel(CHANGES_MAX);
        let mut followers = JoinSet::new();
        for collection in Collection::ALL {
            followers.spawn(follow(Arc::clone(&self.client), collection, sender.clone()));
        }
        let mut reevaluate_at = None;
        loop {
            tokio::select! {
                change = changes.recv() => {
                    let Some(change) = change else { return };
                    self.apply(change);
                    while let Ok(change) = changes.try_recv() {
                        self.apply(change);
                    }
                }
                () = wait_for(reevaluate_at) => {}
            }
            reevaluate_at = None;
            if self.cache.is_complete() && self.reconcile().await {
                reevaluate_at = Some(Instant::now() + REEVALUATION_DELAY);
            }
        }
    }

    /// Applies a change; the gates follow the configuration.
    fn apply(&mut self, change: Change) {
        let is_config = matches!(
            change,
            Change::Listed(Collection::OlmConfigs, _)
                | Change::Changed(Collection::OlmConfigs, _)
                | Change::Deleted(Collection::OlmConfigs, _)
        );
        self.cache.apply(change);
        if is_config {
            self.gates.follow(self.cache.olm_config());
        }
    }

    /// Decides once and performs the actions. Returns whether there was something to do.
    async fn reconcile(&mut self) -> bool {
        let snapshot = self.gates.snapshot();
        let decision = decide(&Observed {
            gates: snapshot.gates(),
            csvs: &self.cache.csvs(),
            namespaces: &self.cache.namespaces(),
            protected: &self.protected,
            warned: &self.warned,
        });
        let mut is_settled = decision.actions.is_empty();
        if let Some(config) = self.cache.olm_config() {
            let after = with_conditions(config, &snapshot, &decision, now_unix_s());
            is_settled &= after.is_none();
            if let Some(after) = after {
                let sent = self.send(Method::PUT, resources::OLM_CONFIG_STATUS, &after);
                report("conditions written", config, changed(sent.await, CONFLICT));
            }
        }
        self.perform(decision).await;
        !is_settled
    }

    async fn perform(&mut self, decision: Decision) {
        if !decision.is_disabled {
            self.warned.clear();
        }
        for action in decision.actions {
            match action {
                Action::Create(copy) => report("copy created", &copy, self.create(&copy).await),
                Action::Replace(copy) => {
                    report("copy replaced", &copy, self.replace(&copy, "").await);
                }
                Action::ReplaceStatus(copy) => {
                    let replaced = self.replace(&copy, "/status").await;
                    report("status of copy replaced", &copy, replaced);
                }
                Action::Remove(copy) => report("copy removed", &copy, self.remove(&copy).await),
                Action::Warn(csv) => {
                    let created = self.warn(&csv).await;
                    report("event created", &csv, created);
                }
            }
        }
    }

    /// Creates a copy. Its status is a second request, because a create ignores it.
    async fn create(&self, copy: &Value) -> Result<bool, ClientError> {
        let path = resources::csvs_of(metadata::namespace(copy));
        let mut created = match self.send(Method::POST, &path, copy).await {
            Err(error) if error.is_status(CONFLICT) => return Ok(false),
            other => other?,
        };
        created["status"] = copy["status"].clone();
        self.replace(&created, "/status").await
    }

    async fn replace(&self, copy: &Value, subresource: &str) -> Result<bool, ClientError> {
        let path = resources::csv(metadata::namespace(copy), metadata::name(copy)) + subresource;
        changed(self.send(Method::PUT, &path, copy).await, CONFLICT)
    }

    /// Removes a copy, but not another object of its name.
    async fn remove(&self, copy: &Value) -> Result<bool, ClientError> {
        let options = json!({"preconditions": {"uid": metadata::uid(copy)}});
        let path = resources::csv(metadata::namespace(copy), metadata::name(copy));
        changed(self.send(Method::DELETE, &path, &options).await, NOT_FOUND)
    }

    async fn warn(&mut self, csv: &Value) -> Result<bool, ClientError> {
        let generation = self.cache.olm_config().map_or(0, metadata::generation);
        let event = event::disabled_copies(csv, generation, now_unix_s());
        let path = resources::events_of(metadata::namespace(csv));
        let is_new = changed(self.send(Method::POST, &path, &event).await, CONFLICT)?;
        self.warned.insert(metadata::uid(csv).to_owned());
        Ok(is_new)
    }

    /// Sends a request, and again after a failure that may pass.
    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, ClientError> {
        let mut attempt = 1;
        loop {
            match self.client.request(method.clone(), path, Some(body)).await {
                Err(error) if error.is_transient() && attempt < ATTEMPTS_MAX => attempt += 1,
                outcome => return outcome,
            }
            sleep(ATTEMPT_PAUSE).await;
        }
    }
}

/// Returns whether a request changed something. An answer with the status `expected` says that the
/// decision was made on an older state; its change is on the way.
fn changed(outcome: Result<Value, ClientError>, expected: u16) -> Result<bool, ClientError> {
    match outcome {
        Err(error) if error.is_status(expected) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Logs the outcome of an action. A failed one is decided again.
fn report(what: &str, object: &Value, outcome: Result<bool, ClientError>) {
    let (namespace, name) = (metadata::namespace(object), metadata::name(object));
    match outcome {
        Ok(true) => tracing::info!(namespace, name, "{what}"),
        Ok(false) => {}
        Err(error) => tracing::warn!(namespace, name, action = what, %error, "action failed"),
    }
}

async fn wait_for(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn now_unix_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}
