// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies that are interrupted, that overlap, or whose data changes. A volume's name always leads to a whole
//! file, and a copy out returns what was copied in.

use gnstor_tests::command::{BUILD_LIMIT, Running, SsdProcess, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{assert_same, node, pattern, within};
use libgnstor::labels::{LENGTH, PARTIAL, SHA256};
use libgnstor::{
    Client, ConnectOptions, CreateOptions, Manager, RcTransport, Rights, TransportConfig, TransportThreads,
};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const MIB: usize = 1 << 20;
/// Deadline of the I/Os of copies that are meant to fail. The lease of a killed copy lasts half as long
/// again.
const IO_TIMEOUT: &str = "6s";

/// A folder with files of known content, and the array's address for copies.
struct Scene {
    folder: Folder,
    daemon: String,
}

impl Scene {
    fn new(daemon: &str) -> Self {
        Self { folder: Folder::new(), daemon: daemon.into() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a plain path").to_owned()
    }

    fn cp(&self, args: &[&str]) -> gnstor_tests::command::Ended {
        gnstor(&[&["cp", "--device", "host", "--array", &self.daemon], args].concat())
    }

    /// Copies these bytes into a volume.
    fn put(&self, data: &[u8], volume: &str) -> serde_json::Value {
        std::fs::write(self.path("in"), data).expect("a file can be written");
        self.cp(&["--json", &self.path("in"), volume]).json()
    }

    /// Checks that a copy out of the volume has these bytes.
    fn holds(&self, volume: &str, data: &[u8], when: &str) {
        let out = self.path("out");
        let copied = self.cp(&[volume, &out]);
        assert_eq!(copied.code, 0, "{when}: {}", copied.stderr);
        assert_same(when, &std::fs::read(&out).expect("it was copied"), data);
    }

    /// Checks that a copy out fails with these words and leaves no file.
    fn refuses(&self, volume: &str, words: &[&str]) {
        let out = self.path("refused");
        self.cp(&[volume, &out]).failed(words);
        let names = std::fs::read_dir(self.folder.path()).expect("a folder");
        let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
        let is_left = |name: &std::ffi::OsString| name.to_str().is_some_and(|name| name.contains("refused"));
        assert!(!names.iter().any(is_left), "a refused copy left a file: {names:?}");
    }

    fn list(&self) -> Vec<serde_json::Value> {
        let list = gnstor(&["ls", "--json", "--array", &self.daemon]).json();
        list.as_array().expect("a list").clone()
    }

    fn names(&self) -> Vec<String> {
        self.list().iter().map(|volume| volume["name"].as_str().expect("a name").into()).collect()
    }
}

/// A copy into a volume from a pipe that has brought only a part of the data.
struct Half {
    running: Running,
    pipe: File,
    /// Name of the volume that the copy writes.
    partial: String,
}

impl Half {
    /// Starts a copy of these bytes, and sends half of them.
    fn start(scene: &Scene, volume: &str, data: &[u8]) -> Self {
        let fifo = scene.path("fifo");
        if !Path::new(&fifo).exists() {
            assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
        }
        // Opened for reading and writing: so the copy may open the pipe later, and sees no end of it.
        let mut pipe = File::options().read(true).write(true).open(&fifo).expect("a pipe");
        let size = data.len().to_string();
        let args = ["cp", "--device", "host", "--io-timeout", IO_TIMEOUT, "--array", &scene.daemon];
        let running = Running::start(&[&args[..], &["--size", &size, &fifo, volume]].concat());
        pipe.write_all(&data[..data.len() / 2]).expect("the copy reads");
        let mut partial = None;
        until("the copy writes", || {
            let written = |volume: &serde_json::Value| {
                !volume["labels"][PARTIAL].is_null() && !volume["writer"].is_null()
            };
            partial = scene.list().into_iter().find(written);
            partial.is_some()
        });
        let partial = partial.expect("it is there")["name"].as_str().expect("a name").to_owned();
        Self { running, pipe, partial }
    }
}

#[test]
fn a_first_copy_that_is_interrupted_leaves_no_volume_and_is_not_read_before_it_is_whole() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let scene = Scene::new(&up.daemon);
        let data = pattern(1, 6 * MIB);
        let mut half = Half::start(&scene, "gn://v", &data);
        scene.refuses("gn://v", &["no volume \"v\""]);
        let partial = format!("gn://{}", half.partial);
        scene.refuses(&partial, &["not whole", "a copy into v", "--partial"]);
        let there = scene.path("there");
        let copied = scene.cp(&["--partial", &partial, &there]);
        assert!(copied.code == 0 && copied.stderr.contains("not checked"), "{}", copied.stderr);
        assert_eq!(half.running.end("-INT"), 130);
        assert_eq!(scene.names(), [""; 0], "an interrupted copy left a volume");
        scene.refuses("gn://v", &["no volume \"v\""]);
        // The pipe still has the bytes that the copy has not read.
        drop(half.pipe);
        scene.put(&data, "gn://v");
        scene.holds("gn://v", &data, "copied again");
        let volume = &scene.list()[0];
        assert_eq!(volume["labels"][LENGTH].as_str(), Some(&*data.len().to_string()));
        assert!(volume["labels"][PARTIAL].is_null() && volume["writer"].is_null(), "{volume}");
        up.end("-TERM");
    });
}

