// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A permit to complete one command, exactly once.

use gnstor_base::controller::QueueKey;

/// Issued with every accepted command and spent by its completion, or forfeited when the queue is gone.
///
/// If a permit is dropped unspent, its host waits for ever. So the drop panics, in release builds too.
#[derive(Debug)]
#[must_use = "a command whose permit is dropped is never completed"]
pub(crate) struct CompletionPermit {
    queue: QueueKey,
    cid: u16,
    is_spent: bool,
}

impl CompletionPermit {
    pub(crate) fn issue(queue: QueueKey, cid: u16) -> Self {
        Self { queue, cid, is_spent: false }
    }

    /// The queue of the command.
    pub(crate) fn queue(&self) -> QueueKey {
        self.queue
    }

    /// The id of the command.
    pub(crate) fn cid(&self) -> u16 {
        self.cid
    }

    /// Gives the permit up for a completion on this queue with this command id, or for a worker's permit.
    pub(crate) fn spend(mut self) -> (QueueKey, u16) {
        self.is_spent = true;
        (self.queue, self.cid)
    }

    /// Gives the permit up without a completion, because the queue is gone.
    pub(crate) fn forfeit(mut self) {
        self.is_spent = true;
    }
}

impl Drop for CompletionPermit {
    fn drop(&mut self) {
        assert!(
            self.is_spent || std::thread::panicking(),
            "command {} of {:?} was dropped without a completion",
            self.cid,
            self.queue
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "without a completion")]
    fn a_permit_dropped_unspent_is_caught() {
        let _deadline = crate::deadline::deadline();
        drop(CompletionPermit::issue(QueueKey(1), 7));
    }

    #[test]
    fn a_permit_ends_by_spending_or_by_forfeiting() {
        let _deadline = crate::deadline::deadline();
        assert_eq!(CompletionPermit::issue(QueueKey(1), 7).spend(), (QueueKey(1), 7));
        CompletionPermit::issue(QueueKey(1), 8).forfeit();
    }
}
