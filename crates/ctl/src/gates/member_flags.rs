//! The flags a member was started with, derived from its proposal or its votes, and flags as
//! text.

use std::collections::BTreeMap;

use portunus_gates::{ALL_ALPHA, ALL_BETA, Assignments};
use portunus_proto::etcdserverpb::{FeatureGateDetail, FeatureGateStatusResponse};

/// What a member published about the cluster's features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// These flags.
    Flags(BTreeMap<String, bool>),
    /// Nothing yet.
    Nothing,
    /// Nothing ever: it knows nothing of cluster features, or has them switched off.
    Foreign,
}

/// The flags a member proposes, raw: from its own answer, or as another member knows them
/// from the log.
pub fn proposed_flags<'a>(
    answers: impl IntoIterator<Item = &'a FeatureGateStatusResponse>,
    member_id: u64,
) -> Option<BTreeMap<String, bool>> {
    let proposals = answers.into_iter().flat_map(|answer| &answer.proposals);
    let mut proposals = proposals.filter(|it| it.member_id == member_id);
    let flags = proposals.next()?.feature_gates.iter();
    Some(flags.map(|it| (it.name.clone(), it.enabled)).collect())
}

/// What one member published, from its votes; `None` if the reply has no vote of it.
pub fn published_by(cluster: &FeatureGateStatusResponse, member_id: u64) -> Option<Published> {
    let mut flags = BTreeMap::new();
    let mut voted = false;
    for detail in &cluster.details {
        let mut votes = detail.votes.iter();
        let Some(vote) = votes.find(|vote| vote.member_id == member_id) else {
            continue;
        };
        voted = true;
        let text = match vote.vote.as_str() {
            "learner" => &vote.if_promoted,
            text => text,
        };
        match text {
            "unpublished" => return Some(Published::Nothing),
            "foreign" => return Some(Published::Foreign),
            text => flags.extend(flag(&detail.name, text)),
        }
    }
    voted.then_some(Published::Flags(flags))
}

/// A vote that comes from a flag is the flag's value, with the flag's name if that is not the
/// feature's. Anything else means that there is none.
fn flag(feature: &str, vote: &str) -> Option<(String, bool)> {
    let (name, value) = vote.split_once('=').unwrap_or((feature, vote));
    Some((name.to_owned(), value.parse().ok()?))
}

/// The flags that set a member's server features.
pub fn server_flags(server: &FeatureGateStatusResponse) -> BTreeMap<String, bool> {
    let details = server.details.iter();
    details.filter_map(server_flag).collect()
}

fn server_flag(detail: &FeatureGateDetail) -> Option<(String, bool)> {
    if detail.explicit {
        return Some((detail.name.clone(), detail.enabled));
    }
    let all = [ALL_ALPHA, ALL_BETA];
    let name = all.iter().find(|name| detail.source.starts_with(**name))?;
    Some(((*name).to_owned(), detail.enabled))
}

/// Flags as text for the command line.
pub fn flag_text(flags: &Assignments) -> String {
    let pairs = flags
        .iter()
        .map(|(name, value, _)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}
