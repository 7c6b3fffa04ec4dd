// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One launch of the kernel: its arguments, the threads beside it, and its results.

use super::{Harness, Member};
use crate::cpu;
use crate::kernel::{self, ArgsAbi, BUCKETS, FRESH, LaneResult, SHARED_BYTES, Who};
use crate::rate::Pace;
use crate::words::Buffers;
use gnstor_console::CliError;
use gnstor_console::Steps;
use indicatif::ProgressBar;
use libgnstor::{Error, Shape};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// One launch of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    /// What a terminal shows while the launch runs.
    pub(crate) what: &'static str,
    pub(crate) flags: u32,
    pub(crate) read_percent: u32,
    pub(crate) warmup: Duration,
    /// Length of the measured part. If every unit is done once, the longest time for that.
    pub(crate) runtime: Duration,
    /// The replica to read from: 0 = any, k = the k-th serving one.
    pub(crate) replica: u32,
    /// The schedule of requests; `None`: a request begins as soon as a thread is free.
    pub(crate) pace: Option<Pace>,
}

/// CPU seconds of threads, by name.
type ThreadTimes = Vec<(&'static str, f64)>;

/// The results of a launch.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Counters of all threads, client by client.
    pub(crate) lanes: Vec<Vec<LaneResult>>,
    /// Number of reads and writes in each bucket, over all clients.
    pub(crate) buckets: [Vec<u64>; 2],
    /// Ctrl-C ended it.
    pub(crate) interrupted: bool,
    /// CPU seconds of the threads that are gone: the one that launched and waited (on the CPU execution it
    /// is the device), and the proxies.
    pub(crate) threads: ThreadTimes,
    /// Multiprocessors of the device; 0 if it has none.
    pub(crate) multiprocessors: u32,
}

const TICK: Duration = Duration::from_millis(200);

impl Harness {
    /// Runs the kernel on all clients. After Ctrl-C no request begins.
    pub(crate) fn run(&self, phase: &Phase, steps: &Steps) -> Result<Outcome, CliError> {
        let load = &self.load;
        let depth = load.iodepth as usize;
        for member in &self.members {
            member.lanes.write(0, [FRESH].repeat(depth).as_bytes()).map_err(Error::from)?;
            member.histograms.write(0, &vec![0; 2 * BUCKETS * 8]).map_err(Error::from)?;
            if let Some(proxy) = &member.proxy {
                proxy.lock().expect("no panic while held").reset(phase.replica);
            }
        }
        self.stop.write(0, &[0; 4]).map_err(Error::from)?;
        self.args.write(0, self.arguments(phase).as_bytes()).map_err(Error::from)?;
        let shape = Shape {
            blocks: load.clients,
            threads: load.iodepth.next_multiple_of(32),
            smem_bytes: SHARED_BYTES,
        };
        let deadline = phase.warmup + phase.runtime + self.io_timeout * 2 + Duration::from_secs(30);
        let (file, at) = (&self.members[0].file, self.args.address());
        let ours = if shape.threads == 32 { Who::Warp } else { Who::Block };
        let who = match load.buffers {
            _ if load.by_cpu() => Who::Cpu,
            Buffers::Pieces => Who::BlockInPieces,
            Buffers::Contiguous => ours,
        };
        let launch = || file.launch(kernel::kernel(who), shape, at, deadline);
        let (interrupted, threads) = self.beside(launch, phase, steps)?;
        let lanes = self.members.iter().map(|member| lanes_of(member, depth)).collect::<Result<_, _>>()?;
        let mut buckets = [vec![0; BUCKETS], vec![0; BUCKETS]];
        let mut raw = vec![0; 2 * BUCKETS * 8];
        for member in &self.members {
            member.histograms.read(0, &mut raw).map_err(Error::from)?;
            let counts = raw.chunks_exact(8).map(|raw| u64::read_from_bytes(raw).expect("eight bytes"));
            buckets.iter_mut().flatten().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let mut raw = [0; 4];
        self.multiprocessors.read(0, &mut raw).map_err(Error::from)?;
        Ok(Outcome { lanes, buckets, interrupted, threads, multiprocessors: u32::from_le_bytes(raw) })
    }

    /// The kernel's arguments.
    fn arguments(&self, phase: &Phase) -> ArgsAbi {
        let load = &self.load;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).expect("at most days");
        ArgsAbi {
            clients: self.clients.address(),
            stop: self.stop.address(),
            warmup_ns: ns(phase.warmup),
            runtime_ns: ns(phase.runtime),
            seed: load.seed,
            depth: load.iodepth,
            unit_blocks: load.unit_blocks,
            units: load.units,
            read_percent: phase.read_percent,
            // Without a model nothing is late, and no client pays for a look at its clock.
            flags: phase.flags | if self.preset.is_null() { 0 } else { kernel::STAMPS },
            replica: phase.replica,
            multiprocessors: self.multiprocessors.address(),
            interval: phase.pace.map_or(0, |pace| pace.interval()),
            read_share: phase.pace.map_or(0, |pace| pace.read_share()),
        }
    }

