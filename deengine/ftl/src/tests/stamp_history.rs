// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stamp histories against plain lists.

use super::*;

fn stamp(sequence: u64) -> Stamp {
    Stamp { lease_epoch: 1, sequence }
}

#[test]
fn the_history_remembers_exactly_the_last_4096_blocks() {
    let _deadline = crate::tests::deadline();
    let mut history = StampHistory::default();
    for vba in 0..10_000u32 {
        history.record(vba, stamp(u64::from(vba)));
    }
    assert_eq!(history.held(10_000 - 4096), Some(stamp(10_000 - 4096)));
    assert_eq!(history.held(10_000 - 4097), None);
    let order: Vec<u32> = history.iter().map(|(vba, _)| vba).collect();
    assert_eq!(order, (10_000 - 4096..10_000).collect::<Vec<_>>());
}

#[test]
fn a_block_written_again_keeps_its_newest_stamp_when_the_old_one_leaves() {
    let _deadline = crate::tests::deadline();
    let mut history = StampHistory::default();
    history.record(7, stamp(1));
    history.record(7, stamp(2));
    for vba in 100..100 + 4095u32 {
        history.record(vba, stamp(3));
    }
    assert_eq!(history.held(7), Some(stamp(2)));
    history.record(9, stamp(4));
    assert_eq!(history.held(7), None);
}

#[test]
fn a_history_that_was_loaded_is_the_one_that_was_recorded() {
    let _deadline = crate::tests::deadline();
    for steps in [0, 1, 4095, 4096, 4097, 9_000u32] {
        let (mut recorded, mut loaded) = (StampHistory::default(), StampHistory::default());
        for step in 0..steps {
            recorded.record(step * 7 % 5000, stamp(u64::from(step)));
            loaded.load(step * 7 % 5000, stamp(u64::from(step)));
        }
        loaded.link_all();
        assert!((0..5000).all(|vba| recorded.held(vba) == loaded.held(vba)), "{steps}");
        for step in steps..steps + 5_000 {
            recorded.record(step * 3 % 5000, stamp(u64::from(step)));
            loaded.record(step * 3 % 5000, stamp(u64::from(step)));
        }
        assert!(recorded.iter().eq(loaded.iter()), "{steps}");
        assert!((0..5000).all(|vba| recorded.held(vba) == loaded.held(vba)), "{steps}");
    }
}

#[test]
fn a_lower_stamp_of_a_repair_counts_after_a_restore_too() {
    let _deadline = crate::tests::deadline();
    for before in [0, 1, 4094, 4095, 8190u32] {
        let mut history = StampHistory::default();
        (0..before).for_each(|vba| history.load(100 + vba, stamp(1)));
        for stamp in [stamp(7), stamp(3), Stamp::default()] {
            history.load(5, stamp);
        }
        history.load(6, stamp(4));
        history.link_all();
        assert_eq!([history.held(5), history.held(6)], [Some(Stamp::default()), Some(stamp(4))], "{before}");
    }
}

#[test]
fn lookups_agree_with_a_list_however_old_a_chain_is() {
    let _deadline = crate::tests::deadline();
    // Few blocks are written often, many once, and some are looked up many laps later.
    let mut history = StampHistory::default();
    let mut list = std::collections::VecDeque::new();
    let mut last = std::collections::HashMap::new();
    let mut dice = 1;
    for step in 0..40 * HISTORY as u64 {
        dice = mix64(dice);
        let vba = u32::try_from((dice >> 32) % if dice & 3 == 0 { 64 } else { 200_000 }).unwrap();
        history.record(vba, stamp(step + 1));
        list.push_back(vba);
        *last.entry(vba).or_insert((0, 0)) = (step + 1, last.get(&vba).map_or(0, |(_, count)| *count) + 1);
        if list.len() > HISTORY {
            let gone = list.pop_front().unwrap();
            last.get_mut(&gone).unwrap().1 -= 1;
            last.retain(|block, (_, count)| *block != gone || *count > 0);
        }
        for asked in [vba, (vba ^ 1) % 200_000, u32::try_from(step % 64).unwrap()] {
            assert_eq!(
                history.held(asked),
                last.get(&asked).map(|(at, _)| stamp(*at)),
                "block {asked}, step {step}"
            );
        }
    }
}

#[test]
fn a_chain_that_was_not_used_for_laps_does_not_continue() {
    let _deadline = crate::tests::deadline();
    let (chain, _) = chain_of(0);
    let (mut same, other): (Vec<u32>, Vec<u32>) = (1..40_000).partition(|&vba| chain_of(vba).0 == chain);
    let asked = same.pop().unwrap();
    for laps in 1..=3 * LAPS as usize {
        for apart in [laps * HISTORY - 1, laps * HISTORY, laps * HISTORY + 1] {
            let mut history = StampHistory::default();
            history.record(0, stamp(1));
            (1..apart).for_each(|step| history.record(other[step % other.len()], stamp(2)));
            history.record(same[0], stamp(3));
            assert_eq!(
                (history.held(asked), history.held(0), history.held(same[0])),
                (None, (apart < HISTORY).then(|| stamp(1)), Some(stamp(3)))
            );
        }
    }
}

#[test]
fn a_place_taken_by_a_third_chain_after_laps_makes_no_circle() {
    let _deadline = crate::tests::deadline();
    let of = |chain| (0u32..).filter(move |&vba| chain_of(vba).0 == chain);
    let (mut first, mut second) = (of(1), of(2));
    let mut history = StampHistory::default();
    let mut step = 0;
    let mut record = |history: &mut StampHistory, at: usize, vba: u32| {
        let mut filler = (0u32..).filter(|&vba| chain_of(vba).0 > 2).cycle();
        while step < at {
            history.record(filler.next().unwrap(), stamp(1));
            step += 1;
        }
        history.record(vba, stamp(2));
        step += 1;
    };
    let laps = LAPS as usize * HISTORY;
    for at in [0, 1] {
        record(&mut history, at, first.next().unwrap());
    }
    for at in [laps, laps + 1, 2 * laps + 1] {
        record(&mut history, at, second.next().unwrap());
    }
    assert_eq!(history.held(first.next().unwrap()), None);
    assert_eq!(history.held(second.next().unwrap()), None);
}

#[test]
fn recording_a_history_again_in_its_order_gives_the_same_history() {
    let _deadline = crate::tests::deadline();
    let mut history = StampHistory::default();
    for step in 0..9_000u32 {
        history.record(step * 7 % 5000, stamp(u64::from(step)));
    }
    let mut again = StampHistory::default();
    history.iter().for_each(|(vba, stamp)| again.record(vba, stamp));
    assert!((0..5000).all(|vba| history.held(vba) == again.held(vba)));
}
