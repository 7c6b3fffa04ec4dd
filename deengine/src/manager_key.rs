// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which manager key the SSD was given first. It keeps a verifier of the key, and never the key itself: a
//! disk that is copied or given away makes no daemon.

use crate::controller::Ssd;
use crate::error::SsdError;
use gnstor_auth::Secret;

/// How a manager key, or none, goes with the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMatch {
    /// The SSD has not been given a key yet.
    Unset,
    /// It was given this one.
    Same,
    /// It was given another one.
    Other,
    /// It was given one, and there is none now.
    Missing,
}

impl Ssd {
    /// How this key goes with the SSD.
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

    /// From here on, and after each start, hosts must know this key. Waits for the disk.
    ///
    /// # Errors
    /// [`SsdError`]: the system area does not take it.
    pub fn take_key(&mut self, key: &Secret) -> Result<(), SsdError> {
        let verifier = key.verifier(&self.identity().uuid);
        Ok(self.admin.volumes_mut().metadata_mut().set_key_verifier(verifier)?)
    }
}
