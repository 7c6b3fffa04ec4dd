// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames over a TCP stream that never blocks.

use super::frame::{Frame, MAX_FRAME};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// A TCP stream that never blocks.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    inbox: Vec<u8>,
    taken: usize,
    pub(super) outbox: VecDeque<u8>,
    dead: Option<String>,
}

impl Wire {
    /// Takes over a connected stream.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn new(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, inbox: Vec::new(), taken: 0, outbox: VecDeque::new(), dead: None })
    }

    /// Why the stream is of no more use.
    pub fn dead(&self) -> Option<&str> {
        self.dead.as_deref()
    }

    /// Queues a frame; [`Wire::flush`] and [`Wire::poll`] send it.
    pub fn send(&mut self, frame: &Frame) {
        if self.dead.is_none() {
            frame.encode(&mut self.outbox);
        }
    }

    /// Sends what the stream takes.
    pub fn flush(&mut self) {
        while self.dead.is_none() && !self.outbox.is_empty() {
            match self.stream.write(self.outbox.as_slices().0) {
                Ok(0) => self.dead = Some("the stream takes no more bytes".into()),
                Ok(n) => drop(self.outbox.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.dead = Some(e.to_string()),
            }
        }
    }

    /// The next frame, if one has arrived whole.
    pub fn poll(&mut self) -> Option<Frame> {
        self.flush();
        loop {
            if let Some(frame) = self.parse() {
                return Some(frame);
            }
            if self.dead.is_some() {
                return None;
            }
            self.inbox.drain(..self.taken);
            self.taken = 0;
            let old = self.inbox.len();
            self.inbox.resize(old + (64 << 10), 0);
            let got = self.stream.read(&mut self.inbox[old..]);
            self.inbox.truncate(old + got.as_ref().map_or(0, |n| *n));
            match got {
                Ok(0) => self.dead = Some("the peer closed the stream".into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.dead = Some(e.to_string()),
            }
        }
    }

    fn parse(&mut self) -> Option<Frame> {
        let unread = &self.inbox[self.taken..];
        let length = u32::from_le_bytes(*unread.first_chunk()?) as usize;
        if length > MAX_FRAME {
            self.dead = Some(format!("a frame of {length} bytes is longer than any"));
            return None;
        }
        let body = unread.get(4..4 + length)?;
        let frame = Frame::decode(body);
        self.taken += 4 + length;
        if frame.is_none() {
            self.dead = Some("bytes that are not a frame".into());
        }
        frame
    }
}
