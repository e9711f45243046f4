//! The documents that are generated from the code are current, and what the others name exists.
//!
//! `REWRITE=1 cargo test -p portunus-server --test documents` writes the generated ones anew.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod auth;
#[path = "../common/mod.rs"]
mod common;
mod flags;
mod limits;
mod operations;

use std::path::PathBuf;

fn path_of(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

/// Compares a document with its generated text, or writes it with `REWRITE` in the environment.
#[track_caller]
fn assert_current(name: &str, generated: &str) {
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(path_of(name), generated).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(path_of(name)).unwrap_or_default();
    let difference = committed
        .lines()
        .zip(generated.lines())
        .find(|(committed, generated)| committed != generated);
    assert!(
        committed == generated,
        "docs/{name} is old: run this test with REWRITE=1; first difference: {difference:#?}"
    );
}
