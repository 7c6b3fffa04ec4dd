// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon as clients see it: real tonic clients over loopback TCP, every call and every error of
//! `gnstor.proto`.

mod fleet;
mod ssds;

use self::ssds::down;
use crate::array::{Fault, SSD_BYTES, SimArray};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::{CoreConfig, MapFormat};
use gnstor_daemon::{Daemon, DaemonConfig};
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{
    CreateRequest, DeleteRequest, GetMapRequest, GetRequest, Limits, ListRequest, OpenRequest, OpenResponse,
    RegisterRequest, ReleaseRequest, RenewRequest, Rights, Volume,
};
use gnstor_proto::placement::{AnyMap, Rows as _};
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::MAX_READERS;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Status};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Maps of format 2, with which an SSD that is down keeps its places. Tests of others say so.
fn config() -> DaemonConfig {
    let map_format = MapFormat::Two;
    let core = CoreConfig {
        groups: 256,
        map_format,
        drift_ms: 50,
        retry_ms: 20,
        sweep_ms: 1,
        ..CoreConfig::default()
    };
    DaemonConfig { core, start_timeout: Duration::from_secs(5), ..DaemonConfig::default() }
}

fn daemon(array: &SimArray) -> Daemon {
    Daemon::start(ANY, array.ports(), config()).unwrap()
}

/// Runs a test's calls on a runtime of their own: the daemon is started and stopped from code that is not
/// async.
fn with_client<T>(daemon: &Daemon, calls: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { within(calls(Client::connect(daemon).await)).await })
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("within 30 s")
}

#[derive(Clone)]
struct Client {
    volumes: VolumesClient<Channel>,
    fleet: FleetClient<Channel>,
}

fn wish(name: &str) -> CreateRequest {
    CreateRequest { name: name.into(), capacity_bytes: 1 << 20, client_id: 1, ..Default::default() }
}

impl Client {
    async fn connect(daemon: &Daemon) -> Self {
        let at = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
        let channel = at.connect().await.unwrap();
        Self { volumes: VolumesClient::new(channel.clone()), fleet: FleetClient::new(channel) }
    }

    async fn create(&mut self, request: CreateRequest) -> Result<Volume, Status> {
        self.volumes.create(request).await.map(tonic::Response::into_inner)
    }

    async fn get(&mut self, name: &str) -> Result<Volume, Status> {
        self.volumes.get(GetRequest { name: name.into() }).await.map(tonic::Response::into_inner)
    }

    async fn open(
        &mut self,
        name: &str,
        client_id: u32,
        rights: Rights,
        ms: u32,
    ) -> Result<OpenResponse, Status> {
        let request = OpenRequest {
            name: name.into(),
            client_id,
            rights: rights.into(),
            lease_ms: ms,
            follows_drains: false,
        };
        self.volumes.open(request).await.map(tonic::Response::into_inner)
    }

    async fn renew(
        &mut self,
        name: &str,
        client_id: u32,
        lease_epoch: u32,
        lease_ms: u32,
    ) -> Result<u32, Status> {
        let request = RenewRequest {
            name: name.into(),
            client_id,
            lease_epoch,
            lease_ms,
            reaches: None,
            in_doubt: false,
            follows_drains: false,
        };
        self.volumes.renew(request).await.map(|reply| reply.into_inner().lease_ms)
    }

    async fn release(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        self.volumes
            .release(ReleaseRequest { name: name.into(), client_id, ..Default::default() })
            .await
            .map(drop)
    }

    async fn delete(&mut self, name: &str, client_id: u32, request_id: &[u8]) -> Result<(), Status> {
        let request = DeleteRequest {
            name: name.into(),
            client_id,
            request_id: request_id.into(),
            force: false,
            ..Default::default()
        };
        self.volumes.delete(request).await.map(drop)
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, word: &str) {
    let status = result.expect_err("a refusal");
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(word), "{word:?} is not in {:?}", status.message());
}

#[test]
fn the_life_of_a_volume() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let daemon = daemon(&array);
    with_client(&daemon, async |mut c| {
        let id =
            c.fleet.register(RegisterRequest { name: "gpu0".into() }).await.unwrap().into_inner().client_id;
        let other =
            c.fleet.register(RegisterRequest { name: "gpu1".into() }).await.unwrap().into_inner().client_id;
        assert_eq!((id, other), (1, 2));
        let labels = [("team".to_owned(), "graph".to_owned())].into();
        let limits = Some(Limits { max_iops: 1000, max_bytes_per_s: 1 << 33 });
        let made = c.create(CreateRequest { client_id: id, labels, limits, ..wish("corpus") }).await.unwrap();
        assert_eq!(made.limits, limits);
        assert_eq!((made.vid, made.generation, made.capacity_bytes, made.replicas), (1, 4096, 1 << 20, 2));
        assert_eq!(
            (made.chunk_bytes, made.owner, made.writer, made.labels["team"].as_str()),
            (65_536, id, 0, "graph")
        );
        let listed = c.volumes.list(ListRequest::default()).await.unwrap().into_inner().volumes;
        assert_eq!((listed, c.get("corpus").await.unwrap()), (vec![made.clone()], made));

        let writing = c.open("corpus", id, Rights::Write, 0).await.unwrap();
        let volume = writing.volume.unwrap();
        assert_eq!((writing.lease_ms, volume.writer, volume.lease_epoch), (300_000, id, 1));
        let reading = c.open("corpus", other, Rights::Read, 0).await.unwrap();
        assert_eq!((reading.lease_ms, reading.volume.unwrap().readers), (0, vec![other]));
        assert_eq!(
            c.renew("corpus", id, 1, u32::MAX).await.unwrap(),
            3_600_000,
            "the longest lease there is"
        );
        assert_eq!(c.renew("corpus", id, 1, 1).await.unwrap(), 1_000, "the shortest lease there is");
        c.release("corpus", id).await.unwrap();
        c.release("corpus", other).await.unwrap();
        let released = c.get("corpus").await.unwrap();
        assert_eq!(
            (released.writer, released.readers, released.limits),
            (0, vec![], limits),
            "changes of rights keep it"
        );
        c.delete("corpus", id, &[]).await.unwrap();
        assert!(array.agreed().is_empty());
    });
    daemon.stop().unwrap();
}

