// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first manager key of the SSD. The SSD keeps a verifier of the key, and never the key itself. So a disk
//! that is copied or given away does not help to pass for a daemon.

use crate::controller::Ssd;
use crate::error::SsdError;
use gnstor_auth::Secret;

/// Result of comparing a manager key with the SSD's first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMatch {
    /// The SSD has had no key so far.
    Unset,
    /// The key is the SSD's.
    Same,
    /// The SSD has another key.
    Other,
    /// The SSD has a key, and none was given.
    Missing,
}

impl Ssd {
    /// Compares this key with the SSD's first one.
    pub fn match_key(&self, key: Option<&Secret>) -> KeyMatch {
        match (self.admin.volumes().metadata().contents().key_verifier, key) {
            (None, _) => KeyMatch::Unset,
            (Some(_), None) => KeyMatch::Missing,
            (Some(verifier), Some(key)) if key.is_verified_by(&self.identity().uuid, &verifier) => {
                KeyMatch::Same
            }
            (Some(_), Some(_)) => KeyMatch::Other,
        }
    }

    /// From now on, and after each start, hosts must know this key. Waits for the disk.
    ///
    /// # Errors
    /// [`SsdError`]: the system area cannot store it.
    pub fn take_key(&mut self, key: &Secret) -> Result<(), SsdError> {
        let verifier = key.verifier(&self.identity().uuid);
        Ok(self.admin.volumes_mut().metadata_mut().set_key_verifier(verifier)?)
    }
}
