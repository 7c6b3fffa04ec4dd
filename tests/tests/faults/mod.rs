// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every fault ends in an error that names it, within the deadline, and harms nothing else.
#![expect(
    clippy::disallowed_methods,
    reason = "deadlines are measured, and clients work on threads of their own"
)]

mod noise;

use gnstor_fabric::admin::{AdminChannel, ChannelError, Payload};
use gnstor_fabric::host_queue::{HostQueue, SsdPath};
use gnstor_fabric::transport::{ExecutorId, Port};
use gnstor_proto::fabrics::{self, Identity, fctype, ssd_subnqn};
use gnstor_proto::nvme::{self, Sqe, admin, io};
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::vendor::opcode;
use gnstor_tests::raw_queue::RawQueue;
use gnstor_tests::{
    BLOCK, CHUNK, IO_TIMEOUT, assert_error, assert_same, client, io_failure, node, options, pattern,
    small_array, volume, within,
};
use libgnstor::{Client, CreateOptions, Error, Rights, TransportHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Longest time of one I/O: its own deadline, and the time that a launch adds.
const IO_LIMIT: Duration = IO_TIMEOUT.saturating_add(Duration::from_secs(5));

/// Checks that a client which connects after a fault finds everything in order.
fn usable(array: &gnstor_array::Array, name: &str) {
    let node = node(array.transport());
    let me = client(array, &node, name);
    volume(&me, name, 1 << 20, 2);
    let file = me.open(name, Rights::Write).unwrap();
    let data = pattern(77, 1 << 20);
    file.write_at(0, &data).unwrap();
    let mut back = vec![0; data.len()];
    file.read_at(0, &mut back).unwrap();
    assert_same(name, &back, &data);
    drop(file);
    me.delete(name).unwrap();
    assert_eq!(me.channel_stats().unwrap().leaked, 0);
}

fn names_the_broken_connection(result: Result<(), Error>) {
    let failure = io_failure(result);
    let sentence = failure.to_string();
    assert_eq!(failure.nvme_status(), None, "{sentence}");
    assert!(sentence.contains("the connection to the SSD broke"), "{sentence}");
}

#[test]
fn an_ssd_that_is_cut_off_fails_its_own_blocks_in_time_and_no_others() {
    within(LIMIT, || {
        const CHUNKS: usize = 32;
        let array = small_array(4);
        let node = node(array.transport());
        let me = client(&array, &node, "me");
        volume(&me, "v", (CHUNKS * CHUNK) as u64, 1);
        let file = me.open("v", Rights::Write).unwrap();
        let data = pattern(1, CHUNKS * CHUNK);
        file.write_at(0, &data).unwrap();

        array.transport().each(|e, _| e.set_silent(2, true)).unwrap();
        let (mut cut, mut served) = (Vec::new(), 0);
        for chunk in 0..CHUNKS {
            let at = chunk * CHUNK;
            let mut back = vec![0; CHUNK];
            let started = Instant::now();
            let result = file.read_at(at as u64, &mut back);
            assert!(started.elapsed() < IO_LIMIT, "{:?}", started.elapsed());
            match result {
                Ok(()) => {
                    assert_same("a chunk of another SSD", &back, &data[at..][..CHUNK]);
                    file.write_at(at as u64, &back).unwrap();
                    served += 1;
                }
                failed => {
                    names_the_broken_connection(failed);
                    cut.push(at);
                }
            }
        }
        assert!(served > CHUNKS / 3 && !cut.is_empty(), "{served} of {CHUNKS} chunks are served");
        // Switched on again, the SSD serves new connections, and has every acknowledged block.
        array.transport().each(|e, _| e.set_silent(2, false)).unwrap();
        let other = client(&array, &node, "other");
        let view = other.open("v", Rights::Read).unwrap();
        let mut back = vec![0; data.len()];
        view.read_at(0, &mut back).unwrap();
        assert_same("after the fault", &back, &data);

        // A write that fails comes last. The daemon hears of it and asks the SSD on a connection of this
        // process, which cannot be made again.
        array.transport().each(|e, _| e.set_silent(2, true)).unwrap();
        let started = Instant::now();
        names_the_broken_connection(file.write_at(cut[0] as u64, &data[..CHUNK]));
        names_the_broken_connection(file.read_at(0, &mut vec![0; data.len()]));
        names_the_broken_connection(file.flush());
        assert!(started.elapsed() < IO_LIMIT, "{:?}", started.elapsed());
        let stats = me.channel_stats().unwrap();
        assert_eq!((stats.leaked, stats.protocol_errors), (0, 0), "{stats:?}");
    });
}

#[test]
fn a_cut_in_the_middle_of_a_long_write_ends_it_in_time() {
    within(LIMIT, || {
        let array = small_array(3);
        let node = node(array.transport());
        let me = client(&array, &node, "me");
        volume(&me, "v", 16 << 20, 2);
        let file = me.open("v", Rights::Write).unwrap();
        let data = pattern(1, 4 << 20);
        file.write_at(0, &data).unwrap();
        let writer = std::thread::spawn(move || {
            let started = Instant::now();
            // Makes volumes until the fault. Each takes many commands on every SSD.
            let failed = loop {
                if let Err(e) = file.write_at(0, &data) {
                    break e;
                }
                assert!(started.elapsed() < LIMIT, "the cut is not felt");
            };
            (file, failed, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(100));
        let cut = Instant::now();
        array.transport().each(|e, _| e.set_silent(0, true)).unwrap();
        let (file, failed, felt) = writer.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        assert!(felt.duration_since(cut) < IO_LIMIT, "{:?}", felt.duration_since(cut));
        names_the_broken_connection(Err(failed));
        // One copy of every block is on an SSD that answers.
        for chunk in 0..16 {
            let mut back = vec![0; CHUNK];
            let at = (chunk * CHUNK) as u64;
            let good = (0..2).any(|replica| file.read_replica_at(replica, at, &mut back).is_ok());
            assert!(good, "no replica of chunk {chunk} answers");
            assert_same("a replica", &back, &pattern(1, 4 << 20)[chunk * CHUNK..][..CHUNK]);
        }
        array.transport().each(|e, _| e.set_silent(0, false)).unwrap();
        drop(file);
        let stats = me.channel_stats().unwrap();
        assert_eq!((stats.leaked, stats.protocol_errors), (0, 0), "{stats:?}");
    });
}

#[test]
fn without_a_daemon_io_goes_on_and_management_says_that_it_is_unreachable() {
    within(LIMIT, || {
        let mut array = small_array(2);
        let node = node(array.transport());
        let me = client(&array, &node, "me");
        let late = options(&array, "late");
        volume(&me, "v", 1 << 20, 2);
        let file = me.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, 1 << 20)).unwrap();
        assert!(array.is_serving());
        array.stop_daemon().unwrap();
        assert!(!array.is_serving());

        let data = pattern(2, 1 << 20);
        file.write_at(0, &data).unwrap();
        file.flush().unwrap();
        let mut back = vec![0; data.len()];
        file.read_at(0, &mut back).unwrap();
        assert_same("written and read without a daemon", &back, &data);

        let started = Instant::now();
        let words = ["cannot reach the daemon at 127.0.0.1:"];
        assert_error(me.list(), libc::ECONNREFUSED, &words);
        assert_error(me.get("v"), libc::ECONNREFUSED, &words);
        assert_error(me.open("v", Rights::Read), libc::ECONNREFUSED, &words);
        assert_error(me.delete("v"), libc::ECONNREFUSED, &words);
        let new = CreateOptions { capacity_bytes: 4096, ..CreateOptions::default() };
        assert_error(me.create("w", &new), libc::ECONNREFUSED, &words);
        assert_error(Client::connect(&node, &late), libc::ECONNREFUSED, &words);
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        array.stop_daemon().unwrap();
        file.read_at(0, &mut back).unwrap();
        assert_same("still", &back, &data);
    });
}

/// Commands of the daemon and of other SSDs.
const OF_DAEMON: [u8; 7] = [
    opcode::VOLUME_ADD,
    opcode::VOLUME_CHMOD,
    opcode::VOLUME_DELETE,
    opcode::MAP_SET,
    opcode::MAP_HOLD,
    opcode::ACTIVATE,
    opcode::LEASE_ASK,
];

#[test]
fn a_client_cannot_speak_for_another_or_for_the_daemon() {
    within(LIMIT, || {
        let array = small_array(1);
        let engine = array.transport();
        let soft = engine.call(|e, _| e.add_soft()).unwrap();
        let (deadline, nqn) = (Duration::from_secs(5), ssd_subnqn(0));
        let identity = Identity::Client(ClientId::new(10).unwrap());
        let other = Identity::Client(ClientId::new(11).unwrap());
        let mut admin_queue = HostQueue::connect(
            &SsdPath { transport: &engine, executor: soft, port: Port::Local(0), subnqn: &nqn },
            identity,
            Duration::ZERO,
            deadline,
        )
        .unwrap();
        let cntlid = admin_queue.cntlid();

        // An I/O queue of another client's controller.
        let mut thief = RawQueue::open(&engine, soft, Port::Local(0), 1).unwrap();
        assert_eq!(thief.connect_io(1, cntlid, &nqn, other).unwrap(), Refusal::ConnectRefused.status());
        // The name of another SSD.
        assert_eq!(
            thief.connect_io(1, cntlid, &ssd_subnqn(9), identity).unwrap(),
            Refusal::ConnectInvalid.status()
        );
        // The host may try again after a refused Connect.
        assert_eq!(thief.connect_io(1, cntlid, &nqn, identity).unwrap(), Status::SUCCESS);

        // A read that claims to be of client 11.
        let read = nvme::ReadWrite {
            slba: gnstor_proto::slba::Slba(1 << 48 | 11 << 32),
            blocks: 1,
            fua: false,
            map_epoch: 1,
            stamp: gnstor_proto::slba::Stamp { lease_epoch: 0, sequence: 0 },
        };
        let mut sqe = Sqe { opcode: io::READ, flags: nvme::FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
        sqe.dptr = thief.data(4096);
        read.encode(&mut sqe);
        let answer = thief.exchange(&sqe, deadline).unwrap();
        assert_eq!(Detail::from_dw0(answer.dw0.get()).refusal(), Some(Refusal::WrongIdentity), "{answer:?}");
        assert_eq!(answer.status_word(), 0x4286);

        for opcode in OF_DAEMON {
            let payload = Payload::Out(&[0; 4096]);
            let sqe = Sqe { opcode, ..Sqe::default() };
            let answer = admin_queue.execute(sqe, payload, deadline).unwrap();
            let refusal = Detail::from_dw0(answer.dw0.get()).refusal();
            assert_eq!(refusal, Some(Refusal::NotTheDaemon), "{opcode:02x}h: {answer:?}");
        }
    });
}

#[test]
fn a_client_whose_hca_vanishes_in_the_middle_gets_an_error_and_harms_no_other() {
    within(LIMIT, || {
        let array = small_array(2);
        let lost = node(array.transport());
        let mut quick = options(&array, "lost");
        quick.io_timeout = Duration::from_secs(1);
        let victim = Client::connect(&lost, &quick).unwrap();
        volume(&victim, "v", 4 << 20, 2);
        let file = victim.open("v", Rights::Write).unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&gone);
        let thread = std::thread::spawn(move || {
            let data = pattern(1, 4 << 20);
            while !seen.load(Ordering::Acquire) {
                if let Err(e) = file.write_at(0, &data) {
                    return Some(e);
                }
            }
            file.write_at(0, &data).err()
        });
        std::thread::sleep(Duration::from_millis(100));
        lost.unplug();
        gone.store(true, Ordering::Release);
        usable(&array, "beside-the-lost");
        let error = thread
            .join()
            .unwrap_or_else(|p| std::panic::resume_unwind(p))
            .expect("there is no HCA to do the I/O");
        assert!(!error.to_string().is_empty());
        drop((victim, lost));
        usable(&array, "after-the-lost");
    });
}

/// Two hosts get the same client id, as can happen after a restart of the daemon: the SSD hears only the
/// newer one.
#[test]
fn a_newer_host_with_a_clients_id_takes_its_place() {
    within(LIMIT, || {
        let array = small_array(1);
        let node = node(array.transport());
        let old = client(&array, &node, "old");
        volume(&old, "v", 1 << 20, 1);
        let file = old.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, BLOCK)).unwrap();
        let engine = array.transport();
        let soft = engine.call(|e, _| e.add_soft()).unwrap();
        let (deadline, identity) =
            (Duration::from_secs(5), Identity::Client(ClientId::new(old.id()).unwrap()));
        let port = Port::Local(0);
        let mut newer = HostQueue::connect(
            &SsdPath { transport: &engine, executor: soft, port, subnqn: &ssd_subnqn(0) },
            identity,
            Duration::ZERO,
            deadline,
        )
        .unwrap();
        let error = file.write_at(0, &pattern(2, BLOCK)).expect_err("its queues are gone");
        assert!(error.to_string().contains("broke"), "{error}");
        newer.keep_alive(deadline).unwrap();
    });
}

