// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's side of NVMe in-band authentication on an admin queue.

use super::HostQueue;
use crate::admin::{AdminChannel, ChannelError, Payload};
use gnstor_auth::{Dice, Failure, Group, KeyPairs, Names, Secret, SessionKey, random};
use gnstor_proto::fabrics::{self, AuthFields, Host, Identity, PROOF_BYTES, fctype};
use std::sync::Mutex;
use std::time::Duration;

/// Diffie-Hellman groups that a host accepts. The SSD demands one of them.
const GROUPS: &[Group] = &[Group::Null, Group::Ffdhe2048, Group::Ffdhe3072];
/// The key pair of this process. A host that dials the SSDs of an array has one pair for all of them.
static PAIRS: Mutex<KeyPairs> = Mutex::new(KeyPairs::new());
/// The buffer for a controller's message.
const RECEIVE_BYTES: usize = 512;
const _: () = assert!(RECEIVE_BYTES >= gnstor_auth::message::MAX_MESSAGE);

/// The host that connects, and its secret.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The host.
    pub host: Host,
    /// The host's secret; `None` if the SSDs have no manager key.
    pub secret: Option<Secret>,
}

impl From<Host> for Credentials {
    /// A host without a secret.
    fn from(host: Host) -> Self {
        Self { host, secret: None }
    }
}

impl From<Identity> for Credentials {
    fn from(identity: Identity) -> Self {
        Host::from(identity).into()
    }
}

impl Credentials {
    /// The daemon of an array with this manager key.
    pub fn daemon(manager_key: Option<&Secret>) -> Self {
        Self::keyed(Identity::Daemon, manager_key)
    }

    /// The SSD of this number, as a peer of the others of an array with this manager key.
    pub fn peer(ssd: u16, manager_key: Option<&Secret>) -> Self {
        Self::keyed(Identity::Peer(ssd), manager_key)
    }

    fn keyed(identity: Identity, manager_key: Option<&Secret>) -> Self {
        let host = Host::from(identity);
        Self { secret: manager_key.map(|key| key.of_host(&host.nqn())), host }
    }
}

/// The session that both ends share after authentication.
#[derive(Debug)]
pub(super) struct Session {
    key: SessionKey,
    proofs: u64,
}

impl Session {
    pub(super) fn prove(&mut self, cntlid: u16, qid: u16) -> [u8; PROOF_BYTES] {
        self.proofs += 1;
        zerocopy::transmute!(self.key.prove(cntlid, qid, self.proofs))
    }
}

impl HostQueue {
    pub(super) fn unproven(&self, cause: &str) -> ChannelError {
        ChannelError::Unproven { peer: self.peer.clone(), cause: cause.into() }
    }

    /// Proves the host to the controller, and the controller to the host.
    pub(super) fn authenticate(&mut self, secret: Secret, deadline: Duration) -> Result<(), ChannelError> {
        let names = Names { host: self.host.nqn(), subsystem: self.peer.clone() };
        let mut transaction = [0; 2];
        random::fill(&mut transaction);
        let transaction = u16::from_le_bytes(transaction);
        let pair = PAIRS.lock().expect("no panic while held").next(random::fill);
        let dice = Dice::with(pair, random::fill);
        let (mut run, negotiate) = gnstor_auth::Host::begin(names, secret, GROUPS, transaction, dice);
        self.auth_send(&negotiate, deadline)?;
        let challenge = self.auth_receive(deadline)?;
        let reply = run.on_challenge(&challenge);
        let reply = self.agree(&run, reply, deadline)?;
        self.auth_send(&reply, deadline)?;
        let success1 = self.auth_receive(deadline)?;
        let ended = run.on_success1(&success1);
        let (success2, key) = self.agree(&run, ended, deadline)?;
        self.auth_send(&success2, deadline)?;
        self.session = Some(Session { key, proofs: 0 });
        Ok(())
    }

    /// Tells the controller about a failure, and returns it as an error.
    fn agree<T>(
        &mut self,
        run: &gnstor_auth::Host,
        step: Result<T, Failure>,
        deadline: Duration,
    ) -> Result<T, ChannelError> {
        step.map_err(|failure| {
            // The controller may have ended the run itself: its answer does not matter.
            let _ = self.auth_send(&run.failure(failure), deadline);
            let advice = match failure {
                Failure::Authentication => {
                    "; a client registers again with the daemon of this array, and the daemon and its SSDs \
                     need one manager key"
                }
                _ => "",
            };
            self.unproven(&format!("authentication as {}: {failure}{advice}", self.host.nqn()))
        })
    }

    fn auth_send(&mut self, message: &[u8], deadline: Duration) -> Result<(), ChannelError> {
        let fields = AuthFields::new(u32::try_from(message.len()).expect("a few hundred"));
        let cqe =
            self.execute(fabrics::command(fctype::AUTH_SEND, &fields), Payload::Out(message), deadline)?;
        self.require(&cqe, "Authentication Send")
    }

    fn auth_receive(&mut self, deadline: Duration) -> Result<[u8; RECEIVE_BYTES], ChannelError> {
        let mut message = [0; RECEIVE_BYTES];
        let fields = AuthFields::new(u32::try_from(RECEIVE_BYTES).expect("a few hundred"));
        let cqe =
            self.execute(fabrics::command(fctype::AUTH_RECV, &fields), Payload::In(&mut message), deadline)?;
        self.require(&cqe, "Authentication Receive")?;
        Ok(message)
    }
}
