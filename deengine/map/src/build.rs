// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a map and its writer.

use crate::map::Map;
use crate::shape::Shape;
use crate::vector::Vector;
use crate::writer::MapWriter;
use crate::{MAX_LOAD, SLOTS};
use std::io::{Error, ErrorKind};
use std::sync::Arc;

impl Map {
    /// A map for `entries` keys at [`MAX_LOAD`] with pages below `pages`, at most 2^32. Untouched memory
    /// costs nothing.
    ///
    /// # Errors
    /// `InvalidInput` for impossible sizes, or the operating system's error where there is no such memory.
    pub fn new(entries: u64, pages: u64, seed: u64) -> std::io::Result<(Arc<Self>, MapWriter)> {
        Self::build(Self::shape_for(entries, pages, seed)?, Vector::for_shape)
    }

    /// As [`Self::new`], without the instructions that only some processors have: for comparisons.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn without_vectors(entries: u64, pages: u64, seed: u64) -> std::io::Result<(Arc<Self>, MapWriter)> {
        Self::build(Self::shape_for(entries, pages, seed)?, |_| None)
    }

    fn shape_for(entries: u64, pages: u64, seed: u64) -> std::io::Result<Shape> {
        let slots = entries.checked_mul(100).map(|hundredths| hundredths.div_ceil(MAX_LOAD));
        slots.and_then(|slots| Shape::new(slots.div_ceil(SLOTS as u64), pages, seed)).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("a map of {entries} keys and {pages} pages"))
        })
    }

    pub(crate) fn build(
        shape: Shape,
        vector: impl FnOnce(&Shape) -> Option<Vector>,
    ) -> std::io::Result<(Arc<Self>, MapWriter)> {
        let map = Arc::new(Self::over(shape, vector(&shape))?);
        Ok((map.clone(), MapWriter::new(map)))
    }
}
