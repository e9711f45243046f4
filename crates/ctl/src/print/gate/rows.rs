//! The contents of rows, for every format.

use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_gates::plan::{Block, FlagToDrop, PlanRow, WriteRow};
use portunus_proto::etcdserverpb::{Feature, FeatureGateDetail, FeatureGateStatusResponse};
use portunus_proto::membershippb;
use portunus_proto::membershippb::ClusterParamsDecision;

use super::{EndpointGates, GateReport, MemberNames};
use crate::gates::plan::PlannedChange;
use crate::go::time;

/// A feature and the endpoint that reported it.
pub struct FeatureRow<'a> {
    pub name: &'a str,
    pub enabled: bool,
    /// Absent if no server that was asked knows the feature.
    pub detail: Option<&'a FeatureGateDetail>,
    /// The endpoint, for a server feature.
    pub endpoint: &'a str,
}

/// All known features, those of the cluster first; of one name, in the order of the endpoints.
pub fn all_features(report: &GateReport) -> Vec<FeatureRow<'_>> {
    let cluster = known(&report.cluster).map(|detail| feature_row(detail, ""));
    let servers = report.servers.iter();
    let mut servers: Vec<FeatureRow<'_>> = servers
        .flat_map(|it| known(&it.response).map(|detail| feature_row(detail, &it.endpoint)))
        .collect();
    servers.sort_by_key(|feature_row| feature_row.name);
    cluster.chain(servers).collect()
}

/// The requested features, in that order; without names, all that are on.
pub fn requested_features(report: &GateReport) -> Vec<FeatureRow<'_>> {
    let everything = || all_features(report).into_iter();
    if report.requested.is_empty() {
        return everything()
            .filter(|feature_row| feature_row.enabled)
            .collect();
    }
    let mut rows = Vec::new();
    for name in &report.requested {
        let found: Vec<FeatureRow<'_>> = everything()
            .filter(|feature_row| feature_row.name == name)
            .collect();
        match found.is_empty() {
            true => rows.push(FeatureRow {
                name,
                enabled: false,
                detail: None,
                endpoint: "",
            }),
            false => rows.extend(found),
        }
    }
    rows
}

/// One sentence for each server that knows no gates.
pub fn gateless_notes(report: &GateReport) -> impl Iterator<Item = String> {
    report.gateless.iter().map(|endpoint| {
        format!(
            "{endpoint} does not know feature gates, as etcd and versions before \
             {CLUSTER_PARAMS_SINCE} do not"
        )
    })
}

/// The features that the server knows. A reply marks unknown names instead of failing.
fn known(response: &FeatureGateStatusResponse) -> impl Iterator<Item = &FeatureGateDetail> {
    let details = response.details.iter();
    details.filter(|detail| detail.source != "unknown")
}

fn feature_row<'a>(detail: &'a FeatureGateDetail, endpoint: &'a str) -> FeatureRow<'a> {
    FeatureRow {
        name: &detail.name,
        enabled: detail.enabled,
        detail: Some(detail),
        endpoint,
    }
}

impl FeatureRow<'_> {
    pub fn level(&self) -> &str {
        self.detail.map_or("unknown", |detail| &detail.level)
    }

    pub fn reason(&self) -> &str {
        let unknown = "no server that was asked knows it";
        self.detail.map_or(unknown, |detail| &detail.reason)
    }

    /// The endpoint that reported it; `-` for a cluster feature.
    pub fn endpoint_or_dash(&self) -> &str {
        if self.endpoint.is_empty() {
            "-"
        } else {
            self.endpoint
        }
    }
}

/// Whether the one feature asked for is on.
pub fn only_feature(response: &FeatureGateStatusResponse) -> Option<&Feature> {
    response.features.first()
}

/// One row per endpoint.
pub fn endpoints(list: &[EndpointGates]) -> impl Iterator<Item = (&str, &Feature)> {
    list.iter()
        .filter_map(|it| Some((it.endpoint.as_str(), only_feature(&it.response)?)))
}

