//! The endpoints of a command about single members: the ones given, or with `--cluster` every
//! client URL the members advertise.

use portunus_proto::etcdserverpb::MemberListRequest;

use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};

pub async fn endpoints(cluster: bool, globals: &Globals) -> Result<Vec<String>, Failure> {
    endpoints_with_consistency(cluster, true, globals).await
}

/// Returns the endpoints; unless `linearizable`, any member answers from its local member list.
pub async fn endpoints_with_consistency(
    cluster: bool,
    linearizable: bool,
    globals: &Globals,
) -> Result<Vec<String>, Failure> {
    if !cluster {
        return Ok(globals.client.endpoints.clone());
    }
    let request = MemberListRequest { linearizable };
    let client = globals.connect().await;
    let client = client.map_err(|failure| failure.exiting_with(ExitWith::Error))?;
    let members = client.member_list(request).await;
    let members = members.map_err(|error| {
        let doing = "failed to fetch endpoints from etcd cluster member list";
        Failure::new(ExitWith::Error, format!("{doing}: {error}"))
    })?;
    let members = members.members.into_iter();
    Ok(members.flat_map(|member| member.client_urls).collect())
}
