// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shortest list of operations found that both ends still answer differently.

use crate::op::Op;
use crate::pipe::{Peer, first_difference, frame};
use crate::play::Player;
use std::time::{Duration, Instant};

/// Longest search for a shorter script.
const LIMIT: Duration = Duration::from_secs(20);

/// Whether both ends differ; the operations begin with an SSD or a map, so nothing is left from before.
fn differs(program: &str, peer: &mut Option<Peer>, ops: &[Op]) -> Option<usize> {
    if peer.is_none() {
        *peer = Peer::start(program).ok();
    }
    let mut player = Player::default();
    let (mut bytes, mut ours) = (Vec::new(), Vec::new());
    for op in ops {
        frame(&mut bytes, &op.encode());
        frame(&mut ours, &player.play(op));
    }
    let other = peer.as_ref()?;
    other.send(bytes, ops.len());
    match other.answers() {
        Some(theirs) => first_difference(&ours, &theirs),
        None => {
            *peer = None;
            Some(ops.len() - 1)
        }
    }
}

/// Removes parts as long as the two ends still differ.
pub(crate) fn shrink(program: &str, ops: Vec<Op>) -> Vec<Op> {
    let begin = Instant::now();
    let mut peer = None;
    let mut best = ops;
    match differs(program, &mut peer, &best) {
        Some(last) => best.truncate(last + 1),
        // The failure depends on something outside of the script, which stays as it is.
        None => return best,
    }
    let mut part = best.len() / 2;
    while part > 0 && begin.elapsed() < LIMIT {
        let mut at = 1;
        let mut has_shrunk = false;
        while at < best.len() && begin.elapsed() < LIMIT {
            let end = (at + part).min(best.len());
            let shorter: Vec<Op> = best[..at].iter().chain(&best[end..]).cloned().collect();
            match differs(program, &mut peer, &shorter) {
                Some(last) => {
                    best = shorter;
                    best.truncate(last + 1);
                    has_shrunk = true;
                }
                None => at = end,
            }
        }
        if part > 1 || !has_shrunk {
            part /= 2;
        }
    }
    best
}
