// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A folder on a slow disk: a FUSE file system that passes requests on to another folder, and delays the ones
//! that a test chooses. The tests of the flash and of its translation layer include this file by its path.
//!
//! ```text
//!   a test --> kernel --> read, write, fsync --> sleep in a thread of its own --> the folder below
//!                    `--> all other requests ----------------------------------^
//! ```
//! Delayed requests sleep side by side, as on a disk of great depth. The kernel caches pages of these files,
//! and each open forgets them. It carries out one write of a file at a time.
#![expect(clippy::disallowed_methods, reason = "a disk is slow in real time")]
#![expect(unsafe_code, reason = "calls that the standard library does not have")]

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, WriteFlags,
};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Names the folders of a file system to a second process of this test.
const SERVE: &str = "GNSTOR_SLOW_FOLDER";

/// Numbers that both processes have: words of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// Additional milliseconds of each request of a kind.
    ReadMs,
    WriteMs,
    SyncMs,
    /// Requests that were delayed.
    Reads,
    Writes,
    Syncs,
    /// Most bytes that one write takes; 0: there is no room.
    MostBytes,
}

#[derive(Debug)]
struct Words(File);

impl Words {
    fn open(below: &Path) -> io::Result<Self> {
        let path = below.join("words");
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map(Self)
    }

    fn get(&self, word: Word) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, word as u64 * 8).map_or(0, |()| u64::from_le_bytes(bytes))
    }

    fn set(&self, word: Word, value: u64) {
        self.0.write_all_at(&value.to_le_bytes(), word as u64 * 8).expect("a file of a few words");
    }
}

/// A mounted folder; dropping it unmounts it. A process of its own serves it. If this process ends with
/// requests under way, the kernel waits for their answers, and its own threads could give none any more.
#[derive(Debug)]
pub(crate) struct SlowFolder {
    server: Child,
    mount: tempfile::TempDir,
    _below: tempfile::TempDir,
    words: Words,
}

impl SlowFolder {
    /// Mounts a folder that is not slow yet.
    pub(crate) fn mount() -> io::Result<Self> {
        let (mount, below) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let words = Words::open(below.path())?;
        words.set(Word::MostBytes, u64::MAX);
        let module = module_path!();
        let test = module.split_once("::").map_or(module, |(_, path)| path);
        let mut server = Command::new(std::env::current_exe()?)
            .args(["--exact", "--nocapture", &format!("{test}::a_second_process_serves_the_folder")])
            .env(SERVE, format!("{} {}", mount.path().display(), below.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(server.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let said = said.filter_map(|line| line.split_once(SERVE).map(|(_, said)| said.trim().to_string()));
        let said = { said }.next().unwrap_or_else(|| "its process ended".into());
        let folder = Self { server, mount, _below: below, words };
        if said == "serves" { Ok(folder) } else { Err(io::Error::other(said)) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.mount.path()
    }

    pub(crate) fn get(&self, word: Word) -> u64 {
        self.words.get(word)
    }

    pub(crate) fn set(&self, word: Word, value: u64) {
        self.words.set(word, value);
    }
}

impl Drop for SlowFolder {
    fn drop(&mut self) {
        // Its end answers all requests with an error.
        _ = self.server.kill().and_then(|()| self.server.wait());
        unmount(self.mount.path());
    }
}

fn unmount(mount: &Path) {
    let path = CString::new(mount.as_os_str().as_bytes()).expect("a path");
    // SAFETY: a call with a path.
    _ = unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
}

#[test]
fn a_second_process_serves_the_folder() {
    let _deadline = crate::tests::deadline();
    let Ok(folders) = std::env::var(SERVE) else { return };
    let (mount, below) = folders.split_once(' ').expect("two folders");
    let words = Arc::new(Words::open(Path::new(below)).expect("its words"));
    let folder = Folder { below: below.into(), files: Mutex::default(), words };
    let session = fuser::spawn_mount(folder, mount, &Config::default());
    println!("\n{SERVE} {}", session.as_ref().map_or_else(ToString::to_string, |_| "serves".into()));
    // Until the other process ends.
    _ = io::stdin().read_to_end(&mut Vec::new());
    unmount(Path::new(mount));
    std::process::exit(0);
}

/// Attributes and names may change below at any time.
const NO_TIME: Duration = Duration::ZERO;
const FIRST_FILE: u64 = 2;

#[derive(Debug)]
struct Folder {
    below: PathBuf,
    /// Files that were ever named; the first one has the inode [`FIRST_FILE`].
    files: Mutex<Vec<(OsString, Option<Arc<File>>)>>,
    words: Arc<Words>,
}

impl Folder {
    fn inode(&self, name: &OsStr) -> INodeNo {
        let mut files = self.files.lock().expect("no thread panicked");
        let place = files.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            files.push((name.into(), None));
            files.len() - 1
        });
        INodeNo(FIRST_FILE + place as u64)
    }

    /// The file of an inode, open for reading and writing.
    fn file(&self, ino: INodeNo) -> io::Result<Arc<File>> {
        let mut files = self.files.lock().expect("no thread panicked");
        let place = usize::try_from(u64::from(ino).wrapping_sub(FIRST_FILE)).unwrap_or(usize::MAX);
        let (name, file) = files.get_mut(place).ok_or(io::ErrorKind::NotFound)?;
        match file {
            Some(file) => Ok(Arc::clone(file)),
            None => {
                let opened = OpenOptions::new().read(true).write(true).open(self.below.join(name))?;
                Ok(Arc::clone(file.insert(Arc::new(opened))))
            }
        }
    }

    fn attributes(&self, ino: INodeNo) -> io::Result<FileAttr> {
        let of = if ino == INodeNo::ROOT { self.below.metadata()? } else { self.file(ino)?.metadata()? };
        Ok(attributes(ino, &of))
    }

    /// Does `work` after a pause, and on this thread if there is none.
    fn after(&self, ms: Word, count: Word, work: impl FnOnce() + Send + 'static) {
        let ms = self.words.get(ms);
        if ms == 0 {
            return work();
        }
        self.words.set(count, self.words.get(count) + 1);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(ms));
            work();
        });
    }
}

