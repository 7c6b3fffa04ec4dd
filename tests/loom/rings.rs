// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rings between the executors of the HCA, in every interleaving that loom finds. The Rust ends are the
//! product's code. The device ends are written here as in `up.cuh` and `agent.cuh`. Run with `cargo test
//! --release -p gnstor-loom --test rings`.

#[path = "../../proto/testing/deadline.rs"]
mod deadline;

use deadline::{Deadline, LIMIT};
use gnstor_loom::abi::PHASE_BIT;
use gnstor_loom::ring::{DOWN_WORDS, DownRing, UpRing, Word};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

/// A word of a ring.
struct Shared(AtomicU64);

impl Word for Shared {
    fn load_acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn store_release(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

fn words(n: usize) -> Vec<Shared> {
    (0..n).map(|_| Shared(AtomicU64::new(0))).collect()
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let _deadline = Deadline::after(LIMIT);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Words of an up entry in this test. The ring's code works for any number, and loom needs more time for more
/// words.
const UP_WORDS: usize = 3;

struct Up {
    ring: Vec<Shared>,
    head: Shared,
    tail: AtomicU64,
    head_seen: AtomicU64,
}

impl Up {
    fn new(entries: usize) -> Arc<Self> {
        let (ring, head) = (words(entries * UP_WORDS), Shared(AtomicU64::new(0)));
        Arc::new(Self { ring, head, tail: AtomicU64::new(0), head_seen: AtomicU64::new(0) })
    }

    /// Does the work of `up_reserve` for one entry.
    fn reserve(&self) -> u64 {
        let size = (self.ring.len() / UP_WORDS) as u64;
        let first = self.tail.fetch_add(1, Ordering::Relaxed);
        while first + 1 - self.head_seen.load(Ordering::Acquire) > size {
            let head = self.head.0.load(Ordering::Acquire);
            self.head_seen.store(head, Ordering::Release);
            thread::yield_now();
        }
        first
    }

    /// Does the work of `up_store`: stores the words in any order, each with its phase.
    fn push(&self, mark: u64) {
        let position = self.reserve();
        let at = usize::try_from(position).expect("small") % (self.ring.len() / UP_WORDS) * UP_WORDS;
        let pass = position / (self.ring.len() / UP_WORDS) as u64;
        let phase = if pass.is_multiple_of(2) { PHASE_BIT } else { 0 };
        for word in &self.ring[at..at + UP_WORDS] {
            word.0.store(mark | phase, Ordering::Relaxed);
        }
    }
}

/// Takes `n` entries in order of position. Returns their contents.
fn take(up: &Up, n: usize) -> Vec<u64> {
    let mut ring = UpRing::default();
    let mut marks = Vec::new();
    while marks.len() < n {
        match ring.pop_words::<_, UP_WORDS>(&up.ring, &up.head) {
            Some(entry) => {
                let entry = entry.map(|word| word & !PHASE_BIT);
                assert_eq!(entry, [entry[0]; UP_WORDS], "an entry is whole");
                marks.push(entry[0]);
            }
            None => thread::yield_now(),
        }
    }
    assert!(ring.pop_words::<_, UP_WORDS>(&up.ring, &up.head).is_none(), "nothing is taken twice");
    marks
}

#[test]
fn an_up_entry_is_whole_when_it_is_taken() {
    check(3, || {
        let up = Up::new(2);
        let producer = thread::spawn({
            let up = Arc::clone(&up);
            move || up.push(77)
        });
        assert_eq!(take(&up, 1), [77]);
        producer.join().unwrap();
    });
}

#[test]
fn a_full_up_ring_holds_its_producer_back_over_several_passes() {
    check(2, || {
        let up = Up::new(1);
        let producer = thread::spawn({
            let up = Arc::clone(&up);
            move || (1..=3).for_each(|mark| up.push(mark))
        });
        assert_eq!(take(&up, 3), [1, 2, 3]);
        producer.join().unwrap();
    });
}

#[test]
fn two_producers_of_the_up_ring_lose_and_mix_nothing() {
    check(1, || {
        let up = Up::new(1);
        let producers = [10, 20].map(|mark| {
            let up = Arc::clone(&up);
            thread::spawn(move || up.push(mark))
        });
        let mut marks = take(&up, 2);
        marks.sort_unstable();
        assert_eq!(marks, [10, 20]);
        producers.into_iter().for_each(|p| p.join().unwrap());
    });
}

struct DownSide {
    ring: Vec<Shared>,
    head: Shared,
    /// The memory that a descriptor points to.
    data: [AtomicU64; 3],
}

/// Does the work of `fetch` and stores the head, for one descriptor at a time. With `second_half_first` it
/// loads the second half first, as a vector load may.
fn fetch(down: &DownSide, position: u64, second_half_first: bool) -> [u64; DOWN_WORDS] {
    let entries = (down.ring.len() / DOWN_WORDS) as u64;
    let phase = if (position / entries) & 1 == 1 { 0 } else { PHASE_BIT };
    let at = usize::try_from(position % entries).expect("small") * DOWN_WORDS;
    loop {
        let mut got = [0; DOWN_WORDS];
        let order: [usize; DOWN_WORDS] =
            if second_half_first { [1, 0, 3, 2, 5, 4, 7, 6] } else { [0, 1, 2, 3, 4, 5, 6, 7] };
        for word in order {
            got[word] = down.ring[at + word].0.load(Ordering::Relaxed);
        }
        if got.iter().all(|word| word & PHASE_BIT == phase) {
            fence(Ordering::Acquire);
            return got.map(|word| word & !PHASE_BIT);
        }
        thread::yield_now();
    }
}

fn descriptors_arrive(preemptions: usize, entries: usize, count: u64, second_half_first: bool) {
    check(preemptions, move || {
        let (ring, head) = (words(entries * DOWN_WORDS), Shared(AtomicU64::new(0)));
        let down = Arc::new(DownSide { ring, head, data: std::array::from_fn(|_| AtomicU64::new(0)) });
        let consumer = thread::spawn({
            let down = Arc::clone(&down);
            move || {
                for position in 0..count {
                    assert_eq!(fetch(&down, position, second_half_first), [100 + position; DOWN_WORDS]);
                    let data = down.data[usize::try_from(position).expect("small")].load(Ordering::Relaxed);
                    assert_eq!(data, position + 1, "what the descriptor points to is there");
                    down.head.0.store(position + 1, Ordering::Relaxed);
                }
            }
        });
        let mut ring = DownRing::default();
        for position in 0..count {
            down.data[usize::try_from(position).expect("small")].store(position + 1, Ordering::Relaxed);
            while !ring.push(&down.ring, &down.head, [100 + position; DOWN_WORDS]) {
                thread::yield_now();
            }
        }
        consumer.join().unwrap();
    });
}

#[test]
fn a_descriptor_and_its_data_arrive_whole() {
    descriptors_arrive(2, 2, 1, false);
    descriptors_arrive(2, 2, 1, true);
}

#[test]
fn descriptors_arrive_in_order_over_three_passes_of_a_full_ring() {
    descriptors_arrive(1, 1, 3, false);
    descriptors_arrive(1, 1, 2, true);
}
