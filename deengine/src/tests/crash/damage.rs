// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One structure of the system area is damaged while the power is off. The SSD refuses and says which, or
//! comes up and tells the truth.
//!
//! ```text
//!   damaged                           what must come of it
//!   one copy of anything kept twice   nothing: everything is there, and nothing is reported
//!   both headers                      refused, by name
//!   both copies of a metadata cell    that cell is missing and counted as lost; everything else is there
//!   dump                              filling: what was flushed is there
//!   journal, checkpoint               everything is there, or filling: what the records beside the pages say
//! ```
//! Never another byte than was written there, and never anything of a volume that was deleted. The
//! campaign's oracle judges.

use super::super::media::seeds;
use super::super::oracle::Promise;
use super::super::*;
use super::places::{PARTS, Part, Section, damage_both, damage_part, is_header_blank};
use super::work::{CHUNK, Campaign, LATE, Life, SLOTS, VOLUMES};
use gnstor_durable::cell::Kind;
use gnstor_ftl::Origin;

/// How the power failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    Clean,
    Dump,
    NoDump,
}

impl Campaign {
    /// The table as it is told, but for volumes that may be missing.
    fn check_list(&mut self, missing: bool) {
        let found = self.list().expect("the power is steady");
        let mut lost = 0;
        for raw in VOLUMES {
            match (&self.table[&raw], found.get(&raw)) {
                (Life::There(known), Some(entry)) => assert_eq!(**known, *entry),
                (Life::Gone(_), None) => {}
                (Life::Gone(_), Some(entry)) => panic!("volume {raw} was deleted, and is there: {entry:?}"),
                (Life::There(known), None) if known.deleting => {}
                (Life::There(known), None) => {
                    lost += 1;
                    let generation = known.generation;
                    self.table.insert(raw, Life::Gone(generation));
                }
            }
        }
        assert!(lost <= usize::from(missing), "{lost} volumes are missing");
        assert!(found.keys().all(|raw| VOLUMES.contains(raw)), "a volume that was never made");
    }

    /// Checks that SMART reports a loss.
    fn check_degraded(&mut self, why: &str) {
        let hold = std::mem::replace(&mut self.harness.hold, false);
        let smart = self.harness.log(DAEMON, start_of(2, 128)).expect("the SMART page");
        self.harness.hold = hold;
        assert_ne!(smart[0] & 1 << 2, 0, "{why}");
    }

    /// Of a volume that was deleted, or whose entry or map is lost, nothing can be read: why.
    fn refused_read(&mut self, raw: u16) -> Refusal {
        let mut sqe = sqe(io::READ);
        let slba = Slba::pack(Address { vid: vid(raw), client: client(8), vba: 0 });
        ReadWrite { slba, blocks: 1, fua: false, map_epoch: self.harness.map_epoch, stamp: Stamp::default() }
            .encode(&mut sqe);
        sqe.dptr = KeyedSgl::keyed(u64::from(SLOTS * CHUNK) * 4096, 4096, KEY);
        let hold = std::mem::replace(&mut self.harness.hold, false);
        let cid = self.harness.submit(READER, sqe);
        let mut answer = self.harness.take(READER, cid);
        for _ in 0..1000 {
            if answer.is_some() {
                break;
            }
            self.pass(1_000);
            answer = self.harness.take(READER, cid);
        }
        self.harness.hold = hold;
        let cqe = answer.expect("a read is answered soon");
        refusal(&cqe).unwrap_or_else(|| panic!("volume {raw} is not there, and can be read"))
    }
}

/// Works, and ends as this part can be damaged: how.
fn work_and_end(campaign: &mut Campaign, part: Part) -> End {
    let wants_dump = part == Part::Dump;
    if part == Part::Checkpoint(Section::Words) {
        // Much journal while blocks are mapped, so that a checkpoint is written and has content.
        for _ in 0..80 {
            campaign.trim_a_lot(20);
            campaign.work(40);
        }
    } else if campaign.dice.one_in(2) {
        let count = 300 + campaign.dice.below(1_500);
        campaign.trim_a_lot(count);
    }
    let steps = 200 + campaign.dice.below(900);
    campaign.work(steps);
    let end = if wants_dump { End::Dump } else { campaign.dice.of(&[End::Clean, End::Dump, End::NoDump]) };
    match end {
        End::Clean => campaign.harness.ssd().shut_down().expect("the power is steady"),
        End::Dump => _ = campaign.harness.ssd().power_fail().expect("there is power for the dump"),
        End::NoDump => {}
    }
    campaign.power_cycle();
    end
}

