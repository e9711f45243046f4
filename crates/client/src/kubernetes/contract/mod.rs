//! The contract of the [interface](super::Interface) as a suite of rules that can be checked
//! against any implementation, and against any store with etcd's API.
//!
//! ```
//! use portunus_client::kubernetes::{Memory, contract};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let store = Memory::new();
//! let options = contract::Options::default();
//! let report = contract::run(&store, &store, &options, |rule| {
//!     println!("{} {}", rule.id, rule.outcome);
//! })
//! .await
//! .unwrap();
//! assert!(report.is_passed());
//! # });
//! ```
//!
//! Every rule works in a scratch prefix of its own and deletes its keys. Rules about compaction
//! compact the whole store. A rule that needs a [control](Control) that the store lacks is skipped.

mod context;
mod control;
mod report;
mod rules;

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

use self::context::{Checked, Context, Violation};
pub use self::control::{Control, ControlError, NoControl};
pub use self::report::{Outcome, Report, RuleReport};
pub use self::rules::rules;
use super::{CountOptions, DeleteOptions, Error, Interface, ListOptions};

/// The default of the scratch prefix.
const PREFIX_DEFAULT: &str = "/portunus-check-kubernetes/";
/// The default of the longest time to wait for an event.
const WAIT_MAX_DEFAULT: Duration = Duration::from_secs(10);
/// The keys that are listed at a time to delete them.
const CLEANUP_PAGE_KEYS: i64 = 500;

type CheckFuture<'c> = Pin<Box<dyn Future<Output = Checked> + Send + 'c>>;

/// A rule of the contract.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Rule {
    /// A short name, which never changes.
    pub id: &'static str,
    /// The requirements behind the rule, in the register of this project.
    pub requirements: &'static [&'static str],
    /// What the rule demands.
    pub description: &'static str,
    check: for<'c> fn(&'c Context<'c>) -> CheckFuture<'c>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rule = formatter.debug_struct("Rule");
        rule.field("id", &self.id).finish_non_exhaustive()
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The scratch prefix: no key may begin with it before the run, none does afterwards. It must
    /// end with a slash.
    pub prefix: Bytes,
    /// The longest time to wait for an event of a watch.
    pub wait_max: Duration,
    /// Whether rules may compact the store, which removes its history.
    pub compaction: bool,
    /// The ids of the rules to check; all if empty.
    pub only: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: Bytes::from_static(PREFIX_DEFAULT.as_bytes()),
            wait_max: WAIT_MAX_DEFAULT,
            compaction: true,
            only: Vec::new(),
        }
    }
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The scratch prefix does not end with a slash.
    #[error("the prefix {prefix:?} does not end with a slash")]
    Prefix {
        /// The prefix, lossily as text.
        prefix: String,
    },
    /// Keys have the scratch prefix.
    #[error("{count} keys begin with the prefix {prefix:?}: choose another one or delete them")]
    PrefixInUse {
        /// The prefix, lossily as text.
        prefix: String,
        /// The number of keys.
        count: i64,
    },
    /// There is no rule with this id.
    #[error("there is no rule {id:?}")]
    UnknownRule {
        /// The id.
        id: String,
    },
    /// The store cannot be used at all.
    #[error("the store does not answer")]
    Store(#[source] Error),
}

/// Checks the rules one after the other; `progress` is called after each one. Needs a tokio
/// runtime with timers.
///
/// # Errors
/// If the options are unusable or the store does not answer; a broken rule is not an error.
pub async fn run(
    store: &dyn Interface,
    control: &dyn Control,
    options: &Options,
    mut progress: impl FnMut(&RuleReport),
) -> Result<Report, RunError> {
    let chosen = chosen_rules(options)?;
    check_prefix(store, &options.prefix).await?;
    let mut report = Report::default();
    for rule in chosen {
        let context = Context {
            store,
            control: match options.compaction {
                true => control,
                false => &WithoutCompaction(control),
            },
            prefix: join(&options.prefix, rule.id),
            wait_max: options.wait_max,
        };
        let begin = Instant::now();
        let outcome = check(&rule, &context).await;
        let rule_report = RuleReport {
            id: rule.id,
            description: rule.description,
            requirements: rule.requirements,
            outcome,
            duration: begin.elapsed(),
        };
        progress(&rule_report);
        report.rules.push(rule_report);
    }
    Ok(report)
}

