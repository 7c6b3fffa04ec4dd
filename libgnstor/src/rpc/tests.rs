// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls to daemons that are silent, cut connections off, or are away.

use super::*;
use crate::deadline::{Deadline, LIMIT};
use gnstor_proto::grpc::{self, CreateRequest};
use std::io::{ErrorKind, Read as _};
use std::sync::atomic::AtomicUsize;

/// The kernel accepts the connection for the listener, and the listener never answers: like a stopped
/// process.
#[test]
fn a_daemon_that_does_not_answer_is_named_with_the_call_and_the_time() {
    let _deadline = Deadline::after(LIMIT);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let limits =
        Limits { question: Duration::from_millis(200), change: Duration::from_millis(600), ..LIMITS };
    let rpc = Rpc::connect_for(&address, &Credentials::default(), limits).expect("the kernel accepts");
    let list = rpc.wait("the list of volumes", rpc.volumes().list(grpc::ListRequest::default()));
    let create =
        rpc.change_again("a new volume", || async { rpc.volumes().create(CreateRequest::default()).await });
    let open = rpc.change("the opening of a volume", rpc.volumes().open(grpc::OpenRequest::default()));
    let (list, create, open) = (list.expect_err("-"), create.expect_err("-"), open.expect_err("-"));
    // A change waits longer, since the daemon waits for disks.
    for (error, call, waited) in [
        (list, "the list of volumes", "200ms"),
        (create, "a new volume", "600ms"),
        (open, "the opening of a volume", "600ms"),
    ] {
        assert!(matches!(error, Error::Silent { .. }), "{error:?}");
        assert_eq!(error.errno(), 110);
        let sentence = error.to_string();
        for word in [address.as_str(), call, waited] {
            assert!(sentence.contains(word), "'{word}' is missing in: {sentence}");
        }
    }
}

/// Acts like a daemon that closes its oldest connection when the host needs a place.
#[test]
fn a_new_client_that_is_cut_off_before_its_first_answer_tries_again() {
    let _deadline = Deadline::after(LIMIT);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let error = std::thread::scope(|scope| {
        // Some are cut at once, some after their first bytes.
        scope.spawn(move || {
            for nth in 0..6 {
                let (mut stream, _) = listener.accept().expect("a client");
                if nth % 2 == 1 {
                    let _ = stream.read(&mut [0; 24]);
                }
            }
        });
        Rpc::register(&address, &Credentials::default(), "x").expect_err("the port closes then")
    });
    // Nothing listens any more, which is told at once.
    assert!(matches!(&error, Error::Unreachable { cause, .. } if cause.contains("refused")), "{error}");
}

/// A daemon that starts again refuses connections, or says that it does not serve yet.
#[test]
fn a_change_waits_a_while_for_a_daemon_that_starts_again_and_only_once_for_one_that_does_not() {
    let _deadline = Deadline::after(LIMIT);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let limits = Limits { back: Duration::from_millis(300), ..LIMITS };
    let rpc = Rpc::connect_for(&address, &Credentials::default(), limits).expect("the kernel accepts");
    let tries = AtomicUsize::new(0);
    let refused = || tonic::Status::from_error(Box::new(std::io::Error::from(ErrorKind::ConnectionRefused)));
    let after = |most: usize| {
        tries.store(0, Ordering::Relaxed);
        rpc.change_if_back("the release of a lease", || async {
            match tries.fetch_add(1, Ordering::Relaxed) {
                nth if nth == most => Ok(tonic::Response::new(())),
                1 => Err(tonic::Status::unavailable("it waits for an SSD")),
                _ => Err(refused()),
            }
        })
    };
    after(3).expect("it is back");
    let error = after(usize::MAX).expect_err("it is away");
    assert!(matches!(error, Error::Unreachable { .. }) && tries.load(Ordering::Relaxed) > 3, "{error}");
    // A client with many open volumes does not wait for each of them.
    after(usize::MAX).expect_err("it is still away");
    assert_eq!(tries.load(Ordering::Relaxed), 1);
    after(0).expect("it is back");
    after(3).expect("and is waited for again");
    // What it refuses it refuses again.
    let call = || async { Err::<tonic::Response<()>, _>(tonic::Status::permission_denied("not yours")) };
    assert!(matches!(rpc.change_if_back("x", call), Err(Error::Daemon(_))));
}
