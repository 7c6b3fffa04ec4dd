// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps of format 3. The map names the first, groups can wait, and SSDs can be full. A map gives its places
//! to one content of one SSD (rules 1a, 1c, 7a, 15).

use super::*;
use gnstor_durable::SsdIdentity;
use gnstor_flash::{Power, RamStore};
use gnstor_proto::placement::map3::{FleetMap3, Incoming3, Place3, Row3, State3};

/// State of a place, with the number of its SSD.
pub(super) enum At {
    Serves(u16),
    Fills(u16),
    Hole,
}
use At::{Fills, Hole, Serves};

/// One group of three places, in an array of four SSDs.
pub(super) fn one_group(places: [At; 3], first: Option<u8>) -> FleetMap3 {
    let mut map = FleetMap3::of(&FleetMap::equal(4, 1, 7, 1).unwrap(), [3; 16]);
    let place = |at| match at {
        Serves(ssd) => Some(Place3 { ssd, filling: false }),
        Fills(ssd) => Some(Place3 { ssd, filling: true }),
        Hole => None,
    };
    let [a, b, c] = places.map(place);
    map.width = 3;
    map.rows = vec![Row3 { places: [a, b, c, None], incoming: None, first }];
    map
}

fn with_map(map: &FleetMap3, replicas: u8) -> Harness {
    with_map_on(Harness::connected(0), map, replicas)
}

fn with_map_on(mut harness: Harness, map: &FleetMap3, replicas: u8) -> Harness {
    assert_eq!(refusal(&harness.set_map(map)), None);
    let volume = VolumeEntry { replicas, ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &volume)), None);
    harness
}

/// The next map, with a change.
fn next(map: &FleetMap3, change: impl FnOnce(&mut FleetMap3)) -> FleetMap3 {
    let mut map = FleetMap3 { epoch: map.epoch + 1, ..map.clone() };
    change(&mut map);
    map
}

impl Harness {
    pub(super) fn read_as(&mut self, key: QueueKey) -> Option<Refusal> {
        let sqe = self.io(io::READ, key, 0, 1);
        self.refused(key, sqe)
    }

    pub(super) fn write_at(&mut self, vba: u32) -> Option<Refusal> {
        refusal(&self.write(vba, &[1]))
    }
}

#[test]
fn the_map_names_the_first_and_a_lower_place_that_serves_is_not_the_first() {
    let map = one_group([Serves(0), Serves(1), Serves(2)], Some(1));
    let mut harness = with_map(&map, 3);
    assert_eq!((harness.read_as(WRITER), harness.read_as(READER)), (None, Some(Refusal::AskTheFirst)));
    assert_eq!(refusal(&harness.set_map(&next(&map, |map| map.rows[0].first = Some(0)))), None);
    assert_eq!(harness.read_as(READER), None);
    // A volume whose places do not include the first has none.
    assert_eq!(
        refusal(&harness.set_map(&one_group([Serves(0), Serves(1), Serves(2)], Some(1)))),
        Some(Refusal::StaleVersion)
    );
    let mut harness = with_map(&map, 1);
    assert_eq!((harness.read_as(WRITER), harness.read_as(READER)), (None, Some(Refusal::AskTheFirst)));
    harness.advance(Span::from_ms(10_000));
    assert_eq!(harness.read_as(READER), None, "no write lease runs");
}

#[test]
fn until_a_volume_is_settled_the_first_alone_serves_its_reads() {
    for (first, others) in [(0, None), (1, Some(Refusal::AskTheFirst))] {
        let map = one_group([Serves(0), Serves(1), Serves(2)], Some(first));
        let mut harness = with_map(&map, 3);
        assert_eq!((harness.write_at(0), harness.read_as(WRITER)), (None, None));
        harness.chmod(|entry| (entry.writer, entry.lease_ms, entry.unsettled) = (None, 0, true));
        assert!(harness.ssd().table.volume(vid(VOLUME)).unwrap().entry().unsettled);
        assert_eq!(harness.read_as(READER), others);
        assert_eq!(harness.write_at(1), Some(Refusal::LeaseExpired));
        harness.chmod(|entry| entry.unsettled = false);
        assert_eq!(harness.read_as(READER), None, "the copies are the same");
    }
}

