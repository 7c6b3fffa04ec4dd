// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSD processes that are killed in various ways come back with all data that they acknowledged.

use gnstor_array::{Array, ArrayConfig, Ssds};
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{assert_same, node, options, pattern, small_config, volume, within};
use libgnstor::{Client, ConnectOptions, Fabric, Rights};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const ANY: &str = "127.0.0.1:0";
const SMALL: [&str; 4] = ["--preset", "null", "--size", "64MiB"];

/// An array of two SSDs with files, and a file in a volume of it.
struct Two {
    folder: Folder,
    ssds: Vec<Option<SsdProcess>>,
    addresses: Vec<String>,
    up: Option<Up>,
    data: Vec<u8>,
}

impl Two {
    fn new(bytes: usize) -> Self {
        let folder = Folder::new();
        let data = pattern(3, bytes);
        std::fs::write(folder.path().join("in"), &data).expect("a file can be written");
        let mut two = Self { folder, ssds: vec![None, None], addresses: vec![ANY.into(); 2], up: None, data };
        for index in 0..2 {
            two.start(index, &SMALL);
            assert_eq!(two.came_up(index), "fresh");
        }
        two.start_array();
        two.up().volume(&["create", "other", "--size", "1MiB"]).worked();
        let stored = two.up().cp(&["--json", &two.path("in"), "gn://v"]).json();
        assert_eq!(stored["bytes"], bytes);
        two
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a plain path").to_owned()
    }

    fn start(&mut self, index: usize, extra: &[&str]) {
        let (file, number) = (self.path(&format!("{index}.gns")), index.to_string());
        let ssd = SsdProcess::start(
            &self.addresses[index],
            &[&["--data", &file, "--index", &number], extra].concat(),
        );
        self.addresses[index] = ssd.address();
        self.ssds[index] = Some(ssd);
    }

    fn start_array(&mut self) {
        self.up = Some(Up::start_as(&["--ssd-at", &self.addresses.join(",")]));
    }

    fn up(&self) -> &Up {
        self.up.as_ref().expect("the array runs")
    }

    fn ssd(&mut self, index: usize) -> SsdProcess {
        self.ssds[index].take().expect("it runs")
    }

    fn came_up(&self, index: usize) -> &str {
        self.ssds[index].as_ref().expect("it runs").came_up()
    }

    /// Checks the volume's content through a new client.
    fn check(&self, when: &str) {
        let out = self.path("out");
        let copied = self.up().cp(&["--json", "gn://v", &out]);
        assert_eq!(copied.code, 0, "{when}: {}", copied.stderr);
        assert_same(when, &std::fs::read(&out).expect("it was copied"), &self.data);
    }

    /// Checks that the array reports this SSD as down and refuses changes with the SSD's name.
    fn is_missed(&self, index: u64) {
        self.up().until_down(|down| down == [index]);
        let name = format!("SSD {index} is down");
        self.up().volume(&["create", "late", "--size", "4096"]).failed(&["\"late\"", &name]);
        self.up().volume(&["delete", "other"]).failed(&["\"other\"", &name]);
        let list = self.up().volume(&["list"]);
        assert!(list.code == 0 && list.stderr.contains(&name), "{}", list.stderr);
    }

    fn is_back(&self) {
        self.up().until_down(<[u64]>::is_empty);
    }
}

#[test]
fn an_ssd_that_is_shut_down_or_dumps_comes_back_with_everything() {
    within(BUILD_LIMIT, || {
        let mut two = Two::new(3_000_001);
        two.check("before");
        let ended = two.ssd(1).end("-TERM");
        assert_eq!(ended["ended"], "shutdown");
        two.is_missed(1);
        two.start(1, &[]);
        assert_eq!(two.came_up(1), "clean");
        two.is_back();
        two.check("after a shutdown");

        let ended = two.ssd(0).end("-USR1");
        assert_eq!(ended["ended"], "power-failure");
        assert!(ended["dump_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{ended}");
        two.is_missed(0);
        two.start(0, &SMALL);
        assert_eq!(two.came_up(0), "dump");
        two.is_back();
        two.check("after a power failure with a dump");
        two.up().volume(&["delete", "other"]).worked();

        // The SSDs hold all state of the array. A new daemon finds everything on SSDs that were all off.
        two.up.take().expect("it runs").end("-TERM");
        for index in 0..2 {
            two.ssd(index).end(if index == 0 { "-USR1" } else { "-INT" });
            two.start(index, &[]);
        }
        two.start_array();
        two.check("after everything was off");
        let names = two.up().volume(&["list", "--json"]).json();
        assert_eq!(names.as_array().map(Vec::len), Some(1), "{names}");
    });
}

#[test]
fn an_ssd_that_is_killed_comes_back_with_everything() {
    within(BUILD_LIMIT, || {
        let mut two = Two::new(1_000_000);
        two.ssd(1).kill();
        two.is_missed(1);
        two.start(1, &[]);
        assert_eq!(two.came_up(1), "dump");
        two.is_back();
        two.check("after a kill");
    });
}

/// Acts like a reset of the machine: removes the memory that outlives a killed process.
pub(crate) fn forget_memory(file: &str) {
    let about = std::fs::metadata(file).expect("the data file");
    let name = format!("gnstor-{:x}-{:x}-", about.dev(), about.ino());
    let kept = std::fs::read_dir("/dev/shm").expect("shared memory").map(|entry| entry.expect("an entry"));
    let mine: Vec<_> = kept.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)).collect();
    assert_eq!(mine.len(), 2, "one file of memory for the buffer of each SSD, and one for its records");
    mine.iter().for_each(|file| std::fs::remove_file(file.path()).expect("it can be removed"));
}

