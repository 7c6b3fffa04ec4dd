// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words that several commands have: devices, threads, sizes, times, addresses.

use clap::{Args, ValueEnum};
use std::time::Duration;

/// Where device code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceArg {
    /// A GPU when there is one, else the CPU
    Auto,
    /// A CUDA GPU, or an error
    Cuda,
    /// The CPU: the same device code, compiled for the CPU
    Host,
}

impl From<DeviceArg> for libgnstor::Choice {
    fn from(arg: DeviceArg) -> Self {
        match arg {
            DeviceArg::Auto => Self::Auto,
            DeviceArg::Cuda => Self::Cuda,
            DeviceArg::Host => Self::Host,
        }
    }
}

/// How many threads serve SSDs.
#[derive(Clone, Copy, Debug, Args)]
pub struct EngineArgs {
    /// Threads that run the emulated SSDs and their connections, 1 to 24 [default: half the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=24))]
    pub engines: Option<u8>,
}

impl EngineArgs {
    /// The number of engines, or the machine's default.
    pub fn count(self) -> usize {
        self.engines.map_or_else(gnstor_array::power::default_engines, usize::from)
    }

    /// The threads of the SSDs.
    pub fn threads(self) -> gnstor_array::power::Threads {
        gnstor_array::power::Threads { engines: self.count() }
    }
}

const _: () = assert!(gnstor_array::power::MAX_ENGINES == 24, "the help texts say so");

/// Checks the form of an address: HOST:PORT. Whether the host exists shows only when the command connects.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_address(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' is not an address; write it like 127.0.0.1:4421");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    port.parse::<u16>().ok().filter(|port| *port > 0 && !host.is_empty()).ok_or_else(wrong)?;
    Ok(text.to_owned())
}

/// A size: a number with B, KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000); bytes without a unit.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => return Err(format!("'{other}' is not a unit of size; use KiB, MiB, GiB, TiB or bytes")),
    };
    let number: u64 = number.parse().map_err(|_| format!("'{text}' is not a size; write it like 512MiB"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text} is more bytes than a computer can count"))
}

/// A time: a number with ms, s, m or h; seconds without a unit.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("'{other}' is not a unit of time; use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("'{text}' is not a time; write it like 10s"))?;
    Duration::try_from_secs_f64(number * factor)
        .map_err(|_| format!("{text} is longer than a computer can count"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        let _deadline = deadline();
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("2 MB"), Ok(2_000_000));
        assert!(
            parse_size("x").is_err() && parse_size("3 parsec").is_err() && parse_size("99999999TiB").is_err()
        );
    }

    #[test]
    fn times_have_units() {
        let _deadline = deadline();
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert!(
            ["", "s", "5 parsec", "1e9", "-1", "1.2.3", "inf"].iter().all(|wrong| parse_time(wrong).is_err())
        );
    }
}