fn chosen_rules(options: &Options) -> Result<Vec<Rule>, RunError> {
    let mut chosen = rules();
    let is_known = |id: &&String| !chosen.iter().any(|rule| rule.id == id.as_str());
    if let Some(id) = options.only.iter().find(is_known) {
        return Err(RunError::UnknownRule { id: id.clone() });
    }
    if !options.only.is_empty() {
        chosen.retain(|rule| options.only.iter().any(|id| id == rule.id));
    }
    Ok(chosen)
}

async fn check_prefix(store: &dyn Interface, prefix: &Bytes) -> Result<(), RunError> {
    let shown = || String::from_utf8_lossy(prefix).into_owned();
    if !prefix.ends_with(b"/") {
        return Err(RunError::Prefix { prefix: shown() });
    }
    match store.count(prefix, CountOptions::default()).await {
        Ok(0) => Ok(()),
        Ok(count) => Err(RunError::PrefixInUse {
            prefix: shown(),
            count,
        }),
        Err(error) => Err(RunError::Store(error)),
    }
}

fn join(prefix: &Bytes, id: &str) -> Bytes {
    let mut joined = BytesMut::from(&prefix[..]);
    joined.put_slice(id.as_bytes());
    joined.put_u8(b'/');
    joined.freeze()
}

async fn check(rule: &Rule, context: &Context<'_>) -> Outcome {
    let checked = (rule.check)(context).await;
    let cleaned = clean_up(context).await;
    match (checked, cleaned) {
        (Err(Violation::Broken(what)), _) => Outcome::Failed { what },
        (Err(Violation::Skipped(reason)), _) => Outcome::Skipped { reason },
        (Ok(()), Err(error)) => Outcome::Failed {
            what: format!("the keys of the rule could not be deleted: {error}"),
        },
        (Ok(()), Ok(())) => Outcome::Passed,
    }
}

/// Deletes the keys of a rule.
async fn clean_up(context: &Context<'_>) -> Result<(), Error> {
    loop {
        let page = ListOptions {
            limit: CLEANUP_PAGE_KEYS,
            ..ListOptions::default()
        };
        let page = context.store.list(&context.prefix, page).await?;
        let mut deleted = 0;
        for kv in &page.kvs {
            let options = DeleteOptions::default();
            let delete = context
                .store
                .optimistic_delete(&kv.key, kv.mod_revision, options);
            deleted += usize::from(delete.await?.succeeded);
        }
        if deleted == 0 {
            return Ok(());
        }
    }
}

/// The controls of a store that must keep its history.
struct WithoutCompaction<'c>(&'c dyn Control);

#[async_trait::async_trait]
impl Control for WithoutCompaction<'_> {
    async fn grant_lease(&self, ttl: Duration) -> Result<i64, ControlError> {
        self.0.grant_lease(ttl).await
    }

    async fn revoke_lease(&self, id: i64) -> Result<(), ControlError> {
        self.0.revoke_lease(id).await
    }

    async fn write(&self, writes: Vec<super::Write>) -> Result<i64, ControlError> {
        self.0.write(writes).await
    }

    async fn list_keys(&self, prefix: &[u8]) -> Result<Vec<super::KeyValue>, ControlError> {
        self.0.list_keys(prefix).await
    }

    async fn stream(
        &self,
        prefix: &[u8],
        revision: i64,
    ) -> Result<Vec<super::KeyValue>, ControlError> {
        self.0.stream(prefix, revision).await
    }
}
