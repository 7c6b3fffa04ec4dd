// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU-centric baselines: a CPU thread for each client takes requests from the kernel's threads and does
//! their I/O.
//!
//! ```text
//!   kernel's thread  --request word-->  proxy: central engine (gd, basic) -> the CPU's queues -> HCA -> SSDs
//!                                         |      data by the HCA: into device memory (gd, gd+deengine),
//!                    <--answer word---    '      or into a bounce buffer, then a batch of copies (basic)
//! ```
//! The words are in host memory that the device sees: one request and one answer a thread.

use super::central::Central;
use super::cpu::this_thread_s;
use super::load::Load;
use super::words::Bounce;
use crate::copier::{Copier, CopyBy};
use crate::host_channel::{Command, Ended, HostChannel};
use gnstor_base::region::HostRegion;
use gnstor_console::CliError;
use gnstor_fabric::device::Segment;
use libgnstor::{Error, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest number of a client's threads. The answer words follow as many request words.
const LANES: u64 = 128;
const BLOCK: u64 = gnstor_proto::BLOCK_BYTES as u64;
/// A command stays within a chunk.
const CHUNK_BLOCKS: u32 = 16;
const OS_ERROR: u32 = 0x0010_0000; // GN_BAD_REQUEST: the device's word for what never went out
/// Number of rounds without work before the thread yields its core.
const SPIN: u32 = 2000;

/// The request of a kernel's thread.
#[derive(Clone, Copy, Debug, Default)]
struct Job {
    sequence: u16,
    write: bool,
    unit: u32,
    /// Unit that holds the data.
    place: u32,
    sent: u32,
    copy: u32,
    pending: u32,
    stamp: u64,
    status: u32,
    dw0: u32,
    busy: bool,
}

/// The CPU side of one client.
#[derive(Debug)]
pub(super) struct Proxy {
    channel: HostChannel,
    client: u32,
    words: Arc<HostRegion>,
    words_at: u64,
    /// Address of the commands' data, and its key.
    data: (u64, u32),
    /// Of `basic`: has the bounce buffer, and moves data between it and the device.
    copier: Option<Copier>,
    central: Option<Arc<Central>>,
    jobs: Vec<Job>,
    replica: u32,
    stamp: u64,
    connected: bool,
    load: Load,
}

impl Proxy {
    pub(super) fn new(
        client: u32,
        file: &File,
        load: &Load,
        central: Option<&Arc<Central>>,
    ) -> Result<Self, CliError> {
        let os = |what: &str| {
            let what = what.to_owned();
            move |cause| Error::Os { what, cause }
        };
        let mut channel = HostChannel::open(file.client())?;
        let words = HostRegion::alloc(4096).map_err(os("host memory for requests"))?;
        let words_at = file.client().node().device().map(&words).map_err(Error::from)?;
        let buffer = &file.client().buffer().expect("it was asked for").memory;
        let copier = match load.bounce {
            Some(bounce) => {
                let by = match bounce {
                    Bounce::Batch => CopyBy::Batch,
                    Bounce::Kernel => CopyBy::Kernel,
                };
                let region = HostRegion::alloc(buffer.len()).map_err(os("a bounce buffer"))?;
                let copier = Copier::new(file.client().node().device(), &region, by, load.iodepth as usize);
                Some(copier.map_err(Error::from)?)
            }
            None => None,
        };
        let data = match &copier {
            Some(copier) => channel.register_host(copier.host()).map(|(key, address)| (address, key))?,
            None => (buffer.address(), channel.register(buffer)?),
        };
        Ok(Self {
            channel,
            client,
            words,
            words_at,
            data,
            copier,
            central: central.cloned(),
            jobs: vec![Job::default(); load.iodepth as usize],
            replica: 0,
            stamp: 0,
            connected: false,
            load: load.clone(),
        })
    }

    /// Device addresses of the request and answer words.
    pub(super) fn addresses(&self) -> (u64, u64) {
        (self.words_at, self.words_at + LANES * 8)
    }

    /// The part that moves data between the bounce buffer and the device.
    pub(super) fn bounce(&self) -> Option<Bounce> {
        self.copier.as_ref().map(|copier| match copier.by() {
            CopyBy::Batch => Bounce::Batch,
            CopyBy::Kernel => Bounce::Kernel,
        })
    }

    /// Before a launch: no request, no answer; reads go to this replica.
    pub(super) fn reset(&mut self, replica: u32) {
        self.words.fill(0, 4096, 0);
        self.jobs.fill(Job::default());
        self.replica = replica;
    }

    /// Serves the kernel until `stop`; returns the CPU seconds that it took.
    pub(super) fn serve(&mut self, file: &File, stop: &AtomicBool) -> Result<f64, Error> {
        let began = this_thread_s();
        let connected = if self.connected { Ok(()) } else { self.channel.connect() };
        self.connected = connected.is_ok();
        let (mut idle, mut ended) = (0, Vec::new());
        // Without a connection every request is answered nevertheless, so that the kernel's threads end their
        // work.
        while !stop.load(Ordering::Acquire) {
            let taken = self.take(file)?;
            if !self.connected {
                (0..self.jobs.len()).for_each(|lane| self.fail(lane, OS_ERROR, 0));
                self.answer(file)?;
            }
            let sent = self.send(file);
            ended.clear();
            let polled = self.channel.poll(&mut ended);
            ended.iter().for_each(|end| self.end(end));
            let answered = self.answer(file)?;
            idle = if taken || sent || polled != 0 || answered { 0 } else { idle + 1 };
            if idle > SPIN {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        connected.map(|()| this_thread_s() - began)
    }

    /// Takes new requests. Returns whether there were any.
    fn take(&mut self, file: &File) -> Result<bool, Error> {
        let mut fresh = Vec::new();
        for lane in 0..self.jobs.len() {
            // Pairs with the kernel's release.
            let word = self.words.words64(lane as u64 * 8, 1)[0].load(Ordering::Acquire);
            #[expect(clippy::cast_possible_truncation, reason = "fields of the word")]
            let (sequence, vba, write) = ((word >> 48) as u16, word as u32, word >> 32 & 1 == 1);
            if sequence == self.jobs[lane].sequence || self.jobs[lane].busy {
                continue;
            }
            let unit = vba / self.load.unit_blocks;
            self.stamp += 1;
            self.jobs[lane] =
                Job { sequence, write, unit, place: unit, stamp: self.stamp, busy: true, ..Job::default() };
            if let Some(central) = &self.central {
                let place =
                    if write { central.allocate(self.client, unit) } else { central.find(self.client, unit) };
                match place {
                    Some(place) => self.jobs[lane].place = place,
                    None => self.fail(lane, OS_ERROR, 0),
                }
            }
            fresh.push(lane);
        }
        let any = !fresh.is_empty();
        fresh.retain(|lane| self.jobs[*lane].write);
        self.copy(file, &fresh, false)?;
        Ok(any)
    }

    /// With a bounce buffer: moves the units of these lanes between it and the device, all at once.
    fn copy(&mut self, file: &File, lanes: &[usize], to_device: bool) -> Result<(), Error> {
        let Some(copier) = &mut self.copier else { return Ok(()) };
        let device = &file.client().buffer().expect("it was asked for").memory;
        let unit = |lane: &usize| {
            let at = *lane as u64 * self.load.bs;
            Segment { host: at, device: at, bytes: self.load.bs }
        };
        let units: Vec<Segment> = lanes.iter().map(unit).collect();
        Ok(if to_device {
            copier.copy_to_device(device, &units)
        } else {
            copier.copy_to_host(device, &units)
        }?)
    }

    /// Sends as much as there is room for. Returns whether it sent anything.
    fn send(&mut self, file: &File) -> bool {
        let copies = self.load.replicas;
        let mut sent = false;
        for lane in 0..self.jobs.len() {
            loop {
                let job = self.jobs[lane];
                if !job.busy || job.status != 0 || job.sent == self.load.unit_blocks {
                    break;
                }
                let vba = job.place * self.load.unit_blocks + job.sent;
                let blocks = (CHUNK_BLOCKS - vba % CHUNK_BLOCKS).min(self.load.unit_blocks - job.sent);
                let offset = lane as u64 * self.load.bs + u64::from(job.sent) * BLOCK;
                let replica = match (job.write, self.replica) {
                    (true, _) => job.copy as usize,
                    (false, 0) => self.channel.idle_replica(file, vba, lane),
                    (false, k) => k as usize - 1,
                };
                let command = Command {
                    write: job.write,
                    vba,
                    blocks,
                    replica,
                    sequence: if job.write { job.stamp << 16 | u64::from(job.sent) } else { 0 },
                    address: self.data.0 + offset,
                    key: self.data.1,
                    user: lane as u64,
                };
                match self.channel.submit(file, &command) {
                    Ok(true) => {}
                    Ok(false) => return sent,
                    Err(status) => {
                        self.fail(lane, status, 0);
                        break;
                    }
                }
                sent = true;
                let job = &mut self.jobs[lane];
                job.pending += 1;
                job.copy += 1;
                if !job.write || job.copy == copies {
                    job.copy = 0;
                    job.sent += blocks;
                }
            }
        }
        sent
    }

    fn end(&mut self, end: &Ended) {
        let lane = usize::try_from(end.user).expect("a lane");
        let Some(job) = self.jobs.get_mut(lane).filter(|job| job.pending != 0) else { return };
        job.pending -= 1;
        if end.status != 0 {
            self.fail(lane, end.status, end.dw0);
        }
    }

    fn fail(&mut self, lane: usize, status: u32, dw0: u32) {
        let job = &mut self.jobs[lane];
        if job.busy && job.status == 0 {
            (job.status, job.dw0) = (status, dw0);
        }
    }

    /// Answers the requests that have ended. Returns whether there was one.
    fn answer(&mut self, file: &File) -> Result<bool, Error> {
        let done = |job: &Job| {
            job.busy && job.pending == 0 && (job.status != 0 || job.sent == self.load.unit_blocks)
        };
        let lanes: Vec<usize> = (0..self.jobs.len()).filter(|lane| done(&self.jobs[*lane])).collect();
        if lanes.is_empty() {
            return Ok(false);
        }
        let well = lanes.iter().copied().filter(|lane| self.jobs[*lane].status == 0);
        let (writes, reads): (Vec<_>, Vec<_>) = well.partition(|lane| self.jobs[*lane].write);
        self.copy(file, &reads, true)?;
        if let Some(central) = &self.central {
            let changes: Vec<_> =
                writes.iter().map(|&lane| (self.jobs[lane].unit, self.jobs[lane].place)).collect();
            let commit = if changes.is_empty() { Ok(()) } else { central.commit(self.client, &changes) };
            commit.map_err(|cause| Error::Os { what: "the central engine's log".into(), cause })?;
        }
        for lane in lanes {
            let Job { sequence, status, dw0, .. } = self.jobs[lane];
            self.jobs[lane].busy = false;
            let word = u64::from(sequence) << 48 | u64::from(dw0 & 0xFFFF) << 32 | u64::from(status);
            // The kernel acquires it.
            self.words.words64((LANES + lane as u64) * 8, 1)[0].store(word, Ordering::Release);
        }
        Ok(true)
    }
}
