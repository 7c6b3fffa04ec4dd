// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A text beside the header, which the SSD may change. It has two copies, so that a power cut leaves the old
//! or the new text.
//!
//! ```text
//!   0 magic "GNSTNOTE"   8 number u64   16 length u32   20 crc32c of all the rest   24 text
//! ```

use super::{DataFile, DataFileError};
use std::os::unix::fs::FileExt;

const MAGIC: [u8; 8] = *b"GNSTNOTE";
const HEAD: usize = 24;
/// Offsets of the two copies, and the length of one.
const AT: [u64; 2] = [12 << 10, 36 << 10];
pub(crate) const BYTES: usize = 24 << 10;

/// Longest text.
pub const NOTE_BYTES: usize = BYTES - HEAD;

/// One of the two copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Copy {
    /// Nothing was ever written to this copy.
    Blank,
    Damaged,
    /// A whole copy: its number, from 2 on, and its text.
    Whole(u64, String),
}

impl Copy {
    /// The copy with the greater number is the newer one.
    fn number(&self) -> u64 {
        match self {
            Self::Blank => 0,
            Self::Damaged => 1,
            Self::Whole(number, _) => *number,
        }
    }
}

impl DataFile {
    /// The text of the last [`Self::set_note`]; `None` if there was none.
    ///
    /// # Errors
    /// If it cannot be read, or neither copy is whole.
    pub fn note(&self) -> Result<Option<String>, DataFileError> {
        let copies = self.notes()?;
        match copies.into_iter().max_by_key(Copy::number) {
            Some(Copy::Whole(_, text)) => Ok(Some(text)),
            Some(Copy::Damaged) => {
                let reason = "both copies of what it says of itself are damaged (crc)".into();
                Err(DataFileError::Refused { path: self.path.clone(), reason })
            }
            Some(Copy::Blank) | None => Ok(None),
        }
    }

    /// Stores a text of at most [`NOTE_BYTES`] bytes, durably.
    ///
    /// # Errors
    /// If it is longer or cannot be written. The file then has the old text or the new one.
    pub fn set_note(&self, text: &str) -> Result<(), DataFileError> {
        if text.len() > NOTE_BYTES {
            let reason = format!("what is to be said of it has {} bytes, more than {NOTE_BYTES}", text.len());
            return Err(DataFileError::Refused { path: self.path.clone(), reason });
        }
        let copies = self.notes()?;
        let number = copies.each_ref().map(Copy::number);
        let bytes = encode(number[0].max(number[1]).max(1) + 1, text);
        // Write the older copy first: the newer one stays whole until this one is.
        let order = if number[0] <= number[1] { AT } else { [AT[1], AT[0]] };
        let failed =
            |source| DataFileError::Io { path: self.path.clone(), what: "writing what it is", source };
        for at in order {
            self.file.write_all_at(&bytes, at).map_err(failed)?;
            self.sync().map_err(failed)?;
        }
        Ok(())
    }

    fn notes(&self) -> Result<[Copy; 2], DataFileError> {
        let mut copies = [Copy::Blank, Copy::Blank];
        for (at, copy) in AT.into_iter().zip(&mut copies) {
            let mut bytes = vec![0; BYTES];
            let failed =
                |source| DataFileError::Io { path: self.path.clone(), what: "reading what it is", source };
            self.file.read_exact_at(&mut bytes, at).map_err(failed)?;
            if bytes.iter().any(|&byte| byte != 0) {
                *copy = decode(&bytes).unwrap_or(Copy::Damaged);
            }
        }
        Ok(copies)
    }
}

/// Checksum of all bytes except the checksum field.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..20]), &bytes[HEAD..])
}

/// A copy; the text has room in it.
pub(crate) fn encode(number: u64, text: &str) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..20].copy_from_slice(&u32::try_from(text.len()).expect("at most a copy").to_le_bytes());
    bytes[HEAD..HEAD + text.len()].copy_from_slice(text.as_bytes());
    let crc = checksum(&bytes);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes a copy that was written; `None` if it is damaged. `bytes` has [`BYTES`] bytes.
pub(crate) fn decode(bytes: &[u8]) -> Option<Copy> {
    let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("a copy is longer"));
    let length = usize::try_from(word(16)).ok().filter(|&length| length <= NOTE_BYTES)?;
    if bytes[..8] != MAGIC || word(20) != checksum(bytes) {
        return None;
    }
    let number = u64::from_le_bytes(*bytes[8..].first_chunk().expect("a copy is longer"));
    let text = str::from_utf8(&bytes[HEAD..HEAD + length]).ok()?;
    Some(Copy::Whole(number.clamp(2, u64::MAX - 1), text.to_owned()))
}
