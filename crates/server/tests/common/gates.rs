//! Cluster features of a [`Cluster`]: querying them, changing them as an operator would, and
//! clients that require one of them all the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portunus_proto::etcdserverpb::{FeatureGateDetail, FeatureGateStatusRequest, PutRequest};
use portunus_proto::membershippb::ClusterParamsDecision;
use portunus_proto::portunuspb::HistoryRequest;
use portunus_proto::portunuspb::feature_gates_client::FeatureGatesClient;
use portunus_proto::wire::metadata::REQUIRE_FEATURE;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use super::cluster::Cluster;
use super::requests::{put, range};
use super::{POLL_INTERVAL, WAIT_MAX, eventually};

/// Makes a member propose cluster features.
pub const MECHANISM: &str = "--feature-gates=ClusterFeatureGate=true";
/// Makes a member propose none.
pub const NO_MECHANISM: &str = "--feature-gates=ClusterFeatureGate=false";
/// Allows a member to write data that only the newest version reads.
pub const NEWEST_ONLY: &str = "--min-compatibility-version=3.8";
/// The feature that shows in the data.
pub const TAG: &str = "ApplyTag";

/// Returns a flag that proposes these features.
pub fn wants(features: &str) -> String {
    format!("--cluster-feature-gates={features}")
}

/// Wraps a request that requires a feature.
pub fn requiring<T>(feature: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let names = request.metadata_mut();
    names.append(REQUIRE_FEATURE, feature.parse().unwrap());
    request
}

/// Returns the status of a feature at a member.
pub async fn detail(cluster: &Cluster, member: usize, feature: &str) -> FeatureGateDetail {
    let what = format!("the word of m{member} on {feature}");
    eventually(&what, async || told(cluster, member, feature).await).await
}

/// Returns the status of a feature at a member; `None` while it does not respond.
async fn told(cluster: &Cluster, member: usize, feature: &str) -> Option<FeatureGateDetail> {
    let request = FeatureGateStatusRequest {
        features: vec![feature.to_owned()],
        all_known: true,
        ..FeatureGateStatusRequest::default()
    };
    let mut clients = cluster.clients(member);
    let answer = clients.maintenance.feature_gate_status(request).await;
    let answer = answer.ok()?.into_inner();
    let detail = answer.details.into_iter().next()?;
    assert_eq!(answer.features[0].enabled, detail.enabled);
    Some(detail)
}