#[test]
fn clients_learn_the_map_and_the_ssds() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let daemon = daemon(&array);
    with_client(&daemon, async |mut c| {
        let reply = c.fleet.get_map(GetMapRequest {}).await.unwrap().into_inner();
        assert_eq!(AnyMap::decode(&reply.map).unwrap(), array.ssd(0).map.clone().unwrap());
        assert_eq!(reply.ssds.len(), 2);
        assert_eq!((reply.ssds[1].index, reply.ssds[1].capacity_bytes), (1, SSD_BYTES));
        assert_eq!(
            (reply.ssds[1].transport.as_str(), reply.ssds[1].address.as_str()),
            ("tcp", "127.0.0.1:4421")
        );
        assert_eq!(reply.ssds[1].subnqn, "nqn.2026-11.dev.gnstor:ssd.1");
    });
}

#[test]
fn every_error_of_create() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = daemon(&SimArray::new(3));
    with_client(&daemon, async |mut c| {
        c.create(wish("a")).await.unwrap();
        refused(c.create(wish("a")).await, Code::AlreadyExists, "another name");
        refused(c.create(wish("")).await, Code::InvalidArgument, "volume name");
        let with = |change: fn(&mut CreateRequest)| {
            let mut request = wish("b");
            change(&mut request);
            request
        };
        for (bad, word) in [
            (with(|r| r.capacity_bytes = 0), "capacity of 0"),
            (with(|r| r.capacity_bytes = 4097), "use 8192"),
            (with(|r| r.capacity_bytes = (16 << 40) + 4096), "16 TiB"),
            (with(|r| r.replicas = 5), "5 replicas"),
            (with(|r| r.replicas = 4), "the array has 3"),
            (with(|r| r.chunk_bytes = 12_288), "power of two"),
            (with(|r| r.client_id = 0), "client id 0"),
            (with(|r| r.client_id = 65_535), "client id 65535"),
            (with(|r| r.request_id = vec![1; 5]), "16 random bytes"),
            (with(|r| drop(r.labels.insert("a=b".into(), String::new()))), "label"),
        ] {
            refused(c.create(bad).await, Code::InvalidArgument, word);
        }
        refused(
            c.create(with(|r| r.capacity_bytes = 2 << 30)).await,
            Code::ResourceExhausted,
            "does not fit: at most",
        );
        let request = CreateRequest { request_id: vec![7; 16], ..wish("b") };
        let first = c.create(request.clone()).await.unwrap();
        assert_eq!(c.create(request).await.unwrap(), first);
    });
}

#[test]
fn every_error_of_the_other_calls() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let daemon = daemon(&array);
    with_client(&daemon, async |mut c| {
        refused(c.get("a").await, Code::NotFound, "\"a\"");
        refused(c.delete("a", 1, &[]).await, Code::NotFound, "\"a\"");
        refused(c.open("a", 1, Rights::Read, 0).await, Code::NotFound, "\"a\"");
        refused(c.renew("a", 1, 1, 0).await, Code::NotFound, "\"a\"");
        c.release("a", 1).await.unwrap();
        c.create(wish("a")).await.unwrap();
        refused(c.get("a b").await, Code::InvalidArgument, "volume name");
        refused(c.open("a", 0, Rights::Read, 0).await, Code::InvalidArgument, "client id 0");
        refused(c.open("a", 1, Rights::Unspecified, 0).await, Code::InvalidArgument, "read (1) or write (2)");
        refused(c.release("a", 70_000).await, Code::InvalidArgument, "client id 70000");
        refused(c.delete("a", 1, &[1]).await, Code::InvalidArgument, "16 random bytes");

        c.open("a", 5, Rights::Write, 1_000).await.unwrap();
        refused(c.open("a", 6, Rights::Write, 0).await, Code::FailedPrecondition, "client 5");
        refused(c.delete("a", 6, &[]).await, Code::FailedPrecondition, "client 5");
        refused(c.renew("a", 6, 1, 0).await, Code::FailedPrecondition, "belongs to client 5");
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        refused(c.renew("a", 5, 1, 0).await, Code::FailedPrecondition, "expired");
        assert_eq!(c.get("a").await.unwrap().writer, 0);
        c.open("a", 6, Rights::Write, 0).await.unwrap();

        // Ids that no daemon gave count for their connection, too.
        let mut other = Client::connect(&daemon).await;
        for reader in 1..=64 {
            other.open("a", reader, Rights::Read, 0).await.unwrap();
        }
        refused(other.open("a", 65, Rights::Read, 0).await, Code::ResourceExhausted, "64 client ids");
        for reader in 65..=u32::try_from(MAX_READERS / 4 * 3).unwrap() {
            if reader % 40 == 25 {
                other = Client::connect(&daemon).await;
            }
            other.open("a", reader, Rights::Read, 0).await.unwrap();
        }
        refused(other.open("a", 60_000, Rights::Read, 0).await, Code::ResourceExhausted, "384 readers");
        c.delete("a", 6, &[9; 16]).await.unwrap();
        c.delete("a", 6, &[9; 16]).await.unwrap();
    });
}

