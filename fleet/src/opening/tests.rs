// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All schedules of one SSD and three voters, up to a bound: starts, cuts, lost messages, images that are
//! kept and put back. An SSD whose content is older than what it served gets no lease.

use super::*;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

const VOTERS: usize = 3;
/// Number and content: how often the content has served and been written.
type Image = (Opening, u8);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct World {
    disk: Image,
    kept: Option<Image>,
    /// Writes that were acknowledged.
    acknowledged: u8,
    known: [Opening; VOTERS],
    /// While its power is on: whether it has raised its number, and which voters said yes.
    on: Option<(bool, [bool; VOTERS])>,
    starts: u8,
    found: bool,
}

/// How the parts work together. Mistakes are planted here.
#[derive(Clone, Copy)]
struct Rules {
    raises_before_proof: bool,
    remembers: bool,
}

const RIGHT: Rules = Rules { raises_before_proof: false, remembers: true };
const MOST_STARTS: u8 = 5;

impl World {
    fn new() -> Self {
        let (disk, known) = ((0, 0), [0; VOTERS]);
        Self { disk, kept: None, acknowledged: 0, known, on: None, starts: 0, found: false }
    }

    fn has_majority(&self) -> bool {
        self.on.is_some_and(|(_, yes)| yes.iter().filter(|&&yes| yes).count() > VOTERS / 2)
    }

    fn next(&self, rules: Rules) -> Vec<Self> {
        let mut all = Vec::new();
        let mut to = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            all.push(world);
        };
        let Some((has_raised, _)) = self.on else {
            if self.starts < MOST_STARTS && !self.found {
                to(&|world| {
                    world.starts += 1;
                    if rules.raises_before_proof {
                        world.disk.0 = next(world.disk.0);
                    }
                    world.on = Some((rules.raises_before_proof, [false; VOTERS]));
                });
            }
            to(&|world| world.kept = Some(world.disk));
            if let Some(kept) = self.kept {
                to(&|world| world.disk = kept);
            }
            return all;
        };
        // The power goes off, in order or not.
        to(&|world| world.on = None);
        for voter in 0..VOTERS {
            match check(self.known[voter], self.disk.0) {
                Ok(new) => {
                    let hears = |world: &mut Self| {
                        if let Some(new) = new.filter(|_| rules.remembers) {
                            world.known[voter] = new;
                        }
                    };
                    to(&|world| {
                        hears(world);
                        world.on.as_mut().expect("it is on").1[voter] = true;
                    });
                    // The answer is lost.
                    to(&hears);
                }
                Err(_) => to(&|world| (world.found, world.on) = (true, None)),
            }
        }
        if self.has_majority() && !has_raised {
            // The number is durable before a voter hears it.
            to(&|world| {
                world.disk.0 = next(world.disk.0);
                world.on = Some((true, [false; VOTERS]));
            });
        }
        if self.has_majority() && has_raised && self.acknowledged < 2 {
            to(&|world| {
                world.disk.1 += 1;
                world.acknowledged += 1;
            });
        }
        all
    }

    /// Whether the SSD has a lease and lacks acknowledged writes.
    fn serves_old(&self) -> bool {
        self.has_majority()
            && self.on.is_some_and(|(has_raised, _)| has_raised)
            && self.disk.1 < self.acknowledged
    }

    /// Whether the SSD was called an older image, although its content is the newest.
    fn is_wronged(&self) -> bool {
        self.found && self.disk.1 == self.acknowledged && self.kept.is_none()
    }
}

/// Whether some schedule serves old data, and whether some schedule finds an older image.
fn explore(rules: Rules) -> (bool, bool) {
    let (mut seen, mut open) = (BTreeSet::new(), vec![World::new()]);
    let (mut served, mut found) = (false, false);
    while let Some(world) = open.pop() {
        assert!(!world.is_wronged() || rules.raises_before_proof, "{world:?}");
        served |= world.serves_old();
        found |= world.found;
        for next in world.next(rules) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    (served, found)
}

#[test]
fn no_schedule_gives_an_older_image_a_lease_and_some_find_one() {
    let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
    assert_eq!(explore(RIGHT), (false, true));
}

#[test]
fn a_number_that_rises_at_each_start_or_is_not_remembered_serves_an_older_image() {
    let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
    assert!(explore(Rules { raises_before_proof: true, ..RIGHT }).0);
    assert!(explore(Rules { remembers: false, ..RIGHT }).0);
}

#[test]
fn a_stand_in_is_not_remembered_and_the_highest_number_is_its_last() {
    let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
    assert_eq!(check(7, STANDS_IN), Ok(None));
    assert_eq!((check(7, 7), check(7, 8), check(7, 6)), (Ok(None), Ok(Some(8)), Err(Refused::OlderImage)));
    assert_eq!((next(7), next(STANDS_IN - 1)), (8, STANDS_IN - 1));
}
