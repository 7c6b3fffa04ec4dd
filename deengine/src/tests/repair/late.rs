// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Late answers, and refused questions.

use super::*;

#[test]
fn an_answer_from_before_a_settle_brings_no_trimmed_block_back() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    world.send_all(&[0, 1], put(10, 3));
    world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 0]));
    // It is older than the write, and arrives after it.
    world.send_all(&[0, 1, 2], trim(10, 2));
    let mut late = None;
    while late.is_none() {
        world.ssds[2].advance(Span::from_ms(1));
        for (ask, peer, local) in std::mem::take(&mut world.ssds[2].asked) {
            match world.question(2, local).wanted {
                Wanted::Rows(_) | Wanted::Digests(_) => world.carry(2, ask, peer, local),
                Wanted::Blocks(_) => late = Some((ask, world.answer(2, peer, local))),
            }
        }
    }
    // The volume's writer ends before the filling place has the trim.
    world.send_all(&[0, 1], trim(10, 4));
    for ssd in &mut world.ssds {
        ssd.chmod(|entry| (entry.writer, entry.lease_ms, entry.unsettled) = (None, 0, true));
    }
    assert_eq!((world.until_settled(1, 2), world.until_settled(2, 2)), (0, 0));
    world.are_equal(&[0, 1, 2]);
    let (ask, answer) = late.expect("data was asked for");
    world.hand_over(2, ask, answer);
    world.until_filled(2);
    world.are_equal(&[0, 1, 2]);
}

#[test]
fn only_a_member_hears_of_blocks_and_only_from_an_ssd_that_decides() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    world.send_all(&[0, 1], put(1, 1));
    let mut ask = |at: usize, peer: usize, read: PeerRead| {
        let length = u32::try_from(read.bytes()).expect("few");
        let sqe = Sqe { dptr: KeyedSgl::keyed(0, length, KEY), flags: FLAGS_SGL, ..read.command() };
        let cqe = world.ssds[at].run(peer_key(peer), sqe);
        refusal(&cqe).map_or(Ok(cqe.dw0.get()), Err)
    };
    let wanted = Wanted::Rows(64);
    let rows = PeerRead { epoch: 1, vid: vid(VOLUME), generation: 1, first: 0, wanted, of_any: false };
    assert_eq!(ask(0, 1, rows), Ok(1));
    assert_eq!(ask(0, 2, rows), Ok(0), "it has no place");
    assert_eq!(ask(1, 0, rows), Ok(0), "another one is the first");
    let data = PeerRead { wanted: Wanted::Blocks(0b10), ..rows };
    assert_eq!((ask(0, 1, data), ask(0, 2, data)), (Ok(1), Err(Refusal::WrongTarget)));
    assert_eq!(ask(0, 1, PeerRead { epoch: 2, ..rows }), Err(Refusal::MapBehind));
    assert_eq!(ask(0, 1, PeerRead { epoch: 0, ..rows }), Err(Refusal::StaleMap));
    assert_eq!(ask(0, 1, PeerRead { generation: 2, ..rows }), Err(Refusal::UnknownVolume));
}
