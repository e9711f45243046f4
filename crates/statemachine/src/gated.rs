//! Entries that only members which know cluster features may read.
//!
//! These are all entries that were applied while a feature was on, because without the feature
//! they may have another effect, and all wrapped requests (see [`crate::wrap`]). While a feature
//! is on, the leader holds the log back from members that may not know cluster features. When
//! the last feature goes off and such a member exists, the log is shortened to that point, so
//! that the member receives a snapshot. A member that merely publishes no proposal reads these
//! entries as every other member does.

use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_gates::MajorMinor;

use crate::membership::{Membership, ParamsDecision};
use crate::wrap;

/// The gated entries in the log.
#[derive(Debug)]
pub(crate) struct GatedEntries {
    /// The last one that may still be in the log; 0 if there is none.
    last: u64,
    /// The first version that reads all of them.
    readable_since: MajorMinor,
    /// Whether an entry was added, or members or features changed, since the last review.
    needs_review: bool,
    /// Whether the log has to be shortened.
    is_forget_requested: bool,
}

impl GatedEntries {
    /// Returns those of a member that starts. `last_wrapped` is the last wrapped entry of its
    /// log; 0 if there is none.
    pub(crate) fn of_log(membership: &Membership, last_wrapped: u64) -> GatedEntries {
        let last = last_wrapped.max(last_with_a_feature(membership));
        GatedEntries {
            last,
            readable_since: match last_wrapped {
                0 => CLUSTER_PARAMS_SINCE,
                // The kind of the wrapped entries is not examined.
                _ => wrap::all_readable_since(),
            },
            needs_review: true,
            is_forget_requested: false,
        }
    }

    /// Notes that members or features have changed.
    pub(crate) fn review(&mut self) {
        self.needs_review = true;
    }

    /// Adds an entry that versions from `readable_since` on can read.
    pub(crate) fn add(&mut self, index: u64, readable_since: MajorMinor) {
        self.readable_since = match self.last {
            0 => readable_since,
            _ => self.readable_since.max(readable_since),
        };
        self.last = index;
        self.needs_review = true;
    }

    /// Returns the first version that reads all entries, if there are any and a review is due.
    pub(crate) fn take_review(&mut self) -> Option<MajorMinor> {
        let needs_review = std::mem::take(&mut self.needs_review);
        (needs_review && self.last > 0).then_some(self.readable_since)
    }

    /// Requests that the log is shortened by these entries.
    pub(crate) fn forget(&mut self) {
        self.request_forget();
        self.last = 0;
    }

    /// Requests that the log is shortened.
    pub(crate) fn request_forget(&mut self) {
        self.is_forget_requested = true;
    }

    /// Whether the log has to be shortened; true once per request.
    pub(crate) fn take_forget_request(&mut self) -> bool {
        std::mem::take(&mut self.is_forget_requested)
    }
}

/// The last entry that was applied with a feature on, as far as decisions are kept.
fn last_with_a_feature(membership: &Membership) -> u64 {
    if membership.has_feature() {
        return u64::MAX;
    }
    let is_on = |decision: &ParamsDecision| {
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
    fn last_index_with_a_feature_is_derived_from_the_decisions() {
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
