// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A layer in a test's hand, beside a plain model of its content after each transaction.

mod collection;
mod crash;
#[path = "../../../testing/deadline.rs"]
mod deadline;
mod disk_space;
mod dump;
mod faults;
mod full_disk;
#[path = "../../../testing/handed_over.rs"]
mod handed_over;
mod killed;
mod locks;
#[path = "../../../testing/long.rs"]
mod long;
mod model;
#[path = "../../../testing/mounts.rs"]
mod mounts;
mod rebuild;
mod rotten_records;
mod slow_disk;
#[path = "../../../testing/slow_folder.rs"]
mod slow_folder;
mod slow_reads;
#[path = "../../../testing/slow_store.rs"]
mod slow_store;
mod worn;

use crate::config::FtlConfig;
use crate::layer::Ftl;
use crate::restore::{Boot, OpenedFtl};
use crate::types::{CommitError, Extent, NewBlock, Target};
pub(crate) use deadline::deadline;
use gnstor_base::region::{HostRegion, LocalRef};
use gnstor_base::time::{Span, Time};
use gnstor_durable::Seq;
use gnstor_flash::{Faults, Fetch, Flash, MediaConfig, Power, Ppa, RamStore, Shape, Ticket};
use gnstor_model::{Collection, Preset};
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::{Stamp, Vid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Key = (Vid, u32);

fn vid(raw: u16) -> Vid {
    Vid::new(raw).unwrap()
}

/// Four dies on two channels, units of 4 pages, superblocks of 2 rows: 32 pages.
fn preset(timed: bool) -> Preset {
    let mut preset = Preset::by_name(if timed { "gnstor-980pro" } else { "null" }).unwrap();
    preset.shape =
        Shape { channels: 2, dies_per_channel: 2, planes: 1, unit_pages: 4, sense_pages: 2, rows: 2 };
    preset.buffer_pages = 64;
    preset
}

/// History of one block: (transaction, tag or nothing), oldest first.
type History = Vec<(Seq, Option<u64>)>;

struct Harness {
    config: FtlConfig,
    store: Arc<RamStore>,
    ftl: Option<Ftl>,
    region: Vec<Arc<HostRegion>>,
    now: Time,
    sequence: u64,
    history: BTreeMap<Key, History>,
    /// The applied stamps, in order, as the stamp histories remember them.
    stamped: Vec<(Seq, Key, Stamp)>,
    boot: Boot,
}

fn config(logical_pages: u64, timed: bool, power: &Arc<Power>, seed: u64) -> (FtlConfig, Arc<RamStore>) {
    let preset = preset(timed);
    let dump_bytes = 4 << 20;
    let bytes = FtlConfig::store_bytes(&preset, logical_pages, dump_bytes).unwrap();
    let store = Arc::new(RamStore::new(bytes, Arc::clone(power)));
    let config = FtlConfig {
        preset,
        logical_pages,
        media: MediaConfig::Ram { shared: false },
        store: Arc::clone(&store) as _,
        faults: Arc::new(Faults::default()),
        power: Arc::clone(power),
        spare_frames: 256,
        collection: Collection::default(),
        dump_bytes,
        seed,
    };
    (config, store)
}

impl Harness {
    fn new(logical_pages: u64, timed: bool, seed: u64) -> Self {
        let power = Arc::new(Power::steady());
        let (config, store) = config(logical_pages, timed, &power, seed);
        Self::start(config, store)
    }

    /// As [`Self::new`], on a disk whose syncs end at their poll of this number.
    fn slow(logical_pages: u64, timed: bool, seed: u64, polls: u32) -> Self {
        let power = Arc::new(Power::steady());
        let (mut config, store) = config(logical_pages, timed, &power, seed);
        let store = RamStore::new(gnstor_flash::Store::len(&*store), power).with_slow_syncs(polls);
        let store = Arc::new(store);
        config.store = Arc::clone(&store) as _;
        Self::start(config, store)
    }

    fn start(config: FtlConfig, store: Arc<RamStore>) -> Self {
        let OpenedFtl { ftl, boot, .. } = Ftl::format(&config).unwrap();
        let region = ftl.regions();
        let now = Time::from_ns(1);
        let history = BTreeMap::new();
        Self { config, store, ftl: Some(ftl), region, now, sequence: 0, history, stamped: Vec::new(), boot }
    }

    fn ftl(&self) -> &Ftl {
        self.ftl.as_ref().unwrap()
    }

    fn tick(&mut self) {
        self.pass(Span::from_ns(10_000));
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        self.ftl().maintain(self.now);
    }

    fn stamp(&mut self) -> Stamp {
        self.sequence += 1;
        Stamp { lease_epoch: 1, sequence: self.sequence }
    }

    /// Writes blocks whose content follows from the stamp. Returns `false` if the layer stays stalled because
    /// it has no power.
    fn write(&mut self, key: Key, blocks: u32) -> bool {
        let stamp = self.stamp();
        self.write_stamped(key, blocks, stamp)
    }

    fn write_stamped(&mut self, (vid, vba): Key, blocks: u32, stamp: Stamp) -> bool {
        let target = Target { vid, generation: 1, vba, stamp, only_mapped: false, fills: false };
        let new: Vec<NewBlock> = (0..blocks)
            .map(|index| {
                let data = content(tag(stamp, vba + index));
                let frame = self.ftl().take_frame().expect("frames for one write");
                self.ftl().flash().write_frame(frame, &data);
                NewBlock { frame, sum: gnstor_proto::checksum::block_sum(&data) }
            })
            .collect();
        for _ in 0..2000 {
            match self.ftl().commit(self.now, self.now, &target, &new) {
                Ok(committed) => {
                    self.now = Time::from_ns(self.now.as_ns().max(committed.done.as_ns()));
                    let applied_at = std::mem::take(&mut self.ftl().lock().commits.applied_at);
                    assert_eq!(applied_at.len(), blocks as usize);
                    for (index, seq) in (0..blocks).zip(applied_at) {
                        let entry = self.history.entry((vid, vba + index)).or_default();
                        entry.push((seq, Some(tag(stamp, vba + index))));
                        self.stamped.push((seq, (vid, vba + index), stamp));
                    }
                    return true;
                }
                Err(CommitError::Stalled) => self.pass(Span::from_ns(100_000)),
                Err(_) => break,
            }
            if self.config.power.is_cut() {
                break;
            }
        }
        assert!(self.config.power.is_cut(), "a write stalls for ever: {}", self.state());
        false
    }

    fn state(&self) -> String {
        let inner = self.ftl().lock();
        let closed: Vec<_> = inner.space.iter().filter(|(_, e)| e.valid < e.good).collect();
        format!(
            "{:?} now {:?} free {} emptied {:?} victim {:?} streams {:?} durable {} last {} wanted {} not \
             full {closed:?}",
            inner.stats,
            self.now,
            inner.space.free(),
            inner.erasures,
            inner.collector,
            inner.streams,
            inner.journal.durable(),
            inner.journal.last(),
            inner.flushing.wanted()
        )
    }

    fn trim(&mut self, (vid, vba): Key, blocks: u32) -> bool {
        let stamp = self.stamp();
        let target = Target { vid, generation: 1, vba, stamp, only_mapped: false, fills: false };
        for _ in 0..200 {
            if let Ok(trimmed) = self.ftl().trim(self.now, &target, blocks) {
                for index in 0..blocks {
                    self.history.entry((vid, vba + index)).or_default().push((trimmed.seq, None));
                    self.stamped.push((trimmed.seq, (vid, vba + index), stamp));
                }
                return true;
            }
            self.tick();
            if self.config.power.is_cut() {
                return false;
            }
        }
        panic!("a TRIM stalls for ever: {:?}", self.ftl().stats());
    }

    /// The tag of a block's content, checked whole; `None` where it is unmapped.
    fn read(&self, (vid, vba): Key) -> Option<u64> {
        match self.ftl().extent(vid, 1, vba) {
            Extent::Unmapped => None,
            Extent::Page(page, sum) => {
                let Fetch::Here(local) = self.ftl().fetch(page) else { panic!("{page:?} is not in memory") };
                let region = self.region.iter().find(|r| r.id() == local.region).unwrap();
                let mut data = [0; 4096];
                region.read(local.offset, &mut data);
                self.ftl().unpin(page);
                assert_eq!(gnstor_proto::checksum::block_sum(&data), sum, "the sum beside {page:?}");
                let tag = u64::from_le_bytes(data[..8].try_into().unwrap());
                assert_eq!(data, content(tag), "{page:?} is torn");
                Some(tag)
            }
            other => panic!("volume {vid:?} block {vba}: {other:?}"),
        }
    }

    /// The model's content after transaction `seq`.
    fn expected(&self, key: Key, seq: Seq) -> Option<u64> {
        let history = self.history.get(&key)?;
        history.iter().rev().find(|(at, _)| *at <= seq).and_then(|(_, tag)| *tag)
    }

    fn check(&self, seq: Seq, why: &str) {
        for &key in self.history.keys() {
            assert_eq!(self.read(key), self.expected(key, seq), "{why}: {key:?} as of transaction {seq}");
        }
        let mapped = self.history.keys().filter(|key| self.expected(**key, seq).is_some()).count() as u64;
        assert_eq!(self.ftl().mapped(), mapped, "{why}: nothing else is mapped");
    }

    /// Whether the stamp histories are those after transaction `seq`.
    fn has_histories_of(&self, seq: Seq) -> bool {
        let vids: BTreeSet<Vid> = self.stamped.iter().map(|(_, (vid, _), _)| *vid).collect();
        vids.into_iter().all(|vid| {
            let of_vid = |(at, (of, vba), stamp): &(Seq, Key, Stamp)| {
                (*of == vid && *at <= seq).then_some((*vba, *stamp))
            };
            let all: Vec<_> = self.stamped.iter().filter_map(of_vid).collect();
            self.ftl().stamp_history(vid) == all[all.len().saturating_sub(crate::stamp_history::HISTORY)..]
        })
    }

    fn last(&self) -> Seq {
        self.ftl().lock().journal.last()
    }

    /// Cuts the power and restores it. Only durable content is left.
    fn power_cycle(&mut self, seed: u64) -> Arc<Flash> {
        self.config.power.cut();
        let flash = Arc::clone(self.ftl.take().unwrap().flash());
        self.config.power.restore();
        flash.after_power_cut(seed);
        self.store.after_power_cut(seed ^ 1);
        flash
    }

    fn reopen(&mut self, flash: Arc<Flash>) -> Result<(), crate::config::OpenError> {
        let OpenedFtl { ftl, boot, .. } =
            Ftl::open_on(flash, &self.config, |_, _, generation| generation == 1, &|_, _| {})?;
        self.region = ftl.regions();
        self.ftl = Some(ftl);
        self.boot = boot;
        Ok(())
    }

    /// Makes everything committed so far durable.
    fn make_durable(&mut self) -> bool {
        let (seq, at) = self.ftl().make_durable(self.now);
        self.now = Time::from_ns(self.now.as_ns().max(at.as_ns()) + 1);
        // The layer repeats a program that fails.
        for _ in 0..1000 {
            self.tick();
            if self.ftl().durable() >= seq {
                return true;
            }
            if self.config.power.is_cut() {
                return false;
            }
        }
        panic!("transaction {seq} does not become durable: {:?}", self.ftl().stats());
    }
}

fn tag(stamp: Stamp, vba: u32) -> u64 {
    stamp.sequence << 32 | u64::from(vba)
}

/// The data of a page, and the ticket to be released where it had to be loaded.
fn fetched(ftl: &Ftl, page: Ppa, vba: u32) -> (LocalRef, Option<Ticket>) {
    match ftl.fetch(page) {
        Fetch::Here(local) => (local, None),
        Fetch::Loading(ticket) => loop {
            if let Some(loaded) = ftl.poll_loaded() {
                break (loaded.result.unwrap(), Some(ticket));
            }
        },
        Fetch::Unreadable => panic!("block {vba} is unreadable"),
    }
}

/// The content of a block of volume 1, loaded where it has to be.
fn stored(ftl: &Ftl, vba: u32) -> [u8; 4096] {
    let Extent::Page(page, _) = ftl.extent(vid(1), 1, vba) else { panic!("block {vba} is not there") };
    let (local, ticket) = fetched(ftl, page, vba);
    let mut data = [0; 4096];
    let regions = ftl.regions();
    regions.iter().find(|region| region.id() == local.region).unwrap().read(local.offset, &mut data);
    ticket.into_iter().for_each(|ticket| ftl.release(ticket));
    ftl.unpin(page);
    data
}

fn content(tag: u64) -> [u8; 4096] {
    let mut data = [0; 4096];
    for (index, word) in data.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let index = index as u64;
        *word = if index == 0 { tag } else { mix64(tag ^ index << 40) }.to_le_bytes();
    }
    data
}
