// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor up --standby-of`: several daemons for one array. One serves, and the others stand by.
//!
//! ```text
//!   stands by --no other daemon serves for a time--> takes over: a higher term --> serves
//!       ^                                                                            |
//!       '------- rests ----- a newer daemon has taken over, or the start failed -----'
//! ```
//! Terms decide who leads. The SSDs refuse the daemon with the lower term, and it stands by again. Two
//! daemons that cannot reach each other, but reach the SSDs, would replace each other again and again. So
//! each rests twice as long as the time before.

#![expect(clippy::disallowed_methods, reason = "the clock and pauses of a command")]

use crate::args::UpArgs;
use crate::files::readable;
use gnstor_console::{CliError, Steps, outln, print_json};
use libgnstor::{Credentials, Health, Probe};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Time without a daemon that serves, after which this one takes over.
const SILENT: Duration = Duration::from_millis(700);
/// Where several stand by, they take over in the order of their addresses. Each waits so long for each one
/// before it.
const TURN: Duration = Duration::from_millis(1_500);
/// A daemon that is there and does not say that it serves is waited for so long. It may be starting.
const STARTS: Duration = Duration::from_millis(1_500);
/// Interval of the questions, and the time for an answer.
const LOOK: Duration = Duration::from_millis(100);
const ANSWERS: Duration = Duration::from_millis(500);
/// Time in which the SSDs have to answer where this daemon takes over. One may have died with the other
/// daemon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after another daemon has taken over, or a start has failed. It doubles each time, up to the longest.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// A daemon that has served for so long rests shortly again.
const SERVED: Duration = Duration::from_secs(120);

#[derive(Serialize)]
struct StandingBy<'a> {
    /// The daemons of which one serves.
    standby_of: &'a [String],
}

/// Whether no other daemon serves.
#[derive(Debug, Default)]
struct Watch {
    /// Of each other daemon, whether it has served without a gap in which it was not there.
    served: Vec<bool>,
    silent_since: Option<Instant>,
    starting_since: Option<Instant>,
}

impl Watch {
    /// Takes what the others have said. Returns true if this daemon has to take over.
    fn is_over(&mut self, said: &[Health], now: Instant, silent: Duration) -> bool {
        self.served.resize(said.len(), false);
        // A daemon that has served, and only accepts connections now, does not start: it stands still.
        let starts = said.iter().zip(&self.served).any(|(said, served)| *said == Health::Starts && !served);
        for (served, said) in self.served.iter_mut().zip(said) {
            *served = *said == Health::Serves || *served && *said == Health::Starts;
        }
        if said.contains(&Health::Serves) {
            (self.silent_since, self.starting_since) = (None, None);
            return false;
        }
        if starts {
            let since = *self.starting_since.get_or_insert(now);
            if now.duration_since(since) < STARTS {
                self.silent_since = None;
                return false;
            }
        }
        now.duration_since(*self.silent_since.get_or_insert(now)) >= silent
    }
}

