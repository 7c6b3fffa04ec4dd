// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::credentials::Credentials;
use crate::deadline::{Deadline, LIMIT};
use crate::link::LinkOptions;
use crate::ssds::{Fabric, SsdInfo};
use gnstor_fabric::device::Choice;
use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::placement::map3::FleetMap3;

fn maps(map: impl Into<AnyMap>) -> Maps {
    maps_with(map, Rooms::default())
}

fn maps_with(map: impl Into<AnyMap>, rooms: Rooms) -> Maps {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let rpc = Rpc::connect(&address, &Credentials::default()).expect("the kernel accepts");
    let device = Device::open(Choice::Host).expect("the host device is always there");
    Maps::new(Arc::new(rpc), &device, map.into(), rooms).expect("host memory")
}

fn plain(map: impl Into<AnyMap>) -> Vec<u8> {
    bytes_of(&map.into(), &Rooms::default())
}

fn whole() -> FleetMap {
    FleetMap::equal(4, 64, 7, 1).expect("four SSDs")
}

fn encode(map: impl Into<AnyMap>) -> Vec<u8> {
    map.into().encode().expect("a valid map")
}

fn word_of(volume: &DeviceMem) -> u64 {
    let mut raw = [0; 8];
    volume.read(offset_of!(VolumeAbi, map), &mut raw).expect("host memory");
    u64::from_le_bytes(raw)
}

fn table(maps: &Maps, number: usize) -> Vec<u8> {
    let mut raw = vec![0; plain(AnyMap::clone(&maps.current())).len()];
    maps.places.read(number * raw.len(), &mut raw).expect("host memory");
    raw
}

#[test]
fn the_next_map_comes_into_the_other_table_and_then_into_each_volumes_word() {
    let _deadline = Deadline::after(LIMIT);
    let (first, second) = (whole(), whole().without(2));
    let maps = maps(first.clone());
    let (open, closed) = (maps.open(VolumeAbi::default()).unwrap(), maps.open(VolumeAbi::default()).unwrap());
    maps.close(&closed);
    assert_eq!(word_of(&open), map_word(1, false, false));
    assert_eq!(maps.take(&encode(second.clone())), Taken::Epoch(2));
    assert_eq!((word_of(&open), word_of(&closed)), (map_word(2, true, false), map_word(1, false, false)));
    assert_eq!((table(&maps, 0), table(&maps, 1)), (plain(first), plain(second)));
    let later = maps.open(VolumeAbi::default()).unwrap();
    assert_eq!(word_of(&later), map_word(2, true, false), "opened behind the change");
    assert_eq!(maps.flushed(), [0, 1, 3]);
    assert_eq!((maps.take_dropped(), maps.take_dropped()), (vec![2], vec![]));
    assert_eq!(maps.take(&encode(whole().without(2).without(3))), Taken::Epoch(3));
    assert_eq!(maps.take_dropped(), [3], "each SSD once");
}

#[test]
fn a_table_is_not_filled_while_a_host_call_may_read_it() {
    let _deadline = Deadline::after(LIMIT);
    let (first, second) = (whole(), whole().without(2));
    let third = second.without(1);
    let maps = maps(first.clone());
    let volume = maps.open(VolumeAbi::default()).unwrap();
    let old = maps.call();
    assert_eq!(maps.take(&encode(second)), Taken::Epoch(2));
    let new = maps.call();
    assert_eq!(maps.take(&encode(third.clone())), Taken::Nothing);
    assert_eq!((word_of(&volume), table(&maps, 0)), (map_word(2, true, false), plain(first)));
    drop(old);
    // The newer call reads the other table.
    assert_eq!(maps.take(&encode(third.clone())), Taken::Epoch(3));
    assert_eq!((word_of(&volume), table(&maps, 0)), (map_word(3, false, false), plain(third)));
    drop(new);
}

