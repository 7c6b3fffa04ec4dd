// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The faults of a round, drawn from the seed.

use super::array::SSDS;
use super::clients::{CLIENTS, WRITERS};
use super::net::{Cut, Node};
use crate::dice::Dice;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// SIGKILL of an SSD, which starts again.
    Kill(usize),
    /// SIGSTOP and SIGCONT of an SSD.
    Stop(usize),
    /// SIGTERM of an SSD: it says goodbye.
    Term(usize),
    /// SIGUSR1 of an SSD: a power failure with a dump.
    Power(usize),
    /// SIGKILL of all SSDs at once, which start again.
    Storm,
    /// An operator drains an SSD, and calls that off or takes it back.
    Drain(usize),
    /// An operator has an SSD dropped, and takes it back.
    Fail(usize),
    /// An SSD and a client that reads reach each other, and no other process.
    Apart(usize, usize),
    /// A fault of a link.
    Cut(Node, Cut),
    /// The daemon is killed, and the other one starts.
    DaemonDies,
    /// The other daemon starts beside the one that serves, and callers go over to it one by one.
    DaemonJoins,
    /// The daemon is stopped, the other one takes over, and the first goes on for a while.
    DaemonStops,
    /// A client is killed, and starts again.
    ClientDies(usize),
    /// Nothing that a client sends to an SSD arrives, and then the client is killed. It leaves writes that
    /// some SSDs have.
    ClientLeaves(usize, usize),
    /// SIGSTOP and SIGCONT of a client.
    ClientStops(usize),
}

/// When a fault begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// So many ms behind the beginning of the round.
    At(u64),
    /// When the daemon changes the map: voters are to hold it.
    Hold,
    /// When a volume is being settled.
    Settle,
    /// When an SSD fills its places.
    Fill,
}

