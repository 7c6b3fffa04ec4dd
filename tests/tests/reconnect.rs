// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that lose their connections, or stop for a while, connect again. They send the requests in flight
//! again with the same stamps.
#![expect(clippy::disallowed_methods, reason = "processes, threads and pauses in real time")]

mod parked;
mod proxy;
mod turned_away;

use gnstor_proto::placement::mix64;
use gnstor_tests::command::{BUILD_LIMIT, Running, SsdProcess, Up, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{CHUNK, assert_same, long, node, pattern, volume, within};
use libgnstor::labels::PARTIAL;
use libgnstor::{Client, ConnectOptions, Error, RcTransport, Rights, TransportConfig, TransportThreads};
use proxy::Proxy;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A client with its own engine. The engine is dropped last.
struct Guest {
    client: Arc<Client>,
    _engine: TransportThreads,
}

fn guest(daemon: &str, io_timeout: Duration) -> Guest {
    let transports = vec![RcTransport::new(TransportConfig::default())];
    let engine = TransportThreads::start(transports).expect("an engine starts");
    let mut options = ConnectOptions::new(daemon);
    options.io_timeout = io_timeout;
    let client = Client::connect(&node(engine.handle()), &options).expect("a client connects");
    Guest { client, _engine: engine }
}

/// An array whose clients come through proxies.
struct Scene {
    up: Up,
    ssds: Vec<SsdProcess>,
    proxies: Vec<Proxy>,
    /// The daemon's connections at each proxy.
    daemons: Vec<usize>,
    /// The folder of the array's key.
    _folder: Folder,
}

impl Scene {
    fn start() -> Self {
        let folder = Folder::new();
        let key = folder.path().join("array.key").display().to_string();
        let start = |index: &str| {
            let size = ["--preset", "null", "--size", "128MiB", "--index", index, "--manager-key", &key];
            SsdProcess::start("127.0.0.1:0", &size)
        };
        let ssds = vec![start("0"), start("1")];
        let proxies: Vec<Proxy> = ssds.iter().map(|ssd| Proxy::before(ssd.address())).collect();
        let at = proxies.iter().map(|proxy| proxy.address.as_str()).collect::<Vec<_>>().join(",");
        let up = Up::start_as(&["--ssd-at", &at, "--manager-key", &key]);
        let daemons = proxies.iter().map(Proxy::count).collect();
        Self { up, ssds, proxies, daemons, _folder: folder }
    }
}

#[test]
fn connections_that_are_cut_at_any_moment_are_made_anew_and_every_byte_is_right() {
    within(BUILD_LIMIT, || {
        let (rounds, bytes) = if long() { (400usize, 4 * MIB) } else { (12, MIB) };
        let scene = Scene::start();
        let guest = guest(&scene.up.daemon, Duration::from_secs(30));
        volume(&guest.client, "v", bytes as u64, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let (mut cuts, mut writes) = (0, 0);
        for seed in 0..rounds as u64 {
            let drawn = |what: u64, most: u64| mix64(seed << 8 | what) % most;
            let data = pattern(seed + 1, bytes);
            let over = AtomicBool::new(false);
            let mut back = vec![0; bytes];
            std::thread::scope(|scope| {
                let (scene, over) = (&scene, &over);
                let cutter = scope.spawn(move || {
                    let mut cuts = 0;
                    for cut in 0..1 + drawn(0, 3) {
                        std::thread::sleep(Duration::from_micros(drawn(10 + cut, 40_000)));
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        let silence = Duration::from_micros(drawn(20 + cut, 2) * drawn(30 + cut, 10_000));
                        let which = usize::from(drawn(40 + cut, 2) != 0);
                        scene.proxies[which].cut(scene.daemons[which], silence);
                        cuts += 1;
                    }
                    cuts
                });
                file.write_at(0, &data).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                file.read_at(0, &mut back).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                over.store(true, Ordering::Relaxed);
                cuts += cutter.join().expect("no panic");
            });
            writes += bytes / CHUNK;
            assert_same(&format!("seed {seed}"), &back, &data);
            for replica in 0..2 {
                file.read_replica_at(replica, 0, &mut back).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                assert_same(&format!("seed {seed}, replica {replica}"), &back, &data);
            }
        }
        assert!(cuts >= rounds / 2, "{cuts} cuts in {rounds} rounds");
        let made: usize = scene.proxies.iter().map(Proxy::count).sum();
        println!("{cuts} cuts, {made} connections, {writes} writes");
        let at_first = scene.daemons.iter().sum::<usize>() + 2;
        assert!(made > at_first + cuts / 2, "connections were made anew: {made} of {at_first} at first");
        // A write that is sent again keeps its stamp: the numbers count writes, not sendings.
        assert_eq!(file.next_sequence().unwrap(), writes as u64 + 1);
        let stats = guest.client.channel_stats().unwrap();
        assert_eq!((stats.leaked, stats.protocol_errors), (0, 0), "{stats:?}");
        drop(file);
        drop(guest);
        scene.up.end("-TERM");
        for ssd in scene.ssds {
            ssd.end("-TERM");
        }
    });
}

#[test]
fn an_array_that_does_not_come_back_is_given_up_at_the_requests_deadline() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let timeout = Duration::from_secs(3);
        let guest = guest(&up.daemon, timeout);
        volume(&guest.client, "v", MIB as u64, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, MIB)).unwrap();
        up.kill();
        let begun = Instant::now();
        let error = file.write_at(0, &pattern(2, MIB)).expect_err("there is no array");
        let took = begun.elapsed();
        assert!(matches!(error, Error::Io(_)) && error.to_string().contains("broke"), "{error}");
        assert!(took > timeout / 2 && took < timeout + Duration::from_secs(3), "{took:?}");
        assert!(!guest.client.reconnect(Duration::from_millis(100)).unwrap(), "there is nothing there");
    });
}

