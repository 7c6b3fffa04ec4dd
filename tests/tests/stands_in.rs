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
        let up = Up::start_as(&[&["--data", &array, "--preset", "null"], &size[..]].concat());
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
        assert!(refused.code != 0 && refused.stderr.contains("--ssd-size"), "{}", refused.stderr);
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

/// A start without a file must not make an older image of it.
#[test]
fn a_file_that_was_away_for_one_start_is_taken_again() {
    within(BUILD_LIMIT, || {
        let three = Three { folder: Folder::new(), data: pattern(4, 3_000_000) };
        let array = three.text("array");
        let size = ["--ssds", "3", "--ssd-size", "64MiB"];
        let up = Up::start_as(&[&["--data", &array, "--preset", "null"], &size[..]].concat());
        three.store(&up, &three.data, "v").worked();
        up.end("-TERM");
        let more = gnstor(&["up", "--data", &array, "--ssds", "4", "--ssd-size", "64MiB"]);
        assert!(more.code != 0 && more.stderr.contains("the array has 3 SSDs, not 4"), "{}", more.stderr);
        assert!(!three.ssd(3).exists(), "the new file is removed");
        std::fs::rename(three.ssd(1), three.path("away")).expect("a rename");
        let up = Up::start_as(&[&["--data", &array], &size[..]].concat());
        let fleet = |up: &Up| gnstor(&["fleet", "show", "--json", "--array", &up.daemon]).state();
        until("the SSD is dropped", || fleet(&up)["ssds"][1]["state"] == "out");
        let newer = pattern(5, 3_000_000);
        three.store(&up, &newer, "v").worked();
        up.end("-TERM");
        std::fs::rename(three.path("away"), three.ssd(1)).expect("a rename");
        let up = Up::start_as(&["--data", &array]);
        until("the SSD that is back is filled", || fleet(&up)["state"] == "healthy");
        gnstor(&["fleet", "fail", "0", "--array", &up.daemon]).worked();
        three.check(&up, "after the file is back", "v", &newer);
        up.end("-TERM");
    });
}
