//! The gates' own functions, asked in the model's terms.
//!
//! Nothing is decided here. The same questions come up millions of times, and the functions
//! are pure, so each thread keeps the answers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

use portunus_gates::cluster::{
    AppliedParams, ClusterParams, ClusterSpecs, Member, MemberId, Outcome, Previous, Proposal,
    Publication, leader_outcome,
};
use portunus_gates::{MajorMinor, RegisterError, Spec, Versions};

use crate::features::{self, FEATURES, NAMES, named};
use crate::replica::{Params, Record, Records, Said};

/// The features of the model and the rules about them.
pub struct Rules {
    specs: ClusterSpecs,
}

/// What a version request does to the params.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The entry has no effect at all.
    Refused,
    /// They stay.
    Keep,
    /// These, or none, from now on.
    Replace(Option<Params>),
}

/// What a leader should propose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// Nothing new about the params.
    Nothing,
    /// These, or that there are none.
    Propose(Option<Params>),
}

type Answers<Q, A> = RefCell<HashMap<Q, A>>;

thread_local! {
    static DECIDED: Answers<(MajorMinor, Records, Option<Params>, bool), Decided> =
        RefCell::default();
    static APPLIED: Answers<(MajorMinor, Option<Params>, Option<Params>), Applied> =
        RefCell::default();
    static ENABLED: Answers<Option<Params>, [bool; FEATURES]> = RefCell::default();
}

fn remembered<Q: Eq + Hash, A: Copy>(
    answers: &Answers<Q, A>,
    question: Q,
    ask: impl FnOnce(&Q) -> A,
) -> A {
    let known = answers.borrow().get(&question).copied();
    known.unwrap_or_else(|| {
        let answer = ask(&question);
        answers.borrow_mut().insert(question, answer);
        answer
    })
}

impl Rules {
    /// # Errors
    /// The model's features are no legal features.
    pub(crate) fn new() -> Result<Self, RegisterError> {
        Ok(Self {
            specs: features::specs()?,
        })
    }

    /// The features.
    #[must_use]
    pub fn specs(&self) -> &ClusterSpecs {
        &self.specs
    }

    /// The spec of a feature, by position, at a cluster version.
    #[must_use]
    pub fn spec(&self, feature: usize, version: MajorMinor) -> Option<Spec> {
        let known = self.specs.registry().get(NAMES[feature]);
        known.map(|known| known.at(Versions::exactly(version)).spec)
    }

    /// The decision at a version of a leader that itself proposes, or does not.
    #[must_use]
    pub fn decide(
        &self,
        version: MajorMinor,
        records: &Records,
        params: Option<Params>,
        proposes: bool,
    ) -> Decided {
        let ask = |(version, records, params, proposes): &(_, Records, Option<Params>, bool)| {
            let known = records.iter().enumerate();
            let members: Vec<Member> = known
                .filter_map(|(place, record)| Some(member(place, &(*record)?)))
                .collect();
            let previous = match params {
                Some(params) => Previous::Decided(to_gates(params)),
                None => Previous::Absent,
            };
            match leader_outcome(&self.specs, *version, &members, &previous, *proposes) {
                Outcome::Set(params) => Decided::Propose(Some(from_gates(&params))),
                Outcome::Delete => Decided::Propose(None),
                Outcome::Hold(_) | Outcome::Unchanged => Decided::Nothing,
            }
        };
        DECIDED.with(|it| remembered(it, (version, *records, params, proposes), ask))
    }

    /// What applying a version request does to the stored params.
    #[must_use]
    pub fn applied(
        &self,
        version: MajorMinor,
        params: Option<Params>,
        stored: Option<Params>,
    ) -> Applied {
        type Question = (MajorMinor, Option<Params>, Option<Params>);
        let ask = |(version, params, stored): &Question| match self.specs.applied(
            *version,
            params.as_ref().map(to_gates),
            stored.as_ref().map(to_gates).as_ref(),
        ) {
            Err(_) => Applied::Refused,
            Ok(AppliedParams::Keep) => Applied::Keep,
            Ok(AppliedParams::Delete) => Applied::Replace(None),
            Ok(AppliedParams::Replace(params)) => Applied::Replace(Some(from_gates(&params))),
        };
        APPLIED.with(|it| remembered(it, (version, params, stored), ask))
    }

    /// Which features are on with these params.
    #[must_use]
    pub fn enabled(&self, params: Option<Params>) -> [bool; FEATURES] {
        let ask = |params: &Option<Params>| {
            let params = params.as_ref().map(to_gates);
            NAMES.map(|name| {
                let params = params.as_ref();
                params.is_some_and(|params| params.enabled(self.specs.registry(), name))
            })
        };
        ENABLED.with(|it| remembered(it, params, ask))
    }

    /// Whether a member may say what it says to one of version `own`.
    #[must_use]
    pub fn fits(
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
        features: named(&params.values),
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
        started: record.said != Said::Nothing,
        publication: match record.said {
            Said::Nothing => Publication::Nothing,
            Said::Foreign => Publication::Foreign,
            Said::Proposal(version, flags) => Publication::Proposal(Proposal {
                version,
                flags: named(&flags),
            }),
        },
    }
}