#[test]
fn the_ssd_that_takes_over_a_place_takes_writes_and_no_reads() {
    let mut map = one_group([Serves(1), Serves(2), Serves(3)], Some(0));
    map.rows[0].incoming = Some(Incoming3 { ssd: 0, place: 2 });
    let mut harness = with_map(&map, 3);
    assert_eq!((harness.write_at(0), harness.read_as(WRITER)), (None, Some(Refusal::NotHereYet)));
    let mut harness = with_map(&map, 2);
    assert_eq!(
        (harness.write_at(0), harness.read_as(WRITER)),
        (Some(Refusal::WrongTarget), Some(Refusal::WrongTarget))
    );
}

#[test]
fn a_group_with_an_absent_member_waits_and_other_places_do_not() {
    let mut map = one_group([Serves(0), Serves(1), Serves(2)], Some(0));
    map.ssds[2].state = State3::Absent;
    let mut harness = with_map(&map, 3);
    let waits = Some(Refusal::GroupWaits);
    assert_eq!((harness.read_as(WRITER), harness.write_at(0)), (waits, waits));
    let mut harness = with_map(&map, 2);
    assert_eq!((harness.read_as(WRITER), harness.write_at(0)), (None, None), "the volume has no copy there");
    map.ssds[0].state = State3::Absent;
    let mut harness = with_map(&map, 2);
    let refused = Some(Refusal::NotServing);
    assert_eq!((harness.read_as(WRITER), harness.write_at(0)), (refused, refused), "it is the absent one");
}

#[test]
fn a_volume_of_three_replicas_takes_no_writes_with_one_and_is_read() {
    for (replicas, places, written) in [
        (3, [Serves(0), Hole, Hole], Some(Refusal::GroupWaits)),
        (3, [Serves(0), Fills(1), Hole], None),
        (2, [Serves(0), Hole, Hole], None),
    ] {
        let mut harness = with_map(&one_group(places, Some(0)), replicas);
        assert_eq!((harness.write_at(0), harness.read_as(WRITER)), (written, None));
    }
}

#[test]
fn a_full_ssd_of_the_group_stops_new_blocks_on_all_members_alike() {
    let map = one_group([Serves(0), Serves(1), Serves(2)], Some(0));
    let mut harness = with_map(&map, 3);
    assert_eq!(harness.write_at(1), None);
    let full = next(&map, |map| map.ssds[1].state = State3::Full);
    assert_eq!(refusal(&harness.set_map(&full)), None);
    assert_eq!((harness.write_at(1), harness.write_at(2)), (None, Some(Refusal::GroupFull)));
    assert_eq!(refusal(&harness.write(1, &[1, 2])), Some(Refusal::GroupFull), "one of two blocks is new");
    assert_eq!(harness.mapped_blocks(), 1, "nothing of it was written");
    let mut fua = harness.io(io::WRITE, WRITER, 2, 1);
    fua.cdw12 = (1 << 30).into();
    assert_eq!(harness.refused(WRITER, fua), Some(Refusal::GroupFull), "nor through the firmware");
    let trim = harness.io(io::WRITE_ZEROES, WRITER, 1, 1);
    assert_eq!((harness.refused(WRITER, trim), harness.write_at(1)), (None, Some(Refusal::GroupFull)));
    // A place that fills does not know which blocks are mapped.
    let fills = next(&full, |map| {
        map.rows[0] = one_group([Fills(0), Serves(1), Serves(2)], Some(1)).rows[0];
    });
    assert_eq!((refusal(&harness.set_map(&fills)), harness.write_at(3)), (None, None));
    assert!(harness.frames_are_whole());
}

