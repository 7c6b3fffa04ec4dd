// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor up` says what is wrong with its array, and when that is over.

use crate::fleet::Fleet;
use crate::status::{Condition, Problem, settling_line};
use gnstor_array::Array;
use gnstor_console::{outln, print_json};
use gnstor_daemon::Look;
use serde_json::json;
use std::time::Duration;

/// Pause between two checks of the array.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// The last printed state of a running array.
#[derive(Debug)]
pub(crate) struct Watch {
    json: bool,
    said: Condition,
    /// Volumes that were being settled at the last look. Most are settled before the next one.
    settling: Vec<String>,
    /// The last answers, and what they meant: they seldom change, and a fleet map takes long to read.
    last: Option<(Look, Condition)>,
}

impl Watch {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, said: Condition::default(), settling: Vec::new(), last: None }
    }

    /// Asks the array how it is, and prints the changes.
    pub(crate) fn look(&mut self, array: &Array) {
        // A daemon that stops says so at its end.
        let Ok(look) = array.look() else { return };
        let mut now = match self.last.take() {
            Some((last, known)) if last.says_the_same(&look) => known,
            _ => match Fleet::of(&look) {
                Ok(fleet) => Condition::of(&fleet),
                Err(_) => return,
            },
        };
        self.last = Some((look, now.clone()));
        let before = std::mem::replace(&mut self.settling, now.settling.clone());
        now.settling.retain(|volume| before.contains(volume));
        if now != self.said {
            self.say(&now);
            self.said = now;
        }
    }

    fn say(&self, now: &Condition) {
        if self.json {
            let (problems, settling) = (&now.problems, &now.settling);
            return print_json(&json!({ "state": now.state(), "problems": problems, "settling": settling }));
        }
        for Problem { what, action } in now.problems.iter().filter(|p| !self.said.problems.contains(p)) {
            outln!("  problem     {what}");
            outln!("  action      {action}");
        }
        for Problem { what, .. } in self.said.problems.iter().filter(|p| !now.problems.contains(p)) {
            outln!("  over        {what}");
        }
        match (now.settling.as_slice(), self.said.settling.as_slice()) {
            ([], []) => {}
            ([], _) => outln!("  settled     the copies of all volumes are the same"),
            (volumes, said) if volumes != said => outln!("  settling    {}", settling_line(volumes)),
            _ => {}
        }
        if now.problems.is_empty() && !self.said.problems.is_empty() {
            outln!("  state       {}", now.state());
        }
    }
}
