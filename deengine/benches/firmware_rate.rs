// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of the firmware alone: 4 KiB random reads from submission queue entry to completion entry, data by
//! reference (the HCA moves it, not the firmware), preset `null`, queues filled in advance.
//!
//! `cargo bench -p gnstor-deengine --bench firmware_rate [-- SECONDS]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use gnstor_deengine::{Preset, Ssd, SsdConfig, SsdMedia};
use gnstor_fabric::controller::{Controller, Effect, Outcome, QueueKey};
use gnstor_fabric::region::HostRegion;
use gnstor_fabric::time::Time;
use gnstor_proto::fabrics::{self, CmRequest, ConnectData, ConnectFields, Identity, PropertyFields, fctype, property};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::placement::{FleetMap, mix64};
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use gnstor_proto::vendor::{VolumeEntry, opcode};
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;

const BLOCKS: u64 = 1 << 18;
const DEPTH: usize = 64;
const NOW: Time = Time::from_ns(1_000_000);

/// Carries out effects for admin commands, with real bytes.
fn admin(ssd: &mut Ssd, regions: &[Arc<HostRegion>], queue: QueueKey, mut sqe: Sqe, data: &[u8]) -> Cqe {
    sqe.flags = nvme::FLAGS_SGL;
    sqe.dptr = KeyedSgl::keyed(4096, u32::try_from(data.len()).expect("small"), 1);
    ssd.submit(NOW, queue, &sqe);
    loop {
        match ssd.pop_effect() {
            Some(Effect::Pull { transfer, local, .. }) => {
                let region = regions.iter().find(|r| r.id() == local.region).expect("a region of the SSD");
                region.write(local.offset, &data[..data.len().min(local.bytes as usize)]);
                ssd.transferred(NOW, transfer, Outcome::Done { sum: 0 });
            }
            Some(Effect::Push { transfer, .. }) => ssd.transferred(NOW, transfer, Outcome::Done { sum: 0 }),
            Some(Effect::Complete { cqe, .. }) => {
                assert_eq!(cqe.status_word(), 0, "{sqe:?}");
                return cqe;
            }
            Some(Effect::Close { .. }) => panic!("the SSD closed a queue"),
            None => ssd.step(NOW),
        }
    }
}

fn open(ssd: &mut Ssd, queue: QueueKey, qid: u16) {
    let request = CmRequest { qid: qid.into(), hrqsize: 128.into(), hsqsize_z: 127.into(), ..CmRequest::default() };
    ssd.open_queue(NOW, queue, &request).expect("a queue");
}

fn connect(ssd: &mut Ssd, regions: &[Arc<HostRegion>], queue: QueueKey, qid: u16, identity: Identity, id: u16) -> u16 {
    open(ssd, queue, qid);
    let fields = ConnectFields { qid: qid.into(), sqsize_z: 127.into(), ..ConnectFields::default() };
    let data = ConnectData::new(identity, id, &fabrics::ssd_subnqn(0));
    let cqe = admin(ssd, regions, queue, fabrics::command(fctype::CONNECT, &fields), data.as_bytes());
    if qid == 0 {
        let enable =
            PropertyFields { offset: property::CC.into(), value: (1 | 6 << 16 | 4 << 20).into(), ..Default::default() };
        admin(ssd, regions, queue, fabrics::command(fctype::PROPERTY_SET, &enable), &[]);
    }
    u16::try_from(cqe.dw0.get() & 0xFFFF).expect("16 bits")
}

fn vendor(opcode: u8, bytes: usize) -> Sqe {
    Sqe { opcode, nsid: 1.into(), cdw10: u32::try_from(bytes / 4).expect("small").into(), ..Sqe::default() }
}