#[test]
fn an_ssd_of_a_machine_that_was_reset_says_that_it_may_have_lost_something_and_serves_no_zeros() {
    within(BUILD_LIMIT, || {
        let mut two = Two::new(1_000_000);
        two.ssd(1).kill();
        two.is_missed(1);
        forget_memory(&two.path("1.gns"));
        two.start(1, &[]);
        assert_eq!(two.came_up(1), "lossy");
        assert_eq!(two.ssds[1].as_ref().map(|ssd| ssd.serving["lossy"].clone()), Some(true.into()));
        two.is_back();
        // The SSD is filling. Its peer serves a read, or the SSD refuses it. It must never return a block
        // that it lost.
        let out = two.path("out");
        let copied = two.up().cp(&["--json", "gn://v", &out]);
        if copied.code == 0 {
            assert_same("after a kill", &std::fs::read(&out).expect("it was copied"), &two.data);
        } else {
            copied.failed(&["read of"]);
            assert!(!Path::new(&out).exists(), "half a copy is left");
        }
        // A start in order does not change this, because no rebuild has filled the SSD.
        assert_eq!(two.ssd(1).end("-TERM")["ended"], "shutdown");
        two.is_missed(1);
        two.start(1, &[]);
        two.is_back();
        two.up().volume(&["create", "late", "--size", "4096"]).worked();
    });
}

#[test]
fn what_a_file_holds_is_not_made_over_and_is_used_by_one_process() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let file = folder.path().join("it.gns").to_str().expect("a plain path").to_owned();
        let ssd = |extra: &[&str]| gnstor(&[&["ssd", "--listen", ANY, "--data", &file], extra].concat());
        ssd(&[]).failed(&[&file, "--size"]);
        assert!(!Path::new(&file).exists(), "a refused SSD left a file");
        let first = SsdProcess::start(ANY, &[&["--data", &file, "--index", "5"], &SMALL[..]].concat());
        assert_eq!((&first.serving["index"], &first.serving["bytes"]), (&5.into(), &(64 << 20).into()));
        ssd(&[]).failed(&[&file, "use"]);
        first.end("-TERM");
        ssd(&["--size", "32MiB"]).failed(&[&file, "64.0 MiB", "32.0 MiB"]);
        ssd(&["--preset", "970pro"]).failed(&[&file, "null", "970pro"]);
        ssd(&["--index", "4"]).failed(&[&file, "SSD 5", "4"]);
        let again = SsdProcess::start(ANY, &["--data", &file]);
        assert_eq!((again.came_up(), &again.serving["index"]), ("clean", &5.into()));
        again.end("-TERM");
        std::fs::write(&file, pattern(1, 100_000)).expect("a file can be written");
        ssd(&[]).failed(&[&file]);
        gnstor(&["ssd", "--listen", ANY, "--data", "/dev/null"]).failed(&["/dev/null"]);
        gnstor(&["ssd", "--listen", ANY, "--preset", "floppy"]).failed(&["'floppy'", "null"]);
        let nowhere = folder.path().join("none.toml").to_str().expect("a plain path").to_owned();
        gnstor(&["ssd", "--listen", ANY, "--preset", &nowhere]).failed(&["none.toml", "No such file"]);
        gnstor(&["ssd", "--listen", ANY, "--size", "0"]).failed(&[]);
        let taken = std::net::TcpListener::bind(ANY).expect("a port");
        let address = taken.local_addr().expect("an address").to_string();
        gnstor(&["ssd", "--listen", &address]).failed(&[&address, "in use"]);
    });
}

