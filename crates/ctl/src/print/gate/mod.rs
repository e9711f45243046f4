//! Answers about feature gates, in every format. etcdctl has none of these commands, so the
//! shapes are ours: lists are rows as everywhere, explanations are lines.

pub mod fields;
pub mod json;
pub mod simple;
pub mod table;

mod rows;

use std::collections::BTreeMap;

use portunus_proto::etcdserverpb::FeatureGateStatusResponse;
use portunus_proto::portunuspb::{HistoryResponse, WatchResponse};

use crate::gates::explain::FeatureExplanation;
use crate::gates::plan::PlannedChange;

/// One answer about feature gates.
#[derive(Debug, Clone, Copy)]
pub enum GateAnswer<'a> {
    /// `endpoint featuregate`
    Enabled(&'a FeatureGateStatusResponse),
    /// `endpoint featuregate --is-server-feature`
    EndpointsEnabled(&'a [EndpointGates]),
    /// `gate list`
    List(&'a GateReport),
    /// `gate status`
    Status(&'a GateReport),
    /// `gate explain`
    Explanation(&'a FeatureExplanation),
    /// `gate plan`
    Plan(&'a PlannedChange),
    /// `gate history`
    History {
        /// The server's response.
        response: &'a HistoryResponse,
        /// The names of the members in it.
        names: &'a MemberNames,
    },
    /// `gate watch`
    Event {
        /// The server's response.
        response: &'a WatchResponse,
        /// The names of the members in it.
        names: &'a MemberNames,
    },
}

/// Features of the member behind an endpoint.
#[derive(Debug)]
pub struct EndpointGates {
    /// As given by the user or the member.
    pub endpoint: String,
    /// The response of its member.
    pub response: FeatureGateStatusResponse,
}

/// Features of both levels.
#[derive(Debug)]
pub struct GateReport {
    /// The names given by the user; none means all.
    pub requested: Vec<String>,
    /// The cluster features.
    pub cluster: FeatureGateStatusResponse,
    /// The server features of each endpoint.
    pub servers: Vec<EndpointGates>,
    /// Endpoints of servers that know no gates: another program, or an earlier version.
    pub gateless: Vec<String>,
}

/// The names of members by id.
#[derive(Debug, Default)]
pub struct MemberNames(pub BTreeMap<u64, String>);

impl MemberNames {
    /// The name, or the id if there is none; `-` where no member decided.
    fn display_name(&self, id: u64) -> String {
        if id == 0 {
            return "-".to_owned();
        }
        let name = self.0.get(&id);
        name.map_or_else(|| format!("{id:x}"), String::clone)
    }
}
