// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames over a TCP stream that never blocks.
//!
//! Buffers have the size that is in use. The streams of a thread share its one read buffer. A stream keeps
//! only the bytes of frames that have not arrived whole, or that its peer has not taken.

use super::alarm::Alarm;
use super::frame::{Frame, MAX_FRAME};
use super::limits::{CLIENT_OUTBOX_BYTES, End, FEW_BYTES, MOST_OUTBOX_BYTES, STALL};
use super::places::Place;
use super::tls::{ClientTls, ServerTls, Stream};
use gnstor_base::time::Time;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Largest number of bytes that one system call reads.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// A TCP stream that never blocks, with TLS or without.
#[derive(Debug)]
pub struct Wire {
    stream: Stream,
    inbox: Vec<u8>,
    taken: usize,
    pub(super) outbox: VecDeque<u8>,
    /// Bytes of the outbox beyond which nothing is read, unless memory is scarce.
    limit: usize,
    dead: Option<String>,
    /// The last read emptied the stream.
    is_drained: bool,
    /// The last flush could not send everything.
    is_blocked: bool,
    /// Bytes that the stream took since `stalled_since`.
    moved: usize,
    /// Time since which the peer takes too few bytes, although there are some.
    stalled_since: Option<Time>,
    alarm: Option<(u32, Arc<Alarm>)>,
    has_rung: bool,
    place: Option<Place>,
}