#[test]
fn an_overwrite_that_is_killed_leaves_the_old_volume_and_one_that_is_shown_as_partial() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let scene = Scene::new(&up.daemon);
        let (old, new) = (pattern(1, 3 * MIB + 5), pattern(2, 4 * MIB + 7));
        scene.put(&old, "gn://v");
        let mut half = Half::start(&scene, "gn://v", &new);
        scene.holds("gn://v", &old, "while it is overwritten");
        assert_eq!(half.running.end("-KILL"), 1000);
        scene.holds("gn://v", &old, "after the overwrite was killed");
        let table = gnstor(&["ls", "--array", &up.daemon]);
        let row = table.stdout.lines().find(|row| row.contains(&half.partial)).expect("a row");
        assert!(row.contains("partial: a copy into v"), "{row}");
        drop(half.pipe);
        scene.put(&new, "gn://v");
        scene.holds("gn://v", &new, "overwritten again");
        let remove = || gnstor(&["rm", "--array", &up.daemon, &half.partial]).code == 0;
        until("the lease of the killed copy ends", remove);
        assert_eq!(scene.names(), ["v"]);
        up.end("-TERM");
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a pipe that is not read any more blocks its writer")]
fn a_write_that_fails_leaves_the_old_volume() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let start = |listen: &str, index: usize| {
            let file = folder.path().join(format!("{index}.gns")).display().to_string();
            let small =
                ["--preset", "null", "--size", "64MiB", "--index", &index.to_string(), "--data", &file];
            SsdProcess::start(listen, &small)
        };
        let first = start("127.0.0.1:0", 0);
        let second = start("127.0.0.1:0", 1);
        let address = second.address();
        // In a map with voters the daemon would drop the SSD, and the write would go on.
        let up = Up::start_as(&["--map-format", "2", "--ssd-at", &format!("{},{address}", first.address())]);
        let scene = Scene::new(&up.daemon);
        let (old, new) = (pattern(1, 3 * MIB + 5), pattern(2, 4 * MIB));
        scene.put(&old, "gn://v");
        let mut half = Half::start(&scene, "gn://v", &new);
        second.end("-USR1");
        // A copy that has failed reads no more, so the rest may stay in the thread.
        let (mut pipe, rest) = (half.pipe.try_clone().expect("a pipe"), new[2 * MIB..].to_vec());
        std::thread::spawn(move || pipe.write_all(&rest));
        assert_eq!(half.running.wait(), 1);
        let _second = start(&address, 1);
        up.until_down(<[u64]>::is_empty);
        scene.holds("gn://v", &old, "after a failed overwrite");
        drop(half.pipe);
        scene.put(&new, "gn://v");
        scene.holds("gn://v", &new, "overwritten again");
        up.end("-TERM");
    });
}

