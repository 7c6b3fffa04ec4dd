// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSD that failed a request of a host call. An SSD that refuses says its number. Of a request without an
//! answer it is known if only one SSD can be meant.

use super::kernels::Item;
use super::{Target, Verb};
use crate::io_failure::FailedSsd;
use gnstor_gnor::abi::GN_QP_BROKEN;
use gnstor_proto::placement::{AnyMap, Rows, group_of};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Detail;

/// The SSD that failed this request, if it is known.
pub(super) fn blamed(target: &Target<'_>, verb: Verb, item: &Item) -> Option<FailedSsd> {
    let is_up = |ssd: u16| target.session.is_up(ssd.into());
    let may_be = || may_be(&target.maps.current(), target, verb, item);
    let index = index_of(item, may_be, is_up)?;
    let address = target.ssds.iter().find(|ssd| ssd.index == u32::from(index)).map(|ssd| ssd.address.clone());
    Some(FailedSsd { index, address: address.filter(|address| !address.is_empty()) })
}

/// The number of the SSD, where these may have failed the request.
fn index_of(item: &Item, may_be: impl Fn() -> Vec<u16>, is_up: impl Fn(u16) -> bool) -> Option<u16> {
    if item.status < 1 << 16 {
        return Detail::from_dw0(item.dw0).ssd.map(u16::from);
    }
    let mut all = may_be();
    if item.status & GN_QP_BROKEN != 0 {
        all.retain(|&ssd| !is_up(ssd));
    }
    match all[..] {
        [one] => Some(one),
        _ => None,
    }
}

/// The SSDs to which commands of the request go.
fn may_be(map: &AnyMap, target: &Target<'_>, verb: Verb, item: &Item) -> Vec<u16> {
    if verb == Verb::Flush {
        return u16::try_from(item.vba).into_iter().collect();
    }
    let (info, shift) = (target.info, target.chunk_blocks.trailing_zeros());
    let vid = u16::try_from(info.vid).ok().and_then(Vid::new);
    let (Some(vid), Ok(shift)) = (vid, u8::try_from(shift)) else { return Vec::new() };
    let group = group_of(vid, item.vba, shift, info.factor, map.groups());
    let places = map.replicas(group, u8::try_from(info.replicas).unwrap_or(u8::MAX));
    let mut all: Vec<u16> = places.map(|member| member.ssd).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use gnstor_gnor::abi::GN_TIMED_OUT;
    use gnstor_proto::status::Refusal;

    #[test]
    fn an_answer_names_its_ssd_and_without_one_it_must_be_the_only_one_that_is_down() {
        let _deadline = Deadline::after(LIMIT);
        let item = |status: u32, dw0: u32| Item { status, dw0, ..Item::default() };
        let of = |item: &Item, may_be: &[u16], down: &[u16]| {
            index_of(item, || may_be.to_vec(), |ssd| !down.contains(&ssd))
        };
        let said = Detail::new(Refusal::NotAReader, Vid::new(1));
        assert_eq!(of(&item(0x4286, said.from_ssd(7).to_dw0()), &[0, 1], &[1]), Some(7));
        assert_eq!(of(&item(0x4286, said.to_dw0()), &[0], &[0]), None, "an SSD of an earlier version");
        let broken = item(GN_QP_BROKEN | 0x0D15, 0);
        assert_eq!(of(&broken, &[0, 1], &[1, 2]), Some(1));
        assert_eq!(of(&broken, &[0, 1], &[0, 1]), None, "both may have failed it");
        assert_eq!(of(&broken, &[0, 1], &[]), None, "it is back by now");
        assert_eq!(of(&item(GN_TIMED_OUT, 0), &[0, 1], &[1]), None, "one that is up may be slow");
        assert_eq!(of(&item(GN_TIMED_OUT, 0), &[3], &[]), Some(3), "the only copy");
    }
}
