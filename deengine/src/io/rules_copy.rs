// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A worker's copy of the rules.

use super::guard::Handle;
use super::port::Ports;
use crate::controller::Ssd;
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

    /// Fetches the rules of the SSD. The caller holds its lock, so the version does not change meanwhile.
    #[cold]
    pub(super) fn fetch(&mut self, ssd: &mut Ssd, shared: &Handle, ports: &mut Ports) {
        let rules = Self::new(ssd.table.rules(), shared.workers().version());
        ports.iter_mut().for_each(|port| ssd.refresh(port));
        shared.state().adopt_rules(self.changed(&rules), rules.version());
        *self = rules;
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