impl Wire {
    /// Takes over a connected stream.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn new(stream: TcpStream) -> std::io::Result<Self> {
        Self::over(Stream::Plain(stream))
    }

    /// A client's end: takes over a connected stream, with TLS if `tls` is given. Then it waits for the
    /// handshake with `host`, at most for `within`.
    ///
    /// # Errors
    /// The operating system's error, or the fault of a certificate.
    pub fn client(
        stream: TcpStream,
        tls: Option<&ClientTls>,
        host: &str,
        within: Duration,
    ) -> std::io::Result<Self> {
        match tls {
            None => Self::new(stream),
            Some(tls) => Self::over(tls.hello(stream, host, within)?),
        }
    }

    /// An array's end: takes over an accepted stream, which has a place of its listener. With TLS its
    /// handshake comes later.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn accepted(stream: TcpStream, tls: Option<&ServerTls>, place: Place) -> std::io::Result<Self> {
        let stream = match tls {
            None => Stream::Plain(stream),
            Some(tls) => Stream::accept(stream, tls)?,
        };
        Ok(Self { place: Some(place), ..Self::over(stream)? })
    }

    fn over(stream: Stream) -> std::io::Result<Self> {
        stream.tcp().set_nonblocking(true)?;
        stream.tcp().set_nodelay(true)?;
        Ok(Self {
            stream,
            inbox: Vec::new(),
            taken: 0,
            outbox: VecDeque::new(),
            limit: CLIENT_OUTBOX_BYTES,
            dead: None,
            is_drained: false,
            is_blocked: false,
            moved: 0,
            stalled_since: None,
            alarm: None,
            has_rung: false,
            place: None,
        })
    }

    /// Carries the TLS handshake on as far as bytes have arrived. True: it has ended, perhaps badly; see
    /// [`Wire::dead`].
    pub fn shake_hands(&mut self) -> bool {
        self.flush();
        while self.stream.is_handshaking() && self.dead.is_none() && self.read() {}
        self.flush();
        self.dead.is_some() || !self.stream.is_handshaking()
    }

    /// The descriptor, for a poll outside the transport.
    pub fn descriptor(&self) -> RawFd {
        self.stream.tcp().as_raw_fd()
    }

    /// Address of the peer's host, if the listener keeps an account of it.
    pub fn host_address(&self) -> Option<IpAddr> {
        self.place.as_ref().map(Place::host_address)
    }

    /// Whether the stream must give way to another connection of its host.
    pub fn must_end(&self) -> bool {
        self.place.as_ref().is_some_and(Place::must_end)
    }

    /// The stream's place in its host's account, if the listener keeps one.
    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Sets the limit of the outbox. Above it nothing more is read.
    pub(super) fn limit_outbox(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// From here on the registry's poll, and the alarm, name the stream by `token` when it must be polled.
    pub(crate) fn watch(&mut self, registry: &Registry, token: u32, alarm: &Arc<Alarm>) -> bool {
        self.alarm = Some((token, Arc::clone(alarm)));
        if let Some(place) = &self.place {
            let alarm = Arc::clone(alarm);
            place.on_news(move || alarm.ring_and_wake(token));
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut SourceFd(&self.descriptor()), Token(token as usize), interest).is_ok()
    }

    /// The stream's token at the transport that polls it.
    pub(crate) fn token(&self) -> Option<u32> {
        self.alarm.as_ref().map(|(token, _)| *token)
    }

    /// Why the stream is unusable, if it is.
    pub fn dead(&self) -> Option<&str> {
        self.dead.as_deref()
    }

    /// Ends the stream. If the peer reads, it hears the reason.
    pub(super) fn end(&mut self, end: End) {
        self.send(&Frame::End { why: end.code() });
        self.flush();
        self.die(end.why());
    }

    /// Closes a stream that was not accepted. The peer hears the reason if the stream has room for it.
    pub fn refuse(mut self, end: End) {
        self.end(end);
    }

    /// Notes that the peer has ended the stream.
    pub(crate) fn ended(&mut self, why: u16) {
        self.die(End::of(why).map_or("the peer ended the stream", End::why));
    }

    fn die(&mut self, why: &str) {
        self.dead.get_or_insert_with(|| why.into());
        (self.inbox, self.taken, self.outbox) = (Vec::new(), 0, VecDeque::new());
        self.count_held();
    }

    /// Counts the memory that the stream holds, without the first [`FEW_BYTES`].
    fn count_held(&mut self) {
        let held = self.inbox.capacity() + self.outbox.capacity() + self.stream.unsent();
        if let Some(place) = &mut self.place {
            place.count_held(held.saturating_sub(FEW_BYTES));
        }
    }

    /// Queues a frame; [`Wire::flush`] and [`Wire::poll`] send it.
    pub fn send(&mut self, frame: &Frame) {
        if self.dead.is_some() {
            return;
        }
        frame.encode(&mut self.outbox);
        if self.outbox.len() > MOST_OUTBOX_BYTES {
            self.die(End::Outbox.why());
        }
        self.count_held();
        if let Some((token, alarm)) = self.alarm.as_ref().filter(|_| !self.has_rung) {
            alarm.ring(*token);
            self.has_rung = true;
        }
    }

    /// Sends as much as the stream takes.
    pub fn flush(&mut self) {
        self.has_rung = false;
        if self.dead.is_some() {
            return;
        }
        match self.stream.write(&mut self.outbox) {
            Ok(moved) => self.moved += moved,
            Err(e) => self.die(&e.to_string()),
        }
        self.is_blocked = !self.outbox.is_empty() || self.stream.wants_write();
        self.count_held();
    }

    /// Bytes that the outbox may hold now.
    fn room(&self) -> usize {
        let is_scarce = self.place.as_ref().is_some_and(Place::is_scarce);
        if is_scarce { self.limit.min(FEW_BYTES) } else { self.limit }
    }

    /// Whether the outbox has room for more data.
    pub(super) fn has_room(&self) -> bool {
        self.outbox.len() < self.room()
    }

    /// Whether only new bytes, or room in the stream, give it something to do.
    pub(crate) fn rests(&self) -> bool {
        self.dead.is_none() && (self.is_drained || !self.has_room())
    }

    /// The peer's time to take something begins anew: this end did not run.
    pub(crate) fn wait_anew(&mut self, now: Time) {
        self.stalled_since = self.stalled_since.map(|since| since.max(now));
    }

    /// Ends a stream whose peer takes nothing, and frees unused memory. Call this now and then.
    pub(crate) fn tick(&mut self, now: Time) {
        let is_sent = !self.is_blocked;
        if is_sent || self.moved >= FEW_BYTES {
            (self.stalled_since, self.moved) = (None, 0);
        }
        if !is_sent && now.since(*self.stalled_since.get_or_insert(now)) >= STALL {
            self.die(End::Stalled.why());
        }
        self.give_memory_back();
    }

    /// A buffer that was large gives back what it does not need now.
    fn give_memory_back(&mut self) {
        self.inbox.drain(..self.taken);
        self.taken = 0;
        let fit = |len: usize, capacity: usize| {
            let needed = if len == 0 { 0 } else { len.max(FEW_BYTES) };
            (capacity > 2 * needed).then_some(needed)
        };
        if let Some(bytes) = fit(self.outbox.len(), self.outbox.capacity()) {
            self.outbox.shrink_to(bytes);
        }
        if let Some(bytes) = fit(self.inbox.len(), self.inbox.capacity()) {
            self.inbox.shrink_to(bytes);
        }
        self.count_held();
    }

    /// The next frame, if one has arrived whole. While the peer does not take its data, nothing is read from
    /// it.
    ///
    /// Outgoing data is sent before the next read of the stream, and not for each frame. A system call for
    /// each answer would cost more than the answer.
    pub fn poll(&mut self) -> Option<Frame> {
        loop {
            if !self.has_room() {
                self.flush();
            }
            if !self.has_room() {
                return None;
            }
            if let Some(frame) = self.parse() {
                return Some(frame);
            }
            self.flush();
            if self.dead.is_some() || !self.read() {
                return None;
            }
        }
    }

    /// Reads the available bytes. Returns whether there were any.
    fn read(&mut self) -> bool {
        self.inbox.drain(..self.taken);
        self.taken = 0;
        self.is_drained = false;
        let most = self.room().min(READ_BYTES);
        loop {
            let (stream, inbox) = (&mut self.stream, &mut self.inbox);
            let got = READ.with_borrow_mut(|buffer| stream.read(&mut buffer[..most], inbox));
            match got {
                Ok(0) => self.die("the peer closed the stream"),
                Ok(_) => {
                    self.count_held();
                    return true;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.is_drained = true,
                Err(e) => self.die(&e.to_string()),
            }
            return false;
        }
    }

    fn parse(&mut self) -> Option<Frame> {
        let unread = &self.inbox[self.taken..];
        let length = u32::from_le_bytes(*unread.first_chunk()?) as usize;
        if length > MAX_FRAME {
            // Type and version of a TLS record: an alert, or the first message of a client.
            let is_tls = matches!(unread, [0x15 | 0x16, 3, ..]);
            let why = format!("a frame of {length} bytes is longer than any");
            self.die(if is_tls { "the peer speaks TLS, and this end does not" } else { &why });
            return None;
        }
        let body = unread.get(4..4 + length)?;
        let frame = Frame::decode(body);
        self.taken += 4 + length;
        if frame.is_none() {
            self.die("bytes that are not a frame");
        }
        frame
    }

    /// Reads bytes without decoding them.
    #[cfg(test)]
    pub(crate) fn take_raw(&mut self, most: usize) -> usize {
        self.stream.read(&mut vec![0; most], &mut Vec::new()).unwrap_or(0)
    }

    /// Bytes of memory that the stream holds, itself not counted.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.inbox.capacity() + self.outbox.capacity()
    }
}
