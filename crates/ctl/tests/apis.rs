//! `api explain` and `api plan`, which need no server.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

fn portctl(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portctl"));
    command.arg("api").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn served_api_is_explained_with_what_would_change_it() {
    let output = portctl(&["explain", "olmconfigs.v2alpha1.operators.coreos.com"]);
    assert!(output.status.success());
    assert_eq!(
        text(&output.stdout),
        "olmconfigs.v2alpha1.operators.coreos.com: served\n\
         \x20 why:        it is switched on by the default of its declaration, and the emulated release has it\n\
         \x20 lifecycle:  always there, deprecated never, removed never; this server emulates 1.37\n\
         \x20 stored as:  v1\n\
         \x20 not served with: operators.coreos.com/v2alpha1/olmconfigs=false in --runtime-config\n"
    );
    let json = portctl(&["explain", "namespaces.v1", "-w", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["served"], true);
}

#[test]
fn plan_shows_what_a_flag_switches_off_and_what_blocks_a_start() {
    let off = "--to-runtime-config=operators.coreos.com/v2alpha1=false";
    let output = portctl(&["plan", off]);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    assert!(
        shown.contains("- olmconfigs.v2alpha1.operators.coreos.com"),
        "{shown}"
    );
    let same = portctl(&["plan", "--to-emulated-version=1.36"]);
    assert_eq!(text(&same.stdout), "nothing changes\n");
    let blocked = portctl(&["plan", "--to-emulated-version=1.20"]);
    assert_eq!(blocked.status.code(), Some(7), "{blocked:?}");
}

#[test]
fn wrong_names_and_versions_are_refused_with_the_remedy() {
    let unknown = portctl(&["explain", "olmconfigs.v9.operators.coreos.com"]);
    assert_eq!(unknown.status.code(), Some(128));
    assert!(
        text(&unknown.stderr).contains("it knows olmconfigs."),
        "{unknown:?}"
    );
    let malformed = portctl(&["explain", "olmconfigs"]);
    assert!(text(&malformed.stderr).contains("write resource, version and group"));
    let version = portctl(&["plan", "--emulated-version=new"]);
    assert_eq!(version.status.code(), Some(128), "{version:?}");
}
