// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host calls that lose their connection while the client has requests of `submit_async`. Such requests stay
//! until they are drained.

use super::*;
use crate::device_api::{PENDING, read_by_kernel};
use gnstor_tests::BLOCK;
use libgnstor::{Device, DeviceMem};

/// Cuts the connections of a client whose channel has a request that no thread polls. Returns the request's
/// memory.
fn cut_beside_a_parked_request(scene: &Scene, guest: &Guest, name: &str) -> (libgnstor::File, DeviceMem) {
    volume(&guest.client, name, MIB as u64, 2);
    let file = guest.client.open(name, Rights::Write).expect("it opens");
    file.write_at(0, &pattern(1, MIB)).expect("it is written");
    let memory = Device::alloc(guest.client.node().device(), BLOCK).expect("memory");
    let key = guest.client.register_buffer(memory.address(), BLOCK).expect("a key");
    assert_eq!(read_by_kernel(&file, &memory, key, 1, true), PENDING);
    assert_eq!(guest.client.channel_stats().expect("it is read").parked, 1);
    for (proxy, &kept) in scene.proxies.iter().zip(&scene.daemons) {
        proxy.cut(kept, Duration::ZERO);
    }
    (file, memory)
}

#[test]
fn a_host_call_waits_for_requests_that_are_not_drained_until_its_own_deadline() {
    within(BUILD_LIMIT, || {
        let scene = Scene::start();
        let data = pattern(2, MIB);
        let patient = guest(&scene.up.daemon, Duration::from_secs(60));
        let (file, _memory) = cut_beside_a_parked_request(&scene, &patient, "v");
        std::thread::scope(|scope| {
            let write = scope.spawn(|| file.write_at(0, &data));
            std::thread::sleep(Duration::from_millis(500));
            assert!(!write.is_finished(), "it waits for the other request");
            file.drain(Duration::from_secs(30)).expect("its connection is broken, so it ends");
            write.join().expect("no panic").expect("its deadline is far away");
        });
        let mut back = vec![0; MIB];
        file.read_at(0, &mut back).expect("it is read");
        assert_same("what was written", &back, &data);
        drop(file);
        drop(patient);

        let timeout = Duration::from_secs(2);
        let hasty = guest(&scene.up.daemon, timeout);
        let (file, _memory) = cut_beside_a_parked_request(&scene, &hasty, "w");
        let begun = Instant::now();
        let error = file.write_at(0, &data).expect_err("the other request is not drained");
        let took = begun.elapsed();
        assert!(error.to_string().contains("broke"), "{error}");
        assert!(took > timeout / 2 && took < timeout + Duration::from_secs(5), "{took:?}");
        // The client connects anew and sends the other request again: that request's memory must outlive it.
        drop(file);
        drop(hasty);
    });
}