/// An SSD whose power can fail, without a dump.
pub(super) struct Cut {
    config: SsdConfig,
    bench: Bench,
}

impl Cut {
    pub(super) fn new() -> (Self, Ssd) {
        Self::made(0, 1024, 0)
    }

    /// As [`Self::new`], for SSD number `index` with `blocks` blocks.
    pub(super) fn of(index: u16, blocks: u64) -> (Self, Ssd) {
        Self::made(index, blocks, 0)
    }

    /// As [`Self::new`], with its metadata on a disk whose syncs take this number of polls.
    pub(super) fn with_slow_syncs(polls: u32) -> (Self, Ssd) {
        Self::made(0, 1024, polls)
    }

    fn made(index: u16, blocks: u64, polls: u32) -> (Self, Ssd) {
        let mut preset = Preset::by_name("null").unwrap();
        preset.power_protected = false;
        let serial = "GN0001".into();
        let capacity_bytes = blocks * 4096;
        let config = SsdConfig { index, preset, capacity_bytes, serial, media: SsdMedia::Ram };
        let power = Arc::new(Power::steady());
        let bytes =
            gnstor_ftl::FtlConfig::store_bytes(&config.preset, blocks, gnstor_ftl::DUMP_BYTES).unwrap();
        let store = RamStore::new(bytes, Arc::clone(&power)).with_slow_syncs(polls);
        let store = Some(Arc::new(store));
        let mut bench = Bench { power, store, ..Bench::default() };
        let ssd = Ssd::format_with(config.clone(), &bench).unwrap();
        bench.flash = Some(Arc::clone(ssd.ftl().flash()));
        (Self { config, bench }, ssd)
    }

    /// Cuts the power and restores it. The seed decides whether content that was not durable is there, torn
    /// or gone.
    pub(super) fn power_cycle(&self, seed: u64) {
        self.bench.power.cut();
        self.bench.power.restore();
        self.bench.flash.as_ref().expect("in memory").after_power_cut(seed);
        self.bench.store.as_ref().expect("a store").after_power_cut(seed);
    }

    pub(super) fn reopen(&self) -> Ssd {
        Ssd::reopen(self.config.clone(), &self.bench).unwrap()
    }

    pub(super) fn harness(&self, ssd: Ssd) -> Harness {
        Harness::around(ssd, Arc::clone(&self.bench.faults)).with_clients()
    }
}

#[test]
fn a_map_gives_its_places_to_one_content_of_one_ssd() {
    let (cut, ssd) = Cut::new();
    let identity = ssd.identity();
    assert_eq!(identity.incarnation, 1);
    let named = |own: SsdIdentity| {
        let mut map = one_group([Serves(0), Serves(1), Hole], Some(0));
        (map.ssds[0].uuid, map.ssds[0].incarnation) = (own.uuid, own.incarnation);
        map
    };
    let other = named(SsdIdentity { uuid: [9; 16], ..identity });
    let mut harness = with_map_on(cut.harness(ssd), &other, 2);
    let refused = Some(Refusal::NotServing);
    assert_eq!(
        (harness.read_as(WRITER), harness.write_at(0)),
        (refused, refused),
        "another SSD of this number"
    );
    let older = next(&other, |map| map.ssds = named(SsdIdentity { incarnation: 2, ..identity }).ssds);
    harness.set_map(&older);
    assert_eq!((harness.read_as(WRITER), harness.write_at(0)), (refused, refused), "another incarnation");
    let own = next(&older, |map| map.ssds = named(identity).ssds);
    harness.set_map(&own);
    assert_eq!((harness.read_as(WRITER), harness.write_at(0)), (None, None));
    // A map that drops it ends the incarnation, durably. If a later map names that incarnation again, the SSD
    // gets nothing.
    let dropped = next(&own, |map| {
        map.rows[0] = one_group([Hole, Serves(1), Hole], Some(1)).rows[0];
        map.ssds[0].state = State3::Out;
    });
    harness.set_map(&dropped);
    assert_eq!(harness.ssd().identity(), SsdIdentity { incarnation: 2, ..identity });
    harness.set_map(&next(&dropped, |map| map.term += 1));
    assert_eq!(harness.ssd().identity().incarnation, 2, "it has ended already");
    harness.ssd().shut_down().unwrap();
    drop(harness);
    let ssd = cut.reopen();
    assert_eq!(ssd.identity(), SsdIdentity { incarnation: 2, ..identity });
    let mut harness = cut.harness(ssd);
    let again = FleetMap3 { epoch: dropped.epoch + 2, term: dropped.term + 1, ..own.clone() };
    harness.set_map(&again);
    assert_eq!(harness.read_as(WRITER), refused);
    harness.set_map(&next(&again, |map| map.ssds[0].incarnation = 2));
    assert_eq!(harness.read_as(WRITER), None);
}

