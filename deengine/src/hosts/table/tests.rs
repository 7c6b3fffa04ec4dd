// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many controllers, and what they take.

use super::*;
use crate::hosts::NewHost;
use crate::hosts::proof::Proof;
use gnstor_base::time::Span;
use gnstor_proto::slba::ClientId;

impl Hosts {
    /// Clients take all controller ids that they may have.
    pub(crate) fn take_all_ids(&mut self) {
        let identity = Identity::Client(ClientId::new(9).expect("an id"));
        let host = |identity| {
            let (kato, proof) = (Span::from_ms(120_000), Proof::NotAsked);
            NewHost { identity, host_id: [0; 16], serial: 0, kato, proof }
        };
        for nth in 1_000_000.. {
            let key = QueueKey(nth);
            let Some(cntlid) = self.create(key, host(identity), Time::ZERO) else { return };
            self.open(key, 0, 2);
            self.queue_mut(key).expect("it is open").role = Role::Admin(cntlid);
        }
    }

    /// Searches for a queue's id so far.
    pub(crate) fn searches(&self) -> u32 {
        self.searches.get()
    }
}

/// Strangers make them by the thousand, and they end together.
#[test]
fn thousands_of_controllers_end_in_the_order_of_their_deadlines() {
    let _deadline = crate::deadline::deadline();
    let count = u32::try_from(MAX_CONTROLLERS).expect("some thousand") / 16 * 15;
    let mut hosts = Hosts::default();
    let identity = Identity::Client(ClientId::new(9).expect("an id"));
    for nth in 1..=count {
        hosts.open(QueueKey(nth), 0, 2);
        let kato = Span::from_ms(u64::from(nth % 7 + 1));
        let new = NewHost { identity, host_id: [0; 16], serial: 0, kato, proof: Proof::NotAsked };
        let cntlid = hosts.create(QueueKey(nth), new, Time::ZERO).expect("an id is free");
        hosts.queue_mut(QueueKey(nth)).expect("it is open").role = Role::Admin(cntlid);
    }
    let (mut last, mut ended) = (Time::ZERO, 0);
    while let (at, Some(admin)) = hosts.first_deadline() {
        assert!(at >= last, "the first deadline comes first");
        last = at;
        hosts.close(admin);
        ended += 1;
    }
    assert_eq!(ended, count);
    assert!(hosts.deadlines.is_empty() && hosts.free.len() == count as usize);
}

/// Strangers can open them by the thousand, and a deep one costs nothing before its Connect.
#[test]
fn queues_whose_connect_has_not_succeeded_take_few_of_the_entries() {
    let _deadline = crate::deadline::deadline();
    let mut hosts = Hosts::default();
    let deep = MAX_ENTRIES / u32::from(MAX_QUEUE_ENTRIES);
    for nth in 0..10 * deep {
        assert!(hosts.has_room());
        hosts.open(QueueKey(nth), 1, MAX_QUEUE_ENTRIES);
    }
    let counted = (0..10 * deep).filter(|&nth| hosts.count_all(QueueKey(nth), Identity::Daemon)).count();
    assert!((1..deep as usize).contains(&counted), "{counted} fit");
    assert!(hosts.count_all(QueueKey(0), Identity::Daemon), "it counts already");
    (0..10 * deep).for_each(|nth| _ = hosts.close(QueueKey(nth)));
    assert_eq!(hosts.entries, 0);
}

#[test]
fn a_deadline_is_the_one_that_the_host_has_now() {
    let _deadline = crate::deadline::deadline();
    let mut hosts = Hosts::default();
    let identity = Identity::Client(ClientId::new(9).expect("an id"));
    for nth in 1..=2 {
        let (kato, proof) = (Span::from_ms(10 * u64::from(nth)), Proof::NotAsked);
        let new = NewHost { identity, host_id: [0; 16], serial: 0, kato, proof };
        assert_eq!(hosts.create(QueueKey(nth), new, Time::ZERO), u16::try_from(nth).ok());
    }
    let at = |ms| Time::ZERO + Span::from_ms(ms);
    assert_eq!(hosts.first_deadline(), (at(10), Some(QueueKey(1))));
    hosts.host_mut(1).expect("it").last_alive = at(30);
    assert_eq!(hosts.first_deadline(), (at(20), Some(QueueKey(2))));
    hosts.host_mut(1).expect("it").kato = Span::from_ms(1);
    hosts.host_mut(1).expect("it").last_alive = at(5);
    hosts.look_again(1);
    assert_eq!(hosts.first_deadline(), (at(6), Some(QueueKey(1))));
}
