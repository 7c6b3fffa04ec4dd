// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers send: every opcode that the SSD knows, and good commands of voters, of peers and of repairs.

use super::oracle::Dice;
use super::*;
use crate::admin::effects;
use gnstor_proto::client_end::ClientEnd;
use gnstor_proto::placement::map3::FleetMap3;
use gnstor_proto::pull::{PeerRead, Wanted};
use gnstor_proto::repair::SettleData;
use gnstor_proto::scrub::{Order, RepairOrder};
use gnstor_proto::ssd_identity::KnownOpening;
use gnstor_proto::voting::{Activation, Ask, Hold, MapName, TermTake, map_digest};

/// Every opcode of the page of commands and effects.
pub(super) fn all() -> Vec<u8> {
    let mut all: Vec<u8> = effects::ADMIN.iter().chain(effects::IO).map(|&(code, _)| code).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A command that only a daemon or a peer may send, with its data.
pub(super) fn of_the_fleet(dice: &mut Dice, map: &FleetMap3) -> (Sqe, Vec<u8>) {
    let array = map.array;
    let next = FleetMap3 { epoch: map.epoch + 1, ..map.clone() };
    let bytes = next.encode().expect("a map");
    let name = MapName { epoch: next.epoch, digest: map_digest(&bytes) };
    let term = 1 + u64::from(dice.small(4));
    let (mut command, data) = match dice.below(6) {
        0 => (TermTake { array: [3; 8], term, instance: 1 }.command(), vec![0; 4096]),
        1 => {
            let hold = Hold { term, instance: 1, array, epoch: next.epoch, base: 0 };
            (sqe(opcode::MAP_HOLD), hold.encode(&bytes))
        }
        2 => {
            let whole = dice.one_in(2).then_some(bytes.as_slice());
            (sqe(opcode::ACTIVATE), Activation { array, map: name, base: 0 }.encode(whole))
        }
        3 => {
            let ask = Ask {
                ssd: 1,
                array,
                epoch: map.epoch,
                incarnation: 0,
                opening: 1,
                uuid: [0; 16],
                is_goodbye: false,
            };
            (Ask::command(), ask.encode().to_vec())
        }
        4 => {
            let settle = SettleData { term, epoch: map.epoch, array, vid: vid(VOLUME), generation: 1 };
            (sqe(opcode::SETTLE), settle.encode().to_vec())
        }
        _ => return of_repair(dice, map),
    };
    let count = u32::try_from(data.len()).expect("small");
    (command.dptr, command.flags, command.cdw10) =
        (KeyedSgl::keyed(0, count, KEY), FLAGS_SGL, (count / 4).into());
    (command, data)
}

/// PEER READ, REPAIR, OPENING and CLIENT END.
fn of_repair(dice: &mut Dice, map: &FleetMap3) -> (Sqe, Vec<u8>) {
    if dice.one_in(4) {
        let (serial, term) = (dice.small(4).into(), 1 + u64::from(dice.small(4)));
        let end = ClientEnd { client: client(dice.of(&[7, 8, 10])), serial, term };
        return (Sqe { flags: FLAGS_SGL, ..end.command() }, Vec::new());
    }
    if dice.one_in(3) {
        let known = KnownOpening(dice.small(4));
        return (Sqe { flags: FLAGS_SGL, ..known.command() }, Vec::new());
    }
    if dice.one_in(2) {
        let order = dice.of(&[Order::ScrubStart, Order::ScrubStop, Order::Share(50)]);
        return (RepairOrder { term: 1 + u64::from(dice.small(4)), order }.command(), Vec::new());
    }
    let read = PeerRead {
        epoch: map.wire_epoch(),
        vid: vid(VOLUME),
        generation: 1,
        first: dice.small(40),
        wanted: dice.of(&[Wanted::Rows(3), Wanted::Digests(70), Wanted::Blocks(5)]),
        of_any: dice.one_in(2),
    };
    let bytes = u32::try_from(read.bytes()).expect("small");
    (Sqe { dptr: KeyedSgl::keyed(0, bytes, KEY), flags: FLAGS_SGL, ..read.command() }, Vec::new())
}

/// The opcodes that a module of `proto` names, with the lines that name them.
pub(super) fn named(module: &str) -> Vec<(u8, &'static str)> {
    let sources = [include_str!("../../../proto/src/vendor.rs"), include_str!("../../../proto/src/nvme.rs")];
    let source = sources.iter().find_map(|source| source.split_once(module)).expect("the module").1;
    let body = source.split_once("\n}").expect("its end").0;
    let lines = body.lines().filter(|line| line.contains("pub const ") && line.contains(": u8 = 0x"));
    let code = |line: &'static str| {
        let digits = line.split_once("0x").expect("a number").1.trim_end_matches(';');
        (u8::from_str_radix(digits, 16).expect("a number"), line.trim())
    };
    lines.map(code).collect()
}

/// A new command is in the page of commands and effects, and so in what the fuzzers send.
#[test]
fn every_opcode_of_the_protocol_is_fuzzed() {
    let _deadline = crate::deadline::deadline();
    let (all, mut count) = (all(), 0);
    for (code, line) in ["mod opcode {", "mod admin {", "mod io {"].into_iter().flat_map(named) {
        assert!(all.contains(&code), "the fuzzers leave out {line}");
        count += 1;
    }
    assert!(count >= 27, "{count} opcodes are named");
}
