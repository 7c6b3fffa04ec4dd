// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of a preset do happen. A host gets a status and never bad data.

use super::*;
use gnstor_ftl::LayerStats;

const MEDIA_ERROR: u16 = 0x281;

fn rig_of(base: &str, blocks: u64, settings: &[&str]) -> Harness {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let preset = Preset::by_name(base).unwrap().with_settings(&settings).unwrap();
    let config = SsdConfig {
        index: 0,
        preset,
        capacity_bytes: blocks * 4096,
        serial: "GN0001".into(),
        media: SsdMedia::Ram,
    };
    let bench = Bench::of(&config);
    Harness::around(Ssd::format_with(config, &bench).unwrap(), bench.faults).with_clients().with_volume()
}

impl Harness {
    /// Makes all written data reach the flash, where the faults are.
    fn flush(&mut self) {
        let cqe = self.run(WRITER, sqe(io::FLUSH));
        assert_eq!(refusal(&cqe), None);
    }

    /// Reads a block: its data is as written, or there is a media error and nothing was delivered under
    /// success.
    fn read_or_fail(&mut self, vba: u32, tag: u64) -> Option<Refusal> {
        let sqe = self.io(io::READ, WRITER, vba, 1);
        let cqe = self.run(WRITER, sqe);
        match refusal(&cqe) {
            None => assert_eq!(self.peek(WRITER, 0), block(tag), "block {vba}: bad data under success"),
            Some(refusal) => assert_eq!(refusal.status(), Status(MEDIA_ERROR), "{refusal:?}"),
        }
        refusal(&cqe)
    }

    fn media_errors(&mut self) -> u64 {
        let smart = self.log(QueueKey(80), start_of(2, 128)).unwrap();
        u64::from_le_bytes(smart[160..168].try_into().unwrap())
    }
}

#[test]
fn a_page_that_cannot_be_corrected_is_a_media_error() {
    let mut harness = rig_of("null", 1024, &["faults.read_errors=0.3", "faults.seed=7"]);
    for vba in 0..64 {
        harness.write(vba, &[u64::from(vba)]);
    }
    harness.flush();
    let failed = (0..64)
        .filter(|vba| harness.read_or_fail(*vba, u64::from(*vba)) == Some(Refusal::Unreadable))
        .count();
    assert!((5..40).contains(&failed), "{failed} of 64 reads fail at a chance of 0.3");
    assert_eq!(harness.media_errors(), failed as u64);
    // A command of many blocks fails as a whole.
    harness.faults.set_chances(gnstor_flash::Chances { read: 1.0, ..Default::default() });
    let sqe = harness.io(io::READ, WRITER, 0, 16);
    assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::Unreadable));
    harness.faults.clear();
    (0..64).for_each(|vba| {
        assert_eq!(harness.read_or_fail(vba, u64::from(vba)), None, "the next read may succeed")
    });
}

#[test]
fn a_page_that_rotted_is_a_media_error_for_good_and_never_bad_data() {
    let mut harness = rig_of("null", 1024, &["faults.bit_rot=0.25"]);
    for vba in 0..64 {
        harness.write(vba, &[u64::from(vba)]);
    }
    harness.flush();
    let rotted = |harness: &mut Harness| -> Vec<u32> {
        (0..64)
            .filter(|vba| harness.read_or_fail(*vba, u64::from(*vba)) == Some(Refusal::BadChecksum))
            .collect()
    };
    let first = rotted(&mut harness);
    assert!((4..36).contains(&first.len()), "{} of 64 pages rot at a chance of 0.25", first.len());
    assert_eq!(harness.media_errors(), first.len() as u64);
    harness.faults.clear();
    assert_eq!(rotted(&mut harness), first, "what rotted stays so");
    harness.poke(READER, 0, &block(u64::from(first[0])));
    let compare = harness.io(io::COMPARE, READER, first[0], 1);
    assert_eq!(harness.refused(READER, compare), Some(Refusal::BadChecksum));
    // Written anew it is whole.
    harness.write(first[0], &[999]);
    assert_eq!(harness.read_or_fail(first[0], 999), None);
}

