// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads without a lock beside changes of the rules, in every interleaving loom finds. Run with
//! `cargo test --release -p gnstor-loom --test in_flight`.

#[path = "../../proto/testing/deadline.rs"]
mod deadline;
#[path = "../../deengine/src/workers/in_flight.rs"]
mod in_flight;
#[path = "../../deengine/src/workers/lease_word.rs"]
mod lease_word;

/// Loom treats a sequentially consistent access as an acquire or release access. These wrappers put a
/// sequentially consistent fence between a store and the load that follows it. That is what the accesses
/// promise here, and no more.
mod sync {
    pub(super) use loom::sync::atomic::Ordering;
    use loom::sync::atomic::fence;

    macro_rules! atomic {
        ($name:ident, $value:ty) => {
            #[derive(Debug, Default)]
            pub(super) struct $name(loom::sync::atomic::$name);

            impl $name {
                pub(super) fn load(&self, order: Ordering) -> $value {
                    if order == Ordering::SeqCst {
                        fence(Ordering::SeqCst);
                        return self.0.load(Ordering::Acquire);
                    }
                    self.0.load(order)
                }

                pub(super) fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, if order == Ordering::SeqCst { Ordering::Release } else { order });
                    if order == Ordering::SeqCst {
                        fence(Ordering::SeqCst);
                    }
                }
            }
        };
    }

    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(super) fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
            let old = self.0.fetch_add(value, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            old
        }
    }
}

use deadline::{Deadline, LIMIT};
use in_flight::{InFlight, Seen, Version};
use lease_word::LeaseWord;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The firmware's side: a version that counts changes of the rules, and whether the rules allow reads.
#[derive(Default)]
struct World {
    version: Version,
    seen: Seen,
    flight: InFlight,
    /// The rules behind the firmware's lock: version and permission.
    rules: Mutex<(u64, bool)>,
    /// The revocation is complete.
    revoked: AtomicBool,
}

/// A worker for one volume, as in `io/worker.rs` and `io/read.rs`.
struct Worker {
    world: Arc<World>,
    version: u64,
    allowed: bool,
    /// For each read in flight, the version it was judged by.
    reads: Vec<u64>,
}

impl Worker {
    fn refresh(&mut self) {
        let rules = self.world.rules.lock().expect("no panic");
        let (version, allowed) = (self.world.version.get(), rules.1);
        drop(rules);
        if version != self.version {
            self.world.flight.age();
            self.world.seen.set(version);
            (self.version, self.allowed) = (version, allowed);
        }
    }

    fn begin(&mut self) {
        if self.allowed && self.world.flight.enter(&self.world.version, self.version) {
            self.reads.push(self.version);
        }
    }

    fn end(&mut self) {
        if let Some(version) = self.reads.pop() {
            assert!(!self.world.revoked.load(Ordering::SeqCst), "complete with a read under way");
            self.world.flight.leave(version == self.version);
        }
    }
}

fn revoke(world: &World) -> u64 {
    let mut rules = world.rules.lock().expect("no panic");
    world.version.change();
    *rules = (rules.0 + 1, false);
    rules.0
}

fn with(worker: impl Fn(&mut Worker) + Sync + Send + 'static) {
    let _deadline = Deadline::after(LIMIT);
    loom::model(move || {
        let world = Arc::new(World::default());
        world.rules.lock().expect("no panic").1 = true;
        let mut one = Worker { world: Arc::clone(&world), version: 0, allowed: true, reads: Vec::new() };
        let changed = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let at = revoke(&world);
                // One check and no loop: whatever it finds must be true.
                if world.flight.is_over(&world.seen, at) {
                    world.revoked.store(true, Ordering::SeqCst);
                }
            })
        };
        worker(&mut one);
        changed.join().expect("no panic");
        while !one.reads.is_empty() {
            one.reads.pop().into_iter().for_each(|version| world.flight.leave(version == one.version));
        }
        assert!(world.flight.is_over(&world.seen, 1), "what is over is found to be over");
    });
}

