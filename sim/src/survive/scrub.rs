// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operator orders a scrub, which must end. Beside a writer, and before a volume is settled, it
//! replaces a copy only by one of the same stamp. A copy whose record rotted shows no stamp. So the operator
//! then opens such volumes for writing and releases them, and scrubs again.
//!
//! ```text
//!   scrub --> a rotten copy is left where a volume is not settled --> open, release --> all heals --> scrub
//! ```

use crate::survive::room::OPERATOR;
use crate::survive::stats::Path;
use crate::survive::world::World;
use gnstor_base::time::Span;
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::{Request, Rights, VolumeName};
use gnstor_proto::placement::Rows as _;
use gnstor_proto::scrub::{Order, ScrubState};
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::VolumeEntry;

/// A scrub of all SSDs has ended within this time.
const SCRUBS: Span = Span::from_ms(60_000);
/// A volume can be opened for writing within this time. Its last writer may have a lease of 5 s.
const OPENS: Span = Span::from_ms(15_000);
/// The operator's own lease.
const LEASE_MS: u32 = 5_000;
/// Interval of the operator's questions, and how long each is waited for.
const LOOK: Span = Span::from_ms(100);

impl World {
    /// Scrubs all SSDs, and where that is needed settles volumes and scrubs again. Returns false if something
    /// is wrong.
    pub(super) fn scrub(&mut self) -> bool {
        if !self.scrub_once() {
            return false;
        }
        let waits: Vec<VolumeEntry> =
            self.history.lasting().into_iter().filter(|of| self.waits(of)).collect();
        if waits.is_empty() {
            return true;
        }
        waits.iter().for_each(|entry| self.settle(entry));
        self.post.stats.path(Path::ScrubbedAgain);
        self.history.violation.is_none() && self.heals() && self.scrub_once()
    }

    /// Whether a copy of the volume is rotten, and the volume is not settled.
    fn waits(&self, entry: &VolumeEntry) -> bool {
        let Some(map) = self.newest_map() else { return false };
        let blocks = u32::try_from(entry.capacity_blocks).expect("small");
        let is_rotten = |vba: u32| {
            let copies = self.copies(&map, entry, vba);
            copies.iter().any(|(ssd, ..)| self.rotten(entry, vba, *ssd).is_some())
        };
        !self.is_settled(entry) && (0..blocks).any(is_rotten)
    }

    /// The operator opens the volume for writing, writes nothing, and releases it.
    fn settle(&mut self, entry: &VolumeEntry) {
        let (Ok(name), Some(client)) = (VolumeName::new(&entry.name), ClientId::new(OPERATOR)) else {
            return;
        };
        self.say(|| format!("the operator opens and releases volume {}", entry.vid.get()));
        let most = self.post.now + OPENS;
        let rights = Rights::Write { lease_ms: LEASE_MS };
        while self.history.violation.is_none() {
            let open = Request::Open { name: name.clone(), client, rights, follows_drains: true };
            let said = self.asks(open);
            if let Some(Ok(Reply::Opened { volume, .. })) = said {
                let lease_epoch = Some(volume.lease_epoch);
                self.asks(Request::Release { name, client, all_acknowledged: true, lease_epoch });
                return;
            }
            if self.post.now >= most {
                let facts = format!("volume {}: the operator was told {said:?}", entry.vid.get());
                self.history.broken(self.post.now, "a volume at rest cannot be opened for writing", facts);
            }
        }
    }

    /// The operator orders a scrub, and asks until each SSD has ended its.
    fn scrub_once(&mut self) -> bool {
        self.say(|| "the operator orders a scrub".into());
        let most = self.post.now + SCRUBS;
        let mut order = Some(Order::ScrubStart);
        while self.history.violation.is_none() {
            let said = self.asks(Request::Repair { order });
            if let Some(Ok(Reply::Repairs(views))) = &said {
                // A map without the SSD may stop its scrub. Then the operator orders another one.
                let serving: Vec<u16> =
                    (0..).take(self.nodes.len()).filter(|ssd| self.serves(*ssd)).collect();
                let views: Vec<_> = views.iter().filter(|view| serving.contains(&view.ssd)).collect();
                let states = views.iter().filter_map(|view| Some(view.says.as_ref().ok()?.state));
                let states: Vec<ScrubState> = states.collect();
                order = match states.contains(&ScrubState::Running) {
                    true => None,
                    false => Some(Order::ScrubStart),
                };
                // An SSD that has not answered has not ended its scrub.
                let done = states.iter().filter(|state| **state == ScrubState::Done).count();
                if order.is_some() && done == serving.len() {
                    self.post.stats.path(Path::Scrubbed);
                    let logs: Vec<_> = views.iter().filter_map(|view| view.says.clone().ok()).collect();
                    logs.iter()
                        .filter(|log| log.healed > 0)
                        .for_each(|_| self.post.stats.path(Path::RotHealed));
                    return true;
                }
            }
            if self.post.now >= most {
                let facts = format!("the operator was told {said:?}");
                self.history.broken(self.post.now, "a scrub does not end", facts);
            }
        }
        false
    }

    /// Whether the SSD serves any place. Without one it refuses to scrub.
    fn serves(&self, ssd: u16) -> bool {
        let map = self.newest_map();
        map.is_some_and(|map| {
            let mut places = (0..map.groups()).flat_map(|group| map.row(group).flatten().collect::<Vec<_>>());
            places.any(|place| place.ssd == ssd && !place.filling)
        })
    }

    /// The operator asks, and waits a little for the answer.
    pub(super) fn asks(&mut self, request: Request) -> Option<crate::survive::wire::Called> {
        let leader = self.leader()?.number;
        let now = self.post.now;
        let daemon = self.daemons.iter_mut().find(|of| of.number == leader)?;
        let ticket = daemon.operator(now, request);
        self.wake_daemons(now);
        self.run(now + LOOK);
        self.daemons.iter().find(|of| of.number == leader)?.answer(ticket).cloned()
    }
}
