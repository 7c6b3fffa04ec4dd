// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the metadata store that wait until they are durable.

use crate::error::DurableError;
use crate::metadata::{SsdIdentity, Tombstone};
use crate::metadata_store::MetadataStore;
use gnstor_proto::slba::Vid;

impl MetadataStore {
    /// Adds or replaces the entry of a volume. `bytes` is an encoded permission entry.
    ///
    /// # Errors
    /// Where the bytes are no entry of `vid`, its generation has been buried, no place is left, or the store
    /// fails.
    pub fn put_entry(&mut self, vid: Vid, bytes: &[u8]) -> Result<(), DurableError> {
        self.start_entry(vid, bytes);
        self.finish()
    }

    /// Ends a generation of a volume id: removes the entry and writes the tombstone, both or neither. It
    /// keeps the first eight request ids. A generation below that of the present tombstone is buried already.
    /// The same generation replaces the ids.
    ///
    /// # Errors
    /// If no place is left or the store fails.
    pub fn bury(&mut self, vid: Vid, tombstone: Tombstone) -> Result<(), DurableError> {
        self.start_bury(vid, tombstone);
        self.finish()
    }

    /// Sets the daemon's term.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_term(&mut self, term: u64) -> Result<(), DurableError> {
        self.start_term(term);
        self.finish()
    }

    /// Acknowledged writes were lost when the map had this epoch.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_filling(&mut self, epoch: u64) -> Result<(), DurableError> {
        self.start_filling(epoch);
        self.finish()
    }

    /// Sets which SSD this is. With `lossy_at` it also notes that acknowledged writes were lost when the map
    /// had this epoch. Both become durable, or neither does.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_identity(&mut self, identity: SsdIdentity, lossy_at: Option<u64>) -> Result<(), DurableError> {
        self.start_identity(identity, lossy_at);
        self.finish()
    }

    /// Sets how often each SSD of the array has been opened.
    ///
    /// # Errors
    /// Where there are more than 64 of them, or the store fails.
    pub fn set_openings(&mut self, openings: &[u64]) -> Result<(), DurableError> {
        self.start_openings(openings);
        self.finish()
    }

    /// Sets the verifier of the manager key, by which the SSD checks that a host knows it.
    ///
    /// # Errors
    /// If the store fails.
    pub fn set_key_verifier(&mut self, verifier: [u8; 32]) -> Result<(), DurableError> {
        self.start_key_verifier(verifier);
        self.finish()
    }

    /// Sets the fleet map.
    ///
    /// # Errors
    /// Where it is longer than the place for it, or the store fails.
    pub fn set_map(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        self.start_map(bytes);
        self.finish()
    }
}
