// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of the modelled SSDs, each with its source.

/// Figures of one SSD. A time or a rate of zero means "takes no time".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preset {
    /// Name, as [`Preset::by_name`] takes it.
    pub name: &'static str,
    /// Serial firmware time of a read command, ns.
    pub fw_read_ns: u64,
    /// Serial firmware time of any other command, ns.
    pub fw_write_ns: u64,
    /// Latency of the permission check and the map's hashes, ns. Pipelined: it delays a command, not the next one.
    pub hash_ns: u64,
    /// Flash channels.
    pub channels: u32,
    /// Flash dies (logical units) on each channel.
    pub luns_per_channel: u32,
    /// Rate of a channel, bytes/s.
    pub channel_bytes_per_s: u64,
    /// Rate of the host link of the SSD, bytes/s, each way.
    pub pcie_bytes_per_s: u64,
    /// Sensing time of a flash page (tR), ns.
    pub sense_ns: u64,
    /// Program time of a one-shot (tPROG), ns.
    pub program_ns: u64,
    /// 4 KiB pages sensed at once.
    pub sense_pages: u32,
    /// 4 KiB pages programmed at once, at most 16.
    pub program_pages: u32,
    /// 4 KiB pages of power-protected write buffer.
    pub buffer_pages: u32,
}

/// The paper's SSD: a Samsung 980 PRO class device whose figures are those of the paper's Table 2 (64K: 6988/4950 MB/s,
/// 4K: 3250/2980 MB/s, read/write).
///
/// | figure | value | source |
/// |---|---|---|
/// | firmware, read | 1260 ns | 4 KiB / 3250 MB/s: what the serial part may cost at most |
/// | firmware, write | 1374 ns | 4 KiB / 2980 MB/s: no NAND or link limit explains the paper's figure |
/// | hash | 276 ns | the paper, section 5.1 |
/// | 8 channels x 4 LUN, 1200 MB/s | | NVMeVirt's 970 PRO geometry; with 16 KiB pages and 32 KiB one-shots |
/// | PCIe | 6988 MB/s | the paper's 64K read |
/// | tPROG | 185 us | NVMeVirt's 970 PRO; 32 x 32 KiB / (27.3 + 185 us) = 4939 MB/s, the paper's 64K write |
/// | tR | 33.0 us | fitted: see below |
/// | buffer | 2 MiB | NVMeVirt: two one-shots for each LUN |
///
/// With every LUN always busy, 4K random reads at 3250 MB/s would allow tR = 36.9 us. A queue of 256 random reads
/// leaves some LUNs idle while others have several in line: 36.9 us give 3019 MB/s. tR is fitted so that random reads
/// meet the figure (33.0 us: 3253 MB/s, 34.0 us: 3237 MB/s).
const GNSTOR_980PRO: Preset = Preset {
    name: "gnstor-980pro",
    fw_read_ns: 1260,
    fw_write_ns: 1374,
    hash_ns: 276,
    channels: 8,
    luns_per_channel: 4,
    channel_bytes_per_s: 1_200_000_000,
    pcie_bytes_per_s: 6_988_000_000,
    sense_ns: 33_000,
    program_ns: 185_000,
    sense_pages: 4,
    program_pages: 8,
    buffer_pages: 512,
};

/// No modelled time at all, and nothing else left out: every check, the map and the out-of-band area work as ever.
const NULL: Preset = Preset {
    name: "null",
    fw_read_ns: 0,
    fw_write_ns: 0,
    hash_ns: 0,
    channel_bytes_per_s: 0,
    pcie_bytes_per_s: 0,
    sense_ns: 0,
    program_ns: 0,
    ..GNSTOR_980PRO
};

impl Preset {
    /// The names that [`Self::by_name`] knows.
    pub const NAMES: &'static [&'static str] = &[GNSTOR_980PRO.name, NULL.name];

    /// The preset of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        [GNSTOR_980PRO, NULL].into_iter().find(|preset| preset.name == name)
    }

    /// Dies of the SSD.
    pub const fn luns(&self) -> u32 {
        self.channels * self.luns_per_channel
    }

    /// The 4 KiB pages of one program unit on every die: the grain of the media's size.
    pub const fn stripe_pages(&self) -> u32 {
        self.luns() * self.program_pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_preset_whose_units_nest() {
        for name in Preset::NAMES {
            let preset = Preset::by_name(name).unwrap();
            assert_eq!(&preset.name, name);
            assert!(preset.program_pages.is_multiple_of(preset.sense_pages) && preset.program_pages <= 16);
            let waiting = preset.luns() * (preset.program_pages - 1);
            assert!(preset.buffer_pages > waiting, "{name}: half-filled one-shots alone would fill the buffer");
        }
        assert_eq!(Preset::by_name("floppy"), None);
    }
}
