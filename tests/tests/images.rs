// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data files that were changed between two lives of an array in one process, where the map names voters.
//! `old_disks.rs` has maps of format 2. A test that shows a limit fails when the limit goes away. Then change
//! docs/security.md and docs/limits.md.

use gnstor_array::media::{self, CameUp, Plan};
use gnstor_array::power::Threads;
use gnstor_array::{Array, ArrayConfig, ArrayError, Ssds};
use gnstor_daemon::{Openings, openings};
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::State3;
use gnstor_tests::command::until;
use gnstor_tests::folder::Folder;
use gnstor_tests::{
    BLOCK, CHUNK, assert_same, client, io_failure, node, pattern, small_config, volume, within,
};
use libgnstor::Rights;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const BYTES: usize = 1 << 20;
/// Bytes of each SSD. Small, because the tests copy files.
const SSD_BYTES: u64 = 8 << 20;
/// The SSD whose file is changed.
const VICTIM: u16 = 3;

/// The data files of some SSDs.
struct Files {
    folder: Folder,
    ssds: u16,
}

impl Files {
    fn new(ssds: u16) -> Self {
        Self { folder: Folder::in_memory(), ssds }
    }

    fn path(&self, ssd: u16) -> PathBuf {
        self.folder.path().join(format!("ssd-{ssd}.gns"))
    }

    /// The daemon's file with the numbers of openings.
    fn openings(&self) -> PathBuf {
        self.folder.path().join(openings::FILE_NAME)
    }

    fn start(&self) -> Array {
        self.try_start().expect("an array starts")
    }

    fn try_start(&self) -> Result<Array, ArrayError> {
        let null = media::preset("null").expect("the preset without modelled time");
        let plan = |plan: Plan| {
            let file = plan.index.map(|ssd| self.path(ssd));
            let bytes = file.as_ref().is_some_and(|file| !file.exists()).then_some(SSD_BYTES);
            Plan { file, bytes, sparse: true, ..plan }
        };
        let plans = media::in_memory(self.ssds, &null, SSD_BYTES).into_iter().map(plan);
        let (ssds, threads) = (Ssds::Here(plans.collect()), Threads { engines: 1 });
        let openings = Arc::new(Openings::in_file(&self.openings()).expect("it is whole"));
        Array::start(&ArrayConfig { ssds, threads, openings, ..small_config(self.ssds) })
    }

    fn keep(&self, ssd: u16, name: &str) {
        std::fs::copy(self.path(ssd), self.folder.path().join(format!("{name}-{ssd}"))).expect("a copy");
    }

    fn put(&self, ssd: u16, name: &str) {
        std::fs::copy(self.folder.path().join(format!("{name}-{ssd}")), self.path(ssd)).expect("a copy");
    }
}

fn stop(array: Array) {
    array.stop().expect("it stops in order");
}

fn copies(ssds: u16) -> u32 {
    u32::from(ssds).min(2)
}

/// Writes the volume. Makes it if `is_new`.
fn write(array: &Array, ssds: u16, seed: u64, is_new: bool) {
    let client = client(array, &node(array.transport()), "writer");
    if is_new {
        volume(&client, "v", BYTES as u64, copies(ssds));
    }
    let file = client.open("v", Rights::Write).expect("it opens");
    file.write_at(0, &pattern(seed, BYTES)).expect("it is written");
}

/// Checks that the volume reads as it was written last, and so does each copy that an SSD serves.
fn serves_only(array: &Array, seed: u64, when: &str) {
    let client = client(array, &node(array.transport()), "reader");
    let file = client.open("v", Rights::Read).expect("it opens");
    let (data, mut read) = (pattern(seed, BYTES), vec![0; BYTES]);
    file.read_at(0, &mut read).expect("a copy is served");
    assert_same(when, &read, &data);
    for at in (0..BYTES).step_by(CHUNK) {
        for replica in 0..2 {
            let mut block = vec![0; BLOCK];
            match file.read_replica_at(replica, at as u64, &mut block) {
                Ok(()) => {
                    assert_same(&format!("{when}: copy {replica} of {at}"), &block, &data[at..at + BLOCK]);
                }
                refusal => {
                    assert!(io_failure(refusal).nvme_status().is_some(), "{when}: an SSD refuses");
                }
            }
        }
    }
}

/// What the map says of the victim: its state, how many places it serves, and how many it fills.
fn victim(array: &Array) -> (State3, usize, usize) {
    let map = array.look().expect("the daemon answers").map.map;
    let AnyMap::Three(map) = AnyMap::decode(&map).expect("a map") else { panic!("the map names voters") };
    let all = map.rows.iter().flat_map(|row| row.places.iter().flatten());
    let places: Vec<_> = all.filter(|place| place.ssd == VICTIM).collect();
    let filling = places.iter().filter(|place| place.filling).count();
    (map.ssds[usize::from(VICTIM)].state, places.len() - filling, filling)
}