impl Moment {
    pub(crate) fn is_aimed(self) -> bool {
        !matches!(self, Self::At(_))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Planned {
    pub(crate) fault: Fault,
    pub(crate) moment: Moment,
    pub(crate) lasts_ms: u64,
}

impl Fault {
    /// The process that it is about; both daemons are one.
    fn target(self) -> Node {
        match self {
            Self::Kill(ssd)
            | Self::Stop(ssd)
            | Self::Term(ssd)
            | Self::Power(ssd)
            | Self::Drain(ssd)
            | Self::Apart(ssd, _)
            | Self::Fail(ssd) => Node::Ssd(ssd),
            Self::Storm => Node::Ssd(SSDS),
            Self::Cut(Node::Daemon(_), _) | Self::DaemonDies | Self::DaemonJoins | Self::DaemonStops => {
                Node::Daemon(0)
            }
            Self::Cut(node, _) => node,
            Self::ClientDies(client) | Self::ClientStops(client) | Self::ClientLeaves(client, _) => {
                Node::Client(client)
            }
        }
    }

    /// Whether both are about one process.
    fn meets(self, other: Self) -> bool {
        let is_of_ssd = |fault: Self| matches!(fault.target(), Node::Ssd(_));
        let is_storm = self == Self::Storm || other == Self::Storm;
        self.target() == other.target() || is_storm && is_of_ssd(self) && is_of_ssd(other)
    }

    /// Whether one SSD as a whole is faulty, and nothing else.
    fn is_of_one_ssd(self) -> bool {
        match self {
            Self::Kill(_) | Self::Stop(_) | Self::Term(_) | Self::Power(_) => true,
            Self::Drain(_) | Self::Fail(_) => true,
            Self::Cut(node, cut) => {
                matches!(node, Node::Ssd(_)) && matches!(cut, Cut::Link | Cut::Out | Cut::In)
            }
            _ => false,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Kill(ssd) => format!("KILL s{ssd}"),
            Self::Stop(ssd) => format!("STOP s{ssd}"),
            Self::Term(ssd) => format!("TERM s{ssd}"),
            Self::Power(ssd) => format!("USR1 s{ssd}"),
            Self::Apart(ssd, client) => format!("s{ssd} and c{client} apart from all others"),
            Self::Storm => "KILL of all SSDs".into(),
            Self::Drain(ssd) => format!("fleet drain of s{ssd}"),
            Self::Fail(ssd) => format!("fleet fail of s{ssd}"),
            Self::Cut(node, Cut::Link) => format!("link of {} down", node.name()),
            Self::Cut(node, Cut::Out) => format!("nothing from {} arrives", node.name()),
            Self::Cut(node, Cut::In) => format!("nothing to {} arrives", node.name()),
            Self::Cut(node, Cut::To(other)) => format!("nothing from {} to {}", node.name(), other.name()),
            Self::Cut(node, Cut::Slow) => format!("slow link of {}", node.name()),
            Self::DaemonDies => "KILL of the daemon, another starts".into(),
            Self::DaemonJoins => "another daemon takes over beside the first".into(),
            Self::DaemonStops => "STOP of the daemon, another takes over".into(),
            Self::ClientDies(client) => format!("KILL c{client}"),
            Self::ClientStops(client) => format!("STOP c{client}"),
            Self::ClientLeaves(client, ssd) => format!("nothing from c{client} to s{ssd}, then KILL"),
        }
    }

    fn draw(dice: &mut Dice, leader: usize) -> Self {
        let ssd = usize::try_from(dice.within(0, SSDS as u64)).expect("small");
        let client = usize::try_from(dice.within(0, CLIENTS as u64)).expect("small");
        let writer = client % WRITERS;
        let other = (ssd + 1 + usize::try_from(dice.within(0, SSDS as u64 - 1)).expect("small")) % SSDS;
        let ends = [Node::Ssd(other), Node::Client(client), Node::Daemon(leader)];
        let nodes = [Node::Ssd(ssd), Node::Ssd(ssd), Node::Client(client), Node::Daemon(leader)];
        match dice.within(0, 30) {
            0..3 => Self::Kill(ssd),
            3..5 => Self::Stop(ssd),
            5 => Self::Term(ssd),
            6 => Self::Power(ssd),
            7 | 8 => Self::Cut(dice.one_of(&nodes), Cut::Link),
            9 | 10 => Self::Cut(dice.one_of(&nodes), dice.one_of(&[Cut::Out, Cut::In])),
            11 => Self::Cut(Node::Ssd(ssd), Cut::To(dice.one_of(&ends))),
            12 => Self::Cut(dice.one_of(&ends[1..]), Cut::To(Node::Ssd(ssd))),
            13 => Self::Cut(dice.one_of(&nodes), Cut::Slow),
            14 => Self::DaemonDies,
            15 => Self::DaemonJoins,
            16 => Self::DaemonStops,
            17 | 18 => Self::ClientDies(writer),
            19 => Self::ClientStops(writer),
            20 => Self::Storm,
            21 | 22 => Self::Drain(ssd),
            23 => Self::Fail(ssd),
            24..27 => Self::ClientLeaves(writer, ssd),
            _ => Self::Apart(ssd, WRITERS + client % (CLIENTS - WRITERS)),
        }
    }
}

/// How long a fault lasts. Others must have time to drop an SSD that is apart, and to write.
fn lasts_ms(dice: &mut Dice, fault: Fault) -> u64 {
    let least = if matches!(fault, Fault::Apart(..)) { 1_000 } else { 0 };
    least + dice.within(100, 2_500)
}

/// Orders for clients before the faults. A client that is to leave writes only writes. A client that is to be
/// apart with an SSD reads what that SSD serves.
pub(crate) fn orders(plan: &[Planned]) -> Vec<(usize, String)> {
    let order = |planned: &Planned| match planned.fault {
        Fault::ClientLeaves(client, _) => Some((client, "hurry".into())),
        Fault::Apart(ssd, client) => Some((client, format!("only {ssd}"))),
        _ => None,
    };
    plan.iter().filter_map(order).collect()
}

/// The faults of a round: one, or two of different processes.
pub(crate) fn draw(dice: &mut Dice, leader: usize) -> Vec<Planned> {
    let first = Fault::draw(dice, leader);
    let moment = Moment::At(dice.within(0, 300));
    let mut plan = vec![Planned { fault: first, moment, lasts_ms: lasts_ms(dice, first) }];
    if dice.once_in(2) {
        return plan;
    }
    let fault = loop {
        let fault = Fault::draw(dice, leader);
        if !fault.meets(first) {
            break fault;
        }
    };
    let aimed = [Moment::Hold, Moment::Settle, Moment::Fill];
    let at = Moment::At(dice.within(0, 1_500));
    let moment = if dice.once_in(2) { at } else { dice.one_of(&aimed) };
    plan.push(Planned { fault, moment, lasts_ms: lasts_ms(dice, fault) });
    plan
}

/// Whether no call may fail: the only fault is one of one SSD.
pub(crate) fn is_alone(plan: &[Planned]) -> bool {
    matches!(plan, [one] if one.fault.is_of_one_ssd())
}

/// The faults, for people.
pub(crate) fn words(plan: &[Planned]) -> String {
    let word = |planned: &Planned| {
        let when = match planned.moment {
            Moment::At(_) => "",
            Moment::Hold => " at a hold",
            Moment::Settle => " at a settle",
            Moment::Fill => " at a fill",
        };
        format!("{}{when} for {:.1} s", planned.fault.words(), planned.lasts_ms as f64 / 1000.0)
    };
    plan.iter().map(word).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_again_and_two_are_of_different_processes() {
        let plans = |seed| {
            let mut dice = Dice::new(seed, 0);
            (0..500).map(|_| draw(&mut dice, 0)).collect::<Vec<_>>()
        };
        assert_eq!(plans(7), plans(7));
        assert_ne!(plans(7), plans(8));
        let twos = plans(7).into_iter().filter(|plan| plan.len() == 2);
        let (mut number, mut aimed) = (0, 0);
        for plan in twos {
            assert!(!plan[0].fault.meets(plan[1].fault), "{}", words(&plan));
            assert!(!is_alone(&plan));
            number += 1;
            aimed += u32::from(!matches!(plan[1].moment, Moment::At(_)));
        }
        assert!(number > 150 && aimed > 50, "{number} rounds of two faults, {aimed} of them aimed");
    }
}
