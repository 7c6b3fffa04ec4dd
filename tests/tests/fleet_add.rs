// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD process joins a running array (`gnstor fleet add`) beside clients: a kernel that runs, host calls
//! and a reader.
#![expect(clippy::disallowed_methods, reason = "processes, threads and pauses in real time")]

use crate::anew::Four;
use crate::fleet_return::{BYTES, Load, read_all, write_and_read};
use crate::follow::{REPLICAS, Running, every_copy_is_there};
use gnstor_tests::command::{BUILD_LIMIT, Ended, SsdProcess, Up, gnstor};
use gnstor_tests::{Guest, assert_same, pattern, volume, within};
use libgnstor::Rights;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Deadline of each request.
const PATIENCE: Duration = Duration::from_secs(30);
/// Room of each SSD for blocks.
const SSD_BYTES: u64 = 64 << 20;
/// From the call until the SSD serves, on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

fn call(up: &Up, words: &[&str]) -> Ended {
    gnstor(&[words, &["--array", &up.daemon]].concat())
}

fn fleet(up: &Up) -> Value {
    let shown = call(up, &["fleet", "show", "--json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {} {}", shown.stdout, shown.stderr))
}

fn until(up: &Up, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let now = fleet(up);
        if is_so(&now) {
            return now;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: {now:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An empty SSD with the array's key.
fn empty(four: &Four, index: u16, size: &str, listen: &str) -> SsdProcess {
    let (key, number) = (Four::key(&four.folder), index.to_string());
    let file = four.folder.path().join(format!("{index}-{size}.gns")).display().to_string();
    let args = ["--preset", "null", "--size", size, "--data", &file, "--index", &number];
    SsdProcess::start(listen, &[&args[..], &["--manager-key", &key]].concat())
}

/// The capacity that `gnstor df` says, and the SSDs that it does not count.
fn counted(up: &Up) -> (u64, Vec<u64>) {
    let df = call(up, &["df", "--json"]).json();
    let ssds = df["not_counted"].as_array().expect("numbers").iter().filter_map(Value::as_u64).collect();
    (df["capacity_bytes"].as_u64().expect("bytes"), ssds)
}

fn has_its_share(now: &Value, ssd: usize) -> bool {
    let ssd = &now["ssds"][ssd];
    ssd["state"] == "in" && ssd["filling_groups"] == 0 && now["state"] == "healthy"
}

/// Groups with fewer copies than the volumes want.
fn degraded(now: &Value) -> u64 {
    let counts: Vec<u64> =
        now["groups_by_copies"].as_array().expect("numbers").iter().filter_map(Value::as_u64).collect();
    counts[..counts.len() - 1].iter().sum()
}

/// Waits until SSD 4 has its share. No copy is missing meanwhile.
fn takes_its_share(up: &Up, before: &Value, begun: Instant) {
    let mut missed = 0;
    let now = until(up, "it has its share", |now| {
        missed += degraded(now);
        has_its_share(now, 4)
    });
    // A starved machine may lose another SSD meanwhile, which makes copies missing.
    let is_another = |at: usize| {
        let incarnation = |now: &Value| now["ssds"][at]["incarnation"].clone();
        incarnation(before) != incarnation(&now)
    };
    assert!(missed == 0 || (0..4).any(is_another), "a copy was missing: {now:#}");
    println!("SSD 4 serves {:?} after the call", begun.elapsed());
    let served = now["ssds"][4]["serving_groups"].as_u64().expect("a number");
    // Volumes of three replicas use three places of each of the 256 groups.
    assert!((100..=154).contains(&served), "{served}: {now:#}");
}

#[test]
fn an_ssd_joins_beside_clients_and_serves_when_another_one_is_killed() {
    within(BUILD_LIMIT, || {
        let mut four = Four::start("3");
        let connect = |name| Guest::connect_for(&four.up.daemon, name, PATIENCE);
        let (guest, host, reader) = (connect("kernel"), connect("host"), connect("reader"));
        let data = pattern(7, BYTES);
        for name in ["still", "busy"] {
            volume(&host.client, name, BYTES as u64, 2);
            host.client.open(name, Rights::Write).unwrap().write_at(0, &data).unwrap();
        }
        let (file, copy) = (host.client.open("busy", Rights::Write).unwrap(), data.clone());
        let writes = Load::start(move |stop| write_and_read(&file, copy, stop));
        let (file, copy) = (reader.client.open("still", Rights::Read).unwrap(), data.clone());
        let reads = Load::start(move |stop| read_all(&file, copy, stop));
        volume(&guest.client, "v", 8 << 20, REPLICAS);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let running = Running::new(&file);
        assert_eq!(counted(&four.up), (4 * SSD_BYTES, vec![]));
        let mut fifth = None;
        std::thread::scope(|scope| {
            let kernel = scope.spawn(|| running.run(&file));
            let goes_on = || {
                let then = running.look().rounds;
                gnstor_tests::command::until("it goes on", || running.look().rounds > then + 300);
            };
            goes_on();
            let before = fleet(&four.up);
            let ssd = empty(&four, 4, "64MiB", "127.0.0.1:0");
            let begun = Instant::now();
            let added = call(&four.up, &["fleet", "add", &ssd.address(), "--json"]);
            added.worked();
            assert_eq!((added.json()["ssd"].as_u64(), &added.json()["done"]), (Some(4), &"added".into()));
            call(&four.up, &["fleet", "add", &ssd.address()]).worked();
            takes_its_share(&four.up, &before, begun);
            goes_on();
            assert!(guest.client.unreached().is_empty() && guest.client.session().ssds() == 5);
            assert_eq!(counted(&four.up), (5 * SSD_BYTES, vec![]), "there is more room");
            four.kill(1);
            until(&four.up, "SSD 1 is dropped", |now| now["ssds"][1]["state"] == "out");
            assert_eq!(counted(&four.up), (4 * SSD_BYTES, vec![1]));
            goes_on();
            running.stop();
            kernel.join().unwrap();
            fifth = Some(ssd);
        });
        let end = running.look();
        let pause = Duration::from_nanos(end.longest_write_ns.max(end.longest_read_ns));
        println!("{} writes and reads, the longest {pause:?}", end.rounds);
        assert_eq!((end.failed, end.status), (0, 0), "no request fails");
        assert_eq!(guest.client.channel_stats().unwrap().protocol_errors, 0);
        let copies = every_copy_is_there(&file, &guest.client.fleet_map(), &running.versions());
        assert!(copies >= 2 * running.versions().len());
        let (busy, still) = (writes.end("writer"), reads.end("reader"));
        drop((file, running, guest, host, reader));
        read_again(four, fifth.expect("it joined"), &busy.data, &still.data);
    });
}

/// A daemon that was given the first four SSDs connects to the fifth by the map. If the fifth is not there,
/// the daemon goes on without it, and says so.
fn read_again(mut four: Four, fifth: SsdProcess, busy: &[u8], still: &[u8]) {
    four.start_again(1);
    until(&four.up, "all copies are back", |now| now["state"] == "healthy");
    let (at, key) = (four.addresses.join(","), Four::key(&four.folder));
    let up = Up::start_as(&["--ssd-at", &at, "--manager-key", &key]);
    let now = until(&up, "the next daemon knows all", |now| now["state"] == "healthy");
    assert_eq!(now["ssds"][4]["address"], fifth.address().as_str(), "{now:#}");
    assert_eq!(now["ssds"].as_array().map(Vec::len), Some(5));
    until(&up, "each SSD has said how large it is", |_| counted(&up) == (5 * SSD_BYTES, vec![]));
    let guest = Guest::connect_for(&up.daemon, "later", PATIENCE);
    assert_eq!(guest.client.ssds().len(), 5);
    for (name, data) in [("busy", busy), ("still", still)] {
        let mut read = vec![0; BYTES];
        guest.client.open(name, Rights::Read).unwrap().read_at(0, &mut read).unwrap();
        assert_same(name, &read, data);
    }
    drop(guest);
    up.end("-TERM");
    fifth.kill();
    let begun = Instant::now();
    let up = Up::start_as(&["--ssd-at", &at, "--manager-key", &key]);
    println!("a daemon without SSD 4 serves {:?} after its start", begun.elapsed());
    until(&up, "it goes on without SSD 4", |now| now["ssds"][4]["state"] == "out");
    assert_eq!(counted(&up), (4 * SSD_BYTES, vec![4]));
    let table = call(&up, &["df"]).stdout;
    assert!(table.lines().any(|line| line == "not counted SSD 4 (out)"), "{table}");
    up.end("-TERM");
}

#[test]
fn what_cannot_join_is_refused_and_a_spare_waits() {
    within(BUILD_LIMIT, || {
        let four = Four::start("3");
        let add = |address: &str, more: &[&str]| call(&four.up, &[&["fleet", "add", address], more].concat());
        let gone = empty(&four, 4, "64MiB", "127.0.0.1:0");
        let address = gone.address();
        drop(gone.end("-TERM"));
        add(&address, &[]).failed(&["cannot be added", "refused", "gnstor ssd --index 4"]);
        add(&four.addresses[2], &[]).failed(&["SSD 2 of this array is there"]);
        let wrong = empty(&four, 7, "64MiB", "127.0.0.1:0");
        add(&wrong.address(), &[]).failed(&["not SSD 4", "--index 4"]);
        let small = empty(&four, 4, "32MiB", "127.0.0.1:0");
        add(&small.address(), &[]).failed(&[
            "has room for 33554432 bytes",
            "needs 67108864",
            "--weight 0.50",
        ]);
        for (words, said) in [
            (&["nowhere"][..], "nowhere"),
            (&["127.0.0.1:1", "--weight", "0"], "0.01 to 100"),
            (&["127.0.0.1:1", "--node", "70000"], "70000"),
            (&[], "ADDRESS"),
        ] {
            let ended = call(&four.up, &[&["fleet", "add"], words].concat());
            assert!(ended.code == 2 && ended.stderr.contains(said), "{words:?}: {}", ended.stderr);
        }
        let embedded = Up::start(&["--ssds", "3"]);
        call(&embedded, &["fleet", "add", &address]).failed(&["in the daemon's process", "--ssd-at"]);
        assert_eq!(fleet(&four.up)["ssds"].as_array().map(Vec::len), Some(4), "nothing was changed");

        let file = four.folder.path().join("4-64MiB.gns");
        let (data, key) = (file.display().to_string(), Four::key(&four.folder));
        let spare = SsdProcess::start(&address, &["--data", &data, "--manager-key", &key]);
        let added = add(&spare.address(), &["--spare", "--node", "9", "--rack", "2"]);
        added.worked();
        assert!(added.stdout.contains("SSD 4 is added: it waits"), "{}", added.stdout);
        let now = until(&four.up, "it waits", |now| now["ssds"][4]["state"] == "spare");
        assert_eq!((&now["ssds"][4]["node"], &now["ssds"][4]["rack"]), (&9.into(), &2.into()));
        spare.kill();
        std::fs::remove_file(&file).expect("it is there");
        let other = empty(&four, 4, "64MiB", &address);
        until(&four.up, "an empty SSD is found in its place", |now| {
            now["ssds"][4]["why"].as_str().is_some_and(|why| why.contains("gnstor fleet replace 4"))
        });
        call(&four.up, &["fleet", "replace", "4"]).worked();
        let is_spare = |now: &Value| now["ssds"][4]["state"] == "spare" && now["ssds"][4]["why"].is_null();
        until(&four.up, "the empty SSD is the spare", is_spare);
        call(&four.up, &["fleet", "drain", "3"]).worked();
        // Its places are taken first, and then it is called in.
        until(&four.up, "SSD 3 is out, and the spare in its place", |now| {
            now["ssds"][3]["state"] == "out" && now["ssds"][4]["state"] == "in"
        });
        drop((wrong, small, embedded, other));
        four.up.end("-TERM");
    });
}
