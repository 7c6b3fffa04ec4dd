// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An honest load beside hostile clients: all attacks together, and each for itself.

use crate::load::{Load, Rounds};
use crate::{LIMIT, guest, number, resident_mib, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::{Guard, HOSTILE, SsdProcess, Up, wait};
use gnstor_tests::{BLOCK, assert_same, long, volume, within};
use libgnstor::Rights;
use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Hostile clients in a process of their own, which gives way where the processor is short: what they take of
/// the array is measured, not what they take of the machine.
struct Attackers(Guard);

impl Attackers {
    fn start(address: SocketAddr, time: Duration, seed: u64, only: Option<Attack>) -> Self {
        Self::start_as(&[], address, time, seed, only)
    }

    /// With these arguments before the others.
    fn start_as(
        first: &[&str],
        address: SocketAddr,
        time: Duration,
        seed: u64,
        only: Option<Attack>,
    ) -> Self {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(&*HOSTILE).args(first).arg(address.to_string());
        command.arg(time.as_secs().to_string()).arg(seed.to_string());
        command.args(only.map(|attack| format!("{attack:?}")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Self(Guard(command.spawn().expect("nice runs the hostile client")))
    }

    /// What they did, in words, and how many frames they sent.
    fn wait(mut self) -> (String, u64) {
        let code = wait(&mut self.0, LIMIT).expect("they end in time");
        let mut said = String::new();
        self.0.0.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        assert_eq!(code, 0, "{said}");
        let frames = said.split_whitespace().next().and_then(|word| word.parse().ok());
        (said.clone(), frames.unwrap_or_else(|| panic!("{said}")))
    }
}

/// A new client is let in, and finds what was written.
fn another_client_reads(up: &Up, file: &libgnstor::File) {
    let (mut last, mut back) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    file.read_at(0, &mut last).unwrap();
    let other = guest(&up.daemon, "other");
    other.client.open("v", Rights::Read).unwrap().read_at(0, &mut back).unwrap();
    assert_same("after the attacks", &back, &last);
}

/// An array, and how it is attacked.
struct Scene {
    up: Up,
    /// SSDs in processes of their own.
    ssds: Vec<SsdProcess>,
    address: SocketAddr,
    /// Arguments of the hostile clients.
    says: Vec<String>,
    /// Whose rights they have.
    _owner: Option<(libgnstor::File, crate::Guest)>,
}

impl Scene {
    /// Hostile clients that cannot prove who they are.
    fn of_strangers() -> Self {
        let up = Up::start(&["--ssds", "2"]);
        Self { address: ssd_address(&up), up, ssds: Vec::new(), says: Vec::new(), _owner: None }
    }

    /// SSDs ask for no proof, so hostile clients can be one that has rights to a volume.
    fn of_insiders() -> Self {
        let start = |index: &str| {
            let sizes = ["--preset", "null", "--size", "64MiB", "--index", index];
            SsdProcess::start("127.0.0.1:0", &sizes)
        };
        let ssds = vec![start("0"), start("1")];
        let addresses: Vec<_> = ssds.iter().map(SsdProcess::address).collect();
        let up = Up::start_as(&["--ssd-at", &addresses.join(",")]);
        let owner = guest(&up.daemon, "hostile");
        let blocks = 256;
        volume(&owner.client, "w", blocks * BLOCK as u64, 2);
        let file = owner.client.open("w", Rights::Write).unwrap();
        let about = file.info();
        let (client, epoch) = (owner.client.id(), owner.client.map_epoch());
        let insider = format!("{client},{},{blocks},{},{epoch}", about.vid, about.lease_epoch);
        let says = vec!["--as".into(), insider];
        let address = addresses[0].parse().expect("an address and a port");
        Self { up, ssds, address, says, _owner: Some((file, owner)) }
    }

    /// Memory of the process that is attacked, MiB.
    fn memory(&self) -> u64 {
        resident_mib(self.ssds.first().map_or_else(|| self.up.pid(), SsdProcess::pid))
    }
}

/// The last line sums it up for a campaign of several processes.
fn no_error_beside(what: &str, scene: fn() -> Scene) {
    let seconds = number("GNSTOR_HOSTILE_SECONDS", if long() { 12 } else { 6 });
    let seed = number("GNSTOR_HOSTILE_SEED", 1);
    let what = format!("{what}, seed {seed}");
    within(LIMIT + Duration::from_secs(3 * seconds), move || {
        let time = Duration::from_secs(seconds);
        let scene = scene();
        let guest = guest(&scene.up.daemon, "honest");
        volume(&guest.client, "v", 1 << 20, 2);
        let mut load = Load::new(guest.client.open("v", Rights::Write).unwrap());
        let alone = (time / 8).min(Duration::from_secs(20));
        let _ = load.run(alone / 4);
        let mut quiet = load.run(alone);
        let before = scene.memory();
        let says: Vec<&str> = scene.says.iter().map(String::as_str).collect();
        let attackers = [0, 1].map(|i| {
            Attackers::start_as(&says, scene.address, time, seed.wrapping_mul(1000).wrapping_add(i), None)
        });
        // In slices, so that memory that grows for ever can be told from memory that a quota bounds.
        let mut beside = load.run(time / 4);
        let mut memory = vec![scene.memory()];
        for _ in 1..4 {
            beside.add(load.run(time / 4));
            memory.push(scene.memory());
        }
        let told = attackers.map(Attackers::wait);
        quiet.add(load.run(alone));
        println!("{what}: {} s", time.as_secs());
        told.iter().for_each(|(words, _)| println!("{words}"));
        let (keeps, frames) = (beside.rate() / quiet.rate(), told.iter().map(|(_, n)| n).sum::<u64>());
        println!("summary {what}: alone {}", quiet.summary());
        println!("summary {what}: beside all attacks {}", beside.summary());
        let errors = quiet.errors.len() + beside.errors.len();
        println!(
            "summary {what}: {} rounds in {} s beside {frames} hostile frames, keeps {keeps:.2}; memory \
             {before} MiB, then {memory:?} MiB; {errors} ERRORS",
            beside.times.len(),
            time.as_secs()
        );
        assert!(told.iter().all(|(_, frames)| *frames > 500), "the attackers did something");
        let no_right = told.iter().all(|(words, _)| words.contains("; 0 commands of the insider succeeded"));
        assert_eq!(no_right, scene.says.is_empty(), "insiders have rights, strangers none");
        assert!(memory.iter().all(|&most| most < before + 256), "the attackers take memory: {memory:?}");
        another_client_reads(&scene.up, &load.file);
        assert!(errors == 0, "no error is allowed: {:?} {:?}", quiet.errors, beside.errors);
        drop(load);
        drop(scene._owner);
        scene.up.end("-TERM");
        scene.ssds.into_iter().for_each(|ssd| _ = ssd.end("-TERM"));
    });
}

#[test]
fn an_honest_load_beside_hostile_clients_has_no_error() {
    no_error_beside("strangers", Scene::of_strangers);
}

#[test]
fn an_honest_load_beside_hostile_clients_with_rights_has_no_error() {
    no_error_beside("a client with rights", Scene::of_insiders);
}

/// What runs beside the load.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// Two hostile clients, both in this way.
    Attack(Attack),
    /// A thread that computes, and asks the array for nothing: what the load keeps then is a matter of the
    /// machine alone. An attack makes the array's engine such a thread.
    Computing,
}

impl Beside {
    /// The attacks that `GNSTOR_HOSTILE_ONLY` names (`Deaf,Connects`), otherwise all, and the thread.
    fn chosen() -> Vec<Self> {
        let only = std::env::var("GNSTOR_HOSTILE_ONLY").unwrap_or_default();
        let named = |attack: &Attack| {
            let name = format!("{attack:?}");
            only.is_empty() || only.split(',').any(|wanted| wanted.eq_ignore_ascii_case(&name))
        };
        // A stranger has no rights to break rules with.
        let strangers = Attack::ALL.into_iter().filter(|&attack| attack != Attack::Insider);
        strangers.filter(named).map(Self::Attack).chain([Self::Computing]).collect()
    }
}

/// Times of the load in a slice without and in one beside something, over all pairs.
#[derive(Default)]
struct Measured {
    quiet: Rounds,
    beside: Rounds,
    ratios: Vec<f64>,
    frames: u64,
    /// Processor time of the array, without and beside, s.
    cpu: [f64; 2],
}

impl Measured {
    fn pair(&mut self, load: &mut Load, up: &Up, what: Beside, (seed, slice): (u64, Duration)) {
        let start = up.cpu_seconds();
        let alone = load.run(slice);
        self.cpu[0] += up.cpu_seconds() - start;
        // What runs beside begins a little before, and ends after the load that is measured.
        let time = slice + Duration::from_secs(1);
        let address = ssd_address(up);
        let stop = AtomicBool::new(false);
        let attacked = std::thread::scope(|scope| {
            let mut attackers = Vec::new();
            match what {
                Beside::Attack(attack) => attackers
                    .extend([0, 1].map(|i| Attackers::start(address, time, 2 * seed + i, Some(attack)))),
                Beside::Computing => {
                    _ = scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            std::hint::spin_loop()
                        }
                    })
                }
            }
            std::thread::sleep(Duration::from_millis(100));
            let start = up.cpu_seconds();
            let attacked = load.run(slice);
            self.cpu[1] += up.cpu_seconds() - start;
            stop.store(true, Ordering::Relaxed);
            self.frames += attackers.into_iter().map(|attackers| attackers.wait().1).sum::<u64>();
            attacked
        });
        self.ratios.push(attacked.times.len() as f64 / alone.times.len().max(1) as f64);
        self.quiet.add(alone);
        self.beside.add(attacked);
    }

    /// What the load keeps, the median of the pairs.
    fn keeps(&mut self) -> f64 {
        self.ratios.sort_by(f64::total_cmp);
        self.ratios[self.ratios.len() / 2]
    }

    /// Prints it; what the load keeps.
    fn report(&mut self, what: Beside) -> f64 {
        let (pairs, ratio) = (self.ratios.len(), self.keeps());
        let of = |seconds: f64| seconds / self.quiet.over.as_secs_f64();
        let cpu = self.cpu.map(of);
        println!("summary {what:?}: keeps {ratio:.2}, median of {pairs} pairs; {} frames", self.frames);
        println!("  alone:  {}", self.quiet.summary());
        println!("  beside: {}", self.beside.summary());
        println!("  the array took {:.2} of a core alone, {:.2} beside", cpu[0], cpu[1]);
        ratio
    }
}