/// How the SSD came up, checked against what was damaged: the word for it, and what it promises.
fn judge(ssd: &Ssd, (part, both): (Part, bool), end: End, why: &str) -> (&'static str, Promise) {
    let boot = ssd.boot();
    let (lossy, lost) = (boot.is_lossy(), ssd.admin.volumes().metadata().lost().len());
    let name = match (&boot.origin, end) {
        (Origin::Clean, End::Clean) => "clean",
        (Origin::Dump, End::Dump) => "dump",
        (Origin::NoDump(_), End::NoDump | End::Dump) => "no dump",
        (Origin::Rebuilt(_), _) => "rebuilt",
        _ => panic!("{why}"),
    };
    match part {
        // The padding of the tail's last page is no part of the tail.
        Part::Dump => assert!(matches!(name, "no dump" | "dump"), "{why}"),
        Part::Journal | Part::Checkpoint(_) => assert!(end != End::Dump || name != "no dump", "{why}"),
        _ => assert!(name != "rebuilt" && lossy == (end == End::NoDump), "{why}"),
    }
    let in_metadata =
        matches!(part, Part::Term | Part::Map | Part::Entry | Part::Tombstone | Part::SmartCounters);
    assert_eq!(lost, usize::from(both && in_metadata), "what is lost is counted: {why}");
    let promise = match name {
        "clean" | "dump" => Promise::Acknowledged,
        // The last page of a journal that is gone looks like one that was never written, and what was
        // flushed with it is.
        "no dump" if part == Part::Journal => Promise::Ever,
        "no dump" => Promise::Durable,
        _ => Promise::Records,
    };
    (name, promise)
}

/// Checks that table, map and volumes are there, or reported as lost.
fn check_metadata(campaign: &mut Campaign, (part, both): (Part, bool), lossy: bool, lost: usize, why: &str) {
    if lost == 0 {
        campaign.check_table();
        campaign.check_term();
    } else {
        campaign.check_degraded(why);
        campaign.check_list(part == Part::Entry);
    }
    if part == Part::Map && both {
        campaign.living().into_iter().for_each(|raw| _ = campaign.refused_read(raw));
        campaign.set_map();
        if lossy {
            // Which map it was that writes were lost under is lost as well: this one may be it.
            campaign.check_filling();
        }
    } else {
        campaign.check_map();
        if lossy || part == Part::Term && both {
            campaign.check_filling();
        }
    }
    let found = campaign.list().expect("the power is steady");
    let is_living = |raw: &u16| found.get(raw).is_some_and(|entry| !entry.deleting);
    for raw in VOLUMES.into_iter().filter(|raw| !is_living(raw)) {
        let refused = campaign.refused_read(raw);
        assert!(
            refused != Refusal::StaleMap && refused != Refusal::NotHereYet,
            "volume {raw} is not there: {refused:?}"
        );
    }
}

/// Runs one seed. Returns the damaged part, how the power failed, and how the SSD came up. `None` if there
/// was nothing to damage.
fn run(seed: u64) -> Option<(Part, bool, End, &'static str)> {
    let part = PARTS[usize::try_from(seed % PARTS.len() as u64).expect("few")];
    let mut campaign = Campaign::new(seed, Faults::seeded(seed, 0));
    let end = work_and_end(&mut campaign, part);
    let both = damage_part(&mut campaign, part)?;
    campaign.sequence += LATE;
    let ssd = match Ssd::reopen(campaign.config.clone(), &campaign.bench) {
        Ok(ssd) => ssd,
        Err(error) => {
            let text = error.to_string();
            assert!(part == Part::Header && both, "{part:?}, both {both}, {end:?}: refused: {text}");
            let both_named = text.contains("Header 0, copy A") && text.contains("copy B");
            let is_blank = text.contains("never formatted") && is_header_blank(&campaign);
            assert!(both_named || is_blank, "which one, and why: {text}");
            return Some((part, both, end, "refused"));
        }
    };
    assert!(part != Part::Header || !both, "both headers are damaged");
    let why = format!("{part:?}, both {both}, {end:?}: {:?}", ssd.boot());
    let (lossy, lost) = (ssd.boot().is_lossy(), ssd.admin.volumes().metadata().lost().len());
    let (name, promise) = judge(&ssd, (part, both), end, &why);
    campaign.connect_to(ssd);
    check_metadata(&mut campaign, (part, both), lossy, lost, &why);
    if part == Part::Entry && both {
        return Some((part, both, end, name));
    }
    campaign.check_blocks(promise);
    campaign.renew();
    campaign.work(100);
    campaign.drain();
    campaign.check_blocks(Promise::Acknowledged);
    Some((part, both, end, name))
}

