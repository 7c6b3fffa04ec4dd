// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An honest load beside hostile clients that make all attacks together.

use crate::cpu::Watch;
use crate::insiders::Owner;
use crate::load::Load;
use crate::{Guest, LIMIT, guest, number, resident_mib, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::{Guard, HOSTILE, SsdProcess, Up, wait};
use gnstor_tests::folder::Folder;
use gnstor_tests::{assert_same, long, volume, within};
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
    pub(crate) fn start_as(
        first: &[&str],
        address: SocketAddr,
        time: Duration,
        seed: u64,
        only: Option<Attack>,
    ) -> Self {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(&*HOSTILE).args(first);
        Self::attack(command, address, time, seed, only)
    }

    /// A flood with the priority of all others. It holds nearly as many connections as it may have files.
    pub(crate) fn flood(address: SocketAddr, time: Duration, seed: u64, files: u32) -> Self {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={files}:")).arg("--").arg(&*HOSTILE);
        Self::attack(command, address, time, seed, Some(Attack::Flood))
    }

    fn attack(
        mut command: Command,
        address: SocketAddr,
        time: Duration,
        seed: u64,
        only: Option<Attack>,
    ) -> Self {
        command.arg(address.to_string());
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

    /// Waits for the process.
    pub(crate) fn wait(mut self) -> Summary {
        let code = wait(&mut self.0, LIMIT).expect("they end in time");
        let mut said = String::new();
        self.0.0.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        assert_eq!(code, 0, "{said}");
        let first = |line: &str| line.split_whitespace().next().and_then(|word| word.parse().ok());
        let sent = said.lines().find_map(first).unwrap_or_else(|| panic!("{said}"));
        Summary { said, sent }
    }
}

/// What a process of hostile clients or callers says at its end.
pub(crate) struct Summary {
    pub(crate) said: String,
    /// Number of frames or calls that it sent.
    pub(crate) sent: u64,
}

impl Summary {
    /// The number before these words.
    fn number_before(&self, words: &str) -> u64 {
        let before = self.said.split(words).next().filter(|before| before.len() < self.said.len());
        let number = before.and_then(|before| before.rsplit(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no number before '{words}': {}", self.said))
    }

    /// Number of commands of the client with rights that succeeded.
    pub(crate) fn succeeded(&self) -> u64 {
        self.number_before(" commands of the insider succeeded")
    }

    /// Number of the commands to its controller of the client with rights that succeeded.
    fn won(&self) -> u64 {
        self.number_before(" games of the insider were won")
    }

    /// Numbers of attacks of this kind, and of those among them that the array gave no queue.
    fn attacks(&self, kind: Attack) -> (u64, u64) {
        let of_kind = format!(" {kind:?}, ");
        let line = self.said.lines().find_map(|line| line.split_once(&of_kind));
        let first = |text: &str| text.trim().split(' ').next().and_then(|word| word.parse().ok());
        let counts = line.and_then(|(count, refused)| first(count).zip(first(refused)));
        counts.unwrap_or_else(|| panic!("{kind:?} is not counted: {}", self.said))
    }

    /// Checks that the attacks came as far as they should. An array may refuse some of a kind, and not all. A
    /// client with rights had commands that succeeded. With `replies` SSDs challenged strangers, who replied.
    pub(crate) fn assert_attacked(all: &[Self], replies: bool) {
        let said = || all.iter().map(|summary| summary.said.as_str()).collect::<String>();
        let is_made = |kind: &Attack| all.iter().any(|summary| summary.attacks(*kind).0 > 0);
        // Of several kinds one may take all that a stranger can have, so a few of the others may be refused.
        let few = if Attack::ALL.iter().filter(|kind| is_made(kind)).count() > 1 { 4 } else { 1 };
        for kind in Attack::ALL {
            let counts: Vec<_> = all.iter().map(|summary| summary.attacks(kind)).collect();
            let count: u64 = counts.iter().map(|(count, _)| count).sum();
            let refused: u64 = counts.iter().map(|(_, refused)| refused).sum();
            assert!(count < few || refused < count, "{kind:?}: each found no queue: {}", said());
            if kind == Attack::Insider && count > 0 {
                assert!(
                    all.iter().any(|summary| summary.succeeded() > 0),
                    "rights are of no use: {}",
                    said()
                );
                assert!(all.iter().any(|summary| summary.won() > 0), "no game was played: {}", said());
            }
            if kind == Attack::Unproven && count > 0 && replies {
                let is_challenged =
                    all.iter().any(|summary| summary.number_before(" replies to challenges") > 0);
                assert!(is_challenged, "no stranger was challenged: {}", said());
            }
        }
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
    /// Addresses at which the SSDs are reached, and the numbers of the SSDs there.
    addresses: Vec<(SocketAddr, String)>,
    /// Arguments of the hostile clients.
    says: Vec<String>,
    /// The client whose rights they use.
    owner: Option<Owner>,
    /// Whether the SSDs ask for proofs.
    pub(crate) asks: bool,
    /// The folder of the array's key.
    _folder: Option<Folder>,
}

impl Scene {
    /// Hostile clients without a secret.
    pub(crate) fn of_strangers() -> Self {
        let up = Up::start(&["--ssds", "2"]);
        let addresses = vec![(ssd_address(&up), "0,1".into())];
        Self { up, ssds: Vec::new(), addresses, says: Vec::new(), owner: None, asks: true, _folder: None }
    }

    /// Hostile clients without a secret, at SSDs in three processes. These SSDs vote. So their questions for
    /// leases and their fills come by the port that is attacked.
    pub(crate) fn of_strangers_at_voters() -> Self {
        let folder = Folder::new();
        let key = folder.path().join("manager.key").display().to_string();
        let (up, ssds, addresses) = Self::processes(3, &["--manager-key", &key]);
        Self { up, ssds, addresses, says: Vec::new(), owner: None, asks: true, _folder: Some(folder) }
    }

    /// Hostile clients that have the secret of a client with rights to a volume.
    pub(crate) fn of_insiders() -> Self {
        let folder = Folder::new();
        let key = folder.path().join("manager.key").display().to_string();
        Self::of_insiders_at(&["--manager-key", &key], Some(folder))
    }

    /// SSDs ask for no proof, so hostile clients can claim to be one that has rights to a volume.
    pub(crate) fn of_insiders_without_proof() -> Self {
        Self::of_insiders_at(&[], None)
    }

    fn of_insiders_at(proof: &[&str], folder: Option<Folder>) -> Self {
        let (up, ssds, addresses) = Self::processes(2, proof);
        let owner = Owner::at(&up.daemon);
        let says = vec!["--as".into(), owner.insider.clone()];
        let asks = !proof.is_empty();
        Self { up, ssds, addresses, says, owner: Some(owner), asks, _folder: folder }
    }

    /// An array whose SSDs are in processes of their own, and their addresses.
    fn processes(count: u32, proof: &[&str]) -> (Up, Vec<SsdProcess>, Vec<(SocketAddr, String)>) {
        let start = |index: u32| {
            let index = index.to_string();
            let sizes = ["--preset", "null", "--size", "64MiB", "--index", &index];
            SsdProcess::start("127.0.0.1:0", &[&sizes, proof].concat())
        };
        let ssds: Vec<_> = (0..count).map(start).collect();
        let addresses: Vec<_> = ssds.iter().map(SsdProcess::address).collect();
        let up = Up::start_as(&[&["--ssd-at", &addresses.join(",")], proof].concat());
        let parsed = addresses.iter().map(|address| address.parse().expect("an address and a port"));
        let addresses = parsed.zip(0..).map(|(address, ssd): (_, u32)| (address, ssd.to_string())).collect();
        (up, ssds, addresses)
    }

    /// Starts hostile clients, who use the rights of the scene. Each further seed is for the SSDs at the next
    /// address.
    pub(crate) fn attack(&self, time: Duration, seed: u64, only: Option<Attack>) -> Attackers {
        let nth = usize::try_from(seed % self.addresses.len() as u64).expect("one of a few");
        let (address, ssds) = &self.addresses[nth];
        let says: Vec<&str> = self.says.iter().map(String::as_str).chain(["--ssds", ssds]).collect();
        Attackers::start_as(&says, *address, time, seed, only)
    }

    /// The processes of the array.
    pub(crate) fn pids(&self) -> Vec<u32> {
        [self.up.pid()].into_iter().chain(self.ssds.iter().map(SsdProcess::pid)).collect()
    }

    /// Ends the array. No client may use it any more.
    pub(crate) fn end(self) {
        drop(self.owner);
        self.up.end("-TERM");
        self.ssds.into_iter().for_each(|ssd| _ = ssd.end("-TERM"));
    }

    /// Memory of the largest process that is attacked, in MiB.
    fn memory(&self) -> u64 {
        let largest = self.ssds.iter().map(|ssd| resident_mib(ssd.pid())).max();
        largest.unwrap_or_else(|| resident_mib(self.up.pid()))
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
        let summaries = attackers.map(Attackers::wait);
        quiet.add(load.run(alone));
        println!("{what}: {} s", time.as_secs());
        summaries.iter().for_each(|summary| println!("{}", summary.said));
        let (keeps, frames) =
            (beside.rate() / quiet.rate(), summaries.iter().map(|summary| summary.sent).sum::<u64>());
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
        assert!(
            frames > 50 && summaries.iter().all(|summary| summary.sent > 0),
            "the attackers did something"
        );
        Summary::assert_attacked(&summaries, scene.asks);
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
fn an_honest_load_on_ssds_that_vote_beside_hostile_clients_has_no_error() {
    no_error_beside("strangers at SSDs that vote", Scene::of_strangers_at_voters, None);
}

#[test]
fn an_honest_load_beside_hostile_clients_with_rights_has_no_error() {
    no_error_beside("a client with rights", Scene::of_insiders_without_proof, None);
}

#[test]
fn an_honest_load_beside_a_client_that_only_breaks_the_rules_of_its_rights_has_no_error() {
    no_error_beside("a client with rights alone", Scene::of_insiders, Some(Attack::Insider));
}
