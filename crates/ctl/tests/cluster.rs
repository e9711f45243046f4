//! Commands about the cluster as a whole, against three members and those that join them. The
//! texts are etcdctl's, independent of the server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use support::cluster::Cluster;
use support::{Ran, for_each_server, free_peer_url, portctl, run};

#[track_caller]
fn refused(ran: &Ran, code: i32, message: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{ran:?}");
    assert_eq!(ran.err, format!("Error: {message}\n"));
}

#[test]
fn member_joins_as_learner_is_promoted_leads_and_is_removed() {
    const TEST: &str = "cluster::member_joins_as_learner_is_promoted_leads_and_is_removed";
    for_each_server(TEST, |program| {
        let mut cluster = Cluster::start_three(program);
        let header = cluster
            .portctl(["put", "k", "v", "-w", "fields", "--hex"])
            .ok();
        let cluster_id = header.lines().next().unwrap();
        let cluster_id = cluster_id
            .strip_prefix("\"ClusterID\" : ")
            .unwrap()
            .to_owned();

        let peer_url = free_peer_url();
        let peer_urls = format!("--peer-urls={peer_url}");
        let added = cluster
            .portctl(["member", "add", "m4", &peer_urls, "--learner"])
            .ok();
        let id = cluster.id_of(&peer_url);
        let mut initial: Vec<(String, String)> = cluster
            .member_rows()
            .iter()
            .map(|cells| {
                let name = if cells[0] == id { "m4" } else { &cells[2] };
                (cells[0].clone(), format!("{name}={}", cells[3]))
            })
            .collect();
        initial.sort_by_key(|(id, _)| u64::from_str_radix(id, 16).unwrap());
        let initial: Vec<String> = initial.into_iter().map(|(_, pair)| pair).collect();
        assert_eq!(
            added,
            format!(
                "Member {id:>16} added as learner to cluster {cluster_id:>16}\n\
             \n\
             ETCD_NAME=\"m4\"\n\
             ETCD_INITIAL_CLUSTER=\"{}\"\n\
             ETCD_INITIAL_ADVERTISE_PEER_URLS=\"{peer_url}\"\n\
             ETCD_INITIAL_CLUSTER_STATE=\"existing\"\n",
                initial.join(",")
            )
        );
        let row = |cluster: &Cluster| {
            let members = cluster.member_rows();
            let cells = members.iter().find(|cells| cells[0] == id).unwrap();
            cells.join(", ")
        };
        assert_eq!(
            row(&cluster),
            format!("{id}, unstarted, , {peer_url}, , true")
        );
        refused(
            &cluster.portctl(["member", "promote", &id]),
            1,
            "etcdserver: can only promote a learner member which is in sync with leader",
        );
        let another = format!("--peer-urls={}", free_peer_url());
        refused(
            &cluster.portctl(["member", "add", "m5", &another, "--learner"]),
            1,
            "etcdserver: too many learner members in cluster",
        );

        cluster.start_added(&added);
        assert_eq!(
            cluster.eventually(&["member", "promote", &id]),
            format!("Member {id:>16} promoted in cluster {cluster_id:>16}\n")
        );
        let client_url = cluster.members[3].client_url();
        // A member publishes its name and client URLs by a proposal of its own, which may be
        // applied after the promotion.
        cluster.until(&["member", "list"], |ran| ran.out.contains(&client_url));
        assert_eq!(
            row(&cluster),
            format!("{id}, started, m4, {peer_url}, {client_url}, false")
        );
        refused(
            &cluster.portctl(["member", "promote", &id]),
            1,
            "etcdserver: can only promote a learner member",
        );

        let leader = cluster.leader();
        let leader_id = cluster.id_of(&cluster.members[leader].name);
        assert_eq!(
            cluster.eventually(&["move-leader", &id]),
            format!("Leadership transferred from {leader_id} to {id}\n")
        );
        assert_eq!(cluster.leader(), 3);

        // Back again, because a leader that removes itself cannot answer.
        cluster.eventually(&["move-leader", &leader_id]);
        let kept = cluster.members[leader].endpoint();
        let remove = ["--endpoints", &kept, "member", "remove", &id];
        assert_eq!(
            cluster.eventually(&remove),
            format!("Member {id:>16} removed from cluster {cluster_id:>16}\n")
        );
        cluster.members.pop();
        assert_eq!(cluster.member_rows().len(), 3);
        refused(
            &cluster.portctl(["member", "remove", &id]),
            1,
            "etcdserver: member not found",
        );
        assert_eq!(cluster.portctl(["get", "k"]).ok(), "k\nv\n");
    });
}

