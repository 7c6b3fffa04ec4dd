// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions of an SSD to other SSDs of its array. The transport takes them from the SSD and gives answers
//! back; another thread carries them over admin queues, as connecting with an SSD may block.
//!
//! ```text
//!   SSD --Effect::Ask--> drain_effects --PeerAsks--> carrier (array) --admin queue--> another SSD
//!   SSD <--answered----- answer_ask  <------------
//! ```
//! The questions of a step go to the carrier together: they wake its thread once.

use super::RcTransport;
use gnstor_base::controller::{AskId, Question};
use gnstor_base::region::LocalRef;
use gnstor_base::time::Time;
use gnstor_proto::nvme::Cqe;
use std::sync::mpsc::Sender;

/// A question that waits for its answer. [`RcTransport::answer_ask`] takes it, once.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerAsk {
    /// The local SSD that asks, by its number in the transport.
    pub target: u16,
    /// Name of its question.
    pub ask: AskId,
    /// Number of the SSD that is asked.
    pub peer: u16,
    /// The command, and the address of the asked SSD.
    pub question: Question,
}

/// Questions on their way to the thread that carries them.
#[derive(Debug, Default)]
pub(super) struct Asks {
    carrier: Option<Sender<Vec<PeerAsk>>>,
    /// The end of a step hands these over together.
    asked: Vec<PeerAsk>,
}

impl RcTransport {
    /// From now on the questions of this transport's SSDs go to `carrier`. Without one they have no answer.
    pub fn carry_asks(&mut self, carrier: Option<Sender<Vec<PeerAsk>>>) {
        self.asks.carrier = carrier;
    }

    /// An SSD asks.
    pub(super) fn ask(&mut self, target: u16, ask: AskId, peer: u16, local: LocalRef) {
        let t = &mut self.targets[usize::from(target)];
        let mut bytes = [0; Question::BYTES];
        let region = t.regions.iter().find(|region| region.id() == local.region);
        let question = region.filter(|_| local.bytes as usize == bytes.len()).and_then(|region| {
            region.read(local.offset, &mut bytes);
            Question::decode(&bytes)
        });
        let asked = question.map(|question| PeerAsk { target, ask, peer, question });
        match asked.filter(|_| self.asks.carrier.is_some()) {
            Some(asked) => self.asks.asked.push(asked),
            // The caller carries out the effects of this afterwards.
            None => t.controller.answered(t.clock, ask, None, &[]),
        }
    }

    /// Hands the questions to the carrier. Returns whether there were any.
    pub(super) fn send_asks(&mut self, now: Time) -> bool {
        if self.asks.asked.is_empty() {
            return false;
        }
        let asked = std::mem::take(&mut self.asks.asked);
        let refused = match &self.asks.carrier {
            Some(carrier) => carrier.send(asked).err().map(|refused| refused.0),
            None => Some(asked),
        };
        for asked in refused.into_iter().flatten() {
            self.answer_ask(now, &asked, None, &[]);
        }
        true
    }

    /// The answer to a question, and the data that it brought; `None`: there is none.
    pub fn answer_ask(&mut self, now: Time, asked: &PeerAsk, answer: Option<&Cqe>, data: &[u8]) {
        let &PeerAsk { target, ask, .. } = asked;
        let Some(t) = self.targets.get_mut(usize::from(target)) else { return };
        t.clock = t.clock.max(now);
        // An SSD that is cut off gets no answer.
        t.controller.answered(t.clock, ask, answer.filter(|_| !t.silent), data);
        self.drain_effects(now, target);
    }
}
