// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast a fill is, in virtual time: on SSDs that no client uses, and beside clients.

use super::*;
use crate::tests::oracle::Dice;

const PRESET: &str = "970pro";
/// Blocks of the volume: 64 MiB.
const LARGE: u32 = 16 * 1024;
/// Time passes in steps of this.
const TICK: Span = Span::from_ns(4_000);
/// Time of a message between SSDs, one way.
const DELAY: Span = Span::from_ns(5_000);
/// Blocks of a client's command.
const AT_ONCE: u32 = 16;

/// What clients do, in percent of what an SSD can: reads at the first, writes at all.
#[derive(Clone, Copy, Default, Debug)]
struct Load {
    reads: u64,
    writes: u64,
}

/// A message between SSDs.
enum Letter {
    Question(AskId, u16, LocalRef),
    Answer(AskId, Box<(Cqe, Vec<u8>)>),
}

/// SSD 2 fills from SSD 0.
struct Fill {
    world: World,
    now: Time,
    letters: Vec<(Time, Letter)>,
    link_bytes_per_s: u64,
    link_free: Time,
    moved: u64,
    /// Next read and next write of clients.
    due: [Time; 2],
    sequence: u64,
    dice: Dice,
    /// Blocks that clients have asked to read by when they were there, and the last such time.
    read: u64,
    read_until: Time,
}

/// Cost of a page: to read one, and to write one.
fn costs() -> (Span, Span) {
    Preset::by_name(PRESET).expect("it is there").page_costs()
}

/// Bytes a second if a page takes this time.
fn rate(page: Span) -> f64 {
    4096e12 / page.as_ps() as f64
}

impl Fill {
    fn new(link_bytes_per_s: u64) -> Self {
        let ssd = |index| Harness::bare_as(PRESET, index, u64::from(2 * LARGE)).with_clients();
        let mut world = World::of((0..3).map(ssd).collect(), &map_of(1, &[0, 1], None, [0, 0]), LARGE);
        for first in (0..LARGE).step_by(16) {
            let tags: Vec<u64> = (0..16).map(|at| u64::from(first + at)).collect();
            for ssd in &mut world.ssds[..2] {
                ssd.sequence = u64::from(first);
                assert_eq!(refusal(&ssd.write(first, &tags)), None);
            }
        }
        world.ssds.iter_mut().for_each(|ssd| ssd.step_to(ssd.now + Span::from_ms(500)));
        let now = world.ssds.iter().map(|ssd| ssd.now).max().expect("three");
        world.ssds.iter_mut().for_each(|ssd| ssd.step_to(now));
        world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 0]));
        Self {
            world,
            now,
            letters: Vec::new(),
            link_bytes_per_s,
            link_free: now,
            moved: 0,
            due: [now; 2],
            sequence: 1 << 20,
            dice: Dice(3),
            read: 0,
            read_until: now,
        }
    }

    /// Fills for this time at most. Returns the bytes moved in a second.
    fn run(&mut self, load: Load, most: Span) -> f64 {
        let begun = self.now;
        while self.moved < u64::from(LARGE) && self.now < begun + most {
            self.now = self.now + TICK;
            self.world.ssds.iter_mut().for_each(|ssd| ssd.step_to(self.now));
            self.load(load);
            for (ask, peer, local) in std::mem::take(&mut self.world.ssds[2].asked) {
                self.letters.push((self.now + DELAY, Letter::Question(ask, peer, local)));
            }
            while let Some(at) = self.letters.iter().position(|(due, _)| *due <= self.now) {
                match self.letters.swap_remove(at).1 {
                    Letter::Question(ask, peer, local) => self.question(ask, peer, local),
                    Letter::Answer(ask, answer) => self.world.hand_over(2, ask, Some(*answer)),
                }
            }
        }
        (self.moved * 4096) as f64 / (self.now.since(begun).as_ps() as f64 / 1e12)
    }

    fn question(&mut self, ask: AskId, peer: u16, local: LocalRef) {
        let read = self.world.question(2, local);
        let (key, length) = (peer_key(2), u32::try_from(read.bytes()).expect("few"));
        let other = &mut self.world.ssds[usize::from(peer)];
        let sqe = Sqe { dptr: KeyedSgl::keyed(0, length, KEY), flags: FLAGS_SGL, ..read.command() };
        let cid = other.submit(key, sqe);
        let at = other.completions.iter().position(|done| done.queue == key && done.cqe.cid.get() == cid);
        let done = other.completions.remove(at.expect("its time is known"));
        assert_eq!(refusal(&done.cqe), None);
        self.moved += if let Wanted::Blocks(mask) = read.wanted { u64::from(mask.count_ones()) } else { 0 };
        let data = other.memory[&key][..read.bytes()].to_vec();
        self.link_free = self.link_free.max(done.at) + Span::transfer(length.into(), self.link_bytes_per_s);
        self.letters.push((self.link_free + DELAY, Letter::Answer(ask, Box::new((done.cqe, data)))));
    }

    /// Clients send what is due, whatever is still under way.
    fn load(&mut self, load: Load) {
        let (read, write) = costs();
        let pause =
            |cost: Span, percent: u64| Span::from_ps(cost.as_ps() * u64::from(AT_ONCE) * 100 / percent);
        while load.reads > 0 && self.due[0] <= self.now {
            self.due[0] = self.due[0] + pause(read, load.reads);
            let vba = self.dice.small(LARGE / AT_ONCE) * AT_ONCE;
            let ssd = &mut self.world.ssds[0];
            let sqe = ssd.io(io::READ, WRITER, vba, AT_ONCE);
            let cid = ssd.submit(WRITER, sqe);
            let at =
                ssd.completions.iter().position(|done| done.queue == WRITER && done.cqe.cid.get() == cid);
            let done = ssd.completions.remove(at.expect("its time is known"));
            assert_eq!(refusal(&done.cqe), None);
            (self.read, self.read_until) = (self.read + u64::from(AT_ONCE), self.read_until.max(done.at));
        }
        while load.writes > 0 && self.due[1] <= self.now {
            self.due[1] = self.due[1] + pause(write, load.writes);
            let vba = self.dice.small(LARGE / AT_ONCE) * AT_ONCE;
            self.sequence += u64::from(AT_ONCE);
            let tags = [self.sequence; AT_ONCE as usize];
            for ssd in &mut self.world.ssds {
                ssd.sequence = self.sequence;
                assert_eq!(refusal(&ssd.write(vba, &tags)), None);
            }
        }
    }
}