fn attributes(ino: INodeNo, of: &Metadata) -> FileAttr {
    let now = SystemTime::now();
    FileAttr {
        ino,
        size: of.len(),
        blocks: of.blocks(),
        atime: now,
        mtime: of.modified().unwrap_or(now),
        ctime: of.modified().unwrap_or(now),
        crtime: now,
        kind: if of.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: u16::try_from(of.permissions().mode() & 0o7777).unwrap_or(0o600),
        nlink: 1,
        uid: of.uid(),
        gid: of.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Fills as much as the file has.
fn read_at(file: &File, at: u64, size: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn empty(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(Errno::from(error)),
    }
}

impl Filesystem for Folder {
    fn lookup(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.below.join(name).metadata().map(|of| attributes(self.inode(name), &of));
        match found {
            Ok(of) => reply.entry(&NO_TIME, &of, Generation(0)),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Ok(of) => reply.attr(&NO_TIME, &of),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = self.file(ino).and_then(|file| {
            size.map_or(Ok(()), |size| file.set_len(size))?;
            mode.map_or(Ok(()), |mode| file.set_permissions(std::fs::Permissions::from_mode(mode & 0o7777)))?;
            self.attributes(ino)
        });
        match set {
            Ok(of) => reply.attr(&NO_TIME, &of),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        _parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let made = options.open(self.below.join(name)).and_then(|file| {
            file.set_permissions(std::fs::Permissions::from_mode(mode & 0o7777))?;
            self.attributes(self.inode(name))
        });
        match made {
            Ok(of) => reply.created(&NO_TIME, &of, Generation(0), FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn unlink(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(std::fs::remove_file(self.below.join(name)), reply);
    }

    fn open(&self, _: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn flush(&self, _: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        at: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.file(ino);
        self.after(Word::ReadMs, Word::Reads, move || match file.and_then(|file| read_at(&file, at, size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(Errno::from(error)),
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        at: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let most = usize::try_from(self.words.get(Word::MostBytes)).unwrap_or(usize::MAX);
        let data = data[..data.len().min(most)].to_vec();
        let full = || Err(io::Error::from_raw_os_error(libc::ENOSPC));
        let file = if most == 0 { full() } else { self.file(ino) };
        self.after(Word::WriteMs, Word::Writes, move || {
            match file.and_then(|file| file.write_all_at(&data, at)) {
                Ok(()) => reply.written(u32::try_from(data.len()).expect("a request's bytes")),
                Err(error) => reply.error(Errno::from(error)),
            }
        });
    }

    fn fsync(&self, _: &Request, _ino: INodeNo, _fh: FileHandle, _only_data: bool, reply: ReplyEmpty) {
        self.after(Word::SyncMs, Word::Syncs, move || reply.ok());
    }

    fn statfs(&self, _: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let blocks = 1 << 24;
        reply.statfs(blocks, blocks, blocks, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        at: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (at, bytes) = (at.cast_signed(), bytes.cast_signed());
        empty(
            self.file(ino).and_then(|file| {
                // SAFETY: a call on an open descriptor.
                match unsafe { libc::fallocate(file.as_raw_fd(), mode, at, bytes) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }),
            reply,
        );
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        // SAFETY: a call on an open descriptor.
        let seek = |file: Arc<File>| unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
        let found = |at| if at < 0 { Err(io::Error::last_os_error()) } else { Ok(at) };
        match self.file(ino).and_then(|file| found(seek(file))) {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(Errno::from(error)),
        }
    }
}