#[test]
fn of_two_copies_to_one_name_at_once_one_wins_whole() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let scene = Scene::new(&up.daemon);
        let files = [pattern(1, 2 * MIB + 1), pattern(2, 3 * MIB)];
        for round in 0..4 {
            let copies: Vec<_> = files
                .iter()
                .enumerate()
                .map(|(i, data)| {
                    let path = scene.path(&format!("in{i}"));
                    std::fs::write(&path, data).expect("a file can be written");
                    Running::start(&["cp", "--device", "host", "--array", &up.daemon, &path, "gn://v"])
                })
                .collect();
            for mut copy in copies {
                assert_eq!(copy.wait(), 0, "round {round}");
            }
            let out = scene.path("out");
            scene.cp(&["gn://v", &out]).worked();
            let read = std::fs::read(&out).expect("it was copied");
            assert!(files.contains(&read), "round {round}: neither of the two files");
            until("the replaced volume goes", || scene.names() == ["v"]);
        }
        up.end("-TERM");
    });
}

/// A client of the array that writes as a kernel would.
fn writer(daemon: &str) -> (std::sync::Arc<Client>, TransportThreads) {
    let engine =
        TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).expect("an engine");
    let with = ConnectOptions::new(daemon);
    let client = Client::connect(&node(engine.handle()), &with).expect("a client connects");
    (client, engine)
}

#[test]
fn a_block_that_is_not_what_was_copied_in_is_noticed_by_the_sum() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let scene = Scene::new(&up.daemon);
        let data = pattern(1, 2 * MIB);
        let sum = scene.put(&data, "gn://right")["sha256"].as_str().expect("a sum").to_owned();
        let (client, _engine) = writer(&up.daemon);
        // The SSDs store what they receive. If a bit flips before the SSD computes its checksum, the SSD
        // cannot notice it.
        let labels = [(PARTIAL.to_owned(), "v".to_owned())].into();
        let create = CreateOptions { capacity_bytes: 2 * MIB as u64, labels, ..CreateOptions::default() };
        let made = client.create("v.partial-1", &create).expect("a volume is made");
        let file = client.open("v.partial-1", Rights::Write).expect("it is there");
        let mut flipped = data.clone();
        flipped[MIB + 77] ^= 4;
        file.write_at(0, &flipped).expect("it is written");
        file.flush().expect("it is durable");
        let labels = [(LENGTH.to_owned(), data.len().to_string()), (SHA256.to_owned(), sum)];
        client.manager().publish(&made, "v", labels.into(), false).expect("it is published");
        scene.refuses("gn://v", &["not what was copied in", "sha256", "--partial"]);
        let out = scene.path("out");
        scene.cp(&["--partial", "gn://v", &out]).worked();
        assert_same("with --partial", &std::fs::read(&out).expect("it was copied"), &flipped);
        let piped = scene.cp(&["gn://v", "/dev/null"]);
        assert!(piped.code == 1 && piped.stderr.contains("not what was copied in"), "{}", piped.stderr);
    });
}

#[test]
fn a_volume_that_another_program_writes_keeps_no_sum_and_copies_out_with_a_word_about_it() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let scene = Scene::new(&up.daemon);
        let mut data = pattern(1, MIB);
        scene.put(&data, "gn://v");
        let (client, _engine) = writer(&up.daemon);
        let file = client.open("v", Rights::Write).expect("it is there");
        data[..4096].fill(7);
        file.write_at(0, &data[..4096]).expect("it is written");
        file.flush().expect("it is durable");
        std::fs::write(scene.path("in"), &data).expect("a file can be written");
        scene.cp(&[&scene.path("in"), "gn://v"]).failed(&["cannot be replaced", "write lease"]);
        drop(file);
        let out = scene.path("out");
        let copied = scene.cp(&["gn://v", &out]);
        assert!(copied.code == 0 && copied.stderr.contains("keeps no sum"), "{}", copied.stderr);
        assert_same("changed by a program", &std::fs::read(&out).expect("it was copied"), &data);
        let manager = Manager::connect(&scene.daemon, "looks").expect("it connects");
        assert!(!manager.get("v").expect("it is there").labels.contains_key(SHA256));
    });
}
