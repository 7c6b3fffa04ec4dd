// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The corpus of capsules: of each opcode one that the SSD takes, and before it the same with one mistake.
//! The data of a capsule follows its 64 bytes, without zeros at its end.

use super::*;
use gnstor_hostile::mutate::{file_of, inputs};
use gnstor_proto::client_end::ClientEnd;
use gnstor_proto::nvme::SQE_BYTES;
use gnstor_proto::pull::{PeerRead, Wanted};
use gnstor_proto::repair::SettleData;
use gnstor_proto::scrub::{Order, RepairOrder};
use gnstor_proto::ssd_identity::KnownOpening;
use gnstor_proto::voting::{Activation, Ask, Hold, MapName, TermTake, map_digest};

pub(super) const CORPUS: &[u8] = include_bytes!("../../../../tests/hostile/corpus/capsules.bin");
/// The first queue of a host that the recording brings.
const NEW: QueueKey = QueueKey(300);
/// Bytes of a page, for commands that read.
const PAGE: u32 = 4096;

/// The capsule of an input, which may be shorter than one, and the data behind it.
pub(super) fn parts(input: &[u8]) -> (Sqe, &[u8]) {
    let (head, data) = input.split_at(input.len().min(SQE_BYTES));
    let mut bytes = [0; SQE_BYTES];
    bytes[..head.len()].copy_from_slice(head);
    (Sqe::read_from_bytes(&bytes).expect("64 bytes"), data)
}

/// An SSD whose commands are recorded.
struct Recorder {
    harness: Harness,
    inputs: Vec<Vec<u8>>,
}

impl Recorder {
    /// Sends the command with the mistake, which is refused, and then without, which is taken.
    fn both(&mut self, key: QueueKey, sqe: Sqe, data: &[u8], mistake: fn(&mut Sqe)) {
        let mut wrong = sqe;
        mistake(&mut wrong);
        for (sqe, is_good) in [(wrong, false), (sqe, true)] {
            self.harness.poke(key, 0, &[0; 4 * BLOCK]);
            self.harness.poke(key, 0, data);
            let cid = self.harness.submit(key, sqe);
            // A request for events waits for one.
            let waits = is_good && sqe.opcode == admin::ASYNC_EVENT_REQUEST;
            let said = self.harness.take(key, cid).map(|cqe| refusal(&cqe));
            let is_right = said.map_or(waits, |refusal| refusal.is_none() == is_good);
            assert!(is_right, "{said:?}, but good: {is_good}, {sqe:?}");
            let end = data.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
            self.inputs.push([sqe.as_bytes(), &data[..end]].concat());
        }
    }

    /// As [`Self::both`], for the daemon's commands with data.
    fn with_data(&mut self, opcode: u8, data: &[u8]) {
        let bytes = u32::try_from(data.len()).expect("small");
        let sqe = Sqe { dptr: KeyedSgl::keyed(0, bytes, KEY), cdw10: (bytes / 4).into(), ..sqe(opcode) };
        self.both(DAEMON, sqe, data, longer);
    }

    fn admin(&mut self) {
        let key = QueueKey(70);
        self.both(key, log_sqe(2, 0, 128, true), &[], |sqe| sqe.cdw10 = (sqe.cdw10.get() | 0xFF).into());
        let identify = Sqe { dptr: KeyedSgl::keyed(0, PAGE, KEY), cdw10: 1.into(), ..sqe(admin::IDENTIFY) };
        self.both(key, Sqe { nsid: 0.into(), ..identify }, &[], |sqe| sqe.cdw10 = 0x55.into());
        self.both(key, sqe(admin::ABORT), &[], by_address);
        for code in [admin::SET_FEATURES, admin::GET_FEATURES] {
            let feature = Sqe { cdw10: 0xF.into(), cdw11: 5000.into(), ..sqe(code) };
            self.both(key, feature, &[], |sqe| sqe.cdw10 = 0x99.into());
        }
        self.both(key, sqe(admin::ASYNC_EVENT_REQUEST), &[], by_address);
        self.both(key, sqe(admin::KEEP_ALIVE), &[], by_address);
    }