#[test]
fn cluster_flag_queries_every_member() {
    for_each_server("cluster::cluster_flag_queries_every_member", |program| {
        let cluster = Cluster::start_three(program);
        cluster.portctl(["put", "k", "v"]).ok();
        let one = cluster.members[0].endpoint();
        let mut expected: Vec<String> = cluster
            .members
            .iter()
            .map(|node| node.client_url())
            .collect();
        expected.sort();
        for (subcommand, separator) in [
            ("status", ", "),
            ("hashkv", ", "),
            ("health", " is healthy"),
        ] {
            let mut command = portctl();
            command.args(["--endpoints", &one, "endpoint", subcommand, "--cluster"]);
            let answer = run(&mut command, b"").ok();
            let mut asked: Vec<&str> = answer
                .lines()
                .map(|line| line.split_once(separator).unwrap().0)
                .collect();
            asked.sort();
            assert_eq!(asked, expected, "{answer}");
        }
    });
}

#[test]
fn move_leader_is_refused_by_followers() {
    for_each_server("cluster::move_leader_is_refused_by_followers", |program| {
        let cluster = Cluster::start_three(program);
        let leader = cluster.leader();
        let followers: Vec<String> = (0..3)
            .filter(|position| *position != leader)
            .map(|position| cluster.members[position].endpoint())
            .collect();
        let leader_id = cluster.id_of(&cluster.members[leader].name);
        refused(
            &cluster.portctl([
                "--endpoints",
                &followers.join(","),
                "move-leader",
                &leader_id,
            ]),
            128,
            &format!("no leader endpoint given at [{}]", followers.join(" ")),
        );
        refused(
            &cluster.portctl(["move-leader", "77"]),
            1,
            "etcdserver: bad leader transferee",
        );
        let stayed = format!("Leadership transferred from {leader_id} to {leader_id}\n");
        assert_eq!(cluster.portctl(["move-leader", &leader_id]).ok(), stayed);
    });
}

#[test]
fn downgrade_is_validated_enabled_once_and_cancelled() {
    const TEST: &str = "cluster::downgrade_is_validated_enabled_once_and_cancelled";
    for_each_server(TEST, |program| {
        let cluster = Cluster::start_three(program);
        let ctl = |arguments: &[&str]| cluster.portctl(arguments);
        let (current, target) = cluster.versions();
        for version in [&current, "3.5.0", "4.0"] {
            refused(
                &ctl(&["downgrade", "validate", version]),
                1,
                "etcdserver: invalid downgrade target version",
            );
        }
        refused(
            &ctl(&["downgrade", "enable", "tomorrow"]),
            1,
            "etcdserver: wrong downgrade target version format",
        );
        assert_eq!(
            ctl(&["downgrade", "validate", &target]).ok(),
            format!("Downgrade validate success, cluster version {current}\n")
        );
        assert_eq!(
            ctl(&["downgrade", "enable", &target]).ok(),
            format!("Downgrade enable success, cluster version {current}\n")
        );
        // Members of etcd answer before the version is lowered.
        let status = ctl(&["downgrade", "status"]).ok();
        let is_known = ["requested: ", "lowered: "]
            .iter()
            .any(|state| status.starts_with(state));
        assert!(is_known && status.contains(&target), "{status}");
        let again = ctl(&["downgrade", "enable", &format!("{target}.0")]);
        // The cluster's version follows the target within seconds; then it is the current one.
        let in_progress = "Error: etcdserver: cluster has a downgrade job in progress\n";
        let no_target = "Error: etcdserver: invalid downgrade target version\n";
        assert_eq!(again.code, Some(1));
        assert!(
            [in_progress, no_target].contains(&again.err.as_str()),
            "{again:?}"
        );
        // The second time there is nothing to cancel, and that is no error.
        for _ in 0..2 {
            let cancelled = ctl(&["downgrade", "cancel"]).ok();
            let expected = "Downgrade cancel success, cluster version 3.";
            assert!(cancelled.starts_with(expected), "{cancelled}");
        }
        let status = ctl(&["downgrade", "status"]).ok();
        assert_eq!(status, "none: no downgrade is in progress\n");
    });
}
