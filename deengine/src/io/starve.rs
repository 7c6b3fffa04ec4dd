// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that wait for frames: when they are tried again, and by which entry they are judged meanwhile. A
//! write with frames goes on with the worker of its queue ([`super::grants`]).

use crate::commands::Ended;
use crate::commands::{Accepted, Work};
use crate::controller::Ssd;
use crate::io::waiting::MOST_TRIES;
use crate::permission::Authorized;
use crate::request::Request;
use gnstor_base::time::Time;
use gnstor_ftl::NotDurable;
use gnstor_proto::slba::{ClientId, Vid};

/// Most writes that are judged at a time.
const MOST_JUDGED: usize = 1024;

impl Ssd {
    /// Takes frames for the data of a write, and leaves the write with them for the worker of its queue.
    /// Without free frames the write waits.
    pub(super) fn admit_write(&mut self, command: Accepted, request: Authorized<Request>) {
        let Request { address, blocks, .. } = *request.get();
        let free = self.ftl().flash().free_frames();
        let mut frames = Vec::new();
        if self.commands.shares.allow(address.client, blocks, free) {
            self.ftl().take_frames(blocks, |frame| frames.push(frame));
        }
        if frames.len() < blocks as usize {
            self.ftl().give_frames(frames.into_iter());
            let id = self.start(command.permit, address.vid.get(), command.at, Work::Starved(request));
            return self.starve(command.now, (address.client, address.vid), id);
        }
        self.commands.shares.take(address.client, blocks);
        self.grant(command, request, frames);
    }

    /// Tries the writes for which there are frames now: the first of each client, then the second, and so on.
    /// Looks at a bounded number of them.
    pub(super) fn try_starved(&mut self, now: Time, gives_up: Option<NotDurable>) {
        // Clients that can do nothing, one after the other.
        let mut stuck = 0;
        for _ in 0..MOST_TRIES {
            if stuck >= self.commands.starved.clients() {
                return;
            }
            stuck += 1;
            let Some((client, id)) = self.commands.starved.next() else { return };
            if !self.may_go_on(client, id, gives_up) {
                continue;
            }
            self.commands.starved.leave(client);
            let before = self.commands.starved.len();
            self.try_again(now, id, gives_up);
            // Other workers may have taken the frames. Then the write is the first of its line again.
            if self.commands.starved.len() == before {
                stuck = 0;
            }
        }
    }

    /// Whether this write can be handled: its queue has ended, there are frames for it, or it will never get
    /// frames.
    fn may_go_on(&mut self, client: ClientId, id: u32, gives_up: Option<NotDurable>) -> bool {
        let free = self.ftl().flash().free_frames();
        let Some(Work::Starved(request)) = self.commands.get_mut(id).map(|command| command.work()) else {
            return true;
        };
        let blocks = request.get().blocks;
        free >= blocks && self.commands.shares.allow(client, blocks, free)
            || free < blocks && gives_up.is_some()
    }

    /// The entry of a volume has changed. Its writes that wait for frames are judged by it: a fence waits for
    /// no frames.
    pub(crate) fn judge_starved(&mut self, now: Time, vid: Vid) {
        self.commands.starved.judge(vid);
        let next = self.judge_on(now);
        self.wake_at(next);
    }

    /// Judges the next writes of volumes whose entries have changed. Returns when to go on.
    pub(super) fn judge_on(&mut self, now: Time) -> Time {
        for id in self.commands.starved.take_to_judge(MOST_JUDGED) {
            #[cfg(test)]
            (self.commands.judged += 1);
            let Some(command) = self.commands.slots.get_mut(id) else { continue };
            let Work::Starved(request) = command.work() else { continue };
            if !self.table.is_older(request) {
                continue;
            }
            let Work::Starved(request) = command.take_work() else { continue };
            let judged = self.judge_anew(now, request);
            match (judged, self.commands.get_mut(id)) {
                (Ok(request), Some(command)) => command.go_on(Work::Starved(request)),
                (Err(refused), _) => {
                    let Some(command) = self.commands.remove(id) else { continue };
                    if let Ended { permit: Some(permit), vid, done_at, .. } = command.end() {
                        self.refuse(permit, vid, refused, done_at.max(now));
                    }
                }
                (Ok(request), None) => self.leave(now, request),
            }
        }
        if self.commands.starved.is_to_judge() { now } else { Time::NEVER }
    }
}
