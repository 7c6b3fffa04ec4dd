// SPDX-License-Identifier: Apache-2.0 OR MIT
//! If clients have secrets, only a call with the proof may use an id that an earlier daemon gave. A right to
//! the volume is not enough.

use super::{ANY, Client, config as without_tokens, refused, run, with_tokens};
use crate::array::SimArray;
use crate::deadline::{Deadline, LIMIT};
use gnstor_auth::{CLIENT_PROOF, Secret, ShownClient};
use gnstor_daemon::{Daemon, DaemonConfig};
use gnstor_proto::fabrics::{Host, Identity};
use gnstor_proto::grpc::{KeepRequest, RegisterRequest, ReleaseRequest, RenewRequest, Right, Rights};
use gnstor_proto::slba::ClientId;
use tonic::{Code, Request, Status};

/// A client id and the proof that it is the caller's.
struct Own {
    id: u32,
    serial: u64,
    secret: Secret,
}

impl Own {
    async fn register(caller: &mut Client) -> Self {
        let request = caller.sign(RegisterRequest { name: "x".into() });
        let reply = caller.fleet.register(request).await.expect("an id").into_inner();
        let secret = Secret::parse(&reply.secret).expect("a secret");
        Self { id: reply.client_id, serial: reply.serial, secret }
    }

    fn shown(&self) -> ShownClient {
        ShownClient::of(u16::try_from(self.id).expect("small"), self.serial, &self.secret)
    }
}

/// A call of this caller with this proof.
fn signed<M>(caller: &Client, shown: Option<&ShownClient>, message: M) -> Request<M> {
    let mut request = caller.sign(message);
    if let Some(shown) = shown {
        request.metadata_mut().insert(CLIENT_PROOF, shown.to_text().parse().expect("text"));
    }
    request
}

async fn release(caller: &mut Client, shown: Option<&ShownClient>, client_id: u32) -> Result<(), Status> {
    let message = ReleaseRequest { name: "v".into(), client_id, all_acknowledged: true, lease_epoch: None };
    caller.volumes.release(signed(caller, shown, message)).await.map(drop)
}

async fn renew(caller: &mut Client, shown: Option<&ShownClient>, client_id: u32) -> Result<(), Status> {
    let (reaches, in_doubt) = (None, false);
    let message = RenewRequest {
        name: "v".into(),
        client_id,
        lease_epoch: 1,
        lease_ms: 0,
        reaches,
        in_doubt,
        follows_drains: false,
    };
    caller.volumes.renew(signed(caller, shown, message)).await.map(drop)
}

async fn keep(caller: &mut Client, shown: Option<&ShownClient>, client_id: u32) -> Result<(), Status> {
    caller.fleet.keep(signed(caller, shown, KeepRequest { client_id })).await.map(drop)
}

#[test]
fn after_a_restart_only_a_call_that_proves_a_client_id_releases_renews_or_keeps_it() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let config = || DaemonConfig { manager_key: Some(Secret::new([7; 32])), ..with_tokens() };
    let first = Daemon::start(ANY, array.ports(), config()).unwrap();
    let (anna_is, ben_is) = run(async {
        let mut anna = Client::connect(&first, Some("anna")).await;
        let mut ben = Client::connect(&first, Some("ben")).await;
        let (a, b) = (Own::register(&mut anna).await, Own::register(&mut ben).await);
        anna.create("v", a.id).await.unwrap();
        anna.open("v", a.id, Rights::Write).await.unwrap();
        anna.share("v", "ben", Right::Write).await.unwrap();
        (a, b)
    });
    first.stop().unwrap();
    let second = Daemon::start(ANY, array.ports(), config()).unwrap();
    run(async {
        let mut anna = Client::connect(&second, Some("anna")).await;
        let mut ben = Client::connect(&second, Some("ben")).await;
        // Ben may write the volume, and has a secret of his own. Another registration of anna's id proves
        // nothing either.
        let own = ben_is.shown();
        let older = Own { id: anna_is.id, serial: anna_is.serial + 1, secret: ben_is.secret };
        let of_another_key = Own { id: anna_is.id, serial: anna_is.serial, secret: Secret::random() };
        let a = anna_is.id;
        for shown in [None, Some(&own), Some(&older.shown()), Some(&of_another_key.shown())] {
            refused(release(&mut ben, shown, a).await, Code::PermissionDenied, "does not prove");
            refused(renew(&mut ben, shown, a).await, Code::PermissionDenied, "does not prove");
            refused(keep(&mut ben, shown, a).await, Code::PermissionDenied, "does not prove");
            refused(release(&mut anna, shown, a).await, Code::PermissionDenied, "does not prove");
        }
        assert_eq!(anna.get("v").await.unwrap().writer, a, "it is open as it was");
        let shown = anna_is.shown();
        renew(&mut anna, Some(&shown), a).await.expect("her own");
        refused(release(&mut ben, Some(&own), a).await, Code::PermissionDenied, "not one of");
        release(&mut anna, Some(&shown), a).await.expect("her own");
        assert_eq!(anna.get("v").await.unwrap().writer, 0);
    });
}

