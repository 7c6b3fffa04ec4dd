// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The honest load with 32 I/Os in flight: `gnstor bench` reads and writes at random, checks every read, and
//! reads each replica back at the end. With `GNSTOR_HOSTILE_DEVICE=cuda` its device code runs on a GPU.

use crate::attack::{Beside, more_pairs, pairs, slice};
use crate::beside::{Attackers, Scene, Summary};
use crate::cpu::{Cores, Watch};
use crate::{LIMIT, number, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::{Up, gnstor};
use gnstor_tests::{long, within};
use std::time::Duration;

const DEPTH: &str = "32";
/// Longest time of hostile clients beside one run, which begins and ends within it.
const ATTACK: Duration = Duration::from_secs(120);

/// Results of one run or of several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deep {
    /// I/Os a second of each run.
    rates: Vec<f64>,
    /// p99 of reads and of writes of each run, ms.
    reads: Vec<f64>,
    writes: Vec<f64>,
    pub(crate) errors: Vec<String>,
    cores: Cores,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Deep {
    /// Runs the load on a volume of its own. `attackers` are process ids.
    pub(crate) fn run(daemon: &str, time: Duration, array: &[u32], attackers: &[u32]) -> Self {
        let (watch, time) = (Watch::start(array, attackers), format!("{}ms", time.as_millis()));
        let load = ["--size", "2MiB", "--rw", "randrw", "--bs", "4k", "--clients", "1", "--replicas", "2"];
        let times = ["--warmup", "300ms", "--runtime", &time, "--io-timeout", "20s"];
        let device = std::env::var("GNSTOR_HOSTILE_DEVICE").unwrap_or_else(|_| "host".into());
        let on =
            ["bench", "--json", "--array", daemon, "--volume", "deep", "--overwrite", "--device", &device];
        let ended = gnstor(&[&on[..], &load, &times, &["--iodepth", DEPTH]].concat());
        let cores = watch.stop();
        let Ok(report) = serde_json::from_str::<serde_json::Value>(&ended.stdout) else {
            let errors = vec![format!("exit code {}: {}", ended.code, ended.stderr)];
            return Self { errors, cores, ..Self::default() };
        };
        let p99 = |which: &str| report[which]["latency_us"]["p99"].as_f64().unwrap_or(f64::NAN) / 1e3;
        let listed = report["errors"].as_array().cloned().unwrap_or_default();
        let mut errors: Vec<String> = listed.iter().map(ToString::to_string).collect();
        if ended.code != 0 && errors.is_empty() {
            errors.push(format!("exit code {}: {}", ended.code, ended.stderr));
        }
        assert_eq!(report["verify"]["replicas_read_back"], 2, "{}", report["verify"]);
        let rates = vec![report["iops"].as_f64().expect("a number")];
        Self { rates, reads: vec![p99("read")], writes: vec![p99("write")], errors, cores }
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.rates.extend(more.rates);
        self.reads.extend(more.reads);
        self.writes.extend(more.writes);
        self.errors.extend(more.errors);
        self.cores.add(more.cores);
    }

    /// I/Os a second, the median of the runs.
    pub(crate) fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// Medians of the runs, in words.
    pub(crate) fn summary(&self) -> String {
        let [rate, read, write] = [&self.rates, &self.reads, &self.writes].map(|values| median(values));
        let (most, errors) = (self.rates.iter().copied().fold(0.0, f64::max), self.errors.len());
        let least = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        format!(
            "{rate:.0} I/Os/s ({least:.0} to {most:.0}), p99 {read:.1} ms of reads, {write:.1} of writes, {errors} \
             errors; {}",
            self.cores.summary()
        )
    }
}

/// A run without and a run beside an attack.
fn pair(up: &Up, what: Beside, (seed, slice): (u64, Duration)) -> (Deep, Deep) {
    let alone = Deep::run(&up.daemon, slice, &[up.pid()], &[]);
    let mut attackers: Vec<Attackers> = match what {
        Beside::Attack(attack) => {
            [0, 1].map(|i| Attackers::start(ssd_address(up), ATTACK, 2 * seed + i, Some(attack))).into()
        }
        Beside::Computing => vec![Attackers::computing()],
        // `chosen` names none: their load is in `calls`, and without them this would measure nothing.
        Beside::Callers => unreachable!("no callers are started here"),
    };
    let pids: Vec<u32> = attackers.iter().map(Attackers::pid).collect();
    let beside = Deep::run(&up.daemon, slice, &[up.pid()], &pids);
    assert!(attackers.iter_mut().all(Attackers::are_there), "{what:?} ended before the load");
    (alone, beside)
}

/// The attacks of this run. A short one has two that are dear for the array.
fn chosen() -> Vec<Beside> {
    let is_named =
        ["GNSTOR_HOSTILE_ONLY", "GNSTOR_HOSTILE_PAIRS"].map(std::env::var_os).iter().any(Option::is_some);
    if is_named || long() {
        return Beside::chosen();
    }
    [Attack::Deaf, Attack::Connects].map(Beside::Attack).into()
}

#[test]
#[ignore = ".ci/run runs it: it takes long"]
fn the_load_beside_each_attack_at_depth_has_no_error_and_goes_on() {
    let (count, slice, kinds) = (pairs(), slice(), chosen());
    let most = u32::try_from((count + more_pairs()) * kinds.len() as u64).expect("some");
    within(LIMIT + 2 * (slice + Duration::from_secs(20)) * most, move || {
        let (keep, up) = (number("GNSTOR_HOSTILE_KEEP", 5), Up::start(&["--ssds", "2"]));
        let (mut poor, mut errors) = (Vec::new(), 0);
        for what in kinds {
            let (mut alone, mut beside, mut ratios) = (Deep::default(), Deep::default(), Vec::new());
            for nth in 0..count + more_pairs() {
                if nth >= count && median(&ratios) * 100.0 >= keep as f64 {
                    break;
                }
                let (without, with) = pair(&up, what, (nth, slice));
                ratios.push(median(&with.rates) / median(&without.rates));
                alone.add(without);
                beside.add(with);
            }
            let (keeps, pairs) = (median(&ratios), ratios.len());
            println!("summary {what:?} at depth {DEPTH}: keeps {keeps:.2}, median of {pairs} pairs");
            println!("  alone:  {}\n  beside: {}", alone.summary(), beside.summary());
            let failed: Vec<_> = alone.errors.iter().chain(&beside.errors).collect();
            failed.iter().for_each(|why| println!("  ERROR: {why}"));
            errors += failed.len();
            if !(keeps * 100.0 >= keep as f64 || matches!(what, Beside::Computing)) {
                poor.push(format!("{what:?} leaves {keeps:.2}"));
            }
        }
        println!("summary each attack at depth {DEPTH}: {errors} ERRORS, below {keep} %: {poor:?}");
        assert!(errors == 0 && poor.is_empty(), "{errors} errors, {poor:?}");
        up.end("-TERM");
    });
}

/// Hostile clients make all attacks, or only one.
fn no_error_beside(what: &'static str, scene: fn() -> Scene, only: Option<Attack>) {
    let seconds = (number("GNSTOR_HOSTILE_SECONDS", if long() { 12 } else { 6 }) / 2).max(3);
    let seed = number("GNSTOR_HOSTILE_SEED", 1);
    within(LIMIT + Duration::from_secs(4 * seconds), move || {
        let (time, scene) = (Duration::from_secs(seconds), scene());
        let slice = (time / 8).clamp(Duration::from_secs(1), Duration::from_secs(20));
        let run = |attackers: &[u32]| Deep::run(&scene.up.daemon, slice, &scene.pids(), attackers);
        let summary = scene.attack(Duration::from_secs(1), seed, only).wait();
        assert!(summary.sent > 0, "the attackers do something: {}", summary.said);
        Summary::assert_attacked(&[summary], scene.asks);
        let mut alone = run(&[]);
        let mut attackers = [0, 1].map(|i| {
            // Longer than the load: its last run may begin at the end of its time.
            scene.attack(2 * time + ATTACK, seed.wrapping_mul(1000).wrapping_add(i), only)
        });
        let pids = [attackers[0].pid(), attackers[1].pid()];
        let (watch, mut beside) = (std::time::Instant::now(), run(&pids));
        while watch.elapsed() < time {
            beside.add(run(&pids));
        }
        assert!(attackers.iter_mut().all(Attackers::are_there), "the attackers ended before the load");
        drop(attackers);
        alone.add(run(&[]));
        let keeps = median(&beside.rates) / median(&alone.rates);
        let runs = beside.rates.len();
        let errors: Vec<_> = alone.errors.iter().chain(&beside.errors).collect();
        errors.iter().for_each(|why| println!("  ERROR: {why}"));
        println!("summary {what} at depth {DEPTH}, seed {seed}: alone {}", alone.summary());
        println!("summary {what} at depth {DEPTH}, seed {seed}: beside {}", beside.summary());
        println!(
            "summary {what} at depth {DEPTH}, seed {seed}: {runs} runs in {} s, keeps {keeps:.2}; {} ERRORS",
            watch.elapsed().as_secs(),
            errors.len()
        );
        assert!(errors.is_empty(), "no error is allowed: {errors:?}");
        let keep = number("GNSTOR_HOSTILE_KEEP", 5);
        assert!(keeps * 100.0 >= keep as f64, "it keeps {keeps:.2}, and was to keep {keep} %");
        scene.end();
    });
}

#[test]
#[ignore = ".ci/run runs it: it takes long"]
fn an_honest_load_at_depth_beside_hostile_clients_has_no_error() {
    no_error_beside("strangers", Scene::of_strangers, None);
}

#[test]
#[ignore = ".ci/run runs it: it takes long"]
fn an_honest_load_at_depth_beside_a_client_that_breaks_the_rules_of_its_rights_has_no_error() {
    no_error_beside("a client with rights alone", Scene::of_insiders, Some(Attack::Insider));
}
