// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers of openings of an array's SSDs, as its daemon holds them.
//!
//! Each SSD counts how often it was opened. The daemon remembers the highest number of each. So an SSD whose
//! number is lower has an older image of its data. The daemon finds it also where no other SSD could tell.
//! The array may have one SSD, all files may have been rolled back together, or no SSDs vote. A file holds
//! the numbers, beside the data files or where the operator says. Without a file the daemon holds them until
//! it ends.
//!
//! ```text
//!   gnstor openings 1
//!   6b0f..e1 12 3405691582  uuid of an SSD, in hexadecimal, its number, and the start that has it
//!   sha256 9c56..           of the lines above
//! ```
//! An SSD counts up durably before the daemon writes its number down. So a crash leaves no SSD behind the
//! file. An SSD that was formatted has another uuid, and counts anew. Each start of an SSD process has a
//! random number of its own. So an older image that counts up to the number that is held is found, too.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the file in a folder of an array.
pub const FILE_NAME: &str = "openings";
const HEAD: &str = "gnstor openings 1";
/// Longest file that is read. An array has 64 SSDs at most. Others were replaced.
const MOST_BYTES: u64 = 1 << 20;

/// An SSD's identity.
pub type Uuid = [u8; 16];

/// How often an SSD was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Opened {
    /// The SSD's number.
    pub number: u32,
    /// The start that counted up to it; 0: not known.
    pub start: u32,
}

impl Opened {
    /// Whether an SSD that reports `says` has an older image than the known number shows.
    pub fn shows_older(self, says: Self) -> bool {
        let is_another = says.start != self.start && says.start != 0 && self.start != 0;
        says.number < self.number || says.number == self.number && is_another
    }

    /// Whether this number replaces `held`.
    fn is_newer(self, held: Self) -> bool {
        self.number > held.number || self.number == held.number && held.start == 0
    }
}

/// The numbers.
#[derive(Debug, Default)]
pub struct Openings {
    file: Option<PathBuf>,
    known: Mutex<BTreeMap<Uuid, Opened>>,
    /// The text of the file. It is locked while the file is written, so that a reader of the numbers never
    /// waits for the disk.
    written: Mutex<String>,
}

impl Openings {
    /// Numbers that end with this daemon.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// Numbers in this file, which is made with the first number.
    ///
    /// # Errors
    /// A sentence: the file cannot be read, or is damaged. A missing file holds no numbers.
    pub fn in_file(path: &Path) -> Result<Self, String> {
        let damaged = || {
            format!(
                "{}: it is damaged, or not a file of this daemon's: it holds how often each SSD was opened; \
                 put the right one back, or remove it to trust the data files as they are",
                path.display()
            )
        };
        let text = match read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => text_of(&BTreeMap::new()),
            Err(error) if error.kind() == ErrorKind::InvalidData => return Err(damaged()),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let known = parse(&text).ok_or_else(damaged)?;
        Ok(Self { file: Some(path.to_owned()), known: Mutex::new(known), written: Mutex::new(text) })
    }

    /// The file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The highest number of this SSD; 0 if it was never opened.
    pub fn known(&self, ssd: &Uuid) -> Opened {
        lock(&self.known).get(ssd).copied().unwrap_or_default()
    }