#[test]
fn older_damaged_and_foreign_maps_change_nothing() {
    let _deadline = Deadline::after(LIMIT);
    let known = FleetMap3::of(&whole().without(3), [5; 16]);
    let maps = maps(known.clone());
    let volume = maps.open(VolumeAbi::default()).unwrap();
    let next = FleetMap3 { epoch: 7, ..known.clone() };
    let mut damaged = encode(next.clone());
    *damaged.last_mut().expect("bytes") ^= 1;
    assert_eq!(maps.take(&damaged), Taken::Nothing);
    assert_eq!(maps.take(&encode(FleetMap3 { epoch: 1, ..known.clone() })), Taken::Epoch(2));
    let foreign = FleetMap3 { array: [6; 16], ..next.clone() };
    let mut other_format = whole();
    other_format.epoch = 7;
    let mut more_groups = FleetMap::equal(4, 128, 7, 1).expect("four SSDs");
    more_groups.epoch = 7;
    let mut more_ssds = FleetMap::equal(5, 64, 7, 1).expect("five SSDs");
    more_ssds.epoch = 7;
    for unfit in [
        encode(foreign),
        encode(other_format),
        encode(FleetMap3::of(&more_groups, [5; 16])),
        encode(FleetMap3::of(&more_ssds, [5; 16])),
    ] {
        assert_eq!(maps.take(&unfit), Taken::Unfit(7));
    }
    assert_eq!((word_of(&volume), maps.current().epoch()), (map_word(2, false, false), 2));
    assert_eq!(maps.take(&encode(next)), Taken::Epoch(7));
}

#[test]
fn the_ssd_that_comes_in_for_another_one_is_beside_the_table_of_its_map() {
    let _deadline = Deadline::after(LIMIT);
    let known = FleetMap3::of(&whole(), [5; 16]);
    let maps = maps(known.clone());
    let volume = maps.open(VolumeAbi::default()).unwrap();
    let comers = |number: usize| {
        let (table, mut raw) = (plain(AnyMap::clone(&maps.current())).len(), vec![0; 2 * known.rows.len()]);
        maps.places.read(2 * table + number * raw.len(), &mut raw).expect("host memory");
        raw.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect::<Vec<u16>>()
    };
    assert_eq!((word_of(&volume), comers(0)), (map_word(1, false, false), vec![u16::MAX; 64]));
    // SSD N comes in for another one of row 9, from a place that no volume uses.
    let mut next = FleetMap3 { epoch: 2, ..known.clone() };
    let ssd = next.rows[9].places[3].take().expect("each SSD has a place").ssd;
    next.rows[9].incoming = Some(Incoming3 { ssd, place: 1 });
    assert_eq!(maps.take(&encode(next.clone())), Taken::Epoch(2));
    assert_eq!(word_of(&volume), map_word(2, true, true));
    let row = comers(1);
    assert_eq!((row[9], row.iter().filter(|word| **word != u16::MAX).count()), (ssd | 1 << 8, 1));
    // It has taken over.
    let mut last = FleetMap3 { epoch: 3, ..next };
    last.rows[9].incoming = None;
    assert_eq!(maps.take(&encode(last)), Taken::Epoch(3));
    assert_eq!((word_of(&volume), comers(0)), (map_word(3, false, false), vec![u16::MAX; 64]));
}

/// The map of an array that was converted names an array for the first time.
#[test]
fn an_array_that_is_converted_to_format_3_is_followed() {
    let _deadline = Deadline::after(LIMIT);
    let maps = maps(whole());
    assert_eq!(maps.take(&encode(FleetMap3::of(&whole().without(1), [9; 16]))), Taken::Epoch(2));
}

/// A map of four SSDs and of others that have joined without places.
fn grown(epoch: u64, ssds: usize) -> FleetMap3 {
    let mut map = FleetMap3 { epoch, ..FleetMap3::of(&whole(), [5; 16]) };
    map.ssds[0].vote = Vote::Voter;
    for number in 4..ssds {
        let mut joined = map.ssds[3].clone();
        joined.id = u16::try_from(number).expect("few");
        (joined.address, joined.state) = (format!("10.0.0.{number}:4421"), State3::Out);
        map.ssds.push(joined);
    }
    map
}

/// The way to the four SSDs of [`grown`].
fn connector(room: usize) -> (TransportThreads, Arc<ArrayConnector>) {
    let engine =
        TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).expect("a thread");
    let options = LinkOptions {
        fabric: Fabric::Daemon,
        daemon: "127.0.0.1:1".into(),
        credentials: Credentials::default(),
    };
    let info = |index: u32| SsdInfo {
        index,
        subnqn: String::new(),
        transport: "tcp".into(),
        address: format!("10.0.0.{index}:4421"),
        capacity_bytes: 0,
        model: String::new(),
    };
    let ssds = (0..4).map(info).collect();
    let connector = ArrayConnector::new(engine.handle(), options, ssds, room);
    (engine, Arc::new(connector))
}