#[test]
fn a_failed_ssd_is_named_and_the_change_undone() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let daemon = daemon(&array);
    with_client(&daemon, async |mut c| {
        array.ssd(1).faults.push_back(Fault::LostAfter);
        refused(c.create(wish("a")).await, Code::Unavailable, "SSD 1");
        assert!(array.agreed().is_empty());
        array.ssd(2).faults.push_back(Fault::Refuse(Refusal::TableFull));
        refused(c.create(wish("a")).await, Code::ResourceExhausted, "SSD 2");
        c.create(wish("a")).await.unwrap();
    });
}

#[test]
fn a_slow_ssd_does_not_hold_up_who_does_not_need_it() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let daemon = daemon(&array);
    with_client(&daemon, async |mut c| {
        c.create(wish("a")).await.unwrap();
        array.ssd(1).faults.push_back(Fault::Delay(Duration::from_millis(400)));
        let mut slow = c.clone();
        let opening = tokio::spawn(async move { slow.open("a", 5, Rights::Read, 0).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let seen = c.get("a").await.unwrap();
        assert!(seen.readers.is_empty() && !opening.is_finished());
        assert_eq!(opening.await.unwrap().unwrap().volume.unwrap().readers, [5]);
    });
}

/// A release whose SSD answers after 2 s, like one whose fence waits for its deadline.
#[test]
fn a_slow_change_of_one_volume_does_not_hold_up_changes_of_others() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let daemon = daemon(&array);
    with_client(&daemon, async |mut c| {
        for volume in ["a", "b"] {
            c.create(wish(volume)).await.unwrap();
            c.open(volume, 5, Rights::Write, 0).await.unwrap();
        }
        array.ssd(1).faults.push_back(Fault::Delay(Duration::from_secs(2)));
        let mut slow = c.clone();
        let releasing = tokio::spawn(async move { slow.release("a", 5).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        c.renew("b", 5, 1, 60_000).await.unwrap();
        c.open("b", 6, Rights::Read, 0).await.unwrap();
        c.create(wish("c")).await.unwrap();
        c.delete("c", 1, &[]).await.unwrap();
        assert_eq!(c.volumes.list(ListRequest::default()).await.unwrap().into_inner().volumes.len(), 2);
        assert!(!releasing.is_finished(), "all that, while the release waits");
        releasing.await.unwrap().unwrap();
        assert_eq!(array.agreed()[0].writer, None);
    });
}

/// Twenty slow changes are more than a queue takes at once. The SSD is probed beside them, and no change is
/// lost.
#[test]
fn an_ssd_that_is_slow_with_many_volumes_is_not_taken_for_gone() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let daemon = Daemon::start(ANY, array.lasting_ports(), config()).unwrap();
    with_client(&daemon, async |mut c| {
        for volume in 0..20 {
            c.create(wish(&format!("v{volume}"))).await.unwrap();
        }
        array.ssd(1).faults.extend(vec![Fault::Delay(Duration::from_millis(1_000)); 20]);
        let opens: Vec<_> = (0..20)
            .map(|volume| {
                let mut c = c.clone();
                tokio::spawn(async move { c.open(&format!("v{volume}"), 5, Rights::Read, 0).await })
            })
            .collect();
        for open in opens {
            open.await.unwrap().unwrap();
        }
        assert_eq!(down(&mut c, |_| true).await, Vec::<String>::new());
    });
}

#[test]
fn concurrent_clients_get_one_writer() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let daemon = daemon(&array);
    with_client(&daemon, async |mut c| {
        c.create(wish("a")).await.unwrap();
        let opens: Vec<_> = (1..=20)
            .map(|id| {
                let mut c = c.clone();
                tokio::spawn(async move { c.open("a", id, Rights::Write, 0).await })
            })
            .collect();
        let mut granted = 0;
        for open in opens {
            match open.await.unwrap() {
                Ok(_) => granted += 1,
                Err(status) => assert_eq!(status.code(), Code::FailedPrecondition),
            }
        }
        assert_eq!(granted, 1);
    });
}
