// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An NVMe-oF queue whose queue pair is in host memory: the admin queues of clients and of the daemon.

mod answers;
mod authentication;
mod pair;

use crate::admin::{AdminChannel, AdminQueue, Capsule, ChannelError, Data, Payload};
use crate::wait::look_until;
use authentication::Session;
use gnstor_proto::fabrics::{self, ConnectData, ConnectFields, Host, PropertyFields, fctype, property};
use gnstor_proto::nvme::{self, Cqe, IdentifyController, Sqe};
use gnstor_proto::status::{Detail, Refusal, Status};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

pub use authentication::Credentials;
pub use pair::{Completion, HostQp, MAX_DATA, SsdPath};

/// If more time passes between two checks of a queue, this process or its machine was stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// One admin queue to one controller.
#[derive(Debug)]
pub struct HostQueue {
    pair: HostQp,
    peer: String,
    cntlid: u16,
    broken: Option<String>,
    host: Host,
    /// The session that makes proofs for the controller's I/O queues; none where the SSD asks for no proof.
    session: Option<Session>,
    /// Completions of other commands, which came during a wait for one command.
    others: Vec<Cqe>,
}

impl HostQueue {
    /// Connects the admin queue of a controller: RDMA connection, Fabrics Connect, authentication if the host
    /// has a secret, controller enable. A host with a secret refuses an SSD that cannot prove that it knows
    /// the secret, too.
    ///
    /// # Errors
    /// [`ChannelError`] says which SSD refused and why, or what did not answer.
    pub fn connect(
        path: &SsdPath<'_>,
        who: impl Into<Credentials>,
        kato: Duration,
        deadline: Duration,
    ) -> Result<Self, ChannelError> {
        let Credentials { host, secret } = who.into();
        let pair = HostQp::connect(path, 0, deadline)?;
        let (peer, broken) = (path.subnqn.to_owned(), None);
        let (session, others) = (None, Vec::new());
        let mut queue = Self { pair, peer, cntlid: 0, broken, host, session, others };
        let is_asked = queue.fabrics_connect(path.subnqn, kato, deadline)?;
        match secret {
            Some(secret) if is_asked => queue.authenticate(secret, deadline)?,
            None if !is_asked => {}
            Some(_) => {
                return Err(
                    queue.unproven("it has no manager key, so it cannot prove that it is of the array")
                );
            }
            None => return Err(queue.unproven("it asks who this host is, and the host has no secret")),
        }
        queue.enable(deadline)?;
        Ok(queue)
    }

    /// Whether the queue has failed. Then it completes no command any more.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// The controller id that Connect gave.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Connect data for this controller's I/O queue `qid`, with a fresh proof if there is a session. I/O
    /// queues must connect in the order in which their data was made.
    pub fn connect_data(&mut self, qid: u16) -> ConnectData {
        let mut data = ConnectData::new(self.host, self.cntlid, &self.peer);
        if let Some(session) = &mut self.session {
            data.proof = session.prove(self.cntlid, qid);
        }
        data
    }

    /// Fabrics Connect; whether the SSD asks for authentication.
    fn fabrics_connect(
        &mut self,
        subnqn: &str,
        kato: Duration,
        deadline: Duration,
    ) -> Result<bool, ChannelError> {
        let kato_ms = u32::try_from(kato.as_millis()).unwrap_or(u32::MAX);
        let fields =
            ConnectFields { sqsize_z: 15.into(), kato_ms: kato_ms.into(), ..ConnectFields::default() };
        let data = ConnectData::new(self.host, fabrics::CNTLID_ANY, subnqn);
        let cqe = self.execute(
            fabrics::command(fctype::CONNECT, &fields),
            Payload::Out(data.as_bytes()),
            deadline,
        )?;
        self.require(&cqe, "Connect")?;
        #[expect(clippy::cast_possible_truncation, reason = "CNTLID is the low 16 bits")]
        let cntlid = cqe.dw0.get() as u16;
        self.cntlid = cntlid;
        Ok(cqe.dw0.get() & fabrics::AUTHENTICATION_REQUIRED != 0)
    }

    fn enable(&mut self, deadline: Duration) -> Result<(), ChannelError> {
        let cc = property::CC_ENABLE | 6 << 16 | 4 << 20;
        let set =
            PropertyFields { offset: property::CC.into(), value: cc.into(), ..PropertyFields::default() };
        let cqe = self.execute(fabrics::command(fctype::PROPERTY_SET, &set), Payload::None, deadline)?;
        self.require(&cqe, "controller enable")?;
        let get = PropertyFields { offset: property::CSTS.into(), ..PropertyFields::default() };
        let cqe = self.execute(fabrics::command(fctype::PROPERTY_GET, &get), Payload::None, deadline)?;
        self.require(&cqe, "controller status")?;
        if u64::from(cqe.dw0.get()) & property::CSTS_READY == 0 {
            return Err(ChannelError::Refused {
                peer: self.peer.clone(),
                cause: "the controller does not become ready".into(),
            });
        }
        Ok(())
    }

