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
        replace().failed(&["SSD 2 cannot be replaced", "ssd-2.gns", "--begin-anew 2"]);
        let shown = gnstor(&["fleet", "show", "--array", &up.daemon]);
        assert!(!shown.stdout.contains("gnstor fleet replace"), "{}", shown.stdout);
        three.check(&up, "beside a stand-in", "v", &three.data);
        up.end("-TERM");
        std::fs::rename(three.ssd(2), three.path("damaged")).expect("a rename");
        let refused = gnstor(&["up", "--data", &array, "--listen", "127.0.0.1:0"]);
        assert!(refused.code != 0 && refused.stderr.contains("--begin-anew"), "{}", refused.stderr);
        let up = Up::start_as(&["--data", &array, "--begin-anew", "2", "--ssd-size", "64MiB"]);
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

#[test]
fn no_start_makes_a_file_for_an_ssd_that_is_away_unless_it_is_told_to() {
    within(BUILD_LIMIT, || {
        let three = Three::new();
        let array = three.text("array");
        std::fs::rename(three.ssd(1), three.path("away")).expect("a rename");
        let refused = |more: &[&str], word: &str| {
            let words = [&["up", "--data", &array, "--listen", "127.0.0.1:0"], more].concat();
            let ended = gnstor(&words);
            assert!(ended.code != 0 && ended.stderr.contains(word), "{more:?}: {}", ended.stderr);
            assert!(!three.ssd(1).exists() && !three.ssd(3).exists(), "{more:?}: no file is left");
        };
        refused(&[], "--begin-anew");
        refused(&["--ssds", "3", "--ssd-size", "64MiB"], "--begin-anew");
        refused(&["--begin-anew", "2"], "move it away first");
        // The map of this array has format 2.
        refused(&["--begin-anew", "1", "--ssd-size", "64MiB"], "do not vote");
        std::fs::rename(three.path("away"), three.ssd(1)).expect("a rename");
        refused_surplus(&three, &array);
        let up = Up::start_as(&["--data", &array]);
        three.check(&up, "after the file is back", "v", &three.data);
        up.end("-TERM");
    });
}

fn refused_surplus(three: &Three, array: &str) {
    let ended = gnstor(&["up", "--data", array, "--listen", "127.0.0.1:0", "--begin-anew", "3"]);
    assert!(ended.code != 0 && ended.stderr.contains("the array has 3 SSDs, not 4"), "{}", ended.stderr);
    assert!(!three.ssd(3).exists(), "the new file is removed");
}