    /// Runs `launch` on a thread of its own; meanwhile shows how far it is, and hands Ctrl-C on. The
    /// proxies run as long. Returns whether there was a Ctrl-C, and the CPU seconds of these threads.
    #[expect(clippy::disallowed_methods, reason = "shows a person how real time passes")]
    fn beside(
        &self,
        launch: impl FnOnce() -> Result<(), Error> + Send,
        phase: &Phase,
        steps: &Steps,
    ) -> Result<(bool, ThreadTimes), CliError> {
        let once = phase.flags & kernel::ONCE != 0;
        let units = u64::from(self.load.units) * u64::from(self.load.clients);
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("at most days");
        let bar = steps.bar(phase.what, if once { units } else { millis(phase.warmup + phase.runtime) });
        let began = Instant::now();
        let mut interrupted = false;
        let (done, ended) = mpsc::channel();
        let over = AtomicBool::new(false);
        let threads = std::thread::scope(|scope| {
            let _over = SetOnDrop(&over);
            let thread_failed = |cause| Error::Os { what: "starting a thread".into(), cause };
            let mut proxies = Vec::new();
            for member in &self.members {
                let Some(proxy) = &member.proxy else { continue };
                let (file, over) = (&member.file, &over);
                let serve = move || proxy.lock().expect("no panic while held").serve(file, over);
                let thread = std::thread::Builder::new().name("gn-proxy".into()).spawn_scoped(scope, serve);
                proxies.push(thread.map_err(thread_failed)?);
            }
            let thread =
                std::thread::Builder::new().name("gn-launch".into()).spawn_scoped(scope, move || {
                    let result = launch();
                    let _ = done.send(());
                    result.map(|()| cpu::this_thread_s())
                });
            let thread = thread.map_err(thread_failed)?;
            let mut progress =
                Progress { once, status: self.status_interval.filter(|_| !once), ..Progress::default() };
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if steps.interrupted() && !interrupted {
                    interrupted = true;
                    self.stop.write(0, &[1; 4])?;
                }
                progress.show(self, &bar, began.elapsed())?;
            }
            let launched = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            over.store(true, Ordering::Release);
            let mut threads = Vec::new();
            for proxy in proxies {
                threads.push((
                    "gn-proxy",
                    proxy.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
                ));
            }
            threads.push(("gn-launch", launched?));
            Ok::<_, Error>(threads)
        });
        bar.finish_and_clear();
        Ok((interrupted, threads?))
    }

    fn ios_so_far(&self) -> Result<u64, Error> {
        let mut sum = 0;
        for member in &self.members {
            sum +=
                lanes_of(member, self.load.iodepth as usize)?.iter().flat_map(|lane| lane.ios).sum::<u64>();
        }
        Ok(sum)
    }
}

/// The progress that a terminal shows while a launch runs.
#[derive(Default)]
struct Progress {
    /// Every unit is done once: the bar counts I/Os, and not time.
    once: bool,
    /// Time between two lines of the rate.
    status: Option<Duration>,
    /// I/Os and seconds when the bar was drawn last, and when the last line was printed.
    drawn: (u64, f64),
    printed: (u64, f64),
}

impl Progress {
    fn show(&mut self, harness: &Harness, bar: &ProgressBar, elapsed: Duration) -> Result<(), Error> {
        let seconds = elapsed.as_secs_f64();
        let due = self.status.is_some_and(|interval| seconds - self.printed.1 >= interval.as_secs_f64());
        if bar.is_hidden() && !due {
            return Ok(());
        }
        let ios = harness.ios_so_far()?;
        // A launch resets the counters when it begins.
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let rate = |(before, at): (u64, f64)| ios.saturating_sub(before) as f64 / (seconds - at);
        if due {
            let iops = rate(self.printed);
            bar.suspend(|| eprintln!("  status      {seconds:.1} s: {iops:.0} I/Os per s"));
            self.printed = (ios, seconds);
        }
        bar.set_message(format!("{:.0} I/Os per s", rate(self.drawn)));
        self.drawn = (ios, seconds);
        let millis = u64::try_from(elapsed.as_millis()).expect("at most days");
        bar.set_position(if self.once { ios } else { millis });
        Ok(())
    }
}

fn lanes_of(member: &Member, depth: usize) -> Result<Vec<LaneResult>, Error> {
    let mut raw = vec![0; depth * size_of::<LaneResult>()];
    member.lanes.read(0, &mut raw)?;
    let lane = |raw: &[u8]| LaneResult::read_from_bytes(raw).expect("the length matches");
    Ok(raw.chunks_exact(size_of::<LaneResult>()).map(lane).collect())
}

/// Ends the proxies, also if an error leaves the scope early.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
