//! Versions of a [`Cluster`]: those that members report, and downgrades as an operator requests
//! them.

use portunus_proto::etcdserverpb::DowngradeRequest;
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;
use tonic::Status;

use super::cluster::Cluster;
use super::eventually;

/// Returns a flag that makes a member emulate this version.
pub fn emulate(version: &str) -> String {
    format!("--emulated-version={version}")
}

/// Returns the emulated version of a member, and the cluster version it reports.
pub async fn versions(cluster: &Cluster, member: usize) -> (String, String) {
    let answer = cluster
        .ask_peer_port(member, "GET", "/version", &[], &[])
        .await;
    let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let text = |key: &str| json[key].as_str().unwrap().to_owned();
    (text("etcdserver"), text("etcdcluster"))
}

/// Waits until every running member reports this cluster version.
pub async fn until_cluster_version(cluster: &Cluster, version: &str) {
    for member in cluster.running() {
        let what = format!("cluster version {version} on m{member}");
        eventually(&what, async || {
            let (_, known) = versions(cluster, member).await;
            known.starts_with(version).then_some(())
        })
        .await;
    }
}

/// Sends a downgrade request to a member; returns the cluster version before.
pub async fn downgrade(
    cluster: &Cluster,
    by: usize,
    action: DowngradeAction,
    version: &str,
) -> Result<String, Status> {
    let request = DowngradeRequest {
        action: action as i32,
        version: version.to_owned(),
    };
    let mut clients = cluster.clients(by);
    let answer = clients.maintenance.downgrade(request).await?;
    Ok(answer.into_inner().version)
}

/// Waits until no running member has a downgrade enabled.
pub async fn until_no_downgrade(cluster: &Cluster) {
    for member in cluster.running() {
        eventually("the end of the downgrade", async || {
            let status = cluster.status(member).await?;
            (!status.downgrade_info?.enabled).then_some(())
        })
        .await;
    }
}