/// An SSD fills places and serves others, and starts again under the same map. It keeps its number, and so
/// the places that it serves. Writers of the places that it fills wait for a newer map (rule 13).
#[test]
fn an_ssd_that_serves_and_fills_keeps_its_number_in_a_restart_and_writers_of_what_it_fills_wait() {
    let (cut, ssd) = Cut::new();
    let identity = ssd.identity();
    let mut map = one_group([Serves(0), Serves(1), Hole], Some(0));
    map.rows.push(one_group([Serves(1), Fills(0), Hole], Some(0)).rows[0]);
    (map.ssds[0].uuid, map.ssds[0].incarnation) = (identity.uuid, identity.incarnation);
    let mut harness = with_map_on(cut.harness(ssd), &map, 2);
    let blocks = || (0..64).step_by(8);
    assert!(blocks().all(|vba| harness.write_at(vba).is_none()));
    harness.ssd().shut_down().unwrap();
    drop(harness);
    let ssd = cut.reopen();
    assert_eq!(ssd.identity(), identity);
    let mut harness = cut.harness(ssd);
    harness.map_epoch = map.wire_epoch();
    assert_eq!(super::lease::renew(&mut harness, 1, 1, 60_000), None);
    // The daemon says anew that the writer's lease runs.
    harness.chmod(|_| ());
    let refused: Vec<_> = blocks().filter_map(|vba| harness.write_at(vba)).collect();
    assert!((1..blocks().count()).contains(&refused.len()), "it serves some: {refused:?}");
    // Clients send again what is refused so (libgnstor/src/transfer/retry.rs, gnor/cuda/gnor/io.cuh).
    assert!(refused.iter().all(|&why| why == Refusal::NotServing), "{refused:?}");
    assert_eq!(refusal(&harness.set_map(&next(&map, |_| ()))), None);
    assert!(blocks().all(|vba| harness.write_at(vba).is_none()));
}

/// An SSD serves no place yet, and comes in for another SSD. It has filled, and the map by which it takes
/// over waits for a lease. That map names the number that the SSD had (rule 4 of a drain).
#[test]
fn an_ssd_that_comes_in_keeps_its_number_in_a_restart_as_the_map_by_which_it_takes_over_names_it() {
    let (cut, ssd) = Cut::new();
    let identity = ssd.identity();
    let mut map = one_group([Serves(1), Hole, Hole], Some(0));
    map.rows[0].incoming = Some(Incoming3 { ssd: 0, place: 0 });
    (map.ssds[0].uuid, map.ssds[0].incarnation) = (identity.uuid, identity.incarnation);
    let mut harness = with_map_on(cut.harness(ssd), &map, 1);
    assert_eq!(harness.write_at(0), None);
    harness.ssd().shut_down().unwrap();
    drop(harness);
    let ssd = cut.reopen();
    assert_eq!(ssd.identity(), identity);
    let mut harness = cut.harness(ssd);
    harness.map_epoch = map.wire_epoch();
    assert_eq!(super::lease::renew(&mut harness, 1, 1, 60_000), None);
    harness.chmod(|_| ());
    assert_eq!(harness.write_at(0), Some(Refusal::NotServing), "it has forgotten what clients changed");
    let over = next(&map, |map| map.rows[0] = one_group([Serves(0), Hole, Hole], Some(0)).rows[0]);
    assert_eq!(refusal(&harness.set_map(&over)), None);
    assert_eq!((harness.write_at(0), harness.read_as(WRITER)), (None, None), "it serves what it has");
}

