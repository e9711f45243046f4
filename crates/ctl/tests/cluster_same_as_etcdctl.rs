//! Commands that change a cluster, through etcdctl and through `portctl`: exit code, standard
//! output and error must be the same bytes, once the names of what each of them added are the
//! same.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::ffi::OsStr;
use std::path::Path;

use support::cluster::Cluster;
use support::{Ran, etcdctl, for_each_server, free_peer_url};

const FORMATS: [&str; 5] = ["simple", "json", "fields", "table", "protobuf"];

/// etcdctl logs on standard error what it then prints as an error.
fn without_log_lines(mut ran: Ran) -> Ran {
    let lines = ran.err.split_inclusive('\n');
    ran.err = lines
        .filter(|line| !line.starts_with("{\"level\""))
        .collect();
    ran
}

/// Both programs and the cluster they talk to.
struct Pair<'c> {
    cluster: &'c Cluster,
    etcdctl: &'c Path,
}

impl Pair<'_> {
    fn programs(&self) -> [&OsStr; 2] {
        [
            env!("CARGO_BIN_EXE_portctl").as_ref(),
            self.etcdctl.as_os_str(),
        ]
    }

    /// Through one endpoint, so that the same member answers.
    fn one(&self, program: &OsStr, arguments: &[&str]) -> Ran {
        let endpoint = self.cluster.members[0].endpoint();
        without_log_lines(self.cluster.run(program, &endpoint, arguments))
    }

    /// With every endpoint.
    fn all(&self, program: &OsStr, arguments: &[&str]) -> Ran {
        let endpoints = self.cluster.endpoints();
        without_log_lines(self.cluster.run(program, &endpoints, arguments))
    }

    /// A command that changes nothing, or is refused.
    #[track_caller]
    fn both(&self, arguments: &[&str]) {
        let [ours, theirs] = self.programs().map(|program| self.one(program, arguments));
        assert_eq!(ours, theirs, "portctl, then etcdctl: {arguments:?}");
    }
}

/// A member added by one of the programs; its id and URL are random.
struct Added {
    ran: Ran,
    id: String,
    url: String,
    /// Its position among the members in the order of ids.
    position: usize,
}

impl Added {
    fn add(pair: &Pair<'_>, program: &OsStr, output: &[&str], learner: bool) -> Self {
        let url = free_peer_url();
        let peer_urls = format!("--peer-urls={url}");
        let learner = format!("--learner={learner}");
        let mut arguments = vec!["member", "add", "new \"one\"", &peer_urls, &learner];
        arguments.extend(output);
        let ran = pair.one(program, &arguments);
        let id = pair.cluster.id_of(&url);
        let members = pair.cluster.member_rows();
        let position = members.iter().position(|cells| cells[0] == id).unwrap();
        Self {
            ran,
            id,
            url,
            position,
        }
    }

    fn remove(&self, pair: &Pair<'_>) {
        pair.cluster.portctl(["member", "remove", &self.id]).ok();
    }

    /// Replaces the id and the URL. Protobuf has the id as bytes of any number.
    fn named(&self, mut ran: Ran) -> Ran {
        let id = u64::from_str_radix(&self.id, 16).unwrap();
        for text in [&mut ran.out, &mut ran.err] {
            *text = text
                .replace(&format!("{id:16x}"), "<id>")
                .replace(&format!("{id:x}"), "<id>")
                .replace(&id.to_string(), "<id>")
                .replace(&self.url, "<url>");
        }
        ran
    }
}

#[test]
fn membership_changes_print_as_in_etcdctl() {
    const TEST: &str = "cluster_same_as_etcdctl::membership_changes_print_as_in_etcdctl";
    let Some(etcdctl) = etcdctl(TEST) else {
        return;
    };
    for_each_server(TEST, |program| {
        let cluster = Cluster::start_three(program);
        let pair = Pair {
            cluster: &cluster,
            etcdctl: &etcdctl,
        };
        let formats: &[&[&str]] = &[
            &["-w", "simple"],
            &["-w", "json"],
            &["-w", "json", "--hex"],
            &["-w", "fields"],
            &["-w", "table"],
        ];
        for (round, output) in formats.iter().enumerate() {
            let learner = round % 2 == 0;
            let story = |program: &OsStr, position: Option<usize>| {
                let added = loop {
                    let added = Added::add(&pair, program, output, learner);
                    if position.is_none_or(|position| position == added.position) {
                        break added;
                    }
                    added.remove(&pair);
                };
                let again = |arguments: &[&str]| {
                    let mut arguments = arguments.to_vec();
                    arguments.extend(*output);
                    added.named(pair.one(program, &arguments))
                };
                let peer_urls = format!("--peer-urls={}", added.url);
                let taken = format!("--peer-urls={}", cluster.members[1].peer_url());
                let told = [
                    added.named(added.ran.clone()),
                    again(&["member", "list"]),
                    again(&["member", "list", "--consistency=s"]),
                    again(&["member", "promote", &added.id]),
                    again(&["member", "add", "twin", &taken]),
                    again(&["member", "update", &added.id, &peer_urls]),
                    again(&["member", "remove", &added.id]),
                    again(&["member", "remove", &added.id]),
                ];
                (told, added.position)
            };
            let [ours, theirs] = pair.programs();
            let (theirs, position) = story(theirs, None);
            let (ours, _) = story(ours, Some(position));
            for (step, (ours, theirs)) in ours.into_iter().zip(theirs).enumerate() {
                assert_eq!(
                    ours, theirs,
                    "portctl, then etcdctl: {output:?}, step {step}"
                );
            }
        }
    });
}