    fn fabrics(&mut self) {
        self.harness.open(NEW, 0, 64);
        let data = ConnectData::new(Identity::Client(client(9)), CNTLID_ANY, &ssd_subnqn(0));
        let fields = ConnectFields { sqsize_z: 63.into(), ..Default::default() };
        let connect = Sqe { dptr: KeyedSgl::keyed(0, 1024, KEY), ..command(fctype::CONNECT, &fields) };
        self.both(NEW, connect, data.as_bytes(), |sqe| sqe.dptr = KeyedSgl::keyed(0, 1020, KEY));
        let enable = PropertyFields {
            offset: property::CC.into(),
            value: property::CC_ENABLE.into(),
            ..Default::default()
        };
        let unknown = |sqe: &mut Sqe| sqe.nsid = 0x33.into();
        self.both(NEW, command(fctype::PROPERTY_SET, &enable), &[], unknown);
        let status = PropertyFields { offset: property::CSTS.into(), ..Default::default() };
        self.both(NEW, command(fctype::PROPERTY_GET, &status), &[], unknown);
        self.both(READER, command(fctype::DISCONNECT, &PropertyFields::default()), &[], unknown);
    }

    fn io(&mut self) {
        let twice = |sqe: &mut Sqe| sqe.cdw12 = (sqe.cdw12.get() + 1).into();
        for code in [io::WRITE, io::READ, io::COMPARE] {
            let sqe = self.harness.io(code, WRITER, 3, 1);
            let data: &[u8] = if code == io::READ { &[] } else { b"a block" };
            self.both(WRITER, sqe, data, twice);
        }
        let zeroes = self.harness.io(io::WRITE_ZEROES, WRITER, 4, 2);
        self.both(WRITER, zeroes, &[], elsewhere);
        let mut trim = self.harness.io(io::DATASET_MANAGEMENT, WRITER, 5, 1);
        let slba = ReadWrite::decode(&trim).slba.0.to_le_bytes();
        (trim.dptr, trim.cdw10, trim.cdw11) = (KeyedSgl::keyed(0, 16, KEY), 0.into(), 4.into());
        self.both(WRITER, trim, &[&[0; 4][..], &1u32.to_le_bytes(), &slba].concat(), longer);
        self.both(WRITER, sqe(io::FLUSH), &[], elsewhere);
    }

    fn volumes(&mut self, map: &FleetMap3) {
        self.with_data(opcode::VOLUME_ADD, entry(6).encode().as_bytes());
        // Its writer is gone, and its copies may differ.
        let changed = VolumeEntry { version: 2, writer: None, lease_ms: 0, unsettled: true, ..entry(6) };
        self.with_data(opcode::VOLUME_CHMOD, changed.encode().as_bytes());
        for code in [opcode::VOLUME_LIST, opcode::MAP_GET] {
            let dptr = KeyedSgl::keyed(0, 2 * PAGE, KEY);
            self.both(DAEMON, Sqe { dptr, cdw10: (PAGE / 2).into(), ..sqe(code) }, &[], longer);
        }
        let settle = SettleData { term: 1, epoch: map.epoch, array: map.array, vid: vid(6), generation: 1 };
        self.with_data(opcode::SETTLE, &settle.encode());
        let delete = Sqe { cdw12: 6.into(), ..Harness::delete_sqe(1, 3) };
        self.both(DAEMON, delete, &[], |sqe| sqe.cdw13 = 9.into());
    }

