// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the core: it serves no more.

use super::failure::Failure;
use super::{Core, Effect, Phase, Stop};
use gnstor_proto::status::{DEPOSED, GrpcCode, Refusal};

impl Core {
    /// Answers every request and does nothing more. Nothing is undone: the next daemon finds the state on
    /// the SSDs.
    pub(super) fn stop(&mut self, stop: Stop) {
        for ticket in self.tickets.keys().copied().collect::<Vec<_>>() {
            self.reply(ticket, Err(stopped(&stop)));
        }
        self.volumes.clear();
        self.names.clear();
        self.publishing.clear();
        self.commands.clear();
        self.replaced.forget();
        self.members.forget_absent();
        self.effects.push_back(Effect::Stopped(stop.clone()));
        self.phase = Phase::Stopped(stop);
    }

    pub(super) fn depose(&mut self, ssd: u16, how: &str) {
        let term = self.term.number();
        self.stop(Stop::Deposed(format!(
            "{DEPOSED} (SSD {ssd} {how}, and this daemon's term is {term}): connect to the newer one"
        )));
    }
}

/// The answer to each request from then on.
pub(super) fn stopped(stop: &Stop) -> Failure {
    let code = match stop {
        Stop::Deposed(_) => Refusal::StaleTerm.grpc(),
        Stop::Array(_) => GrpcCode::Unavailable,
    };
    Failure::new(code, stop.to_string())
}
