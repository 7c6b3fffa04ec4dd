// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restores state from the metadata at power-on: the permission table, the fleet map, the SSD's identity, and
//! whether acknowledged writes were lost.
//!
//! ```text
//!   metadata --recall--> table, tombstones, term       map --seen--> what the map gives this SSD
//!                   '--> identity: counted up where writes were lost (rule 1a)
//! ```

use crate::controller::Ssd;
use crate::error::SsdError;
use crate::permission::fleet::{Fleet, UNKNOWN_EPOCH};
use gnstor_base::time::Time;
use gnstor_durable::cell::Kind;
use gnstor_durable::{DurableError, SsdIdentity};
use gnstor_ftl::OpenError;
use gnstor_proto::placement::map3::{FleetMap3, Ssd3, State3};
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::vendor::VolumeEntry;

impl Ssd {
    /// The active fleet map.
    pub fn fleet_map(&self) -> Option<&AnyMap> {
        self.table.fleet().map(Fleet::map)
    }

    /// Sets the fleet map of another SSD of the array, if the metadata has lost it. Waits for the disk.
    ///
    /// # Errors
    /// [`SsdError`]: the bytes are no map, or the system area cannot store it.
    pub fn recall_map(&mut self, bytes: &[u8]) -> Result<(), SsdError> {
        if self.table.fleet().is_some() || !self.admin.volumes().metadata().lost().contains(&Kind::Map) {
            return Ok(());
        }
        self.take_map(bytes)
    }

    pub(super) fn take_map(&mut self, bytes: &[u8]) -> Result<(), SsdError> {
        let map = AnyMap::decode(bytes).map_err(|e| SsdError::Refused(format!("the fleet map: {e:?}")))?;
        self.admin.volumes_mut().metadata_mut().set_map(bytes)?;
        self.date_filling(&map)?;
        let filling = self.admin.volumes().metadata().contents().filling;
        self.admin.volumes_mut().set_filling_since(filling);
        let fleet = self.seen(map);
        self.table.set_fleet(Some(fleet));
        self.follow_voters(Time::ZERO);
        Ok(())
    }

    /// Makes this empty SSD replace one of an array that cannot be used. It takes connections and permission
    /// entries, and refuses every read and write.
    ///
    /// # Errors
    /// [`SsdError`]: the bytes are no fleet map.
    pub fn stand_in(&mut self, map: &[u8]) -> Result<(), SsdError> {
        self.admin.volumes_mut().stand_in();
        self.take_map(map)
    }

    /// Takes table and map from the metadata, and continues sweeps that are not finished.
    pub(crate) fn recall(&mut self) -> Result<(), SsdError> {
        self.recall_table()?;
        let map = self.admin.volumes().metadata().contents().map.as_ref().map(|bytes| AnyMap::decode(bytes));
        let map = map.transpose().map_err(|e| damaged(format!("the fleet map: {e:?}")))?;
        self.recall_identity(map.as_ref())?;
        if let Some(map) = &map {
            self.date_filling(map)?;
        }
        self.count_start()?;
        let is_over = |epoch: &u64| map.as_ref().is_some_and(|map| self.ends_filling(map, *epoch));
        let filling = self.admin.volumes().metadata().contents().filling.filter(|epoch| !is_over(epoch));
        self.admin.volumes_mut().set_filling_since(filling);
        if self.ftl().is_sweeping() {
            self.admin.volumes_mut().sweep_at(Time::ZERO);
            self.wake_at(Time::ZERO);
        }
        let fleet = map.map(|map| self.seen(map));
        self.table.set_fleet(fleet);
        self.recall_vote();
        self.follow_voters(Time::ZERO);
        Ok(())
    }

    /// Loads entries, tombstones and term into the permission table.
    fn recall_table(&mut self) -> Result<(), SsdError> {
        let contents = self.admin.volumes().metadata().contents();
        for (vid, bytes) in &contents.entries {
            let entry = VolumeEntry::decode(bytes)
                .map_err(|e| damaged(format!("the permission entry of volume {}: {e:?}", vid.get())))?;
            if entry.deleting {
                self.ftl().sweep(*vid, entry.generation);
            }
            self.table.recall(entry);
        }
        for (vid, tombstone) in &contents.tombstones {
            self.table.recall_tombstone(*vid, tombstone);
        }
        self.table.recall_term(contents.term);
        if contents.leased {
            self.table.recall_lease();
        }
        let places = self.lost_places();
        if places > 0 {
            tracing::error!(
                "{places} places of the permission metadata could not be read: volumes or changes of them \
                 may be missing"
            );
        }
        Ok(())
    }

