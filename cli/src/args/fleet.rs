// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of `gnstor fleet`.

use super::ArrayArgs;
use crate::filter::SsdFilter;
use clap::{Args, Subcommand, ValueEnum};
use gnstor_console::words::{parse_address, parse_ssd, whole};

/// `gnstor fleet`.
#[derive(Clone, Debug, Args)]
pub struct FleetArgs {
    /// What to do with the fleet.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// Which SSDs a list shows, and in which order.
#[derive(Clone, Debug, Args)]
pub struct ChosenSsds {
    /// Order of the SSDs
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = SsdSortKey::Ssd)]
    pub sort: SsdSortKey,
    /// Reverse the order
    #[arg(long)]
    pub reverse: bool,
    /// Show only SSDs that match: state=PATTERN (with * and ?), node=NUMBER, rack=NUMBER. Repeatable: an SSD
    /// must match all
    #[arg(long = "filter", value_name = "WORD=VALUE", value_parser = crate::filter::parse_ssd_filter)]
    pub filters: Vec<SsdFilter>,
}

/// What a list of SSDs is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SsdSortKey {
    /// Number of the SSD
    Ssd,
    /// Its state
    State,
    /// Its node, then its rack
    Node,
    /// What is left of its fill; an SSD that does not fill has nothing left
    Fill,
    /// Number of groups of which it serves a copy
    Copies,
}

