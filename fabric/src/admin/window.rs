// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places of the data of commands in flight: pieces of one registered range.

/// Bytes of the range. No command moves more.
pub const WINDOW_BYTES: usize = 1 << 20;
/// Bytes of a piece: a page of VOLUME LIST.
pub const PIECE_BYTES: usize = 64 << 10;
const PIECES: usize = WINDOW_BYTES / PIECE_BYTES;
const _: () = assert!(PIECES == u16::BITS as usize);

/// Consecutive pieces; none for a command without data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Area {
    first: usize,
    pieces: usize,
}

impl Area {
    /// Offset of its first byte.
    pub(super) fn start(self) -> usize {
        self.first * PIECE_BYTES
    }

    fn mask(self) -> u16 {
        let ones = u16::MAX.checked_shr(u32::try_from(PIECES - self.pieces).expect("at most 16"));
        ones.unwrap_or(0) << self.first
    }
}

/// The pieces in use.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Window(u16);

impl Window {
    /// Takes room for `bytes` bytes, if there is any.
    ///
    /// # Panics
    /// If `bytes` exceeds [`WINDOW_BYTES`].
    pub(super) fn take(&mut self, bytes: usize) -> Option<Area> {
        assert!(bytes <= WINDOW_BYTES, "an admin command moves at most {WINDOW_BYTES} bytes");
        let pieces = bytes.div_ceil(PIECE_BYTES);
        if pieces == 0 {
            return Some(Area::default());
        }
        let areas = (0..=PIECES - pieces).map(|first| Area { first, pieces });
        let free = areas.into_iter().find(|area| self.0 & area.mask() == 0)?;
        self.0 |= free.mask();
        Some(free)
    }

    /// Frees an area.
    pub(super) fn give_back(&mut self, area: Area) {
        self.0 &= !area.mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_never_overlap_and_what_was_given_back_is_found_again() {
        let _deadline = gnstor_base::testing::deadline();
        let mut window = Window::default();
        assert_eq!(window.take(0), Some(Area::default()));
        let areas: Vec<_> = (0..PIECES).map(|_| window.take(PIECE_BYTES).expect("room")).collect();
        let starts: Vec<_> = areas.iter().map(|area| area.start()).collect();
        assert_eq!(starts, (0..PIECES).map(|i| i * PIECE_BYTES).collect::<Vec<_>>());
        assert_eq!(window.take(1), None);
        window.give_back(areas[3]);
        window.give_back(areas[5]);
        assert_eq!(window.take(PIECE_BYTES + 1), None, "two pieces, and not beside each other");
        window.give_back(areas[4]);
        assert_eq!(window.take(2 * PIECE_BYTES + 1).map(Area::start), Some(3 * PIECE_BYTES));
        assert_eq!(window.take(1), None);
        let mut whole = Window::default();
        let all = whole.take(WINDOW_BYTES).expect("it fits");
        assert_eq!((all.start(), whole.take(1)), (0, None));
        whole.give_back(all);
        assert_eq!(whole.take(WINDOW_BYTES), Some(all));
    }
}
