// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which SSDs a list shows, and in which order.

use super::state;
use crate::args::{ChosenSsds, SsdSortKey};
use gnstor_proto::grpc::FleetSsd;

/// The SSDs that match all filters, sorted. Equal ones stay in the order of their numbers.
pub(crate) fn chosen<'a>(ssds: &'a [FleetSsd], chosen: &ChosenSsds) -> Vec<&'a FleetSsd> {
    let matches =
        |ssd: &&FleetSsd| chosen.filters.iter().all(|filter| filter.matches(state(ssd), ssd.node, ssd.rack));
    let mut all: Vec<&FleetSsd> = ssds.iter().filter(matches).collect();
    match chosen.sort {
        SsdSortKey::Ssd => {}
        SsdSortKey::State => all.sort_by_key(|ssd| state(ssd)),
        SsdSortKey::Node => all.sort_by_key(|ssd| (ssd.node, ssd.rack)),
        SsdSortKey::Fill => all.sort_by_key(|ssd| left_to_fill(ssd)),
        SsdSortKey::Copies => all.sort_by_key(|ssd| ssd.serving),
    }
    if chosen.reverse {
        all.reverse();
    }
    all
}

/// Blocks that the SSD has to compare until its fill ends; 0 if it does not fill.
fn left_to_fill(ssd: &FleetSsd) -> u64 {
    let fill = ssd.fill.as_ref().filter(|_| ssd.filling > 0);
    fill.map_or(0, |fill| fill.blocks.saturating_sub(fill.compared_blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::parse_ssd_filter;
    use gnstor_base::testing::deadline;
    use gnstor_proto::grpc::{SsdFill, SsdState};

    fn ssds() -> Vec<FleetSsd> {
        let ssd = |index, node, serving| FleetSsd {
            index,
            node,
            rack: 1,
            state: SsdState::In.into(),
            serving,
            ..FleetSsd::default()
        };
        let mut all = vec![ssd(0, 8, 5), ssd(1, 7, 9), ssd(2, 7, 5), ssd(3, 9, 0)];
        for (ssd, compared_blocks) in [(1, 90), (2, 10)] {
            all[ssd].filling = 1;
            all[ssd].fill = Some(SsdFill { blocks: 100, compared_blocks, ..SsdFill::default() });
        }
        all[3].away = "it does not answer".into();
        all
    }

    fn shown(sort: SsdSortKey, reverse: bool, filters: &[&str]) -> Vec<u32> {
        let filters = filters.iter().map(|text| parse_ssd_filter(text).expect("a filter")).collect();
        chosen(&ssds(), &ChosenSsds { sort, reverse, filters }).iter().map(|ssd| ssd.index).collect()
    }

    #[test]
    fn ssds_are_chosen_by_filters_and_sorted_by_a_column() {
        let _deadline = deadline();
        assert_eq!(shown(SsdSortKey::Ssd, false, &[]), [0, 1, 2, 3]);
        assert_eq!(shown(SsdSortKey::Ssd, true, &["state=filling"]), [2, 1]);
        assert_eq!(shown(SsdSortKey::Ssd, false, &["node=7", "rack=1"]), [1, 2]);
        assert!(shown(SsdSortKey::Ssd, false, &["state=down", "node=7"]).is_empty());
        assert_eq!(shown(SsdSortKey::Fill, true, &["state=fill*"]), [2, 1]);
        assert_eq!(shown(SsdSortKey::Node, false, &[]), [1, 2, 0, 3]);
        assert_eq!(shown(SsdSortKey::Copies, false, &[]), [3, 0, 2, 1]);
        assert_eq!(shown(SsdSortKey::State, false, &[]), [3, 1, 2, 0]);
    }
}