/// Serves whenever no other daemon does, until Ctrl-C.
///
/// # Errors
/// [`CliError`]: a file that cannot be read, or what `serve` calls wrong with the options.
pub(crate) fn run(
    args: &UpArgs,
    steps: &Steps,
    mut serve: impl FnMut() -> Result<(), CliError>,
) -> Result<(), CliError> {
    let own_tls = match args.access.tls.as_slice() {
        [certificate, key] => Some((certificate.clone(), key.clone())),
        _ => None,
    };
    if own_tls.is_some() && args.daemon_ca.is_none() {
        let why = "a daemon with --tls asks the others by TLS, too: name their CA (--daemon-ca)";
        return Err(CliError::Usage(why.into()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| CliError::Os { what: "starting the RPC runtime".into(), cause })?;
    readable(args.daemon_ca.iter().map(|path| ("--daemon-ca", path.as_path())))?;
    // A daemon may ask for a certificate before it says anything.
    let (tls_cert, tls_key) = own_tls.unzip();
    let credentials = Credentials { tls_ca: args.daemon_ca.clone(), tls_cert, tls_key, ..Default::default() };
    let mut rest = REST;
    loop {
        tell(args);
        let others = args.standby_of.iter().map(|address| Probe::new(address, &credentials));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        let silent = SILENT + TURN * turn(&args.listen.to_string(), &args.standby_of);
        if !runtime.block_on(wait(others, silent, steps)) {
            steps.done("stopped");
            return Ok(());
        }
        if !args.json {
            outln!("  takes over  no daemon of {} serves", args.standby_of.join(", "));
        }
        let begun = Instant::now();
        match serve() {
            Err(error @ (CliError::Usage(_) | CliError::File { .. } | CliError::Interrupted)) => {
                return Err(error);
            }
            Err(error) => {
                rest = if begun.elapsed() > SERVED { REST } else { rest };
                eprintln!("gnstor: {error}; this daemon stands by again, and rests for {} s", rest.as_secs());
                let until = Instant::now() + rest;
                while Instant::now() < until {
                    if steps.interrupted() {
                        return Ok(());
                    }
                    std::thread::sleep(LOOK);
                }
                rest = LONGEST_REST.min(rest * 2);
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// How many of the others that stand by have their turn before this one. One of the others has served, and is
/// taken for the first of them.
fn turn(own: &str, others: &[String]) -> u32 {
    let before = others.iter().filter(|other| other.as_str() < own).count();
    u32::try_from(before).unwrap_or(u32::MAX).saturating_sub(1)
}

fn tell(args: &UpArgs) {
    if args.json {
        return print_json(&StandingBy { standby_of: &args.standby_of });
    }
    outln!("  stands by   of {}: takes over when none of them serves", args.standby_of.join(", "));
}

/// Waits until no other daemon serves. `false`: Ctrl-C.
async fn wait(mut others: Vec<Probe>, silent: Duration, steps: &Steps) -> bool {
    let mut watch = Watch::default();
    while !steps.interrupted() {
        let asked = others.drain(..).map(async |mut other| (other.ask(ANSWERS).await, other));
        let (said, asked): (Vec<Health>, _) =
            asked.collect::<JoinSet<_>>().join_all().await.into_iter().unzip();
        others = asked;
        if watch.is_over(&said, Instant::now(), silent) {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn it_takes_over_after_a_silence_and_waits_for_a_daemon_that_starts() {
        let _deadline = deadline();
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut watch = Watch::default();
        let mut says = |said: &[Health], ms| watch.is_over(said, at(ms), SILENT);
        assert!(!says(&[Health::Serves, Health::Silent], 0));
        assert!(!says(&[Health::Silent, Health::Silent], 100));
        assert!(!says(&[Health::Silent, Health::Silent], 799));
        assert!(!says(&[Health::Silent, Health::Serves], 800), "it is back");
        assert!(!says(&[Health::Silent, Health::Silent], 900));
        assert!(!says(&[Health::Silent, Health::Starts], 1_500), "another one takes over");
        assert!(!says(&[Health::Silent, Health::Silent], 1_600));
        assert!(says(&[Health::Silent, Health::Silent], 2_300));
        let mut watch = Watch::default();
        let mut says = |said: &[Health], ms| watch.is_over(said, at(ms), SILENT);
        assert!(!says(&[Health::Starts], 4_000));
        assert!(!says(&[Health::Starts], 5_499));
        assert!(!says(&[Health::Starts], 5_500), "it never ends its start");
        assert!(says(&[Health::Starts], 6_200));
        assert!(!says(&[Health::Serves], 7_000));
        assert!(!says(&[Health::Starts], 7_100) && says(&[Health::Starts], 7_800), "it stands still");
        assert!(!says(&[Health::Serves], 8_000));
        assert!(!says(&[Health::Silent], 8_100) && !says(&[Health::Starts], 8_200), "it starts anew");
        assert!(!says(&[Health::Starts], 9_600) && !says(&[Health::Starts], 9_800));
        assert!(says(&[Health::Starts], 10_500));
    }

    #[test]
    fn daemons_that_stand_by_have_their_turns_by_their_addresses() {
        let _deadline = deadline();
        let all = ["10.0.0.1:7117", "10.0.0.2:7117", "10.0.0.3:7117"].map(str::to_owned);
        let others = |own: usize| -> Vec<String> {
            all.iter().enumerate().filter(|(at, _)| *at != own).map(|(_, other)| other.clone()).collect()
        };
        assert_eq!([0, 1, 2].map(|own| turn(&all[own], &others(own))), [0, 0, 1]);
        assert_eq!(turn(&all[1], &others(1)[..1]), 0);
    }
}
