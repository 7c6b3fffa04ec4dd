// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of the command: its help explains them, and it refuses wrong ones.

use gnstor_tests::command::{BUILD_LIMIT, gnstor};
use gnstor_tests::within;

#[test]
fn fio_s_words_are_all_there_and_explained() {
    within(BUILD_LIMIT, || {
        let help = gnstor(&["bench", "--help"]).stdout;
        for word in [
            "mode",
            "rw",
            "bs",
            "iodepth",
            "clients",
            "ssds",
            "replicas",
            "preset",
            "runtime",
            "verify",
            "json",
            "device",
            "plot",
            "size",
            "seed",
            "warmup",
            "runs",
            "figure",
            "suite",
            "bounce",
            "buffers",
            "array",
            "volume",
            "overwrite",
            "status-interval",
            "job",
            "rate-iops",
        ] {
            let mut lines = help.lines().skip_while(|line| {
                let mut words = line.split_whitespace();
                words.next() != Some(&format!("--{word}"))
            });
            assert!(lines.next().is_some(), "--{word} in {help}");
            let summary = lines.next().expect("a line below it").trim();
            assert!(summary.len() > 10 && !summary.starts_with('-'), "--{word} is explained: {summary}");
        }
        let values = [
            "randread",
            "randwrite",
            "randrw",
            "gd+deengine",
            "basic",
            "200gbe",
            "batch",
            "kernel",
            "targets",
            "figures",
        ];
        for value in values {
            assert!(help.contains(&format!("- {value}:")), "{value} in {help}");
        }
    });
}

#[test]
fn wrong_words_are_refused_in_a_sentence() {
    within(BUILD_LIMIT, || {
        let refused = |words: &[&str], why: &[&str]| gnstor(&[&["bench"], words].concat()).failed(why);
        refused(&["--bs", "5000"], &["--bs 5000", "multiple of 4096"]);
        refused(&["--bs", "32m"], &["16.0 MiB"]);
        refused(&["--iodepth", "129"], &["1 to 128", "--clients"]);
        refused(&["--iodepth", "0"], &["1 to 128"]);
        refused(&["--clients", "65"], &["1 to 64"]);
        refused(&["--clients", "64", "--ssds", "64"], &["queue pairs"]);
        refused(&["--ssds", "2", "--replicas", "3"], &["--replicas 3", "1 to 2"]);
        refused(&["--size", "64k"], &["at least", "128.0 KiB"]);
        refused(&["--ssd-size", "16MiB"], &["do not fit", "--ssd-size"]);
        refused(&["--size", "8TiB", "--bs", "16m"], &["hold 16.0 TiB", "of memory free", "--size"]);
        for words in [["--mode", "gd"], ["--bs", "68k"], ["--bs", "2m"]] {
            refused(
                &[&["--buffers", "pieces"], &words[..]].concat(),
                &["--buffers pieces", "--mode gnstor", "1m"],
            );
        }
        refused(&["--runtime", "0"], &["more than 0"]);
        refused(&["--rw", "randrw", "--rate-iops", "100,"], &["--rate-iops 100,", "one direction"]);
        refused(&["--io-timeout", "0"], &["1ms"]);
        refused(&["--preset", "floppy"], &["'floppy'", "null"]);
        refused(&["--plot", "latency.pdf"], &["latency.pdf", ".svg or .png"]);
        refused(&["--plot", "/nowhere/latency.svg"], &["/nowhere/latency.svg"]);
        refused(&["--figure", "9", "--points", "gnstor,8k"], &["figure 9", "'8k'", "64k"]);
        refused(&["--figure", "9", "--points", "gd", "--size", "64k"], &["at least", "128.0 KiB"]);
        for (words, why) in [
            (["--figure", "8"], "9 to 13"),
            (["--figure", "one"], "9 to 13"),
            (["--ssds", "0"], "from 1 to 64"),
            (["--clients", "-1"], "1 to 64"),
            (["--points", "gnstor"], "--figure"),
            (["--max-clients", "2"], "--figure"),
            (["--rw", "trim"], "randrw"),
            (["--rwmixread", "101"], "from 0 to 100"),
            (["--runtime", "soon"], "'soon' is not a time"),
            (["--mode", "floppy"], "gnstor"),
            (["--bounce", "floppy"], "kernel"),
            (["--buffers", "floppy"], "pieces"),
            (["--rate-iops", "fast"], "a number of I/Os a second"),
        ] {
            gnstor(&[&["bench"], &words[..]].concat()).not_understood(&[why]);
        }
        refused(&["--rwmixread", "30"], &["--rwmixread", "--rw randrw"]);
        refused(&["--bounce", "batch"], &["--bounce", "--mode basic"]);
        refused(&["--central-engine", "off"], &["--central-engine", "--mode gd"]);
        refused(&["--rate-iops", "1,2"], &["--rate-iops", "--rw randrw"]);
        gnstor(&["bench", "--job", "/nowhere"]).not_understood(&["--job /nowhere"]);
        // A figure determines the load, so options of the load are refused beside it.
        gnstor(&["bench", "--figure", "9", "--rw", "read"]).not_understood(&["--rw"]);
    });
}
