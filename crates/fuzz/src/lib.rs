//! One function for each parser of bytes that come from a network or from a file of an operator.
//!
//! A function takes any bytes and returns, or panics: then the bytes are a finding. It has no
//! state that outlives a call, so that an input can be repeated alone. The functions run in two
//! ways:
//!
//! ```text
//!  fuzz/fuzz_targets/NAME.rs ──▶ libFuzzer: `cargo fuzz`, guided by coverage     for hours
//!  tests/replay.rs ───────────▶ fuzz/corpus/NAME and mutations of its files      for seconds
//! ```
//!
//! Where a message or a text can be written again, the function also checks that it is read again
//! without a change. Nothing that ships depends on this crate.

// A finding is a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod certificates;
mod databases;
mod entries;
mod gates;
mod grpc;
mod input;
mod log_files;
mod objects;
mod peers;
mod raft;
mod settings;
mod tokens;

/// A function for a fuzzer, by its name.
pub struct Target {
    /// The name: of the program, of the directory with the corpus, and of the function.
    pub name: &'static str,
    /// The function.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($module:ident: $($name:ident),+;)+) => {
        $(pub use $module::{$($name),+};)+

        /// Every target.
        pub const TARGETS: &[Target] = &[
            $($(Target { name: stringify!($name), run: $name },)+)+
        ];
    };
}

targets! {
    grpc: grpc_messages, kv_requests;
    entries: log_entries, raft_requests;
    peers: message_streams, append_streams, peer_connections;
    raft: raft_steps;
    log_files: log_segments, log_records;
    databases: databases, arriving_databases;
    tokens: signed_tokens, token_keys, simple_tokens;
    certificates: tls_files, client_certificates;
    settings: config_files, flags;
    gates: feature_gates, versions, runtime_configs;
    objects: objects, patches, selectors, olm_configs;
    api: api_requests, request_targets, continue_tokens, api_connections, policy_files, token_files;
}
