// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs begin to ask their hosts for proofs, by the manager key that each was given first.

use crate::media::{Made, MediaError};
use gnstor_auth::Secret;
use gnstor_deengine::KeyMatch;

/// What the operator gives the SSDs.
#[derive(Clone, Copy, Debug)]
pub struct GivenKey<'a> {
    /// The manager key; `None`: hosts are believed.
    pub key: Option<&'a Secret>,
    /// It takes the place of a key that is lost.
    pub replaces: bool,
}

impl GivenKey<'_> {
    /// The SSDs ask for proofs by this key, or for none. An SSD that has had no key takes this one.
    ///
    /// # Errors [`MediaError`]: an SSD was given another key, or one where there is none now, and nothing was
    /// changed; an SSD cannot write down what it was given.
    pub fn give(&self, ssds: &mut [Made]) -> Result<(), MediaError> {
        // What stands in for an SSD holds nothing, and is new at each start.
        let matches = |made: &&Made| !made.about.came_up.stands_in();
        for made in ssds.iter().filter(matches) {
            self.check(made)?;
        }
        let Some(key) = self.key else { return Ok(()) };
        for made in ssds {
            let had = made.ssd.match_key(self.key);
            if had != KeyMatch::Same {
                if had == KeyMatch::Other {
                    tracing::warn!(
                        "SSD {} takes a new manager key: the one before is void",
                        made.about.index
                    );
                }
                made.ssd.take_key(key).map_err(|error| MediaError::Make {
                    what: format!("giving SSD {} the manager key", made.about.index),
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