/// How the power failed and how the SSD came up, with the number of cases.
type Ways = BTreeMap<(End, &'static str), u64>;

#[test]
fn a_damaged_structure_is_refused_by_name_or_the_ssd_tells_the_truth() {
    let mut ways: BTreeMap<(Part, bool), Ways> = BTreeMap::new();
    let count = seeds(6 * PARTS.len() as u64, |seed| {
        println!("seed {seed}");
        if let Some((part, both, end, name)) = run(seed) {
            *ways.entry((part, both)).or_default().entry((end, name)).or_default() += 1;
        }
    });
    println!("{count} cases");
    ways.iter().for_each(|(part, ways)| println!("{part:?}: {ways:?}"));
    for part in PARTS {
        let effect =
            |name: &str| !matches!((part, name), (Part::Dump, "dump") | (Part::Journal, "clean" | "dump"));
        let hit = ways.iter().filter(|((hit, _), _)| *hit == part).flat_map(|(_, ways)| ways.keys());
        assert!(
            hit.filter(|(_, name)| effect(name)).count() > 0,
            "{part:?} was never damaged where it counts"
        );
    }
}

#[test]
fn an_ssd_that_lost_writes_is_filling_though_the_term_is_lost_with_them() {
    let mut campaign = Campaign::new(1, Faults::default());
    campaign.work(300);
    campaign.power_cycle();
    let ssd = Ssd::reopen(campaign.config.clone(), &campaign.bench).expect("no dump is no reason to refuse");
    assert!(ssd.boot().is_lossy());
    campaign.connect_to(ssd);
    campaign.harness.ssd().shut_down().expect("the power is steady");
    campaign.power_cycle();
    damage_both(&campaign, Part::Term, false);
    let ssd = Ssd::reopen(campaign.config.clone(), &campaign.bench).expect("a metadata may lose a cell");
    assert_eq!(ssd.admin.volumes().metadata().lost(), [Kind::Term]);
    campaign.connect_to(ssd);
    campaign.check_map();
    let raw = campaign.living()[0];
    assert_eq!(campaign.read_now(raw, 0, 1).1, Some(Refusal::NotHereYet));
}

#[test]
fn a_term_of_which_nothing_is_left_is_counted_as_lost() {
    let mut campaign = Campaign::new(2, Faults::default());
    campaign.harness.ssd().shut_down().expect("the power is steady");
    campaign.power_cycle();
    damage_both(&campaign, Part::Term, true);
    let ssd = Ssd::reopen(campaign.config.clone(), &campaign.bench).expect("a metadata may lose a cell");
    assert_eq!(ssd.admin.volumes().metadata().lost(), [Kind::Term]);
}

#[test]
fn a_map_that_is_given_again_is_not_newer_than_the_one_that_was_lost_with_writes() {
    let mut campaign = Campaign::new(3, Faults::default());
    campaign.work(300);
    campaign.power_cycle();
    damage_both(&campaign, Part::Map, true);
    let ssd = Ssd::reopen(campaign.config.clone(), &campaign.bench).expect("a metadata may lose a cell");
    assert!(ssd.boot().is_lossy());
    assert_eq!(ssd.admin.volumes().metadata().lost(), [Kind::Map]);
    campaign.connect_to(ssd);
    campaign.set_map();
    let raw = campaign.living()[0];
    assert_eq!(campaign.read_now(raw, 0, 1).1, Some(Refusal::NotHereYet), "it may be the one that was lost");
    campaign.harness.ssd().shut_down().expect("the power is steady");
    campaign.power_cycle();
    let ssd = Ssd::reopen(campaign.config.clone(), &campaign.bench).expect("it was shut down");
    campaign.connect_to(ssd);
    campaign.check_map();
    assert_eq!(campaign.read_now(raw, 0, 1).1, Some(Refusal::NotHereYet), "it has not been filled meanwhile");
    campaign.set_map();
    assert_eq!(campaign.read_now(raw, 0, 1).1, None);
}
