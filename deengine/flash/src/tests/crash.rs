// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power cuts at every operation. Pages that were reported durable are there, and a half-written page is
//! always noticed.

use super::*;
use std::collections::HashMap;

/// Steps of a script before the power failed.
#[derive(Default)]
struct Known {
    /// Reported durable, and not erased since.
    durable: HashMap<Ppa, u64>,
    /// Erased for sure, and not placed since.
    erased: Vec<Block>,
    /// Everything that was ever placed on a page.
    ever: HashMap<Ppa, Vec<u64>>,
    /// An erase was in flight.
    erasing: Option<Block>,
}

/// Fills superblock after superblock, keeps two programs in flight, and erases the oldest superblock when its
/// turn comes. Ends when the power is off.
fn script(flash: &Flash, power: &Power, units: u32) -> Known {
    let of = flash.geometry();
    let mut known = Known::default();
    let mut in_flight: Vec<(Unit, Vec<(Ppa, u64)>)> = Vec::new();
    for step in 0..units {
        let unit = Unit(step % of.units());
        if step >= of.units() && unit == of.first_unit(of.superblock_of_unit(unit)) {
            for die in 0..of.dies() {
                let block = of.block_of(Unit(unit.0 + die));
                let pages: Vec<Ppa> = of.units_of(block).flat_map(|unit| of.pages_of(unit)).collect();
                pages.iter().for_each(|page| _ = known.durable.remove(page));
                flash.erase(block).unwrap();
                if power.is_cut() {
                    known.erasing = Some(block);
                    return known;
                }
                known.erased.push(block);
            }
        }
        let mut numbers = Vec::new();
        known.erased.retain(|&block| block != of.block_of(unit));
        for (slot, page) in (0..).zip(of.pages_of(unit)) {
            let number = u64::from(step) * 8 + slot;
            if (step + u32::try_from(slot).unwrap()) % 7 == 6 {
                flash.pad(page);
            } else {
                put(flash, page, number);
                known.ever.entry(page).or_default().push(number);
                numbers.push((page, number));
            }
        }
        flash.start_program(unit);
        in_flight.push((unit, numbers));
        if in_flight.len() == 3 {
            let (unit, numbers) = in_flight.remove(0);
            loop {
                match flash.finish_program(unit) {
                    Poll::Ready(result) => {
                        result.unwrap();
                        known.durable.extend(numbers);
                        break;
                    }
                    Poll::Pending if power.is_cut() => return known,
                    Poll::Pending => {}
                }
            }
        }
    }
    known
}

fn check(flash: &Flash, known: &Known) {
    let of = flash.geometry();
    for (&page, &number) in &known.durable {
        assert_holds(flash, page, number, true);
    }
    for page in (0..u32::try_from(of.pages()).unwrap()).map(Ppa) {
        match flash.page(page) {
            PageState::Programmed(found) => {
                // Not known to be durable, but then it is a whole older write of this page.
                let number = found.seq;
                assert!(
                    known.ever[&page].contains(&number),
                    "{page:?} holds {number}, which was never placed there"
                );
                assert_holds(flash, page, number, true);
            }
            PageState::Buffered(_) => panic!("{page:?} is buffered after a power cut"),
            PageState::Erased | PageState::Damaged | PageState::Padding => {
                assert_eq!(read(flash, page), Err(Unreadable(page)));
            }
        }
    }
    for &block in &known.erased {
        assert!(
            of.units_of(block)
                .flat_map(|unit| of.pages_of(unit))
                .all(|page| flash.page(page) == PageState::Erased)
        );
    }
    assert!((0..of.blocks()).all(|block| !flash.is_pinned(Block(block))));
}

/// Checks that the flash is usable: all of it can be erased, written and read.
fn use_again(flash: &Flash) {
    let of = flash.geometry();
    for block in (0..of.blocks()).map(Block) {
        flash.erase(block).unwrap();
        assert_eq!(flash.next_row(block), 0);
    }
    for unit in (0..of.units()).map(Unit) {
        program(flash, unit, u64::from(unit.0) * 100 + 1_000_000);
    }
    for unit in (0..of.units()).map(Unit) {
        for (page, number) in of.pages_of(unit).zip(u64::from(unit.0) * 100 + 1_000_000..) {
            assert_holds(flash, page, number, true);
        }
    }
}

