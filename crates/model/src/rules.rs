//! The functions of the gates, called with the types of the model.
//!
//! This module has no rules of its own. The functions are pure and called millions of times
//! with the same arguments, so each thread caches their results.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

use portunus_gates::cluster::{
    AppliedParams, ClusterParams, ClusterSpecs, Member, MemberId, Outcome, Previous, Proposal,
    Publication, leader_outcome,
};
use portunus_gates::{MajorMinor, RegisterError, Spec, Versions};

use crate::features::{self, FEATURES, NAMES, flags_by_name};
use crate::replica::{Attributes, Params, Record, Records};

/// The features of the model and the rules about them.
pub struct Rules {
    specs: ClusterSpecs,
}

/// The effect of a version request on the params.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamsEffect {
    /// The entry has no effect.
    Refused,
    /// The params stay.
    Keep,
    /// The params are replaced by these, or deleted.
    Replace(Option<Params>),
}

/// The params a leader should propose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamsProposal {
    /// No change of the params.
    Nothing,
    /// These params, or their deletion.
    Propose(Option<Params>),
}

type Cache<K, V> = RefCell<HashMap<K, V>>;

thread_local! {
    static DECIDED: Cache<(MajorMinor, Records, Option<Params>, bool), ParamsProposal> =
        RefCell::default();
    static APPLIED: Cache<(MajorMinor, Option<Params>, Option<Params>), ParamsEffect> =
        RefCell::default();
    static ENABLED: Cache<Option<Params>, [bool; FEATURES]> = RefCell::default();
}

fn cached<K: Eq + Hash, V: Copy>(cache: &Cache<K, V>, key: K, compute: impl FnOnce(&K) -> V) -> V {
    let known = cache.borrow().get(&key).copied();
    known.unwrap_or_else(|| {
        let value = compute(&key);
        cache.borrow_mut().insert(key, value);
        value
    })
}

impl Rules {
    /// Registers the features of the model.
    ///
    /// # Errors
    /// The features of the model are not legal.
    pub(crate) fn new() -> Result<Self, RegisterError> {
        Ok(Self {
            specs: features::specs()?,
        })
    }

    /// Returns the features.
    #[must_use]
    pub fn specs(&self) -> &ClusterSpecs {
        &self.specs
    }

    /// Returns the spec of a feature, by position, at a cluster version.
    #[must_use]
    pub fn spec(&self, feature: usize, version: MajorMinor) -> Option<Spec> {
        let known = self.specs.registry().get(NAMES[feature]);
        known.map(|known| known.at(Versions::exactly(version)).spec)
    }

    /// Returns the decision of a leader at a version; `proposes` is whether it publishes a
    /// proposal itself.
    #[must_use]
    pub fn decide(
        &self,
        version: MajorMinor,
        records: &Records,
        params: Option<Params>,
        proposes: bool,
    ) -> ParamsProposal {
        let compute =
            |(version, records, params, proposes): &(_, Records, Option<Params>, bool)| {
                let known = records.iter().enumerate();
                let members: Vec<Member> = known
                    .filter_map(|(place, record)| Some(member(place, &(*record)?)))
                    .collect();
                let previous = match params {
                    Some(params) => Previous::Decided(to_gates(params)),
                    None => Previous::Absent,
                };
                match leader_outcome(&self.specs, *version, &members, &previous, *proposes) {
                    Outcome::Set(params) => ParamsProposal::Propose(Some(from_gates(&params))),
                    Outcome::Delete => ParamsProposal::Propose(None),
                    Outcome::Hold(_) | Outcome::Unchanged => ParamsProposal::Nothing,
                }
            };
        DECIDED.with(|it| cached(it, (version, *records, params, proposes), compute))
    }

    /// Returns what applying a version request does to the stored params.
    #[must_use]
    pub fn effect_of_version(
        &self,
        version: MajorMinor,
        params: Option<Params>,
        stored: Option<Params>,
    ) -> ParamsEffect {
        type Key = (MajorMinor, Option<Params>, Option<Params>);
        let compute = |(version, params, stored): &Key| match self.specs.applied(
            *version,
            params.as_ref().map(to_gates),
            stored.as_ref().map(to_gates).as_ref(),
        ) {
            Err(_) => ParamsEffect::Refused,
            Ok(AppliedParams::Keep) => ParamsEffect::Keep,
            Ok(AppliedParams::Delete) => ParamsEffect::Replace(None),
            Ok(AppliedParams::Replace(params)) => ParamsEffect::Replace(Some(from_gates(&params))),
        };
        APPLIED.with(|it| cached(it, (version, params, stored), compute))
    }

    /// Returns which features are on with these params.
    #[must_use]
    pub fn enabled(&self, params: Option<Params>) -> [bool; FEATURES] {
        let compute = |params: &Option<Params>| {
            let params = params.as_ref().map(to_gates);
            NAMES.map(|name| {
                let params = params.as_ref();
                params.is_some_and(|params| params.enabled(self.specs.registry(), name))
            })
        };
        ENABLED.with(|it| cached(it, params, compute))
    }

    /// Returns whether a member of version `own` accepts the published version of a member.
    #[must_use]
    pub fn accepts_version(
        &self,
        own: MajorMinor,
        cluster_version: Option<MajorMinor>,
        downgrade: Option<MajorMinor>,
        place: usize,
        record: &Record,
    ) -> bool {
        let member = member(place, record);
        let checked = self
            .specs
            .check_member_version(own, cluster_version, downgrade, &member);
        checked.is_ok()
    }
}

fn to_gates(params: &Params) -> ClusterParams {
    ClusterParams {
        version: params.version,
        features: flags_by_name(&params.values),
    }
}

fn from_gates(params: &ClusterParams) -> Params {
    Params {
        version: params.version,
        values: NAMES.map(|name| params.features.get(name).copied()),
    }
}

fn member(place: usize, record: &Record) -> Member {
    Member {
        id: MemberId(place as u64 + 1),
        name: String::new(),
        voter: record.is_voter,
        started: record.attributes != Attributes::Nothing,
        publication: match record.attributes {
            Attributes::Nothing => Publication::Nothing,
            Attributes::Foreign => Publication::Foreign,
            Attributes::Proposal(version, flags) => Publication::Proposal(Proposal {
                version,
                flags: flags_by_name(&flags),
            }),
        },
    }
}
