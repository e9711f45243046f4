//! `featuregates`: the cluster features of the store, as the cluster decided them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{CollectionPublisher, Definition, VersionDefinition};
use portunus_apis::Lifecycle;
use portunus_client::{Client, ClientError};
use portunus_objects::table::Columns;
use portunus_proto::etcdserverpb::{FeatureGateDetail, FeatureGateStatusRequest, FeatureGateVote};
use portunus_proto::portunuspb::WatchRequest;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{LIFECYCLE_GROUP, ResourcesError};

const KIND: &str = "FeatureGate";
/// The status is read again this often: proposals of members change without a decision.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// The pause before a store that does not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The resource. Clients can only read it: features are switched by the flags of members.
pub fn definition(objects: &CollectionPublisher) -> Result<Definition, ResourcesError> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let flag = |description: &str| json!({"type": "boolean", "description": description});
    let schema = json!({
        "type": "object",
        "description": "FeatureGate is a feature of the store that its members decide together.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "The declaration at the cluster version.",
                "properties": {
                    "level": text("cluster: one value for all members."),
                    "stage": text("The stage: ALPHA, BETA, GA or DEPRECATED."),
                    "default": flag("The value without flags."),
                    "locked": flag("Whether the value cannot be changed."),
                    "version": text("The version whose declaration applies."),
                },
            },
            "status": {
                "type": "object",
                "description": "The decision of the cluster.",
                "properties": {
                    "enabled": flag("Whether the feature is on."),
                    "reason": text("Why."),
                    "source": text("Where the value comes from."),
                    "explicit": flag("Whether a member set it."),
                    "sinceIndex": {"type": "integer", "format": "int64", "description": "The log index of the decision."},
                    "votes": {
                        "type": "array",
                        "description": "What each member asks for.",
                        "items": {
                            "type": "object",
                            "properties": {
                                "member": text("The id of the member."),
                                "vote": text("What it asks for."),
                                "ifPromoted": text("What a learner would ask for."),
                            },
                        },
                    },
                    "voteSummary": text("The votes in one line."),
                },
            },
        },
    });
    let columns = Columns::named()
        .column("Level", "string", ".spec.level")?
        .column("Stage", "string", ".spec.stage")?
        .column("Enabled", "boolean", ".status.enabled")?
        .column("Since", "integer", ".status.sinceIndex")?
        .column("Reason", "string", ".status.reason")?
        .wide_column("Default", "boolean", ".spec.default")?
        .wide_column("Locked", "boolean", ".spec.locked")?
        .wide_column("Votes", "string", ".status.voteSummary")?;
    let version = VersionDefinition::new("v1alpha1", Lifecycle::always(), schema)?;
    Ok(Definition::new(LIFECYCLE_GROUP, KIND, "featuregates")
        .cluster_scoped()
        .with_short_names(["fg"])
        .with_version(version.served_by_default(true).with_columns(columns))
        .from_collection(objects))
}

/// Publishes the status of the features now and after each decision. The first answer of the
/// store, good or bad, is reported to `first`.
pub async fn follow(store: Client, objects: CollectionPublisher, first: oneshot::Sender<()>) {
    let mut first = Some(first);
    let mut decisions = store.gate_watch(WatchRequest { after_index: 0 });
    let mut has_logged = false;
    loop {
        let request = FeatureGateStatusRequest {
            all_known: true,
            ..FeatureGateStatusRequest::default()
        };
        match store.feature_gate_status(request).await {
            Ok(status) => {
                has_logged = false;
                let details = status.details.iter();
                let found = details.map(|detail| (detail.name.clone(), object(detail)));
                objects.publish(found.collect::<BTreeMap<String, Value>>());
            }
            Err(error) => {
                if !has_logged {
                    log(&error);
                }
                if has_logged {
                    sleep(RETRY_PAUSE).await;
                }
                has_logged = true;
            }
        }
        if let Some(first) = first.take() {
            // The start of the server may not wait any more.
            let _ = first.send(());
        }
        // A decision, the time, or a store without decisions: each is a reason to read again.
        if let Ok(Err(_)) = timeout(REFRESH_INTERVAL, decisions.next()).await {
            sleep(REFRESH_INTERVAL).await;
        }
    }
}

fn log(error: &ClientError) {
    if error.is_unimplemented() {
        tracing::info!("the store has no cluster features: the resource featuregates is empty");
    } else {
        tracing::warn!(%error, "reading the feature gates of the store failed; retrying");
    }
}

fn object(detail: &FeatureGateDetail) -> Value {
    let votes = detail.votes.iter().map(vote);
    json!({
        "apiVersion": format!("{LIFECYCLE_GROUP}/v1alpha1"),
        "kind": KIND,
        "metadata": {"name": detail.name},
        "spec": {
            "level": detail.level,
            "stage": detail.stage,
            "default": detail.default,
            "locked": detail.locked,
            "version": detail.version_used,
        },
        "status": {
            "enabled": detail.enabled,
            "reason": detail.reason,
            "source": detail.source,
            "explicit": detail.explicit,
            "sinceIndex": detail.since_index,
            "votes": votes.collect::<Vec<Value>>(),
            "voteSummary": vote_summary(&detail.votes),
        },
    })
}

fn vote(vote: &FeatureGateVote) -> Value {
    let mut object = json!({"member": format!("{:x}", vote.member_id), "vote": vote.vote});
    if !vote.if_promoted.is_empty() {
        object["ifPromoted"] = json!(vote.if_promoted);
    }
    object
}

fn vote_summary(votes: &[FeatureGateVote]) -> String {
    let votes = votes.iter();
    let votes = votes.map(|vote| format!("{:x}: {}", vote.member_id, vote.vote));
    votes.collect::<Vec<String>>().join(", ")
}
