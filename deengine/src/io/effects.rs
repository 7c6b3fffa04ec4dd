// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware's effects on their way through a worker, and the end of its queues.

use super::worker::Worker;
use crate::commands::OK;
use crate::workers::Note;
use gnstor_base::controller::{Controller, Effect, Outcome, PushRole, QueueKey};
use gnstor_proto::nvme::Cqe;
use std::collections::VecDeque;

/// Effects and notes that the engine has not taken from a worker yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Effects of the worker itself.
    own: VecDeque<Effect>,
    /// Notes of the firmware.
    mail: VecDeque<Note>,
}

impl Outbox {
    /// Adds an effect of the worker itself.
    #[inline]
    pub(super) fn push(&mut self, effect: Effect) {
        self.own.push_back(effect);
    }

    /// Whether notes of the firmware are left.
    #[inline]
    pub(super) fn has_mail(&self) -> bool {
        !self.mail.is_empty()
    }
}

impl Worker {
    /// The next effect for the engine: those of the firmware come first.
    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        loop {
            if self.outbox.mail.is_empty() && self.state().has_mail() {
                self.shared.state().take_mail(&mut self.outbox.mail);
            }
            match self.outbox.mail.pop_front() {
                Some(Note::Effect(effect)) => {
                    if let Some(effect) = self.translate(effect) {
                        return Some(effect);
                    }
                }
                Some(Note::Granted(queue)) => self.begin_granted(self.now, queue),
                Some(Note::CloseOlder(slot)) => self.close_older(slot),
                Some(Note::TakeBack { queue, cid, command }) => self.take_back(queue, cid, command),
                None => return self.pop_own(),
            }
        }
    }

    /// The next effect of the worker's own.
    fn pop_own(&mut self) -> Option<Effect> {
        loop {
            let mut effect = self.outbox.own.pop_front()?;
            let (Effect::Pull { queue, .. }
            | Effect::Push { queue, .. }
            | Effect::Complete { queue, .. }
            | Effect::Admitted { queue, .. }
            | Effect::Close { queue }) = &mut effect
            else {
                return Some(effect);
            };
            if let Some(port) = self.ports.get(*queue) {
                *queue = port.key;
                return Some(effect);
            }
            // The queue went before the engine took the effect.
            if let Effect::Pull { transfer, .. }
            | Effect::Push { transfer, role: PushRole::Last(_) | PushRole::Alone, .. } = effect
            {
                self.transferred(self.now, transfer, Outcome::ConnectionLost);
            }
        }
    }

    /// Ends the worker's part of a queue that the engine or the firmware has dropped.
    pub(super) fn end(&mut self, name: QueueKey) {
        self.finish_submitted(self.now);
        self.orphan_commands(name);
        self.drop_pending(name);
        self.ports.close(name);
        self.shared.lock().table.unwatch(name);
    }

    /// Closes the queues whose reads of the volume in this slot were judged by an older entry.
    fn close_older(&mut self, slot: u16) {
        self.refresh();
        let queues = self.older_queues(slot);
        let mut ssd = self.shared.lock();
        for name in queues {
            ssd.smart_mut().count_straggler();
            ssd.shut(self.now, name);
        }
    }

    /// Translates an effect of the firmware for the engine. `None`: the effect is not for the engine.
    fn translate(&mut self, effect: Effect) -> Option<Effect> {
        let name = match effect {
            Effect::Pull { queue, .. }
            | Effect::Push { queue, .. }
            | Effect::Complete { queue, .. }
            | Effect::Admitted { queue, .. }
            | Effect::Close { queue } => queue,
            Effect::Ask { .. } => return Some(effect),
        };
        let Some(port) = self.ports.get(name) else {
            // The queue went while the effect was on its way.
            if let Effect::Pull { transfer, .. } | Effect::Push { transfer, .. } = effect {
                self.transferred(self.now, transfer, Outcome::ConnectionLost);
            }
            return None;
        };
        let key = port.key;
        Some(match effect {
            Effect::Pull { transfer, cid, remote, local, .. } => {
                Effect::Pull { transfer, queue: key, cid, remote, local }
            }
            Effect::Push { transfer, remote, local, sum, role, .. } => {
                Effect::Push { transfer, queue: key, remote, local, sum, role }
            }
            Effect::Complete { mut cqe, at, pushed_bytes, .. } => {
                // The capsule may be the completion of a Connect.
                if !port.is_connected() {
                    self.shared.lock().refresh(port);
                }
                cqe.sqhd = port.complete().into();
                Effect::Complete { queue: key, cqe, at, pushed_bytes }
            }
            Effect::Admitted { who, .. } => Effect::Admitted { queue: key, who },
            Effect::Close { .. } => {
                self.end(name);
                Effect::Close { queue: key }
            }
            Effect::Ask { .. } => effect,
        })
    }
}

/// The completion of a read that has succeeded.
pub(super) fn success(sqhd: u16, cid: u16) -> Cqe {
    let mut cqe = Cqe { sqhd: sqhd.into(), cid: cid.into(), ..Cqe::default() };
    cqe.set_status_word(OK.status.0);
    cqe
}
