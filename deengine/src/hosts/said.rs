// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of hosts that prove who they are. With a group it takes milliseconds to judge one, so the SSD's
//! lock is not held meanwhile.
//!
//! ```text
//!   Authentication Send --locked--> Said --> judge, without the lock --> Judged --locked--> completion
//! ```

use crate::commands::CompletionPermit;
use gnstor_auth::{Controller, Dice, Failure, Group, Names, Secret, SessionKey};

/// The run of the protocol that a message continues.
#[derive(Debug)]
pub(super) enum Run {
    Begun { names: Names, secret: Secret, group: Group, dice: Box<Dice> },
    Challenged(Box<Controller>),
    Answered(Box<Controller>),
}

/// Result of a message.
pub(crate) enum Heard {
    Challenge(Box<Controller>, Vec<u8>),
    Answer(Box<Controller>, Vec<u8>),
    Proven(SessionKey),
}

/// A message that is to be judged. Until then its run counts as failed, and hears nothing more.
#[derive(Debug)]
pub(crate) struct Said {
    pub(super) permit: CompletionPermit,
    pub(super) cntlid: u16,
    pub(super) run: Run,
    pub(super) data: Vec<u8>,
}

/// A message that has been judged.
pub(crate) struct Judged {
    pub(crate) permit: CompletionPermit,
    pub(crate) cntlid: u16,
    pub(crate) heard: Result<Heard, (u16, Failure)>,
}

impl Said {
    /// Continues the run with the message.
    pub(crate) fn judge(self) -> Judged {
        let Self { permit, cntlid, run, data } = self;
        let heard = match run {
            Run::Begun { names, secret, group, dice } => {
                let begun = Controller::begin(names, secret, group, &data, *dice);
                begun.map(|(run, answer)| Heard::Challenge(Box::new(run), answer))
            }
            Run::Challenged(mut run) => match run.on_reply(&data) {
                Ok(answer) => Ok(Heard::Answer(run, answer)),
                Err(why) => Err((run.transaction(), why)),
            },
            Run::Answered(mut run) => {
                run.on_success2(&data).map(Heard::Proven).map_err(|why| (run.transaction(), why))
            }
        };
        Judged { permit, cntlid, heard }
    }
}
