// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every format: written bytes are read back, changed bytes are refused, and any bytes are refused without a
//! panic.

use super::{Dice, ID, SIZES, entry, vid};
use crate::cell::{Cell, Kind};
use crate::checkpoint::CheckpointHead;
use crate::header::{Mode, Slot};
use crate::page::{HEAD, PageHead, decode_page};
use crate::record::{Transactions, encode_transaction_head};
use crate::{
    AppliedStamp, Bounds, Dump, DumpIdentity, Durable, EntryCell, Header, HistoryMeta, Meta, Record,
    SuperblockState, Tombstone,
};
use gnstor_flash::{Block, Power, RamStore, Store, Superblock};
use gnstor_proto::slba::{Stamp, Vid};
use proptest::prelude::*;
use std::sync::Arc;

pub(super) fn bounds() -> Bounds {
    Bounds { map_words: 1 << 40, superblocks: u32::MAX, blocks: u32::MAX }
}

fn any_record() -> impl Strategy<Value = Record> {
    let vid = || (1u16..0xFFFF).prop_map(|raw| Vid::new(raw).unwrap());
    let superblock = || (0..u32::MAX).prop_map(Superblock);
    prop_oneof![
        (0u64..1 << 40, any::<u64>()).prop_map(|(index, value)| Record::Word { index, value }),
        (vid(), any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(vid, vba, lease_epoch, sequence)| {
            Record::Applied { vid, vba, stamp: Stamp { lease_epoch, sequence } }
        }),
        (superblock(), any::<u8>(), 0..1u64 << 62).prop_map(|(superblock, stream, order)| Record::Opened {
            superblock,
            stream,
            order
        }),
        superblock().prop_map(|superblock| Record::Closed { superblock }),
        (superblock(), 0..1u32 << 31).prop_map(|(superblock, erases)| Record::Erased { superblock, erases }),
        (0..u32::MAX).prop_map(|block| Record::Bad { block: Block(block) }),
        (vid(), any::<u32>()).prop_map(|(vid, generation)| Record::Forgotten { vid, generation }),
    ]
}

pub(super) fn encode(transactions: &[Vec<Record>]) -> Vec<u8> {
    let mut out = Vec::new();
    for records in transactions {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        records.iter().for_each(|record| record.encode(&mut out));
        let head = encode_transaction_head(out.len() - start, u16::try_from(records.len()).unwrap());
        out[start..start + 8].copy_from_slice(&head);
    }
    out
}

pub(super) fn page(transactions: &[Vec<Record>]) -> Vec<u8> {
    let body = encode(transactions);
    let mut page = vec![0; 4096];
    page[HEAD..HEAD + body.len()].copy_from_slice(&body);
    let head = PageHead {
        tag: 7,
        page: 9,
        first: 100,
        durable_pages: 8,
        boot: 2,
        count: u16::try_from(transactions.len()).unwrap(),
        bytes: u16::try_from(body.len()).unwrap(),
    };
    head.seal(&mut page);
    page
}

pub(super) fn meta(seed: u64) -> Meta {
    let mut dice = Dice(seed);
    let mut meta = Meta::empty(&SIZES);
    for superblock in &mut meta.superblocks {
        superblock.state = match dice.below(4) {
            0 => SuperblockState::Free,
            1 => SuperblockState::Open { stream: u8::try_from(dice.below(256)).unwrap() },
            2 => SuperblockState::Closed,
            _ => SuperblockState::Dead,
        };
        superblock.order = dice.below(1 << 62);
        superblock.erases = u32::try_from(dice.below(1 << 31)).unwrap();
    }
    meta.bad = (0..dice.below(5)).map(|_| Block(u32::try_from(dice.below(64)).unwrap())).collect();
    for raw in 0..u16::try_from(dice.below(4)).unwrap() {
        let stamp = |dice: &mut Dice| Stamp { lease_epoch: 4, sequence: dice.next() };
        let stamps =
            (0..dice.below(2000)).map(|vba| AppliedStamp::new(u32::try_from(vba).unwrap(), stamp(&mut dice)));
        let stamps = stamps.collect();
        meta.histories.push(HistoryMeta {
            vid: vid(raw + 1),
            ahead: u32::try_from(dice.below(1 << 32)).unwrap(),
            stamps,
        });
    }
    let mut count = || dice.below(1 << 62);
    (meta.next_order, meta.page_seq, meta.written_host, meta.written_flash) =
        (count(), count(), count(), count());
    meta
}

