// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSD of a campaign in memory or in a data file, and what is left of each after a power failure.
//!
//! ```text
//!             in memory                             in a file
//!   flash     outlives the SSD                      opened anew, from records and data in the file
//!   store     RamStore forgets what was not synced  FileStore behind Forgetful, which takes that back, too
//! ```
//! Where the SSD loses its power, what was programmed is there. Where the *host* of a file loses it, pages
//! and records written since the last sync may be gone as well, or in part.

use super::super::*;
use super::work::Campaign;
use gnstor_flash::{DataFile, FileStore, IoMode, Power, Store};
use gnstor_ftl::{DUMP_BYTES, FtlConfig, geometry_for};
use gnstor_proto::placement::mix64;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const SECTOR: usize = 512;

/// What becomes of the host of a file when its SSD loses the power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Host {
    Stays,
    /// The host fails as well, and whatever was not synced may be there or not.
    Fails,
}

/// A file that holds an SSD, and its store while it is open.
#[derive(Debug)]
pub(super) struct OnFile {
    folder: tempfile::TempDir,
    store: Option<Arc<Forgetful>>,
}

/// A store that takes back what was not synced: the kernel keeps it, a host that loses its power does not.
#[derive(Debug)]
struct Forgetful {
    inner: FileStore,
    /// The file, past the SSD.
    raw: File,
    /// Range of records and data, and where the data begins.
    area: Range<u64>,
    data_at: u64,
    /// Content of the range at the last sync.
    synced: Mutex<Vec<u8>>,
    /// Bytes before each write since the last sync, oldest first.
    before: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Forgetful {
    fn new(path: &Path, inner: FileStore) -> Self {
        let raw = File::options().read(true).write(true).open(path).expect("the file");
        let mut places = [0; 24];
        raw.read_exact_at(&mut places, 48).expect("its header");
        let [records_at, data_at, end] =
            [0, 8, 16].map(|at| u64::from_le_bytes(places[at..at + 8].try_into().expect("eight bytes")));
        let (area, synced, before) = (records_at..end, Mutex::default(), Mutex::default());
        let store = Self { inner, raw, area, data_at, synced, before };
        *store.synced.lock().expect("no thread panicked") = store.area();
        store
    }

    /// Records and data as they are.
    fn area(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.area.end - self.area.start).expect("a small SSD")];
        self.raw.read_exact_at(&mut bytes, self.area.start).expect("the file");
        bytes
    }

    /// Runs a sync, if it is one. The content before it is kept from then on.
    fn remember(&self, sync: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        let mut before = self.before.lock().expect("no thread panicked");
        // What is written while this runs may be synced or not: it is taken for not.
        let mut area = self.area();
        let synced = sync()?;
        if synced {
            // Except for records: the sync itself brings them to the file.
            let records = usize::try_from(self.data_at - self.area.start).expect("a small SSD");
            self.raw.read_exact_at(&mut area[..records], self.area.start).expect("the file");
            *self.synced.lock().expect("no thread panicked") = area;
            before.clear();
        }
        Ok(synced)
    }

    /// Of what was written to records and data since the last sync each sector is there or not.
    fn after_host_power_cut(&self, seed: u64) {
        let (now, synced) = (self.area(), self.synced.lock().expect("no thread panicked"));
        for (nth, (new, old)) in (0u64..).zip(now.chunks(SECTOR).zip(synced.chunks(SECTOR))) {
            if new != old && mix64(seed ^ mix64(nth)).is_multiple_of(2) {
                self.raw.write_all_at(old, self.area.start + nth * SECTOR as u64).expect("the file");
            }
        }
    }

    /// Each write since the last sync is kept, dropped, or there in part, in sectors.
    fn after_power_cut(&self, seed: u64) {
        let before = std::mem::take(&mut *self.before.lock().expect("no thread panicked"));
        let mut redo = Vec::new();
        for (at, old) in before.into_iter().rev() {
            let mut new = vec![0; old.len()];
            self.inner.read(at, &mut new).expect("the file");
            self.inner.write(at, &old).expect("the file");
            redo.push((at, new));
        }
        for (number, (at, new)) in (1..).zip(redo.into_iter().rev()) {
            let dice = mix64(seed ^ mix64(number));
            for (sector, bytes) in (0u64..).zip(new.chunks(SECTOR)) {
                let kept = match dice % 3 {
                    0 => false,
                    1 => true,
                    _ => mix64(dice ^ sector).is_multiple_of(2),
                };
                if kept {
                    self.inner.write(at + sector * SECTOR as u64, bytes).expect("the file");
                }
            }
        }
    }
}