    /// Decides whether the SSD lost acknowledged writes and which identity it has, and makes both durable.
    fn recall_identity(&mut self, map: Option<&AnyMap>) -> Result<(), SsdError> {
        let lost = self.admin.volumes().metadata().lost();
        // The term's cell says whether writes were lost before. If it is unreadable, the SSD assumes that
        // they were.
        let is_lossy = self.boot().is_lossy() || lost.contains(&Kind::Term);
        let unknown = if lost.contains(&Kind::Map) { UNKNOWN_EPOCH } else { 0 };
        let old = self.admin.volumes().metadata().contents().identity;
        let identity = match old {
            Some(identity @ SsdIdentity { uuid, incarnation }) => {
                // A restart forgets which blocks were touched while it filled (rule 13). An SSD that serves
                // other places keeps its content's number, and fills only by a newer map. So does one that
                // comes in: a map that names its number may be under way, and makes it serve.
                let by = |map: &AnyMap| Fleet::new(map.clone(), self.config().index, identity, false);
                let fleet = map.map(by).filter(|fleet| !fleet.fills().is_empty());
                let keeps = fleet.as_ref().is_some_and(|fleet| fleet.serves_a_place() || fleet.comes_in());
                self.repair.forget_fill(fleet.as_ref().filter(|_| keeps).map(|fleet| fleet.map().epoch()));
                let counts = is_lossy || fleet.is_some() && !keeps;
                SsdIdentity { uuid, incarnation: incarnation + u32::from(counts) }
            }
            None => drawn_identity(),
        };
        if is_lossy || old != Some(identity) {
            // This is durable, because neither a shutdown nor a power failure with a dump brings the missing
            // writes back. One write stores both the loss and the incarnation that reports it.
            let lossy_at = is_lossy.then(|| map.map_or(unknown, AnyMap::epoch));
            self.admin.volumes_mut().metadata_mut().set_identity(identity, lossy_at)?;
        }
        Ok(())
    }

    /// Replaces [`UNKNOWN_EPOCH`] by the epoch of this map. Writes were lost under a map that is lost as
    /// well. The first map that is known again is taken for it. Only a newer map says that the writes are
    /// back.
    fn date_filling(&mut self, map: &AnyMap) -> Result<(), DurableError> {
        if self.admin.volumes().metadata().contents().filling == Some(UNKNOWN_EPOCH) {
            self.admin.volumes_mut().metadata_mut().set_filling(map.epoch())?;
        }
        Ok(())
    }

    /// Whether the map says that the writes which were lost at this epoch are back. A newer map of format 2
    /// says so for all SSDs. A map of format 3 says so for the incarnation that it names (rule 1a).
    pub(crate) fn ends_filling(&self, map: &AnyMap, lossy_at: u64) -> bool {
        match map {
            AnyMap::Two(map) => map.epoch > lossy_at,
            AnyMap::Three(map) => {
                let identity = self.identity();
                let own = map.ssds.iter().find(|ssd| ssd.id == self.config().index);
                let names_it = |ssd: &Ssd3| ssd.is(&identity.uuid) && ssd.incarnation == identity.incarnation;
                own.is_some_and(names_it) && !self.has_another_serve(map)
            }
        }
    }

    /// Identity of the SSD, and number of its content.
    pub fn identity(&self) -> SsdIdentity {
        let none = SsdIdentity { uuid: [0; 16], incarnation: 0 };
        self.admin.volumes().metadata().contents().identity.unwrap_or(none)
    }

    /// Whether the map was made for another content of this SSD. A content that lacks writes serves nothing
    /// before it has filled, and no earlier map makes it serve. But an older image may count its incarnation
    /// up to a number that the array gave to the content that was lost.
    pub(crate) fn has_another_serve(&self, map: &FleetMap3) -> bool {
        // Only a content that lacks writes can be another one than the map means.
        if !self.admin.volumes().is_filling() {
            return false;
        }
        let SsdIdentity { uuid, incarnation } = self.identity();
        let is_own =
            |ssd: &Ssd3| ssd.id == self.config().index && ssd.is(&uuid) && ssd.incarnation >= incarnation;
        let Some(own) = map.ssds.iter().position(is_own) else { return false };
        let members = map.rows.iter().flat_map(|row| row.places).flatten();
        members.into_iter().any(|member| usize::from(member.ssd) == own && !member.filling)
    }

    /// The next identity, if the map drops the present content or was made for another one. Both end its
    /// incarnation (rule 1a).
    pub(crate) fn dropped_by(&self, map: &AnyMap) -> Option<SsdIdentity> {
        let AnyMap::Three(map) = map else { return None };
        let SsdIdentity { uuid, incarnation } = self.identity();
        let own = map.ssds.iter().find(|ssd| ssd.id == self.config().index && ssd.is(&uuid))?;
        let is_out = own.state == State3::Out && own.incarnation == incarnation;
        let is_another = self.has_another_serve(map);
        (is_out || is_another).then_some(SsdIdentity { uuid, incarnation: own.incarnation.saturating_add(1) })
    }

    /// The map, as this SSD judges by it.
    pub(crate) fn seen(&self, map: AnyMap) -> Fleet {
        let filling = self.admin.volumes().is_filling() || self.admin.volumes().stands_in();
        let has_forgotten = self.repair.has_forgotten(map.epoch());
        Fleet::new(map, self.config().index, self.identity(), filling)
            .having_forgotten(has_forgotten)
            .standing_in(self.admin.volumes().stands_in())
    }
}

fn damaged(what: String) -> SsdError {
    SsdError::Layer(OpenError::Damaged(what))
}

/// The first identity of an SSD.
fn drawn_identity() -> SsdIdentity {
    let mut uuid = [0; 16];
    gnstor_auth::random::fill(&mut uuid);
    // A uuid of zeros would mean that there is none.
    uuid[0] |= 1;
    SsdIdentity { uuid, incarnation: 1 }
}
