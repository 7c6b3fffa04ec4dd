// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fleet maps of format 3: places, the first, groups that wait or are full, incarnations, bent bytes.

#[path = "bent_map3.rs"]
mod bent_map3;

use crate::file::Script;
use crate::script::{Io, MS, READER, VOLUME, WRITER, Writing, entry};
use gnstor_proto::nvme::io;
use gnstor_proto::placement::map3::{FleetMap3, Incoming3, Place3, Row3, State3, Vote};
use gnstor_proto::placement::{FleetMap, Rows};
use gnstor_proto::vendor::VolumeEntry;

const ARRAY: [u8; 16] = *b"an array's id...";

pub(crate) fn maps(scripts: &mut Vec<Script>) {
    places(scripts);
    firsts(scripts);
    unsettled(scripts);
    states(scripts);
    salvage(scripts);
    full(scripts);
    contents(scripts);
    exchange(scripts);
    arrays(scripts);
    bent_map3::bent(scripts);
}

fn encoded(map: &FleetMap3) -> Vec<u8> {
    map.encode().expect("a map")
}

/// Adds volumes of one to four replicas.
fn add_volumes(s: &mut Writing) {
    for vid in 1..=4u16 {
        let replicas = u8::try_from(vid).expect("few");
        s.add(&VolumeEntry { replicas, ..entry(vid) });
    }
}

/// Reads and writes of each volume, and reads of another client.
fn look(s: &mut Writing, map: &impl Rows) {
    for vid in 1..=4u16 {
        for vba in (0..8).map(|chunk| chunk * 48 % 512) {
            let own = Io { vid, map_epoch: map.wire_epoch(), ..Io::new(io::READ, WRITER, vba, 1) };
            s.run(own);
            s.run(Io { opcode: io::WRITE, ..own });
            s.run(Io { from: READER, client: READER, ..own });
        }
    }
}

/// Places of equal SSDs, before and after losses. The firsts move, and each third row has an incoming SSD.
fn places(scripts: &mut Vec<Script>) {
    for (count, groups) in [(1usize, 64u32), (2, 64), (4, 64), (5, 256), (64, 64)] {
        for id in [0, count - 1].into_iter().take(count) {
            let number = u16::try_from(id).expect("few");
            let mut s = Writing::sized(1024, number);
            add_volumes(&mut s);
            let mut two = FleetMap::equal(count, groups, 7 + count as u64, 1).expect("a map");
            for lost in [None, Some(1), Some(0)] {
                if let Some(lost) = lost {
                    two = two.without(lost);
                }
                let mut map = FleetMap3::of(&two, ARRAY);
                for (group, row) in map.rows.iter_mut().enumerate() {
                    let serves = |at: &u8| row.places[usize::from(*at)].is_some_and(|place| !place.filling);
                    let serving: Vec<u8> = (0..4u8).filter(serves).collect();
                    row.first = serving.get(group % serving.len().max(1)).copied();
                    let is_free = |ssd: &u16| !row.places.iter().flatten().any(|place| place.ssd == *ssd);
                    let is_in = |ssd: &u16| two.state(*ssd) == Some(State3::In);
                    let free = (0..u16::try_from(count).expect("few")).filter(is_free).find(is_in);
                    row.incoming = free
                        .filter(|_| group % 3 == 0)
                        .and_then(|ssd| serving.last().map(|&place| Incoming3 { ssd, place }));
                }
                s.set_map_bytes(&encoded(&map));
                look(&mut s, &map);
            }
            scripts.push(s.finish(
                format!("map3-place-{count}-{groups}-{id}"),
                format!("map 3: SSD {id} of {count} in {groups} groups, and after losses"),
            ));
        }
    }
}

/// One group of four SSDs. The script's SSD is number 0.
fn one_group(ssds: [u16; 3], filling: [bool; 3], first: Option<u8>) -> FleetMap3 {
    let mut map = FleetMap3::of(&FleetMap::equal(4, 1, 7, 1).expect("a map"), ARRAY);
    map.width = 3;
    let mut row = Row3 { first, ..Row3::default() };
    for ((place, ssd), filling) in row.places.iter_mut().zip(ssds).zip(filling) {
        *place = (ssd != u16::MAX).then_some(Place3 { ssd, filling });
    }
    map.rows = vec![row];
    map
}

const NONE: u16 = u16::MAX;
const SERVE: [bool; 3] = [false; 3];

/// Rule 7a: the map names the first.
fn firsts(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    add_volumes(&mut s);
    for (at, first) in [Some(0), Some(1), Some(2), None].into_iter().enumerate() {
        let mut map = one_group([0, 1, 2], SERVE, first);
        map.epoch += at as u64;
        s.set_map_bytes(&encoded(&map));
        look(&mut s, &map);
        map.epoch += 10;
        map.rows[0].incoming = Some(Incoming3 { ssd: 3, place: 1 });
        s.set_map_bytes(&encoded(&map));
    }
    let mut map = one_group([1, 2, 3], SERVE, Some(0));
    for place in 0..3 {
        map.epoch += 20;
        map.rows[0].incoming = Some(Incoming3 { ssd: 0, place });
        s.set_map_bytes(&encoded(&map));
        look(&mut s, &map);
    }
    s.now_ns += 10_000 * MS;
    look(&mut s, &map);
    scripts.push(s.finish("map3-first", "map 3: the first is the map's; an SSD that comes in takes writes"));
}

