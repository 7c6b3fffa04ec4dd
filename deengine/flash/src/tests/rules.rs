// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of NAND, against a model that is a few vectors.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Model {
    Erased,
    Padding,
    Buffered(u64),
    Programmed(u64),
}

#[derive(Clone, Debug)]
enum Op {
    /// The next page of the open unit of a die: data, or padding.
    Fill {
        die: u32,
        pad: bool,
    },
    Start {
        pick: prop::sample::Index,
    },
    Finish {
        pick: prop::sample::Index,
    },
    Erase {
        block: u32,
    },
    Look {
        page: prop::sample::Index,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0..4u32, prop::bool::weighted(0.2)).prop_map(|(die, pad)| Op::Fill { die, pad }),
        3 => any::<prop::sample::Index>().prop_map(|pick| Op::Start { pick }),
        3 => any::<prop::sample::Index>().prop_map(|pick| Op::Finish { pick }),
        1 => (0..20u32).prop_map(|block| Op::Erase { block }),
        2 => any::<prop::sample::Index>().prop_map(|page| Op::Look { page }),
    ];
    prop::collection::vec(op, 0..400)
}

/// Does only operations that the rules allow, and compares.
struct Run<'a> {
    flash: &'a Flash,
    pages: Vec<Model>,
    /// For each die: the unit and the slot that are filled next.
    filling: BTreeMap<u32, (Unit, u32)>,
    full: Vec<Unit>,
    started: Vec<Unit>,
    next_rows: Vec<u32>,
    number: u64,
}

impl<'a> Run<'a> {
    fn new(flash: &'a Flash) -> Self {
        let geometry = flash.geometry();
        Self {
            flash,
            pages: vec![Model::Erased; usize::try_from(geometry.pages()).unwrap()],
            filling: BTreeMap::new(),
            full: Vec::new(),
            started: Vec::new(),
            next_rows: vec![0; geometry.blocks() as usize],
            number: 0,
        }
    }

    fn fill(&mut self, die: u32, pad: bool) {
        let of = self.flash.geometry();
        let open = self.filling.get(&die).copied().or_else(|| {
            let busy = |unit: Unit| self.full.contains(&unit) || self.started.contains(&unit);
            let blocks = (0..of.superblocks()).map(|superblock| Block(superblock * of.dies() + die));
            let unit = blocks
                .flat_map(|block| of.units_of(block))
                .find(|&unit| of.row_of(unit) >= self.next_rows[of.block_of(unit).0 as usize] && !busy(unit));
            unit.map(|unit| (unit, 0))
        });
        let Some((unit, slot)) = open else { return };
        let page = Ppa(of.first_page(unit).0 + slot);
        if pad {
            self.flash.pad(page);
            self.pages[page.0 as usize] = Model::Padding;
        } else {
            if self.flash.free_frames() == 0 {
                return;
            }
            self.number += 1;
            put(self.flash, page, self.number);
            self.pages[page.0 as usize] = Model::Buffered(self.number);
        }
        if slot + 1 == of.unit_pages() {
            self.filling.remove(&die);
            self.full.push(unit);
        } else {
            self.filling.insert(die, (unit, slot + 1));
        }
    }

    fn step(&mut self, op: &Op) {
        let of = self.flash.geometry();
        match op {
            Op::Fill { die, pad } => self.fill(*die, *pad),
            Op::Start { pick } => {
                // Only the lowest full row of a block may be started.
                let may = |unit: &Unit| {
                    let lower = |other: &&Unit| of.block_of(**other) == of.block_of(*unit) && **other < *unit;
                    !self.full.iter().any(|other| lower(&other))
                };
                let may: Vec<Unit> = self.full.iter().copied().filter(may).collect();
                if may.is_empty() {
                    return;
                }
                let unit = may[pick.index(may.len())];
                self.full.retain(|&other| other != unit);
                self.flash.start_program(unit);
                self.next_rows[of.block_of(unit).0 as usize] = of.row_of(unit) + 1;
                self.started.push(unit);
            }
            Op::Finish { pick } => {
                if !self.started.is_empty() {
                    let unit = self.started.swap_remove(pick.index(self.started.len()));
                    finish(self.flash, unit).unwrap();
                    for page in of.pages_of(unit) {
                        let model = &mut self.pages[page.0 as usize];
                        if let Model::Buffered(number) = *model {
                            *model = Model::Programmed(number);
                        }
                    }
                }
            }
            Op::Erase { block } => {
                let block = Block(*block);
                let mut open =
                    self.full.iter().chain(&self.started).chain(self.filling.values().map(|(unit, _)| unit));
                if open.any(|&unit| of.block_of(unit) == block) {
                    return;
                }
                self.flash.erase(block).unwrap();
                self.next_rows[block.0 as usize] = 0;
                for page in of.units_of(block).flat_map(|unit| of.pages_of(unit)) {
                    self.pages[page.0 as usize] = Model::Erased;
                }
            }
            Op::Look { page } => self.compare(page.index(self.pages.len())),
        }
    }

