// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One load of a figure, and the paper's value for it.

use crate::report::word;
use crate::words::{Mode, Rw};
use serde::Serialize;

/// A value of the paper.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Given {
    pub(crate) value: f64,
    /// `text`: the text states it; `ratio`: the text states a factor to a value that it states.
    pub(crate) from: &'static str,
}

/// One load of a figure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    pub(crate) mode: Mode,
    pub(crate) rw: Rw,
    pub(crate) bs: u64,
    pub(crate) clients: u32,
    pub(crate) ssds: u16,
    pub(crate) paper: Option<Given>,
}

impl Point {
    /// The words of its name, one of each kind.
    pub(super) fn words(&self) -> [String; 5] {
        let bs = format!("{}k", self.bs >> 10);
        [word(self.mode), word(self.rw), bs, format!("c{}", self.clients), format!("s{}", self.ssds)]
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.rw, Rw::Read | Rw::Randread)
    }
}
