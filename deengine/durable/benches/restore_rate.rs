// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Speed of a restore: words of a checkpoint, and the journal after it. The store is in RAM, so the medium
//! costs nothing.
//!
//! `cargo bench -p gnstor-durable --bench restore_rate -- [--words-mib N] [--journal-mib N]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use gnstor_durable::{Checkpoint, Durable, DurableError, Journal, Meta, Record, Sizes, Unusable};
use gnstor_flash::{Power, RamStore, Store};
use gnstor_proto::slba::{Stamp, Vid};
use std::sync::Arc;
use std::time::Instant;

fn option(name: &str, default: u64) -> u64 {
    let mut args = std::env::args().skip_while(|arg| arg != name).skip(1);
    args.next().map_or(default, |value| value.parse().expect("a number of MiB"))
}

fn report(what: &str, bytes: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = bytes as f64 / seconds / 1e9;
    println!("{what}: {} MiB in {:.1} ms, {rate:.2} GB/s", bytes >> 20, seconds * 1e3);
}

fn main() {
    let (words_mib, journal_mib) = (option("--words-mib", 256), option("--journal-mib", 128));
    let sizes = Sizes {
        map_words: words_mib << 17,
        superblocks: 1024,
        blocks: 1 << 15,
        journal_bytes: journal_mib << 20,
        dump_bytes: 64 << 20,
        volumes: 4096,
        map_bytes: 1 << 20,
        held_map: true,
    };
    let store: Arc<dyn Store> = Arc::new(RamStore::new(sizes.store_bytes(), Arc::new(Power::steady())));
    let start = Instant::now();
    let durable = Durable::format(Arc::clone(&store), sizes, 1).expect("format").durable;
    report("format", 0, start);
    let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).expect("replay");
    let mut journal = durable.into_journal(&replayed).expect("journal");

    let words: Vec<u64> = (0..1 << 17).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1).collect();
    let start = Instant::now();
    let mut checkpoint = Checkpoint::begin(&durable, &journal, &Meta::empty(&sizes)).expect("begin");
    for first in (0..sizes.map_words).step_by(words.len()) {
        checkpoint.words(first, &words).expect("words");
    }
    checkpoint.finish(&mut journal).expect("finish");
    report("checkpoint written", words_mib << 20, start);

    let start = Instant::now();
    let transactions = fill(&mut journal);
    report(
        &format!("journal written ({transactions} transactions)"),
        journal_bytes(&journal, journal_mib),
        start,
    );

    restore(store, sizes, transactions, journal_bytes(&journal, journal_mib));
}

/// Reads everything back, as a start after a power failure does.
fn restore(store: Arc<dyn Store>, sizes: Sizes, transactions: u64, journal_bytes: u64) {
    let start = Instant::now();
    let durable = Durable::open(store, sizes).expect("open").durable;
    report("opened (header and metadata)", 0, start);
    let start = Instant::now();
    let (mut restored, mut sum) = (durable.checkpoint().expect("checkpoint"), 0u64);
    let read = restored.for_each(|_, words| {
        sum = words.iter().fold(sum, |sum, word| sum ^ word);
        Ok::<_, Unusable>(())
    });
    read.expect("words");
    report("checkpoint read", sizes.map_words << 3, start);
    let start = Instant::now();
    let replayed = durable.replay(restored.seq, |_, records| {
        for record in records {
            if let Record::Word { index, value } = *record {
                sum ^= index ^ value;
            }
        }
        Ok::<_, DurableError>(())
    });
    let replayed = replayed.expect("replay");
    assert_eq!(replayed.last, transactions);
    report("journal replayed", journal_bytes, start);
    println!("(sum {sum:x})");
}

/// Transactions as a write makes them, until the ring has little room.
fn fill(journal: &mut Journal) -> u64 {
    let (vid, mut n) = (Vid::MIN, 0u64);
    while journal.has_room(64) {
        for _ in 0..10_000 {
            n += 1;
            journal.begin();
            journal.add(Record::Word { index: n % 100_000, value: n });
            let stamp = Stamp { lease_epoch: 1, sequence: n };
            journal.add(Record::Applied { vid, vba: 7, stamp });
            journal.commit();
        }
        journal.flush(n, true).expect("flush");
    }
    n
}

fn journal_bytes(journal: &Journal, journal_mib: u64) -> u64 {
    (journal_mib << 20) * u64::from(journal.fill_permille()) / 1000
}
