// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client process. It takes write leases in turns with others, or only reads, and writes each call down.
//!
//! It reads orders from standard input, a line each, and answers with the same line when it is done.
//!
//! | order | what the client does |
//! |---|---|
//! | `pause` | gives all files back, and calls nothing |
//! | `go` | goes on, without an answer |
//! | `hurry` | goes on, and only writes, without an answer |
//! | `only N` | goes on, and reads what SSD N serves, without an answer |
//! | `copies` | reads each copy of each volume |
//! | `end` | ends, without an answer |
#![expect(clippy::disallowed_methods, reason = "the runtime part of this program: clocks, threads, pauses")]

mod copies;
mod record;
mod turn;
mod zero;

use crate::dice::Dice;
use libgnstor::{
    Choice, Client, ConnectOptions, Device, Error, Node, RcTransport, Residency, TransportConfig,
    TransportThreads,
};
use record::Recorder;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;
use turn::Turns;

/// Deadline of an I/O: faults last at most 4 s, and two may follow each other.
const IO_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause behind a connection that could not be made.
const REST: Duration = Duration::from_millis(200);

/// The command line: `gnstor-chaos-client DAEMON NAME RUN SEED WRITER|- HISTORY`.
#[derive(Clone, Debug)]
struct Args {
    daemon: String,
    name: String,
    /// How often this client was started before.
    run: u64,
    seed: u64,
    /// Number of the writer; `None`: a reader.
    writer: Option<u32>,
    history: PathBuf,
}

fn args() -> Result<Args, String> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let [daemon, name, run, seed, writer, history] = all.as_slice() else {
        return Err("arguments: DAEMON NAME RUN SEED WRITER|- HISTORY".into());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let writer = match writer.as_str() {
        "-" => None,
        text => Some(text.parse().map_err(|e| format!("{text}: {e}"))?),
    };
    let (run, seed) = (number(run)?, number(seed)?);
    Ok(Args { daemon: daemon.clone(), name: name.clone(), run, seed, writer, history: history.into() })
}

/// A client and the engine that carries its messages. The engine ends last.
pub(crate) struct Connected {
    client: Arc<Client>,
    engine: TransportThreads,
}

fn connect(args: &Args) -> Result<Connected, Error> {
    let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())])
        .map_err(|cause| Error::Os { what: "an engine".into(), cause })?;
    let node = Node::new(engine.handle(), &Device::open(Choice::Host)?, Residency::TwoKernels)?;
    let mut options = ConnectOptions::new(args.daemon.clone());
    options.name = format!("{}.{}", args.name, args.run);
    options.io_timeout = IO_TIMEOUT;
    Ok(Connected { client: Client::connect(&Arc::new(node), &options)?, engine })
}

/// What the conductor wants.
struct Orders {
    lines: Receiver<String>,
    last: String,
}

impl Orders {
    fn new() -> Self {
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Self { lines, last: "go".into() }
    }

    /// Whether a new order came since the last call. A conductor that is gone means the end.
    fn is_new(&mut self) -> bool {
        match self.lines.try_recv() {
            Ok(line) => self.last = line,
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => self.last = "end".into(),
        }
        true
    }
}

/// Runs the client until it is told to end.
pub fn run() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(why) => {
            eprintln!("gnstor-chaos-client: {why}");
            return ExitCode::from(2);
        }
    };
    let who = format!("{}.{}", args.name, args.run);
    let recorder = match Recorder::open(&args.history, who) {
        Ok(recorder) => recorder,
        Err(why) => {
            eprintln!("gnstor-chaos-client: {}: {why}", args.history.display());
            return ExitCode::FAILURE;
        }
    };
    let dice = Dice::new(args.seed, args.run);
    let mut turns = Turns::new(recorder, dice, args.writer);
    let (mut orders, mut connected) = (Orders::new(), None);
    loop {
        orders.is_new();
        match orders.last.as_str() {
            "end" => return ExitCode::SUCCESS,
            order if is_load(order) => {
                turns.hurries = order == "hurry";
                turns.only = order.strip_prefix("only ").and_then(|number| number.parse().ok());
            }
            // A client that is told to pause has given all files back: no turn is under way here.
            "copies" if connected.is_some() => {
                let all = connected.as_ref().expect("it was just there");
                copies::read_all(&mut turns, all);
                answer(&mut orders);
                continue;
            }
            "pause" => {
                answer(&mut orders);
                continue;
            }
            _ => {}
        }
        let Some(all) = connected.take().or_else(|| try_connect(&args)) else { continue };
        if !is_load(&orders.last) || turns.turn(&all, || orders.is_new()) {
            connected = Some(all);
        }
    }
}

/// Whether the client is to take turns.
fn is_load(order: &str) -> bool {
    order == "go" || order == "hurry" || order.starts_with("only ")
}

fn try_connect(args: &Args) -> Option<Connected> {
    connect(args)
        .inspect_err(|why| {
            eprintln!("{}.{}: {why}", args.name, args.run);
            std::thread::sleep(REST);
        })
        .ok()
}

/// Says that the last order is carried out, and waits for the next one.
fn answer(orders: &mut Orders) {
    println!("{}", orders.last);
    orders.last = orders.lines.recv().unwrap_or_else(|_| "end".into());
}
