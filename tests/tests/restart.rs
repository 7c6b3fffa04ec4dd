// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays with voters start again: the whole array after a kill, the daemon alone, and the array without one
//! SSD.

use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{Guest, assert_same, pattern, volume, within};
use libgnstor::Rights;
use serde_json::Value;

const BYTES: usize = 2 << 20;

/// Output of `gnstor fleet show --json`, whatever its exit code.
fn fleet(up: &Up) -> Value {
    let shown = gnstor(&["fleet", "show", "--array", &up.daemon, "--json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {} {}", shown.stdout, shown.stderr))
}

/// Checks that the array is healthy and that its map has format 3.
fn is_healthy(up: &Up) {
    until("the array is healthy", || fleet(up)["state"] == "healthy");
    let fleet = fleet(up);
    assert_eq!((&fleet["map_format"], &fleet["changes_itself"]), (&3.into(), &true.into()), "{fleet:#}");
}

fn write(up: &Up, name: &str, seed: u64) {
    let guest = Guest::connect(&up.daemon, "writer");
    let file = guest.client.open(name, Rights::Write).unwrap();
    file.write_at(0, &pattern(seed, BYTES)).unwrap();
}

fn make(up: &Up, name: &str, replicas: u32) {
    volume(&Guest::connect(&up.daemon, "maker").client, name, BYTES as u64, replicas);
    write(up, name, 1);
}

fn holds(up: &Up, name: &str, seed: u64) {
    let guest = Guest::connect(&up.daemon, "reader");
    let file = guest.client.open(name, Rights::Read).unwrap();
    let mut read = vec![0; BYTES];
    file.read_at(0, &mut read).unwrap();
    assert_same(name, &read, &pattern(seed, BYTES));
}

#[test]
fn an_array_of_any_size_is_killed_and_starts_again_from_its_files() {
    within(BUILD_LIMIT, || {
        for ssds in ["1", "2", "3", "8"] {
            let folder = Folder::new();
            let data = folder.path().join("array").display().to_string();
            let size = ["--preset", "null", "--ssd-size", "64MiB"];
            // An array of two SSDs has voters only on request.
            let three = ["--map-format", "3"];
            let three = if ssds == "2" { &three[..] } else { &[] };
            let args = ["--ssds", ssds, "--data", &data, "--sparse"];
            let up = Up::start_as(&[&args[..], three, &size].concat());
            is_healthy(&up);
            let replicas = ssds.parse::<u32>().unwrap().min(2);
            make(&up, "v", replicas);
            make(&up, "single", 1);
            up.kill();
            let up = Up::start_as(&["--data", &data]);
            is_healthy(&up);
            holds(&up, "v", 1);
            holds(&up, "single", 1);
            write(&up, "v", 2);
            up.end("-TERM");
            let up = Up::start_as(&["--data", &data]);
            is_healthy(&up);
            holds(&up, "v", 2);
            up.end("-TERM");
        }
    });
}

/// An SSD whose file is unusable is dropped. When the right file is back, the SSD fills what it missed.
#[test]
fn an_array_goes_on_without_an_ssd_whose_file_is_gone_and_takes_it_back() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let data = folder.path().join("array").display().to_string();
        let (file, away) = (folder.path().join("array/ssd-3.gns"), folder.path().join("away"));
        let up = Up::start(&["--ssds", "4", "--data", &data]);
        make(&up, "v", 2);
        up.end("-TERM");
        std::fs::rename(&file, &away).expect("a rename");
        std::fs::write(&file, b"no SSD").expect("a file");
        let up = Up::start_as(&["--data", &data]);
        until("the SSD is dropped", || fleet(&up)["ssds"][3]["state"] == "out");
        holds(&up, "v", 1);
        write(&up, "v", 2);
        make(&up, "w", 2);
        up.end("-TERM");
        std::fs::rename(&away, &file).expect("a rename");
        let up = Up::start_as(&["--data", &data]);
        is_healthy(&up);
        for replica in 0..2 {
            let guest = Guest::connect(&up.daemon, "reader");
            let file = guest.client.open("v", Rights::Read).unwrap();
            let mut read = vec![0; BYTES];
            file.read_replica_at(replica, 0, &mut read).unwrap();
            assert_same(&format!("copy {replica}"), &read, &pattern(2, BYTES));
        }
        holds(&up, "w", 1);
        up.end("-TERM");
    });
}

#[test]
fn the_daemon_alone_starts_again_and_an_array_of_format_2_is_converted() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let start = |index: u16| {
            let file = folder.path().join(format!("{index}.gns")).display().to_string();
            let number = index.to_string();
            let sizes = ["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &number];
            SsdProcess::start("127.0.0.1:0", &sizes)
        };
        let ssds: Vec<_> = (0..3).map(start).collect();
        let at = ssds.iter().map(SsdProcess::address).collect::<Vec<_>>().join(",");
        let up = Up::start_as(&["--map-format", "2", "--ssd-at", &at]);
        assert_eq!(fleet(&up)["map_format"], 2);
        make(&up, "v", 2);
        up.kill();
        // The map still has format 2.
        let up = Up::start_as(&["--map-format", "2", "--ssd-at", &at]);
        assert_eq!(fleet(&up)["map_format"], 2);
        up.end("-TERM");
        for seed in 1..4 {
            let up = Up::start_as(&["--ssd-at", &at]);
            is_healthy(&up);
            holds(&up, "v", seed);
            write(&up, "v", seed + 1);
            up.kill();
        }
        ssds.into_iter().for_each(|ssd| drop(ssd.end("-TERM")));
    });
}
