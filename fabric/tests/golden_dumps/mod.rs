// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same queue dumps through both executors of the HCA: the Rust executor and the agent's device code on
//! the CPU. `examples/hca_dumps.rs` runs them on a GPU too.

use gnstor_base::testing::deadline;

mod dumps;

#[test]
fn every_case_has_a_name_of_its_own() {
    let _deadline = deadline();
    let mut names: Vec<&str> = dumps::all().map(|(name, _)| name).collect();
    let cases = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases);
    assert_eq!(dumps::harness::Harness::on_the_cpu().device().kind(), "host");
}