/// Rule 7a: while a volume is not settled, all clients ask the first.
fn unsettled(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    add_volumes(&mut s);
    let mut version = entry(1).version;
    for (at, first) in [Some(0), Some(1), None].into_iter().enumerate() {
        let mut map = one_group([0, 1, 2], SERVE, first);
        map.epoch += at as u64;
        s.set_map_bytes(&encoded(&map));
        for unsettled in [true, false] {
            version += 1;
            for vid in 1..=4u16 {
                let replicas = u8::try_from(vid).expect("few");
                let (writer, lease_ms) = (None, 0);
                s.chmod(&VolumeEntry { replicas, version, writer, lease_ms, unsettled, ..entry(vid) });
            }
            look(&mut s, &map);
        }
    }
    scripts.push(s.finish("map3-unsettled", "map 3: until a volume is settled the first alone serves reads"));
}

/// Rules 1b and 1c: each SSD in each state, and groups with holes.
fn states(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    add_volumes(&mut s);
    let mut epoch = 0;
    for state in [State3::In, State3::Absent, State3::Full] {
        for ssd in 0..4 {
            let mut map = one_group([1, 0, 2], SERVE, Some(0));
            epoch += 1;
            map.epoch = epoch;
            map.ssds[ssd].state = state;
            map.ssds[ssd].shrunk_at = 1;
            s.set_map_bytes(&encoded(&map));
            look(&mut s, &map);
        }
    }
    for (ssds, filling) in [
        ([0, NONE, NONE], SERVE),
        ([NONE, 0, NONE], SERVE),
        ([0, 1, NONE], [false, true, false]),
        ([1, 0, NONE], [false, true, false]),
    ] {
        let first = ssds.iter().zip(filling).position(|(ssd, filling)| *ssd != NONE && !filling);
        let mut map = one_group(ssds, filling, first.and_then(|at| u8::try_from(at).ok()));
        epoch += 1;
        map.epoch = epoch;
        s.set_map_bytes(&encoded(&map));
        look(&mut s, &map);
    }
    scripts.push(s.finish("map3-states", "map 3: groups with absent SSDs and with too few wait"));
}

/// Rule 17: copies that merge take no writes; an SSD that has last copies and lost writes says what helps.
fn salvage(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    add_volumes(&mut s);
    let mut epoch = 0;
    for (ssds, filling, first) in [
        ([0, 1, NONE], [true, true, false], None),
        ([1, 0, 2], [true, true, true], None),
        ([0, NONE, 1], [true, false, true], None),
        ([0, 1, 2], [true, true, false], Some(2)),
        ([0, NONE, NONE], [true, false, false], None),
        ([0, 1, 2], SERVE, Some(0)),
    ] {
        let mut map = one_group(ssds, filling, first);
        epoch += 1;
        map.epoch = epoch;
        s.set_map_bytes(&encoded(&map));
        look(&mut s, &map);
    }
    // The map drops it, so it counts up. Then maps name the content before.
    for (ssds, filling, state) in [
        ([1, 2, NONE], SERVE, State3::Out),
        ([0, 1, NONE], SERVE, State3::Absent),
        ([0, 1, NONE], [true, false, false], State3::Absent),
        ([0, 1, NONE], SERVE, State3::In),
    ] {
        let first = filling.iter().position(|filling| !filling).and_then(|at| u8::try_from(at).ok());
        let mut map = one_group(ssds, filling, first);
        epoch += 1;
        map.epoch = epoch;
        map.ssds[0].state = state;
        s.set_map_bytes(&encoded(&map));
        look(&mut s, &map);
        let older = Io { map_epoch: map.wire_epoch() - 1, ..Io::new(io::READ, WRITER, 1, 1) };
        s.run(older);
    }
    scripts.push(s.finish("map3-salvage", "map 3: copies that merge, and copies that lost writes"));
}

