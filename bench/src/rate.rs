// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--rate-iops`: how often a client's requests begin, with the meaning of fio.

use super::words::Rw;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Most I/Os a second of a client.
const MOST: u32 = 100_000_000;
/// Fraction bits of the kernel's interval (`bench/cuda/pace.cuh`).
const INTERVAL_BITS: u32 = 16;

/// I/Os a second of each client. `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateIops {
    /// Limit of reads.
    pub read: Option<u32>,
    /// Limit of writes.
    pub write: Option<u32>,
}

impl FromStr for RateIops {
    type Err = String;

    /// `N` is for reads and for writes, `N,M` for reads and writes; a side that is empty or 0 has no limit.
    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| match text.trim() {
            "" => Ok(None),
            text => match text.parse() {
                Ok(0) => Ok(None),
                Ok(rate @ 1..=MOST) => Ok(Some(rate)),
                _ => Err(format!("'{text}' is not a number of I/Os a second, 0 to {MOST}")),
            },
        };
        let (read, write) = match text.split_once(',') {
            Some((_, write)) if write.contains(',') => {
                return Err("give one number, or one for reads and one for writes".into());
            }
            Some((read, write)) => (side(read)?, side(write)?),
            None => (side(text)?, side(text)?),
        };
        Ok(Self { read, write })
    }
}

impl fmt::Display for RateIops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: Option<u32>| side.map_or_else(String::new, |rate| rate.to_string());
        write!(f, "{},{}", side(self.read), side(self.write))
    }
}

/// The schedule of each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Reads a second.
    pub read: u32,
    /// Writes a second.
    pub write: u32,
}

impl Pace {
    /// The schedule of a load in this direction; `None` where its direction has no limit.
    ///
    /// # Errors
    /// A mix with a limit for reads alone, or for writes alone.
    pub(super) fn of(rate: RateIops, rw: Rw) -> Result<Option<Self>, String> {
        let pace = |read: Option<u32>, write: Option<u32>| {
            let (read, write) = (read.unwrap_or(0), write.unwrap_or(0));
            (read + write != 0).then_some(Self { read, write })
        };
        match rw {
            Rw::Read | Rw::Randread => Ok(pace(rate.read, None)),
            Rw::Write | Rw::Randwrite => Ok(pace(None, rate.write)),
            Rw::Rw | Rw::Randrw if rate.read.is_some() == rate.write.is_some() => {
                Ok(pace(rate.read, rate.write))
            }
            Rw::Rw | Rw::Randrw => Err(format!(
                "--rate-iops {rate} limits one direction of a mix: give one number, or one for reads and \
                 one for writes"
            )),
        }
    }

    /// I/Os a second of a client.
    pub(super) fn iops(&self) -> u32 {
        self.read + self.write
    }

    /// Between two starts of a client, in the kernel's unit of 2^-16 ns.
    pub(super) fn interval(&self) -> u64 {
        let rate = u64::from(self.iops());
        ((1_000_000_000u64 << INTERVAL_BITS) + rate / 2) / rate
    }

    /// Share of reads among the starts, in the kernel's unit of 2^-32.
    pub(super) fn read_share(&self) -> u64 {
        (u64::from(self.read) << 32) / u64::from(self.iops())
    }

    /// The share of reads, in percent.
    pub(super) fn read_percent(&self) -> u32 {
        let percent = (u64::from(self.read) * 100) / u64::from(self.iops());
        // A mix is never all reads: what it has written is read back.
        let most = if self.write == 0 { 100 } else { 99 };
        u32::try_from(percent).expect("at most 100").min(most)
    }

    /// Number of a client's starts that are due within `ns` nanoseconds.
    pub(super) fn due(&self, ns: u64) -> u64 {
        let starts = (u128::from(ns) << INTERVAL_BITS).div_ceil(self.interval().into());
        u64::try_from(starts).expect("a day of starts")
    }
}

/// Results of the schedule.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RateSummary {
    /// Requested I/Os a second, all clients together.
    pub asked_iops: u64,
    /// Starts that were due in warm-up and measured part.
    pub due: u64,
    /// Requests that began. Fewer than were due: at the end of the time some still waited.
    pub begun: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    fn rate(text: &str) -> RateIops {
        text.parse().expect("a rate")
    }

    #[test]
    fn rates_are_written_as_fio_has_them() {
        let _deadline = deadline();
        for (text, read, write) in [
            ("1000", Some(1000), Some(1000)),
            ("1000,500", Some(1000), Some(500)),
            ("1000,", Some(1000), None),
            (",500", None, Some(500)),
            ("0", None, None),
        ] {
            assert_eq!(rate(text), RateIops { read, write }, "{text}");
        }
        for (text, why) in [("fast", "'fast'"), ("-1", "'-1'"), ("1,2,3", "one for"), ("200000000", "0 to")] {
            let error = text.parse::<RateIops>().expect_err("it is wrong");
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_direction_takes_its_own_limit_and_a_mix_takes_both() {
        let _deadline = deadline();
        let of = |text: &str, rw| Pace::of(rate(text), rw);
        assert_eq!(of("1000,500", Rw::Randread), Ok(Some(Pace { read: 1000, write: 0 })));
        assert_eq!(of("1000,500", Rw::Write), Ok(Some(Pace { read: 0, write: 500 })));
        assert_eq!(of(",500", Rw::Read), Ok(None));
        assert_eq!(of("0", Rw::Randrw), Ok(None));
        assert_eq!(of("700", Rw::Rw), Ok(Some(Pace { read: 700, write: 700 })));
        for text in ["1000,", ",1000", "1000,0"] {
            assert!(of(text, Rw::Randrw).is_err_and(|why| why.contains("one direction")), "{text}");
        }
    }

    #[test]
    fn as_many_starts_are_due_as_the_rate_says() {
        let _deadline = deadline();
        for (read, write) in [(1, 0), (3, 0), (0, 7), (999_999, 1), (MOST, 0), (MOST, MOST)] {
            let pace = Pace { read, write };
            for seconds in [1, 10, 24 * 3600] {
                let (due, asked) = (pace.due(seconds * 1_000_000_000), u64::from(read + write) * seconds);
                // The interval is rounded to 2^-16 ns.
                let rounded = asked / (2 * pace.interval()) + 1;
                assert!(due.abs_diff(asked) <= rounded, "{pace:?}: {due} in {seconds} s");
            }
        }
        assert_eq!(Pace { read: 5, write: 0 }.read_share(), 1 << 32);
        assert_eq!(Pace { read: 1, write: 3 }.read_share(), 1 << 30);
        assert_eq!(Pace { read: MOST, write: 1 }.read_percent(), 99);
    }
}
