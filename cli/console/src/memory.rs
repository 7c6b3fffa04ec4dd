// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of this machine.

/// Bytes of memory that are available without swapping, if the system tells it.
pub fn free_memory() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn the_available_memory_is_a_line_of_the_system() {
        let _deadline = deadline();
        let memory = "MemTotal:       24739764 kB\nMemAvailable:   24086180 kB\n";
        assert_eq!((available(memory), available("MemAvailable: much")), (Some(24_086_180 << 10), None));
    }
}