/// Waits until every running member reports this value; returns the index that decided it.
/// Before the first decision of a new cluster everything is off since index 0: a member that is
/// queried meanwhile returns that or the decision, so members that differ are queried again.
pub async fn until_feature(cluster: &Cluster, feature: &str, enabled: bool) -> u64 {
    let mut views = Vec::new();
    let deadline = Instant::now() + WAIT_MAX;
    while Instant::now() < deadline {
        views.clear();
        for member in cluster.running() {
            let view = told(cluster, member, feature).await;
            views.push(view.map(|detail| (detail.enabled, detail.since_index)));
        }
        if let [Some((on, since)), ..] = views[..]
            && on == enabled
            && views.iter().all(|other| *other == views[0])
        {
            return since;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("waited in vain for {feature}={enabled}; (enabled, since) of each member: {views:?}");
}

/// Restarts a member cleanly with other flags.
pub async fn restart_with(cluster: &mut Cluster, member: usize, flags: &[String]) {
    cluster.stop(member).await;
    cluster.members[member].flags = flags.to_vec();
    cluster.start_one(member).await;
}

fn gates_client(cluster: &Cluster, member: usize) -> FeatureGatesClient<Channel> {
    let url = format!("http://{}", cluster.members[member].client);
    FeatureGatesClient::new(Endpoint::from_shared(url).unwrap().connect_lazy())
}

/// Returns the decisions in the history of a member.
pub async fn history(cluster: &Cluster, member: usize) -> Vec<ClusterParamsDecision> {
    decisions(cluster.clients(member).channel).await
}

/// Returns the decisions that the member of a connection has applied.
pub async fn decisions(channel: Channel) -> Vec<ClusterParamsDecision> {
    let request = HistoryRequest { serializable: true };
    let answer = FeatureGatesClient::new(channel).history(request).await;
    answer.unwrap().into_inner().decisions
}

/// Opens a stream of decisions.
pub async fn watch_gates(
    cluster: &Cluster,
    member: usize,
    after_index: u64,
) -> tonic::Streaming<portunus_proto::portunuspb::WatchResponse> {
    let request = portunus_proto::portunuspb::WatchRequest { after_index };
    let answer = gates_client(cluster, member).watch(request).await;
    answer.unwrap().into_inner()
}

/// Waits until all members have the same decisions at the same indexes, and the same data, in
/// which the feature [`TAG`] shows where it was on.
pub async fn agree_on_gates(cluster: &Cluster) -> Vec<ClusterParamsDecision> {
    cluster.agree().await;
    agree_on_decisions(cluster).await
}

/// Waits until all members have the same decisions at the same indexes. A difference persists,
/// because decisions are only ever added: a member that is merely behind is waited for.
pub async fn agree_on_decisions(cluster: &Cluster) -> Vec<ClusterParamsDecision> {
    let mut histories = Vec::new();
    let deadline = Instant::now() + WAIT_MAX;
    while Instant::now() < deadline {
        histories.clear();
        for member in cluster.running() {
            histories.push(history(cluster, member).await);
        }
        if histories.iter().all(|history| *history == histories[0]) {
            return histories.swap_remove(0);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("members differ on what was decided: {histories:#?}");
}

/// The outcomes of the requests of one client.
#[derive(Default)]
struct Told {
    /// Keys whose put was acknowledged.
    done: Vec<String>,
    /// Keys whose put was refused because the feature is off.
    refused: Vec<String>,
}

/// Clients that put keys and require [`TAG`] for each.
pub struct Requiring {
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Told>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Requiring {
    /// Starts one client for each running member.
    pub fn start(cluster: &Cluster) -> Requiring {
        let load = Requiring {
            stop: Arc::default(),
            told: Arc::default(),
            tasks: Vec::new(),
        };
        let unique = Arc::new(AtomicU64::new(0));
        let tasks = cluster.running().into_iter().map(|member| {
            let mut clients = cluster.clients(member);
            let (stop, told) = (Arc::clone(&load.stop), Arc::clone(&load.told));
            let unique = Arc::clone(&unique);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let number = unique.fetch_add(1, Ordering::Relaxed);
                    let key = format!("/apply-tag/{number}");
                    // Long and repetitive, so that it can be compressed.
                    let value = "v".repeat(600);
                    let message: PutRequest = put(&key, &value);
                    let asked = clients.kv.put(requiring(TAG, message));
                    let answer = tokio::time::timeout(Duration::from_secs(3), asked).await;
                    match answer {
                        Ok(Ok(_)) => told.lock().unwrap().done.push(key),
                        Ok(Err(status)) if status.code() == Code::FailedPrecondition => {
                            told.lock().unwrap().refused.push(key);
                        }
                        _ => {}
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        Requiring { tasks, ..load }
    }

    /// Waits until some more requests were served, or refused.
    pub async fn until_more(&self, served: bool) {
        let count = || {
            let told = self.told.lock().unwrap();
            if served {
                told.done.len()
            } else {
                told.refused.len()
            }
        };
        let before = count();
        eventually("answers to requests that require a feature", async || {
            (count() >= before + 10).then_some(())
        })
        .await;
    }

    /// Ends the load. Checks on every member that acknowledged puts were applied with the
    /// feature on, and that refused puts were not applied.
    pub async fn judge(self, cluster: &Cluster) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let Told { done, refused } = std::mem::take(&mut *self.told.lock().unwrap());
        eprintln!(
            "{} requests were served with the feature, {} refused without",
            done.len(),
            refused.len()
        );
        for member in cluster.running() {
            // Linearizable, so every member shows all acknowledged puts.
            let request = range("/apply-tag/", "/apply-tag0");
            let found = cluster.clients(member).kv.range(request).await.unwrap();
            let found: std::collections::BTreeMap<String, String> = found
                .into_inner()
                .kvs
                .into_iter()
                .map(|kv| {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    (text(&kv.key), text(&kv.value))
                })
                .collect();
            for key in &done {
                let value = found.get(key).unwrap_or_else(|| panic!("{key} is lost"));
                assert!(
                    value.contains("v@"),
                    "{key} was written without the feature"
                );
            }
            for key in &refused {
                assert!(!found.contains_key(key), "{key} was refused and written");
            }
        }
    }
}