#[test]
fn an_ssd_in_memory_that_comes_back_empty_is_not_served_from() {
    within(BUILD_LIMIT, || {
        let start = |listen: &str, index: &str| {
            SsdProcess::start(listen, &[&SMALL[..], &["--index", index]].concat())
        };
        let (zero, one) = (start(ANY, "0"), start(ANY, "1"));
        assert_eq!(zero.came_up(), "in-memory");
        let (a, b) = (zero.address(), one.address());
        gnstor(&["up", "--listen", ANY, "--ssd-at", &b, "--ssd-at", &a]).failed(&[
            &b,
            "not SSD 0",
            "--index 0",
        ]);
        gnstor(&["up", "--listen", ANY, "--ssd-at", &a, "--ssds", "1"]).not_understood(&["--ssds"]);
        let up = Up::start_as(&["--map-format", "2", "--ssd-at", &a, "--ssd-at", &b]);
        assert_eq!((&up.serving["ssds"], &up.serving["fabric"]), (&2.into(), &serde_json::Value::Null));
        up.volume(&["create", "v", "--size", "1MiB"]).worked();
        one.kill();
        up.until_down(|down| down == [1]);
        let _one = start(&b, "1");
        until("the reason is told", || up.volume(&["list"]).stderr.contains("put the old one back"));
        up.volume(&["create", "w", "--size", "1MiB"]).failed(&["SSD 1", "put the old one back"]);
        up.end("-TERM");
    });
}

#[test]
fn a_client_in_the_daemons_process_reaches_them_too_and_leaves_no_link_behind() {
    within(BUILD_LIMIT, || {
        let ssds: Vec<_> = ["0", "1"]
            .iter()
            .map(|i| SsdProcess::start(ANY, &[&SMALL[..], &["--index", i]].concat()))
            .collect();
        let at = ssds.iter().map(SsdProcess::address).collect();
        let array =
            Array::start(&ArrayConfig { ssds: Ssds::At(at), ..small_config(0) }).expect("an array starts");
        let node = node(array.transport());
        let links = || array.transport().call(|e, _| e.remotes()).expect("the engine runs");
        assert_eq!(links(), 2, "the daemon has one to each");
        for round in 0..2 {
            let options = ConnectOptions { fabric: Fabric::Daemon, ..options(&array, "inside") };
            let client = Client::connect(&node, &options).expect("a client connects");
            let name = format!("v{round}");
            volume(&client, &name, 1 << 20, 2);
            let file = client.open(&name, Rights::Write).expect("it is there");
            let data = pattern(round, 1 << 20);
            file.write_at(0, &data).expect("it is written");
            let mut back = vec![0; data.len()];
            file.read_at(0, &mut back).expect("it is read");
            assert_same(&name, &back, &data);
            assert_eq!(links(), 4);
            drop((file, client));
            until("the client's links are given back", || links() == 2);
        }
    });
}

#[test]
fn an_array_with_a_folder_has_its_volumes_when_it_is_started_again() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
        let (input, out, array) = (path("in"), path("out"), path("array"));
        let data = pattern(9, 2_000_000);
        std::fs::write(&input, &data).expect("a file can be written");
        let up = Up::start(&["--ssds", "3", "--data", &array]);
        assert_eq!(up.serving["ssd_list"][2]["here"]["came_up"], "fresh");
        up.cp(&[&input, "gn://v"]).worked();
        up.end("-TERM");
        for when in ["once", "twice"] {
            let up = Up::start_as(&["--data", &array]);
            assert_eq!((&up.serving["ssds"], &up.serving["preset"]), (&3.into(), &"null".into()), "{when}");
            assert_eq!(up.serving["ssd_list"][1]["here"]["came_up"], "clean", "{when}");
            up.cp(&["gn://v", &out]).worked();
            assert_same(when, &std::fs::read(&out).expect("it was copied"), &data);
            // Two arrays on one folder: the second must find that the folder is in use.
            gnstor(&["up", "--listen", ANY, "--data", &array]).failed(&["ssd-0.gns", "use"]);
            up.end("-INT");
        }
        let up = |extra: &[&str]| gnstor(&[&["up", "--listen", ANY, "--data", &array], extra].concat());
        up(&["--ssds", "4"]).failed(&[&array, "3 SSDs", "not 4"]);
        up(&["--ssd-size", "32MiB"]).failed(&["ssd-0.gns", "64.0 MiB"]);
        std::fs::rename(path("array/ssd-1.gns"), path("elsewhere")).expect("it is there");
        up(&[]).failed(&[&array, "0, 2", "put the missing ones back"]);
    });
}