/// Also where no SSD can join, as the second array has no voter.
#[test]
fn an_ssd_that_moves_is_dialled_at_its_new_address() {
    let _deadline = Deadline::after(LIMIT);
    let quiet = FleetMap3 { epoch: 1, ..FleetMap3::of(&whole(), [5; 16]) };
    for mut known in [grown(1, 4), quiet] {
        for (number, ssd) in known.ssds.iter_mut().enumerate() {
            ssd.address = format!("10.0.0.{number}:4421");
        }
        let room = room_for(&known.clone().into());
        let (_engine, connector) = connector(room);
        let maps = maps_with(known.clone(), Rooms::new(Arc::clone(&connector), room));
        let mut next = FleetMap3 { epoch: 2, ..known };
        next.ssds[2].address = "10.0.0.9:4421".into();
        assert_eq!((maps.take(&encode(next.clone())), maps.take_moved()), (Taken::Epoch(2), vec![2]));
        assert_eq!(connector.address(2), "10.0.0.9:4421");
        // SSDs at one address share a link.
        next.epoch = 3;
        next.ssds[1].address = "10.0.0.0:4421".into();
        assert_eq!((maps.take(&encode(next)), maps.take_moved()), (Taken::Epoch(3), vec![1]));
        assert_eq!([0, 1, 2, 3].map(|ssd| connector.link_of(ssd)), [0, 0, 2, 3]);
        assert_eq!((maps.take_moved(), maps.take_dropped(), maps.take_added()), (vec![], vec![], vec![]));
    }
}

#[test]
fn ssds_that_join_are_made_known_and_one_without_room_leads_to_no_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let known = grown(1, 4);
    let room = room_for(&known.clone().into());
    assert_eq!((room, room_for(&whole().into())), (9, 4), "an array without voters does not grow");
    assert_eq!(room_for(&grown(1, 62).into()), 64);
    let (_engine, connector) = connector(room);
    let maps = maps_with(known, Rooms::new(Arc::clone(&connector), room));
    let volume = maps.open(VolumeAbi::default()).unwrap();
    assert_eq!((connector.ssds(), connector.room()), (4, 9));
    assert_eq!((maps.take(&encode(grown(2, 5))), maps.take_added()), (Taken::Epoch(2), vec![4]));
    assert_eq!((connector.link_of(4), maps.take_added()), (4, vec![]));
    // Nine SSDs are one more than there is room for. It takes a place, and one is to come in.
    let mut all = grown(3, 9);
    all.ssds[7..].iter_mut().for_each(|ssd| ssd.state = State3::In);
    all.rows[5].places[1] = Some(gnstor_proto::placement::map3::Place3 { ssd: 8, filling: true });
    all.rows[6].incoming = Some(Incoming3 { ssd: 8, place: 0 });
    all.rows[7].incoming = Some(Incoming3 { ssd: 7, place: 0 });
    assert_eq!((maps.take(&encode(all.clone())), maps.take_added()), (Taken::Epoch(3), vec![5, 6, 7]));
    assert_eq!(word_of(&volume), map_word(3, false, true));
    let row = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]);
    let places = table(&maps, 0);
    assert_eq!(row(&places, 5 * 4 + 1), 8 | FILLING, "the queue pair that leads nowhere");
    let comers = comers_of(&all.into(), &maps.rooms);
    assert_eq!((row(&comers, 6), row(&comers, 7)), (8, 7));
    assert_eq!(maps.flushed(), [0, 1, 2, 3, 7, 8]);
    // A tenth one shares it.
    let mut ten = grown(4, 10);
    ten.ssds[8..].iter_mut().for_each(|ssd| ssd.state = State3::In);
    ten.rows[5].places[1] = Some(gnstor_proto::placement::map3::Place3 { ssd: 9, filling: false });
    assert_eq!((maps.take(&encode(ten)), maps.take_added()), (Taken::Epoch(4), vec![]));
    assert_eq!((row(&table(&maps, 1), 5 * 4 + 1), maps.flushed()), (8, vec![0, 1, 2, 3, 8]));
    assert_eq!(maps.take(&encode(grown(5, 9))), Taken::Unfit(5), "no SSD is taken off the list");
}
