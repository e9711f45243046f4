//! Wrapped requests (see [`crate::member::wrap`]), and keeping them from members that
//! cannot read them.
//!
//! Whoever proposes wraps only while all members understand it and the cluster decided so.
//! That may change while a proposal is under way, and entries from before stay in the log.
//! So where a wrapped entry is not welcome any more, the log up to it is forgotten at once:
//! a member that comes or comes back gets a snapshot instead.

use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_gates::MajorMinor;
use portunus_gates::cluster::require;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WrappedRequest;
use portunus_proto::etcdserverpb::wrapped_request::Packing;

use super::entry::Outcome;
use super::{Applier, ApplyFaultError};
use crate::member::wrap;

/// The first version that unpacks requests: that of the feature `LogCompression`.
const PACKED_SINCE: MajorMinor = MajorMinor::literal("3.8");

/// Where in the log wrapped entries are.
#[derive(Debug)]
pub(super) struct WrappedEntries {
    /// The last one that may still be in the log; 0 if there is none.
    last: u64,
    /// The first version that reads all of them.
    readable_since: MajorMinor,
    /// Whether something changed about who may read them.
    is_in_question: bool,
    forget_to: Option<u64>,
}

impl WrappedEntries {
    pub(super) fn up_to(last: u64) -> WrappedEntries {
        WrappedEntries {
            last,
            // Which ones they are is not looked into.
            readable_since: PACKED_SINCE,
            is_in_question: last > 0,
            forget_to: None,
        }
    }

    /// Members or features have changed.
    pub(super) fn review(&mut self) {
        self.is_in_question = true;
    }

    fn saw(&mut self, index: u64, readable_since: MajorMinor) {
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

impl Applier {
    /// Opens a wrapped request and applies it, if what it requires is on at this index.
    pub(super) fn apply_wrapped(
        &mut self,
        index: u64,
        request_id: u64,
        wrapped: &WrappedRequest,
    ) -> Result<Outcome, ApplyFaultError> {
        self.wrapped.saw(
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
        self.wrapped.forget_to = Some(index);
    }

    /// Called when a batch is applied.
    pub(super) fn forget_wrapped_if_unwelcome(&mut self) {
        if !std::mem::take(&mut self.wrapped.is_in_question) || self.wrapped.last == 0 {
            return;
        }
        let is_read_by_version = self
            .membership
            .cluster_version
            .is_some_and(|version| version >= self.wrapped.readable_since);
        if !is_read_by_version || !self.membership.all_know_gates() {
            self.forget_log_to(self.wrapped.last);
            self.wrapped.last = 0;
        }
    }
}
