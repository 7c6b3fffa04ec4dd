// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD process is drained beside clients (`gnstor fleet drain`). At no moment has a group one copy less.
//! Only SSDs that are killed meanwhile take copies with them.

use super::all_killed::{PATIENCE, kill_all};
use super::{
    BUILD_LIMIT, BYTES, Duration, Instant, Load, Rights, Use, fleet, until, volume, within, write_and_read,
};
use crate::fleet_daemon::Array;
use gnstor_proto::placement::map3::FleetMap3;
use gnstor_tests::command::{Ended, gnstor};
use gnstor_tests::{assert_same, pattern};
use serde_json::Value;

pub(super) fn call(array: &Array, words: &[&str]) -> Ended {
    gnstor(&[words, &["--array", &array.daemon()]].concat())
}

/// Whether each group has two copies that serve.
fn has_all_copies(now: &Value) -> bool {
    let counts: Vec<u64> =
        now["groups_by_copies"].as_array().expect("numbers").iter().filter_map(Value::as_u64).collect();
    assert_eq!(counts.len(), 3, "{now:#}");
    counts[0] + counts[1] == 0
}

/// Whether another SSD than this one has lost places since `epoch`. A drain takes none from it. On a busy
/// machine an SSD may be silent for so long that the map drops it.
fn has_lost_another(array: &Array, drained: u16, epoch: u64) -> bool {
    array.map().ssds.iter().any(|ssd| ssd.id != drained && ssd.shrunk_at > epoch)
}

fn is_out(now: &Value, ssd: u16) -> bool {
    now["ssds"][usize::from(ssd)]["state"] == "out"
}

fn has_no_place(map: &FleetMap3, ssd: u16) {
    assert!(map.rows.iter().flat_map(|row| row.places).flatten().all(|place| place.ssd != ssd));
}

/// SSDs that come in for the places of others.
fn incoming(map: &FleetMap3) -> impl Iterator<Item = u16> {
    map.rows.iter().filter_map(|row| row.incoming.map(|of| of.ssd))
}

/// A drain that goes no further than to its SSDs that come in, until fills are resumed.
fn begin_and_stay(array: &Array, clients: &mut Use, ssd: u16) {
    call(array, &["rebuild", "pause"]).worked();
    call(array, &["fleet", "drain", &ssd.to_string()]).worked();
    until(array, "SSDs come in", |_| {
        clients.trimmer.renew();
        incoming(&array.map()).next().is_some()
    });
    (0..5).for_each(|_| clients.trim(array));
}

/// The daemon refuses it while no SSD answers, as at once after a kill of all.
fn resume_fills(array: &Array) {
    gnstor_tests::command::until("fills are resumed", || {
        let said = call(array, &["rebuild", "resume"]);
        assert!(said.code == 0 || said.stderr.contains("no SSD answers"), "{}", said.stderr);
        said.code == 0
    });
}

/// Waits until the SSD has left and all copies are there. TRIMs go on meanwhile.
fn end_of_drain(array: &Array, clients: &mut Use, ssd: u16) {
    let begun = Instant::now();
    resume_fills(array);
    let mut rounds = 0;
    let out = until(array, "the SSD is out and all is there", |now| {
        clients.trimmer.renew();
        rounds += 1;
        if rounds % 4 == 0 {
            clients.trim(array);
        }
        is_out(now, ssd) && now["state"] == "healthy"
    });
    eprintln!("SSD {ssd} out and healthy {:?} after fills were resumed", begun.elapsed());
    assert_eq!(out["ssds"][usize::from(ssd)]["taken_out"], true, "{out:#}");
    has_no_place(&array.map(), ssd);
}

/// Whether the SSD has a quarter of its share of the places that volumes of two replicas use. With less it
/// takes the rest from the others, and the daemon refuses a drain of another SSD until it has.
fn has_its_share(map: &FleetMap3, ssd: u16) -> bool {
    let used = || map.rows.iter().flat_map(|row| row.places.into_iter().take(2)).flatten();
    let has = used().filter(|place| place.ssd == ssd).count();
    has * 4 * map.ssds.len() >= used().count() && incoming(map).next().is_none()
}

/// An SSD that was taken out has its share again, and all copies are there.
fn take_back(array: &Array, clients: &mut Use, ssd: u16) {
    call(array, &["fleet", "resume", &ssd.to_string()]).worked();
    until(array, "it is back", |now| {
        clients.trimmer.renew();
        !is_out(now, ssd) && now["state"] == "healthy" && has_its_share(&array.map(), ssd)
    });
}