fn io(verb: u8, client: ClientId, vba: u32, cid: usize, sequence: u64) -> Sqe {
    let mut sqe = Sqe { opcode: verb, flags: nvme::FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
    sqe.cid = u16::try_from(cid).expect("small").into();
    sqe.dptr = KeyedSgl::keyed(4096, 4096, 1);
    let slba = Slba::pack(Address { vid: Vid::new(1).expect("valid"), client, vba });
    let stamp = Stamp { lease_epoch: 1, sequence };
    ReadWrite { slba, blocks: 1, fua: false, map_epoch: 1, stamp }.encode(&mut sqe);
    sqe
}

/// Runs commands that are ready in advance, `DEPTH` at a time; how many completed.
fn drive(ssd: &mut Ssd, queue: QueueKey, commands: &[Sqe]) -> u64 {
    let mut done = 0;
    for batch in commands.chunks(DEPTH) {
        ssd.announce(batch);
        for sqe in batch {
            ssd.submit(NOW, queue, sqe);
        }
        while let Some(effect) = ssd.pop_effect() {
            match effect {
                Effect::Push { transfer, .. } | Effect::Pull { transfer, .. } => {
                    ssd.transferred(NOW, transfer, Outcome::Done { sum: 0 });
                }
                Effect::Complete { cqe, .. } => {
                    assert_eq!(cqe.status_word(), 0);
                    done += 1;
                }
                Effect::Close { .. } => panic!("the SSD closed a queue"),
            }
        }
    }
    done
}

fn main() {
    let seconds: f64 = std::env::args().filter_map(|a| a.parse().ok()).next_back().unwrap_or(2.0);
    let preset = Preset::by_name("null").expect("a preset");
    let capacity_bytes = BLOCKS * 4096;
    let config = SsdConfig { index: 0, preset, capacity_bytes, serial: "BENCH".into(), media: SsdMedia::Ram };
    let mut ssd = Ssd::format(config).expect("an SSD");
    let regions = ssd.regions();
    let client = ClientId::new(7).expect("valid");
    connect(&mut ssd, &regions, QueueKey(1), 0, Identity::Daemon, fabrics::CNTLID_ANY);
    let map = FleetMap::equal(1, 1024, 1, 1).expect("a map").encode();
    let map = [map.clone(), vec![0; map.len().next_multiple_of(4) - map.len()]].concat();
    admin(&mut ssd, &regions, QueueKey(1), vendor(opcode::MAP_SET, map.len()), &map);
    let entry = VolumeEntry {
        vid: Vid::new(1).expect("valid"),
        generation: 1,
        version: 1,
        term: 1,
        deleting: false,
        name: "bench".into(),
        labels: String::new(),
        capacity_blocks: BLOCKS,
        replicas: 1,
        chunk_shift: 4,
        factor: 1,
        owner: client,
        any_reader: false,
        readers: vec![client],
        writer: Some(client),
        lease_epoch: 1,
        lease_ms: 3_600_000,
        request_ids: Vec::new(),
    };
    admin(&mut ssd, &regions, QueueKey(1), vendor(opcode::VOLUME_ADD, 4096), entry.encode().as_bytes());
    let cntlid = connect(&mut ssd, &regions, QueueKey(2), 0, Identity::Client(client), fabrics::CNTLID_ANY);
    connect(&mut ssd, &regions, QueueKey(3), 1, Identity::Client(client), cntlid);
    let vba = |n: u64| u32::try_from(n).expect("small");
    let fill: Vec<Sqe> = (0..BLOCKS)
        .map(|n| io(nvme::io::WRITE, client, vba(n), usize::try_from(n).expect("small") % DEPTH, n + 1))
        .collect();
    let start = Instant::now();
    assert_eq!(drive(&mut ssd, QueueKey(3), &fill), BLOCKS);
    println!("sequential write: {} ns", start.elapsed().as_nanos() / u128::from(BLOCKS));
    let reads: Vec<Sqe> = (0..1u64 << 18)
        .map(|n| io(nvme::io::READ, client, vba(mix64(n) % BLOCKS), usize::try_from(n).expect("small") % DEPTH, 0))
        .collect();
    let mut rates = Vec::new();
    for what in ["random read", "random read, access check off"] {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < seconds {
            done += drive(&mut ssd, QueueKey(3), &reads);
        }
        let elapsed = start.elapsed();
        #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
        let rate = done as f64 / elapsed.as_secs_f64() / 1e6;
        println!("{what}: {} ns, {rate:.3} M/s", elapsed.as_nanos() / u128::from(done));
        rates.push(rate);
        ssd.measure_unchecked();
    }
    println!("rate with the check on: {:.2} of the rate with it off", rates[0] / rates[1]);
}
