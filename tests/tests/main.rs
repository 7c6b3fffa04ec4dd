// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end-to-end tests of the whole system. One binary runs them all: while some wait for processes, others
//! use the cores.

mod anew;
mod bench;
mod capacity;
mod cli;
mod client_reports;
mod copies;
mod cut_calls;
mod deadlines;
mod dependencies;
mod descriptors;
mod device_api;
mod doubt;
mod example;
mod faults;
mod fenced;
mod fleet_add;
mod fleet_daemon;
mod fleet_faults;
mod fleet_goodbye;
mod fleet_return;
mod fleet_silence;
mod follow;
mod full_disk;
mod given_again;
mod hoard;
mod images;
mod left_out;
mod neighbour;
mod old_disks;
mod ordering;
mod reconnect;
mod remote;
mod restart;
mod rolled_back;
mod rooms;
mod shipped_features;
mod slow_disk;
mod ssd_media;
mod ssd_process;
mod ssd_settings;
mod standby;
mod stands_in;
mod stopped;
mod trust_chap;
mod trust_group;
mod trust_grpc;
mod trust_key;
mod trust_logs;
mod trust_tls;
mod unordered;
mod unseeded;
mod voters;
mod whole_way;
mod witness;
mod witness_tls;

#[path = "../../proto/testing/deadline.rs"]
mod deadline;
#[path = "../../deengine/testing/mounts.rs"]
mod mounts;
