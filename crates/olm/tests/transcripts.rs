//! Transcripts of requests about OLMConfig: each file under `testdata` is one.
//!
//! A step is a command, its input in YAML, `----`, and its output. After a change of behaviour,
//! `REWRITE=1 cargo test -p portunus-olm --test transcripts` writes the new output into the files;
//! read the diff before committing it.
//!
//! Commands:
//! - `create v1`, `update v2alpha1`: sends the spec, or a whole object, in a version
//! - `patch v1`: sends a JSON merge patch; `json-patch v1`: a JSON Patch
//! - `get v2alpha1`: prints annotations and features in a version
//! - `gates`: prints the values in force and the condition GatesValid
//! - `delete`: deletes the object
//! - `version 0.21`: restarts with another version of OLM
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::World;

fn run(file: &str) {
    let path = format!("tests/testdata/{file}.txt");
    datadriven::walk(&path, |file| {
        let mut world = World::new("0.22");
        file.run(|case| {
            let argument = case.args.keys().next().map_or("", String::as_str);
            world.run(&case.directive, argument, &case.input)
        });
    });
}

/// Proves: S3-1, S3-10, S3-12, S3-A1, S3-A2, S3-A3, S3-A5
#[test]
fn create_follows_the_rules_for_field_and_entry() {
    run("create");
}

/// Proves: S3-13, S3-A4
#[test]
fn update_keeps_field_and_entry_in_agreement() {
    run("update");
}

/// Proves: S3-2, S3-11, S3-A9
#[test]
fn old_clients_read_and_write_without_losing_gates() {
    run("old_client");
}

/// Proves: S3-5, S3-9, S3-A6, S3-A7, S3-A8
#[test]
fn live_gates_follow_the_object() {
    run("live_gates");
}

/// Proves: S3-14
#[test]
fn stories_of_authors_users_and_operators_work() {
    run("stories");
}
