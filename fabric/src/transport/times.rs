// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The times of a command, and when its response counts as late.

use crate::hca::{Allowance, WorkRequest};
use gnstor_base::time::{Span, Time};

/// A command's times on the transport's clock.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Times {
    /// Time at which the executor took the command from its owner. The model begins here.
    taken: Time,
    /// How long before that the owner had written the command, if the command says so.
    untaken: Span,
    /// Delay between the modelled arrival of the command and the call of the controller.
    pub(super) command_delay: Span,
    /// Modelled arrival of the data that the controller pulled.
    data: Time,
    /// Delay between the modelled arrival of the data and the call of the controller.
    data_delay: Span,
}

impl Times {
    /// The times of a command that the executor took at `taken`, `untaken` after its owner had written it.
    pub(super) fn of(taken: Time, untaken: Span) -> Self {
        Self { taken, untaken, ..Self::default() }
    }

    /// The controller hears at `heard` that data is there, which the model has arrive at `modelled`.
    pub(super) fn data_arrived(&mut self, modelled: Time, heard: Time) {
        self.data = self.data.max(modelled);
        self.data_delay = heard.since(self.data);
    }

    /// The times at which a response that is due at `due` counts as late.
    ///
    /// The model starts from the moment at which it gets a command or its data. So delays of the emulator
    /// before that move `due`. The client's measure subtracts them again, because they are delays for the
    /// client. The time before the executor took the command is such a delay, too.
    pub(super) fn allowance(&self, due: Time) -> Allowance {
        let waits = due.since(self.taken);
        let moved = self.command_delay + self.data_delay;
        let alone = Span::from_ps(waits.as_ps().saturating_sub(moved.as_ps()));
        let delay = self.untaken + moved;
        let late_ns = u32::try_from(slack(waits).as_ns()).unwrap_or(u32::MAX).min(Allowance::NEVER.late_ns);
        let ns = |span: Span| i64::try_from(span.as_ns()).unwrap_or(i64::MAX);
        let client = ns(slack(alone)).saturating_sub(ns(delay));
        let least = if client < 0 { i32::MIN } else { i32::MAX };
        Allowance { late_ns, client_late_ns: i32::try_from(client).unwrap_or(least) }
    }
}

/// How long after its modelled time a response that takes `modelled` counts as late.
fn slack(modelled: Span) -> Span {
    Span::from_ps((modelled.as_ps() / 20).max(Span::from_ns(2000).as_ps()))
}

/// How long the owner of a SEND had waited when the executor took it, by the clock that they share.
pub(super) fn untaken(request: &WorkRequest) -> Span {
    let WorkRequest { stamp_ns, client_stamp, .. } = *request;
    if stamp_ns == 0 || client_stamp == 0 {
        return Span::ZERO;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the clock")]
    let ago = (stamp_ns as u32).wrapping_sub(client_stamp);
    // The last bit of a stamp is not the clock's, and parts of a GPU do not read the same nanosecond.
    if ago.cast_signed() < 0 { Span::ZERO } else { Span::from_ns(ago.into()) }
}
