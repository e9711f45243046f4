//! The history of cluster params: earlier decisions, and a watch for new ones.

use std::pin::Pin;
use std::sync::Arc;

use portunus_proto::membershippb::{ClusterParams, ClusterParamsDecision, Feature};
use portunus_proto::portunuspb::feature_gates_server::FeatureGates;
use portunus_proto::portunuspb::{HistoryRequest, HistoryResponse, WatchRequest, WatchResponse};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::access::Rpc;
use super::{Api, Kind};
use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_proto::EtcdError;

const SERVICE: &str = "portunuspb.FeatureGates";

type Decisions = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl FeatureGates for Api {
    async fn history(
        &self,
        request: Request<HistoryRequest>,
    ) -> Result<Response<HistoryResponse>, Status> {
        self.check_method(CLUSTER_PARAMS_SINCE, SERVICE, "History")?;
        let required = self.check_metadata_for_learners(Kind::Unary, request.metadata())?;
        self.read_barrier(request.get_ref().serializable).await?;
        let permit = self.authorize(Rpc::GateHistory, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        Ok(Response::new(HistoryResponse {
            header: Some(
                self.member
                    .store
                    .header(self.member.store.reader().revision()),
            ),
            decisions: self.decisions().as_ref().clone(),
        }))
    }

    type WatchStream = Decisions;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Decisions>, Status> {
        self.check_method(CLUSTER_PARAMS_SINCE, SERVICE, "Watch")?;
        let required = self.check_metadata_for_learners(Kind::Stream, request.metadata())?;
        let permit = self.authorize(Rpc::GateWatch, request.metadata(), request.extensions());
        let permit = permit.await?;
        self.check_required(&required)?;
        let after_index = request.get_ref().after_index;
        let api = self.clone();
        let mut changes = api.member.cluster.gates.subscribe();
        let stream = async_stream::stream! {
            let mut told = after_index;
            if told == 0 {
                let first = api.holds_now();
                told = first.decision.as_ref().map_or(0, |decision| decision.index);
                yield Ok(first);
            }
            loop {
                for response in api.decisions_after(told) {
                    told = response.decision.as_ref().map_or(told, |decision| decision.index);
                    yield Ok(response);
                }
                tokio::select! {
                    _ = changes.changed() => {}
                    () = api.member.process.stop.stopped() => {
                        yield Err(api.refuse(EtcdError::Stopped));
                        return;
                    }
                }
            }
        };
        let stream = self.while_permitted(Rpc::GateWatch, permit, Box::pin(stream));
        Ok(Response::new(Box::pin(stream)))
    }
}

impl Api {
    fn decisions(&self) -> Arc<Vec<ClusterParamsDecision>> {
        Arc::clone(&self.member.cluster.membership().history)
    }

    /// Returns the decision in force, with every enabled feature.
    fn holds_now(&self) -> WatchResponse {
        let decision = self.decisions().last().cloned().unwrap_or_default();
        let changed = differences(None, decision.params.as_ref());
        self.watch_response(decision, changed)
    }

    fn decisions_after(&self, index: u64) -> Vec<WatchResponse> {
        let decisions = self.decisions();
        let first = decisions.partition_point(|decision| decision.index <= index);
        let mut responses = Vec::new();
        for (place, decision) in decisions.iter().enumerate().skip(first) {
            let before = place
                .checked_sub(1)
                .and_then(|before| decisions.get(before));
            let before = before.and_then(|before| before.params.as_ref());
            let changed = differences(before, decision.params.as_ref());
            responses.push(self.watch_response(decision.clone(), changed));
        }
        responses
    }

    fn watch_response(
        &self,
        decision: ClusterParamsDecision,
        changed: Vec<Feature>,
    ) -> WatchResponse {
        WatchResponse {
            header: Some(
                self.member
                    .store
                    .header(self.member.store.reader().revision()),
            ),
            decision: Some(decision),
            changed,
        }
    }
}

/// Returns the features whose value differs, with the later value. An absent feature is
/// disabled.
fn differences(before: Option<&ClusterParams>, after: Option<&ClusterParams>) -> Vec<Feature> {
    let features = |params: Option<&ClusterParams>| {
        params.map_or_else(Vec::new, |params| params.feature_gates.clone())
    };
    let (before, after) = (features(before), features(after));
    let is_on = |features: &[Feature], name: &str| {
        features
            .iter()
            .any(|feature| feature.name == name && feature.enabled)
    };
    let mut names: Vec<&str> = before
        .iter()
        .chain(&after)
        .map(|it| it.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let changed = names
        .into_iter()
        .filter(|name| is_on(&before, name) != is_on(&after, name));
    changed
        .map(|name| Feature {
            name: name.to_owned(),
            enabled: is_on(&after, name),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(features: &[(&str, bool)]) -> ClusterParams {
        ClusterParams {
            version: "3.8".to_owned(),
            feature_gates: features
                .iter()
                .map(|(name, enabled)| Feature {
                    name: (*name).to_owned(),
                    enabled: *enabled,
                })
                .collect(),
        }
    }

    #[test]
    fn absent_feature_counts_as_off() {
        let on = params(&[("A", true), ("B", false)]);
        let off = params(&[("A", false), ("C", false)]);
        let names = |features: Vec<Feature>| -> Vec<(String, bool)> {
            let pairs = features.into_iter().map(|it| (it.name, it.enabled));
            pairs.collect()
        };
        let a = |enabled| vec![("A".to_owned(), enabled)];
        assert_eq!(names(differences(None, Some(&on))), a(true));
        assert_eq!(names(differences(Some(&on), Some(&off))), a(false));
        assert_eq!(names(differences(Some(&on), None)), a(false));
        assert_eq!(names(differences(Some(&off), None)), []);
    }
}
