// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program at the other end of a pipe. Batches of operations go in and answers come out, while the
//! firmware plays the next batch.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Longest time for a batch.
const DEADLINE: Duration = Duration::from_secs(60);

/// The other process.
pub(crate) struct Peer {
    child: Child,
    ops: Option<Sender<(Vec<u8>, usize)>>,
    answers: Receiver<Option<Vec<u8>>>,
}

/// Reads the answers of `count` operations. Each follows its length.
fn read_answers(from: &mut impl Read, count: usize) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::with_capacity(32 * count);
    for _ in 0..count {
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let length = u32::from_le_bytes(head) as usize;
        all.extend_from_slice(&head);
        let at = all.len();
        all.resize(at + length, 0);
        from.read_exact(&mut all[at..])?;
    }
    Ok(all)
}

impl Peer {
    pub(crate) fn start(program: &str) -> Result<Self, String> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let mut input = child.stdin.take().expect("piped");
        let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let (ops, to_write) = channel::<(Vec<u8>, usize)>();
        let (counts, to_read) = channel::<usize>();
        let (done, answers) = channel();
        std::thread::spawn(move || {
            for (bytes, count) in to_write {
                if counts.send(count).is_err() || input.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        std::thread::spawn(move || {
            for count in to_read {
                let read = read_answers(&mut output, count).ok();
                let is_over = read.is_none();
                if done.send(read).is_err() || is_over {
                    return;
                }
            }
        });
        Ok(Self { child, ops: Some(ops), answers })
    }

    /// Sends operations, each after its length.
    pub(crate) fn send(&self, bytes: Vec<u8>, count: usize) {
        // A program that has ended is noticed by its missing answers.
        let _ = self.ops.as_ref().expect("open").send((bytes, count));
    }

    /// The answers to the oldest batch; `None`: the program has ended, or is late.
    pub(crate) fn answers(&self) -> Option<Vec<u8>> {
        self.answers.recv_timeout(DEADLINE).ok().flatten()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.ops = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Appends the length of bytes, and the bytes.
pub(crate) fn frame(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).expect("short").to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The first answer that differs: its number. `None` in the second list: there is none.
pub(crate) fn first_difference(ours: &[u8], theirs: &[u8]) -> Option<usize> {
    if ours == theirs {
        return None;
    }
    let next = |from: &mut usize, all: &[u8]| -> Option<Vec<u8>> {
        let head = all.get(*from..*from + 4)?;
        let length = u32::from_le_bytes(head.try_into().ok()?) as usize;
        let answer = all.get(*from + 4..*from + 4 + length)?.to_vec();
        *from += 4 + length;
        Some(answer)
    };
    let (mut here, mut there) = (0, 0);
    for number in 0.. {
        let (one, other) = (next(&mut here, ours), next(&mut there, theirs));
        if one != other {
            return Some(number);
        }
        if one.is_none() {
            break;
        }
    }
    Some(0)
}