/// Rule 15: only mapped blocks are written.
fn full(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    s.add(&VolumeEntry { replicas: 2, ..entry(VOLUME) });
    let mut map = one_group([0, 1, 2], SERVE, Some(0));
    let run = |s: &mut Writing, map: &FleetMap3, opcode, vba, blocks| {
        s.run(Io { map_epoch: map.wire_epoch(), ..Io::new(opcode, WRITER, vba, blocks) });
    };
    s.set_map_bytes(&encoded(&map));
    run(&mut s, &map, io::WRITE, 1, 2);
    for ssd in [1usize, 0, 2] {
        map.epoch += 1;
        map.ssds.iter_mut().for_each(|ssd| ssd.state = State3::In);
        map.ssds[ssd].state = State3::Full;
        s.set_map_bytes(&encoded(&map));
        for (vba, blocks) in [(1, 1), (1, 2), (2, 2), (0, 2), (8, 1)] {
            run(&mut s, &map, io::WRITE, vba, blocks);
        }
        // A write below the stored stamp completes and takes no room.
        let late = Io { map_epoch: map.wire_epoch(), ..Io::new(io::WRITE, WRITER, 1, 1) };
        let token = s.send(WRITER, late.sqe(1));
        s.end(late, token);
    }
    run(&mut s, &map, io::WRITE_ZEROES, 1, 1);
    run(&mut s, &map, io::WRITE, 1, 1);
    // The SSD becomes full while the data is in flight.
    map.epoch += 1;
    map.ssds.iter_mut().for_each(|ssd| ssd.state = State3::In);
    s.set_map_bytes(&encoded(&map));
    let io = Io { map_epoch: map.wire_epoch(), ..Io::new(io::WRITE, WRITER, 5, 1) };
    let token = s.begin(io);
    map.ssds[1].state = State3::Full;
    s.set_map_bytes(&encoded(&map));
    s.end(io, token);
    // A place that fills takes all writes.
    map.epoch += 1;
    map.rows = one_group([0, 1, 2], [true, false, false], Some(1)).rows;
    s.set_map_bytes(&encoded(&map));
    run(&mut s, &map, io::WRITE, 9, 1);
    scripts.push(
        s.finish("map3-full", "map 3: where an SSD of the group is full only mapped blocks are written"),
    );
}

/// Rule 1a: a map gives places to one content of one SSD.
fn contents(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    add_volumes(&mut s);
    let own = one_group([0, 1, 2], SERVE, Some(0));
    let mut epoch = 0;
    let mut show = |s: &mut Writing, change: &dyn Fn(&mut FleetMap3)| {
        let mut map = own.clone();
        epoch += 1;
        map.epoch = epoch;
        change(&mut map);
        s.set_map_bytes(&encoded(&map));
        look(s, &map);
    };
    show(&mut s, &|map| map.ssds[0].uuid[3] = 9);
    show(&mut s, &|map| map.ssds[0].incarnation = 2);
    show(&mut s, &|_| {});
    let dropped = one_group([NONE, 1, 2], SERVE, Some(1)).rows;
    for state in [State3::Spare, State3::Out, State3::Out] {
        show(&mut s, &|map| {
            map.rows.clone_from(&dropped);
            map.ssds[0].state = state;
        });
        show(&mut s, &|_| {});
        show(&mut s, &|map| map.ssds[0].incarnation = 2);
    }
    show(&mut s, &|map| map.ssds[0].id = 7);
    scripts.push(s.finish("map3-incarnation", "map 3: a content that was dropped gets no place again"));
}

/// Replaces a map by one of the other format, and MAP GET.
fn exchange(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    add_volumes(&mut s);
    let mut two = FleetMap::equal(5, 64, 3, 1).expect("a map").without(2);
    for step in 0..4u64 {
        two.epoch = 2 + step;
        let three = FleetMap3::of(&two, ARRAY);
        if step % 2 == 0 {
            s.set_map_bytes(&encoded(&three))
        } else {
            s.set_map(&two)
        };
        look(&mut s, &two);
        for bytes in [4, 60, 4096] {
            s.get_map(bytes);
        }
    }
    scripts.push(s.finish("map3-exchange", "map 3: after a map of format 2; no map of format 2 follows"));
}

/// A map names its array. A later map of another array, or of none, is refused before its term is taken.
fn arrays(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    add_volumes(&mut s);
    let of = |array: [u8; 16], epoch: u64, term: u64| {
        encoded(&FleetMap3 { epoch, term, ..FleetMap3::of(&in_epoch(epoch), array) })
    };
    s.set_map_bytes(&of(ARRAY, 7, 2));
    for at in 0..16 {
        let mut other = ARRAY;
        other[at] ^= 0x80;
        s.set_map_bytes(&of(other, 8, 3));
    }
    s.set_map_bytes(&of([0; 16], 8, 3));
    s.set_map_bytes(&of([1; 16], 6, 1));
    let mut two = in_epoch(8);
    two.term = 3;
    s.set_map(&two);
    look(&mut s, &in_epoch(7));
    for (epoch, term) in [(7, 2), (6, 2), (7, 1), (8, 2)] {
        s.set_map_bytes(&of(ARRAY, epoch, term));
        s.get_map(60);
    }
    look(&mut s, &in_epoch(8));
    scripts.push(s.finish("map3-array", "map 3: of another array, and of format 2, behind one"));
}

fn in_epoch(epoch: u64) -> FleetMap {
    let mut map = FleetMap::equal(5, 64, 3, 1).expect("a map").without(2);
    map.epoch = epoch;
    map
}
