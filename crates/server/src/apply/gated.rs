//! Entries that only members who know cluster features may read, and keeping them from
//! others.
//!
//! That is every entry applied while a feature was on, as it may have done something else
//! than it would without, and every wrapped request (see [`crate::member::wrap`]). While a
//! feature is on, members that may not know it are not sent the log at all
//! (`peers/strangers.rs`). When the last one goes off and such a member is there, the log
//! before is forgotten, so that it gets a snapshot. A member that merely proposes nothing
//! reads these entries as every other one does.

use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_gates::MajorMinor;
use portunus_gates::cluster::require;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WrappedRequest;
use portunus_proto::etcdserverpb::wrapped_request::Packing;

use super::entry::Outcome;
use super::{Applier, ApplyFaultError};
use crate::member::membership::Membership;
use crate::member::wrap::{self, PACKED_SINCE};

/// Where in the log such entries are.
#[derive(Debug)]
pub(super) struct GatedEntries {
    /// The last one that may still be in the log; 0 if there is none.
    last: u64,
    /// The first version that reads all of them.
    readable_since: MajorMinor,
    /// Whether one came, or something changed about who may read them.
    is_in_question: bool,
    forget_to: Option<u64>,
}

impl GatedEntries {
    /// Of a member that starts: `last_wrapped` is in its log.
    pub(super) fn found(membership: &Membership, last_wrapped: u64) -> GatedEntries {
        let last = last_wrapped.max(last_with_a_feature(membership));
        GatedEntries {
            last,
            readable_since: match last_wrapped {
                0 => CLUSTER_PARAMS_SINCE,
                // Which ones they are is not looked into.
                _ => PACKED_SINCE,
            },
            is_in_question: last > 0,
            forget_to: None,
        }
    }

    /// Members or features have changed.
    pub(super) fn review(&mut self) {
        self.is_in_question = true;
    }

    /// One was applied.
    pub(super) fn saw(&mut self, index: u64, readable_since: MajorMinor) {
        self.readable_since = match self.last {
            0 => readable_since,
            _ => self.readable_since.max(readable_since),
        };
        self.last = index;
        self.is_in_question = true;
    }

    /// Up to where the log has to be forgotten, once per need.
    pub(super) fn take_forget_order(&mut self) -> Option<u64> {
        self.forget_to.take()
    }
}

/// The last entry that was applied with a feature on, as far as decisions are kept.
fn last_with_a_feature(membership: &Membership) -> u64 {
    if membership.has_feature() {
        return u64::MAX;
    }
    let is_on = |decision: &crate::member::membership::ParamsDecision| {
        let features = decision
            .params
            .iter()
            .flat_map(|params| &params.feature_gates);
        features.into_iter().any(|feature| feature.enabled)
    };
    let history = membership.history.iter();
    // The decision after the last one with a feature ended it.
    let ends = history.clone().skip(1).zip(history);
    let ended = ends.filter(|(_, before)| is_on(before));
    ended.map(|(end, _)| end.index).max().unwrap_or(0)
}

impl Applier {
    /// Notes an entry that others may read differently.
    pub(super) fn note_gated(&mut self, index: u64) {
        if self.has_feature {
            self.gated.saw(index, CLUSTER_PARAMS_SINCE);
        }
    }

    /// Remembers whether entries from now on are such.
    pub(super) fn review_gated(&mut self) {
        self.has_feature = self.membership.has_feature();
        self.gated.review();
    }

    /// Opens a wrapped request and applies it, if what it requires is on at this index.
    pub(super) fn apply_wrapped(
        &mut self,
        index: u64,
        request_id: u64,
        wrapped: &WrappedRequest,
    ) -> Result<Outcome, ApplyFaultError> {
        self.gated.saw(
            index,
            match wrapped.packing() {
                Packing::Plain => CLUSTER_PARAMS_SINCE,
                Packing::Lz4Block => PACKED_SINCE,
            },
        );
        let required = wrapped.required_features.iter().map(String::as_str);
        let registry = self.member.cluster_gates.specs().registry();
        if require(registry, self.membership.params.as_ref(), required).is_err() {
            return Ok(Outcome {
                request_id,
                answer: Err(EtcdError::RequiredFeatureOff),
                events: None,
            });
        }
        let request =
            wrap::open(wrapped).map_err(|source| ApplyFaultError::Unwrap { index, source })?;
        self.apply_request(index, request_id, request)
    }

    /// The log up to here must not be read by anybody again.
    pub(super) fn forget_log_to(&mut self, index: u64) {
        self.gated.forget_to = Some(index);
    }

    /// Called when a batch is applied.
    pub(super) fn forget_gated_if_unwelcome(&mut self) {
        if !std::mem::take(&mut self.gated.is_in_question) || self.gated.last == 0 {
            return;
        }
        let is_read_by_version = self
            .membership
            .cluster_version
            .is_some_and(|version| version >= self.gated.readable_since);
        let is_held_back = self.has_feature || self.all_know_gates();
        if !is_read_by_version || !is_held_back {
            self.forget_log_to(self.gated.last);
            self.gated.last = 0;
        }
    }

    /// Whether every member is known to obey params: it proposes, or its `/version` said so.
    fn all_know_gates(&self) -> bool {
        let own_id = self.member.identity.member_id;
        let hold = self.member.peers.strangers();
        let knows = |id: u64| id == own_id || hold.knows_gates(id);
        let mut records = self.membership.iter();
        records.all(|record| record.proposal.is_some() || knows(record.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_proto::membershippb::{ClusterParams, ClusterParamsDecision, Feature};
    use std::sync::Arc;

    fn decided(index: u64, enabled: bool) -> ClusterParamsDecision {
        ClusterParamsDecision {
            index,
            params: Some(ClusterParams {
                version: "3.8".to_owned(),
                feature_gates: vec![Feature {
                    name: "A".to_owned(),
                    enabled,
                }],
            }),
            ..ClusterParamsDecision::default()
        }
    }

    #[test]
    fn the_last_entry_with_a_feature_is_known_from_the_decisions() {
        for (decisions, expected) in [
            (vec![], 0),
            (vec![decided(3, false)], 0),
            (
                vec![decided(3, false), decided(7, true), decided(9, false)],
                9,
            ),
            (
                vec![decided(7, true), decided(9, false), decided(12, false)],
                9,
            ),
        ] {
            let mut membership = Membership::default();
            membership.history = Arc::new(decisions);
            assert_eq!(last_with_a_feature(&membership), expected);
        }
    }
}
