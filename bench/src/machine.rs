// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine and the build of a result.

use gnstor_console::CliError;
use libgnstor::Device;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// A machine, without its name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    /// The device: `cuda` or `host`, and its name.
    pub(super) device: String,
    pub(super) device_name: String,
    /// Driver of the GPU, if the system tells it.
    pub(super) driver: Option<String>,
    pub(super) cpu: Option<String>,
    /// Cores that this process may use.
    pub(super) cores: usize,
}

/// A build of the command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Build {
    pub(super) version: String,
    /// SHA-256 of the executable.
    pub(super) sha256: String,
}

impl Machine {
    pub(super) fn of(device: &Device) -> Self {
        Self {
            device: device.kind().into(),
            device_name: device.name(),
            driver: std::fs::read_to_string("/proc/driver/nvidia/version")
                .ok()
                .and_then(|text| driver(&text)),
            cpu: std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu(&text)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// A line for people.
    pub(super) fn line(&self) -> String {
        let driver = self.driver.as_ref().map_or_else(String::new, |driver| format!(", driver {driver}"));
        let cpu = self.cpu.as_deref().unwrap_or("a CPU that does not say its name");
        format!("{}{driver}; {} cores of {cpu}", self.device_name, self.cores)
    }
}

/// The number in the driver's own words: the first that has dots.
fn driver(text: &str) -> Option<String> {
    let mut words = text.lines().next()?.split_whitespace();
    let is_number = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    words.find(is_number).map(str::to_owned)
}

/// The first processor's name.
fn cpu(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(name.trim_start_matches([' ', '\t', ':']).trim_end().to_owned())
}

impl Build {
    /// The build of the running executable.
    ///
    /// # Errors
    /// [`CliError::File`]: it cannot be read.
    pub(super) fn this() -> Result<Self, CliError> {
        // This name works even if the file was replaced meanwhile.
        let path = "/proc/self/exe";
        let bytes =
            std::fs::read(path).map_err(|e| CliError::File { path: path.into(), cause: e.to_string() })?;
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { version: env!("CARGO_PKG_VERSION").into(), sha256 })
    }
}

/// Date and time in UTC, in the form of RFC 3339.
pub(super) fn now() -> String {
    let mut text = String::new();
    match SystemTime.format_time(&mut Writer::new(&mut text)) {
        Ok(()) => text,
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn driver_and_processor_are_found_in_what_the_system_says() {
        let _deadline = deadline();
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  \
                    Release Build\nGCC version: 12.2.0";
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19";
        assert_eq!(
            [driver(open), driver(closed)].map(Option::unwrap_or_default),
            ["580.159.04", "535.104.05"]
        );
        assert_eq!((driver(""), driver("no number here")), (None, None));
        let info = "processor\t: 0\nmodel name\t: A CPU @ 2.00GHz\nprocessor\t: 1\nmodel name\t: Another\n";
        assert_eq!((cpu(info).as_deref(), cpu("processor: 0")), (Some("A CPU @ 2.00GHz"), None));
    }

    #[test]
    fn a_build_is_known_by_its_bytes_and_a_time_by_its_day() {
        let _deadline = deadline();
        let build = Build::this().expect("the test can be read");
        assert!(build.sha256.len() == 64 && build == Build::this().expect("again"));
        let now = now();
        assert!(
            now.len() >= 20 && now.starts_with("20") && now.ends_with('Z') && now.as_bytes()[10] == b'T',
            "{now}"
        );
    }
}