    fn compare(&self, at: usize) {
        let page = Ppa(u32::try_from(at).unwrap());
        match self.pages[at] {
            Model::Buffered(number) => assert_holds(self.flash, page, number, false),
            Model::Programmed(number) => assert_holds(self.flash, page, number, true),
            nothing => {
                let state = if nothing == Model::Erased { PageState::Erased } else { PageState::Padding };
                assert_eq!(self.flash.page(page), state);
                assert_eq!((self.flash.key(page), self.flash.oob(page)), (None, None));
                assert_eq!(read(self.flash, page), Err(Unreadable(page)));
            }
        }
    }

    fn end(&self) {
        (0..self.pages.len()).for_each(|at| self.compare(at));
        for (block, &row) in (0..).map(Block).zip(&self.next_rows) {
            assert_eq!(self.flash.next_row(block), row, "{block:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn ram_is_what_the_model_says(ops in ops()) {
        let _deadline = crate::tests::deadline();
        let flash = ram();
        let mut run = Run::new(&flash);
        ops.iter().for_each(|op| run.step(op));
        run.end();
        let is_held = |page: &&Model| matches!(page, Model::Buffered(_) | Model::Programmed(_));
        let held = run.pages.iter().filter(is_held).count();
        prop_assert_eq!(flash.free_frames() as usize + held, run.pages.len() + 48);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_file_is_what_the_model_says_and_stays_so(ops in ops(), blocking: bool) {
        let _deadline = crate::tests::deadline();
        let folder = tempfile::tempdir().unwrap();
        let io = if blocking { IoMode::Blocking } else { IoMode::Auto };
        let file = new_file(&folder.path().join("ssd"), io);
        let flash = on_file(&file);
        let mut run = Run::new(&flash);
        ops.iter().for_each(|op| run.step(op));
        run.end();
        let buffered = run.pages.iter().filter(|page| matches!(page, Model::Buffered(_))).count();
        prop_assert_eq!(flash.free_frames() as usize + buffered, 36, "48 spare frames less 12 for loads");

        // The SSD is not shut down, but programmed pages are there.
        let Run { mut pages, .. } = run;
        drop(flash);
        let flash = on_file(&file);
        let of = flash.geometry();
        let unit_pages = of.unit_pages() as usize;
        for pages in pages.chunks_exact_mut(unit_pages) {
            if !pages.iter().any(|page| matches!(page, Model::Programmed(_))) {
                // Padding alone is kept or not: nothing was in this unit.
                pages.fill(Model::Erased);
            }
        }
        let run = Run { pages, ..Run::new(&flash) };
        for (at, page) in run.pages.iter().enumerate() {
            match page {
                Model::Erased => {
                    let page = flash.page(Ppa(u32::try_from(at).unwrap()));
                    prop_assert!(matches!(page, PageState::Erased | PageState::Padding));
                }
                _ => run.compare(at),
            }
        }
    }
}

#[test]
#[should_panic(expected = "used again before its block was erased")]
fn a_page_is_not_placed_twice() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    put(&flash, Ppa(0), 1);
    put(&flash, Ppa(0), 2);
}

#[test]
#[should_panic(expected = "used before the one in front of it")]
fn pages_of_a_unit_are_placed_in_order() {
    let _deadline = crate::tests::deadline();
    put(&ram(), Ppa(1), 1);
}

#[test]
#[should_panic(expected = "row 2 is the next to program")]
fn a_row_that_was_passed_over_is_lost() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    program(&flash, Unit(4), 1);
    put(&flash, Ppa(0), 2);
}

#[test]
#[should_panic(expected = "is programmed with")]
fn a_unit_is_programmed_only_when_it_is_full() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    put(&flash, Ppa(0), 1);
    flash.start_program(Unit(0));
}

#[test]
#[should_panic(expected = "row 1 is the next to program")]
fn a_unit_is_not_started_twice() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    flash.geometry().pages_of(Unit(0)).for_each(|page| flash.pad(page));
    flash.start_program(Unit(0));
    flash.start_program(Unit(0));
}

#[test]
#[should_panic(expected = "without a start")]
fn a_unit_is_not_finished_before_it_is_started() {
    let _deadline = crate::tests::deadline();
    let _ = ram().finish_program(Unit(0));
}

#[test]
#[should_panic(expected = "which is bad")]
fn nothing_is_placed_on_a_bad_block() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    flash.mark_bad(Block(0));
    assert!(flash.is_bad(Block(0)) && !flash.is_bad(Block(1)));
    put(&flash, Ppa(0), 1);
}

#[test]
fn a_block_with_a_pin_is_not_erased() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    program(&flash, Unit(0), 1);
    flash.pin(Ppa(3));
    assert_eq!(flash.erase(Block(0)), Err(NotErased::Pinned(Block(0))));
    assert!(matches!(flash.page(Ppa(0)), PageState::Programmed(_)), "nothing has changed");
    flash.unpin(Ppa(3));
    assert_eq!(flash.erase(Block(0)), Ok(()));
    assert_eq!(flash.page(Ppa(0)), PageState::Erased);
}

#[test]
#[should_panic(expected = "is erased while Unit(0) is Filling")]
fn a_block_with_buffered_pages_is_not_erased() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    put(&flash, Ppa(0), 1);
    _ = flash.erase(Block(0));
}
