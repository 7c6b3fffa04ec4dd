// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words that several commands have: devices, threads, sizes, times, addresses.

use clap::{Args, ValueEnum};
use std::net::SocketAddr;
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
    #[arg(long, value_name = "N", value_parser = whole::<u8>(1, 24))]
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

/// A parser of whole numbers within these limits.
pub fn whole<T>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64> + Send + Sync + 'static,
{
    move |text| {
        let number = text.trim().parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match most {
            u64::MAX => format!("use a whole number, {least} or more"),
            most => format!("use a whole number from {least} to {most}"),
        })
    }
}

/// A parser of whole numbers whose limits are checked with the rest of the command line. `limits` are those
/// limits in words.
pub fn number<T>(limits: &'static str) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: std::str::FromStr + Send + Sync + 'static,
{
    move |text| text.trim().parse().map_err(|_| format!("use a whole number, {limits}"))
}

/// The number of an SSD in its array.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_ssd(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("'{text}' is not the number of an SSD, as gnstor status shows them"))
}

/// Checks the form of an SSD's address: HOST:PORT. Whether the host exists shows only when the command
/// connects.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_address(text: &str) -> Result<String, String> {
    host_and_port(text, "127.0.0.1:4421")
}

/// Checks the form of a daemon's address: HOST:PORT, or a URL.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_daemon(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        None => host_and_port(text, "127.0.0.1:7117"),
        Some(("http" | "https", host)) if !host.is_empty() => Ok(text.to_owned()),
        Some(_) => {
            Err(format!("'{text}' is not an address; write it like 127.0.0.1:7117 or https://host:7117"))
        }
    }
}

/// Checks the form of the addresses of one array's daemons, divided by commas.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_daemons(text: &str) -> Result<String, String> {
    let each = text.split(',').map(|one| parse_daemon(one.trim()));
    Ok(each.collect::<Result<Vec<_>, _>>()?.join(","))
}

fn host_and_port(text: &str, example: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("'{text}' is not an address{why}; write it like {example}"));
    match text.rsplit_once(':') {
        None | Some(("", _)) => wrong(""),
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(text.to_owned()),
        Some(_) => wrong(": a port is 1 to 65535"),
    }
}

/// An address to listen on: of this machine, with a port; port 0 is any free one.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit_once(':').map(|(_, port)| port);
        match port.is_some_and(|port| port.parse::<u16>().is_err()) {
            true => format!("'{text}' has no port: a port is 1 to 65535, or 0 for any free one"),
            false => format!("'{text}' is no IP address with a port; write it like 127.0.0.1:7117"),
        }
    })
}

/// A size: a number with B, KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000); bytes without a unit.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim();
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        part if part.starts_with(['.', ',']) && !number.is_empty() => {
            return Err(format!("'{text}' is no whole number; write it with a smaller unit, like 1536KiB"));
        }
        part if part.starts_with('-') => {
            return Err(format!("'{text}' is not a size: no size is negative; write it like 512MiB"));
        }
        _ if number.is_empty() => return Err(format!("'{text}' is not a size; write it like 512MiB")),
        _ => return Err(format!("'{unit}' is not a unit of size; use KiB, MiB, GiB, TiB or bytes")),
    };
    let number: u64 = number.parse().map_err(|_| format!("'{text}' is not a size; write it like 512MiB"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text} is more bytes than a computer can count"))
}

/// A size above zero.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("use 1 byte or more".into()),
        bytes => Ok(bytes),
    }
}

/// Most bytes of an SSD: its blocks have numbers of 32 bits, and some are spare.
const SSD_MOST: u64 = 1 << 44;

/// The logical capacity of an SSD.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_ssd_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes @ 1..SSD_MOST if bytes.is_multiple_of(4096) => Ok(bytes),
        _ => Err("use a multiple of 4 KiB, below 16 TiB".into()),
    }
}

/// A time: a number with ms, s, m or h; seconds without a unit.
///
/// # Errors
/// A sentence about what is wrong.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        part if part.starts_with('-') => return Err(format!("'{text}' is not a time: no time is negative")),
        _ if number.is_empty() => return Err(format!("'{text}' is not a time; write it like 10s")),
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
    fn a_wrong_value_is_told_in_words_of_its_kind() {
        let _deadline = deadline();
        for (text, why) in [
            ("1.5MiB", "'1.5MiB' is no whole number; write it with a smaller unit, like 1536KiB"),
            ("-5", "no size is negative"),
            ("-5MiB", "no size is negative"),
            ("soon", "'soon' is not a size"),
            ("3 Parsec", "'Parsec' is not a unit"),
        ] {
            assert!(parse_size(text).is_err_and(|said| said.contains(why)), "{text}: {:?}", parse_size(text));
        }
        assert_eq!(parse_size(" 1 MiB "), Ok(1 << 20));
        for wrong in ["0", "1", "4097", "16TiB", "900TiB"] {
            assert!(parse_ssd_size(wrong).is_err_and(|said| said.contains("multiple of 4 KiB")), "{wrong}");
        }
        for (text, why) in
            [("127.0.0.1:99999", "1 to 65535"), ("nonsense", "no IP address"), (":", "no port")]
        {
            assert!(parse_listen(text).is_err_and(|said| said.contains(why)), "{text}");
        }
        for text in ["foo", "host:0", ":1", "host:", "ftp://host:1", "http://"] {
            assert!(parse_daemon(text).is_err_and(|said| said.contains("is not an address")), "{text}");
        }
        for text in ["host:1", "[::1]:7117", "https://host:7117", "http://host"] {
            assert_eq!(parse_daemon(text).as_deref(), Ok(text));
        }
        assert_eq!(whole::<u8>(1, 24)("24"), Ok(24));
        assert_eq!(whole::<u8>(1, 24)("25"), Err("use a whole number from 1 to 24".into()));
        assert_eq!(number::<u32>("1 to 64")("-1"), Err("use a whole number, 1 to 64".into()));
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
