// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs begin to ask their hosts for proofs, by the manager key that each was given first.

use crate::media::{Made, MediaError};
use gnstor_auth::Secret;
use gnstor_deengine::KeyMatch;

/// The key that the operator gives to the SSDs.
#[derive(Clone, Copy, Debug)]
pub struct GivenKey<'a> {
    /// The manager key; `None`: hosts are believed.
    pub key: Option<&'a Secret>,
    /// This key replaces one that is lost.
    pub replaces: bool,
}

impl GivenKey<'_> {
    /// From now on the SSDs ask for proofs with this key, or for none. An SSD that has had no key takes this
    /// one.
    ///
    /// # Errors
    /// [`MediaError`]: an SSD has another key, or has one and none is given, and nothing was changed; or an
    /// SSD cannot store the key.
    pub fn give(&self, ssds: &mut [Made]) -> Result<(), MediaError> {
        // A substitute for an SSD stores nothing, and is new at each start.
        let matches = |made: &&Made| !made.about.came_up.stands_in();
        for made in ssds.iter().filter(matches) {
            self.check(made)?;
        }
        let Some(key) = self.key else { return Ok(()) };
        for made in ssds {
            let had = made.ssd.match_key(self.key);
            let index = made.about.index;
            match had {
                KeyMatch::Other => tracing::warn!("SSD {index} takes a new manager key: the old one is void"),
                KeyMatch::Unset => tracing::info!("SSD {index} takes the manager key: it had none"),
                KeyMatch::Same | KeyMatch::Missing => {}
            }
            if had != KeyMatch::Same {
                made.ssd.take_key(key).map_err(|error| MediaError::Make {
                    what: format!("giving SSD {index} the manager key"),
                    cause: error.to_string(),
                })?;
            }
            made.ask_proof(key);
        }
        Ok(())
    }

    fn check(&self, made: &Made) -> Result<(), MediaError> {
        let index = made.about.index;
        let place = made.about.data.as_ref().map(|path| format!(" ({})", path.display())).unwrap_or_default();
        match made.ssd.match_key(self.key) {
            KeyMatch::Unset | KeyMatch::Same => Ok(()),
            KeyMatch::Other if self.replaces => Ok(()),
            KeyMatch::Other => Err(MediaError::Request(format!(
                "SSD {index}{place} was given another manager key: name that key's file with --manager-key. \
                 If it is lost, --replace-manager-key gives the SSD this one; a daemon or client with the \
                 old key is then refused"
            ))),
            KeyMatch::Missing => Err(MediaError::Request(format!(
                "SSD {index}{place} was given a manager key, and without it would believe every host: name \
                 the key's file with --manager-key. If it is lost, name a new file and add \
                 --replace-manager-key"
            ))),
        }
    }
}
