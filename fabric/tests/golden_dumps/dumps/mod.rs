// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue dumps, by topic. A case writes queues, doorbells and descriptors through a [`harness::Harness`],
//! which plays them on both executors, and says what they must lead to.

#[macro_use]
mod bytes;
pub(crate) mod harness;
mod place;
mod side;

use harness::Harness;

/// A dump with its name; it panics where something is not as it must be.
pub(crate) type Case = (&'static str, fn(&Harness));

/// Names the cases of a module, and makes a test of each.
macro_rules! cases {
    ($($name:ident)*) => {
        pub(crate) const CASES: &[super::Case] = &[$((stringify!($name), $name)),*];

        #[cfg(test)]
        mod on_the_cpu {
            $(#[test]
            fn $name() {
                let _deadline = gnstor_base::testing::deadline();
                super::$name(&super::Harness::on_the_cpu());
            })*
        }
    };
}

mod completion_queue;
mod copies;
mod damaged;
mod doorbells;
mod faults;
mod inbound;
mod keys;
mod requests;
mod unordered;

/// All cases.
pub(crate) fn all() -> impl Iterator<Item = Case> {
    let topics = [
        requests::CASES,
        faults::CASES,
        keys::CASES,
        doorbells::CASES,
        inbound::CASES,
        completion_queue::CASES,
        copies::CASES,
        unordered::CASES,
        damaged::CASES,
    ];
    topics.into_iter().flatten().copied()
}
