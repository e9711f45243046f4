//! For programs: everything that is known, with truth values and empty lists spelled out.

use portunus_gates::plan::{FlagToDrop, PlanRow, WriteRow};
use portunus_proto::etcdserverpb::{
    Feature, FeatureGateDetail, FeatureGateStatusResponse, FeatureGateVote,
};
use portunus_proto::membershippb::ClusterParamsDecision;

use super::super::json::with_header;
use super::{EndpointGates, GateAnswer, GateReport, MemberNames, rows};
use crate::gates::explain::FeatureExplanation;
use crate::gates::plan::PlannedChange;
use crate::go::json::{Object, array, string};

pub fn render(answer: GateAnswer<'_>, hex: bool) -> String {
    let ids = Ids { hex };
    match answer {
        GateAnswer::Enabled(response) => ids.response(response),
        GateAnswer::EndpointsEnabled(list) => ids.endpoints(list),
        GateAnswer::List(report) | GateAnswer::Status(report) => ids.report(report),
        GateAnswer::Explanation(explanation) => ids.explanation(explanation),
        GateAnswer::Plan(planned) => ids.plan(planned),
        GateAnswer::History { response, names } => {
            let decisions = rows::decisions(&response.decisions);
            let decisions = decisions
                .iter()
                .map(|it| ids.decision(it.decision, &it.changed, names));
            with_header(response.header.as_ref())
                .raw("decisions", array(decisions))
                .end()
        }
        GateAnswer::Event { response, names } => {
            let changed = response.changed.iter();
            let changed: Vec<_> = changed.map(|it| (it.name.clone(), it.enabled)).collect();
            let decision = response.decision.as_ref();
            let decision = decision.map(|it| ids.decision(it, &changed, names));
            with_header(response.header.as_ref())
                .raw("decision", decision.unwrap_or_else(|| "null".to_owned()))
                .end()
        }
    }
}

/// How member ids are written.
#[derive(Clone, Copy)]
struct Ids {
    hex: bool,
}

impl Ids {
    fn id(self, object: Object, name: &str, id: u64) -> Object {
        match self.hex {
            true => object.text(name, &format!("{id:x}")),
            false => object.raw(name, id),
        }
    }

    fn response(self, response: &FeatureGateStatusResponse) -> String {
        let details = response.details.iter().map(|detail| self.detail(detail));
        with_header(response.header.as_ref())
            .raw("is_server_feature", response.is_server_feature)
            .raw("features", array(response.features.iter().map(feature)))
            .list_omit_empty("details", details)
            .end()
    }

    fn detail(self, detail: &FeatureGateDetail) -> String {
        let votes = detail.votes.iter().map(|vote| self.vote(vote));
        Object::default()
            .text("name", &detail.name)
            .text("level", &detail.level)
            .raw("enabled", detail.enabled)
            .text("stage", &detail.stage)
            .raw("default", detail.default)
            .raw("locked", detail.locked)
            .raw("explicit", detail.explicit)
            .text("source", &detail.source)
            .text("reason", &detail.reason)
            .text("version_used", &detail.version_used)
            .number_omit_empty("since_index", detail.since_index)
            .list_omit_empty("votes", votes)
            .end()
    }

    fn vote(self, vote: &FeatureGateVote) -> String {
        self.id(Object::default(), "member_id", vote.member_id)
            .text("vote", &vote.vote)
            .text_omit_empty("if_promoted", &vote.if_promoted)
            .end()
    }

    fn endpoints(self, list: &[EndpointGates]) -> String {
        array(list.iter().map(|it| {
            Object::default()
                .text("Endpoint", &it.endpoint)
                .raw("FeatureGate", self.response(&it.response))
                .end()
        }))
    }

    fn report(self, report: &GateReport) -> String {
        Object::default()
            .raw("cluster", self.response(&report.cluster))
            .raw("servers", self.endpoints(&report.servers))
            .raw("gateless", texts(&report.gateless))
            .end()
    }