/// `gnstor fleet ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// Show the SSDs, how many copies are left, and changes in progress
    #[command(after_help = concat!(
        "Examples:\n  gnstor fleet show\n  gnstor fleet show --filter state=filling --sort fill\n",
        "  gnstor fleet show --json | jq -r .state\n\n",
        "Exit codes: 0 healthy; 1 the daemon did not answer; 2 degraded: some blocks have fewer copies than ",
        "they should, or an SSD is down; 3 some blocks cannot be read or written; 64 the command line was not ",
        "understood.",
    ))]
    Show {
        /// The SSDs to show.
        #[command(flatten)]
        ssds: ChosenSsds,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Keep showing the fleet: redraw it on a terminal, else print it again at each change
    #[command(after_help = concat!(
        "Examples:\n  gnstor fleet watch\n  gnstor fleet watch --json\n\n",
        "Exit codes, by what was seen last: 0 healthy; 1 the daemon did not answer at first; 2 degraded; 3 some ",
        "blocks cannot be read or written; 64 the command line was not understood.",
    ))]
    Watch(ArrayArgs),
    /// Let an SSD back into the array after fail, remove, too many restarts or lost writes
    #[command(after_help = "Examples:\n  gnstor fleet resume 2\n  gnstor fleet resume 2 --lose-data")]
    Resume {
        /// Number of the SSD
        #[arg(value_parser = parse_ssd)]
        ssd: u16,
        /// Resume it even if it lost writes and has the only copy of some blocks: these may be older than
        /// what was written
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Remove an SSD from the array at once; it stays out until `fleet resume`
    #[command(after_help = "Examples:\n  gnstor fleet fail 2\n  gnstor fleet fail 2 --lose-data")]
    Fail {
        /// Number of the SSD
        #[arg(value_parser = parse_ssd)]
        ssd: u16,
        /// Remove it even if it has the only copy of some blocks: they cannot be read or written until it is
        /// back
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Add an SSD to the running array: an empty one, started with the next free number. It takes its share
    /// of the blocks from the others, which serve meanwhile
    #[command(after_help = concat!(
        "Start the SSD first (numbers go on from those in `gnstor fleet show`):\n",
        "  gnstor ssd --index 4 --listen 10.0.0.5:4421 --data ssd-4.gns --size 1TiB --manager-key array.key\n",
        "  gnstor fleet add 10.0.0.5:4421",
    ))]
    Add(AddSsd),
    /// Put the empty SSD that was started with a lost SSD's number in the lost one's place
    #[command(after_help = concat!(
        "Start an empty SSD with the number of the lost one first:\n",
        "  gnstor ssd --index 2 --listen 10.0.0.5:4421 --data new.gns --size 1TiB --manager-key array.key\n",
        "  gnstor fleet replace 2",
    ))]
    Replace {
        /// Number of the SSD
        #[arg(value_parser = parse_ssd)]
        ssd: u16,
        /// Replace it even if it had the only copy of some blocks: these then read as zeros
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Where all copies of some blocks lost writes: merge them, so that the newest ones serve again
    #[command(after_help = concat!(
        "For an array whose SSDs all lost their power without a dump. Each SSD that has a last copy must be ",
        "there. Of each block the newest write wins that an SSD kept. What was flushed is kept; what no SSD ",
        "kept is lost, and `gnstor volume list` notes the time.\n\n",
        "Examples:\n",
        "  gnstor fleet salvage --dry-run\n",
        "  gnstor fleet salvage --yes",
    ))]
    Salvage {
        /// Only show what would be merged
        #[arg(long, required_unless_present = "yes", conflicts_with = "yes")]
        dry_run: bool,
        /// Merge the copies
        #[arg(long)]
        yes: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Copy an SSD's blocks to other SSDs, then take it out; no block has a copy less meanwhile
    #[command(after_help = "Examples:\n  gnstor fleet drain 2\n  gnstor fleet watch")]
    Drain {
        /// Number of the SSD
        #[arg(value_parser = parse_ssd)]
        ssd: u16,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Remove an SSD if every block that it serves has another copy; it stays out until `fleet resume`
    #[command(after_help = "Example:\n  gnstor fleet remove 2")]
    Remove {
        /// Number of the SSD
        #[arg(value_parser = parse_ssd)]
        ssd: u16,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
}

/// `gnstor fleet add`.
#[derive(Clone, Debug, Args)]
pub struct AddSsd {
    /// HOST:PORT at which the daemon, the other SSDs and the clients reach the SSD
    #[arg(value_parser = parse_address, value_name = "SSD-ADDRESS")]
    pub address: String,
    /// Keep it without blocks, as a spare: it takes the places of the next SSD that is lost or drained
    #[arg(long)]
    pub spare: bool,
    /// Number of its node. A block's copies lie on different nodes while there are enough [default: a
    /// node of its own]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(0, 65_535))]
    pub node: Option<u16>,
    /// Number of its rack, for people
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole::<u16>(0, 65_535))]
    pub rack: u16,
    /// Its share of the blocks, in shares of another SSD: 0.01 to 100
    #[arg(long, value_name = "W", default_value = "1", value_parser = parse_weight)]
    pub weight: u32,
    /// The array.
    #[command(flatten)]
    pub array: ArrayArgs,
}

/// A weight in 1/65,536.
fn parse_weight(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text} is no weight; use 0.01 to 100 (1: a share as the others)");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole)
        || !is_number(part)
        || whole.len() + part.len() == 0
        || whole.len() > 3
        || part.len() > 6
    {
        return Err(wrong());
    }
    let millionths = format!("{whole:0>1}{part:0<6}").parse::<u64>().map_err(|_| wrong())?;
    let weight = (millionths << 16).div_ceil(1_000_000);
    let is_possible = (10_000..=100_000_000).contains(&millionths);
    u32::try_from(weight).ok().filter(|_| is_possible).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_weight_is_a_number_of_shares() {
        let _deadline = deadline();
        for (text, weight) in
            [("1", 65_536), ("0.5", 32_768), (".25", 16_384), ("100", 6_553_600), ("0.01", 656)]
        {
            assert_eq!(parse_weight(text), Ok(weight), "{text}");
        }
        for text in ["", ".", "0", "0.009", "100.1", "-1", "1e2", "1.0000001", "x", "1000", "1,5"] {
            assert!(parse_weight(text).is_err_and(|why| why.contains("0.01 to 100")), "{text}");
        }
    }
}
