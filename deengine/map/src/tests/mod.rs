// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The common parts of the tests.

#[path = "../../../testing/deadline.rs"]
mod deadline;
mod image;
mod loads;
#[path = "../../../testing/long.rs"]
mod long;
mod model;
mod readers;
mod variants;

use crate::shape::Shape;
use crate::vector::Vector;
use crate::{Map, MapWriter, Step};
pub(crate) use deadline::deadline;
use gnstor_proto::slba::Vid;
use long::is_long;
use std::cell::RefCell;
use std::sync::Arc;

type Hook = Box<dyn FnMut(Step)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Has `hook` called between the steps of this thread's readers and writer; not while it runs itself.
pub(crate) fn at_each_step(hook: impl FnMut(Step) + 'static) {
    HOOK.with(|cell| *cell.borrow_mut() = Some(Box::new(hook)));
}

/// No more hook.
pub(crate) fn no_hook() {
    HOOK.with(|cell| *cell.borrow_mut() = None);
}

pub(crate) fn step(step: Step) {
    if let Some(mut hook) = HOOK.with(|cell| cell.borrow_mut().take()) {
        hook(step);
        HOOK.with(|cell| *cell.borrow_mut() = Some(hook));
    }
}

impl Map {
    /// A map of this many buckets, with the vectors that this processor has.
    pub(crate) fn with_buckets(
        buckets: u64,
        pages: u64,
        seed: u64,
    ) -> std::io::Result<(Arc<Self>, MapWriter)> {
        Self::build(Shape::new(buckets, pages, seed).unwrap(), Vector::for_shape)
    }

    /// The same without vectors.
    pub(crate) fn plain_with_buckets(
        buckets: u64,
        pages: u64,
        seed: u64,
    ) -> std::io::Result<(Arc<Self>, MapWriter)> {
        Self::build(Shape::new(buckets, pages, seed).unwrap(), |_| None)
    }
}

fn vid(raw: u16) -> Vid {
    Vid::new(raw).unwrap()
}

/// A key from a small space, so that operations meet.
fn block(dice: u64, volumes: u64, blocks: u64) -> (Vid, u32) {
    (vid(u16::try_from(dice % volumes).unwrap() + 1), u32::try_from(dice / volumes % blocks).unwrap())
}

/// A log that drops its entries.
fn no_log(_: u64, _: u64) {}
