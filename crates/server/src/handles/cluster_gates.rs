//! Cluster features in a running member: its own proposal, the decided params, and the values
//! that hold for the entry being applied.
//!
//! ```text
//!  flags ─▶ proposal ─▶ attributes ─▶ log ─▶ Membership (every member's proposal)
//!                                              │ leader: decide
//!                                              ▼
//!                    version and params in one entry ─▶ log ─▶ Membership.params ─▶ view
//! ```
//! The rules are in the crate `portunus-gates`; this module supplies their inputs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use portunus_gates::cluster::{self, ClusterSpecs, Decision, InForce, Previous};
use portunus_gates::{Gates, MajorMinor};
use tokio::sync::watch;

use crate::config::Config;
use portunus_features::{ClusterFeatureGate, OwnFeatures, ServerFeatures};
use portunus_statemachine::membership::{Membership, ProposalRecord};
use portunus_statemachine::params::{View, members};

/// Whether the server gates let this member publish a proposal.
pub fn publishes_proposal(gates: &Gates<ServerFeatures>) -> bool {
    gates.enabled(ClusterFeatureGate)
}

/// This member's proposal, and the cluster feature values in force.
pub struct ClusterGates {
    specs: ClusterSpecs,
    /// The server gate `ClusterFeatureGate`. Off, this member publishes no proposal; it still
    /// applies decided params, and as leader decides from other members' proposals.
    proposes: bool,
    /// The flags that this member proposes, as given, and its emulation version.
    own: ProposalRecord,
    /// Whether this member founded the cluster, rather than joining it.
    is_founder: bool,
    /// Whether this member has to publish its attributes once more although its own state
    /// has them: another member's state may not.
    needs_republish: AtomicBool,
    /// The values after the newest applied entry, for everything outside of apply.
    newest: ArcSwap<View>,
    /// The index of the entry that decided `newest`.
    since: watch::Sender<Option<u64>>,
}

impl ClusterGates {
    /// Starts with `newest`, the values of the state machine when the member stopped.
    pub fn new(
        own: &OwnFeatures,
        gates: &Gates<ServerFeatures>,
        config: &Config,
        newest: Arc<View>,
    ) -> ClusterGates {
        let proposes = publishes_proposal(gates);
        let flags = config
            .cluster_feature_gates
            .iter()
            .map(|(name, value, _)| (name.to_owned(), value));
        ClusterGates {
            specs: own.cluster_specs(),
            proposes,
            own: ProposalRecord {
                version: config.version.emulation().to_string(),
                flags: flags.collect(),
            },
            is_founder: !config.cluster.is_existing,
            // A snapshot of a member that does not know cluster features may have dropped
            // an earlier proposal here and not elsewhere, so the absence of one is published
            // at every start, as etcd publishes its attributes.
            needs_republish: AtomicBool::new(!proposes),
            newest: ArcSwap::new(newest),
            since: watch::Sender::new(None),
        }
    }

    /// The declared cluster features and their rules.
    pub fn specs(&self) -> &ClusterSpecs {
        &self.specs
    }

    /// The values after the newest applied entry: one atomic load.
    pub fn newest(&self) -> Guard<Arc<View>> {
        self.newest.load()
    }

    /// Publishes `view` as the newest values; `since` is the entry that decided them.
    pub fn publish_view(&self, view: Arc<View>, since: Option<u64>) {
        self.newest.store(view);
        self.since.send_replace(since);
    }

    /// Returns a receiver of every later change of values.
    pub fn subscribe(&self) -> watch::Receiver<Option<u64>> {
        self.since.subscribe()
    }

    /// Whether this member publishes a proposal.
    pub fn proposes(&self) -> bool {
        self.proposes
    }

    /// The flags this member publishes once the cluster version has cluster features.
    pub fn own_flags(&self) -> Option<&ProposalRecord> {
        self.proposes.then_some(&self.own)
    }

    /// Whether cluster features are in use: this member or another one proposes, or params were
    /// decided.
    pub fn is_in_use(&self, membership: &Membership) -> bool {
        self.proposes
            || membership.params.is_some()
            || membership.iter().any(|record| record.proposal.is_some())
    }

    /// The proposal that this member's attributes in the log should have.
    pub fn own_proposal(&self, membership: &Membership) -> Option<&ProposalRecord> {
        let is_new = self.is_founder && membership.cluster_version.is_none();
        let publishes = self.specs.publishes(membership.cluster_version, is_new);
        (self.proposes && publishes).then_some(&self.own)
    }

    /// Publishes this member's proposal once more: a member without a proposal has left or has
    /// begun to propose. If it was one that does not know cluster features, its snapshots
    /// lacked the proposals of the others, and so may the state of every member that
    /// installed one.
    pub fn republish_proposal(&self) {
        if self.proposes {
            self.republish();
        }
    }

    /// Publishes this member's attributes once more.
    pub fn republish(&self) {
        self.needs_republish.store(true, Ordering::Release);
    }

    /// Whether the attributes have to be published once more; true once per request.
    pub fn take_republish(&self) -> bool {
        self.needs_republish.swap(false, Ordering::AcqRel)
    }

    /// The decision from all members' proposals at a cluster version.
    pub fn decide(&self, membership: &Membership, version: MajorMinor) -> Decision {
        let members = members(membership);
        cluster::decide(
            &self.specs,
            Some(version),
            &members,
            &self.previous(membership),
        )
    }

    fn previous(&self, membership: &Membership) -> Previous {
        match &membership.params {
            Some(params) => Previous::Decided(params.clone()),
            None => Previous::Absent,
        }
    }

    /// The params and the cluster version in force, for explanations.
    pub fn in_force<'a>(&self, membership: &'a Membership) -> InForce<'a> {
        InForce {
            params: membership.params.as_ref(),
            cluster_version: membership.cluster_version,
            since_index: membership.params_since(),
        }
    }
}
