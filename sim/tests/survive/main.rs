// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A short campaign of `gnstor sim survive`, seeds that once failed, and that a seed is repeatable.
//!
//! `GNSTOR_SEEDS=N` plays N seeds in place of the short campaign, and `GNSTOR_SEED=N` begins at another one.

use gnstor_base::testing::deadline;
use gnstor_sim::survive::stats::{Fault, Path, Stats};
use gnstor_sim::survive::{Options, Outcome, run};
use std::collections::BTreeSet;

/// Seeds of the short campaign.
const SEEDS: u64 = 50;

/// Seeds that found a mistake in landed code or in the play, and what it was. Each is of the play of its
/// time.
const FOUND: [(u64, &str); 63] = [
    (88, "a daemon that began before the array had a map took an exchanged SSD for one of a fresh array"),
    (128, "an SSD took a lease that ran out by its clock for a settled volume (rule 7a)"),
    (149, "a daemon counted a leap of its clock as time while a map waited for leases"),
    (225, "a daemon's start never asked voters that answered again"),
    (275, "a daemon dated the loss of an SSD by its last step, and took what a writer said before for later"),
    (305, "the only copy of an unacknowledged write rotted, which no scrub can heal"),
    (339, "an SSD that was exchanged for an empty one said that it had filled before it had the volumes"),
    (405, "as 88"),
    (544, "the drill killed the only SSD that the map named"),
    (568, "as 88"),
    (691, "a daemon dated what a writer said by the time when it carried the call out"),
    (895, "the operator did not know that a reset still acted when an SSD lost its power"),
    (1798, "a daemon that began to serve did not look for holes"),
    (1840, "a Delete that had deleted nothing deleted a later volume when it was repeated"),
    (1864, "as 1840"),
    (2469, "a former writer read any copy of an SSD that had not heard of the end of its lease (rule 7a)"),
    (3165, "a daemon's start took what an SSD said before it learned another daemon's map"),
    (3237, "a daemon that was deposed did not hear of it"),
    (3316, "as 1840"),
    (3667, "as 2469"),
    (3218, "a restart let a stamp count that a repair had replaced by a lower one"),
    (3668, "a volume was added by a connection that was broken before"),
    (4076, "a map was made before its SSD was killed again, and active after that"),
    (4152, "as 1840"),
    (4260, "a fresh array had no voters, as a connection broke while its first map was made"),
    (4584, "as 2469"),
    (5380, "the repetition of a Delete that was refused deleted a volume, and its client was told so"),
    (5691, "a kernel stood still, and its request counted as late"),
    (5994, "as 2469"),
    (5996, "as 2469"),
    (6210, "a daemon that started gave an SSD its first map again and again, though it was not there"),
    (6289, "a page that a collection could not read had another sum, and was copied over good ones"),
    (6753, "as 1840"),
    (6924, "a daemon whose clock leapt had ended a write lease, and its client counted as a writer"),
    (6997, "no client had got the map that dropped an SSD"),
    (7006, "as 3668, on an SSD that was dropped meanwhile"),
    (7131, "as 5380"),
    (7241, "an SSD that filled forgot a TRIM when it restarted"),
    (7481, "a Delete that waited deleted a volume that was created meanwhile"),
    (7502, "as 6210"),
    (7774, "as 5380"),
    (7913, "as 6289"),
    (8735, "a daemon's start forgot the only table that it had read, and all volumes were deleted"),
    (8813, "as 5380"),
    (4629, "a volume that no client could open any more, after a start without an SSD"),
    (153, "a settle that replaced the only readable copy of a block by one that the first cannot read"),
    (256, "rows with a hole, in which a volume takes no room"),
    (8850, "a deletion that goes on, and has its room until then"),
    (6209, "a settle that kept an older copy of a block that the first cannot read"),
    (30_486, "a daemon stood still while memory was judged, and an SSD waited for it"),
    (2036, "a Create came again to a daemon that started when its volume was gone"),
    (53_454, "a daemon that started took an SSD that was back for one that writers reach"),
    (59_283, "an SSD that filled asked no other SSD for a block that the first could not read"),
    (53_955, "a Delete that had deleted nothing came again to the next daemon"),
    (64_980, "a daemon that started did not dial a voter that only the map names"),
    (50_511, "a map was made before an SSD was lost, and a later daemon asked voters for it again"),
    (51_265, "a fault acted after all faults had ended"),
    (52_556, "a client deleted a volume while the room was asked for"),
    (62_394, "an SSD had an earlier volume of an id, and refused the later one for ever"),
    (61_557, "a yes that proves the content of an SSD counted as a lease"),
    (62_608, "an SSD that took over a place did not take its copy of a block that the first could not read"),
    (70_481, "a map dropped the good copies of a rotten block, and later maps had the same SSDs again"),
    (70_654, "an array counted as whole between the two faults that lost the last copies"),
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays a seed; a broken promise is the test's failure.
fn clean(seed: u64) -> Outcome {
    let outcome = run(seed, &Options::default());
    if let Some(broken) = &outcome.violation {
        panic!("seed {seed}: {} ({}); gnstor sim survive --seed {seed} --trace", broken.rule, broken.facts);
    }
    outcome
}

#[test]
fn a_short_campaign_breaks_no_promise_and_meets_faults_of_each_kind() {
    let _deadline = deadline();
    let first = number("GNSTOR_SEED").unwrap_or(1);
    let count = number("GNSTOR_SEEDS").unwrap_or(SEEDS);
    let mut stats = Stats::default();
    for seed in first..first + count {
        println!("seed {seed}");
        stats.add(&clean(seed).stats);
    }
    if count >= SEEDS {
        let faults = [Fault::Late, Fault::Reset, Fault::Still, Fault::Killed, Fault::LinkCut, Fault::Media];
        let more = [Fault::PowerCut, Fault::CutInWrite, Fault::DaemonKilled, Fault::ClientKilled];
        let several = [Fault::Stalled, Fault::Apart, Fault::Storm, Fault::Torn];
        let aimed = [Fault::LateData, Fault::HandedOn, Fault::Overtaken];
        let new = [Fault::Drift, Fault::Rot, Fault::Repeated, Fault::Leapt, Fault::LeapInWait];
        let newest = [Fault::RotBeside, Fault::KilledBehindDelete];
        for fault in faults.into_iter().chain(more).chain(several).chain(aimed).chain(new).chain(newest) {
            assert!(stats.of_fault(fault) > 0, "it never happened that {}", fault.name());
        }
        let paths = [Path::WriteAcked, Path::ReadDone, Path::Retry, Path::MapFollowed, Path::LeaseGranted];
        let more = [Path::QueueBroke, Path::Reconnected, Path::VolumeDeleted, Path::Lossy, Path::ZeroesAcked];
        let own = [Path::Probed, Path::Drilled, Path::Pinned, Path::Stalled, Path::StartsOver];
        let ends = [Path::Scrubbed, Path::RotHealed, Path::CreatedAgain, Path::PartAlone, Path::TwoAlone];
        let newest = [Path::Joined, Path::StoppedAtRest, Path::DeletedAgain];
        for path in paths.into_iter().chain(more).chain(own).chain(ends).chain(newest) {
            assert!(stats.of_path(path) > 0, "it never happened that {}", path.name());
        }
    }
}

#[test]
fn seeds_that_once_failed_break_no_promise() {
    let _deadline = deadline();
    for (seed, what) in FOUND {
        println!("seed {seed}: {what}");
        clean(seed);
    }
}

/// Twice in this process. Hash maps of the standard library have another order each time.
#[test]
fn a_seed_played_twice_has_one_digest() {
    let _deadline = deadline();
    for seed in [3, 19, 28] {
        let [one, other] = [run(seed, &Options::default()), run(seed, &Options::default())];
        assert!(one.steps > 1_000, "seed {seed} does something");
        assert_eq!((one.digest, one.steps), (other.digest, other.steps), "seed {seed}");
        assert_eq!(one.stats, other.stats, "seed {seed}");
    }
}

/// What is left out changes nothing before it, and a seed without its faults is clean.
#[test]
fn faults_can_be_left_out() {
    let _deadline = deadline();
    let all = run(28, &Options::default());
    assert!(all.faults.len() > 3, "{:?}", all.faults);
    let without: Vec<u64> = all.faults.iter().map(|(number, _)| *number).collect();
    let first = without[0];
    let none = run(28, &Options { without: (0..1_000).collect(), trace: true, ..Options::default() });
    assert_eq!((none.violation.clone(), none.faults.len()), (None, 0), "{:?}", none.faults);
    assert!(!none.log.is_empty());
    let but_first = run(28, &Options { without: (first + 1..1_000).collect(), ..Options::default() });
    assert_eq!(but_first.faults[..], all.faults[..1]);
}

/// Clients that are left out make volumes, and no more. Turns that are left out are not taken.
#[test]
fn clients_and_turns_can_be_left_out() {
    let _deadline = deadline();
    let all = run(28, &Options::default());
    let of = |idle: &str| run(28, &Options { idle: idle.parse().unwrap(), ..Options::default() });
    let clients: BTreeSet<usize> = all.turns.iter().map(|turn| turn.client).collect();
    assert!(clients.len() > 1, "{clients:?}");
    let first = all.turns[0];
    let one = of(&first.client.to_string());
    assert!(one.turns.iter().all(|turn| turn.client != first.client) && !one.turns.is_empty());
    assert!(one.stats.of_path(Path::WriteAcked) > 0, "the others write");
    let turn = of(&format!("{}.{}", first.client, first.turn));
    assert!(!turn.turns.contains(&first) && turn.turns.iter().any(|of| of.client == first.client));
    let unheard = of(&format!("{}.10000", first.client));
    assert_eq!((unheard.digest, unheard.turns), (all.digest, all.turns), "no such turn");
}