    fn require(&self, cqe: &Cqe, what: &str) -> Result<(), ChannelError> {
        let status = Status(cqe.status_word());
        if status.is_success() {
            return Ok(());
        }
        Err(refused(self.peer.clone(), what, cqe))
    }

    /// Identify Controller.
    ///
    /// # Errors
    /// As [`AdminChannel::execute`]; [`ChannelError::Refused`] for an error status.
    pub fn identify(&mut self, deadline: Duration) -> Result<IdentifyController, ChannelError> {
        let mut data = [0; IdentifyController::BYTES];
        let sqe = Sqe {
            opcode: nvme::admin::IDENTIFY,
            cdw10: u32::from(nvme::cns::CONTROLLER).into(),
            ..Sqe::default()
        };
        let cqe = self.execute(sqe, Payload::In(&mut data), deadline)?;
        self.require(&cqe, "Identify")?;
        Ok(IdentifyController::decode(&data))
    }

    /// Capacity of the namespace in bytes, from Identify Namespace.
    ///
    /// # Errors
    /// As [`Self::identify`].
    pub fn capacity_bytes(&mut self, deadline: Duration) -> Result<u64, ChannelError> {
        let mut data = [0; 4096];
        let cdw10 = u32::from(nvme::cns::NAMESPACE).into();
        let sqe = Sqe { opcode: nvme::admin::IDENTIFY, nsid: 1.into(), cdw10, ..Sqe::default() };
        let cqe = self.execute(sqe, Payload::In(&mut data), deadline)?;
        self.require(&cqe, "Identify Namespace")?;
        let blocks = u64::from_le_bytes(*data.first_chunk().expect("eight bytes of 4096"));
        Ok(blocks.saturating_mul(gnstor_proto::BLOCK_BYTES.into()))
    }

    /// Keep Alive.
    ///
    /// # Errors
    /// As [`Self::identify`].
    pub fn keep_alive(&mut self, deadline: Duration) -> Result<(), ChannelError> {
        let asked = self.ask_alive()?;
        self.answer_alive(asked, deadline)
    }

    /// Sends a Keep Alive. [`Self::answer_alive`] must take its answer before another command is sent. So the
    /// owner of many queues can ask all of them before it waits for one.
    ///
    /// # Errors
    /// [`ChannelError::Broken`].
    pub fn ask_alive(&mut self) -> Result<Asked, ChannelError> {
        self.start(Sqe { opcode: nvme::admin::KEEP_ALIVE, ..Sqe::default() }, &Payload::None)
    }

    /// Waits for the answer of a Keep Alive; the deadline counts from when it was sent.
    ///
    /// # Errors
    /// As [`Self::identify`].
    pub fn answer_alive(&mut self, asked: Asked, deadline: Duration) -> Result<(), ChannelError> {
        let cqe = self.finish(asked, deadline)?;
        self.require(&cqe, "Keep Alive")
    }

