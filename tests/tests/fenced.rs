// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fence on a real array. A client that does not take its data delays a change of its volume until the SSD
//! closes its queue. It delays no change of another volume.
#![expect(clippy::disallowed_methods, reason = "threads, and times of calls")]

use gnstor_array::Array;
use gnstor_hostile::talk::Talk;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::fabrics::{self, PropertyFields, fctype, property};
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{CreateRequest, DeleteRequest, OpenRequest, ReleaseRequest, RenewRequest, Rights};
use gnstor_proto::nvme::{self, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::slba::{Slba, Stamp};
use gnstor_tests::{any_port, small_config, within};
use std::time::{Duration, Instant};
use tonic::Status;
use tonic::transport::Channel;

const LIMIT: Duration = Duration::from_secs(60);
/// Id of the client that takes no data, as [`Talk`] announces itself.
const DEAF: u32 = 0x7E;
/// Id of another client.
const WRITER: u32 = 0x42;

#[derive(Clone)]
struct Calls(VolumesClient<Channel>);

impl Calls {
    async fn create(&mut self, name: &str) -> Result<u32, Status> {
        let capacity_bytes = 1 << 20;
        let request =
            CreateRequest { name: name.into(), capacity_bytes, client_id: WRITER, ..Default::default() };
        self.0.create(request).await.map(|made| made.into_inner().vid)
    }

    async fn open(&mut self, name: &str, client_id: u32, rights: Rights) -> Result<(), Status> {
        let request = OpenRequest {
            name: name.into(),
            client_id,
            rights: rights.into(),
            lease_ms: 60_000,
            follows_drains: true,
        };
        self.0.open(request).await.map(drop)
    }

    async fn renew(&mut self, name: &str) -> Result<(), Status> {
        let request = RenewRequest {
            name: name.into(),
            client_id: WRITER,
            lease_epoch: 1,
            lease_ms: 60_000,
            reaches: None,
            in_doubt: false,
            follows_drains: true,
        };
        self.0.renew(request).await.map(drop)
    }

    async fn release(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        self.0.release(ReleaseRequest { name: name.into(), client_id, ..Default::default() }).await.map(drop)
    }

    async fn delete(&mut self, name: &str) -> Result<(), Status> {
        let request = DeleteRequest { name: name.into(), client_id: WRITER, ..Default::default() };
        self.0.delete(request).await.map(drop)
    }
}

/// A client that asks for blocks of a volume and does not take them.
fn deaf_reader(array: &Array, vid: u32) -> Talk {
    let mut talk = Talk::connect(array.fabric_address().expect("it listens")).expect("a connection");
    assert!(talk.open(1, 0, 0).expect("an admin queue"));
    let cntlid = talk.connect_queue(1, 0, 0, fabrics::CNTLID_ANY).expect("a controller");
    let enable = PropertyFields {
        offset: property::CC.into(),
        value: (property::CC_ENABLE | 6 << 16 | 4 << 20).into(),
        ..PropertyFields::default()
    };
    talk.command(1, fabrics::command(fctype::PROPERTY_SET, &enable)).expect("an answer");
    assert!(talk.open(2, 0, 1).expect("an I/O queue"));
    talk.connect_queue(2, 0, 1, cntlid).expect("a queue");
    let read = ReadWrite {
        slba: Slba(u64::from(vid) << 48 | u64::from(DEAF) << 32),
        blocks: 2,
        fua: false,
        map_epoch: 1,
        stamp: Stamp { lease_epoch: 0, sequence: 0 },
    };
    let mut sqe = Sqe { opcode: nvme::io::READ, nsid: 1.into(), ..Sqe::default() };
    read.encode(&mut sqe);
    sqe.dptr = KeyedSgl::keyed(0, 2 * BLOCK_BYTES, 1);
    talk.post(2, sqe).expect("it is sent");
    talk
}

#[test]
fn a_fence_of_two_seconds_holds_up_no_other_volume() {
    within(LIMIT, || {
        let mut config = small_config(1);
        config.fabric_listen = Some(any_port());
        let array = Array::start(&config).expect("an array starts");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let daemon = format!("http://{}", array.daemon_address());
            let channel = Channel::from_shared(daemon).expect("an address").connect().await;
            let mut calls = Calls(VolumesClient::new(channel.expect("the daemon listens")));
            let vid = calls.create("fenced").await.expect("a volume");
            calls.create("other").await.expect("a volume");
            calls.open("fenced", DEAF, Rights::Read).await.expect("it may read");
            calls.open("other", WRITER, Rights::Write).await.expect("it may write");
            let _deaf = deaf_reader(&array, vid);
            tokio::time::sleep(Duration::from_millis(200)).await;

            let begun = Instant::now();
            let mut slow = calls.clone();
            let releasing = tokio::spawn(async move { slow.release("fenced", DEAF).await });
            tokio::time::sleep(Duration::from_millis(100)).await;
            for _ in 0..20 {
                calls.renew("other").await.expect("it renews");
            }
            calls.open("other", WRITER + 1, Rights::Read).await.expect("it opens");
            calls.create("third").await.expect("a volume");
            calls.delete("third").await.expect("it goes");
            let others = begun.elapsed();
            assert!(!releasing.is_finished(), "24 changes of other volumes took {others:?}");
            releasing.await.expect("no panic").expect("the SSD closes the queue, and the fence ends");
            let fence = begun.elapsed();
            assert!(fence > Duration::from_millis(1_900), "there was a fence: {fence:?}");
            println!("24 changes of other volumes: {others:?}; the fence: {fence:?}");
        });
    });
}
