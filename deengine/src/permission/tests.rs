// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prepared form of an entry answers as the entry does.

use super::*;
use gnstor_proto::vendor::VolumeEntry;
use proptest::prelude::*;

fn entry(any_reader: bool, readers: Vec<u16>, writer: u16) -> VolumeEntry {
    let client = |raw| ClientId::new(raw).expect("valid");
    VolumeEntry {
        vid: Vid::MIN,
        generation: 1,
        version: 1,
        term: 1,
        deleting: false,
        name: "v".into(),
        labels: String::new(),
        capacity_blocks: 1,
        replicas: 1,
        chunk_shift: 4,
        factor: 0,
        owner: ClientId::MIN,
        any_reader,
        readers: readers.into_iter().map(client).collect(),
        writer: ClientId::new(writer),
        unsettled: false,
        lease_epoch: 0,
        lease_ms: 0,
        request_ids: Vec::new(),
        limits: gnstor_proto::vendor::Limits::default(),
        salvaged_s: 0,
    }
}

proptest! {
    #[test]
    fn prepared_readers_answer_as_the_entry_does(
        any: bool,
        readers in proptest::collection::vec(1u16..600, 0..512),
        writer in 0u16..600,
        later in proptest::collection::vec(1u16..600, 0..512),
    ) {
        let _deadline = crate::deadline::deadline();
        let first = entry(any, readers, writer);
        let mut table = Table::default();
        prop_assert!(table.add(Time::ZERO, first.clone()).is_ok());
        let next = VolumeEntry { version: 2, ..entry(false, later, 0) };
        for (entry, change) in [(first, None), (next.clone(), Some(next))] {
            if let Some(change) = change {
                prop_assert!(table.chmod(Time::ZERO, change).is_ok());
            }
            let volume = table.volume(Vid::MIN).expect("added");
            for raw in 1..600 {
                let client = ClientId::new(raw).expect("valid");
                prop_assert_eq!(volume.readers.allow(client), entry.may_read(client), "{:?}", client);
            }
        }
    }
}