#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    within(LIMIT, || {
        let array = small_array(48);
        let node = node(array.transport());
        let keeper = client(&array, &node, "keeper");
        volume(&keeper, "v", 1 << 20, 2);
        // All rounds together need more queue pairs than the HCA's table has.
        for round in 0..24u64 {
            let me = client(&array, &node, "guest");
            if round % 10 == 0 {
                let file = me.open("v", Rights::Write).unwrap();
                file.write_at(0, &pattern(round, BLOCK)).unwrap();
            }
        }
        assert_eq!(keeper.get("v").unwrap().writer, None);
        usable(&array, "after-the-guests");
    });
}

#[test]
fn a_host_that_falls_silent_loses_its_queues_and_one_that_speaks_keeps_them() {
    within(LIMIT, || {
        let array = small_array(1);
        let engine = array.transport();
        let soft = engine.call(|e, _| e.add_soft()).unwrap();
        let (deadline, nqn) = (Duration::from_secs(5), ssd_subnqn(0));
        let kato = Duration::from_millis(500);
        let connect = |id: u16| {
            let identity = Identity::Client(ClientId::new(id).unwrap());
            let queue = HostQueue::connect(
                &SsdPath { transport: &engine, executor: soft, port: Port::Local(0), subnqn: &nqn },
                identity,
                kato,
                deadline,
            )
            .unwrap();
            let mut io_queue = RawQueue::open(&engine, soft, Port::Local(0), 1).unwrap();
            assert_eq!(io_queue.connect_io(1, queue.cntlid(), &nqn, identity).unwrap(), Status::SUCCESS);
            (queue, io_queue)
        };
        let flush = Sqe { opcode: io::FLUSH, flags: nvme::FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
        let (mut dead, mut dead_io) = connect(20);
        let (mut alive, mut alive_io) = connect(21);
        assert_eq!(dead_io.exchange(&flush, deadline).unwrap().status_word(), 0);
        let started = Instant::now();
        while started.elapsed() < kato * 3 {
            alive.keep_alive(deadline).unwrap();
            std::thread::sleep(kato / 10);
        }
        assert_eq!(alive_io.exchange(&flush, deadline).unwrap().status_word(), 0);
        alive.keep_alive(deadline).unwrap();
        let asked = Instant::now();
        let io_end = dead_io.exchange(&flush, deadline).unwrap_err();
        let admin_end = dead.keep_alive(deadline).unwrap_err();
        assert!(matches!(io_end, ChannelError::Broken { .. }), "{io_end}");
        assert!(matches!(admin_end, ChannelError::Broken { .. }), "{admin_end}");
        assert!(asked.elapsed() < Duration::from_secs(2), "told at once, not by a timeout");
        // The host may connect again.
        drop((dead, dead_io));
        let (mut again, _io) = connect(20);
        again.keep_alive(deadline).unwrap();
    });
}