#[test]
fn a_cut_at_any_operation_loses_nothing_durable() {
    let _deadline = crate::tests::deadline();
    let steady = Arc::new(Power::steady());
    let media = || MediaConfig::Ram { shared: false };
    let with = |power| Flash::new(FlashConfig { power, ..config(media()) }).unwrap();
    script(&with(Arc::clone(&steady)), &steady, 90);
    let ops = steady.ops();
    assert_eq!(ops, 88 + 12, "88 programs ended, 3 superblocks erased");
    let (mut damaged, mut whole, mut torn_erases) = (0, 0, 0);
    for cut in 0..=ops {
        for seed in 0..3 {
            let power = Arc::new(Power::cut_after(cut, seed));
            let flash = with(Arc::clone(&power));
            let known = script(&flash, &power, 90);
            assert!(power.is_cut());
            // A reader had pinned it.
            flash.pin(Ppa(1));
            flash.after_power_cut(seed);
            power.restore();
            check(&flash, &known);
            let pages = (0..240).map(Ppa);
            damaged += pages.clone().filter(|&page| flash.page(page) == PageState::Damaged).count();
            whole +=
                pages.filter(|&page| flash.key(page).is_some() && !known.durable.contains_key(&page)).count();
            torn_erases += usize::from(known.erasing.is_some());
            let held =
                (0..240).filter(|&page| matches!(flash.page(Ppa(page)), PageState::Programmed(_))).count();
            assert_eq!(flash.free_frames() as usize, 288 - held, "every frame without a page is free");
            use_again(&flash);
        }
    }
    assert!(damaged > 100 && whole > 100 && torn_erases == 36, "{damaged} {whole} {torn_erases}");
}

#[test]
fn a_cut_on_a_file_loses_nothing_durable_with_and_without_a_reopen() {
    let _deadline = crate::tests::deadline();
    for (io, cut) in [
        (IoMode::Auto, 3),
        (IoMode::Auto, 40),
        (IoMode::Blocking, 63),
        (IoMode::Auto, 64),
        (IoMode::Auto, 90),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = new_file(&folder.path().join("ssd"), io);
        let power = Arc::new(Power::cut_after(cut, cut));
        let media = MediaConfig::File(Arc::clone(&file));
        let flash = Flash::new(FlashConfig { power: Arc::clone(&power), ..config(media) }).unwrap();
        let known = script(&flash, &power, 90);
        if cut % 2 == 0 {
            flash.after_power_cut(cut);
            power.restore();
            check(&flash, &known);
        }
        drop(flash);
        let flash = on_file(&file);
        check(&flash, &known);
        use_again(&flash);
    }
}

#[test]
fn without_power_nothing_happens_and_nothing_panics() {
    let _deadline = crate::tests::deadline();
    let power = Arc::new(Power::steady());
    let flash =
        Flash::new(FlashConfig { power: Arc::clone(&power), ..config(MediaConfig::Ram { shared: false }) })
            .unwrap();
    program(&flash, Unit(0), 10);
    put(&flash, Ppa(4), 20);
    power.cut();
    let ops = power.ops();
    put(&flash, Ppa(5), 21);
    put(&flash, Ppa(0), 22);
    flash.pad(Ppa(100));
    flash.start_program(Unit(1));
    assert_eq!(flash.finish_program(Unit(1)), Poll::Pending);
    assert_eq!(flash.finish_program(Unit(7)), Poll::Pending);
    assert_eq!(flash.erase(Block(0)), Ok(()));
    assert_eq!(power.ops(), ops);
    assert_eq!(flash.page(Ppa(5)), PageState::Erased);
    flash.after_power_cut(1);
    power.restore();
    assert_holds(&flash, Ppa(0), 10, true);
    assert_eq!(flash.page(Ppa(4)), PageState::Erased);
    assert_eq!(flash.free_frames(), 284);
    put(&flash, Ppa(4), 30);
}

#[test]
fn the_countdown_is_over_durable_operations_and_can_be_set_again() {
    let _deadline = crate::tests::deadline();
    let power = Arc::new(Power::cut_after(2, 1));
    let flash =
        Flash::new(FlashConfig { power: Arc::clone(&power), ..config(MediaConfig::Ram { shared: false }) })
            .unwrap();
    let store = RamStore::new(4096, Arc::clone(&power));
    program(&flash, Unit(0), 1);
    assert!(!power.is_cut());
    store.write(0, &[1]).unwrap_err();
    assert!(power.is_cut());
    assert_eq!(power.ops(), 2);
    power.arm(3, 2);
    store.write(0, &[1]).unwrap();
    store.sync().unwrap();
    assert!(!power.is_cut());
    store.sync().unwrap_err();
    assert!(power.is_cut());
    assert!(Power::cut_after(0, 0).is_cut());
    power.restore();
    store.sync().unwrap();
    assert_eq!(power.ops(), 6);
}
