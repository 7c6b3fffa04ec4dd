// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command in flight, with the things that it holds, and the permit for its one completion. Every room that
//! executes commands uses these.

pub(crate) mod command;
pub(crate) mod links;
pub(crate) mod permit;
pub(crate) mod scratch;
pub(crate) mod shares;

pub(crate) use command::{
    Accepted, Answer, Command, Delivered, Fetched, OK, Transfer, TransferKind, Work, WriteEnd,
};
pub(crate) use permit::CompletionPermit;
