// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD of this process whose file is damaged: an empty SSD in memory stands in for it.

use crate::old_disks::Three;
use gnstor_tests::command::{BUILD_LIMIT, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{pattern, within};
use std::fs::OpenOptions;

/// `gnstor fleet replace` gave the place to the empty SSD in memory, which then counted as a copy.
#[test]
fn an_ssd_that_only_stands_in_never_gets_the_place_and_an_empty_file_does() {
    within(BUILD_LIMIT, || {
        let three = Three { folder: Folder::new(), data: pattern(4, 3_000_000) };
        let array = three.text("array");
        let size = ["--ssds", "3", "--ssd-size", "64MiB"];
        let up = Up::start(&[&["--data", &array], &size[..]].concat());
        three.store(&up, &three.data, "v").worked();
        up.end("-TERM");
        let damaged = OpenOptions::new().write(true).open(three.ssd(2)).expect("a file");
        damaged.set_len(50_000).expect("it is cut short");
        let up = Up::start_as(&["--data", &array]);
        let out = |up: &Up| {
            let fleet = gnstor(&["fleet", "show", "--json", "--array", &up.daemon]).state();
            fleet["ssds"][2]["state"] == "out"
        };
        until("the damaged SSD is dropped", || out(&up));
        let replace = || gnstor(&["fleet", "replace", "2", "--array", &up.daemon]);
        replace().failed(&["SSD 2 cannot be replaced", "ssd-2.gns", "--ssd-size"]);
        let shown = gnstor(&["fleet", "show", "--array", &up.daemon]);
        assert!(!shown.stdout.contains("gnstor fleet replace"), "{}", shown.stdout);
        three.check(&up, "beside a stand-in", "v", &three.data);
        up.end("-TERM");
        std::fs::rename(three.ssd(2), three.path("damaged")).expect("a rename");
        let refused = gnstor(&["up", "--data", &array, "--listen", "127.0.0.1:0"]);
        assert!(refused.code == 1 && refused.stderr.contains("--ssd-size"), "{}", refused.stderr);
        let up = Up::start_as(&[&["--data", &array], &size[..]].concat());
        until("the empty SSD is found", || {
            gnstor(&["fleet", "replace", "2", "--array", &up.daemon]).code == 0
        });
        until("it is filled", || {
            gnstor(&["fleet", "show", "--json", "--array", &up.daemon]).state()["state"] == "healthy"
        });
        gnstor(&["fleet", "fail", "1", "--array", &up.daemon]).worked();
        three.check(&up, "by the SSD that began empty", "v", &three.data);
        up.end("-TERM");
    });
}
