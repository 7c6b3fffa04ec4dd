// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What several principals may do to each other's volumes, step by step on a core. They use others' client
//! ids, and names that a publish takes. They have rights while an SSD is away, and lose rights while
//! something is open.

use crate::array::SimArray;
use crate::bench::{
    Bench, Outcome, client, create_with, created, delete, name, opened, read, refused, renew, write,
};
use crate::deadline::{Deadline, LIMIT};
use crate::publish::publish;
use crate::shrink::{DROP_MS, serving};
use gnstor_daemon::core::request::{Create, Request};
use gnstor_daemon::core::rights::{Caller, ClientProof, Right};
use gnstor_daemon::core::{Reply, Ticket};
use gnstor_proto::labels::PARTIAL;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::VolumeEntry;
use std::sync::Arc;

/// A principal with its own client id.
pub(crate) struct Party {
    pub(crate) caller: Arc<Caller>,
    pub(crate) id: ClientId,
}

impl Party {
    pub(crate) fn new(bench: &mut Bench, name: &str, connection: u64) -> Self {
        let caller = Caller {
            name: name.into(),
            admin: false,
            creator: true,
            single: false,
            connection,
            client: ClientProof::NotAsked,
        };
        Self::of(bench, caller)
    }

    pub(crate) fn of(bench: &mut Bench, caller: Caller) -> Self {
        let mut party = Self { caller: caller.into(), id: client(1) };
        let Ok(Reply::Client { client, .. }) = party.ask(bench, Request::Register) else { panic!("no id") };
        party.id = client;
        party
    }

    pub(crate) fn send(&self, bench: &mut Bench, request: Request) -> Ticket {
        bench.send_as(Arc::clone(&self.caller), request)
    }

    pub(crate) fn ask(&self, bench: &mut Bench, request: Request) -> Outcome {
        let ticket = self.send(bench, request);
        bench.run_until_quiet();
        bench.replies.get(&ticket).cloned().expect("an answer once nothing is under way")
    }

    pub(super) fn create(&self, text: &str, blocks: u64, labels: &str) -> Request {
        let Request::Create(base) = create_with(text, blocks, None) else { unreachable!("it creates") };
        Request::Create(Create { client: self.id, labels: labels.into(), ..base })
    }

    pub(crate) fn make(&self, bench: &mut Bench, text: &str) -> VolumeEntry {
        created(self.ask(bench, self.create(text, 16, "")))
    }

    /// A volume that is being copied in.
    pub(super) fn make_partial(&self, bench: &mut Bench, text: &str) -> VolumeEntry {
        created(self.ask(bench, self.create(text, 16, &format!("{PARTIAL}=v\n"))))
    }

    pub(crate) fn share(&self, bench: &mut Bench, text: &str, principal: &str, right: Right) {
        created(self.ask(bench, share(text, principal, right)));
    }
}

pub(super) fn share(text: &str, principal: &str, right: Right) -> Request {
    Request::Share { name: name(text), principal: principal.into(), right }
}

pub(super) fn revoke(text: &str, principal: &str) -> Request {
    Request::Revoke { name: name(text), principal: principal.into() }
}

pub(super) fn get(text: &str) -> Request {
    Request::Get { name: name(text) }
}

/// What the only volume of an SSD names as its writer and its readers.
pub(super) fn held(bench: &Bench, ssd: usize) -> (Option<ClientId>, Vec<ClientId>) {
    let entries = bench.array.ssd(ssd).active();
    assert_eq!(entries.len(), 1, "{entries:?}");
    (entries[0].writer, entries[0].readers.clone())
}

/// Otherwise a principal that may write could keep another's lease, or delete under another's writer.
#[test]
fn a_renew_and_a_delete_need_a_client_id_of_the_callers_own() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut bench = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    let root = Caller {
        name: "root".into(),
        admin: true,
        creator: true,
        single: false,
        connection: 3,
        client: ClientProof::NotAsked,
    };
    let root = Party::of(&mut bench, root);
    anna.make(&mut bench, "v");
    anna.share(&mut bench, "v", "ben", Right::Admin);
    opened(&anna.ask(&mut bench, write("v", anna.id.get(), 10_000)));
    let before = array.agreed();
    for who in [&ben, &root] {
        for id in [anna.id, client(60_000)] {
            for request in [renew("v", id.get(), 1, 60_000), delete("v", id.get())] {
                let words = [&format!("client id {id} is not one of {:?}", who.caller.name)];
                refused(&who.ask(&mut bench, request), GrpcCode::PermissionDenied, &words.map(|w| &**w));
            }
        }
        // With an id of its own it is another client than the writer.
        let own = [renew("v", who.id.get(), 1, 60_000), delete("v", who.id.get())];
        for request in own {
            let holder = format!("client {}", anna.id);
            refused(&who.ask(&mut bench, request), GrpcCode::FailedPrecondition, &[&holder]);
        }
    }
    assert_eq!(array.agreed(), before);
    let renewed = anna.ask(&mut bench, renew("v", anna.id.get(), 1, 60_000));
    assert_eq!(renewed, Ok(Reply::Renewed { lease_ms: 60_000 }));
    assert_eq!(anna.ask(&mut bench, delete("v", anna.id.get())), Ok(Reply::Ended(vec![])));
    assert!(array.agreed().is_empty());
}

