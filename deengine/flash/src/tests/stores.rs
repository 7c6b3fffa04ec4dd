// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A power cut loses unsynced writes, and no others.

use super::*;
use proptest::prelude::*;
use std::io::ErrorKind;

const LEN: u64 = 64 << 10;

fn contents(store: &dyn Store) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(store.len()).unwrap()];
    store.read(0, &mut bytes).unwrap();
    bytes
}

#[derive(Clone, Debug)]
enum Op {
    Write { at: u64, sectors: usize, fill: u8 },
    Sync,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let write = (0..120u64, 1..9usize, 1..=255u8).prop_map(|(at, sectors, fill)| Op::Write {
        at: at * 512,
        sectors,
        fill,
    });
    prop::collection::vec(prop_oneof![4 => write, 1 => Just(Op::Sync)], 1..40)
}

proptest! {
    /// Runs a script and cuts the power at one of its operations. Afterwards every sector has the bytes of
    /// the last sync, or of a later write to it.
    #[test]
    fn after_a_cut_every_sector_is_synced_or_of_a_later_write(
        ops in ops(), at: prop::sample::Index, seed: u64
    ) {
        let _deadline = crate::tests::deadline();
        let cut = at.index(ops.len()) as u64 + 1;
        let power = Arc::new(Power::cut_after(cut, seed));
        let store = RamStore::new(LEN, Arc::clone(&power));
        let sectors = usize::try_from(LEN / 512).unwrap();
        let mut allowed: Vec<Vec<u8>> = vec![vec![0]; sectors];
        for (number, op) in (1..).zip(&ops) {
            let result = match op {
                Op::Write { at, sectors, fill } => {
                    if number <= cut {
                        let first = usize::try_from(at / 512).unwrap();
                        allowed[first..first + sectors].iter_mut().for_each(|allowed| allowed.push(*fill));
                    }
                    store.write(*at, &vec![*fill; sectors * 512])
                }
                Op::Sync => {
                    if number < cut {
                        allowed.iter_mut().for_each(|allowed| drop(allowed.drain(..allowed.len() - 1)));
                    }
                    store.sync()
                }
            };
            prop_assert_eq!(result.is_ok(), number < cut);
        }
        prop_assert_eq!(power.ops(), cut);
        store.after_power_cut(seed ^ 1);
        power.restore();
        let after = contents(&store);
        for (sector, (bytes, allowed)) in after.chunks_exact(512).zip(&allowed).enumerate() {
            prop_assert!(bytes.iter().all(|byte| *byte == bytes[0]), "sector {} is torn inside", sector);
            prop_assert!(allowed.contains(&bytes[0]), "sector {} is {}, not one of \
                {:?}", sector, bytes[0], allowed);
        }
        store.after_power_cut(seed ^ 2);
        prop_assert_eq!(contents(&store), after, "a second cut with nothing written changes nothing");
    }
}

#[test]
fn an_unsynced_write_is_kept_dropped_or_torn_by_seed() {
    let _deadline = crate::tests::deadline();
    let mut outcomes = [0; 3];
    for seed in 0..200 {
        let store = RamStore::new(LEN, Arc::new(Power::steady()));
        store.write(512, &[7; 2048]).unwrap();
        store.after_power_cut(seed);
        match contents(&store)[512..2560].iter().filter(|byte| **byte == 7).count() {
            0 => outcomes[0] += 1,
            2048 => outcomes[1] += 1,
            _ => outcomes[2] += 1,
        }
    }
    assert!(outcomes.iter().all(|&count| count > 20), "dropped, kept, torn: {outcomes:?}");
}

#[test]
fn bytes_outside_are_refused_and_do_not_count() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let file = new_file(&folder.path().join("ssd"), IoMode::Auto);
    let power = Arc::new(Power::steady());
    let stores: [Box<dyn Store>; 2] = [
        Box::new(RamStore::new(100_000, Arc::clone(&power))),
        Box::new(FileStore::new(file, Arc::clone(&power))),
    ];
    for store in stores {
        assert_eq!(store.len(), 100_000);
        for (at, bytes) in [(100_000, 1), (99_999, 2), (u64::MAX, 1), (0, 100_001)] {
            assert_eq!(store.write(at, &vec![1; bytes]).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(store.read(at, &mut vec![1; bytes]).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        store.write(99_999, &[5]).unwrap();
        store.write(100_000, &[]).unwrap();
        assert_eq!(contents(&*store)[99_999], 5);
    }
    assert_eq!(power.ops(), 4);
}

#[test]
fn a_store_in_a_file_keeps_its_bytes_and_stops_with_the_power() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let power = Arc::new(Power::cut_after(4, 9));
    let store = FileStore::new(new_file(&path, IoMode::Auto), Arc::clone(&power));
    store.write(0, b"first").unwrap();
    store.write(5000, b"second").unwrap();
    store.sync().unwrap();
    store.write(50_000, &[1; 4096]).unwrap_err();
    store.write(0, b"later").unwrap_err();
    store.sync().unwrap_err();
    drop(store);
    let store = FileStore::new(Arc::new(open(&path).unwrap()), Arc::new(Power::steady()));
    let bytes = contents(&store);
    assert_eq!((&bytes[..5], &bytes[5000..5006]), (&b"first"[..], &b"second"[..]));
    let torn = bytes[50_000..54_096].iter().take_while(|byte| **byte == 1).count();
    assert!(torn < 4096 && torn % 512 == 0);
    assert!(bytes[50_000 + torn..].iter().all(|byte| *byte == 0));
}