    /// Holds these numbers, each if it is higher than before. They are durable when this returns. It waits
    /// for the disk.
    ///
    /// # Errors
    /// The file cannot be written. The numbers are held in memory nevertheless.
    pub fn keep(&self, numbers: &[(Uuid, Opened)]) -> io::Result<()> {
        let mut written = lock(&self.written);
        let text = {
            let mut known = lock(&self.known);
            for &(ssd, opened) in numbers {
                let held = known.entry(ssd).or_default();
                *held = if opened.is_newer(*held) { opened } else { *held };
            }
            text_of(&known)
        };
        if let Some(path) = self.file.as_deref().filter(|_| text != *written) {
            replace(path, &text)?;
            *written = text;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file of this content in the place of `path`, in one step.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text_of(known: &BTreeMap<Uuid, Opened>) -> String {
    let line = |(ssd, opened): (&Uuid, &Opened)| format!("{} {} {}\n", hex(ssd), opened.number, opened.start);
    let lines = format!("{HEAD}\n{}", known.iter().map(line).collect::<String>());
    let sum = hex(&Sha256::digest(lines.as_bytes()));
    format!("{lines}sha256 {sum}\n")
}

/// The numbers in the file's text; `None` if that is damaged.
fn parse(whole: &str) -> Option<BTreeMap<Uuid, Opened>> {
    let lines = whole.strip_prefix(HEAD)?.strip_prefix('\n')?;
    let known: BTreeMap<Uuid, Opened> =
        lines.lines().take_while(|line| !line.starts_with("sha256 ")).map(entry).collect::<Option<_>>()?;
    // The sum covers the lines, and the text of the same numbers has no other bytes.
    (text_of(&known) == whole).then_some(known)
}

fn entry(line: &str) -> Option<(Uuid, Opened)> {
    let (ssd, opened) = line.split_once(' ')?;
    let (number, start) = opened.split_once(' ')?;
    let digits = Some(ssd).filter(|ssd| ssd.len() == 32 && ssd.is_ascii())?;
    let mut uuid = [0; 16];
    for (byte, at) in uuid.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some((uuid, Opened { number: number.parse().ok()?, start: start.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    fn opened(number: u32, start: u32) -> Opened {
        Opened { number, start }
    }

    #[test]
    fn numbers_of_openings_outlive_the_daemon_and_never_fall() {
        let _deadline = Deadline::after(LIMIT);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let (a, b) = ([0xA5; 16], [1; 16]);
        let openings = Openings::in_file(&path).unwrap();
        assert_eq!((openings.known(&a), path.exists()), (Opened::default(), false));
        openings.keep(&[(a, opened(7, 70)), (b, opened(1, 0))]).unwrap();
        openings.keep(&[(a, opened(5, 50)), (b, opened(2, 0))]).unwrap();
        openings.keep(&[(a, opened(7, 71)), (b, opened(2, u32::MAX))]).unwrap();
        let again = Openings::in_file(&path).unwrap();
        assert_eq!((again.known(&a), again.known(&b)), (opened(7, 70), opened(2, u32::MAX)));
        assert_eq!(again.known(&[2; 16]), Opened::default());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Openings::in_file(&path).unwrap().known(&a), Opened::default());
    }

    #[test]
    fn an_older_image_has_a_lower_number_or_the_same_one_by_another_start() {
        let _deadline = Deadline::after(LIMIT);
        let held = opened(7, 70);
        let older = [opened(6, 70), opened(0, 0), opened(7, 71)];
        assert!(older.iter().all(|&says| held.shows_older(says)));
        let newer = [held, opened(7, 0), opened(8, 71), opened(8, 0)];
        assert!(newer.iter().all(|&says| !held.shows_older(says)));
        assert!(!opened(7, 0).shows_older(opened(7, 71)), "the start is not known");
    }

    #[test]
    fn a_file_of_openings_that_is_damaged_anywhere_is_refused_with_a_remedy() {
        let _deadline = Deadline::after(LIMIT);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let numbers = [([3; 16], opened(9, 1)), ([4; 16], opened(10, 2))];
        Openings::in_file(&path).unwrap().keep(&numbers).unwrap();
        let good = std::fs::read(&path).unwrap();
        let cut = (0..good.len()).map(|length| good[..length].to_vec());
        let bent = (0..good.len()).map(|at| {
            let mut bent = good.clone();
            bent[at] ^= 1;
            bent
        });
        for text in cut.chain(bent) {
            std::fs::write(&path, &text).unwrap();
            let error = Openings::in_file(&path).unwrap_err();
            assert!(error.contains("openings") && error.contains("remove it"), "{error}");
        }
        std::fs::write(&path, [0xFF; 9]).unwrap();
        assert!(Openings::in_file(&path).unwrap_err().contains("remove it"), "no text at all");
        std::fs::write(&path, &good).unwrap();
        assert_eq!(Openings::in_file(&path).unwrap().known(&[4; 16]), opened(10, 2));
    }

    #[test]
    fn numbers_are_held_in_memory_while_their_file_cannot_be_written() {
        let _deadline = Deadline::after(LIMIT);
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone").join(FILE_NAME);
        let openings = Openings::in_file(&gone).unwrap();
        assert!(openings.keep(&[([3; 16], opened(9, 1))]).is_err());
        assert_eq!(openings.known(&[3; 16]), opened(9, 1));
        std::fs::create_dir(gone.parent().unwrap()).unwrap();
        openings.keep(&[]).unwrap();
        let again = Openings::in_file(&gone).unwrap();
        assert_eq!(again.known(&[3; 16]), opened(9, 1), "it is written as soon as it can be");
    }
}
