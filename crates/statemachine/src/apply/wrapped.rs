//! Wrapped requests, and entries that only members which know cluster features may read.

use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WrappedRequest;

use super::{Local, Origin, StateMachine};
use crate::effect::Applied;
use crate::entry_error::EntryError;
use crate::wrap;

impl StateMachine {
    /// Unwraps a request and applies it, if the features that it requires are on at this index.
    pub(super) fn apply_wrapped(
        &mut self,
        index: u64,
        origin: &Origin,
        wrapped: &WrappedRequest,
        local: &Local<'_>,
    ) -> Result<Applied, EntryError> {
        self.gated
            .add(index, wrap::readable_since(wrapped.packing()));
        let required = wrapped.required_features.iter().map(String::as_str);
        if self.view.require(required).is_err() {
            return Ok(Applied {
                request_id: origin.request_id,
                answer: Err(EtcdError::RequiredFeatureOff),
                ..Applied::without_request()
            });
        }
        let request = wrap::open(wrapped).map_err(|source| EntryError::Unwrap { index, source })?;
        self.apply_request(index, origin, request, local)
    }

    /// Notes an entry that was applied while a cluster feature was on.
    pub(super) fn note_gated(&mut self, index: u64) {
        if self.has_feature {
            self.gated.add(index, CLUSTER_PARAMS_SINCE);
        }
    }

    /// Follows a change of members or features.
    pub(super) fn review_gated(&mut self) {
        self.has_feature = self.membership.has_feature();
        self.gated.review();
    }

    /// Has the log shortened if it holds entries that a member may be unable to read.
    pub(super) fn forget_gated_if_unreadable(&mut self, knows_features: &dyn Fn(u64) -> bool) {
        let Some(readable_since) = self.gated.take_review() else {
            return;
        };
        let cluster_version = self.membership.cluster_version;
        let is_read_by_version = cluster_version.is_some_and(|version| version >= readable_since);
        let own_id = self.settings.member_id;
        let knows = |id: u64| id == own_id || knows_features(id);
        let mut records = self.membership.iter();
        let is_held_back =
            self.has_feature || records.all(|it| it.proposal.is_some() || knows(it.id));
        if !is_read_by_version || !is_held_back {
            self.gated.forget();
        }
    }
}