pub(super) fn header(seed: u64) -> Header {
    let mut dice = Dice(seed);
    let mut slot =
        || Slot { number: dice.below(99), seq: dice.below(1 << 40), page: dice.below(1 << 40), boot: 3 };
    let slots = [slot(), slot()];
    let (mode, entries, tombstones) = (Mode::Clean, SIZES.volumes, 3);
    let (boot, journal_page, floor, dump) = (5, 6, 7, 8);
    Header {
        id: ID,
        life: 4,
        sizes: SIZES,
        entries,
        tombstones,
        mode,
        boot,
        journal_page,
        floor,
        dump,
        slots,
    }
}

/// Calls every decoder. Only a panic is a failure.
fn decode_all(bytes: &[u8]) {
    let mut transactions = Transactions::default();
    let _ = Record::decode(bytes, &bounds());
    let _ = transactions.decode(bytes, 3, &bounds());
    let _ = decode_page(bytes, &bounds(), &mut transactions);
    let _ = Meta::decode(bytes, &SIZES);
    let _ = Header::decode(bytes);
    let _ = Cell::decode(bytes, Kind::Entry, 0);
    let _ = CheckpointHead::decode(bytes);
    let _ = EntryCell::decode(bytes);
    let _ = Tombstone::decode(bytes);
    let _ = Dump::decode(bytes.to_vec(), DumpIdentity { tag: 7, number: 1 }, &SIZES);
}

proptest! {
    #[test]
    fn a_record_round_trips(record in any_record()) {
        let _deadline = crate::tests::deadline();
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        prop_assert_eq!(Record::decode(&bytes, &bounds()), Ok((record, bytes.len())));
        for cut in 0..bytes.len() {
            prop_assert!(Record::decode(&bytes[..cut], &bounds()).is_err());
        }
    }

    #[test]
    fn a_record_beyond_this_ssd_is_refused(record in any_record()) {
        let _deadline = crate::tests::deadline();
        let small = Bounds::from(&SIZES);
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        prop_assert_eq!(Record::decode(&bytes, &small).is_ok(), small.allow(&record));
    }

    #[test]
    fn a_page_round_trips_and_a_flipped_bit_is_refused(
        transactions in proptest::collection::vec(proptest::collection::vec(any_record(), 0..9), 0..15),
        bit in 0usize..4096 * 8,
    ) {
        let _deadline = crate::tests::deadline();
        let mut bytes = page(&transactions);
        let mut read = Transactions::default();
        let head = decode_page(&bytes, &bounds(), &mut read).unwrap();
        prop_assert_eq!((head.page, head.first, head.boot, head.tag, head.durable_pages), (9, 100, 2, 7, 8));
        prop_assert_eq!(read.iter().map(<[Record]>::to_vec).collect::<Vec<_>>(), transactions);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_page(&bytes, &bounds(), &mut read).is_err());
        prop_assert!(read.is_empty());
    }

    #[test]
    fn meta_round_trips(seed: u64) {
        let _deadline = crate::tests::deadline();
        let meta = meta(seed);
        let bytes = meta.encode(&SIZES).unwrap();
        prop_assert_eq!(Meta::decode(&bytes, &SIZES).unwrap(), meta);
        prop_assert!(Meta::decode(&bytes[..bytes.len() - 1], &SIZES).is_err());
    }

    #[test]
    fn a_header_round_trips(seed: u64) {
        let _deadline = crate::tests::deadline();
        let header = header(seed);
        prop_assert_eq!(Header::decode(&header.encode()).unwrap(), header);
    }

    #[test]
    fn a_cell_round_trips_and_a_flipped_bit_is_refused(
        content in proptest::collection::vec(any::<u8>(), 0..3000),
        version in 0..1u64 << 62,
        bit: prop::sample::Index,
    ) {
        let _deadline = crate::tests::deadline();
        let cell = Cell { tag: 5, version, content: &content };
        let mut bytes = cell.encode(Kind::Map, 3);
        prop_assert_eq!(Cell::decode(&bytes, Kind::Map, 3), Ok(cell));
        prop_assert!(Cell::decode(&bytes, Kind::Map, 2).is_err());
        prop_assert!(Cell::decode(&bytes, Kind::Entry, 3).is_err());
        // Bytes after the content are no part of the cell.
        let bit = bit.index((64 + content.len()) * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Cell::decode(&bytes, Kind::Map, 3).is_err());
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        let _deadline = crate::tests::deadline();
        decode_all(&bytes);
    }

    /// Valid bytes with a change that keeps the checksum right: the decoder checks the fields themselves.
    #[test]
    fn changed_bytes_under_a_right_checksum_do_not_panic(seed: u64, changes in 1usize..9) {
        let _deadline = crate::tests::deadline();
        let mut dice = Dice(seed);
        let mut change = |bytes: &mut [u8]| for _ in 0..changes {
            let at = usize::try_from(dice.below(bytes.len() as u64)).unwrap();
            bytes[at] = [0, 0xFF, 1, dice.next().to_le_bytes()[0]][usize::try_from(dice.below(4)).unwrap()];
        };
        let mut dice_of_records = Dice(seed);
        let mut batch = || (0..5).map(|_| dice_of_records.record()).collect();
        let mut bytes = page(&(0..3).map(|_| batch()).collect::<Vec<_>>());
        change(&mut bytes);
        crate::bytes::seal(&mut bytes);
        let mut out = Transactions::default();
        if let Ok(head) = decode_page(&bytes, &bounds(), &mut out) {
            prop_assert_eq!(out.len(), usize::from(head.count));
        }
        let mut bytes = meta(seed).encode(&SIZES).unwrap();
        let front = bytes.len().min(400);
        change(&mut bytes[..front]);
        decode_all(&bytes);
        let mut bytes = header(seed).encode();
        change(&mut bytes);
        decode_all(&bytes);
    }
}

