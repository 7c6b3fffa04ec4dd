// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon against an array of simulated SSDs that keep permission tables and fleet maps and can fail.

mod array;
mod bench;
mod capacity;
mod convert;
#[path = "../../../proto/testing/deadline.rs"]
mod deadline;
mod drain;
mod drain_edges;
mod exchange;
mod faults;
mod former_life;
mod former_writer;
mod fuzz;
mod grow;
mod grpc;
mod holders;
mod join;
mod join_edges;
mod kept_places;
mod lose_data;
mod members;
mod operator;
mod orders;
mod pages;
mod presence;
mod publish;
mod random;
mod reach;
mod rename;
mod repair;
mod repeated;
mod replace;
mod resize;
mod restart;
mod rules;
mod salvage;
mod settle;
mod shrink;
mod spare;
mod start_absent;
mod trust;
mod voter;
mod witness;
