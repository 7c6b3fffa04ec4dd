// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a scrub.

use gnstor_base::controller::AskId;
use gnstor_base::time::Time;
use gnstor_fleet::repair::Held;
use gnstor_proto::scrub::{ScrubLog, ScrubState};
use gnstor_proto::slba::Vid;
use std::collections::VecDeque;

/// The scrub of this SSD.
#[derive(Debug, Default)]
pub(in crate::repair) struct Scrub {
    pub(in crate::repair) log: ScrubLog,
    /// Volume and block to go on with. `None`: the scrub has looked at all of them.
    pub(in crate::repair) next: Option<(Vid, u64)>,
    pub(in crate::repair) range: Option<Range>,
    /// The scrub goes on at this time at the earliest.
    pub(in crate::repair) due: Time,
}

/// A range of a volume's blocks that the scrub checks.
#[derive(Debug)]
pub(in crate::repair) struct Range {
    pub(in crate::repair) vid: Vid,
    pub(in crate::repair) generation: u32,
    pub(in crate::repair) first: u32,
    pub(in crate::repair) blocks: u32,
    /// The next block whose own copy is to be read.
    pub(in crate::repair) at: u32,
    /// Firsts of groups whose rows the scrub must compare.
    pub(in crate::repair) firsts: Vec<u16>,
    /// Copies that are wrong here.
    pub(in crate::repair) wrong: VecDeque<Wrong>,
    /// The question under way, and the SSD that was asked.
    pub(in crate::repair) ask: Option<(AskId, u16)>,
    pub(in crate::repair) rotten: u64,
    pub(in crate::repair) healed: u64,
    pub(in crate::repair) differ: u64,
}

/// A copy of this SSD that is wrong.
#[derive(Debug)]
pub(in crate::repair) struct Wrong {
    pub(in crate::repair) vba: u32,
    /// This SSD's copy, and whether the data matches its sum.
    pub(in crate::repair) own: (Held, bool),
    /// SSDs that may have a good copy; the next one to be asked comes first.
    pub(in crate::repair) peers: VecDeque<u16>,
    /// Number of times that other SSDs were asked for a good copy in vain.
    pub(in crate::repair) tries: u32,
}

impl Scrub {
    pub(in crate::repair) fn runs(&self) -> bool {
        self.log.state == ScrubState::Running
    }

    /// Counts the results of a range that is over or restarts. Healed copies stay healed.
    pub(in crate::repair) fn count(&mut self, range: &Range, is_over: bool) {
        self.log.healed += range.healed;
        self.log.rotten += if is_over { range.rotten } else { range.healed };
        if is_over {
            self.log.differ += range.differ;
            self.log.compared += u64::from(range.blocks);
        }
    }

    pub(in crate::repair) fn end(&mut self, state: ScrubState) {
        (self.log.state, self.log.waits_for, self.range, self.next) = (state, None, None, None);
        self.log.ended += u32::from(state == ScrubState::Done);
    }
}