/// Every attack for itself, in pairs of a time without and a time beside it. No round may fail. What the load
/// keeps is a matter of the machine, too: `GNSTOR_HOSTILE_KEEP` is what it must keep, in percent. Without it,
/// only a load that nearly stands still is a failure.
#[test]
fn the_load_beside_each_attack_has_no_error_and_goes_on() {
    let pairs = number("GNSTOR_HOSTILE_PAIRS", 1);
    let slice = Duration::from_millis(number("GNSTOR_HOSTILE_SLICE_MS", if long() { 1000 } else { 400 }));
    // On a loaded machine one slice says little. Where a campaign asks for a share, its pairs decide.
    let more = if std::env::var_os("GNSTOR_HOSTILE_KEEP").is_some() { 0 } else { 4 };
    // A pair is two slices and a second; all of them have as much again where the machine is loaded.
    let each = 2 * (2 * slice + Duration::from_secs(1));
    let all = each
        * u32::try_from(pairs + more).expect("a few")
        * (u32::try_from(Attack::ALL.len()).expect("a few") + 1);
    within(LIMIT + all, move || {
        let keep = number("GNSTOR_HOSTILE_KEEP", 10);
        let up = Up::start(&["--ssds", "2"]);
        let guest = guest(&up.daemon, "honest");
        volume(&guest.client, "v", 1 << 20, 2);
        let mut load = Load::new(guest.client.open("v", Rights::Write).unwrap());
        let _ = load.run(slice / 2);
        let (mut poor, mut errors) = (Vec::new(), 0);
        for what in Beside::chosen() {
            let mut measured = Measured::default();
            (0..pairs).for_each(|pair| measured.pair(&mut load, &up, what, (pair, slice)));
            for pair in pairs..pairs + more {
                if measured.keeps() * 100.0 >= keep as f64 {
                    break;
                }
                measured.pair(&mut load, &up, what, (pair, slice));
            }
            let ratio = measured.report(what);
            errors += measured.quiet.errors.len() + measured.beside.errors.len();
            if ratio * 100.0 < keep as f64 {
                poor.push(format!("{what:?} leaves {ratio:.2}"));
            }
        }
        println!("summary each attack: {errors} ERRORS, below {keep} %: {poor:?}");
        assert!(errors == 0 && poor.is_empty(), "{errors} errors, {poor:?}");
        another_client_reads(&up, &load.file);
        drop(load);
        up.end("-TERM");
    });
}
