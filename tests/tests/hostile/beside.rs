// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An honest load beside hostile clients that make all attacks together.

use crate::cpu::Watch;
use crate::load::Load;
use crate::{Guest, LIMIT, guest, number, resident_mib, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::{Guard, HOSTILE, SsdProcess, Up, wait};
use gnstor_tests::{BLOCK, assert_same, long, volume, within};
use libgnstor::Rights;
use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Hostile clients in a process of low priority. So the test measures the load on the array, and not the load
/// on the machine.
pub(crate) struct Attackers(Guard);

impl Attackers {
    pub(crate) fn start(address: SocketAddr, time: Duration, seed: u64, only: Option<Attack>) -> Self {
        Self::start_as(&[], address, time, seed, only)
    }

    /// Starts hostile clients, with `first` before the other arguments.
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
        Self::run(command)
    }

    /// A process that prints a line with numbers, which say how much it did.
    pub(crate) fn run(mut command: Command) -> Self {
        Self(Guard(command.spawn().expect("nice runs the attackers")))
    }

    /// A thread that computes. It shows what a busy core costs the load on this machine.
    pub(crate) fn computing() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).stdout(Stdio::null());
        Self::run(command)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.0.id()
    }

    /// Whether the process still runs.
    pub(crate) fn are_there(&mut self) -> bool {
        self.0.0.try_wait().expect("a child").is_none()
    }

    /// Waits for the process. Returns what it did, in words, and the number of frames or calls that it sent.
    pub(crate) fn wait(mut self) -> (String, u64) {
        let code = wait(&mut self.0, LIMIT).expect("they end in time");
        let mut said = String::new();
        self.0.0.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        assert_eq!(code, 0, "{said}");
        let first = |line: &str| line.split_whitespace().next().and_then(|word| word.parse().ok());
        let sent = said.lines().find_map(first);
        (said.clone(), sent.unwrap_or_else(|| panic!("{said}")))
    }
}

/// Checks that a new client can connect and reads what was written.
pub(crate) fn another_client_reads(other: &Guest, file: &libgnstor::File) {
    let (mut last, mut back) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    file.read_at(0, &mut last).unwrap();
    other.client.open("v", Rights::Read).unwrap().read_at(0, &mut back).unwrap();
    assert_same("after the attacks", &back, &last);
}

/// An array, and how it is attacked.
pub(crate) struct Scene {
    pub(crate) up: Up,
    /// SSDs in their own processes.
    ssds: Vec<SsdProcess>,
    address: SocketAddr,
    /// Arguments of the hostile clients.
    says: Vec<String>,
    /// The client whose rights they use.
    _owner: Option<(libgnstor::File, crate::Guest)>,
}

impl Scene {
    /// Hostile clients without a secret.
    pub(crate) fn of_strangers() -> Self {
        let up = Up::start(&["--ssds", "2"]);
        Self { address: ssd_address(&up), up, ssds: Vec::new(), says: Vec::new(), _owner: None }
    }

