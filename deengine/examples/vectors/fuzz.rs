// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differential fuzzing: sessions of drawn operations, played to the firmware and to a program.

use crate::file::Script;
use crate::map_session::map_session;
use crate::op::Op;
use crate::pipe::{Peer, first_difference, frame};
use crate::play::Player;
use crate::session::Session;
use crate::shrink::shrink;
use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

/// Operations of a session, and of a batch.
const SESSION: usize = 40_000;
const BATCH: usize = 2_000;
/// Room for most batches.
const BATCH_BYTES: usize = 128 * BATCH;
/// Number of batches by which the program may be behind.
const AHEAD: usize = 3;
/// One session in this many tests only a map.
const MAPS: u64 = 12;

/// A batch that the program has not answered yet: the number of its first operation, and our answers.
struct Asked {
    first: usize,
    ours: Vec<u8>,
}

struct Campaign<'a> {
    program: &'a str,
    peer: Peer,
    asked: VecDeque<Asked>,
    ops: Vec<Op>,
}

impl Campaign<'_> {
    /// Reads the answers of the oldest batch; the operation that was answered differently.
    fn compare(&mut self) -> Option<usize> {
        let Asked { first, ours } = self.asked.pop_front()?;
        match self.peer.answers() {
            Some(theirs) => first_difference(&ours, &theirs).map(|number| first + number),
            None => Some(self.ops.len() - 1),
        }
    }

    /// Plays a session; the operation that was answered differently. `next` makes an operation of the
    /// answer to the one before.
    fn play(&mut self, mut next: impl FnMut(&[u8]) -> Op, length: usize) -> Option<usize> {
        self.ops.clear();
        let mut player = Player::default();
        let mut answer = Vec::new();
        while self.ops.len() < length {
            let first = self.ops.len();
            let (mut bytes, mut ours) = (Vec::with_capacity(BATCH_BYTES), Vec::with_capacity(BATCH_BYTES));
            for _ in 0..BATCH {
                let op = next(&answer);
                answer = player.play(&op);
                frame(&mut bytes, &op.encode());
                frame(&mut ours, &answer);
                self.ops.push(op);
            }
            self.peer.send(bytes, BATCH);
            self.asked.push_back(Asked { first, ours });
            if self.asked.len() > AHEAD
                && let Some(at) = self.compare()
            {
                return Some(at);
            }
        }
        while !self.asked.is_empty() {
            if let Some(at) = self.compare() {
                return Some(at);
            }
        }
        None
    }

    fn run(&mut self, seed: u64) -> Option<usize> {
        if seed.is_multiple_of(MAPS) {
            let mut session = map_session(seed);
            return self.play(|_| session.next(), SESSION);
        }
        let mut session = Session::new(seed);
        self.play(|answer| session.next(answer), SESSION)
    }
}

fn is_command(op: &Op) -> bool {
    !matches!(op, Op::Tick { .. } | Op::Move { .. } | Op::State | Op::Data { .. } | Op::Done { .. })
}

fn first_seed() -> u64 {
    std::env::var("GNSTOR_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Fuzzes for this number of seconds.
pub(crate) fn fuzz(program: &str, seconds: u64) -> Result<(), String> {
    let mut campaign =
        Campaign { program, peer: Peer::start(program)?, asked: VecDeque::new(), ops: Vec::new() };
    let (begin, mut operations, mut commands) = (Instant::now(), 0u64, 0u64);
    for seed in first_seed().. {
        let found = campaign.run(seed);
        operations += campaign.ops.len() as u64;
        commands += campaign.ops.iter().filter(|op| is_command(op)).count() as u64;
        if let Some(at) = found {
            campaign.ops.truncate(at + 1);
            return Err(report(&campaign, seed, begin.elapsed()));
        }
        if begin.elapsed() >= Duration::from_secs(seconds) {
            let took = begin.elapsed();
            let rate = |count: u64| u128::from(count) * 1000 / took.as_millis().max(1);
            println!(
                "no difference in {commands} commands ({operations} operations), seeds {} to {seed}, {:.0?}: \
                 {} commands/s, {} operations/s",
                first_seed(),
                took,
                rate(commands),
                rate(operations)
            );
            return Ok(());
        }
    }
    Ok(())
}

/// Shrinks a difference to a vector file.
fn report(campaign: &Campaign<'_>, seed: u64, took: Duration) -> String {
    let ops = shrink(campaign.program, campaign.ops.clone());
    let count = ops.len();
    let mut script =
        Script { file: format!("found-{seed}"), name: format!("found by fuzzing, seed {seed}"), ops };
    if matches!(script.ops[0], Op::Device { .. }) {
        script.ops.push(Op::State);
    }
    let folder = std::env::var("GNSTOR_FOUND").unwrap_or_else(|_| ".".into());
    let path = format!("{folder}/{}.gnv", script.file);
    let kept = std::fs::write(&path, script.file_bytes());
    let tail = script.ops[count.saturating_sub(4)..count].iter().map(|op| format!("\n  {op:?}"));
    format!(
        "a difference after {took:.1?} at seed {seed}, shrunk to {count} operations in {path} ({kept:?}), \
         the last:{}",
        tail.collect::<String>()
    )
}

/// Writes drawn operations to a file, for the module: it and the program must answer the same.
pub(crate) fn record(file: &str, commands: u64) -> Result<(), String> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(file).map_err(|error| error.to_string())?);
    let (mut done, mut seed) = (0, first_seed());
    while done < commands {
        let mut player = Player::default();
        let (mut session, mut maps) = (Session::new(seed), map_session(seed));
        let mut answer = Vec::new();
        for _ in 0..SESSION {
            let op = if seed.is_multiple_of(MAPS) { maps.next() } else { session.next(&answer) };
            answer = player.play(&op);
            done += u64::from(is_command(&op));
            let mut bytes = Vec::new();
            frame(&mut bytes, &op.encode());
            out.write_all(&bytes).map_err(|error| error.to_string())?;
        }
        seed += 1;
    }
    println!("{done} commands");
    out.flush().map_err(|error| error.to_string())
}