/// Drains an SSD beside clients. Returns whether the array kept all others. If not, copies were missing for
/// another reason.
fn drain_beside_clients() -> bool {
    const SSD: u16 = 2;
    let array = Array::start();
    let mut clients = Use::start(&array);
    volume(&clients.writer.client, "single", BYTES as u64, 1);
    let data = pattern(7, BYTES);
    let file = clients.writer.client.open("single", Rights::Write).unwrap();
    file.write_at(0, &data).unwrap();
    let single = Load::start(move |stop| write_and_read(&file, data, stop));
    let none = call(&array, &["fleet", "drain", "7"]);
    assert!(none.code != 0 && none.stderr.contains("SSDs 0 to 3"), "{}", none.stderr);
    let (begun, epoch) = (Instant::now(), array.map().epoch);
    let said = call(&array, &["fleet", "drain", "2"]);
    said.worked();
    assert!(said.stdout.contains("SSD 2 is being drained"), "{}", said.stdout);
    let other = call(&array, &["fleet", "drain", "1"]);
    assert!(other.code != 0 && other.stderr.contains("gnstor fleet resume 2"), "{}", other.stderr);
    let (mut has_moved, mut has_lost) = (false, false);
    let out = until(&array, "the SSD is out", |now| {
        has_lost |= !has_all_copies(now) && has_lost_another(&array, SSD, epoch);
        assert!(has_lost || has_all_copies(now), "a copy is missing: {now:#}");
        clients.trimmer.renew();
        clients.trim(&array);
        has_moved |= now["ssds"].as_array().is_some_and(|all| all.iter().any(|s| s["filling_groups"] != 0));
        is_out(now, SSD)
    });
    eprintln!("out {:?} after the call; seen while others filled: {has_moved}", begun.elapsed());
    assert_eq!(out["ssds"][usize::from(SSD)]["taken_out"], true);
    assert!(has_lost || out["state"] == "healthy", "{out:#}");
    has_no_place(&array.map(), SSD);
    std::thread::sleep(Duration::from_millis(500));
    let single = single.end("writer of one copy");
    let reader = gnstor_tests::Guest::connect(&array.daemon(), "of one copy");
    let mut read = vec![0; BYTES];
    reader.client.open("single", Rights::Read).unwrap().read_at(0, &mut read).unwrap();
    assert_same("a volume of one copy", &read, &single.data);
    drop(reader);
    until(&array, "all is there", |now| now["state"] == "healthy");
    clients.end(&array, &[]);
    array.end();
    !has_lost
}

#[test]
fn a_drained_ssd_leaves_while_clients_work_and_no_copy_is_missing_at_any_moment() {
    within(BUILD_LIMIT, || {
        assert!((0..3).any(|_| drain_beside_clients()), "each of three arrays lost another SSD by itself");
    });
}

#[test]
#[ignore = ".ci/run runs it: it takes long"]
fn a_drain_goes_on_where_an_ssd_that_comes_in_is_killed_and_where_the_daemon_starts_anew() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let mut clients = Use::start(&array);
        begin_and_stay(&array, &mut clients, 2);
        let comes = incoming(&array.map()).next().expect("one comes in");
        array.kill(comes.into());
        until(&array, "it is dropped", |now| is_out(now, comes));
        assert!(incoming(&array.map()).all(|ssd| ssd != comes), "it comes in no more");
        (0..5).for_each(|_| clients.trim(&array));
        array.restart(comes);
        end_of_drain(&array, &mut clients, 2);
        take_back(&array, &mut clients, 2);

        begin_and_stay(&array, &mut clients, 1);
        array.restart_daemon();
        end_of_drain(&array, &mut clients, 1);
        clients.end(&array, &[]);
        array.end();
    });
}

#[test]
#[ignore = ".ci/run runs it: it takes long"]
fn a_drain_that_is_called_off_takes_nothing_and_one_whose_ssd_is_killed_ends_as_a_loss() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let mut clients = Use::start(&array);
        begin_and_stay(&array, &mut clients, 3);
        let epoch = array.map().epoch;
        let keeps = |now: &Value| {
            let keeps = has_all_copies(now) || has_lost_another(&array, 3, epoch);
            assert!(keeps, "a copy is missing: {now:#}");
        };
        keeps(&fleet(&array));
        call(&array, &["fleet", "resume", "3"]).worked();
        until(&array, "none comes in", |now| {
            keeps(now);
            clients.trimmer.renew();
            incoming(&array.map()).next().is_none()
        });
        assert_eq!(fleet(&array)["ssds"][3]["state"], "in");

        begin_and_stay(&array, &mut clients, 3);
        array.kill(3);
        until(&array, "it is dropped", |now| is_out(now, 3));
        end_of_drain(&array, &mut clients, 3);
        array.restart(3);
        std::thread::sleep(Duration::from_secs(1));
        assert!(is_out(&fleet(&array), 3), "it stays out");
        clients.end(&array, &[]);
        array.end();
    });
}

/// What an SSD took outlives its process, so a drain goes on after that, and no call fails meanwhile.
#[test]
#[ignore = ".ci/run runs it: it takes long"]
fn a_drain_goes_on_where_all_ssds_are_killed_at_once_before_their_fills_and_beside_them() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let mut clients = Use::start_for(&array, PATIENCE);
        begin_and_stay(&array, &mut clients, 2);
        kill_all(&mut array);
        end_of_drain(&array, &mut clients, 2);
        take_back(&array, &mut clients, 2);

        begin_and_stay(&array, &mut clients, 1);
        resume_fills(&array);
        std::thread::sleep(Duration::from_millis(100));
        kill_all(&mut array);
        end_of_drain(&array, &mut clients, 1);
        clients.end(&array, &[]);
        array.end();
    });
}
