// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command in flight, with the things that it holds, and the permit for its one completion. Every room that
//! executes commands uses these.

pub(crate) mod answer;
pub(crate) mod cold;
pub(crate) mod command;
pub(crate) mod completion_permit;
pub(crate) mod links;
pub(crate) mod scratch;
pub(crate) mod shares;

pub(crate) use answer::{Answer, Delivered, Fetched, OK};
pub(crate) use command::{Accepted, Command, Ended, Work};
pub(crate) use completion_permit::CompletionPermit;