impl Store for Forgetful {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let mut old = vec![0; data.len()];
        self.inner.read(at, &mut old)?;
        let mut before = self.before.lock().expect("no thread panicked");
        let result = self.inner.write(at, data);
        before.push((at, old));
        result
    }

    fn sync(&self) -> io::Result<()> {
        self.remember(|| self.inner.sync().map(|()| true)).map(drop)
    }

    fn barrier(&self) -> io::Result<bool> {
        self.remember(|| self.inner.barrier())
    }
}

/// A folder in memory, if there is one. Every sync of a disk takes time, and none is needed for these tests.
fn folder() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.expect("a folder")
}

impl OnFile {
    pub(super) fn new() -> Self {
        Self { folder: folder(), store: None }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ssd")
    }

    fn around(&mut self, file: DataFile, power: &Arc<Power>) -> (Arc<DataFile>, Arc<dyn Store>) {
        // Blocking calls: in virtual time no thread waits for a ring.
        let file = Arc::new(file.with_io(IoMode::Blocking));
        let inner = FileStore::new(Arc::clone(&file), Arc::clone(power));
        let store = Arc::new(Forgetful::new(&self.path(), inner));
        self.store = Some(Arc::clone(&store));
        (file, store)
    }

    /// An empty SSD in a new file, which stays sparse.
    pub(super) fn format(&mut self, config: &SsdConfig, bench: &Bench) -> Ssd {
        let (path, pages) = (self.path(), config.capacity_bytes / 4096);
        std::fs::File::create(&path).and_then(|file| file.set_len(4096)).expect("a hole");
        let geometry = geometry_for(&config.preset, pages).expect("a geometry");
        let bytes = FtlConfig::store_bytes(&config.preset, pages, DUMP_BYTES).expect("a size");
        let file = DataFile::create(&path, &geometry, bytes, "a campaign").expect("a new file");
        let (file, store) = self.around(file, &bench.power);
        Ssd::on_file(config.clone(), bench, file, store, true).expect("an empty SSD")
    }

    fn open(&mut self, config: &SsdConfig, bench: &Bench) -> Result<Ssd, crate::SsdError> {
        let (file, store) = self.around(DataFile::open(&self.path())?, &bench.power);
        Ssd::on_file(config.clone(), bench, file, store, false)
    }
}

impl Campaign {
    /// The SSD after the power came back.
    pub(super) fn reopen(&mut self) -> Result<Ssd, crate::SsdError> {
        let Some(on_file) = &mut self.file else { return Ssd::reopen(self.config.clone(), &self.bench) };
        let ssd = on_file.open(&self.config, &self.bench)?;
        self.bench.flash = Some(Arc::clone(ssd.ftl().flash()));
        Ok(ssd)
    }

    /// Cuts the power and restores it. Content that was not durable is gone.
    pub(super) fn power_cycle(&mut self) {
        self.bench.power.cut();
        self.bench.power.restore();
        let (flash, store) = (self.dice.roll(), self.dice.roll());
        if let Some(left) = &self.bench.flash {
            left.after_power_cut(flash);
        }
        match &mut self.file {
            None => self.bench.store.as_ref().expect("a store").after_power_cut(store),
            Some(on_file) => {
                // A process that has the file open keeps others from it. So the SSD is dropped, as its
                // process would end.
                self.harness = Harness::bare(0, 16);
                self.bench.flash = None;
                let left = on_file.store.take().expect("it was open");
                left.after_power_cut(store);
                if self.host == Host::Fails {
                    left.after_host_power_cut(store);
                }
            }
        }
        self.oracle.cut();
    }

    /// The store, while the power is off.
    pub(super) fn with_store(&mut self, change: impl FnOnce(&dyn Store)) {
        match &self.file {
            None => change(&**self.bench.store.as_ref().expect("a store")),
            Some(on_file) => {
                let file = Arc::new(DataFile::open(&on_file.path()).expect("the file"));
                change(&FileStore::new(file, Arc::clone(&self.bench.power)));
            }
        }
    }
}
