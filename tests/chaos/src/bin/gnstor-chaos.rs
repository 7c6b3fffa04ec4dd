// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conductor; `scripts/chaos` starts it in namespaces of its own.

fn main() -> std::process::ExitCode {
    gnstor_chaos::conduct::run()
}
