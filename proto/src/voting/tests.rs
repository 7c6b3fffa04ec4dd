// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands to a voter: decoding gives back what was encoded, and refuses all other bytes.

use super::*;
use crate::deadline::{Deadline, LIMIT};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = MapName> {
    any::<(u64, u64)>().prop_map(|(epoch, digest)| MapName { epoch, digest })
}

/// Checks that decoding finds any flipped bit of `sealed` bytes.
fn finds_damage<T: core::fmt::Debug + PartialEq>(
    mut bytes: Vec<u8>,
    sealed: usize,
    at: usize,
    bit: u8,
    decode: impl Fn(&[u8]) -> Option<T>,
) {
    let whole = decode(&bytes);
    assert!(whole.is_some());
    assert_eq!(decode(&bytes[..sealed - 1]), None, "it is cut short");
    bytes[at % sealed] ^= 1 << bit;
    assert_eq!(decode(&bytes), None, "byte {} is damaged", at % sealed);
}

proptest! {
    #[test]
    fn a_promise_comes_back_and_damage_is_found(
        term in any::<u64>(), array in any::<[u8; 16]>(), active in name(),
        held in prop::option::of((any::<u64>(), name())), at in any::<usize>(), bit in 0u8..8,
    ) {
        let _deadline = Deadline::after(LIMIT);
        let promise = Promise { term, array, active, held };
        let bytes = promise.encode();
        prop_assert_eq!(Promise::decode(&bytes), Ok(promise));
        finds_damage(bytes, PROMISE_BYTES, at, bit, |bytes| Promise::decode(bytes).ok());
    }

    #[test]
    fn a_hold_comes_back_with_its_map_and_damage_is_found(
        numbers in any::<[u64; 4]>(), array in any::<[u8; 16]>(),
        map in prop::collection::vec(any::<u8>(), 1..200), at in any::<usize>(), bit in 0u8..8,
    ) {
        let _deadline = Deadline::after(LIMIT);
        let [term, instance, epoch, base] = numbers;
        let hold = Hold { term, instance, array, epoch, base };
        let bytes = hold.encode(&map);
        prop_assert_eq!(bytes.len() % 4, 0);
        prop_assert_eq!(Hold::decode(&bytes), Ok((hold, &map[..])));
        finds_damage(bytes, HEAD_BYTES + map.len(), at, bit, |bytes| {
            Hold::decode(bytes).ok().map(|(hold, map)| (hold, map.to_vec()))
        });
    }

    #[test]
    fn an_activation_comes_back_with_its_map_or_without_and_damage_is_found(
        map_name in name(), base in any::<u64>(), array in any::<[u8; 16]>(),
        map in prop::collection::vec(any::<u8>(), 0..200), at in any::<usize>(), bit in 0u8..8,
    ) {
        let _deadline = Deadline::after(LIMIT);
        let map = (!map.is_empty()).then_some(&map[..]);
        let activation = Activation { array, map: map_name, base: map.map_or(0, |_| base) };
        let bytes = activation.encode(map);
        prop_assert_eq!(Activation::decode(&bytes), Ok((activation, map)));
        finds_damage(bytes, HEAD_BYTES + map.map_or(0, <[u8]>::len), at, bit, |bytes| {
            Activation::decode(bytes).ok().map(|(activation, map)| (activation, map.map(<[u8]>::to_vec)))
        });
    }

    #[test]
    fn an_ask_comes_back_and_damage_is_found(
        ssd in any::<u16>(), array in any::<[u8; 16]>(), epoch in any::<u64>(), incarnation in any::<u32>(),
        opening in any::<u32>(), uuid in any::<[u8; 16]>(), is_goodbye in any::<bool>(),
        at in any::<usize>(), bit in 0u8..8,
    ) {
        let _deadline = Deadline::after(LIMIT);
        let ask = Ask { ssd, array, epoch, incarnation, opening, uuid, is_goodbye };
        prop_assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
        finds_damage(ask.encode().to_vec(), HEAD_BYTES, at, bit, |bytes| Ask::decode(bytes).ok());
    }

    #[test]
    fn a_term_take_comes_back(array in any::<[u8; 8]>(), term in any::<u64>(), instance in any::<u64>()) {
        let _deadline = Deadline::after(LIMIT);
        let take = TermTake { array, term, instance };
        prop_assert_eq!(TermTake::of(&take.command()), take);
    }

    #[test]
    fn bytes_of_any_kind_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _deadline = Deadline::after(LIMIT);
        prop_assert!(Promise::decode(&bytes).is_err() && Hold::decode(&bytes).is_err());
        prop_assert!(Activation::decode(&bytes).is_err() && Ask::decode(&bytes).is_err());
    }
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let _deadline = Deadline::after(LIMIT);
    let array = [5; 16];
    let hold = Hold { term: 0x0102, instance: 3, array, epoch: 4, base: 5 }.encode(&[9, 8, 7]);
    assert_eq!(
        (&hold[..8], &hold[8..24]),
        (&b"GNVH\x01\0\0\0"[..], &[2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0][..])
    );
    assert_eq!((&hold[24..40], hold[40], hold[48], hold[56]), (&array[..], 4, 5, 3));
    assert_eq!(hold[64..], [9, 8, 7, 0]);
    let map = MapName { epoch: 6, digest: 0x0708 };
    let activation = Activation { array, map, base: 0 }.encode(None);
    assert_eq!(
        (&activation[..8], &activation[8..24], activation.len()),
        (&b"GNVA\x01\0\0\0"[..], &array[..], 64)
    );
    assert_eq!((activation[24], activation[32], &activation[40..42], activation[48]), (6, 0, &[8, 7][..], 0));
    let (ssd, uuid, is_goodbye) = (0x0201, [6; 16], false);
    let ask = Ask { ssd, array, epoch: 7, incarnation: 9, opening: 11, uuid, is_goodbye };
    let goodbye = Ask { is_goodbye: true, ..ask }.encode();
    let ask = ask.encode();
    assert_eq!(
        (&ask[..8], &ask[8..24], ask[24], ask[32], ask[36], &ask[40..60]),
        (&b"GNVL\x01\0\x01\x02"[..], &array[..], 7, 9, 11, &[[6; 16].as_slice(), &[0; 4]].concat()[..])
    );
    assert_eq!((&goodbye[..56], &goodbye[56..60]), (&ask[..56], &[1, 0, 0, 0][..]));
    let promise = Promise { term: 2, array, active: map, held: Some((3, MapName { epoch: 7, digest: 1 })) };
    let promise = promise.encode();
    assert_eq!((&promise[..8], promise[8], promise[16]), (&b"GNVP\x01\0\x01\0"[..], 2, 6));
    assert_eq!((promise[24], promise[32], &promise[48..64]), (7, 3, &array[..]));
    assert_eq!((&promise[64..66], promise[72]), (&[8, 7][..], 1));
    let take = TermTake { array: [1; 8], term: 1 << 32, instance: 5 }.command();
    assert_eq!((take.opcode, take.cdw10.get(), take.cdw2.get(), take.cdw15.get()), (0xD2, 1024, 5, 1));
    assert_eq!((Ask::command().opcode, Ask::command().cdw10.get()), (0xD9, 16));
}

#[test]
fn two_maps_of_one_epoch_have_other_digests() {
    let _deadline = Deadline::after(LIMIT);
    let map = [7u8; 100];
    let mut other = map;
    other[99] = 8;
    let digests = [&map[..], &other, &map[..99], &[]].map(map_digest);
    assert!((1..4).all(|i| !digests[..i].contains(&digests[i])));
}
