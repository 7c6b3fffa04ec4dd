// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of an operator: the fleet as it is, and SSDs that are taken out and back.

use crate::core::failure::Failure;
use crate::core::report::{SsdView, describe};
use crate::core::rights::Caller;
use crate::core::{Core, Reply, Ticket};
use gnstor_proto::status::GrpcCode::{FailedPrecondition, NotFound, PermissionDenied, Unavailable};

/// An operator's request for an SSD.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    Resume { lose_data: bool },
    Fail { lose_data: bool },
    Remove,
    Replace { lose_data: bool },
    Drain,
}

impl Wish {
    fn done(self) -> &'static str {
        match self {
            Self::Resume { .. } => "resumed",
            Self::Fail { .. } => "failed",
            Self::Remove => "removed",
            Self::Replace { .. } => "replaced",
            Self::Drain => "drained",
        }
    }

    /// Whether the operator gives up blocks.
    fn loses_data(self) -> bool {
        match self {
            Self::Resume { lose_data } | Self::Fail { lose_data } | Self::Replace { lose_data } => lose_data,
            Self::Remove | Self::Drain => false,
        }
    }
}

/// Checks that the caller may change which SSDs take part.
pub(super) fn may_change(caller: &Caller) -> Result<(), Failure> {
    if caller.admin {
        return Ok(());
    }
    let message = format!(
        "{:?} may not change the fleet: that is for administrators (gnstor up --admins)",
        caller.name
    );
    Err(Failure::new(PermissionDenied, message))
}

impl Core {
    /// The fleet, for an operator.
    pub(super) fn fleet_reply(&self, now_ms: u64) -> Result<Reply, Failure> {
        let status = self.fleet().map(Box::new);
        let status =
            status.ok_or_else(|| Failure::new(Unavailable, "there is no fleet map yet: try again later"));
        status.map(|status| Reply::Fleet { status, now_ms })
    }

    /// Carries out an operator's request. When the call returns, the request is done, or the map for it is
    /// under way.
    pub(super) fn wish(&mut self, now: u64, ticket: Ticket, wish: Wish, ssd: u16) {
        let lost = if wish.loses_data() { self.only_on(ssd) } else { Vec::new() };
        let result = self.wished(now, wish, ssd);
        if result.is_ok() {
            tracing::warn!(ssd, ?wish, ?lost, "an operator changes the fleet");
        }
        let result = result.map(|()| if wish.loses_data() { Reply::Lost(lost) } else { Reply::Done });
        self.reply(ticket, result);
    }

    fn wished(&mut self, now: u64, wish: Wish, ssd: u16) -> Result<(), Failure> {
        let view = self.to_be_changed(wish, ssd)?;
        if view.is_witness && matches!(wish, Wish::Drain | Wish::Fail { .. } | Wish::Remove) {
            let why = format!(
                "SSD {ssd} cannot be {}: it is the array's witness, which votes and holds no blocks; stop it, and \
                 the others go on",
                wish.done()
            );
            return Err(Failure::new(FailedPrecondition, why));
        }
        let is_kept_out = view.taken_out || view.flaps || view.leaves;
        match wish {
            Wish::Drain if view.leaves => Ok(()),
            Wish::Drain => self.drain_ssd(now, &view),
            // An earlier call has already done this.
            Wish::Fail { .. } | Wish::Remove if view.taken_out => Ok(()),
            Wish::Fail { lose_data: false } if view.last_copies > 0 => Err(format!(
                "SSD {ssd} cannot be failed: it has the only copy that serves of {} placement groups ({}), and \
                 their blocks could not be read or written without it; move them (gnstor fleet drain {ssd}), wait \
                 for SSDs that fill (gnstor fleet show), or repeat with --lose-data",
                view.last_copies,
                describe(&self.only_on(ssd))
            )),
            Wish::Resume { lose_data } if self.is_back_lossy(ssd) => self.accept_ssd(now, &view, lose_data),
            Wish::Resume { .. } => {
                let resumed = self.resume(now, ssd);
                if is_kept_out || view.away.is_some() { resumed } else { Ok(()) }
            }
            Wish::Fail { lose_data } => {
                let may = self.may_follow_others(ssd, "failed", ", or repeat with --lose-data");
                if lose_data { Ok(()) } else { may }.and_then(|()| self.fail_ssd(now, ssd))
            }
            Wish::Remove => self.remove_ssd(now, ssd),
            Wish::Replace { lose_data } => self.replace_ssd(now, &view, lose_data),
        }
        .map_err(|why| Failure::new(FailedPrecondition, why))
    }

    /// Takes back an absent SSD with its present content, although that lacks writes.
    fn accept_ssd(&mut self, now: u64, view: &SsdView, lose_data: bool) -> Result<(), String> {
        let (ssd, lost) = (view.index, self.only_on(view.index));
        if view.taken_out || view.flaps {
            // The SSD's returns no longer count. It stays absent.
            return self.resume(now, ssd);
        }
        if !lost.is_empty() && !lose_data {
            return Err(format!(
                "SSD {ssd} cannot be resumed: it lost writes, and has the last copy of {}{}; some of these blocks \
                 may be older than what was acknowledged; with --lose-data they are used as they are",
                describe(&lost),
                self.others_with_copies(ssd)
            ));
        }
        self.changes.given_up.insert(ssd, lost);
        self.changes.accepted.insert(ssd);
        self.change_step(now);
        Ok(())
    }

    /// The SSD, if the map can change.
    fn to_be_changed(&self, wish: Wish, ssd: u16) -> Result<SsdView, Failure> {
        let done = wish.done();
        let none = || Failure::new(Unavailable, "there is no fleet map yet: try again later");
        let fleet = self.fleet().ok_or_else(none)?;
        let last = fleet.ssds.len().saturating_sub(1);
        let view = fleet.ssds.into_iter().find(|view| view.index == ssd).ok_or_else(|| {
            Failure::new(NotFound, format!("SSD {ssd} cannot be {done}: the array has SSDs 0 to {last}"))
        })?;
        if !self.has_voters() {
            let message = format!(
                "SSD {ssd} cannot be {done}: this array does not change its map by itself (its map of format {} \
                 names no voters); copy the volumes into a new array (gnstor cp)",
                fleet.format
            );
            return Err(Failure::new(FailedPrecondition, message));
        }
        Ok(view)
    }
}
