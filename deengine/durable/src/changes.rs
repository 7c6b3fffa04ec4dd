// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the metadata store that wait for no disk: a caller starts them and polls for their end.
//!
//! ```text
//!   start_term  start_entry   poll: Pending  ..  Pending  Ready(Ok)
//!   `-- queued, in this order --'  cell, cell (or: empty cells, header, cell)
//! ```
//! A step takes effect on the contents when its cell is durable in both copies. The next step begins then.

use self::content::check_room;
use crate::cell::Kind;
use crate::contents::{entry_content, held_content, tombstone_content};
use crate::error::{DurableError, Patience, end_sync, start_sync};
use crate::metadata::{Grant, HeldMap, SsdIdentity, Tombstone, entry_generation};
use crate::metadata_store::MetadataStore;
use crate::steps::{Changes, Stage, Step};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::REQUEST_IDS;
use std::ops::Range;
use std::task::Poll;

mod content;

/// Bytes of places that get their cells together.
const PLACES_AT_ONCE: u64 = if cfg!(test) { 8192 } else { 1 << 16 };

const PREPARING: &str = "preparing places of the metadata store";

impl MetadataStore {
    /// Starts to add or replace the entry of a volume, as [`Self::put_entry`].
    pub fn start_entry(&mut self, vid: Vid, bytes: &[u8]) {
        self.changes.steps.push_back(Step::Entry { vid, bytes: bytes.to_vec() });
    }

    /// Starts to end a generation of a volume id, as [`Self::bury`].
    pub fn start_bury(&mut self, vid: Vid, mut tombstone: Tombstone) {
        tombstone.ids.truncate(REQUEST_IDS);
        self.changes.steps.push_back(Step::Bury { vid, tombstone });
    }

    /// Starts to set the daemon's term.
    pub fn start_term(&mut self, term: u64) {
        self.changes.steps.push_back(Step::Term {
            term: Some(term),
            filling: None,
            leased: false,
            identity: None,
        });
    }

    /// Starts to note how often each SSD of the array has been opened, as [`Self::set_openings`].
    pub fn start_openings(&mut self, openings: &[u64]) {
        self.changes.steps.push_back(Step::Openings(openings.to_vec()));
    }

    /// Starts to note that acknowledged writes were lost when the map had this epoch.
    pub fn start_filling(&mut self, epoch: u64) {
        self.changes.steps.push_back(Step::Term {
            term: None,
            filling: Some(epoch),
            leased: false,
            identity: None,
        });
    }

    /// Starts to note that a daemon of this term grants serving leases.
    pub fn start_leased(&mut self, term: u64) {
        self.changes.steps.push_back(Step::Term {
            term: Some(term),
            filling: None,
            leased: true,
            identity: None,
        });
    }

    /// Starts to note which SSD this is, as [`Self::set_identity`].
    pub fn start_identity(&mut self, identity: SsdIdentity, lossy_at: Option<u64>) {
        let identity = Some(identity);
        self.changes.steps.push_back(Step::Term { term: None, filling: lossy_at, leased: false, identity });
    }

    /// Starts to note which manager key hosts must know, as [`Self::set_key_verifier`].
    pub fn start_key_verifier(&mut self, verifier: [u8; 32]) {
        self.changes.steps.push_back(Step::KeyVerifier(verifier));
    }

    /// Starts to note a term that is granted; it is the highest daemon term from then on.
    pub fn start_grant(&mut self, grant: Grant) {
        self.changes.steps.push_back(Step::Grant(grant));
    }

    /// Starts to hold a map. A store without room for it ([`Self::can_hold`]) refuses.
    pub fn start_hold(&mut self, held: HeldMap) {
        self.changes.steps.push_back(Step::Hold(held));
    }

    /// Starts to set the fleet map, as [`Self::set_map`].
    pub fn start_map(&mut self, bytes: &[u8]) {
        self.changes.steps.push_back(Step::Map(bytes.to_vec()));
    }