#[test]
fn a_publish_needs_the_admin_right_and_the_id_that_created_the_volume() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    let made = anna.make_partial(&mut bench, "t");
    let as_ben = VolumeEntry { owner: ben.id, ..made.clone() };
    for right in [None, Some(Right::Read), Some(Right::Write)] {
        if let Some(right) = right {
            anna.share(&mut bench, "t", "ben", right);
        }
        for entry in [&made, &as_ben] {
            let outcome = ben.ask(&mut bench, publish(entry, "v", true));
            let words = ["\"ben\" has no admin right to volume \"t\""];
            refused(&outcome, GrpcCode::PermissionDenied, &words);
        }
    }
    anna.share(&mut bench, "t", "ben", Right::Admin);
    let before = array.agreed();
    let foreign = ben.ask(&mut bench, publish(&made, "v", true));
    refused(&foreign, GrpcCode::PermissionDenied, &["is not one of \"ben\""]);
    let other = ben.ask(&mut bench, publish(&as_ben, "v", true));
    refused(&other, GrpcCode::PermissionDenied, &["it is not the owner"]);
    assert_eq!(array.agreed(), before, "nothing has changed");
    assert_eq!(created(anna.ask(&mut bench, publish(&made, "v", true))).name, "v");
}

#[test]
fn a_publish_takes_the_name_of_a_volume_with_the_admin_right_to_it_only() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::start(&array, 0);
    let (anna, carl) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "carl", 2));
    let made = anna.make_partial(&mut bench, "t");
    let old = carl.make(&mut bench, "v");
    let words = ["\"anna\" has no admin right to volume \"v\""];
    for right in [None, Some(Right::Read), Some(Right::Write)] {
        if let Some(right) = right {
            carl.share(&mut bench, "v", "anna", right);
        }
        let before = array.agreed();
        for replace in [true, false] {
            let outcome = anna.ask(&mut bench, publish(&made, "v", replace));
            refused(&outcome, GrpcCode::PermissionDenied, &words);
        }
        assert_eq!(array.agreed(), before, "{right:?}");
    }
    carl.share(&mut bench, "v", "anna", Right::Admin);
    // The right is taken away while the publish waits for that change.
    carl.send(&mut bench, revoke("v", "anna"));
    let late = anna.ask(&mut bench, publish(&made, "v", true));
    refused(&late, GrpcCode::PermissionDenied, &words);
    carl.share(&mut bench, "v", "anna", Right::Admin);
    let published = created(anna.ask(&mut bench, publish(&made, "v", true)));
    assert_ne!(published.vid, old.vid);
    assert_eq!(array.agreed(), [published], "the old one is gone");
    // Rights go with the name.
    let seen = created(carl.ask(&mut bench, get("v")));
    assert!(seen.labels.contains("gnstor.owner=carl\n"), "{:?}", seen.labels);
}

#[test]
fn while_an_ssd_is_away_no_right_is_given_or_taken_and_what_was_given_stays() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    let carl = Party::new(&mut bench, "carl", 3);
    anna.make(&mut bench, "v");
    anna.share(&mut bench, "v", "ben", Right::Write);
    opened(&ben.ask(&mut bench, write("v", ben.id.get(), 60_000)));
    let before = array.agreed();
    bench.lose(1);
    let changes = [
        share("v", "carl", Right::Read),
        share("v", "ben", Right::Read),
        share("v", "ben", Right::Admin),
        revoke("v", "ben"),
    ];
    for change in changes {
        let outcome = anna.ask(&mut bench, change);
        refused(&outcome, GrpcCode::Unavailable, &["SSD 1 is down (pulled)", "try again when all are back"]);
    }
    assert_eq!(array.agreed(), before, "no SSD has heard of it");
    assert!(ben.ask(&mut bench, get("v")).is_ok(), "the right stays");
    refused(&ben.ask(&mut bench, share("v", "carl", Right::Read)), GrpcCode::PermissionDenied, &["admin"]);
    refused(&carl.ask(&mut bench, get("v")), GrpcCode::PermissionDenied, &["no read right"]);
    bench.find(1);
    bench.run_until_quiet();
    created(anna.ask(&mut bench, revoke("v", "ben")));
    refused(&ben.ask(&mut bench, get("v")), GrpcCode::PermissionDenied, &["no read right"]);
    assert_eq!(array.agreed()[0].writer, None);
}