/// The limit of that proof: the SSDs keep the number of the newest registration, and the daemon that starts
/// does not know it.
#[test]
fn after_a_restart_an_older_registration_of_an_id_is_a_proof_too() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let key = || Secret::new([7; 32]);
    let config = || DaemonConfig { manager_key: Some(key()), ..with_tokens() };
    let first = Daemon::start(ANY, array.ports(), config()).unwrap();
    let anna_is = run(async {
        let mut anna = Client::connect(&first, Some("anna")).await;
        let own = Own::register(&mut anna).await;
        anna.create("v", own.id).await.unwrap();
        anna.open("v", own.id, Rights::Write).await.unwrap();
        own
    });
    first.stop().unwrap();
    let second = Daemon::start(ANY, array.ports(), config()).unwrap();
    let id = ClientId::new(u16::try_from(anna_is.id).expect("small")).expect("an id of a client");
    let host = Host { serial: anna_is.serial - 1, ..Host::from(Identity::Client(id)) };
    let older = Own { id: anna_is.id, serial: host.serial, secret: key().of_host(&host.nqn()) };
    run(async {
        let mut anna = Client::connect(&second, Some("anna")).await;
        release(&mut anna, Some(&older.shown()), anna_is.id).await.expect("the secret of an older holder");
    });
}

/// Registers a caller, has it open "v" for writing, and starts the daemon again.
fn restarted(config: impl Fn() -> DaemonConfig, principal: Option<&'static str>) -> (Own, Daemon, SimArray) {
    let array = SimArray::new(2);
    let first = Daemon::start(ANY, array.ports(), config()).unwrap();
    let own = run(async {
        let mut caller = Client::connect(&first, principal).await;
        let own = Own::register(&mut caller).await;
        caller.create("v", own.id).await.unwrap();
        caller.open("v", own.id, Rights::Write).await.unwrap();
        own
    });
    first.stop().unwrap();
    let second = Daemon::start(ANY, array.ports(), config()).unwrap();
    (own, second, array)
}

/// Clients of earlier versions do not send the proof.
#[test]
fn a_client_of_an_earlier_version_registers_again_after_a_restart_of_the_daemon() {
    let _deadline = Deadline::after(LIMIT);
    let config = || DaemonConfig { manager_key: Some(Secret::new([7; 32])), ..with_tokens() };
    let (own, daemon, _array) = restarted(config, Some("anna"));
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        refused(keep(&mut anna, None, own.id).await, Code::PermissionDenied, "register again");
        let again = Own::register(&mut anna).await;
        assert_ne!(again.id, own.id);
        keep(&mut anna, None, again.id).await.expect("it is of this daemon");
        // It reads beside what its earlier id has open, until that ends.
        anna.open("v", again.id, Rights::Read).await.expect("the owner reads");
    });
}

#[test]
fn a_daemon_without_proofs_asks_for_none_of_a_client_id_either() {
    let _deadline = Deadline::after(LIMIT);
    let config = || DaemonConfig { manager_key: Some(Secret::new([7; 32])), ..without_tokens() };
    let (own, daemon, _array) = restarted(config, None);
    run(async {
        let mut any = Client::connect(&daemon, None).await;
        keep(&mut any, None, own.id).await.expect("each caller is the one principal");
        release(&mut any, None, own.id).await.expect("each caller is the one principal");
    });
}
