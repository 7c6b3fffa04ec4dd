// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bridge with a port for each SSD's network namespace.

use crate::fleet_daemon::Place;
use gnstor_tests::command::LIMIT;
use std::process::Command;
use std::sync::Arc;

/// Made by `scripts/fleet-faults` in namespaces of its own, which end with it.
#[derive(Clone, Debug)]
pub(super) struct Bridge(Arc<str>);

fn ip(args: &str) {
    let mut command = Command::new("ip");
    command.args(args.split(' '));
    let ended = gnstor_tests::command::run_for(command, LIMIT);
    assert_eq!(ended.code, 0, "ip {args}: {}", ended.stderr);
}

impl Bridge {
    /// A bridge with the address 10.77.0.1, and namespaces with the addresses 10.77.0.10 and following.
    pub(super) fn new(ssds: u16) -> Self {
        ip("link set lo up");
        ip("link add gn type bridge");
        ip("addr add 10.77.0.1/24 dev gn");
        ip("link set gn up");
        for ssd in 0..ssds {
            ip(&format!("netns add ssd{ssd}"));
            ip(&format!("link add gn{ssd} type veth peer name eth0 netns ssd{ssd}"));
            ip(&format!("link set gn{ssd} master gn up"));
            ip(&format!("-n ssd{ssd} addr add 10.77.0.{}/24 dev eth0", 10 + ssd));
            ip(&format!("-n ssd{ssd} link set lo up"));
            ip(&format!("-n ssd{ssd} link set eth0 up"));
        }
        Self(Arc::from("10.77.0."))
    }

    /// What the SSD sends or is sent goes nowhere. Its link stays up.
    pub(super) fn cut(&self, ssd: u16) {
        ip(&format!("link set gn{ssd} nomaster"));
    }

    /// What the SSD sends and is sent arrives again.
    pub(super) fn join(&self, ssd: u16) {
        ip(&format!("link set gn{ssd} master gn"));
    }
}

impl Place for Bridge {
    fn through(&self, ssd: u16) -> Vec<String> {
        ["ip", "netns", "exec", &format!("ssd{ssd}")].map(String::from).to_vec()
    }

    fn listens(&self, ssd: u16) -> Vec<String> {
        vec![format!("{}{}:4420", self.0, 10 + ssd), "--insecure".into()]
    }
}