#[test]
fn rights_change_again_once_voters_have_dropped_the_ssd_that_is_away() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    let ben = Party::new(&mut bench, "ben", 2);
    created(bench.ask(share("a", "ben", Right::Read)));
    opened(&ben.ask(&mut bench, read("a", ben.id.get())));
    bench.lose(3);
    refused(&bench.ask(revoke("a", "ben")), GrpcCode::Unavailable, &["SSD 3 is down"]);
    assert!(ben.ask(&mut bench, get("a")).is_ok(), "the right stays");
    bench.run_for(DROP_MS + 100);
    created(bench.ask(revoke("a", "ben")));
    refused(&ben.ask(&mut bench, get("a")), GrpcCode::PermissionDenied, &["no read right"]);
    for ssd in 0..3 {
        assert_eq!(held(&bench, ssd), (None, vec![]), "SSD {ssd}");
    }
}

#[test]
fn after_a_revoke_what_the_principal_has_open_ends_on_every_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    let second = Party::of(&mut bench, Caller { connection: 4, ..(*ben.caller).clone() });
    let carl = Party::new(&mut bench, "carl", 3);
    anna.make(&mut bench, "v");
    anna.share(&mut bench, "v", "ben", Right::Write);
    anna.share(&mut bench, "v", "carl", Right::Read);
    for reader in [&second, &carl] {
        opened(&reader.ask(&mut bench, read("v", reader.id.get())));
    }
    opened(&ben.ask(&mut bench, write("v", ben.id.get(), 60_000)));
    let ticket = anna.send(&mut bench, revoke("v", "ben"));
    for ssd in [0, 1] {
        assert!(bench.execute(ssd));
        assert!(!bench.replies.contains_key(&ticket), "SSD 2 has it open");
    }
    assert_eq!(held(&bench, 2).0, Some(ben.id));
    bench.run_until_quiet();
    assert!(bench.replies[&ticket].is_ok());
    for ssd in 0..3 {
        assert_eq!(held(&bench, ssd), (None, vec![carl.id]), "SSD {ssd}");
    }
    let late = ben.ask(&mut bench, renew("v", ben.id.get(), 1, 60_000));
    refused(&late, GrpcCode::PermissionDenied, &["no write right"]);

    // An SSD that goes away meanwhile learns of it when it is back.
    anna.share(&mut bench, "v", "ben", Right::Write);
    opened(&ben.ask(&mut bench, write("v", ben.id.get(), 60_000)));
    let ticket = anna.send(&mut bench, revoke("v", "ben"));
    assert!(bench.execute(0) && bench.execute(1));
    bench.lose(2);
    bench.run_until_quiet();
    refused(&bench.replies[&ticket], GrpcCode::Unavailable, &["SSD 2", "repeated"]);
    assert_eq!((held(&bench, 0).0, held(&bench, 2).0), (None, Some(ben.id)));
    bench.find(2);
    bench.run_until_quiet();
    assert_eq!(held(&bench, 2), (None, vec![carl.id]));
    refused(&ben.ask(&mut bench, get("v")), GrpcCode::PermissionDenied, &["no read right"]);
}

/// A weakness that the documents state: there is no quota of names or of capacity.
#[test]
fn a_principal_that_may_create_may_take_names_and_all_capacity() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(2), 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    let names: Vec<String> = (0..500).map(|number| format!("v{number}")).collect();
    for text in &names {
        created(anna.ask(&mut bench, anna.create(text, 1, "")));
    }
    for text in &names {
        let outcome = ben.ask(&mut bench, ben.create(text, 1, ""));
        refused(&outcome, GrpcCode::AlreadyExists, &["another name"]);
    }
    for number in 0.. {
        let Ok(Reply::Room(room)) = anna.ask(&mut bench, Request::Room) else { panic!("no room") };
        // The second figure is of volumes of two replicas, which both parties create.
        let blocks = room[1] >> 12;
        if blocks == 0 {
            break;
        }
        created(anna.ask(&mut bench, anna.create(&format!("rest{number}"), blocks, "")));
    }
    let outcome = ben.ask(&mut bench, ben.create("mine", 1, ""));
    refused(&outcome, GrpcCode::ResourceExhausted, &["does not fit", "at most 0 bytes"]);
}
