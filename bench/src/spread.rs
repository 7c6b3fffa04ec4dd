// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Median, least and most of a figure.
//!
//! Of two runs none is in the middle. Then the worse one counts as the median, so that a table never shows
//! the better of two runs.

use serde::{Deserialize, Serialize};

/// Which of two figures is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Of a rate, or of a share of a goal: the higher one.
    High,
    /// Of a time, or of a share that is late: the lower one.
    Low,
}

impl Better {
    /// Place of the median among this many sorted figures; `None` if there are none.
    pub(super) fn middle(self, figures: usize) -> Option<usize> {
        let last = figures.checked_sub(1)?;
        Some(match self {
            Self::High => last / 2,
            Self::Low => last.div_ceil(2),
        })
    }
}

/// A figure of several runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The figure of the run in the middle. Of an even number of runs it is the worse of the two in the
    /// middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// The spread of these figures without NaN; `None` if there is no figure.
    pub fn of(figures: impl IntoIterator<Item = f64>, better: Better) -> Option<Self> {
        let mut all: Vec<f64> = figures.into_iter().filter(|figure| !figure.is_nan()).collect();
        all.sort_by(f64::total_cmp);
        Some(Self { median: *all.get(better.middle(all.len())?)?, least: *all.first()?, most: *all.last()? })
    }

    /// Half of what lies between the least and the most, as a share of the median.
    pub fn share(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.most - self.least) / 2.0 / self.median }
    }

    /// A line for people, with this number of decimals.
    pub fn line(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}..{:.digits$})", self.median, self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn the_median_is_a_figure_of_a_run() {
        let _deadline = deadline();
        for better in [Better::High, Better::Low] {
            let of = |figures: &[f64]| {
                Spread::of(figures.iter().copied(), better).map(|s| (s.median, s.least, s.most))
            };
            assert_eq!(of(&[]), None);
            assert_eq!(of(&[f64::NAN]), None);
            assert_eq!(of(&[3.0]), Some((3.0, 3.0, 3.0)));
            assert_eq!(of(&[5.0, 1.0, 3.0]), Some((3.0, 1.0, 5.0)));
            let spread = Spread::of([90.0, 100.0, 120.0], better).expect("figures");
            assert_eq!((spread.share(), spread.line(1).as_str()), (0.15, "100.0 (90.0..120.0)"));
        }
    }

    #[test]
    fn of_two_figures_the_worse_one_counts() {
        let _deadline = deadline();
        let of = |figures: &[f64], better| {
            Spread::of(figures.iter().copied(), better).map(|s| (s.median, s.least, s.most))
        };
        assert_eq!(of(&[4.0, 1.0], Better::High), Some((1.0, 1.0, 4.0)));
        assert_eq!(of(&[4.0, 1.0], Better::Low), Some((4.0, 1.0, 4.0)));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0], Better::High), Some((2.0, 1.0, 4.0)));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0], Better::Low), Some((3.0, 1.0, 4.0)));
    }
}
