//! Requests whose metadata requires cluster features.
//!
//! The requirement is checked when the request arrives, again after the read barrier, and for
//! writes again when the entry is applied, with the same result on every member.

use std::sync::Arc;

use arc_swap::Guard;
use portunus_mvcc::Reader;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::wire::metadata::REQUIRE_FEATURE;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::Api;
use super::authorize::Permit;
use portunus_statemachine as statemachine;

/// The feature names in the metadata of a request; mostly none.
#[derive(Debug, Clone, Default)]
pub(super) struct Required {
    names: Vec<String>,
}

impl Required {
    /// Reads the metadata: the key may be repeated, and a value may hold several names.
    fn of(metadata: &MetadataMap) -> Required {
        let values = metadata.get_all(REQUIRE_FEATURE).iter();
        let text = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let names = text.flat_map(|text| {
            let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
            names
        });
        Required {
            names: names.collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl Api {
    /// Returns the required features after checking them against this member's applied state.
    /// With authentication they are checked once the caller is known: their values are not for
    /// anyone.
    pub(super) fn required(&self, metadata: &MetadataMap) -> Result<Required, Status> {
        let required = Required::of(metadata);
        if !self.member.auth.state().is_enabled() {
            self.check_required(&required)?;
        }
        Ok(required)
    }

    /// Fails if a required feature is disabled in the state that this member has applied.
    pub(super) fn check_required(&self, required: &Required) -> Result<(), Status> {
        if required.is_empty() {
            return Ok(());
        }
        let names = required.names.iter().map(String::as_str);
        let view = self.member.cluster.gates.newest();
        view.require(names).map_err(|off| {
            let text = format!("etcdserver: {off}");
            Status::new(Code::FailedPrecondition, text)
        })
    }

    /// Waits until this member has applied what was committed before, unless the request is
    /// serializable.
    pub(super) async fn read_barrier(&self, is_serializable: bool) -> Result<(), Status> {
        if is_serializable {
            return Ok(());
        }
        let barrier = self.member.store.linearizable().await;
        barrier.map_err(|error| self.refuse(error))
    }

    /// Returns the store that a permitted request reads from, after the
    /// [read barrier](Self::read_barrier), and checks the required features as of then. A snapshot
    /// of the leader may replace the store during the barrier, so the reader is taken afterwards.
    pub(super) fn reader_for(
        &self,
        _permit: &Permit,
        required: &Required,
    ) -> Result<Guard<Arc<Reader>>, Status> {
        self.check_required(required)?;
        Ok(self.member.store.reader())
    }

    /// Proposes a request that takes effect only where its required features are enabled.
    pub(super) async fn proposed(
        &self,
        request: InternalRaftRequest,
        required: &Required,
        permit: &Permit,
    ) -> Result<statemachine::Response, Status> {
        if self.member.auth.state().is_enabled() {
            self.check_required(required)?;
        }
        let proposals = &self.member.proposals;
        let proposed = proposals.propose_requiring(request, &required.names, &permit.caller);
        proposed.await.map_err(|error| match error {
            EtcdError::RequiredFeatureOff => Status::new(
                error.code(),
                format!("{}: {}", error.text(), required.names.join(", ")),
            ),
            error => self.refuse(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_every_value() {
        let mut metadata = MetadataMap::new();
        assert!(Required::of(&metadata).is_empty());
        metadata.append(REQUIRE_FEATURE, "A, B".parse().unwrap());
        metadata.append(REQUIRE_FEATURE, "C".parse().unwrap());
        assert_eq!(Required::of(&metadata).names, ["A", "B", "C"]);
    }
}
