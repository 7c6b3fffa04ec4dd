// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs that demand a Diffie-Hellman group of each host: `--dh-group`.

use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{assert_same, pattern, within};

#[test]
fn ssds_that_demand_a_group_serve_the_daemon_and_clients_that_take_part_in_it() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (key, data) = (path("array.key"), pattern(1, 100_000));
        std::fs::write(path("in"), &data).expect("a file");
        for group in ["2048", "3072"] {
            let size = ["--preset", "null", "--size", "64MiB", "--manager-key", &key, "--dh-group", group];
            let ssd = SsdProcess::start("127.0.0.1:0", &size);
            let up = Up::start_as(&["--ssd-at", &ssd.address(), "--manager-key", &key]);
            up.cp(&[&path("in"), "gn://v"]).worked();
            up.cp(&["gn://v", &path("out")]).worked();
            assert_same(group, &std::fs::read(path("out")).expect("it is there"), &data);
            up.end("-TERM");
            ssd.end("-TERM");
        }
        let up = Up::start(&["--ssds", "2", "--dh-group", "2048"]);
        up.cp(&[&path("in"), "gn://v"]).worked();
        up.end("-TERM");
        gnstor(&["ssd", "--dh-group", "1024", "--manager-key", &key])
            .not_understood(&["null", "2048", "3072"]);
        gnstor(&["ssd", "--dh-group", "2048", "--no-auth"]).not_understood(&["--no-auth"]);
        let at = ["--ssd-at", "127.0.0.1:9", "--manager-key", &key];
        gnstor(&[&["up", "--dh-group", "2048"], &at[..]].concat()).not_understood(&["--ssd-at"]);
    });
}