#[test]
fn a_read_and_a_change_that_meet_see_each_other() {
    with(|worker| {
        worker.begin();
        worker.end();
    });
}

#[test]
fn a_worker_that_fetches_the_rules_hides_no_read() {
    with(|worker| {
        worker.begin();
        worker.refresh();
        worker.begin();
        worker.end();
        worker.end();
    });
}

/// A worker commits a write while the write's volume is deleted. It checks the version under the layer's
/// lock, as `io/write.rs` does. The sweep raises the version and then takes that lock, as `volumes.rs` does.
#[test]
fn nothing_is_committed_behind_a_sweep() {
    let _deadline = Deadline::after(LIMIT);
    loom::model(|| {
        let version = Arc::new(Version::default());
        // The layer's lock guards whether the sweep is done.
        let layer = Arc::new(Mutex::new(false));
        let swept = {
            let (version, layer) = (Arc::clone(&version), Arc::clone(&layer));
            thread::spawn(move || {
                version.change();
                *layer.lock().expect("no panic") = true;
            })
        };
        let mine = 0;
        let is_swept = layer.lock().expect("no panic");
        if version.get() == mine {
            assert!(!*is_swept, "committed behind the sweep");
        }
        drop(is_swept);
        swept.join().expect("no panic");
    });
}

/// A worker judges a write by the version and the end of the lease, and commits it if the version has not
/// changed. Meanwhile `cut` shortens the lease from 9 to 1, and the daemon is told so. The time is 5.
fn cut_short(cut: fn(&LeaseWord, &Version)) {
    let _deadline = Deadline::after(LIMIT);
    loom::model(move || {
        let (word, version) = (Arc::new(LeaseWord::new(9)), Arc::new(Version::default()));
        let told = Arc::new(AtomicBool::new(false));
        let firmware = {
            let (word, version, told) = (Arc::clone(&word), Arc::clone(&version), Arc::clone(&told));
            thread::spawn(move || {
                cut(&word, &version);
                told.store(true, Ordering::Release);
            })
        };
        let was_told = told.load(Ordering::Acquire);
        let mine = version.get();
        let allowed = 5 < word.get();
        assert!(!(was_told && allowed), "a command that came behind the answer is allowed");
        let was_told = told.load(Ordering::Acquire);
        if allowed && version.get() == mine {
            assert!(!was_told, "committed behind the answer");
        }
        firmware.join().expect("no panic");
        assert_eq!(word.get(), 1);
    });
}

#[test]
fn nothing_is_judged_or_committed_behind_a_lease_that_was_cut_short() {
    cut_short(|word, version| word.set(1, version));
}

/// In the other order a worker can find the new version together with the old end.
#[test]
#[should_panic(expected = "committed behind the answer")]
fn counting_the_version_before_the_word_is_found() {
    cut_short(|word, version| {
        version.change();
        word.set(1, &Version::default());
    });
}

/// As [`nothing_is_judged_or_committed_behind_a_lease_that_was_cut_short`], but without a new version.
#[test]
#[should_panic(expected = "committed behind the answer")]
fn a_cut_that_is_no_change_of_the_rules_is_found() {
    cut_short(|word, _| word.set(1, &Version::default()));
}

/// A renewal changes no version: a worker that misses it only refuses more than it must.
#[test]
fn a_renewal_beside_a_check_allows_nothing_that_it_does_not_grant() {
    let _deadline = Deadline::after(LIMIT);
    loom::model(|| {
        let (word, version) = (Arc::new(LeaseWord::new(1)), Arc::new(Version::default()));
        let firmware = {
            let (word, version) = (Arc::clone(&word), Arc::clone(&version));
            thread::spawn(move || word.set(9, &version))
        };
        assert!([1, 9].contains(&word.get()));
        firmware.join().expect("no panic");
        assert_eq!((word.get(), version.get()), (9, 0));
    });
}