    /// SSDs ask for no proof, so hostile clients can claim to be one that has rights to a volume.
    pub(crate) fn of_insiders() -> Self {
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

    /// Starts hostile clients, who use the rights of the scene.
    pub(crate) fn attack(&self, time: Duration, seed: u64, only: Option<Attack>) -> Attackers {
        let says: Vec<&str> = self.says.iter().map(String::as_str).collect();
        Attackers::start_as(&says, self.address, time, seed, only)
    }

    /// The processes of the array.
    pub(crate) fn pids(&self) -> Vec<u32> {
        [self.up.pid()].into_iter().chain(self.ssds.iter().map(SsdProcess::pid)).collect()
    }

    /// Ends the array. No client may use it any more.
    pub(crate) fn end(self) {
        drop(self._owner);
        self.up.end("-TERM");
        self.ssds.into_iter().for_each(|ssd| _ = ssd.end("-TERM"));
    }

    /// Memory of the process that is attacked, in MiB.
    fn memory(&self) -> u64 {
        resident_mib(self.ssds.first().map_or_else(|| self.up.pid(), SsdProcess::pid))
    }
}

/// The last line sums it up for a campaign of several processes.
fn no_error_beside(what: &str, scene: fn() -> Scene, only: Option<Attack>) {
    // The attackers print after half of this time what they do.
    let seconds =
        number("GNSTOR_HOSTILE_SECONDS", if long() { 12 } else { 6 }) / (1 + u64::from(only.is_some()));
    let seed = number("GNSTOR_HOSTILE_SEED", 1);
    let what = format!("{what}, seed {seed}");
    within(LIMIT + Duration::from_secs(3 * seconds), move || {
        let time = Duration::from_secs(seconds);
        let scene = scene();
        let honest = guest(&scene.up.daemon, "honest");
        volume(&honest.client, "v", 1 << 20, 2);
        let mut load = Load::new(honest.client.open("v", Rights::Write).unwrap());
        let alone = (time / 8).min(Duration::from_secs(20));
        let _ = load.run(alone / 4);
        let mut quiet = load.run(alone);
        let before = scene.memory();
        let attackers = [0, 1].map(|i| scene.attack(time, seed.wrapping_mul(1000).wrapping_add(i), only));
        let watch = Watch::start(&scene.pids(), &[attackers[0].pid(), attackers[1].pid()]);
        // The load runs in slices. So memory that grows for ever can be told from memory that a quota bounds.
        let mut beside = load.run(time / 4);
        let mut memory = vec![scene.memory()];
        for _ in 1..4 {
            beside.add(load.run(time / 4));
            memory.push(scene.memory());
        }
        let cores = watch.stop().summary();
        let told = attackers.map(Attackers::wait);
        quiet.add(load.run(alone));
        println!("{what}: {} s", time.as_secs());
        told.iter().for_each(|(words, _)| println!("{words}"));
        let (keeps, frames) = (beside.rate() / quiet.rate(), told.iter().map(|(_, n)| n).sum::<u64>());
        println!("summary {what}: alone {}", quiet.summary());
        println!("summary {what}: beside all attacks {}; {cores}", beside.summary());
        let errors = quiet.errors.len() + beside.errors.len();
        println!(
            "summary {what}: {} rounds in {} s beside {frames} hostile frames, keeps {keeps:.2}; memory \
             {before} MiB, then {memory:?} MiB; {errors} ERRORS",
            beside.times.len(),
            time.as_secs()
        );
        // In a short run an attacker may spend its time on attacks with few frames.
        assert!(frames > 50 && told.iter().all(|(_, frames)| *frames > 0), "the attackers did something");
        let no_right = told.iter().all(|(words, _)| words.contains("; 0 commands of the insider succeeded"));
        // A short run may draw no insider's attack; `attack` runs one alone.
        assert!(no_right || !scene.says.is_empty(), "strangers have no rights");
        assert!(memory.iter().all(|&most| most < before + 256), "the attackers take memory: {memory:?}");
        another_client_reads(&guest(&scene.up.daemon, "other"), &load.file);
        assert!(errors == 0, "no error is allowed: {:?} {:?}", quiet.errors, beside.errors);
        let keep = number("GNSTOR_HOSTILE_KEEP", 10);
        assert!(keeps * 100.0 >= keep as f64, "it keeps {keeps:.2}, and was to keep {keep} %");
        drop(load);
        scene.end();
    });
}

#[test]
fn an_honest_load_beside_hostile_clients_has_no_error() {
    no_error_beside("strangers", Scene::of_strangers, None);
}

#[test]
fn an_honest_load_beside_hostile_clients_with_rights_has_no_error() {
    no_error_beside("a client with rights", Scene::of_insiders, None);
}

#[test]
fn an_honest_load_beside_a_client_that_only_breaks_the_rules_of_its_rights_has_no_error() {
    no_error_beside("a client with rights alone", Scene::of_insiders, Some(Attack::Insider));
}
