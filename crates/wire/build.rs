//! Compiles the proto files in pure Rust, so that a build needs no protoc.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

const FILES: [&str; 5] = [
    "agentsessions/v1/common.proto",
    "agentsessions/v1/harness.proto",
    "agentsessions/v1/harness_registry.proto",
    "agentsessions/v1/session.proto",
    "mainspring/v1/operations.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // `rpc Connect` would clash with the constructor `connect` that tonic
        // generates with the transport.
        .build_transport(false)
        .bytes(".")
        // Ordered maps, so that equal messages have equal bytes.
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