    /// Continues the changes that were started. Ready when all of them are durable, or when a step has
    /// failed. The steps after a failed one are dropped.
    ///
    /// # Errors
    /// [`DurableError`] of the step that failed.
    pub fn poll(&mut self) -> Poll<Result<(), DurableError>> {
        match self.advance(Patience::None) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Waits until what was started is durable.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn finish(&mut self) -> Result<(), DurableError> {
        while self.advance(Patience::Blocks)?.is_pending() {}
        Ok(())
    }

    fn advance(&mut self, patience: Patience) -> Result<Poll<()>, DurableError> {
        let result = self.advance_steps(patience);
        if result.is_err() {
            self.changes = Changes::default();
        }
        result
    }

    fn advance_steps(&mut self, patience: Patience) -> Result<Poll<()>, DurableError> {
        loop {
            match self.changes.stage.take() {
                None => match self.changes.steps.front().cloned() {
                    None => return Ok(Poll::Ready(())),
                    Some(step) => {
                        let begun = self.begin(&step);
                        if begun.is_err() {
                            self.changes.steps.pop_front();
                            self.end(step, 0, begun)?;
                        }
                    }
                },
                Some(Stage::Writing { place, mut write }) => {
                    match write.advance(self.durable.store(), patience) {
                        Ok(Poll::Pending) => {
                            self.changes.stage = Some(Stage::Writing { place, write });
                            return Ok(Poll::Pending);
                        }
                        result => {
                            let step = self.changes.steps.pop_front().expect("the step of this stage");
                            self.end(step, place, result.map(drop))?;
                        }
                    }
                }
                Some(Stage::Preparing { kind, places, sync }) => {
                    let store = self.durable.store();
                    let is_busy = match sync {
                        Some(sync) => end_sync(store, sync, patience, PREPARING)?.is_pending(),
                        // A second change of the header would wait for the one on its way.
                        None => patience == Patience::None && self.durable.is_updating(),
                    };
                    if is_busy {
                        self.changes.stage = Some(Stage::Preparing { kind, places, sync });
                        return Ok(Poll::Pending);
                    }
                    self.changes.stage = Some(match sync {
                        Some(_) => Stage::Preparing { kind, places, sync: None },
                        None => self.count(kind, places)?,
                    });
                }
                Some(Stage::Counting { kind, places, number }) => {
                    if self.durable.end_update(number, patience)?.is_pending() {
                        self.changes.stage = Some(Stage::Counting { kind, places, number });
                        return Ok(Poll::Pending);
                    }
                    let table = self.table(kind);
                    table.free.extend(places.rev());
                }
            }
        }
    }

    /// Whether something that was started is not over.
    pub fn is_changing(&self) -> bool {
        !self.changes.steps.is_empty()
    }

    /// Begins the first step: writes its cell, or makes places for it. A step with nothing to do ends here.
    fn begin(&mut self, step: &Step) -> Result<(), DurableError> {
        let (kind, place, content) = match step {
            Step::Term { .. } | Step::KeyVerifier(_) | Step::Grant(_) | Step::Openings(_) => {
                (Kind::Term, Some(0), self.term_cell(step)?.encode())
            }
            Step::Hold(held) => {
                let sizes = self.durable.sizes();
                let room = if sizes.held_map { u64::from(sizes.map_bytes) } else { 0 };
                check_room("bytes of the held map", held.map.len(), room)?;
                (Kind::Held, Some(0), held_content(held))
            }
            Step::Map(bytes) => {
                check_room("bytes of the fleet map", bytes.len(), u64::from(self.durable.sizes().map_bytes))?;
                (Kind::Map, Some(0), bytes.clone())
            }
            Step::Entry { vid, bytes } => {
                let generation = self.check_entry(*vid, bytes)?;
                (Kind::Entry, self.entries.find(*vid), entry_content(*vid, generation, bytes))
            }
            Step::Bury { vid, tombstone } => {
                let newer = |t: &Tombstone| t.generation > tombstone.generation;
                if self.contents.tombstones.get(vid).is_some_and(newer) {
                    self.changes.steps.pop_front();
                    return Ok(());
                }
                (Kind::Tombstone, self.tombstones.find(*vid), tombstone_content(*vid, tombstone))
            }
            Step::Clear { place } => (Kind::Entry, Some(*place), Vec::new()),
        };
        self.changes.stage = Some(match place {
            Some(place) => Stage::Writing { place, write: self.start_cell(kind, place, &content)? },
            None => self.prepare(kind)?,
        });
        Ok(())
    }

    /// Starts to fill the next places of a table with empty cells.
    fn prepare(&mut self, kind: Kind) -> Result<Stage, DurableError> {
        let (twin, header) = (*self.twin(kind), self.durable.header());
        let (what, first) = match kind {
            Kind::Tombstone => ("a tombstone", header.tombstones),
            _ => ("an entry", header.entries),
        };
        let batch = u32::try_from(PLACES_AT_ONCE / twin.pitch).expect("a small batch");
        let places = first..twin.count.min(first + batch);
        if places.is_empty() {
            return Err(DurableError::MetadataFull { what, slots: twin.count });
        }
        self.version += 1;
        let store = self.durable.store();
        let lost_before = store.lost_writes();
        twin.prepare(store, kind, places.clone(), (self.durable.tag(), self.version))?;
        Ok(Stage::Preparing { kind, places, sync: start_sync(store, lost_before, PREPARING)? })
    }

    /// The cells of new places are durable, and the header counts these places.
    fn count(&self, kind: Kind, places: Range<u32>) -> Result<Stage, DurableError> {
        let number = self.durable.start_update(|header| match kind {
            Kind::Tombstone => header.tombstones = places.end,
            _ => header.entries = places.end,
        })?;
        Ok(Stage::Counting { kind, places, number })
    }

    /// The cell of a step is durable, or failed.
    fn end(&mut self, step: Step, place: u32, result: Result<(), DurableError>) -> Result<(), DurableError> {
        if let Step::Clear { place } = step {
            // The tombstone has decided already; where this fails, the next open does it.
            if let Err(error) = result {
                tracing::warn!(place, %error, "the place of a buried entry was not cleared");
            }
            self.entries.free.push(place);
            return Ok(());
        }
        result?;
        match step {
            Step::Term { term, filling, leased, identity } => {
                let contents = &mut self.contents;
                contents.identity = identity.or(contents.identity);
                contents.term = term.unwrap_or(contents.term);
                contents.filling = filling.or(contents.filling);
                contents.leased |= leased;
            }
            Step::KeyVerifier(verifier) => self.contents.key_verifier = Some(verifier),
            Step::Grant(grant) => {
                self.contents.term = self.contents.term.max(grant.term);
                self.contents.grant = Some(grant);
            }
            Step::Hold(held) => self.contents.held = Some(held),
            Step::Openings(openings) => self.contents.openings = openings,
            Step::Map(bytes) => self.contents.map = Some(bytes),
            Step::Entry { vid, bytes } => {
                self.entries.take(vid, place);
                self.contents.entries.insert(vid, bytes);
            }
            Step::Bury { vid, tombstone } => {
                let generation = tombstone.generation;
                self.tombstones.take(vid, place);
                self.contents.tombstones.insert(vid, tombstone);
                let dead = |bytes: &Vec<u8>| entry_generation(bytes) <= generation;
                if self.contents.entries.get(&vid).is_some_and(dead) {
                    self.contents.entries.remove(&vid);
                    if let Some(place) = self.entries.of.remove(&vid) {
                        self.changes.steps.push_front(Step::Clear { place });
                    }
                }
            }
            Step::Clear { .. } => unreachable!("it has ended above"),
        }
        Ok(())
    }
}