#[test]
fn an_entry_cell_names_its_own_volume() {
    let _deadline = crate::tests::deadline();
    let bytes = entry(vid(3), 2, 1);
    let mut content = [3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    content.extend_from_slice(&bytes);
    assert_eq!(EntryCell::decode(&content), Ok(EntryCell { vid: vid(3), bytes }));
    content[0] = 4;
    assert!(EntryCell::decode(&content).is_err());
}

#[test]
fn a_store_keeps_the_volumes_the_dump_and_the_journal_that_it_was_formatted_with() {
    let _deadline = crate::tests::deadline();
    let made = crate::Sizes {
        volumes: 64,
        dump_bytes: 2 * SIZES.dump_bytes,
        journal_bytes: 2 * SIZES.journal_bytes,
        ..SIZES
    };
    let store = RamStore::new(made.store_bytes(), Arc::new(Power::steady()));
    let store: Arc<dyn Store> = Arc::new(store);
    let mut metadata = Durable::format(Arc::clone(&store), made, 1).unwrap().metadata;
    (1..=64).for_each(|raw| metadata.put_entry(vid(raw), &entry(vid(raw), 1, 1)).unwrap());
    drop(metadata);
    let opened = Durable::open(Arc::clone(&store), SIZES).unwrap();
    assert_eq!((*opened.durable.sizes(), opened.metadata.contents().entries.len()), (made, 64));
    opened.durable.checkpoint().unwrap();
    let error = Durable::open(store, crate::Sizes { map_words: 4999, ..SIZES }).unwrap_err().to_string();
    assert_eq!(error, "the system area was formatted with `map_words` = 5000, not 4999");
}

#[test]
fn a_checkpoint_has_room_for_the_whole_stamp_history_of_every_volume() {
    let _deadline = crate::tests::deadline();
    let stamps = vec![AppliedStamp::new(7, Stamp { lease_epoch: 1, sequence: 2 }); 4096];
    let bad = (0..SIZES.blocks).map(Block).collect();
    let history = |raw| HistoryMeta { vid: vid(raw), ahead: 0, stamps: stamps.clone() };
    let histories = (1..=u16::try_from(SIZES.volumes).unwrap()).map(history).collect();
    let mut meta = Meta { bad, histories, ..Meta::empty(&SIZES) };
    let bytes = meta.encode(&SIZES).unwrap();
    assert_eq!(Meta::decode(&bytes, &SIZES).unwrap(), meta);
    meta.histories.push(history(100));
    assert!(meta.encode(&SIZES).is_err());
}

#[test]
fn the_documented_offsets_are_right() {
    let _deadline = crate::tests::deadline();
    let sizes = crate::Sizes {
        map_words: 1 << 20,
        superblocks: 100,
        blocks: 3200,
        journal_bytes: 512 << 20,
        dump_bytes: 64 << 20,
        volumes: 4096,
        map_bytes: 1 << 20,
        held_map: true,
    };
    let layout = crate::layout::Layout::new(&sizes);
    assert_eq!((layout.dump, layout.ring), (136_347_648, 203_456_512));
    let offsets =
        [layout.dump, layout.ring, layout.checkpoints[0], layout.checkpoints[1], layout.table, layout.meta];
    assert!(offsets.iter().all(|at| at % 4096 == 0));
    assert_eq!(sizes.store_bytes(), layout.end);
}

#[test]
fn sizes_without_sense_are_refused() {
    let _deadline = crate::tests::deadline();
    for sizes in [
        crate::Sizes { map_words: 0, ..SIZES },
        crate::Sizes { map_words: u64::MAX, ..SIZES },
        crate::Sizes { volumes: 65_535, ..SIZES },
        crate::Sizes { journal_bytes: u64::MAX, ..SIZES },
        crate::Sizes { dump_bytes: 5, ..SIZES },
    ] {
        let _ = sizes.store_bytes();
        assert!(sizes.check().is_err(), "{sizes:?}");
    }
}