/// A decision, compared with the one before.
pub struct DecisionRow<'a> {
    pub decision: &'a ClusterParamsDecision,
    pub changed: Vec<(String, bool)>,
}

/// All decisions, each compared with the one before; the first one with nothing.
pub fn decisions(list: &[ClusterParamsDecision]) -> Vec<DecisionRow<'_>> {
    let earlier = std::iter::once(None).chain(list.iter().map(Some));
    let pairs = list.iter().zip(earlier);
    pairs
        .map(|(decision, before)| DecisionRow {
            decision,
            changed: changed(before, decision),
        })
        .collect()
}

fn changed(
    before: Option<&ClusterParamsDecision>,
    after: &ClusterParamsDecision,
) -> Vec<(String, bool)> {
    let (before, after) = (values(before), values(Some(after)));
    let is_on = |list: &[membershippb::Feature], name: &str| {
        list.iter().any(|it| it.name == name && it.enabled)
    };
    let names = before.iter().chain(after).map(|it| it.name.as_str());
    let names: std::collections::BTreeSet<&str> = names.collect();
    let now = names.into_iter().map(|name| (name, is_on(after, name)));
    now.filter(|(name, value)| is_on(before, name) != *value)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn values(decision: Option<&ClusterParamsDecision>) -> &[membershippb::Feature] {
    let params = decision.and_then(|decision| decision.params.as_ref());
    params.map_or(&[], |params| &params.feature_gates)
}

impl DecisionRow<'_> {
    /// Index, time, cluster version, deciding member, changes, cause.
    pub fn cells(&self, names: &MemberNames) -> Vec<String> {
        let decision = self.decision;
        vec![
            decision.index.to_string(),
            time::rfc3339(decision.decided_unix_seconds),
            decision.cluster_version.clone(),
            names.display_name(decision.decided_by),
            changes(&self.changed, decision.params.is_some()),
            match decision.cause.as_str() {
                "" => "-".to_owned(),
                cause => cause.to_owned(),
            },
        ]
    }
}

/// `Name=value` for each; `nothing` or `all removed` if there is none.
fn changes(changed: &[(String, bool)], has_params: bool) -> String {
    if changed.is_empty() {
        let nothing = if has_params { "nothing" } else { "all removed" };
        return nothing.to_owned();
    }
    let pairs = changed
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// The text of a value that may be absent.
pub fn value_text(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "on",
        Some(false) => "off",
        None => "absent",
    }
}

/// Feature, level, member, before, after, block, why.
pub fn plan_cells(planned: &PlannedChange, row: &PlanRow) -> Vec<String> {
    let member = row
        .member
        .map_or_else(String::new, |id| planned.name_of(id));
    vec![
        row.feature.clone(),
        row.level.text().to_owned(),
        member,
        value_text(row.before).to_owned(),
        value_text(row.after).to_owned(),
        row.block.map_or("", block_name).to_owned(),
        row.why.clone(),
    ]
}

/// `Feature (written by member): before -> after: why`
pub fn write_line(planned: &PlannedChange, row: &WriteRow) -> String {
    let value = |value: bool| if value { "yes" } else { "no" };
    let after = value(row.after);
    let change = match row.before.filter(|before| *before != row.after) {
        Some(before) => format!("{} -> {after}", value(before)),
        None => after.to_owned(),
    };
    let member = planned.name_of(row.member);
    format!(
        "{} (written by {member}): {change}: {}",
        row.feature, row.why
    )
}

/// A flag that has to be dropped, in one line.
pub fn flag_to_drop_line(planned: &PlannedChange, it: &FlagToDrop) -> String {
    let member = planned.name_of(it.member);
    match &it.feature {
        Some(feature) => format!("{feature} in {} of {member}: {}", it.flag, it.why),
        None => format!("{} of {member}: {}", it.flag, it.why),
    }
}

/// The name of a block.
pub fn block_name(block: Block) -> &'static str {
    match block {
        Block::Unknown => "unknown",
        Block::Removed => "removed",
        Block::Locked => "locked",
        Block::DependencyLost => "dependency-lost",
        Block::OneWay => "one-way",
    }
}
