// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making a harness, and reading the state of its SSD.

use super::*;

impl Harness {
    /// An SSD without map and volumes, without connections.
    pub(super) fn bare(index: u16, blocks: u64) -> Self {
        Self::bare_as("null", index, blocks)
    }

    pub(super) fn bare_as(preset: &str, index: u16, blocks: u64) -> Self {
        let preset = Preset::by_name(preset).unwrap();
        let config = SsdConfig {
            index,
            preset,
            capacity_bytes: blocks * 4096,
            serial: "GN0001".into(),
            media: SsdMedia::Ram,
        };
        let bench = Bench::default();
        Self::around(Ssd::format_with(config, &bench).unwrap(), bench.faults)
    }

    pub(super) fn around(ssd: Ssd, faults: Arc<Faults>) -> Self {
        let (regions, all_frames) = (ssd.regions(), ssd.ftl().flash().free_frames());
        Self {
            workers: ssd.into_workers(WORKERS),
            now: Time::from_ns(1000),
            memory: BTreeMap::new(),
            completions: Vec::new(),
            closed: Vec::new(),
            admitted: Vec::new(),
            hold: false,
            held: Vec::new(),
            pushed: None,
            asked: Vec::new(),
            answers: BTreeMap::new(),
            regions,
            all_frames,
            faults,
            next_cid: 0,
            sequence: 0,
            map_epoch: 1,
            _deadline: crate::deadline::deadline(),
        }
    }

    /// SSD `index`, with the daemon and three clients connected, and no map.
    pub(super) fn connected(index: u16) -> Self {
        Self::bare(index, 1024).with_clients()
    }

    pub(super) fn with_clients(self) -> Self {
        let mut harness = self;
        harness.connect(DAEMON, 0, Identity::Daemon, CNTLID_ANY);
        for raw in [7u16, 8, 9] {
            let admin = QueueKey(u32::from(raw) * 10);
            let cqe = harness.connect(admin, 0, Identity::Client(client(raw)), CNTLID_ANY);
            let cntlid = u16::try_from(cqe.dw0.get()).unwrap();
            harness.enable(admin);
            let cqe = harness.connect(QueueKey(admin.0 + 1), 1, Identity::Client(client(raw)), cntlid);
            assert_eq!(refusal(&cqe), None);
        }
        harness
    }

    /// As [`Self::connected`], alone in its array, with [`VOLUME`].
    pub(super) fn new() -> Self {
        Self::connected(0).with_volume()
    }

    /// As [`Self::new`], with modelled times.
    pub(super) fn timed() -> Self {
        Self::bare_as("gnstor-980pro", 0, 1024).with_clients().with_volume()
    }

    pub(super) fn with_volume(self) -> Self {
        let mut harness = self;
        harness.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
        assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(VOLUME))), None);
        harness
    }

    pub(super) fn ssd(&self) -> SsdGuard<'_> {
        self.workers[0].ssd()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.ssd().in_flight()
    }

    pub(super) fn stats(&self) -> Stats {
        self.ssd().stats()
    }

    pub(super) fn layer_stats(&self) -> LayerStats {
        self.ssd().ftl().stats()
    }

    pub(super) fn waiting(&self) -> usize {
        self.workers.iter().map(Worker::pending).sum()
    }

    pub(super) fn mapped_blocks(&self) -> u64 {
        self.ssd().mapped_blocks()
    }

    pub(super) fn free_frames(&self) -> u32 {
        self.ssd().ftl().flash().free_frames()
    }

    pub(super) fn worker(&mut self, key: QueueKey) -> &mut Worker {
        &mut self.workers[worker_of(key)]
    }

    pub(super) fn role(&mut self, key: QueueKey) -> Option<Role> {
        let name = self.worker(key).name(key)?;
        self.ssd().hosts.queue(name).map(|queue| queue.role())
    }

    /// The page of a block of [`VOLUME`].
    pub(super) fn page(&self, vba: u32) -> Ppa {
        let Extent::Page(page, _) = self.ssd().ftl().extent(vid(VOLUME), 1, vba) else {
            panic!("block {vba} was written")
        };
        self.ssd().ftl().unpin(page);
        page
    }

    /// A byte of a stored block changes by itself.
    pub(super) fn damage(&self, vba: u32) {
        let page = self.page(vba);
        let Fetch::Here(local) = self.ssd().ftl().fetch(page) else { panic!("RAM media") };
        let region =
            self.regions.iter().find(|region| region.id() == local.region).expect("one of the SSD's");
        let mut byte = [0];
        region.read(local.offset + 17, &mut byte);
        region.write(local.offset + 17, &[!byte[0]]);
    }

    /// No frame is lost: each is free or a page's that is not erased.
    pub(super) fn frames_are_whole(&self) -> bool {
        let flash = Arc::clone(self.ssd().ftl().flash());
        let pages = u32::try_from(flash.geometry().pages()).expect("a small SSD");
        let owns =
            |page: &u32| matches!(flash.page(Ppa(*page)), PageState::Buffered(_) | PageState::Programmed(_));
        flash.free_frames() + u32::try_from((0..pages).filter(owns).count()).expect("pages")
            == self.all_frames
    }
}
