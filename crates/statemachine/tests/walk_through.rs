//! The walk-through "Adding a feature gate" of CONTRIBUTING.md, followed.
//!
//! The feature of the walk-through is declared here with the same text, in a registry of its own,
//! and goes through decision, explanation and removal. The files and names that the walk-through
//! mentions are looked up.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portunus_features::version::{CLUSTER_PARAMS_SINCE, CLUSTER_VERSION_UNDECIDED};
use portunus_gates::cluster::{
    ClusterParams, ClusterSpecs, InForce, Member, MemberId, Previous, Proposal, Publication, decide,
};
use portunus_gates::{Feature, FeatureSet, Features, MajorMinor, feature, registry};
use portunus_mvcc::backend::Bucket;
use portunus_statemachine::feature_data::stored_by;

feature! {
    /// Leaves a note where a key was deleted.
    pub DeleteNotes {
        level: Cluster,
        owner: "mvcc",
        touches: Backend,
        reversible: Free,
        stores: [("cluster", b"deleteNotes")],
        specs: [Spec::alpha("3.8")],
    }
}

registry! {
    /// The cluster features of this test.
    pub WalkThrough: Cluster = [DeleteNotes]
}

const GUIDE: &str = include_str!("../../../CONTRIBUTING.md");
const SELF: &str = include_str!("walk_through.rs");
const HEADING: &str = "## Adding a feature gate";

/// The section of the guide.
fn section() -> &'static str {
    let (_, rest) = GUIDE.split_once(HEADING).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The text of a declaration, up to the line that closes it, without indentation and comments.
fn declaration(text: &str) -> Vec<String> {
    let start = text.find("feature! {").unwrap();
    let open = text[start..].lines().next().unwrap();
    let indent = text[..start].len() - text[..start].trim_end_matches(' ').len();
    let close = format!("{}}}", " ".repeat(indent));
    let lines = text[start..].lines().skip(1);
    let body = lines.take_while(|line| *line != close);
    let bare = |line: &str| {
        let code = line.split(" // ").next().unwrap_or(line);
        code.trim().to_owned()
    };
    std::iter::once(open).chain(body).map(bare).collect()
}

/// The rows of the table of files: path, and the names to find there.
fn rows() -> Vec<(String, Vec<String>)> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim().trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let quoted = |cell: &str| -> Vec<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    let rows = section().lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells = cells(line);
        (quoted(&cells[0]).remove(0), quoted(&cells[2]))
    })
    .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn walk_through_declares_the_feature_of_this_test() {
    let shown = declaration(section());
    assert!(shown.len() > 5, "{shown:?}");
    assert_eq!(shown, declaration(SELF));
}

/// A feature that stores nothing is added in three files, one that stores something in four.
#[test]
fn files_and_names_of_the_walk_through_exist() {
    let rows = rows();
    let paths: Vec<&str> = rows.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(rows.len(), 4, "{paths:?}");
    assert!(section().contains("Three files"));
    assert!(section().contains("a fourth if it stores something"));
    for (path, names) in &rows {
        let text = std::fs::read_to_string(root().join(path));
        let text = text.unwrap_or_else(|error| panic!("CONTRIBUTING.md names {path}: {error}"));
        assert!(!names.is_empty(), "{path}: no name to look for");
        for name in names {
            assert!(text.contains(name), "{path} has no `{name}`");
        }
    }
    // Other places that the section mentions in passing.
    let mentioned = section().split('`').skip(1).step_by(2);
    for path in mentioned.filter(|it| it.starts_with("crates/")) {
        assert!(root().join(path).exists(), "{path}");
    }
}

fn version(text: &str) -> MajorMinor {
    text.parse().unwrap()
}

fn voter(id: u64, flags: &[(&str, bool)]) -> Member {
    let flags = flags
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value));
    Member {
        id: MemberId(id),
        name: format!("m{id}"),
        voter: true,
        started: true,
        publication: Publication::Proposal(Proposal {
            version: version("3.8"),
            flags: flags.collect::<BTreeMap<_, _>>(),
        }),
    }
}

#[test]
fn declared_feature_is_decided_explained_and_removed() {
    let features = Features::<WalkThrough>::declared().unwrap();
    let specs = ClusterSpecs::new(
        Arc::clone(features.registry()),
        CLUSTER_PARAMS_SINCE,
        CLUSTER_VERSION_UNDECIDED,
    );
    let decided = |cluster: &str, members: &[Member]| -> (ClusterParams, String) {
        let cluster = version(cluster);
        let decision = decide(&specs, Some(cluster), members, &Previous::Absent);
        let params = decision.outcome.params(&Previous::Absent).unwrap().clone();
        let in_force = InForce {
            params: Some(&params),
            cluster_version: Some(cluster),
            since_index: Some(7),
        };
        let explained = specs.explain("DeleteNotes", in_force, &decision, members);
        (params.clone(), explained.unwrap().to_string())
    };
    let on = [("DeleteNotes", true)];

    // Alpha: off until every voter asks for it.
    let (params, why) = decided("3.8", &[voter(1, &on), voter(2, &[])]);
    assert!(!features.view(Some(&params)).enabled(DeleteNotes));
    assert!(why.contains("m2"), "{why}");
    let (params, _) = decided("3.8", &[voter(1, &on), voter(2, &on)]);
    let view = features.view(Some(&params));
    assert!(view.enabled(DeleteNotes));
    assert!(view.require(["DeleteNotes"]).is_ok());
    // Below its first version the feature does not exist, with any flags.
    let (params, _) = decided("3.7", &[voter(1, &on), voter(2, &on)]);
    assert!(!features.view(Some(&params)).enabled(DeleteNotes));

    // What it stored goes with the version that has it.
    let records = |cluster: &str| -> Vec<(Bucket, &[u8])> {
        let gone = stored_by(WalkThrough::DECLARATIONS, version(cluster));
        gone.flat_map(|data| data.entries).collect()
    };
    assert_eq!(records("3.8"), []);
    let key = DeleteNotes::DECLARATION.stores[0].1;
    assert_eq!(records("3.7"), [(Bucket::Cluster, key)]);
}