/// The power fails without a dump. A map that was made for another SSD names the previous content, and ends
/// nothing.
#[test]
fn a_newer_epoch_ends_a_loss_only_for_the_incarnation_that_it_names() {
    let (cut, ssd) = Cut::new();
    let map = one_group([Serves(0), Serves(1), Hole], Some(0));
    let mut harness = with_map_on(cut.harness(ssd), &map, 2);
    assert_eq!(harness.write_at(0), None);
    drop(harness);
    let ssd = cut.reopen();
    assert!(ssd.boot().is_lossy() && ssd.is_filling());
    assert_eq!(ssd.identity().incarnation, 2);
    let mut harness = cut.harness(ssd);
    harness.map_epoch = 1;
    assert_eq!(harness.read_as(READER), Some(Refusal::NotServing));
    let other = next(&map, |map| map.ssds[1].incarnation = 7);
    harness.set_map(&other);
    assert!(harness.ssd().is_filling());
    assert_eq!(harness.read_as(READER), Some(Refusal::NotServing), "the map is of another SSD's loss");
    harness.set_map(&next(&other, |map| {
        map.ssds[0].incarnation = 2;
        map.rows[0] = one_group([Fills(0), Serves(1), Hole], Some(1)).rows[0];
    }));
    assert!(!harness.ssd().is_filling());
    assert_eq!(harness.read_as(READER), Some(Refusal::NotHereYet), "it fills now");
    drop(harness);
}

#[test]
fn a_map_of_another_array_or_of_none_is_refused_even_from_the_daemon_and_changes_nothing() {
    let map = one_group([Serves(0), Serves(1), Serves(2)], Some(0));
    let mut harness = with_map(&map, 3);
    let foreign = |array| FleetMap3 { array, term: 9, ..next(&map, |_| ()) };
    for array in [[4; 16], [0; 16]] {
        assert_eq!(refusal(&harness.set_map(&foreign(array))), Some(Refusal::InvalidField));
    }
    let mut last = map.array;
    last[15] += 1;
    assert_eq!(refusal(&harness.set_map(&foreign(last))), Some(Refusal::InvalidField));
    let mut two = FleetMap::equal(4, 1, 7, 1).unwrap();
    (two.epoch, two.term) = (9, 9);
    assert_eq!(refusal(&harness.set_map(&two)), Some(Refusal::InvalidField), "format 2 names no array");
    harness.map_epoch = map.wire_epoch();
    assert_eq!(harness.read_as(READER), None, "the map is as it was");
    assert_eq!(refusal(&harness.set_map(&next(&map, |map| map.term = 2))), None, "and so is the term");
}

/// After a restart, too.
#[test]
fn an_ssd_remembers_the_array_of_its_map_and_a_map_of_format_2_takes_any() {
    let (cut, ssd) = Cut::new();
    let two = FleetMap::equal(4, 1, 7, 1).unwrap();
    let mut harness = cut.harness(ssd);
    assert_eq!(refusal(&harness.set_map(&two)), None);
    let map = next(&FleetMap3::of(&two, [3; 16]), |_| ());
    assert_eq!(refusal(&harness.set_map(&map)), None, "it names the array from here on");
    harness.ssd().shut_down().unwrap();
    drop(harness);
    let mut harness = cut.harness(cut.reopen());
    let other = FleetMap3 { array: [4; 16], ..next(&map, |_| ()) };
    assert_eq!(refusal(&harness.set_map(&other)), Some(Refusal::InvalidField));
    assert_eq!(refusal(&harness.set_map(&next(&map, |_| ()))), None);
}
