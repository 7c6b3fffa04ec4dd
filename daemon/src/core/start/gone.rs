// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of deleted volumes that SSDs keep. A daemon that starts reads them after the tables. An earlier
//! daemon may have carried out a Delete and not answered it, and the Delete comes again (rule 12).

use super::{Probe, Progress};
use crate::core::{Command, GoneVolume};
use gnstor_proto::slba::Vid;

impl Probe {
    /// The question for the next page.
    pub(super) fn lists_gone(&self) -> Command {
        let from = self.gone.last().map_or(Vid::MIN, |last| last.vid);
        let skip = self.gone.iter().rev().take_while(|gone| gone.vid == from).count();
        Command::ListGone { from, skip: u16::try_from(skip).unwrap_or(u16::MAX) }
    }

    /// Takes a page. Returns whether there is another one to ask for.
    pub(super) fn takes_gone(&mut self, gone: Vec<GoneVolume>, more: bool) -> bool {
        let goes_on = more && !gone.is_empty();
        self.gone.extend(gone);
        if goes_on {
            self.progress = Progress::ToAsk;
        } else {
            self.read_of = self.says;
        }
        goes_on
    }
}
