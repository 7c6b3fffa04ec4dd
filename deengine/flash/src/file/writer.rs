// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that writes and syncs a data file, so that no engine waits for a slow disk.
//!
//! ```text
//!   engine:  write  write  sync -> 1     write  sync -> 2   sync -> 3      poll(1): ended
//!   thread:                [ write, write, fdatasync ]      [ write, fdatasync for 2 and 3 ]
//! ```
//! The thread takes everything that is queued, writes it in order, and syncs once for all syncs among it.

use super::Syncs;
use crate::store::{Started, SyncTicket};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;

/// The writing thread of one data file; it starts with the first request.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    file: Arc<File>,
    syncs: Arc<Syncs>,
    queue: Mutex<Queue>,
    /// Signals that work is queued.
    wake: Condvar,
    /// Something was done.
    ended: Condvar,
    /// Syncs up to this number have ended.
    done: AtomicU64,
    /// Bytes of writes that the file does not have.
    bytes: AtomicU64,
    /// Number of times that queued writes have failed.
    losses: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    writes: Vec<(u64, Vec<u8>)>,
    /// The thread has taken writes and is not done with them.
    is_writing: bool,
    /// Number of the last requested sync.
    asked: u64,
    /// The last syncs that have failed, in order: runs of tickets, each with its first error.
    failed: VecDeque<(RangeInclusive<u64>, Failure)>,
    /// The last failed sync that is no longer in `failed`. Syncs up to it may have failed.
    forgotten: u64,
    /// A write has failed since the last sync.
    lost: Option<Failure>,
    stop: bool,
}

/// An error that several callers receive.
#[derive(Clone, Debug)]
struct Failure {
    kind: io::ErrorKind,
    text: String,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { kind: error.kind(), text: error.to_string() }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        Self::new(failure.kind, failure.text)
    }
}

impl Writer {
    pub(crate) fn new(file: Arc<File>, syncs: Arc<Syncs>) -> Self {
        let (queue, wake, ended) = (Mutex::default(), Condvar::new(), Condvar::new());
        let (done, bytes, losses) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { file, syncs, queue, wake, ended, done, bytes, losses });
        Self { shared, thread: Mutex::new(None) }
    }

    /// Queues a write.
    pub(crate) fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.start()?;
        let mut queue = self.shared.lock();
        self.shared.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        queue.writes.push((at, data.to_vec()));
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Queues a sync of everything before it.
    pub(crate) fn sync(&self) -> io::Result<Started> {
        self.start()?;
        let mut queue = self.shared.lock();
        queue.asked += 1;
        let ticket = SyncTicket(queue.asked);
        self.shared.wake.notify_one();
        Ok(Started::Running(ticket))
    }

    pub(crate) fn poll(&self, ticket: SyncTicket) -> Poll<io::Result<()>> {
        if self.shared.done.load(Ordering::Acquire) < ticket.0 {
            return Poll::Pending;
        }
        let queue = self.shared.lock();
        let failed = queue.failed.iter().find(|(tickets, _)| tickets.contains(&ticket.0));
        Poll::Ready(match failed {
            Some((_, failure)) => Err(failure.clone().into()),
            None if ticket.0 <= queue.forgotten => {
                Err(io::Error::other("syncs of that time have failed, and many more since"))
            }
            None => Ok(()),
        })
    }

    pub(crate) fn wait(&self, ticket: SyncTicket) -> io::Result<()> {
        let queue = self.shared.lock();
        let pending = |_: &mut Queue| self.shared.done.load(Ordering::Acquire) < ticket.0;
        drop(self.shared.ended.wait_while(queue, pending).unwrap_or_else(PoisonError::into_inner));
        match self.poll(ticket) {
            Poll::Ready(result) => result,
            Poll::Pending => unreachable!("it was waited for"),
        }
    }

    /// Bytes of writes that the file does not have.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Number of times that queued writes have failed. All writes before a sync that has ended are counted.
    pub(crate) fn losses(&self) -> u64 {
        self.shared.losses.load(Ordering::Acquire)
    }

    /// Waits until no write is queued. If one has failed, the next sync reports it.
    pub(crate) fn drain(&self) {
        if self.queued_bytes() > 0 {
            let busy = |queue: &mut Queue| queue.is_writing || !queue.writes.is_empty();
            let queue = self.shared.lock();
            drop(self.shared.ended.wait_while(queue, busy).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn start(&self) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            *thread =
                Some(std::thread::Builder::new().name("gnstor-disk".into()).spawn(move || shared.run())?);
        }
        Ok(())
    }
}

/// Runs of failed syncs that are remembered.
const MOST_FAILURES: usize = 64;

impl Queue {
    /// Remembers that the syncs `first` to `last` have failed. No failure is ever told as a success.
    fn note_failed(&mut self, first: u64, last: u64, failure: Failure) {
        match self.failed.back_mut() {
            Some((run, _)) if run.end() + 1 == first => *run = *run.start()..=last,
            _ => self.failed.push_back((first..=last, failure)),
        }
        while self.failed.len() > MOST_FAILURES {
            self.forgotten = self.failed.pop_front().map_or(self.forgotten, |(run, _)| *run.end());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut queue = self.lock();
        loop {
            let done = self.done.load(Ordering::Relaxed);
            if queue.writes.is_empty() && queue.asked == done {
                if queue.stop {
                    return;
                }
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (writes, asked) = (std::mem::take(&mut queue.writes), queue.asked);
            queue.is_writing = true;
            drop(queue);
            let (mut bytes, mut error) = (0, None);
            for (at, data) in &writes {
                bytes += data.len() as u64;
                if error.is_none() {
                    error = self.file.write_all_at(data, *at).err().map(Failure::from);
                }
            }
            queue = self.lock();
            queue.is_writing = false;
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if let Some(failure) = error {
                self.losses.fetch_add(1, Ordering::Release);
                queue.lost.get_or_insert(failure);
            }
            self.ended.notify_all();
            if asked == done {
                continue;
            }
            let lost = queue.lost.take();
            drop(queue);
            let result = match lost {
                Some(failure) => Err(failure),
                None => self.syncs.sync(&self.file).map_err(Failure::from),
            };
            queue = self.lock();
            if let Err(failure) = result {
                queue.note_failed(done + 1, asked, failure);
            }
            self.done.store(asked, Ordering::Release);
            self.ended.notify_all();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes a data file has panicked");
        }
    }
}
