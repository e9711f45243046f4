//! Generates Rust from `proto/` without a protoc binary: protox compiles the
//! files to descriptors, tonic-prost-build generates types, clients and
//! servers.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};

const PROTO_DIR: &str = "proto";

const PROTO_FILES: &[&str] = &[
    "authpb/auth.proto",
    "etcdserverpb/etcdserver.proto",
    "etcdserverpb/raft_internal.proto",
    "etcdserverpb/rpc.proto",
    "leasepb/lease.proto",
    "membershippb/membership.proto",
    "mvccpb/kv.proto",
    "portunuspb/gates.proto",
    "raftpb/raft.proto",
    "snappb/snap.proto",
    "v3electionpb/v3election.proto",
    "v3lockpb/v3lock.proto",
    "walpb/record.proto",
];

/// Re-exports the hand-written messages next to the generated ones.
const NESTED: &str = "pub use crate::nested::{RequestOp, ResponseOp, request_op, response_op};\n";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO_DIR}");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);

    let mut descriptors = protox::compile(PROTO_FILES, [PROTO_DIR])?;
    // Written before renaming: JSON uses the names of the .proto files.
    fs::write(out_dir.join("descriptors.bin"), descriptors.encode_to_vec())?;

    rename_url_fields(&mut descriptors);
    let mut config = prost_build::Config::new();
    config.bytes(["."]);
    // Hand-written, because they are recursive; see src/nested/.
    config.extern_path(".etcdserverpb.RequestOp", "crate::nested::RequestOp");
    config.extern_path(".etcdserverpb.ResponseOp", "crate::nested::ResponseOp");
    tonic_prost_build::configure()
        // No `connect`/transport helpers, so this crate pulls in no HTTP stack.
        .build_transport(false)
        .codec_path("crate::codec::SizedCodec")
        .compile_fds_with_config(descriptors, config)?;
    let generated = out_dir.join("etcdserverpb.rs");
    let with_nested = fs::read_to_string(&generated)? + NESTED;
    fs::write(generated, with_nested)?;
    Ok(())
}

/// Renames fields such as `peerURLs`, which would become `peer_ur_ls` in Rust.
/// Only generated code uses the changed name; neither the wire nor JSON does.
fn rename_url_fields(descriptors: &mut FileDescriptorSet) {
    fn rename_fields(message: &mut DescriptorProto) {
        for field in &mut message.field {
            if let Some(name) = &mut field.name {
                *name = name.replace("URLs", "_urls");
            }
        }
        message.nested_type.iter_mut().for_each(rename_fields);
    }
    for file in &mut descriptors.file {
        file.message_type.iter_mut().for_each(rename_fields);
    }
}
