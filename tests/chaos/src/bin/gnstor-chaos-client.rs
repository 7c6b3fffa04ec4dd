// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client; the conductor starts it.

fn main() -> std::process::ExitCode {
    gnstor_chaos::client::run()
}
