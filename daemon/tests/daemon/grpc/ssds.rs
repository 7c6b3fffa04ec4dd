// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts and stops of the daemon, and SSDs that go and come back, as clients see them.

use super::{ANY, Client, config, daemon, refused, wish, with_client, within};
use crate::array::{Fault, SimArray};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::{Daemon, DaemonConfig, DaemonError};
use gnstor_proto::grpc::{ListRequest, Rights};
use std::time::Duration;
use tonic::Code;

#[test]
fn a_restart_keeps_everything_and_a_second_daemon_ends_the_first() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let first = daemon(&array);
    let before = with_client(&first, async |mut c| {
        c.create(wish("a")).await.unwrap();
        c.open("a", 5, Rights::Write, 0).await.unwrap();
        c.get("a").await.unwrap()
    });
    first.stop().unwrap();
    let second = daemon(&array);
    with_client(&second, async |mut c| assert_eq!(c.get("a").await.unwrap(), before));
    let third = daemon(&array);
    with_client(&second, async |mut c| {
        refused(c.create(wish("b")).await, Code::Aborted, "newer daemon has taken over");
    });
    let Err(DaemonError::Deposed(why)) = second.stop() else { panic!("the second daemon was deposed") };
    assert!(why.contains("term is 2"), "{why}");
    with_client(&third, async |mut c| c.create(wish("b")).await.map(drop)).unwrap();
}

#[test]
fn a_start_that_cannot_be_says_why() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    array.ssd(1).dead = true;
    let quick = DaemonConfig { start_timeout: Duration::from_millis(200), ..config() };
    let error = Daemon::start(ANY, array.ports(), quick).unwrap_err();
    assert!(
        matches!(error, DaemonError::StartTimeout { .. }) && error.to_string().contains("SSD 1"),
        "{error}"
    );
    let mut swapped = array.ports();
    swapped.swap(0, 1);
    assert!(matches!(
        Daemon::start(ANY, swapped, config()),
        Err(DaemonError::PortOrder { place: 0, index: 1 })
    ));
    assert!(matches!(Daemon::start(ANY, vec![], config()), Err(DaemonError::Array(_))));
    array.ssd(1).dead = false;
    let running = daemon(&array);
    assert!(matches!(
        Daemon::start(running.local_addr(), array.ports(), config()),
        Err(DaemonError::Listen { .. })
    ));
}

/// The SSDs that List calls down, once `enough` accepts them.
pub(super) async fn down(c: &mut Client, enough: impl Fn(&[String]) -> bool) -> Vec<String> {
    loop {
        let reply = c.volumes.list(ListRequest::default()).await.unwrap();
        let values = reply.metadata().get_all(gnstor_daemon::SSD_DOWN).iter();
        let down: Vec<String> = values.map(|v| v.to_str().unwrap().to_owned()).collect();
        if enough(&down) {
            return down;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn an_ssd_that_goes_is_named_and_one_that_comes_back_is_brought_up_to_date() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let daemon = Daemon::start(ANY, array.lasting_ports(), config()).unwrap();
    with_client(&daemon, async |mut c| {
        c.create(wish("a")).await.unwrap();
        assert_eq!(down(&mut c, |_| true).await, Vec::<String>::new());
        array.ssd(1).dead = true;
        let who = down(&mut c, |down| !down.is_empty()).await;
        assert!(who.len() == 1 && who[0].starts_with("1 "), "{who:?}");
        refused(c.create(wish("b")).await, Code::Unavailable, "SSD 1 is down");
        refused(c.open("a", 5, Rights::Write, 0).await, Code::Unavailable, "SSD 1 is down");
        refused(c.delete("a", 1, &[]).await, Code::Unavailable, "SSD 1 is down");
        assert_eq!(c.get("a").await.unwrap().name, "a");
        {
            let mut ssd = array.ssd(1);
            ssd.table.clear();
            ssd.dead = false;
        }
        down(&mut c, <[String]>::is_empty).await;
        c.create(wish("b")).await.unwrap();
        c.open("a", 5, Rights::Read, 0).await.unwrap();
        assert!(array.ssd(1).map.is_some());
        assert_eq!(array.agreed().len(), 2);
    });
    daemon.stop().unwrap();
}

#[test]
fn an_ssd_that_may_lack_acknowledged_writes_is_named() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    array.ssd(1).filling = true;
    // Also for an SSD that could not be connected again.
    let daemon = Daemon::start(ANY, array.ports(), config()).unwrap();
    with_client(&daemon, async |mut c| {
        loop {
            let reply = c.volumes.list(ListRequest::default()).await.unwrap();
            let named: Vec<_> = reply.metadata().get_all(gnstor_daemon::SSD_FILLING).iter().collect();
            if !named.is_empty() {
                assert_eq!(named, ["1"]);
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(down(&mut c, |_| true).await, Vec::<String>::new(), "it is there");
    });
    daemon.stop().unwrap();
}

#[test]
fn serve_ends_when_it_is_asked_to() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(ANY).await.unwrap();
        let quit = tokio::time::sleep(Duration::from_millis(200));
        within(gnstor_daemon::serve(listener, array.ports(), config(), quit)).await.unwrap();
    });
    assert!(array.ssd(0).map.is_some());
}

/// The daemon's own time for a command is 12 s; here it is shorter.
#[test]
fn an_ssd_that_answers_keep_alives_has_a_bounded_time_for_one_command() {
    let _deadline = Deadline::after(LIMIT);
    assert_eq!(DaemonConfig::default().command_timeout, Duration::from_secs(12));
    let array = SimArray::new(2);
    let config = DaemonConfig { command_timeout: Duration::from_millis(400), ..config() };
    let daemon = Daemon::start(ANY, array.lasting_ports(), config).unwrap();
    with_client(&daemon, async |mut c| {
        c.create(wish("a")).await.unwrap();
        c.open("a", 5, Rights::Read, 0).await.unwrap();
        array.ssd(1).faults.push_back(Fault::Delay(Duration::from_millis(50)));
        c.open("a", 6, Rights::Read, 0).await.expect("it had the time");
        array.ssd(1).faults.push_back(Fault::Delay(Duration::from_millis(700)));
        refused(c.release("a", 5).await, Code::Unavailable, "SSD 1");
        // It is repeated, and the SSD was not given up.
        assert_eq!(down(&mut c, |_| true).await, Vec::<String>::new());
        let readers = |ssd: usize| array.ssd(ssd).active()[0].readers.len();
        while (readers(0), readers(1)) != (1, 1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}
