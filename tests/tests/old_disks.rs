// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of data files: an older image in place of the file, a damaged file, lost writes. The tests run
//! processes of `gnstor` with real files.

use gnstor_deengine::{Ssd, SsdConfig, SsdMedia};
use gnstor_proto::status::Refusal;
use gnstor_tests::command::{BUILD_LIMIT, Ended, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{BLOCK, Guest, assert_same, io_failure, pattern, within};
use libgnstor::Rights;
use serde_json::Value;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Offset of the system area in a data file.
const SYSTEM_AT: u64 = 64 << 10;

/// Arguments for a map that keeps the places of an unusable SSD. `restart.rs` has the others.
const STAYS: [&str; 2] = ["--map-format", "2"];

/// An array of three SSDs in a folder, with volume `v` in two copies.
pub(crate) struct Three {
    pub(crate) folder: Folder,
    pub(crate) data: Vec<u8>,
}

impl Three {
    pub(crate) fn new() -> Self {
        let three = Self { folder: Folder::new(), data: pattern(4, 3_000_000) };
        let up = Up::start(&[&STAYS[..], &["--ssds", "3", "--data", &three.text("array")]].concat());
        three.store(&up, &three.data, "v").worked();
        up.end("-TERM");
        three
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a plain path").to_owned()
    }

    pub(crate) fn ssd(&self, index: u32) -> PathBuf {
        self.path(&format!("array/ssd-{index}.gns"))
    }

    /// The daemon knows no number of any file: files that are all older images are served.
    fn forget_openings(&self) {
        std::fs::remove_file(self.path("array/openings")).expect("the daemon's file");
    }

    fn start(&self) -> Up {
        Up::start_as(&[&STAYS[..], &["--data", &self.text("array")]].concat())
    }

    pub(crate) fn store(&self, up: &Up, data: &[u8], volume: &str) -> Ended {
        std::fs::write(self.path("in"), data).expect("a file can be written");
        up.cp(&[&self.text("in"), &format!("gn://{volume}")])
    }

    /// Checks that a copy out of the volume has these bytes, whichever SSD serves it.
    pub(crate) fn check(&self, up: &Up, when: &str, volume: &str, data: &[u8]) {
        let copied = up.cp(&[&format!("gn://{volume}"), &self.text("out")]);
        assert_eq!(copied.code, 0, "{when}: {}", copied.stderr);
        assert_same(when, &std::fs::read(self.path("out")).expect("it was copied"), data);
    }
}

fn here(up: &Up, index: usize) -> &Value {
    &up.serving["ssd_list"][index]["here"]
}

/// Checks that every command names the missing SSD and the reason.
fn is_told(up: &Up, index: u64, why: &str) {
    let list = up.volume(&["list"]);
    let name = format!("SSD {index} is down");
    assert!(list.code == 0 && list.stderr.contains(&name) && list.stderr.contains(why), "{}", list.stderr);
    assert!(list.stdout.contains("degraded: some blocks have 1 of 2 copies"), "{}", list.stdout);
    let volumes = up.volume(&["list", "--json"]).json();
    let v = &volumes[0];
    assert_eq!(v["ssds_down"], serde_json::json!([index]));
    let told = (&v["copies_left"], &v["redundant"], &v["replicas_may_differ"]);
    assert_eq!(told, (&1.into(), &false.into(), &true.into()));
    let status = gnstor(&["status", "--json", "--array", &up.daemon]).state();
    assert_eq!(status["state"], "degraded");
    let what = status["problems"][0]["what"].as_str().expect("a problem");
    assert!(what.contains(&name) && what.contains(why), "{what}");
    assert_eq!(status["volumes"][0]["redundant"], false);
    let serves: Vec<_> = (0..3).map(|ssd| status["ssds"][ssd]["serves_reads"].as_bool()).collect();
    assert_eq!(serves, [0, 1, 2].map(|ssd| Some(ssd != index)));
    let status = gnstor(&["status", "--array", &up.daemon]);
    assert!(
        status.stdout.contains("1 volume has blocks with fewer copies than replicas"),
        "{}",
        status.stdout
    );
    // The missing SSD would bring a deleted volume back.
    up.volume(&["create", "late", "--size", "1MiB"]).failed(&["\"late\"", &name]);
    up.volume(&["delete", "v"]).failed(&["\"v\"", &name]);
}

/// Writes every 16th block of a volume again. If a copy is on the missing SSD, the write must fail with its
/// own status, and the message must say what to do. The other writes must succeed.
fn writes_go_where_all_copies_are(up: &Up, data: &[u8]) {
    let guest = Guest::connect(&up.daemon, "writer");
    let file = guest.client.open("v", Rights::Write).expect("a volume opens while an SSD is not there");
    let (mut done, mut refused) = (0, 0);
    for (nth, block) in data.chunks_exact(BLOCK).enumerate().step_by(16) {
        let result = file.write_at((nth * BLOCK) as u64, block);
        if result.is_ok() {
            done += 1;
            continue;
        }
        let failure = io_failure(result);
        assert_eq!(failure.nvme_status(), Some(Refusal::CopyUnusable.status()), "{failure}");
        let sentence = failure.to_string();
        assert!(sentence.contains("gnstor status") && sentence.contains("put its file right"), "{sentence}");
        refused += 1;
    }
    assert!(
        done > 0 && refused > done,
        "two of three blocks have a copy there: {done} done, {refused} refused"
    );
}

#[test]
fn an_older_image_of_a_data_file_is_named_and_gives_out_no_byte() {
    within(BUILD_LIMIT, || {
        let three = Three::new();
        std::fs::copy(three.ssd(1), three.path("older")).expect("a copy");
        let newer = pattern(5, 3_000_000);
        let up = three.start();
        three.store(&up, &newer, "v").worked();
        up.end("-TERM");
        std::fs::copy(three.ssd(1), three.path("newest")).expect("a copy");
        std::fs::copy(three.path("older"), three.ssd(1)).expect("a copy");
        // Twice: data that the older image lacks must not come back by itself.
        for when in ["rolled back", "rolled back, started again"] {
            let up = three.start();
            assert_eq!(here(&up, 1)["came_up"], "behind", "{when}: {}", up.serving);
            let why = here(&up, 1)["lost"].as_str().expect("a reason");
            assert!(why.contains("older image") && why.contains("ssd-1.gns"), "{why}");
            assert_eq!(
                (&here(&up, 0)["came_up"], &here(&up, 2)["came_up"]),
                (&"clean".into(), &"clean".into())
            );
            is_told(&up, 1, "older image");
            writes_go_where_all_copies_are(&up, &newer);
            three.check(&up, when, "v", &newer);
            up.end("-TERM");
        }
        std::fs::copy(three.path("newest"), three.ssd(1)).expect("a copy");
        let up = three.start();
        assert_eq!(here(&up, 1)["came_up"], "clean", "{}", up.serving);
        three.check(&up, "the newest image", "v", &newer);
        three.store(&up, &three.data, "w").worked();
        up.end("-TERM");
    });
}

/// Overwrites a part of a file with noise.
fn spoil(path: &Path, from: u64, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("the file");
    let noise = pattern(77, usize::try_from(bytes).expect("it fits"));
    file.write_all_at(&noise, from).expect("it can be written");
}

#[test]
fn an_array_starts_without_an_ssd_whose_file_is_damaged_and_serves_the_other_copies() {
    within(BUILD_LIMIT, || {
        let three = Three::new();
        let pristine = three.path("pristine");
        std::fs::copy(three.ssd(1), &pristine).expect("a copy");
        let file = three.ssd(1);
        let cases: [(&str, u64, u64); 2] = [("superblock", 0, 4096), ("header", SYSTEM_AT, 8192)];
        for (what, from, bytes) in cases {
            std::fs::copy(&pristine, &file).expect("a copy");
            spoil(&file, from, bytes);
            let up = three.start();
            assert_eq!(here(&up, 1)["came_up"], "damaged", "{what}: {}", up.serving);
            let why = here(&up, 1)["lost"].as_str().unwrap_or_else(|| panic!("{what}: no reason")).to_owned();
            assert!(why.contains("ssd-1.gns"), "{what}: {why}");
            is_told(&up, 1, "ssd-1.gns");
            three.check(&up, what, "v", &three.data);
            up.end("-TERM");
        }
    });
}

/// The other array's SSD numbers would fit, and its volumes have the same places.
#[test]
fn a_data_file_of_another_array_is_named_and_gives_out_no_byte_and_none_of_its_volumes() {
    within(BUILD_LIMIT, || {
        let (own, other) = (Three::new(), Three::new());
        {
            let up = other.start();
            up.volume(&["create", "strange", "--size", "1MiB"]).worked();
            up.end("-TERM");
        }
        for (index, kept) in [(1, "kept-1"), (0, "kept-0")] {
            let own_file = own.path(kept);
            std::fs::rename(own.ssd(index), &own_file).expect("a rename");
            std::fs::copy(other.ssd(index), own.ssd(index)).expect("a copy");
            let up = own.start();
            assert_eq!(here(&up, index as usize)["came_up"], "damaged", "{}", up.serving);
            is_told(&up, index.into(), "of another array");
            own.check(&up, "beside a file of another array", "v", &own.data);
            let names = up.volume(&["list", "--json"]).json();
            assert_eq!(names.as_array().map(Vec::len), Some(1), "{names}");
            up.end("-TERM");
            std::fs::rename(&own_file, own.ssd(index)).expect("a rename");
        }
        let up = own.start();
        own.check(&up, "with all files", "v", &own.data);
        assert!((0..3).all(|index| here(&up, index)["lost"].is_null()), "{}", up.serving);
        up.end("-TERM");
    });
}

/// Gives the files of an array the format from before arrays had numbers: only each SSD's own counts, and the
/// daemon has no file.
fn take_number(array: &Three) {
    array.forget_openings();
    for index in 0..3 {
        let path = array.ssd(index);
        let info = Ssd::describe(&path).expect("a data file");
        let (preset, capacity_bytes, serial) = (info.preset, info.capacity_bytes, info.serial);
        let media = SsdMedia::File(path);
        let config = SsdConfig { index: info.index, preset, capacity_bytes, serial, media };
        let mut ssd = Ssd::open(config, &|_, _| {}).expect("it opens");
        ssd.set_openings(&[2, 2, 2]).expect("it takes them");
        ssd.shut_down().expect("it shuts down");
    }
}

/// Such files do not name their array, but their volumes may show it. If nothing shows it, the daemon says so
/// once.
#[test]
fn files_from_before_arrays_had_numbers_are_told_apart_by_their_volumes_and_get_a_number() {
    within(BUILD_LIMIT, || {
        let (own, other) = (Three::new(), Three::new());
        let is_named = |up: &Up| {
            let said = up.volume(&["list"]).stderr;
            assert!(said.contains("SSD 1 is down") && said.contains("of another array"), "{said}");
        };
        for (array, name) in [(&own, "x-own"), (&other, "x-strange")] {
            let up = array.start();
            up.volume(&["create", name, "--size", "1MiB", "--replicas", "2"]).worked();
            up.end("-TERM");
        }
        take_number(&own);
        take_number(&other);
        std::fs::rename(own.ssd(1), own.path("kept")).expect("a rename");
        std::fs::copy(other.ssd(1), own.ssd(1)).expect("a copy");
        let up = own.start();
        assert_eq!(here(&up, 1)["came_up"], "damaged", "{}", up.serving);
        is_named(&up);
        own.check(&up, "beside a file of another array", "v", &own.data);
        assert_eq!(here(&up, 0)["is_numbered_now"], true, "what cannot be known is said: {}", up.serving);
        up.end("-TERM");
        // The right file was absent when its array got a number. It comes back now.
        std::fs::rename(own.path("kept"), own.ssd(1)).expect("a rename");
        let up = own.start();
        assert_eq!(here(&up, 1)["came_up"], "clean", "{}", up.serving);
        assert!((0..3).all(|index| here(&up, index)["lost"].is_null()), "{}", up.serving);
        assert!(here(&up, 0)["is_numbered_now"].is_null(), "it is said once: {}", up.serving);
        own.check(&up, "with all files", "v", &own.data);
        up.end("-TERM");
        // From now on the daemon rejects a file without a number, whatever its volumes are.
        std::fs::rename(own.ssd(1), own.path("kept")).expect("a rename");
        std::fs::copy(other.ssd(1), own.ssd(1)).expect("a copy");
        let up = own.start();
        is_named(&up);
        up.end("-TERM");
    });
}

/// Checks that `volume list` and `status` print these words.
fn is_named(up: &Up, words: &str) {
    let list = up.volume(&["list"]);
    assert!(list.stderr.contains(words), "{}", list.stderr);
    let status = gnstor(&["status", "--array", &up.daemon]);
    assert!(status.stdout.contains(words), "{}", status.stdout);
}

/// Checks that SSD 1 serves all its copies and reports lost places of its metadata.
fn is_called_degraded(up: &Up, what: &str) {
    let status = gnstor(&["status", "--json", "--array", &up.daemon]).state();
    let ssd = &status["ssds"][1];
    assert_eq!(ssd["state"], "degraded", "{what}: {status}");
    assert_eq!((&status["state"], &ssd["serves_reads"]), (&"degraded".into(), &true.into()));
    is_named(up, "SSD 1 could not read all of its permission metadata");
}

/// Cuts SSD 1's file short, or writes noise into each part of it that an SSD reads at a start.
#[test]
fn a_file_that_is_cut_or_spoilt_anywhere_gives_no_wrong_data_and_its_ssd_is_named() {
    within(BUILD_LIMIT, || {
        let three = Three::new();
        let file = three.ssd(1);
        let pristine = |index: u32| three.path(&format!("pristine-{index}"));
        for index in 0..3 {
            std::fs::copy(three.ssd(index), pristine(index)).expect("a copy");
        }
        let length = std::fs::metadata(&file).expect("the file").len();
        let cut = [0, 100, 1 << 20, length / 2, length - 4096].map(|to| (format!("cut to {to}"), to, 0, 0));
        // The system area: metadata, dump, journal, both checkpoints, held map. Noise in an unused part does
        // no harm. Noise in a whole half does.
        let area = 30_785_536;
        let eighths = (0..8).map(|nth| (format!("eighth {nth}"), length, nth * area / 8, area / 8));
        let halves = (0..2).map(|nth| (format!("half {nth}"), length, nth * area / 2, area / 2));
        let mut lost = Vec::new();
        for (what, to, from, bytes) in cut.into_iter().chain(eighths).chain(halves) {
            // All files: a start raises numbers in each file, and those numbers reveal older images.
            for index in 0..3 {
                std::fs::copy(pristine(index), three.ssd(index)).expect("a copy");
            }
            three.forget_openings();
            OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(to)).expect("a length");
            if bytes > 0 {
                spoil(&file, SYSTEM_AT + from, bytes);
            }
            let up = three.start();
            let came_up = here(&up, 1)["came_up"].as_str().expect("a word").to_owned();
            match came_up.as_str() {
                "damaged" => is_told(&up, 1, "ssd-1.gns"),
                "lossy" => until(&format!("{what}: it is called lossy"), || {
                    let status = gnstor(&["status", "--json", "--array", &up.daemon]).state();
                    status["ssds"][1]["state"] == "lossy" && status["state"] == "degraded"
                }),
                other => assert_eq!(other, "clean", "{what}"),
            }
            let listed =
                |list: &str| up.volume(&["list", "--json"]).json()[0][list] == serde_json::json!([1]);
            assert!(came_up != "lossy" || listed("ssds_lossy"), "{what}");
            // All its copies are present, but places of its metadata are lost.
            let is_degraded = came_up == "clean" && !here(&up, 1)["lost"].is_null();
            if is_degraded {
                until(&format!("{what}: it is called degraded"), || listed("ssds_degraded"));
                is_called_degraded(&up, &what);
            }
            three.check(&up, &what, "v", &three.data);
            up.end("-TERM");
            lost.push((what, if is_degraded { "degraded".into() } else { came_up }));
        }
        let count = |word: &str| lost.iter().filter(|(_, came_up)| came_up == word).count();
        eprintln!("{lost:?}");
        assert!(count("damaged") >= 7, "every cut, and the header: {lost:?}");
        assert!(count("lossy") >= 1, "journal and checkpoints: {lost:?}");
        assert!(count("degraded") >= 1, "the permission metadata: {lost:?}");
    });
}

