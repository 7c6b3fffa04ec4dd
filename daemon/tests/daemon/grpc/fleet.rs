// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of an operator, and the stream of maps.

use super::*;
use gnstor_proto::grpc::{FailRequest, ShowRequest, SsdState, WatchMapRequest};
use std::time::Instant;

#[test]
fn the_fleet_is_shown_and_refusals_have_their_code() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let daemon = daemon(&array);
    with_client(&daemon, async |mut client| {
        client.create(wish("a")).await.unwrap();
        let shown = client.fleet.show(ShowRequest {}).await.unwrap().into_inner();
        assert_eq!((shown.map_format, shown.epoch, shown.groups, shown.replicas), (2, 1, 256, 2));
        assert_eq!(shown.groups_by_copies, [0, 0, 256]);
        assert_eq!(shown.ssds.len(), 3);
        for (index, ssd) in (0..).zip(&shown.ssds) {
            assert_eq!((ssd.index, ssd.state(), ssd.down_ms), (index, SsdState::In, None));
            assert!(ssd.serving > 0 && ssd.last_copies == 0 && ssd.fill.is_none(), "{ssd:?}");
        }
        let fail = FailRequest { ssd: 1, lose_data: true };
        refused(client.fleet.fail(fail).await, Code::FailedPrecondition, "does not change its map");
        let fail = FailRequest { ssd: 70_000, lose_data: true };
        refused(client.fleet.fail(fail).await, Code::NotFound, "no SSD 70000");
    });
}

#[test]
fn a_fresh_array_has_voters_and_an_ssd_is_failed() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let core = CoreConfig { map_format: MapFormat::Three, ..config().core };
    let daemon = Daemon::start(ANY, array.lasting_ports(), DaemonConfig { core, ..config() }).unwrap();
    with_client(&daemon, async |mut client| {
        client.create(wish("a")).await.unwrap();
        let shown = client.fleet.show(ShowRequest {}).await.unwrap().into_inner();
        assert_eq!((shown.map_format, &shown.voters[..], shown.replicas), (3, &[0, 1, 2][..], 2));
        assert_eq!(shown.groups_by_copies, [0, 0, 256]);
        client.fleet.fail(FailRequest { ssd: 1, lose_data: true }).await.unwrap();
        let out = async |client: &mut Client| {
            let shown = client.fleet.show(ShowRequest {}).await.unwrap().into_inner();
            shown.ssds[1].state() == SsdState::Out && shown.ssds[1].taken_out
        };
        while !out(&mut client).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client.create(wish("b")).await.unwrap();
    });
    daemon.stop().unwrap();
}

#[test]
fn a_stream_of_maps_has_the_newest_and_ends_by_itself() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let config = DaemonConfig { keep_alive: Duration::from_secs(1), ..config() };
    let daemon = Daemon::start(ANY, array.ports(), config).unwrap();
    with_client(&daemon, async |mut client| {
        #[expect(clippy::disallowed_methods, reason = "how long a stream lasts is what is measured")]
        let begun = Instant::now();
        let mut maps = client.fleet.watch_map(WatchMapRequest { after_epoch: 0 }).await.unwrap().into_inner();
        let first = maps.message().await.unwrap().expect("the map in use");
        assert_eq!((first.epoch, AnyMap::decode(&first.map).unwrap().count()), (1, 3));
        assert_eq!(maps.message().await.unwrap(), None, "there is no other one");
        assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
        let mut maps = client.fleet.watch_map(WatchMapRequest { after_epoch: 1 }).await.unwrap().into_inner();
        assert_eq!(maps.message().await.unwrap(), None, "it has that one");
    });
    // A stream does not delay the daemon's end.
    with_client(&daemon, async |mut client| {
        let maps = client.fleet.watch_map(WatchMapRequest { after_epoch: 1 }).await.unwrap();
        drop(maps);
    });
    daemon.stop().unwrap();
}
