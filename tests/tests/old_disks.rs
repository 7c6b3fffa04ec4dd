// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks as they are: an older image in place of a data file, a damaged file. Processes of `gnstor`
//! with real files.

use gnstor_tests::command::{BUILD_LIMIT, Ended, Up, gnstor};
use gnstor_tests::{assert_same, pattern, within};
use serde_json::Value;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where the system area of a data file begins.
const SYSTEM_AT: u64 = 64 << 10;

/// An array of three SSDs in a folder, with volume `v` in two copies.
struct Three {
    folder: tempfile::TempDir,
    data: Vec<u8>,
}

impl Three {
    fn new() -> Self {
        let three = Self { folder: tempfile::tempdir().expect("a folder"), data: pattern(4, 3_000_000) };
        let up = Up::start(&["--ssds", "3", "--data", &three.text("array")]);
        three.store(&up, &three.data, "v").worked();
        up.end("-TERM");
        three
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a plain path").to_owned()
    }

    fn ssd(&self, index: u32) -> PathBuf {
        self.path(&format!("array/ssd-{index}.gns"))
    }

    fn start(&self) -> Up {
        Up::start_as(&["--data", &self.text("array")])
    }

    fn store(&self, up: &Up, data: &[u8], volume: &str) -> Ended {
        std::fs::write(self.path("in"), data).expect("a file can be written");
        up.cp(&[&self.text("in"), &format!("gn://{volume}")])
    }

    /// A copy out of the volume has these bytes, whichever SSD serves it.
    fn check(&self, up: &Up, when: &str, volume: &str, data: &[u8]) {
        let copied = up.cp(&[&format!("gn://{volume}"), &self.text("out")]);
        assert_eq!(copied.code, 0, "{when}: {}", copied.stderr);
        assert_same(when, &std::fs::read(self.path("out")).expect("it was copied"), data);
    }
}

fn here(up: &Up, index: usize) -> &Value {
    &up.serving["ssd_list"][index]["here"]
}

/// Every command says which SSD is not there, and why.
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
    let status = gnstor(&["status", "--json", "--array", &up.daemon]).json();
    assert_eq!(status["state"], "degraded");
    let what = status["problems"][0]["what"].as_str().expect("a problem");
    assert!(what.contains(&name) && what.contains(why), "{what}");
    assert_eq!(status["volumes"][0]["redundant"], false);
    let status = gnstor(&["status", "--array", &up.daemon]);
    assert!(status.stdout.contains("1 blocks with a single one"), "{}", status.stdout);
    // The SSD that is not there would bring a volume back.
    up.volume(&["create", "late", "--size", "1MiB"]).failed(&["\"late\"", &name]);
    up.volume(&["delete", "v"]).failed(&["\"v\"", &name]);
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
        // Twice: what an older image does not hold does not come back by itself.
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

#[test]
fn a_volatile_array_takes_no_shared_memory() {
    within(BUILD_LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("array").to_str().expect("a plain path").to_owned();
        let kept = |file: &str| {
            let about = std::fs::metadata(format!("{data}/{file}")).expect("the data file");
            let (dev, ino) = {
                use std::os::unix::fs::MetadataExt;
                (about.dev(), about.ino())
            };
            let name = format!("gnstor-{dev:x}-{ino:x}-");
            let all = std::fs::read_dir("/dev/shm").expect("shared memory").flatten();
            all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)).count()
        };
        let up = Up::start(&["--ssds", "1", "--data", &data, "--volatile"]);
        assert_eq!(kept("ssd-0.gns"), 0);
        up.end("-TERM");
        let up = Up::start_as(&["--data", &data]);
        assert_eq!(kept("ssd-0.gns"), 1);
        up.end("-TERM");
        gnstor(&["up", "--volatile"]).not_understood(&["--data"]);
    });
}
