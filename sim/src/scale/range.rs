// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of the command line: `8`, or `1..64`, which doubles.

use crate::Usage;
use std::str::FromStr;

/// One number, or the numbers from `first` to `last`, each twice the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first.
    pub first: usize,
    /// The last. It belongs to the range even if doubling passes it.
    pub last: usize,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse::<usize>()
                .map_err(|_| format!("'{text}' is no number: use N or FIRST..LAST, as 1..64"))
        };
        match text.split_once("..") {
            None => number(text).map(|only| Self { first: only, last: only }),
            Some((first, last)) => Ok(Self { first: number(first)?, last: number(last)? }),
        }
    }
}

impl Range {
    pub(super) fn check(&self, what: &str, most: usize) -> Result<(), Usage> {
        let Self { first, last } = *self;
        if first > last {
            return Err(Usage(format!("{what} {first}..{last} ends before it begins: use {last}..{first}")));
        }
        if first == 0 || last > most {
            return Err(Usage(format!("{what} {first}..{last} must be within 1..{most}")));
        }
        Ok(())
    }

    pub(super) fn values(&self) -> Vec<usize> {
        let doubled = std::iter::successors(Some(self.first), |value| value.checked_mul(2));
        let mut values: Vec<usize> = doubled.take_while(|&value| value < self.last).collect();
        values.push(self.last);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn ranges_double_and_have_their_last_value() {
        let _deadline = deadline();
        let values = |text: &str| text.parse::<Range>().map(|range| range.values());
        assert_eq!(values("8"), Ok(vec![8]));
        assert_eq!(values("1..8"), Ok(vec![1, 2, 4, 8]));
        assert_eq!(values("2..5"), Ok(vec![2, 4, 5]));
        for text in ["", "1..", "..4", "1-4", "-1", "1..2..3"] {
            assert!(values(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_upside_down_is_refused_in_words() {
        let _deadline = deadline();
        let check = |first, last| Range { first, last }.check("--ssds", 1024).map_err(|e| e.0);
        assert_eq!(check(8, 2).unwrap_err(), "--ssds 8..2 ends before it begins: use 2..8");
        assert_eq!(check(0, 2).unwrap_err(), "--ssds 0..2 must be within 1..1024");
        assert!(check(1, 1025).is_err() && check(1, 1024).is_ok() && check(3, 3).is_ok());
    }
}