    fn explanation(self, explanation: &FeatureExplanation) -> String {
        let members = explanation.members.iter().map(|it| {
            self.id(Object::default(), "member_id", it.member_id)
                .text("name", &it.name)
                .text("word", &it.vote)
                .end()
        });
        let needs = explanation.needs.iter().map(|(name, enabled)| {
            let need = Object::default().text("name", name);
            need.raw("enabled", enabled).end()
        });
        let not_written_by = explanation.not_written_by.iter().map(|it| {
            self.id(Object::default(), "member_id", it.member_id)
                .text("name", &it.name)
                .text("min_compatibility_version", &it.min_compat.to_string())
                .end()
        });
        let readable_since = explanation.readable_since.map(|it| it.to_string());
        let readable_since = readable_since.unwrap_or_default();
        let enabled = explanation.enabled.map(|value| value.to_string());
        Object::default()
            .text("name", &explanation.detail.name)
            .raw("enabled", enabled.unwrap_or_else(|| "null".to_owned()))
            .raw("detail", self.detail(&explanation.detail))
            .text_omit_empty("what", &explanation.what)
            .text_omit_empty("spec", &explanation.spec)
            .text_omit_empty("inert", explanation.inert.as_deref().unwrap_or_default())
            .raw("members", array(members))
            .raw("needs", array(needs))
            .text_omit_empty("readable_since", &readable_since)
            .raw("not_written_by", array(not_written_by))
            .text_omit_empty(
                "not_written",
                explanation.not_written.as_deref().unwrap_or_default(),
            )
            .raw("assumptions", texts(&explanation.assumptions))
            .raw("to_change", texts(&explanation.to_change))
            .text("next", &explanation.next)
            .end()
    }

    fn plan(self, planned: &PlannedChange) -> String {
        let plan = &planned.plan;
        let version = |version: Option<_>| match version {
            Some(version) => string(&format!("{version}")),
            None => "null".to_owned(),
        };
        let rows = planned.notable().map(|row| self.plan_row(planned, row));
        let writes = planned.writes().map(|row| self.write_row(planned, row));
        let flags_to_drop = plan.flags_to_drop.iter();
        let flags_to_drop = flags_to_drop.map(|it| self.flag_to_drop(planned, it));
        Object::default()
            .text("change", &planned.change)
            .raw("blocked", plan.is_blocked())
            .raw(
                "cluster_version_before",
                version(planned.cluster_version_before),
            )
            .raw("cluster_version", version(plan.cluster_version))
            .raw("rows", array(rows))
            .raw("writes", array(writes))
            .raw("flags_to_drop", array(flags_to_drop))
            .raw("obstacles", texts(&plan.obstacles))
            .raw("assumptions", texts(&planned.assumptions))
            .end()
    }

    fn plan_row(self, planned: &PlannedChange, row: &PlanRow) -> String {
        let mut object = Object::default()
            .text("feature", &row.feature)
            .text("level", row.level.text());
        if let Some(id) = row.member {
            object = self.id(object, "member_id", id.0);
            object = object.text("member", &planned.name_of(id));
        }
        let value = |value: Option<bool>| match value {
            Some(value) => value.to_string(),
            None => "null".to_owned(),
        };
        object
            .raw("before", value(row.before))
            .raw("after", value(row.after))
            .text_omit_empty("block", row.block.map_or("", rows::block_name))
            .text("why", &row.why)
            .end()
    }

    fn write_row(self, planned: &PlannedChange, row: &WriteRow) -> String {
        let object = Object::default().text("feature", &row.feature);
        let before = row.before.map(|value| value.to_string());
        self.id(object, "member_id", row.member.0)
            .text("member", &planned.name_of(row.member))
            .raw("before", before.unwrap_or_else(|| "null".to_owned()))
            .raw("after", row.after)
            .text("readable_since", &row.readable_since.to_string())
            .text("why", &row.why)
            .end()
    }

    fn flag_to_drop(self, planned: &PlannedChange, it: &FlagToDrop) -> String {
        self.id(Object::default(), "member_id", it.member.0)
            .text("member", &planned.name_of(it.member))
            .text("flag", it.flag)
            .text_omit_empty("feature", it.feature.as_deref().unwrap_or_default())
            .text("why", &it.why)
            .end()
    }

    fn decision(
        self,
        decision: &ClusterParamsDecision,
        changed: &[(String, bool)],
        names: &MemberNames,
    ) -> String {
        let params = decision.params.as_ref().map(|params| {
            let features = params.feature_gates.iter();
            array(features.map(|it| named(&it.name, it.enabled)))
        });
        let changed = changed.iter().map(|(name, value)| named(name, *value));
        let object = Object::default()
            .raw("index", decision.index)
            .raw("decided_unix_seconds", decision.decided_unix_seconds)
            .text("cluster_version", &decision.cluster_version);
        self.id(object, "decided_by", decision.decided_by)
            .text("decided_by_name", &names.display_name(decision.decided_by))
            .raw("features", params.unwrap_or_else(|| "null".to_owned()))
            .raw("changed", array(changed))
            .text_omit_empty("cause", &decision.cause)
            .end()
    }
}

fn feature(feature: &Feature) -> String {
    named(&feature.name, feature.enabled)
}

fn named(name: &str, enabled: bool) -> String {
    let object = Object::default().text("name", name);
    object.raw("enabled", enabled).end()
}

fn texts(list: &[String]) -> String {
    array(list.iter().map(|text| string(text)))
}
