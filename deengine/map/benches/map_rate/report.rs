// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures, and the clock.

use std::time::Instant;

/// Rounds that [`best`] makes.
pub(crate) const ROUNDS: u64 = 31;

/// Figures in the order of their measurement.
#[derive(Default)]
pub(crate) struct Report {
    json: bool,
    figures: Vec<(String, f64)>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, figures: Vec::new() }
    }

    pub(crate) fn title(&self, text: &str) {
        if !self.json {
            println!("-- {text}");
        }
    }

    pub(crate) fn say(&mut self, name: impl Into<String>, value: f64, text: &str) {
        let name = name.into();
        if !self.json {
            println!("{value:>12.3}  {text}   [{name}]");
        }
        self.figures.push((name, value));
    }

    fn of(&self, name: &str) -> f64 {
        self.figures.iter().find(|(known, _)| known == name).map_or(f64::NAN, |&(_, value)| value)
    }

    /// Prints the ratio of two figures of the part of the bench named `what`.
    pub(crate) fn ratio(&mut self, what: &str, [name, over, under]: [&str; 3], text: &str) {
        let value = self.of(&format!("{what}_{over}_ns")) / self.of(&format!("{what}_{under}_ns"));
        self.say(format!("{what}_{name}_ratio"), value, text);
    }

    pub(crate) fn finish(&self) {
        if self.json {
            let fields: Vec<_> =
                self.figures.iter().map(|(name, value)| format!("\"{name}\":{value:.4}")).collect();
            println!("{{{}}}", fields.join(","));
        }
    }
}

/// Nanoseconds of one of `count` iterations of `run`.
#[expect(clippy::cast_precision_loss, reason = "a duration")]
pub(crate) fn time(count: u64, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// The best of several alternating measurements. Each draws its own seeds: with the blocks of another one it
/// would find their lines in the cache.
pub(crate) fn best<const N: usize>(mut measure: impl FnMut(&mut Seeds) -> [f64; N]) -> [f64; N] {
    let mut seeds = Seeds(0);
    let rounds: Vec<[f64; N]> = (0..ROUNDS).map(|_| measure(&mut seeds)).collect();
    std::array::from_fn(|of| rounds.iter().map(|round| round[of]).fold(f64::INFINITY, f64::min))
}

/// Seeds that are far from each other.
pub(crate) struct Seeds(u64);

impl Seeds {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 += 1 << 40;
        self.0
    }
}
