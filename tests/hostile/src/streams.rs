// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks by the number of connections, or by how slowly they bring their bytes.

use crate::attacks::Attacker;
use crate::frames::{self, kind};
use crate::hello::client_hello;
use crate::talk::{Talk, request};
use std::time::Duration;

/// Connections that a flood holds open beside other attacks; a process may have 1,024 files.
pub(crate) const FLOOD: usize = 800;
/// Most connections of a flood that is the only attack. It leaves some of the process's files.
const ALONE: usize = 5000;
const SPARED: usize = 100;
/// Files of a process by default. A flood with more of them is no faster than this pause between 20 connects.
const FILES: usize = 1024;
const FLOOD_PACE: Duration = Duration::from_millis(20);
/// Number of connections of a slow attack.
const SLOW: usize = 64;
const SLOW_BYTES: usize = 256;
/// Pause between two bytes of a connection: a Send takes a third of a second, a Connect with its data longer.
const PACE: Duration = Duration::from_millis(4);
/// Requests for new keys on one connection.
const KEY_UPDATES: usize = 2000;
/// Time for the array's answer to the first message of a handshake.
const ANSWER: Duration = Duration::from_millis(100);

/// Connections that a flood may hold as the only attack.
pub(crate) fn flood_alone() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = files.and_then(|line| line.split_whitespace().next()?.parse().ok());
    soft.unwrap_or(FLOOD).saturating_sub(SPARED).clamp(FLOOD, ALONE)
}

impl Attacker<'_> {
    pub(crate) fn silent(&mut self, held: &mut Vec<Talk>) -> std::io::Result<()> {
        if held.len() > 200 {
            held.clear();
        }
        for _ in 0..20 {
            let mut talk = Talk::connect(self.address)?;
            if self.random.below(2) == 0 {
                self.say(&mut talk, &[64, 0, 0, 0, kind::SEND])?;
            }
            held.push(talk);
        }
        Ok(())
    }

    pub(crate) fn flicker(&mut self) -> std::io::Result<()> {
        for _ in 0..20 {
            let mut talk = Talk::connect(self.address)?;
            self.say(&mut talk, &frames::connect(1, self.ssd, &request(0, 32)))?;
        }
        Ok(())
    }

    /// As many connections as the process may have. With those of a few such processes a port has given all
    /// places to their host, so that one gives way to each new one.
    pub(crate) fn flood(&mut self, held: &mut Vec<Talk>) -> std::io::Result<()> {
        if held.len() >= self.flood {
            held.drain(..self.flood / 8);
        }
        for _ in 0..20 {
            held.push(Talk::connect(self.address)?);
        }
        // A host that opens more than an engine can close is refused all further connections. Here each new
        // one is to make an older one give way.
        if self.flood > FILES {
            std::thread::sleep(FLOOD_PACE);
        }
        Ok(())
    }

    /// A stream that brings one byte at a time makes the array look at it each time.
    pub(crate) fn slow(&mut self) -> std::io::Result<()> {
        let stream: Vec<u8> = self.recorded.iter().flatten().copied().take(SLOW_BYTES).collect();
        let mut talks = Vec::with_capacity(SLOW);
        for _ in 0..SLOW {
            talks.push(Talk::connect(self.address)?);
        }
        for byte in stream {
            for talk in &mut talks {
                talk.send(&[byte])?;
            }
            std::thread::sleep(PACE);
        }
        self.frames += SLOW as u64;
        Ok(())
    }

    pub(crate) fn key_updates(&mut self) -> std::io::Result<()> {
        let mut talk = Talk::connect(self.address)?;
        for frame in self.recorded {
            talk.ask_for_keys()?;
            self.say(&mut talk, frame)?;
        }
        for _ in 0..KEY_UPDATES {
            self.frames += 1;
            talk.ask_for_keys()?;
        }
        // The array has closed the connection, or does so now.
        talk.receive(ANSWER).map(drop)
    }

    pub(crate) fn hellos(&mut self, held: &mut Vec<Talk>) -> std::io::Result<()> {
        if held.len() > 200 {
            held.clear();
        }
        // An answer has cost the array a key exchange and a signature. The client takes the first bytes of
        // it and closes, so that the array has room for the next handshake; or it holds the connection.
        let holds = self.random.below(4) == 0;
        for _ in 0..20 {
            let mut talk = Talk::connect(self.address)?;
            let hello = client_hello(self.random);
            self.say(&mut talk, &hello)?;
            if holds {
                held.push(talk);
            } else {
                talk.first_byte(ANSWER)?;
            }
        }
        Ok(())
    }
}