/// The thread of the client's transport stops while it tries to connect again. It stops for longer than a
/// call to it waits, and answers later.
#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn a_client_whose_engine_does_not_answer_for_a_while_tries_again() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let guest = guest(&up.daemon, Duration::from_secs(90));
        volume(&guest.client, "v", MIB as u64, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, MIB)).unwrap();
        let data = pattern(2, MIB);
        up.signal("-STOP");
        std::thread::scope(|scope| {
            let write = scope.spawn(|| file.write_at(0, &data));
            // Its connections end after 5 s. Each try then takes 5 s.
            std::thread::sleep(Duration::from_secs(6));
            // A call to it waits for 10 s.
            let asleep = Duration::from_secs(if long() { 36 } else { 16 });
            guest._engine.handle().cast(move |_, _| std::thread::sleep(asleep));
            std::thread::sleep(Duration::from_secs(6));
            up.signal("-CONT");
            write.join().expect("no panic").expect("its deadline is far away");
        });
        let mut back = vec![0; MIB];
        file.read_at(0, &mut back).unwrap();
        assert_same("what was written", &back, &data);
        drop(file);
        drop(guest);
        up.end("-TERM");
    });
}

/// A copy through a pipe that the test feeds slowly. The copy is under way for some seconds.
struct Copy {
    running: Running,
    pipe: JoinHandle<Vec<u8>>,
}

/// Bytes a copy moves; the pipe takes more than two seconds for them.
const BYTES: usize = 24 * MIB;
const PIECE: usize = 128 << 10;
const PACE: Duration = Duration::from_millis(12);

fn fifo(folder: &Path, name: &str) -> String {
    let path = folder.join(name).display().to_string();
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    path
}

fn copy_in(up: &Up, folder: &Path, name: &str, data: Vec<u8>) -> Copy {
    let path = fifo(folder, name);
    let size = data.len().to_string();
    let to = format!("gn://{name}");
    let args = ["cp", "--device", "host", "--array", &up.daemon, "--size", &size, &path, &to];
    let running = Running::start(&args);
    let pipe = std::thread::spawn(move || {
        let mut pipe = File::create(path).expect("the copy opens it");
        for piece in data.chunks(PIECE) {
            std::thread::sleep(PACE);
            pipe.write_all(piece).expect("the copy reads on");
        }
        Vec::new()
    });
    Copy { running, pipe }
}

fn copy_out(up: &Up, folder: &Path, name: &str) -> Copy {
    let path = fifo(folder, &format!("{name}-out"));
    let from = format!("gn://{name}");
    let running = Running::start(&["cp", "--device", "host", "--array", &up.daemon, &from, &path]);
    let pipe = std::thread::spawn(move || {
        let mut pipe = File::open(path).expect("the copy opens it");
        let (mut all, mut piece) = (Vec::new(), vec![0; PIECE]);
        while let Ok(count @ 1..) = pipe.read(&mut piece) {
            std::thread::sleep(PACE);
            all.extend_from_slice(&piece[..count]);
        }
        all
    });
    Copy { running, pipe }
}

/// How long a process is stopped: longer than every deadline of a heartbeat.
const STILL: Duration = Duration::from_secs(8);
/// Longer than every deadline of a stream, of a keep-alive, and of a call of the daemon.
const LONG_STILL: Duration = Duration::from_secs(20);

