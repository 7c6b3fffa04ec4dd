// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network namespaces at the ports of one bridge, and the faults of their links.
//!
//! ```text
//!   conductor 10.77.0.1 --- bridge gn --- gn-s0 | eth0 10.77.0.10  namespace s0
//!                                    \--- gn-d0 | eth0 10.77.0.30  namespace d0, lo 10.77.0.2
//!                                    \--- gn-c0 | eth0 10.77.0.50  namespace c0
//! ```
//! Both daemons listen on 10.77.0.2. A route of each caller says which of them it reaches.

use std::process::{Command, Stdio};

/// A process with a network namespace of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Node {
    Ssd(usize),
    Daemon(usize),
    Client(usize),
}

/// The address at which callers reach the daemon.
pub(crate) const DAEMON: &str = "10.77.0.2";

impl Node {
    /// Name of the namespace.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Ssd(at) => format!("s{at}"),
            Self::Daemon(at) => format!("d{at}"),
            Self::Client(at) => format!("c{at}"),
        }
    }

    pub(crate) fn address(self) -> String {
        let last = match self {
            Self::Ssd(at) => 10 + at,
            Self::Daemon(at) => 30 + at,
            Self::Client(at) => 50 + at,
        };
        format!("10.77.0.{last}")
    }
}

fn run(program: &str, args: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(args.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.stderr(Stdio::piped()).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {args}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn ip(args: &str) -> Result<(), String> {
    run("ip", args)
}

/// Makes the bridge, and a namespace for each process.
pub(crate) fn make(nodes: &[Node]) -> Result<(), String> {
    ip("link set lo up")?;
    ip("link add gn type bridge")?;
    ip("addr add 10.77.0.1/24 dev gn")?;
    ip("link set gn up")?;
    ip("link add gn-apart type bridge")?;
    ip("link set gn-apart up")?;
    for node in nodes {
        let name = node.name();
        ip(&format!("netns add {name}"))?;
        ip(&format!("link add gn-{name} type veth peer name eth0 netns {name}"))?;
        ip(&format!("link set gn-{name} master gn up"))?;
        ip(&format!("-n {name} addr add {}/24 dev eth0", node.address()))?;
        ip(&format!("-n {name} link set lo up"))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        // What goes into this device goes nowhere, without a word to the sender.
        ip(&format!("-n {name} link add hole type veth peer name pit"))?;
        ip(&format!("-n {name} link set hole arp off up"))?;
        ip(&format!("-n {name} link set pit up"))?;
        if matches!(node, Node::Daemon(_)) {
            ip(&format!("-n {name} addr add {DAEMON}/32 dev lo"))?;
        }
    }
    Ok(())
}

/// From now on this caller reaches that daemon; `None`: the conductor does.
pub(crate) fn lead_to(caller: Option<Node>, daemon: usize) -> Result<(), String> {
    let within = caller.map_or(String::new(), |node| format!("-n {} ", node.name()));
    ip(&format!("{within}route replace {DAEMON}/32 via {}", Node::Daemon(daemon).address()))
}

/// Takes a node away from all others, or takes it back. Nodes that are apart reach each other.
pub(crate) fn put(node: Node, is_apart: bool) -> Result<(), String> {
    let bridge = if is_apart { "gn-apart" } else { "gn" };
    ip(&format!("link set gn-{} master {bridge}", node.name()))
}

/// A fault of links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Nothing goes to the process or from it: the link has no carrier.
    Link,
    /// Nothing that the process sends arrives.
    Out,
    /// Nothing arrives that is sent to the process.
    In,
    /// Nothing that the process sends to that one arrives. The other direction is whole.
    To(Node),
    /// 2 Mbit/s from the process.
    Slow,
}

fn tc(node: Node, is_outside: bool, what: &str) -> Result<(), String> {
    let name = node.name();
    match is_outside {
        true => run("tc", &format!("qdisc {what}").replace("DEV", &format!("gn-{name}"))),
        false => run("tc", &format!("-n {name} qdisc {what}").replace("DEV", "eth0")),
    }
}

impl Cut {
    pub(crate) fn begin(self, node: Node) -> Result<(), String> {
        match self {
            Self::Link => ip(&format!("link set gn-{} down", node.name())),
            Self::Out => tc(node, false, "replace dev DEV root pfifo limit 0"),
            Self::In => tc(node, true, "replace dev DEV root pfifo limit 0"),
            Self::To(other) => ip(&format!(
                "-n {} route replace {}/32 dev hole src {}",
                node.name(),
                other.address(),
                node.address()
            )),
            Self::Slow => tc(node, false, "replace dev DEV root tbf rate 2mbit burst 16kb latency 300ms"),
        }
    }

    pub(crate) fn end(self, node: Node) -> Result<(), String> {
        match self {
            Self::Link => ip(&format!("link set gn-{} up", node.name())),
            Self::Out | Self::Slow => tc(node, false, "del dev DEV root"),
            Self::In => tc(node, true, "del dev DEV root"),
            Self::To(other) => ip(&format!("-n {} route del {}/32 dev hole", node.name(), other.address())),
        }
    }
}