    /// What voters hear, and what SSDs that repair themselves hear.
    fn fleet(&mut self, map: &FleetMap3) {
        let (array, term) = (map.array, 1);
        let start = Sqe { flags: FLAGS_SGL, ..RepairOrder { term, order: Order::ScrubStart }.command() };
        self.both(DAEMON, start, &[], |sqe| sqe.cdw12 = 99.into());
        let (epoch, volume, wanted) = (map.wire_epoch(), vid(VOLUME), Wanted::Rows(3));
        let read = PeerRead { epoch, vid: volume, generation: 1, first: 0, wanted, of_any: false };
        let bytes = u32::try_from(read.bytes()).expect("small");
        let dptr = KeyedSgl::keyed(0, bytes, KEY);
        self.both(PEER, Sqe { dptr, flags: FLAGS_SGL, ..read.command() }, &[], longer);
        let take = TermTake { array: [3; 8], term, instance: 1 }.command();
        let take = Sqe { dptr: KeyedSgl::keyed(0, PAGE, KEY), flags: FLAGS_SGL, ..take };
        self.both(DAEMON, take, &[], |sqe| sqe.cdw12 = 4.into());
        let next = FleetMap3 { epoch: map.epoch + 1, ..map.clone() };
        let bytes = next.encode().expect("a map");
        let hold = Hold { term, instance: 1, array, epoch: next.epoch, base: 0 };
        self.with_data(opcode::MAP_HOLD, &hold.encode(&bytes));
        let name = MapName { epoch: next.epoch, digest: map_digest(&bytes) };
        self.with_data(opcode::ACTIVATE, &Activation { array, map: name, base: 0 }.encode(None));
        let ask = Ask {
            ssd: 1,
            array,
            epoch: next.epoch,
            incarnation: 0,
            opening: 1,
            uuid: [0; 16],
            is_goodbye: false,
        };
        let ask_sqe = Sqe { dptr: KeyedSgl::keyed(0, 64, KEY), flags: FLAGS_SGL, ..Ask::command() };
        self.both(PEER, ask_sqe, &ask.encode(), |sqe| sqe.dptr = KeyedSgl::keyed(0, 60, KEY));
    }
}

/// Another length of the data than its descriptor has.
fn longer(sqe: &mut Sqe) {
    sqe.cdw10 = (sqe.cdw10.get() + 1).into();
}

/// Data by address, which no command has over fabrics.
fn by_address(sqe: &mut Sqe) {
    sqe.flags = 0;
}

/// Another namespace than there is.
fn elsewhere(sqe: &mut Sqe) {
    sqe.nsid = 2.into();
}

/// The SSD of these commands is alone in its array; the SSD of the others votes.
fn recorded() -> Vec<Vec<u8>> {
    let mut alone = Recorder { harness: Harness::connected(0), inputs: Vec::new() };
    let map = FleetMap::equal(1, 64, 7, 1).expect("a map").encode();
    alone.with_data(opcode::MAP_SET, &[&map[..], &[0; 3]].concat()[..map.len().next_multiple_of(4)]);
    let renew = Sqe { cdw2: 1.into(), cdw12: 5000.into(), cdw14: 1.into(), ..sqe(opcode::LEASE_RENEW) };
    alone.both(DAEMON, renew, &[], |sqe| sqe.cdw12 = 1.into());
    let opening = Sqe { flags: sqe(0).flags, ..KnownOpening(0).command() };
    alone.both(DAEMON, opening, &[], elsewhere);
    let end = ClientEnd { client: client(10), serial: 9, term: 1 }.command();
    alone.both(DAEMON, Sqe { flags: sqe(0).flags, ..end }, &[], elsewhere);

    let fleet = voting::voted(&[0]);
    let mut voter = Recorder { harness: target(true, &fleet), inputs: alone.inputs };
    voter.admin();
    voter.io();
    voter.volumes(&fleet);
    voter.fleet(&fleet);
    voter.fabrics();
    voter.inputs
}

/// The capsules are functions of the numbers above. `GNSTOR_WRITE_CORPUS=1` writes the file anew.
#[test]
fn the_corpus_has_of_each_opcode_a_capsule_that_is_taken_and_one_that_is_refused() {
    let _deadline = crate::deadline::deadline();
    let capsules = recorded();
    if std::env::var_os("GNSTOR_WRITE_CORPUS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/hostile/corpus/capsules.bin");
        std::fs::write(path, file_of(&capsules)).expect("it can be written");
    }
    assert!(inputs(CORPUS) == capsules, "the file has other capsules");
    let codes: BTreeSet<u8> = capsules.iter().map(|input| input[0]).collect();
    assert_eq!(Vec::from_iter(codes), opcodes::all());
}
