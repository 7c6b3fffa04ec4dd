// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that records when a restore reaches which area, and that can undo its writes.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use gnstor_durable::Sizes;
use gnstor_flash::{FileStore, Store};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Watched {
    inner: FileStore,
    dump: u64,
    ring: u64,
    checkpoints: u64,
    seen: Mutex<Seen>,
}

/// A moment on the clock, and in the time that this thread had a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    at: Instant,
    cpu_ns: u64,
}

impl Mark {
    pub(crate) fn now() -> Self {
        Self { at: Instant::now(), cpu_ns: super::cpu_ns() }
    }

    /// Seconds since `earlier`, on the clock and on a core.
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    pub(crate) fn since(&self, earlier: &Self) -> [f64; 2] {
        let cpu = (self.cpu_ns - earlier.cpu_ns) as f64 / 1e9;
        [self.at.duration_since(earlier.at).as_secs_f64(), cpu]
    }
}

#[derive(Debug, Default)]
struct Seen {
    dump: Option<Mark>,
    checkpoint: Option<Mark>,
    ring: Option<Mark>,
    ring_end: Option<Mark>,
    /// The first write behind the ring: the journal continues, so the map has been checked.
    going_on: Option<Mark>,
    end: Option<Mark>,
    before: Vec<(u64, Vec<u8>)>,
}

impl Watched {
    pub(crate) fn new(inner: FileStore, sizes: &Sizes) -> Self {
        let (dump, ring, [checkpoints, _]) = (sizes.dump_at(), sizes.journal_at(), sizes.checkpoints_at());
        Self { inner, dump, ring, checkpoints, seen: Mutex::default() }
    }

    /// Reads everything once, so that it is in the page cache.
    pub(crate) fn warm(&self) {
        let mut buffer = vec![0; 1 << 20];
        for at in (0..self.inner.len()).step_by(buffer.len()) {
            let bytes =
                usize::try_from(self.inner.len() - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            self.inner.read(at, &mut buffer[..bytes]).expect("the store");
        }
    }

    /// Seconds of each phase since `start`, by the clock and on a core. The last phase ends with the last
    /// write or sync.
    pub(crate) fn phases(&self, start: Mark) -> [(&'static str, [f64; 2]); 6] {
        let seen = self.seen();
        let at = |mark: Option<Mark>| mark.expect("a restore comes by there");
        let marks = [seen.dump, seen.checkpoint, seen.ring, seen.ring_end, seen.going_on, seen.end].map(at);
        let names = ["media+metadata", "dump-read", "checkpoint", "replay", "finish-load", "rewrite+tidy"];
        std::array::from_fn(|nth| {
            (names[nth], marks[nth].since(if nth == 0 { &start } else { &marks[nth - 1] }))
        })
    }

    /// Undoes all writes since the start.
    pub(crate) fn take_back(&self) {
        for (at, old) in std::mem::take(&mut self.seen().before).into_iter().rev() {
            self.inner.write(at, &old).expect("the store");
        }
        self.inner.sync().expect("the store");
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Watched {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let now = Mark::now();
        let result = self.inner.read(at, out);
        let mut seen = self.seen();
        if at >= self.checkpoints {
            seen.checkpoint.get_or_insert(now);
        } else if at >= self.ring {
            seen.ring.get_or_insert(now);
            seen.ring_end = Some(Mark::now());
        } else if at >= self.dump {
            seen.dump.get_or_insert(now);
        }
        result
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let now = Mark::now();
        let mut old = vec![0; data.len()];
        self.inner.read(at, &mut old)?;
        let mut seen = self.seen();
        seen.before.push((at, old));
        if seen.ring.is_some() {
            seen.going_on.get_or_insert(now);
        }
        let result = self.inner.write(at, data);
        seen.end = Some(Mark::now());
        result
    }

    fn sync(&self) -> io::Result<()> {
        let result = self.inner.sync();
        self.seen().end = Some(Mark::now());
        result
    }

    fn barrier(&self) -> io::Result<bool> {
        self.inner.barrier()
    }
}
