// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generates the gRPC code from `gnstor.proto` in pure Rust (protox), when the feature `grpc` is on.

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/gnstor/v1/gnstor.proto");
    if std::env::var_os("CARGO_FEATURE_GRPC").is_some() {
        let files = protox::compile(["gnstor/v1/gnstor.proto"], ["proto"])?;
        // What reflection tells: with the comments, for a person who asks.
        let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
        std::fs::write(out.join("gnstor.descriptors"), files.encode_to_vec())?;
        // RegisterResponse carries a secret, so `grpc` writes its Debug by hand.
        tonic_prost_build::configure()
            .skip_debug(["gnstor.v1.RegisterResponse"])
            // All answers with a map share its bytes until they are sent.
            .bytes(".gnstor.v1.GetMapResponse.map")
            .bytes(".gnstor.v1.WatchMapResponse.map")
            .compile_fds(files)?;
    }
    Ok(())
}