#[test]
fn an_array_that_lost_acknowledged_writes_says_that_it_serves_no_reads() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let data = folder.path().join("array").to_str().expect("a plain path").to_owned();
        let up = Up::start(&["--map-format", "2", "--ssds", "2", "--data", &data, "--volatile"]);
        up.volume(&["create", "v", "--size", "1MiB", "--replicas", "2"]).worked();
        let status = gnstor(&["status", "--json", "--array", &up.daemon]).state();
        assert_eq!((&status["state"], &status["ssds"][0]["state"]), (&"online".into(), &"online".into()));
        {
            let guest = Guest::connect(&up.daemon, "writer");
            let file = guest.client.open("v", Rights::Write).expect("it opens");
            file.write_at(0, &pattern(1, BLOCK)).expect("it is written");
        }
        // This SSD has no memory that outlives the process. A kill therefore acts as a power failure without
        // a dump.
        up.kill();
        let up = Up::start_as(&["--map-format", "2", "--data", &data, "--volatile"]);
        assert_eq!(here(&up, 1)["came_up"], "lossy", "{}", up.serving);
        let status = || gnstor(&["status", "--json", "--array", &up.daemon]).state();
        until("both SSDs are called lossy", || (0..2).all(|ssd| status()["ssds"][ssd]["state"] == "lossy"));
        let said = status();
        assert_eq!((&said["state"], &said["ssds"][1]["serves_reads"]), (&"degraded".into(), &false.into()));
        assert_eq!(said["volumes"][0]["copies_left"], 0);
        let problems = said["problems"].as_array().expect("problems");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[1]["what"].as_str().is_some_and(|what| what.contains("SSD 1 lost acknowledged writes"))
        );
        let text = gnstor(&["status", "--array", &up.daemon]);
        assert!(text.stdout.contains("lossy") && text.stdout.contains("1 volume has blocks without a copy"));
        let mut back = vec![0; BLOCK];
        let guest = Guest::connect(&up.daemon, "reader");
        let failure =
            io_failure(guest.client.open("v", Rights::Read).expect("it opens").read_at(0, &mut back));
        assert_eq!(failure.nvme_status(), Some(Refusal::NotHereYet.status()), "{failure}");
        up.end("-TERM");
    });
}