    #[expect(clippy::disallowed_methods, reason = "a blocking wait with a deadline in real time")]
    fn wait(&mut self, asked: &Asked, deadline: Duration) -> Result<Cqe, ChannelError> {
        let start = Instant::now();
        // Time in which this thread did not run does not count as silence of the peer.
        let (mut seen, mut stopped) = (start, Duration::ZERO);
        let is_late = || {
            let pause = seen.elapsed();
            if pause >= STOPPED {
                stopped += pause;
            }
            seen = Instant::now();
            asked.at.elapsed().saturating_sub(stopped) > deadline
        };
        let (pair, others) = (&mut self.pair, &mut self.others);
        let look = || {
            loop {
                match pair.poll()? {
                    Completion::Response(cqe) if cqe.cid.get() == asked.cid => return Some(Ok(cqe)),
                    Completion::Response(cqe) => others.push(cqe),
                    Completion::Sent => {}
                    Completion::Failed(cause) => return Some(Err(cause)),
                }
            }
        };
        let rest = || {
            if start.elapsed() > Duration::from_millis(1) {
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        };
        match look_until(is_late, look, rest) {
            Some(Ok(cqe)) => Ok(cqe),
            Some(Err(cause)) => {
                self.broken = Some(cause.into());
                Err(ChannelError::Broken { peer: self.peer.clone(), cause: cause.into() })
            }
            None => Err(ChannelError::Timeout { what: self.peer.clone(), after: deadline }),
        }
    }
}

/// The error of a command that `peer` completed with an error status. Only some of them end later by
/// themselves: the caller dials on then.
fn refused(peer: String, what: &str, cqe: &Cqe) -> ChannelError {
    match Detail::from_dw0(cqe.dw0.get()).refusal() {
        Some(Refusal::NotReady) => ChannelError::NotReady { peer },
        Some(Refusal::HostsFull) => ChannelError::Full { peer },
        refusal => {
            let why = refusal.map_or("", Refusal::sentence);
            let cause = format!("{what}: status {} {why}", Status(cqe.status_word()));
            ChannelError::Refused { peer, cause }
        }
    }
}

/// A command that has been sent and not answered.
#[derive(Debug)]
#[must_use = "without it the answer cannot be told from others"]
pub struct Asked {
    cid: u16,
    at: Instant,
}

impl HostQueue {
    fn works(&self) -> Result<(), ChannelError> {
        match &self.broken {
            Some(cause) => Err(ChannelError::Broken { peer: self.peer.clone(), cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// From now on, sending through [`AdminQueue`] does not wake the transport's thread. The owner of many
    /// queues wakes it once after all its sends.
    pub fn ring_later(&mut self) {
        self.pair.ring_later();
    }

    #[expect(clippy::disallowed_methods, reason = "a deadline in real time")]
    fn start(&mut self, mut sqe: Sqe, payload: &Payload<'_>) -> Result<Asked, ChannelError> {
        self.works()?;
        let cid = self.pair.next_index();
        sqe.cid = cid.into();
        sqe.flags = nvme::FLAGS_SGL;
        let bytes = match payload {
            Payload::None => 0,
            Payload::Out(data) => data.len(),
            Payload::In(data) => data.len(),
        };
        assert!(bytes <= MAX_DATA, "an admin command moves at most {MAX_DATA} bytes");
        if let Payload::Out(data) = payload {
            self.pair.write_data(data);
        }
        sqe.dptr = self.pair.data(u32::try_from(bytes).expect("checked above"));
        self.pair.send(&sqe);
        Ok(Asked { cid, at: Instant::now() })
    }

    fn finish(&mut self, asked: Asked, deadline: Duration) -> Result<Cqe, ChannelError> {
        let ended = self.wait(&asked, deadline);
        // A late answer would be taken for the next command's, so the queue is not used any more.
        if let Err(e @ ChannelError::Timeout { .. }) = &ended {
            self.broken = Some(e.to_string());
        }
        ended
    }
}

impl AdminChannel for HostQueue {
    fn execute(&mut self, sqe: Sqe, payload: Payload<'_>, deadline: Duration) -> Result<Cqe, ChannelError> {
        let asked = self.start(sqe, &payload)?;
        let cqe = self.finish(asked, deadline)?;
        if let Payload::In(data) = payload
            && Status(cqe.status_word()).is_success()
        {
            self.pair.read_data(data);
        }
        Ok(cqe)
    }
}

impl AdminQueue for HostQueue {
    fn send(&mut self, capsule: &Capsule) -> Result<(), ChannelError> {
        self.works()?;
        let mut sqe = capsule.sqe;
        sqe.flags = nvme::FLAGS_SGL;
        if let Data::Out(data) = &capsule.data {
            self.pair.write_data_at(capsule.at, data);
        }
        let bytes = u32::try_from(capsule.data.bytes()).expect("an area of the window is shorter");
        sqe.dptr = self.pair.data_at(capsule.at, bytes);
        self.pair.send(&sqe);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Cqe>, ChannelError> {
        self.works()?;
        if !self.others.is_empty() {
            return Ok(Some(self.others.remove(0)));
        }
        loop {
            match self.pair.poll() {
                Some(Completion::Sent) => {}
                Some(Completion::Response(cqe)) => return Ok(Some(cqe)),
                Some(Completion::Failed(cause)) => {
                    self.broken = Some(cause.into());
                    return Err(ChannelError::Broken { peer: self.peer.clone(), cause: cause.into() });
                }
                None => return Ok(None),
            }
        }
    }

    fn read(&mut self, at: usize, data: &mut [u8]) {
        self.pair.read_data_at(at, data);
    }

    fn give_up(&mut self, error: &ChannelError) {
        self.broken.get_or_insert_with(|| error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_refusal_for_want_of_ids_is_said_as_full_and_not_as_a_refusal() {
        let _deadline = deadline();
        let said = |refusal: Refusal| {
            let mut cqe = Cqe { dw0: Detail::new(refusal, None).to_dw0().into(), ..Cqe::default() };
            cqe.set_status_word(refusal.status().0);
            refused("SSD 3".into(), "Connect", &cqe)
        };
        assert_eq!(said(Refusal::HostsFull), ChannelError::Full { peer: "SSD 3".into() });
        assert!(said(Refusal::HostsFull).to_string().contains("try again later"));
        assert_eq!(said(Refusal::NotReady), ChannelError::NotReady { peer: "SSD 3".into() });
        let ChannelError::Refused { cause, .. } = said(Refusal::ConnectRefused) else {
            panic!("this host may not connect, and a later try changes nothing")
        };
        assert!(cause.contains("may not connect"), "{cause}");
    }
}
