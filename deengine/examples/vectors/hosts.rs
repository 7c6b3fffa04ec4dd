// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hosts of a script: each connects when it plays its first command.

use super::*;

impl Device {
    pub(super) fn host_of(&mut self, player: Player) -> &mut Host {
        if !self.hosts.contains_key(&player) {
            let kept = std::mem::take(&mut self.seen);
            let (admin, cntlid) = self.connect(identity_of(player.0), 0, CNTLID_ANY);
            self.hosts.insert(player, Host { cntlid, admin, queue: None, qid: 0 });
            self.seen = kept;
        }
        self.hosts.get_mut(&player).expect("just made")
    }

    pub(super) fn queue_of(&mut self, player: Player) -> QueueKey {
        let host = self.host_of(player);
        if let Some(queue) = host.queue {
            return queue;
        }
        host.qid += 1;
        let (qid, cntlid) = (host.qid, host.cntlid);
        let kept = std::mem::take(&mut self.seen);
        let (queue, _) = self.connect(identity_of(player.0), qid, cntlid);
        self.seen = kept;
        self.hosts.get_mut(&player).expect("looked at").queue = Some(queue);
        queue
    }

    /// Opens a queue and connects it; the controller that it is of.
    pub(super) fn connect(&mut self, identity: Identity, qid: u16, cntlid: u16) -> (QueueKey, u16) {
        self.next_key += 1;
        let queue = QueueKey(self.next_key);
        let entries_z = if qid == 0 { ADMIN_ENTRIES_Z } else { ENTRIES_Z };
        let request = CmRequest {
            qid: qid.into(),
            hrqsize: 1024.into(),
            hsqsize_z: entries_z.into(),
            ..CmRequest::default()
        };
        self.worker.open_queue(self.now, queue, &request).expect("a queue");
        let fields =
            ConnectFields { qid: qid.into(), sqsize_z: entries_z.into(), ..ConnectFields::default() };
        let subnqn = fabrics::ssd_subnqn(self.worker.ssd().config().index);
        let data = ConnectData::new(identity, cntlid, &subnqn);
        let mut sqe = fabrics::command(fctype::CONNECT, &fields);
        sqe.dptr = KeyedSgl::keyed(0, 1024, 1);
        let dw0 = self.own(queue, &sqe, data.as_bytes());
        if qid == 0 {
            let value = (1 | 6 << 16 | 4 << 20).into();
            let fields = PropertyFields { offset: property::CC.into(), value, ..PropertyFields::default() };
            self.own(queue, &fabrics::command(fctype::PROPERTY_SET, &fields), &[]);
        }
        let [low, high, ..] = dw0.to_le_bytes();
        (queue, u16::from_le_bytes([low, high]))
    }

    /// A command that the script does not know of; its DW0.
    fn own(&mut self, queue: QueueKey, sqe: &Sqe, data: &[u8]) -> u32 {
        self.seen = Seen { is_admin: true, data: data.to_vec(), ..Seen::default() };
        self.submit(queue, OWN, sqe);
        self.come_to_rest();
        let at = self.seen.completions.iter().position(|&(token, _)| token == OWN);
        let (_, cqe) = self.seen.completions.remove(at.expect("an answer at once"));
        assert_eq!(cqe.status_word(), 0, "{sqe:?}");
        assert!(self.seen.completions.is_empty(), "a connection ends no other command");
        cqe.dw0.get()
    }

    /// The SSD has closed the I/O queue of a client. If no client is bound to it, all such queues are closed.
    pub(super) fn close(&mut self, queue: QueueKey) {
        let owner = self.hosts.iter().find(|(_, host)| host.queue == Some(queue));
        let Some((&(client, is_bound), _)) = owner else { return };
        self.seen.closed.push(if is_bound { client } else { 0 });
        let mut gone: Vec<QueueKey> = self
            .hosts
            .iter_mut()
            .filter(|(player, _)| **player == (client, is_bound) || !is_bound && !player.1)
            .filter_map(|(_, host)| host.queue.take())
            .collect();
        gone.sort_unstable_by_key(|queue| queue.0);
        for &other in &gone {
            if other != queue {
                self.worker.close_queue(self.now, other);
            }
            self.forget(other);
        }
    }

    /// The commands of a queue are gone with it.
    fn forget(&mut self, queue: QueueKey) {
        let gone: Vec<u32> =
            self.open.iter().filter(|(_, open)| open.queue == queue.0).map(|(&token, _)| token).collect();
        for token in gone {
            let open = self.open.remove(&token).expect("just listed");
            self.tokens.remove(&(open.queue, open.cid));
            for (transfer, _) in open.transfers {
                self.worker.transferred(self.now, transfer, Outcome::ConnectionLost);
            }
        }
    }
}

fn identity_of(client: u16) -> Identity {
    if client == DAEMON {
        Identity::Daemon
    } else {
        Identity::Client(ClientId::new(client).expect("a client of the script"))
    }
}

/// The client that a command names, if it may connect. This client's queue stands for a queue to which no
/// client is bound.
pub(super) fn named_client(sqe: &Sqe) -> u16 {
    let [low, high, ..] = sqe.cdw11.get().to_le_bytes();
    let client = u16::from_le_bytes([low, high]);
    if ClientId::new(client).is_some() { client } else { 1 }
}
