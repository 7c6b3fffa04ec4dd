// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients whose first connections are closed before they are of use. A host that has all its places does so
//! with the oldest newcomer.

use super::*;

#[test]
fn a_new_client_whose_first_connections_are_closed_dials_again() {
    within(BUILD_LIMIT, || {
        let scene = Scene::start();
        scene.proxies.iter().for_each(|proxy| proxy.away.store(3, Ordering::Relaxed));
        let guest = guest(&scene.up.daemon, Duration::from_secs(30));
        volume(&guest.client, "v", MIB as u64, 2);
        let (data, mut back) = (pattern(1, MIB), vec![0; MIB]);
        let file = guest.client.open("v", Rights::Write).expect("it opens");
        file.write_at(0, &data).expect("both SSDs are reached");
        file.read_replica_at(1, 0, &mut back).expect("both SSDs are reached");
        assert_same("the second copy", &back, &data);
        assert!(scene.proxies.iter().all(|proxy| proxy.away.load(Ordering::Relaxed) == 0));
    });
}

#[test]
fn a_new_client_whose_connections_are_all_closed_says_so_after_some_tries() {
    within(BUILD_LIMIT, || {
        let scene = Scene::start();
        scene.proxies.iter().for_each(|proxy| proxy.away.store(usize::MAX, Ordering::Relaxed));
        let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]);
        let engine = engine.expect("an engine starts");
        let begun = Instant::now();
        let refused = Client::connect(&node(engine.handle()), &ConnectOptions::new(&scene.up.daemon));
        let error = refused.expect_err("no SSD is reached").to_string();
        assert!(error.contains("no SSD answers there") || error.contains("broke"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    });
}

#[test]
fn an_array_starts_when_an_ssd_has_refused_its_first_queues_and_ended_the_next_ones() {
    within(BUILD_LIMIT, || {
        let ssd = SsdProcess::start("127.0.0.1:0", &["--preset", "null", "--size", "64MiB"]);
        let proxy = Proxy::before(ssd.address());
        proxy.full.store(3, Ordering::Relaxed);
        proxy.short.store(2, Ordering::Relaxed);
        let up = Up::start_as(&["--ssd-at", &proxy.address]);
        let left = [&proxy.full, &proxy.short].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(left, [0, 0], "the daemon dialled on");
        up.end("-TERM");
    });
}