/// Runs the array with a wrong file of the victim, then with the right one again.
fn with_a_wrong_file(files: &Files, came_up: CameUp, why: &str) {
    let array = files.start();
    let here = array.ssds()[usize::from(VICTIM)].here.as_ref().expect("it is of this process");
    assert_eq!(here.came_up, came_up, "{here:?}");
    let lost = here.lost.as_ref().expect("a reason");
    assert!(lost.contains(why) && lost.contains("ssd-3.gns"), "{lost}");
    serves_only(&array, 2, "a wrong file");
    until("the daemon drops the SSD", || victim(&array) == (State3::Out, 0, 0));
    serves_only(&array, 2, "it is dropped");
    write(&array, files.ssds, 3, false);
    stop(array);
    files.put(VICTIM, "newest");
    let array = files.start();
    serves_only(&array, 3, "the right file");
    until("the SSD has filled", || matches!(victim(&array), (State3::In, 1.., 0)));
    serves_only(&array, 3, "it has filled");
    stop(array);
}

/// Makes four SSDs and writes their volume twice. Keeps copies of the victim's file from before and after the
/// second write.
fn written_twice() -> Files {
    let files = Files::new(4);
    let array = files.start();
    write(&array, files.ssds, 1, true);
    stop(array);
    files.keep(VICTIM, "older");
    let array = files.start();
    write(&array, files.ssds, 2, false);
    stop(array);
    files.keep(VICTIM, "newest");
    files
}

#[test]
fn an_older_image_beside_voters_in_one_process_is_dropped_gives_out_no_byte_and_fills_when_it_is_right() {
    within(LIMIT, || {
        let files = written_twice();
        files.put(VICTIM, "older");
        with_a_wrong_file(&files, CameUp::Behind, "older image");
    });
}

#[test]
fn a_file_of_another_array_beside_voters_in_one_process_is_dropped_and_gives_out_no_byte() {
    within(LIMIT, || {
        let (files, other) = (written_twice(), Files::new(4));
        stop(other.start());
        std::fs::copy(other.path(VICTIM), files.path(VICTIM)).expect("a copy");
        with_a_wrong_file(&files, CameUp::Damaged, "of another array");
    });
}

/// Asserts that the array serves what was written first.
fn serves_the_first(files: &Files) {
    let array = files.start();
    let client = client(&array, &node(array.transport()), "reader");
    let mut read = vec![0; BYTES];
    let file = client.open("v", Rights::Read).expect("it opens");
    file.read_at(0, &mut read).expect("it is served");
    assert_same("what was written last is gone", &read, &pattern(1, BYTES));
    let all_clean = array.ssds().iter().all(|ssd| {
        ssd.here.as_ref().is_some_and(|here| here.came_up == CameUp::Clean && here.lost.is_none())
    });
    assert!(all_clean, "{:?}", array.ssds());
    drop((file, client));
    stop(array);
}

/// No other SSD holds newer content, so only the daemon's file shows that the images are old.
#[test]
fn an_older_image_of_the_only_ssd_or_of_all_ssds_together_serves_nothing_by_the_daemons_file() {
    within(LIMIT, || {
        for ssds in [1, 3] {
            let files = Files::new(ssds);
            let array = files.start();
            write(&array, ssds, 1, true);
            stop(array);
            (0..ssds).for_each(|ssd| files.keep(ssd, "older"));
            let array = files.start();
            write(&array, ssds, 2, false);
            stop(array);
            (0..ssds).for_each(|ssd| files.keep(ssd, "newest"));
            (0..ssds).for_each(|ssd| files.put(ssd, "older"));
            // Twice: what the older images lack must not be forgotten by starting often.
            for _ in 0..2 {
                let refused = files.try_start().expect_err("older images are not served").to_string();
                let file = files.openings().display().to_string();
                for word in ["older image", "the daemon knows of", "ssd-0.gns", &file] {
                    assert!(refused.contains(word), "'{word}' is missing in: {refused}");
                }
            }
            (0..ssds).for_each(|ssd| files.put(ssd, "newest"));
            let array = files.start();
            let read = client(&array, &node(array.transport()), "reader");
            let mut back = vec![0; BYTES];
            read.open("v", Rights::Read).expect("it opens").read_at(0, &mut back).expect("it is served");
            assert_same("the right files", &back, &pattern(2, BYTES));
            drop(read);
            stop(array);
            // An operator may go back to a backup of the data files.
            (0..ssds).for_each(|ssd| files.put(ssd, "older"));
            std::fs::remove_file(files.openings()).expect("it is there");
            serves_the_first(&files);
        }
    });
}

/// A limit: a folder that was rolled back as a whole.
#[test]
fn an_older_image_of_all_files_and_of_the_daemons_file_is_served() {
    within(LIMIT, || {
        let files = Files::new(1);
        let array = files.start();
        write(&array, 1, 1, true);
        stop(array);
        files.keep(0, "older");
        let openings = std::fs::read(files.openings()).expect("it is there");
        let array = files.start();
        write(&array, 1, 2, false);
        stop(array);
        files.put(0, "older");
        std::fs::write(files.openings(), openings).expect("it is put back");
        serves_the_first(&files);
    });
}
