// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages on the medium that repairs read. They are loaded as those of a client's read are, and then copied:
//! the frames of loads are for clients.
//!
//! ```text
//!   block --> extent, pinned --> in memory? -- yes --> copied
//!                                   | no
//!                                   '--> loaded, copied --> all blocks are looked up again
//! ```

use crate::commands::Command;
use crate::commands::cold::{Cold, Data, Stored};
use crate::controller::Ssd;
use crate::io::state::{Load, LoadFor};
use gnstor_base::region::LocalRef;
use gnstor_base::time::Time;
use gnstor_flash::{Fetch, Loaded, Ppa, Ticket};
use gnstor_proto::BLOCK_BYTES;

impl Ssd {
    /// The data of a pinned page. The pin is given back, or goes to `cold` or to a load.
    pub(crate) fn stored(&self, page: Ppa, cold: &mut Cold) -> Stored {
        let data = match cold.of(page) {
            Some(data) => data.clone(),
            None => match self.ftl().flash().fetch_sound(page) {
                Fetch::Here(local) => Some(self.copy_of(local)),
                Fetch::Loading(ticket) => {
                    cold.begin(ticket, page);
                    return Stored::Loading;
                }
                Fetch::Unreadable => {
                    // The next look must find the same.
                    if cold.land(page, None) {
                        self.ftl().unpin(page);
                    }
                    return Stored::Here(None);
                }
            },
        };
        self.ftl().unpin(page);
        Stored::Here(data)
    }

    fn copy_of(&self, local: LocalRef) -> Box<[u8; BLOCK_BYTES as usize]> {
        let mut bytes = Box::new([0; BLOCK_BYTES as usize]);
        self.ftl().read_fetched(local, &mut bytes);
        bytes
    }

    /// Makes a command wait for loads of an answer to another SSD.
    pub(crate) fn await_cold(&mut self, id: u32, started: Vec<(Ticket, Ppa)>) {
        for (ticket, page) in started {
            self.load(id, ticket, Load { command: id, page, sum: 0, to: LoadFor::Answer });
        }
    }

    /// As [`Self::await_cold`], for the scrub.
    pub(crate) fn await_for_scrub(&mut self, started: Vec<(Ticket, Ppa)>) {
        for (ticket, page) in started {
            // No command has this number.
            let command = u32::MAX;
            self.load(command, ticket, Load { command, page, sum: 0, to: LoadFor::Scrub });
        }
    }

    /// A load of a repair has ended. If its command has ended before, the page is of no use.
    pub(super) fn take_cold(&mut self, now: Time, load: &Load, loaded: Loaded) {
        let page = load.page;
        let data: Data = loaded.result.ok().map(|local| self.copy_of(local));
        if data.is_some() {
            self.ftl().release(loaded.ticket);
        }
        if matches!(load.to, LoadFor::Scrub) {
            return self.scrub_landed(now, page, data);
        }
        let telling = self.commands.get_mut(load.command).and_then(Command::telling);
        let is_unused = telling.is_none_or(|telling| telling.cold_mut().land(page, data));
        if is_unused {
            self.ftl().unpin(page);
        }
        self.ended(now, load.command);
    }

    /// Gives the pins of loaded pages back, but of these.
    pub(crate) fn let_go_cold(&self, cold: &mut Cold, but: &[Ppa]) {
        cold.keep_only(but).into_iter().for_each(|page| self.ftl().unpin(page));
    }
}
