// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A worker's copy of the rules.

use crate::permission::Rules;
use std::ops::Deref;
use std::sync::Arc;

/// The rules as the worker fetched them last.
#[derive(Debug)]
pub(super) struct RulesCopy {
    rules: Arc<Rules>,
    version: u64,
}

impl RulesCopy {
    pub(super) fn new(rules: &Arc<Rules>, version: u64) -> Self {
        Self { rules: Arc::clone(rules), version }
    }

    /// The version of these rules.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version
    }
}

impl Deref for RulesCopy {
    type Target = Rules;

    #[inline]
    fn deref(&self) -> &Rules {
        &self.rules
    }
}