fn survives(still: Duration, stop: impl Fn(&Up, &[Copy], &str)) {
    let up = Up::start_as(&["--preset", "null", "--ssds", "2", "--ssd-size", "256MiB"]);
    let folder = Folder::new();
    let (old, new) = (pattern(1, BYTES), pattern(2, BYTES));
    let file = folder.path().join("old").display().to_string();
    std::fs::write(&file, &old).expect("a file can be written");
    up.cp(&[&file, "gn://old"]).worked();
    let copies = [copy_out(&up, folder.path(), "old"), copy_in(&up, folder.path(), "new", new.clone())];
    until("the copy in writes", || {
        let list = up.volume(&["list", "--json"]).json();
        let list = list.as_array().expect("a list");
        list.iter().any(|v| !v["labels"][PARTIAL].is_null() && !v["writer"].is_null())
    });
    std::thread::sleep(Duration::from_millis(500));
    assert!(copies.iter().all(|copy| !copy.pipe.is_finished()), "both copies are under way");
    stop(&up, &copies, "-STOP");
    std::thread::sleep(still);
    stop(&up, &copies, "-CONT");
    for (copy, what) in copies.into_iter().zip(["out", "in"]) {
        let Copy { mut running, pipe } = copy;
        assert_eq!(running.wait(), 0, "the copy {what} ends well");
        let got = pipe.join().expect("no panic");
        if what == "out" {
            assert_same("the copy out", &got, &old);
        }
    }
    let back = folder.path().join("back").display().to_string();
    up.cp(&["gn://new", &back]).worked();
    assert_same("the copy in", &std::fs::read(&back).expect("it was copied"), &new);
    up.end("-TERM");
}

#[test]
fn copies_both_ways_outlive_eight_seconds_in_which_they_stand_still() {
    if !long() {
        eprintln!("the short form is the test in which all processes stand still");
        return;
    }
    within(BUILD_LIMIT, || {
        survives(STILL, |_, copies, how| copies.iter().for_each(|copy| copy.running.signal(how)));
    });
}

#[test]
fn copies_both_ways_outlive_eight_seconds_in_which_the_array_stands_still() {
    if !long() {
        eprintln!("the short form is the test of twenty seconds");
        return;
    }
    within(BUILD_LIMIT, || survives(STILL, |up, _, how| up.signal(how)));
}

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn copies_both_ways_outlive_twenty_seconds_in_which_the_array_stands_still() {
    within(BUILD_LIMIT, || survives(LONG_STILL, |up, _, how| up.signal(how)));
}

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn copies_both_ways_outlive_twenty_seconds_in_which_all_processes_stand_still() {
    within(BUILD_LIMIT, || {
        survives(LONG_STILL, |up, copies, how| {
            copies.iter().for_each(|copy| copy.running.signal(how));
            up.signal(how);
        });
    });
}

#[test]
fn a_copy_whose_daemon_is_away_when_it_is_to_be_published_asks_again() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "1"]);
        let daemon = Proxy::before(up.daemon.rsplit("://").next().expect("an address").to_owned());
        let folder = Folder::new();
        let (data, path) = (pattern(3, 2 * MIB), fifo(folder.path(), "source"));
        let size = data.len().to_string();
        let fixed = ["cp", "--device", "host", "--array", &daemon.address];
        let mut running = Running::start(&[&fixed[..], &["--size", &size, &path, "gn://v"]].concat());
        let mut pipe = File::create(&path).expect("the copy opens it");
        let (most, last) = data.split_at(MIB);
        pipe.write_all(most).expect("the copy reads");
        until("the copy writes", || {
            let list = up.volume(&["list", "--json"]).json();
            list.as_array().expect("a list").iter().any(|v| !v["writer"].is_null())
        });
        std::thread::scope(|scope| {
            // The test first discards the daemon's answer and then cuts the connection.
            let away = scope.spawn(|| daemon.cut(0, Duration::from_secs(2)));
            std::thread::sleep(Duration::from_millis(200));
            pipe.write_all(last).expect("the copy reads");
            away.join().expect("no panic");
        });
        drop(pipe);
        assert_eq!(running.wait(), 0, "the copy ends well");
        assert!(daemon.count() > 1, "it connected anew");
        let back = folder.path().join("back").display().to_string();
        up.cp(&["gn://v", &back]).worked();
        assert_same("the copy", &std::fs::read(&back).expect("it was copied"), &data);
        up.end("-TERM");
    });
}
