// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How faults begin and end, and the moments at which some begin.

use super::array::{Array, SSDS, pause};
use super::clients::CLIENTS;
use super::net::{self, Cut, Node};
use super::plan::{Fault, Moment, Planned};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// A moment that does not come within this time has come.
const MOMENT: Duration = Duration::from_secs(3);
/// How long two daemons go on side by side.
const BESIDE_MS: u64 = 400;

impl Fault {
    fn begin(self, array: &mut Array) -> Result<(), String> {
        let other = 1 - array.leader;
        match self {
            Self::Kill(ssd) => array.end_ssd(ssd, Signal::SIGKILL),
            Self::Term(ssd) => array.end_ssd(ssd, Signal::SIGTERM),
            Self::Power(ssd) => array.end_ssd(ssd, Signal::SIGUSR1),
            Self::Stop(ssd) => {
                array.ssds[ssd].iter().for_each(|process| process.signal(Signal::SIGSTOP));
                Ok(())
            }
            Self::Storm => (0..SSDS).try_for_each(|ssd| array.end_ssd(ssd, Signal::SIGKILL)),
            Self::Apart(ssd, client) => {
                [Node::Ssd(ssd), Node::Client(client)].into_iter().try_for_each(|node| net::put(node, true))
            }
            // A refusal is an answer, too: an array may have too little room, or be without a daemon.
            Self::Drain(ssd) => array.command(&["fleet", "drain", &ssd.to_string()]).map(drop),
            Self::Fail(ssd) => array.command(&["fleet", "fail", &ssd.to_string()]).map(drop),
            Self::Cut(node, cut) => cut.begin(node),
            Self::DaemonDies => {
                array.end_daemon(array.leader, Signal::SIGKILL);
                Ok(())
            }
            Self::DaemonJoins => array.start_daemon(other),
            Self::DaemonStops => {
                array.daemons[array.leader].iter().for_each(|process| process.signal(Signal::SIGSTOP));
                array.start_daemon(other)?;
                array.lead_all(other)
            }
            Self::ClientDies(client) => {
                array.clients[client].kill();
                Ok(())
            }
            Self::ClientLeaves(client, ssd) => Cut::To(Node::Ssd(ssd)).begin(Node::Client(client)),
            Self::ClientStops(client) => {
                array.clients[client].stop();
                Ok(())
            }
        }
    }

    fn end(self, array: &mut Array) -> Result<(), String> {
        let other = 1 - array.leader;
        match self {
            Self::Kill(ssd) | Self::Term(ssd) | Self::Power(ssd) => array.start_ssd(ssd),
            Self::Stop(ssd) => {
                array.ssds[ssd].iter().for_each(|process| process.signal(Signal::SIGCONT));
                Ok(())
            }
            Self::Storm => (0..SSDS).try_for_each(|ssd| array.start_ssd(ssd)),
            Self::Apart(ssd, client) => {
                [Node::Ssd(ssd), Node::Client(client)].into_iter().try_for_each(|node| net::put(node, false))
            }
            Self::Drain(ssd) | Self::Fail(ssd) => {
                array.command(&["fleet", "resume", &ssd.to_string()]).map(drop)
            }
            Self::Cut(node, cut) => cut.end(node),
            Self::DaemonDies => {
                array.start_daemon(other)?;
                array.lead_all(other)
            }
            Self::DaemonJoins => {
                for client in 0..CLIENTS {
                    net::lead_to(Some(Node::Client(client)), other)?;
                    pause(BESIDE_MS / CLIENTS as u64);
                }
                array.lead_all(other)?;
                pause(BESIDE_MS);
                array.end_daemon(1 - other, Signal::SIGTERM);
                Ok(())
            }
            Self::DaemonStops => {
                array.daemons[other].iter().for_each(|process| process.signal(Signal::SIGCONT));
                pause(BESIDE_MS);
                array.end_daemon(other, Signal::SIGKILL);
                Ok(())
            }
            Self::ClientDies(client) => {
                let settings = array.settings.clone();
                array.clients[client].start_again(&settings)
            }
            Self::ClientLeaves(client, ssd) => {
                array.clients[client].kill();
                Cut::To(Node::Ssd(ssd)).end(Node::Client(client))?;
                let settings = array.settings.clone();
                array.clients[client].start_again(&settings)
            }
            Self::ClientStops(client) => {
                array.clients[client].go_on();
                Ok(())
            }
        }
    }
}

/// What the daemon has said, and shows.
struct Watch {
    begun: Instant,
    /// Bytes of the log of each daemon when the round began.
    logs: [usize; 2],
}

fn log(array: &Array, daemon: usize) -> Vec<u8> {
    std::fs::read(array.settings.out.join(format!("{}.log", Node::Daemon(daemon).name()))).unwrap_or_default()
}

impl Watch {
    fn new(array: &Array) -> Self {
        Self { begun: Instant::now(), logs: [0, 1].map(|daemon| log(array, daemon).len()) }
    }

    fn has_come(&self, array: &Array, moment: Moment) -> bool {
        let shows = |is_so: &dyn Fn(&serde_json::Value) -> bool| {
            array.fleet().is_ok_and(|(_, shown)| is_so(&shown)) || self.begun.elapsed() > MOMENT
        };
        match moment {
            Moment::At(ms) => self.begun.elapsed() >= Duration::from_millis(ms),
            Moment::Hold => {
                let says = |daemon: usize| {
                    let text = log(array, daemon);
                    let new = &text[self.logs[daemon].min(text.len())..];
                    String::from_utf8_lossy(new).contains("the fleet map changes")
                };
                says(array.leader) || self.begun.elapsed() > MOMENT
            }
            Moment::Settle => shows(&|fleet| fleet["settling_volumes"].as_u64() > Some(0)),
            Moment::Fill => shows(&|fleet| {
                let ssds = fleet["ssds"].as_array();
                ssds.is_some_and(|ssds| ssds.iter().any(|ssd| ssd["filling_groups"].as_u64() > Some(0)))
            }),
        }
    }
}

/// Lets the faults happen, from the beginning of the first one to the end of the last one.
pub(crate) fn play(array: &mut Array, plan: &[Planned]) -> Result<(), String> {
    let watch = Watch::new(array);
    let mut waiting: Vec<Planned> = plan.to_vec();
    let mut acting: Vec<(Instant, Planned)> = Vec::new();
    while !(waiting.is_empty() && acting.is_empty()) {
        let (now, later) = waiting.into_iter().partition(|planned| watch.has_come(array, planned.moment));
        waiting = later;
        let now: Vec<Planned> = now;
        for planned in now {
            if planned.moment.is_aimed() && watch.begun.elapsed() > MOMENT {
                println!("  the moment did not come");
            }
            planned.fault.begin(array)?;
            acting.push((Instant::now(), planned));
        }
        let is_over = |(begun, planned): &(Instant, Planned)| {
            begun.elapsed() >= Duration::from_millis(planned.lasts_ms)
        };
        let (over, rest): (Vec<_>, Vec<_>) = acting.into_iter().partition(is_over);
        acting = rest;
        for (_, planned) in over {
            planned.fault.end(array)?;
        }
        pause(5);
    }
    Ok(())
}
