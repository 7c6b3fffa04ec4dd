// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Up to which transaction the content of each volume was changed: a Flush waits for the volumes of its
//! client, and for no others.

use gnstor_durable::Seq;
use gnstor_proto::slba::Vid;

/// The last change of each volume.
#[derive(Debug)]
pub(crate) struct Written {
    /// By volume id, as far as an id was written.
    last: Vec<Seq>,
    /// What is older than this SSD's start may be of any volume.
    before: Seq,
}

impl Written {
    /// The SSD starts, and its journal has transactions up to `before`.
    pub(crate) fn since(before: Seq) -> Self {
        Self { last: Vec::new(), before }
    }

    /// Transaction `seq` has changed the volume.
    #[inline]
    pub(crate) fn note(&mut self, vid: Vid, seq: Seq) {
        let at = usize::from(vid.get());
        if at >= self.last.len() {
            self.last.resize(at + 1, 0);
        }
        self.last[at] = seq;
    }

    /// The last transaction that may have changed the volume.
    pub(crate) fn of(&self, vid: Vid) -> Seq {
        self.last.get(usize::from(vid.get())).map_or(self.before, |&last| last.max(self.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the first Flush after a start would wait for nothing.
    #[test]
    fn what_is_older_than_the_start_may_be_of_any_volume() {
        let _deadline = crate::tests::deadline();
        let vid = |raw| Vid::new(raw).expect("an id");
        let mut written = Written::since(9);
        assert_eq!([1, 500].map(|raw| written.of(vid(raw))), [9, 9]);
        written.note(vid(7), 12);
        assert_eq!([1, 7, 500].map(|raw| written.of(vid(raw))), [9, 12, 9]);
    }
}
