// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Problems of an array, and sizes.

use super::*;
use gnstor_base::testing::deadline;
use gnstor_proto::placement::FleetMap;
use libgnstor::SsdInfo;

fn ssd(index: u32) -> Ssd {
    Ssd {
        info: SsdInfo {
            index,
            subnqn: String::new(),
            transport: "tcp".into(),
            address: format!("127.0.0.1:{}", 4421 + index),
            capacity_bytes: 1 << 20,
            model: "emulated".into(),
        },
        down: None,
        is_lossy: false,
        is_damaged: false,
        is_out: false,
        is_absent: false,
        is_spare: false,
        is_witness: false,
        filling: 0,
    }
}

fn volume() -> VolumeInfo {
    VolumeInfo::from(gnstor_proto::grpc::Volume { name: "v".into(), replicas: 2, ..Default::default() })
}

#[test]
fn the_largest_volume_is_shown_rounded_down_in_units_of_the_table() {
    let _deadline = deadline();
    assert_eq!(largest_line(&[]), "none");
    assert_eq!(
        largest_line(&[1_052_835_840, 526_417_920, 65_536]),
        "1004.0 MiB with 1 replica, 502.0 MiB with 2, 64.0 KiB with 3"
    );
}

#[test]
fn each_state_of_an_ssd_is_a_problem_with_an_action() {
    let _deadline = deadline();
    let map = FleetMap::equal(4, 64, 7, 1).expect("a map").into();
    let mut fleet = Fleet {
        ssds: (0..4).map(ssd).collect(),
        map,
        volumes: Vec::new(),
        largest: Vec::new(),
        no_auth: false,
    };
    assert_eq!(problems(&fleet), []);
    fleet.ssds[1].down = Some("it does not answer\u{1b}[2J".into());
    fleet.ssds[2].filling = 7;
    fleet.ssds[3].is_out = true;
    fleet.ssds[0].is_lossy = true;
    let whole = fleet.map.clone();
    let holes = FleetMap::equal(4, 64, 7, 1).map(|map| map.without(3));
    (fleet.map, fleet.volumes) = (holes.expect("a map").into(), vec![volume()]);
    let mut found = problems(&fleet);
    assert_eq!(found.len(), 4);
    fleet.map = whole;
    assert_eq!(problems(&fleet).len(), 3, "SSD 3 is not missed where the others have all copies");
    // Each row of the map has a place on SSD 0 or 1, which serve nothing.
    assert_eq!((fleet.copies_left(4), fleet.copies_left(1)), (1, 0));
    let lossy = found.remove(0);
    assert!(lossy.what.contains("SSD 0 lost") && lossy.action.contains("gnstor cp"), "{lossy:?}");
    (fleet.ssds[0].is_lossy, fleet.ssds[0].is_damaged) = (false, true);
    assert_eq!(fleet.ssds[0].state(), "degraded");
    assert!(problems(&fleet)[0].what.contains("metadata") && !fleet.ssds[0].serves_nothing());
    fleet.ssds[0].is_damaged = false;
    assert!(found[0].what.contains("SSD 1 is down") && found[0].action.contains("--index 1"), "{found:?}");
    assert!(!found[0].what.contains('\u{1b}'), "an escape of the daemon's reaches the terminal");
    // SSDs of one process cannot be started one by one.
    fleet.ssds[0].info.address = fleet.ssds[1].info.address.clone();
    assert!(problems(&fleet)[0].action.contains("gnstor up"));
    let states: Vec<_> = fleet.ssds.iter().map(Ssd::state).collect();
    assert_eq!(states, ["online", "down", "filling", "out"]);
    assert_eq!(fleet.capacity_bytes(), 2 << 20, "SSDs 0 and 2 of 1 MiB");
    assert_eq!(not_counted_line(&fleet).as_deref(), Some("SSD 1 (down), SSD 3 (out)"));
    (fleet.ssds[2].filling, fleet.ssds[2].is_spare) = (0, true);
    assert_eq!(fleet.capacity_bytes(), 1 << 20, "SSD 0");
    assert_eq!(not_counted_line(&fleet).as_deref(), Some("SSD 1 (down), SSD 2 (spare), SSD 3 (out)"));
    fleet.ssds[2].is_spare = false;
    (fleet.ssds[0].is_lossy, fleet.ssds[1].is_lossy) = (true, true);
    assert_eq!((fleet.ssds[0].state(), fleet.ssds[1].state()), ("lossy", "down"));
    assert_eq!(fleet.ssds.iter().filter(|ssd| ssd.serves_nothing()).count(), 3);
}

#[test]
fn an_absent_ssd_makes_the_array_unavailable_and_one_that_lost_writes_is_not_to_be_resumed() {
    let _deadline = deadline();
    let map = FleetMap::equal(4, 64, 7, 1).expect("a map").into();
    let ssds = (0..4).map(ssd).collect();
    let mut fleet = Fleet { ssds, map, volumes: Vec::new(), largest: Vec::new(), no_auth: false };
    fleet.ssds[2].is_absent = true;
    for (is_lossy, remedy) in [(false, "gnstor fleet resume 2"), (true, "gnstor fleet salvage")] {
        fleet.ssds[2].is_lossy = is_lossy;
        let condition = Condition::of(&fleet);
        assert_eq!((condition.state(), condition.problems.len()), ("unavailable", 1));
        assert!(condition.problems[0].action.contains(remedy), "{:?}", condition.problems);
    }
}