/// The link is much faster than the SSDs.
const FAST: u64 = 25_000_000_000;
const LONG: Span = Span::from_ms(400);

#[test]
fn alone_a_fill_has_four_fifths_of_what_the_ssds_and_the_link_allow() {
    let (read, write) = costs();
    for link in [FAST, 1_000_000_000] {
        let allowed = rate(read).min(rate(write)).min(link as f64);
        let mut fill = Fill::new(link);
        let got = fill.run(Load::default(), LONG);
        println!("link {link} B/s: {:.2} of {:.2} GB/s, {:.2}", got / 1e9, allowed / 1e9, got / allowed);
        assert!(got >= 0.8 * allowed && fill.moved == u64::from(LARGE));
    }
}

#[test]
fn beside_clients_a_fill_takes_its_share_of_an_ssd_and_no_more() {
    let (read, write) = costs();
    let most = Span::from_ms(40);
    let loads = [
        ("reads of the first", Load { reads: 70, writes: 0 }, rate(read), 25),
        ("writes", Load { reads: 0, writes: 60 }, rate(write), 25),
        ("both", Load { reads: 40, writes: 40 }, rate(write), 25),
        ("reads of the first, share 10 %", Load { reads: 70, writes: 0 }, rate(read), 10),
    ];
    for (name, load, all, share) in loads {
        let mut fill = Fill::new(FAST);
        for ssd in 0..3 {
            let order = gnstor_proto::scrub::Order::Share(share);
            assert_eq!(fill.world.order(DAEMON, ssd, 1, order), None);
        }
        let begun = fill.now;
        let got = fill.run(load, most) / all;
        let reads = fill.read as f64 * 4096e12 / fill.read_until.max(fill.now).since(begun).as_ps() as f64;
        println!("{name}: the fill has {:.3} of an SSD, clients read {:.2} GB/s", got, reads / 1e9);
        let share = f64::from(share) / 100.0;
        assert!(got <= share + 0.05 && got >= share - 0.05, "{got}");
        assert!(reads >= 0.9 * rate(read) * load.reads as f64 / 100.0, "clients wait for the fill: {reads}");
    }
}
