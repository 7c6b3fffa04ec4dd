// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks of a peer that has only the manager key.

use super::*;

/// The key alone, without any registration: the daemon, an SSD of the array and two clients.
#[test]
fn a_holder_of_the_manager_key_passes_for_the_daemon_an_ssd_and_each_client() {
    let mut harness = asking(Group::Null);
    proven(&mut harness, DAEMON, Host::from(Identity::Daemon));
    harness.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(VOLUME))), None);
    proven(&mut harness, OTHER, Host::from(Identity::Peer(1)));
    let sqe = Sqe { dptr: KeyedSgl::keyed(0, 4096, KEY), cdw10: 1024.into(), ..sqe(opcode::MAP_GET) };
    assert_eq!(harness.refused(OTHER, sqe), None);
    for (admin, key, client) in [(QueueKey(70), WRITER, host(7, 5)), (QueueKey(80), READER, host(8, 5))] {
        let (cntlid, session) = proven(&mut harness, admin, client);
        let proof = session.prove(cntlid, 1, 1);
        assert_eq!(connect_io(&mut harness, key, client, cntlid, proof.as_bytes()), None);
    }
    assert_eq!(refusal(&harness.write(3, &[4])), None, "the volume's owner");
    let sqe = harness.io(io::READ, READER, 3, 1);
    assert_eq!(harness.refused(READER, sqe), None);
    assert!(harness.peek(READER, 0) == block(4), "its reader");
    // The clients took it for an SSD, too: `proven` checks the SSD's proof, which the key is enough for.
}