#[test]
fn programs_and_erases_that_fail_lose_nothing() {
    for (setting, failures) in [
        ("faults.program_failures=0.002", (|stats| stats.program_failures) as fn(&LayerStats) -> u64),
        ("faults.erase_failures=0.001", |stats| stats.bad_blocks),
    ] {
        let mut harness =
            rig_of("null", 1024, &[setting, "over_provisioning_permille=1000", "faults.seed=3"]);
        let mut held = [0; 512];
        for round in 1..40u64 {
            for vba in 0..512u32 {
                held[vba as usize] = round * 1000 + u64::from(vba);
                assert_eq!(
                    refusal(&harness.write(vba, &[held[vba as usize]])),
                    None,
                    "{setting}, round {round}"
                );
            }
        }
        harness.flush();
        let stats = harness.layer_stats();
        assert!(failures(&stats) > 0 && stats.bad_blocks > 0, "{setting}: {stats:?}");
        (0..512).for_each(|vba| assert_eq!(harness.read_or_fail(vba, held[vba as usize]), None, "{setting}"));
    }
}

#[test]
fn a_slow_die_answers_late() {
    let mut harness = rig_of("gnstor-980pro", 4096, &["faults.slow_dies=[{die=3, percent=400}]"]);
    for vba in 0..128 {
        let sqe = harness.io(io::WRITE, WRITER, vba, 1);
        harness.submit(WRITER, sqe);
        harness.advance(Span::from_ms(5));
    }
    let cid = harness.submit(WRITER, sqe(io::FLUSH));
    harness.advance(Span::from_ms(50));
    assert!(harness.take(WRITER, cid).is_some(), "all of it is on flash");
    let sense_ns = harness.ssd().config().preset.sense_ns;
    let (mut slow, mut healthy) = (0, 0);
    for vba in 0..128 {
        let die = {
            let (page, ssd) = (harness.page(vba), harness.ssd());
            let geometry = ssd.ftl().flash().geometry();
            geometry.die_of(geometry.unit_of(page))
        };
        harness.advance(Span::from_ms(5));
        let (sqe, start) = (harness.io(io::READ, WRITER, vba, 1), harness.now);
        let cid = harness.submit(WRITER, sqe);
        let done = harness.completions.iter().find(|c| c.cqe.cid.get() == cid).expect("it has completed").at;
        let took = done.since(start).as_ns();
        assert_eq!(took > 3 * sense_ns, die == 3, "block {vba} on die {die} took {took} ns");
        *(if die == 3 { &mut slow } else { &mut healthy }) += 1;
    }
    assert!(slow > 0 && healthy > 0);
}

#[test]
fn blocks_that_are_bad_from_the_factory_hold_nothing() {
    let mut harness = rig_of(
        "null",
        1024,
        &["faults.factory_bad_blocks=0.05", "over_provisioning_permille=1000", "faults.seed=11"],
    );
    for vba in 0..512u32 {
        assert_eq!(refusal(&harness.write(vba, &[u64::from(vba)])), None);
    }
    harness.flush();
    let bad = harness.ssd().ftl().flash().factory_bad();
    assert!(!bad.is_empty());
    for vba in 0..512 {
        let page = harness.page(vba);
        let on = |ssd: SsdGuard<'_>| {
            let geometry = ssd.ftl().flash().geometry();
            geometry.block_of(geometry.unit_of(page))
        };
        assert!(!bad.contains(&on(harness.ssd())), "block {vba} is on a bad block");
        assert_eq!(harness.read_or_fail(vba, u64::from(vba)), None);
    }
}

#[test]
fn collection_is_as_the_preset_says() {
    let run = |settings: &[&str]| {
        let mut harness = rig_of("null", 512, settings);
        for round in 0..6000u64 {
            // Most writes go to a tenth of the blocks.
            let draw = gnstor_proto::placement::mix64(round);
            let vba = if draw % 10 < 9 { (draw >> 8) % 50 } else { (draw >> 8) % 512 };
            assert_eq!(refusal(&harness.write(u32::try_from(vba).unwrap(), &[round])), None);
            // A quiet time now and then.
            harness.advance(Span::from_ms(if round % 100 == 0 { 20 } else { 1 }));
        }
        harness.layer_stats()
    };
    let greedy = run(&["collection.policy=greedy"]);
    let quiet = run(&["collection.background=false"]);
    let cost_benefit = run(&["collection.policy=cost-benefit", "collection.background=false"]);
    assert!(
        greedy.victims > 0 && quiet.victims > 0 && cost_benefit.victims > 0,
        "{greedy:?} {cost_benefit:?}"
    );
    assert_ne!(quiet.moved_pages, cost_benefit.moved_pages, "other victims are chosen");
    assert!(greedy.background_steps > 0 && quiet.background_steps == 0, "{greedy:?} {quiet:?}");
}
