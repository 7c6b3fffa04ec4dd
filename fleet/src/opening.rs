// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The number of openings of an SSD, by which voters find that its content was rolled back to an older image.
//!
//! ```text
//!   SSD starts with 5    asks with 5 --- voters know 5 or less: yes, and it is no lease yet
//!                        6 is durable in the SSD
//!                        asks with 6 --- 6 is durable in each voter that says yes: the lease
//!   older image: 4       asks with 4 --- voters know 6: it is an older image
//! ```
//! * An SSD sends the number in its content before it raises that number. It raises the number only after a
//!   majority has confirmed it. So an older image cannot catch up by starting often.
//! * The number is durable in the SSD before a voter hears it. So a cut leaves no SSD behind what voters
//!   know.
//! * An SSD serves only when a majority knows a number that no earlier image of it has.
//!
//! An SSD that votes counts itself in a majority. If it is rolled back, it has forgotten, too: it is found
//! when one of the others that knew its number answers.

use crate::{Opening, Refused};

/// The number of a substitute for another SSD. It serves nothing, and no voter remembers it.
pub const STANDS_IN: Opening = Opening::MAX;

/// A voter's judgement of a number, if `known` is the highest that it knows of this SSD. The voter stores a
/// new number before it says yes.
///
/// # Errors
/// [`Refused::OlderImage`]: the SSD had a higher number before.
pub fn check(known: Opening, asked: Opening) -> Result<Option<Opening>, Refused> {
    if asked < known {
        return Err(Refused::OlderImage);
    }
    Ok((asked > known && asked != STANDS_IN).then_some(asked))
}

/// The next number; it does not reach [`STANDS_IN`].
pub fn next(own: Opening) -> Opening {
    own.saturating_add(1).min(STANDS_IN - 1)
}

/// Progress of an SSD since power-on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Stage {
    /// The SSD asks whether its content is the newest.
    #[default]
    Proves,
    /// A majority said so, and the next number is being stored.
    Raises,
    /// The SSD asks for its lease with a number of this start.
    Opened,
}

#[cfg(test)]
mod tests;
