// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions of a repair to other SSDs, and their answers.

use super::apply::PeerAnswer;
use super::state::{Name, Open, Window};
use super::{MARK, PATIENCE, PAUSE};
use crate::commands::scratch::{Owner, QUESTION};
use crate::controller::Ssd;
use gnstor_base::controller::{AskId, Effect, Question};
use gnstor_base::time::Time;
use gnstor_proto::nvme::Cqe;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::pull::{PeerRead, Wanted};
use gnstor_proto::status::{Detail, Status};

impl Ssd {
    /// Asks the window's SSD. `false`: no question can be sent now.
    pub(super) fn ask_window(&mut self, now: Time, name: Name, window: &mut Window) -> bool {
        let Some(read) = self.question_of(window) else { return false };
        window.ask = self.ask_peer(now, name, window.asks(), read);
        window.ask.is_some()
    }

    /// Asks an SSD. `None`: no question can be sent now.
    pub(super) fn ask_peer(&mut self, now: Time, name: Name, peer: u16, read: PeerRead) -> Option<AskId> {
        let AnyMap::Three(map) = self.table.fleet()?.map() else { return None };
        let peer = map.ssds.get(usize::from(peer))?;
        let (id, address) = (peer.id, peer.address.clone());
        let buffer = self.commands.scratch_mut().take(Owner::Daemon, QUESTION)?;
        let question = Question { sqe: read.command(), address, data: [0; 64] };
        self.commands.scratch().fill(&buffer, &question.encode());
        let local = self.commands.scratch().local(&buffer);
        self.repair.last = self.repair.last.wrapping_add(1);
        let ask = AskId(self.repair.last | MARK);
        self.repair.open.insert(ask, Open { name, read, buffer, until: now + PATIENCE });
        self.wake_at(now + PATIENCE);
        self.commands.emit(Effect::Ask { ask, peer: id, local });
        Some(ask)
    }

    /// Gives up the questions whose time is over. Returns the deadline of the next one.
    pub(super) fn end_late_questions(&mut self, now: Time) -> Time {
        let late = self.repair.open.iter().filter(|(_, open)| open.until <= now);
        let late: Vec<AskId> = late.map(|(ask, _)| *ask).collect();
        late.into_iter().for_each(|ask| self.take_answer(now, ask, None, &[]));
        self.repair.open.values().map(|open| open.until).min().unwrap_or(Time::NEVER)
    }

    /// Another SSD answered a question of a repair, or was not reached.
    pub(crate) fn peer_answered(&mut self, now: Time, ask: AskId, answer: Option<&Cqe>, data: &[u8]) {
        self.take_answer(now, ask, answer, data);
        let next = self.repair_on(now);
        self.wake_at(next);
    }

    fn take_answer(&mut self, now: Time, ask: AskId, answer: Option<&Cqe>, data: &[u8]) {
        let Some(Open { name, read, buffer, .. }) = self.repair.open.remove(&ask) else { return };
        self.commands.scratch_mut().give(buffer);
        let rows = answer.filter(|cqe| Status(cqe.status_word()).is_success()).map(|cqe| cqe.dw0.get());
        let taken = rows.map(|rows| PeerAnswer { read: &read, rows, data });
        if name == Name::Scrub {
            return self.scrub_answered(now, ask, &read, taken.as_ref());
        }
        // A walk that a newer map has ended takes no answer.
        let Some(mut walk) = self.repair.walks.remove(&name) else { return };
        if let Some(at) = walk.windows.iter().position(|window| window.ask == Some(ask)) {
            let mut window = walk.windows.swap_remove(at);
            window.ask = None;
            let taken = taken.and_then(|answer| match read.wanted {
                Wanted::Digests(_) => self.compare_digests(&walk, &mut window, answer.rows, data),
                Wanted::Rows(_) => self.compare_rows(now, &mut walk, &mut window, &answer),
                Wanted::Blocks(_) if read.of_any => {
                    self.take_from_other(now, &mut walk, &mut window, &answer)
                }
                Wanted::Blocks(_) => self.take_blocks(now, &mut walk, &mut window, &answer),
            });
            window.waits = taken.is_none();
            if taken.is_none() {
                window.retry_at = now + PAUSE;
                let refusal = answer.and_then(|cqe| Detail::from_dw0(cqe.dw0.get()).refusal());
                let (ssd, peer) = (self.config().index, window.asks());
                tracing::debug!(ssd, peer, ?refusal, "a repair has no answer from this SSD");
                window.has_no_answer(now, &mut walk);
            }
            walk.windows.push(window);
        }
        self.repair.walks.insert(name, walk);
    }
}
