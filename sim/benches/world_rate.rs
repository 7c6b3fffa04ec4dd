// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the real time that a simulated request costs, and the memory that a world takes. The lower bound
//! is `engine_rate`: engine and firmware alone.
//!
//! `cargo bench -p gnstor-sim --bench world_rate [-- --ssds 64 --clients 64]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use gnstor_base::time::Span;
use gnstor_deengine::Preset;
use gnstor_fabric::link::LinkConfig;
use gnstor_sim::load::Rw;
use gnstor_sim::memory;
use gnstor_sim::scale::{Range, Sweep};
use gnstor_sim::world::World;
use std::time::Instant;

/// Options: the world to measure.
#[derive(clap::Parser)]
struct Args {
    /// SSDs
    #[arg(long, default_value_t = 64)]
    ssds: usize,
    /// Clients
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Requests that each client keeps in flight
    #[arg(long, default_value_t = 64)]
    depth: u16,
    /// Copies of every block
    #[arg(long, default_value_t = 2)]
    replicas: u8,
    /// Bytes of each client's volume, MiB
    #[arg(long, default_value_t = 16)]
    size: u64,
    /// Logical capacity of each SSD, MiB
    #[arg(long, default_value_t = 256)]
    ssd_size: u64,
    /// Preset of the SSDs
    #[arg(long, default_value = "gnstor-980pro")]
    preset: String,
    /// Virtual time of each load, ms
    #[arg(long, default_value_t = 20)]
    runtime: u64,
    /// Clients write instead of reading
    #[arg(long)]
    writes: bool,
    /// Cargo passes this option
    #[arg(long, hide = true)]
    bench: bool,
}

/// Processor time that this thread has used.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Memory of this process, KiB.
fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn main() {
    let args = <Args as clap::Parser>::parse();
    let one = |count| Range { first: count, last: count };
    let sweep = Sweep {
        clients: one(args.clients),
        ssds: one(args.ssds),
        nodes: 1,
        replicas: args.replicas,
        rw: if args.writes { Rw::Randwrite } else { Rw::Randread },
        bs: 4096,
        zipf_permille: 0,
        iodepth: args.depth,
        size: args.size << 20,
        ssd_bytes: Some(args.ssd_size << 20),
        preset: Preset::by_name(&args.preset).expect("a preset"),
        link: LinkConfig::UNLIMITED,
        warmup: Span::ZERO,
        runtime: Span::from_ms(args.runtime),
        seed: 1,
        memory: u64::MAX,
        fail: None,
    };
    let plan = sweep.plans().expect("a sweep that is possible").remove(0);
    memory::use_small_pages();
    let (before, start) = (resident_kib(), Instant::now());
    let mut world = World::new(&plan).expect("a world");
    let (empty, set_up) = (resident_kib() - before, start.elapsed());
    let start = Instant::now();
    world.fill().expect("a fill");
    let filled = resident_kib() - before;
    println!(
        "{} SSDs, {} clients: {} KiB an SSD set up ({:.1} s), {} KiB an SSD with the volumes written \
         ({:.1} s); estimated {} MiB, {} MiB taken",
        args.ssds,
        args.clients,
        empty / args.ssds as u64,
        set_up.as_secs_f64(),
        filled / args.ssds as u64,
        start.elapsed().as_secs_f64(),
        memory::estimate(&plan) >> 20,
        filled >> 10
    );
    let (mut ended, steps, cpu, begin) = (0u64, world.steps(), cpu_ns(), world.now());
    world.run(begin + sweep.runtime, |_| ended += 1).expect("a run");
    let (cpu, steps) = (cpu_ns() - cpu, world.steps() - steps);
    println!(
        "{} ns a request, {:.1} steps of actors each; {ended} requests in {} ms of virtual time, {} nudges",
        cpu / ended.max(1),
        steps as f64 / ended.max(1) as f64,
        args.runtime,
        world.nudges()
    );
}
