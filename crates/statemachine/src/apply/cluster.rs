//! Requests about the cluster itself: its version and params, attributes of members, downgrades.

use portunus_gates::MajorMinor;
use portunus_gates::cluster::AppliedParams;
use portunus_proto::membershippb::{
    Attributes, ClusterMemberAttrSetRequest, ClusterVersionSetRequest, DowngradeInfoSetRequest,
};

use super::StateMachine;
use crate::command::ClusterCommand;
use crate::decision_cause::version_change;
use crate::effect::{Applied, Effect};
use crate::entry_error::EntryError;
use crate::feature_data;
use crate::membership::{DowngradeRecord, MemberRecord, ParamsDecision};
use crate::params::{check_member_version, digest, from_message};

impl StateMachine {
    pub(super) fn apply_cluster(
        &mut self,
        index: u64,
        command: ClusterCommand,
    ) -> Result<Applied, EntryError> {
        let mut effects = match command {
            ClusterCommand::Version(set) => self.apply_version(index, &set)?,
            ClusterCommand::MemberAttributes(set) => self.apply_attributes(index, set)?,
            ClusterCommand::Downgrade(set) => self.apply_downgrade(index, set)?,
        };
        self.review_gated();
        effects.push(Effect::MembershipChanged);
        if self.membership.params_since() == Some(index) {
            self.take_view();
            self.log_params(index);
            effects.push(Effect::ParamsDecided);
        }
        Ok(Applied {
            effects,
            ..Applied::without_request()
        })
    }

    fn apply_version(
        &mut self,
        index: u64,
        set: &ClusterVersionSetRequest,
    ) -> Result<Vec<Effect>, EntryError> {
        let own = self.settings.version;
        let Ok(version) = set.ver.parse::<MajorMinor>() else {
            return Err(EntryError::Unsupported {
                index,
                what: "a cluster version that is no version",
            });
        };
        if version > own {
            return Err(EntryError::ClusterVersionTooHigh {
                cluster: set.ver.clone(),
                own: own.to_string(),
            });
        }
        if set.cluster_params.is_some() && self.membership.is_stale_version(version) {
            // The leader that decided was replaced before the decision was in the log.
            tracing::warn!(cluster_version = %version, index, "an outdated decision was not taken");
            return Ok(Vec::new());
        }
        let params = set.cluster_params.as_ref().and_then(from_message);
        let current = self.membership.params.as_ref();
        match self.specs.applied(version, params, current) {
            Ok(applied) => self.take_version(index, version, set, applied)?,
            // The same entry has no effect on any member.
            Err(error) => {
                tracing::error!(%error, cluster_version = %version, index, "cluster version refused");
            }
        }
        Ok(Vec::new())
    }

    fn take_version(
        &mut self,
        index: u64,
        version: MajorMinor,
        set: &ClusterVersionSetRequest,
        applied: AppliedParams,
    ) -> Result<(), EntryError> {
        let fault = |source| EntryError::Membership { index, source };
        let before = self.membership.cluster_version;
        let decision = ParamsDecision {
            index,
            cluster_version: version.to_string(),
            params: None,
            decided_unix_seconds: set.decided_unix_seconds,
            decided_by: set.decided_by,
            // What the leader wrote, or the change of version for an entry without params.
            cause: match &set.cluster_params {
                Some(_) => set.cause.clone(),
                None => version_change(before, version).unwrap_or_default(),
            },
        };
        let store = &mut self.store;
        self.membership
            .set_cluster_version(store, version)
            .map_err(fault)?;
        self.membership
            .set_params(store, applied, decision)
            .map_err(fault)?;
        if before > Some(version) {
            tracing::info!(cluster_version = %version, "the server is ready to downgrade");
            let removed = feature_data::remove_beyond(&mut self.store, version)
                .map_err(|source| EntryError::Store { index, source })?;
            if !removed.is_empty() {
                tracing::info!(features = removed.join(","), cluster_version = %version, "data of features removed");
            }
            // A member of the lower version may start from this log.
            self.gated.request_forget();
        }
        tracing::info!(cluster_version = %version, "cluster version decided");
        Ok(())
    }

    fn apply_attributes(
        &mut self,
        index: u64,
        set: ClusterMemberAttrSetRequest,
    ) -> Result<Vec<Effect>, EntryError> {
        let id = set.member_id;
        match &set.member_attributes {
            Some(attributes) => self.take_attributes(index, id, attributes),
            None => Ok(Vec::new()),
        }
    }

    fn take_attributes(
        &mut self,
        index: u64,
        id: u64,
        attributes: &Attributes,
    ) -> Result<Vec<Effect>, EntryError> {
        let before = self.membership.clone();
        let record = self
            .membership
            .set_attributes(&mut self.store, id, attributes)
            .map_err(|source| EntryError::Membership { index, source })?;
        let mut effects = vec![Effect::MemberStarted { id }];
        let Some(record) = record else {
            return Ok(effects);
        };
        if begins_to_propose(before.get(id), record) {
            effects.push(Effect::RepublishProposal);
        }
        let checked = check_member_version(&self.specs, &before, record, self.settings.version);
        match checked {
            Ok(()) => {}
            // Founders compare their versions before they publish them, so in a new cluster this
            // version was published before a restart with another one.
            Err(error) if error.new_cluster => {
                tracing::debug!(%error, index, "member of a new cluster had another version");
            }
            // Published by this process, or by an earlier one with the same version. A process
            // with another version applies it: otherwise the member could never start again.
            Err(source)
                if id == self.settings.member_id && source.theirs == self.settings.version =>
            {
                return Err(EntryError::MixedVersions { index, source });
            }
            // A member that was left behind, and may have published long ago. The others go on.
            Err(error) => {
                tracing::warn!(%error, index, "member version is incompatible with the cluster version");
            }
        }
        tracing::debug!(index, member = %format_args!("{id:x}"), "member attributes applied");
        Ok(effects)
    }

    fn apply_downgrade(
        &mut self,
        index: u64,
        set: DowngradeInfoSetRequest,
    ) -> Result<Vec<Effect>, EntryError> {
        let downgrade = DowngradeRecord {
            target_version: set.ver,
            enabled: set.enabled,
        };
        self.membership
            .set_downgrade(&mut self.store, downgrade)
            .map_err(|source| EntryError::Membership { index, source })?;
        Ok(Vec::new())
    }

    /// Logs the decided params. Members can be compared by index and digest.
    fn log_params(&self, index: u64) {
        let params = self.membership.params.as_ref();
        let features = params.iter().flat_map(|params| &params.features);
        let on = features.filter(|(_, enabled)| **enabled);
        let on: Vec<&str> = on.map(|(name, _)| name.as_str()).collect();
        tracing::info!(
            index,
            digest = %format_args!("{:08x}", digest(params)),
            version = params.map(|params| params.version.to_string()),
            on = on.join(","),
            "cluster features decided"
        );
    }
}

/// Whether a member that had started without a proposal publishes one now.
fn begins_to_propose(before: Option<&MemberRecord>, now: &MemberRecord) -> bool {
    let had_none = before.is_some_and(|it| !it.name.is_empty() && it.proposal.is_none());
    had_none && now.proposal.is_some()
}
