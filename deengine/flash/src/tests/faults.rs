// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Injected faults happen exactly as requested.

use super::*;

fn with(faults: Faults) -> (Flash, Arc<Faults>) {
    let faults = Arc::new(faults);
    let media = MediaConfig::Ram { shared: false };
    (Flash::new(FlashConfig { faults: Arc::clone(&faults), ..config(media) }).unwrap(), faults)
}

#[test]
fn an_uncorrectable_page_is_so_once_or_until_it_is_erased() {
    let _deadline = crate::tests::deadline();
    let (flash, faults) = with(Faults::none());
    program(&flash, Unit(0), 10);
    faults.unreadable(Ppa(1), true);
    faults.unreadable(Ppa(2), false);
    assert_eq!(read(&flash, Ppa(1)), Err(Unreadable(Ppa(1))));
    assert_holds(&flash, Ppa(1), 11, true);
    for _ in 0..3 {
        assert_eq!(read(&flash, Ppa(2)), Err(Unreadable(Ppa(2))));
        assert_eq!(copied(&flash, Ppa(2)), Err(Unreadable(Ppa(2))));
    }
    assert_holds(&flash, Ppa(3), 13, true);
    flash.erase(Block(0)).unwrap();
    program(&flash, Unit(0), 20);
    assert_holds(&flash, Ppa(2), 22, true);
}

#[test]
fn a_failed_program_leaves_pages_buffered_until_the_block_is_given_up() {
    let _deadline = crate::tests::deadline();
    let (flash, faults) = with(Faults::none());
    faults.fail_program(2);
    faults.fail_unit(Unit(2));
    program(&flash, Unit(0), 10);
    for unit in [Unit(1), Unit(2)] {
        flash.geometry().pages_of(unit).for_each(|page| put(&flash, page, u64::from(page.0)));
        flash.start_program(unit);
        let failed = ProgramFailed { unit, block: Block(unit.0) };
        assert_eq!(finish(&flash, unit), Err(failed));
        assert_eq!(finish(&flash, unit), Err(failed), "it says so again");
        flash.geometry().pages_of(unit).for_each(|page| assert_holds(&flash, page, u64::from(page.0), false));
    }
    let free = flash.free_frames();
    flash.mark_bad(Block(1));
    flash.erase(Block(1)).unwrap();
    assert_eq!(flash.free_frames(), free + 4);
    assert_eq!(flash.page(Ppa(4)), PageState::Erased);
    assert!(flash.is_bad(Block(1)));
    program(&flash, Unit(3), 30);
}

#[test]
fn a_failed_erase_leaves_nothing_that_looks_like_data() {
    let _deadline = crate::tests::deadline();
    let (flash, faults) = with(Faults::none());
    program(&flash, Unit(0), 10);
    program(&flash, Unit(4), 20);
    faults.fail_erase(Block(0));
    assert_eq!(flash.erase(Block(0)), Err(NotErased::Failed(Block(0))));
    for page in (0..4).chain(16..20).map(Ppa) {
        assert_eq!(flash.page(page), PageState::Damaged);
        assert_eq!(flash.key(page), None);
        assert_eq!(read(&flash, page), Err(Unreadable(page)));
    }
    assert_eq!(flash.free_frames(), 288);
    assert_eq!(flash.next_row(Block(0)), 3, "it cannot be programmed");
}

#[test]
fn rot_flips_the_bit_asked_for() {
    let _deadline = crate::tests::deadline();
    let (flash, faults) = with(Faults::none());
    faults.rot(Ppa(1), 4096 * 8 - 1);
    program(&flash, Unit(0), 10);
    let mut rotten = data(11);
    rotten[4095] ^= 0x80;
    assert!(read(&flash, Ppa(1)).unwrap() == rotten);
    assert!(read(&flash, Ppa(1)).unwrap() == rotten, "once, and it stays");
    assert!(copied(&flash, Ppa(1)).unwrap() == rotten);
    assert!(matches!(flash.page(Ppa(1)), PageState::Programmed(_)), "the record is sound");
    assert_holds(&flash, Ppa(0), 10, true);
}

#[test]
fn factory_bad_blocks_are_drawn_from_the_seed() {
    let _deadline = crate::tests::deadline();
    let bad = |seed, ppm| with(Faults::seeded(seed, ppm)).0.factory_bad();
    assert_eq!(bad(1, 300_000), bad(1, 300_000));
    assert_ne!(bad(1, 300_000), bad(2, 300_000));
    assert_eq!(bad(1, 0), []);
    assert_eq!(bad(1, 1_000_000).len(), 20);
    let (flash, _) = with(Faults::seeded(1, 300_000));
    let bad = flash.factory_bad();
    assert!(!bad.is_empty());
    for block in (0..20).map(Block) {
        assert_eq!(flash.is_bad(block), bad.contains(&block));
    }
}

#[test]
fn rates_are_met_and_the_same_seed_fails_the_same_way() {
    let _deadline = crate::tests::deadline();
    let run = |seed| {
        let (flash, faults) = with(Faults::seeded(seed, 0));
        program(&flash, Unit(0), 10);
        faults.set_rates(200_000, 0, 0);
        let failed: Vec<bool> = (0..1000).map(|_| read(&flash, Ppa(0)).is_err()).collect();
        faults.clear();
        assert_holds(&flash, Ppa(0), 10, true);
        failed
    };
    let failed = run(1).iter().filter(|failed| **failed).count();
    assert!((150..250).contains(&failed), "{failed} of 1000 at 20 %");
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_slow_die_is_remembered() {
    let _deadline = crate::tests::deadline();
    let faults = Faults::none();
    faults.set_slow(3, 250);
    assert_eq!((faults.slow_factor(3), faults.slow_factor(2)), (250, 100));
    faults.set_slow(3, 100);
    assert_eq!(faults.slow_factor(3), 100);
}