#[test]
fn refusals_print_as_in_etcdctl() {
    const TEST: &str = "cluster_same_as_etcdctl::refusals_print_as_in_etcdctl";
    let Some(etcdctl) = etcdctl(TEST) else {
        return;
    };
    for_each_server(TEST, |program| {
        let cluster = Cluster::start_three(program);
        let pair = Pair {
            cluster: &cluster,
            etcdctl: &etcdctl,
        };
        let member = cluster.id_of("m1");
        let member = member.as_str();
        let refused: &[&[&str]] = &[
            &["member", "add"],
            &["member", "add", ""],
            &["member", "add", "new"],
            &["member", "add", "new", "http://h:1", "HTTPS://h:2"],
            &["member", "add", "new", "other"],
            &["member", "add", "new", "--peer-urls="],
            &["member", "add", "new", "--peer-urls=h:1"],
            &["member", "add", "new", "--peer-urls=127.0.0.1:1"],
            &["member", "add", "new", "--peer-urls=:1"],
            &["member", "add", "new", "--peer-urls=ftp://h:1"],
            &["member", "add", "new", "--peer-urls=http://h"],
            &["member", "add", "new", "--peer-urls=http:h:1"],
            &["member", "add", "new", "--peer-urls=http://h:port"],
            &["member", "add", "new", "--peer-urls=http://[::1:1"],
            &["member", "add", "new", "--peer-urls=http://h:1/path"],
            &["member", "add", "new", "--peer-urls=http://h:1,"],
            &["member", "remove"],
            &["member", "remove", "1", "2"],
            &["member", "remove", "xyz"],
            &["member", "remove", "+1"],
            &["member", "remove", "--", "-1"],
            &["member", "remove", "10000000000000000"],
            &["member", "remove", "77"],
            &["member", "update"],
            &["member", "update", "77"],
            &["member", "update", "xyz"],
            &["member", "update", "77", "--peer-urls=h"],
            &["member", "update", "77", "--peer-urls=http://h:1"],
            &["member", "promote"],
            &["member", "promote", "xyz"],
            &["member", "promote", "77"],
            &["member", "promote", member],
            // Not `--consistency=x`, where etcdctl complains about "l".
            &["member", "list", "argument"],
            &["move-leader"],
            &["move-leader", "1", "2"],
            &["move-leader", "xyz"],
            &["downgrade", "validate"],
            &["downgrade", "validate", ""],
            &["downgrade", "validate", "3.6", "3.5"],
            &["downgrade", "validate", "3.7.0"],
            &["downgrade", "validate", "3.5"],
            &["downgrade", "validate", "x"],
            &["downgrade", "enable"],
            &["downgrade", "enable", "4.0.0"],
            // Not refused: etcd's servers report success.
            &["downgrade", "cancel"],
            &["downgrade", "cancel", "argument"],
        ];
        for arguments in refused {
            pair.both(arguments);
        }
        let arguments = ["move-leader", "77"];
        let [ours, theirs] = pair.programs().map(|program| pair.all(program, &arguments));
        assert_eq!(ours, theirs, "portctl, then etcdctl: {arguments:?}");
        let leader = cluster.leader();
        let followers = (0..3).filter(|position| *position != leader);
        let followers: Vec<String> = followers
            .map(|position| cluster.members[position].endpoint())
            .collect();
        let followers = followers.join(",");
        let arguments = ["move-leader", member];
        let [ours, theirs] = pair
            .programs()
            .map(|program| without_log_lines(cluster.run(program, &followers, &arguments)));
        assert_eq!(ours, theirs, "portctl, then etcdctl: {arguments:?}");
        for format in FORMATS {
            pair.both(&["endpoint", "hashkv", "--cluster", "-w", format]);
        }
    });
}

#[test]
fn move_leader_and_downgrade_print_as_in_etcdctl() {
    const TEST: &str = "cluster_same_as_etcdctl::move_leader_and_downgrade_print_as_in_etcdctl";
    let Some(etcdctl) = etcdctl(TEST) else {
        return;
    };
    for_each_server(TEST, |program| {
        let cluster = Cluster::start_three(program);
        let pair = Pair {
            cluster: &cluster,
            etcdctl: &etcdctl,
        };
        let leader = cluster.leader();
        let from = cluster.id_of(&cluster.members[leader].name);
        let to = cluster.id_of(&cluster.members[(leader + 1) % 3].name);
        for format in ["simple", "json", "fields", "table"] {
            let [ours, theirs] = pair.programs().map(|program| {
                let moved = pair.all(program, &["move-leader", &to, "-w", format]);
                cluster.eventually(&["move-leader", &from]);
                without_term(moved)
            });
            assert_eq!(
                ours, theirs,
                "portctl, then etcdctl: move-leader -w {format}"
            );
        }
        // Nothing else moves leadership any more, so that bytes can be compared, too.
        let (current, target) = cluster.versions();
        let (current, target) = (current.as_str(), target.as_str());
        for format in FORMATS {
            cluster.eventually(&["downgrade", "validate", target]);
            pair.both(&["downgrade", "validate", target, "-w", format]);
            let [ours, theirs] = pair.programs().map(|program| {
                cluster.eventually(&["downgrade", "validate", target]);
                let enabled = pair.one(program, &["downgrade", "enable", target, "-w", format]);
                let cancelled = pair.one(program, &["downgrade", "cancel", "-w", format]);
                // The cluster version may or may not be lowered already.
                (
                    enabled,
                    cancelled.out.replace(target, current),
                    cancelled.err,
                )
            });
            assert_eq!(ours, theirs, "portctl, then etcdctl: downgrade -w {format}");
        }
    });
}

/// Removes the term, because every move begins one.
fn without_term(mut ran: Ran) -> Ran {
    if let Some(start) = ran.out.find("\"raft_term\":") {
        ran.out.truncate(start);
    }
    ran
}
