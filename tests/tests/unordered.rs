// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where writes to GPU memory are not ordered, a completion says nothing of its data: a client must execute a DUMP first.

use gnstor_tests::command::{BUILD_LIMIT, gnstor_with};
use gnstor_tests::{pattern, within};

/// The device API issues no DUMP yet. When it does, this becomes two tests: with them the demo verifies, without them not one block is
/// what was written.
#[test]
fn a_client_without_dumps_reads_old_bytes_and_the_demo_says_so() {
    within(BUILD_LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("input");
        std::fs::write(&path, pattern(1, 300_001)).expect("a file can be written");
        let input = path.to_str().expect("a plain path");
        let demo = ["demo", "--device", "host", "--preset", "null", "--json", "--input", input];
        gnstor_with(&demo, &[("GNSTOR_UNORDERED", "1")]).failed(&["74 of 74 blocks are not what was written"]);
        assert_eq!(gnstor_with(&demo, &[("GNSTOR_UNORDERED", "0")]).json()["verified"], true);
    });
}
