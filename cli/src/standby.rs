// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor up --standby-of`: several daemons for one array. One serves, and the others stand by.
//!
//! ```text
//!   stands by --no other daemon serves for SILENT--> takes over: a higher term --> serves
//!       ^                                                                            |
//!       '------------------ a newer daemon has taken over, or the start failed ------'
//! ```
//! Terms decide who leads, so two daemons that take over at once do no harm. The SSDs refuse the one with the
//! lower term, and it stands by again.

use crate::args::UpArgs;
use crate::files::readable;
use gnstor_console::{CliError, Steps, outln, print_json};
use libgnstor::{Credentials, Health, Probe};
use serde::Serialize;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Time without a daemon that serves, after which this one takes over.
const SILENT: Duration = Duration::from_millis(700);
/// Two daemons that stand by seldom begin at once: each adds some of this time.
const SPREAD_MS: u64 = 300;
/// A daemon that starts is waited for so long.
const STARTS: Duration = Duration::from_secs(10);
/// Interval of the questions, and the time for an answer.
const LOOK: Duration = Duration::from_millis(100);
const ANSWERS: Duration = Duration::from_millis(500);
/// Pause after a start that failed.
const REST: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct StandingBy<'a> {
    /// The daemons of which one serves.
    standby_of: &'a [String],
}

/// Whether no other daemon serves.
#[derive(Debug, Default)]
struct Watch {
    silent_since: Option<Instant>,
    starting_since: Option<Instant>,
}

impl Watch {
    /// Takes what the others have said. Returns true if this daemon has to take over.
    fn is_over(&mut self, said: &[Health], now: Instant, silent: Duration) -> bool {
        if said.contains(&Health::Serves) {
            *self = Self::default();
            return false;
        }
        if said.contains(&Health::Starts) {
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| CliError::Os { what: "starting the RPC runtime".into(), cause })?;
    readable(args.daemon_ca.iter().map(|path| ("--daemon-ca", path.as_path())))?;
    let credentials = Credentials { tls_ca: args.daemon_ca.clone(), ..Credentials::default() };
    loop {
        tell(args);
        let others = args.standby_of.iter().map(|address| Probe::new(address, &credentials));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        if !runtime.block_on(wait(others, steps)) {
            steps.done("stopped");
            return Ok(());
        }
        if !args.json {
            outln!("  takes over  no daemon of {} serves", args.standby_of.join(", "));
        }
        match serve() {
            Err(error @ (CliError::Usage(_) | CliError::File { .. } | CliError::Interrupted)) => {
                return Err(error);
            }
            Err(error) => {
                eprintln!("gnstor: {error}; this daemon stands by again");
                std::thread::sleep(REST);
            }
            Ok(()) => return Ok(()),
        }
    }
}

fn tell(args: &UpArgs) {
    if args.json {
        return print_json(&StandingBy { standby_of: &args.standby_of });
    }
    outln!("  stands by   of {}: takes over when none of them serves", args.standby_of.join(", "));
}

/// Waits until no other daemon serves. `false`: Ctrl-C.
async fn wait(mut others: Vec<Probe>, steps: &Steps) -> bool {
    let spread = RandomState::new().hash_one(std::process::id()) % SPREAD_MS;
    let (mut watch, silent) = (Watch::default(), SILENT + Duration::from_millis(spread));
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

    #[test]
    fn it_takes_over_after_a_silence_and_waits_for_a_daemon_that_starts() {
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
        assert!(!says(&[Health::Serves], 3_000));
        assert!(!says(&[Health::Starts], 4_000));
        assert!(!says(&[Health::Starts], 13_999));
        assert!(!says(&[Health::Starts], 14_000), "it never ends its start");
        assert!(says(&[Health::Starts], 14_700));
    }
}
