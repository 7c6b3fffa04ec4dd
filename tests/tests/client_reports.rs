// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reports of clients to the daemon, on the wire: which SSDs they reach, and how their writes ended.
#![expect(clippy::disallowed_methods, reason = "connections and threads in real time")]

use gnstor_tests::command::{BUILD_LIMIT, Up};
use gnstor_tests::{BLOCK, Guest, volume, within};
use libgnstor::Rights;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Forwards connections to a daemon and records the clients' bytes. gRPC does not compress its messages.
pub(crate) struct Recorder {
    pub(crate) at: String,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    pub(crate) fn start(daemon: &str) -> Self {
        let to = daemon.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = format!("http://{}", listener.local_addr().expect("an address"));
        let said = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&said);
        // The threads end with the test's process or with the connection.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(daemon) = TcpStream::connect(&to) else { continue };
                let (Ok(back), Ok(front)) = (daemon.try_clone(), client.try_clone()) else { continue };
                let keeps = Arc::clone(&keeps);
                std::thread::spawn(move || pass(client, daemon, Some(&keeps)));
                std::thread::spawn(move || pass(back, front, None));
            }
        });
        Self { at, said }
    }

    fn count(&self, message: &[u8]) -> usize {
        let said = self.said.lock().expect("no panic while held");
        said.windows(message.len()).filter(|part| *part == message).count()
    }

    /// Number of renewals whose holder reports that it reaches these SSDs: field 5, eight bytes.
    pub(crate) fn renewals_with(&self, ssds: u64) -> usize {
        self.count(&[&[5 << 3 | 1][..], &ssds.to_le_bytes()].concat())
    }

    /// Number of releases of a volume by this client that say whether all writes were acknowledged. Such a
    /// message has name and id, field 3 if all were, and the epoch of the volume's first lease. gRPC's flag
    /// and length come before it.
    fn releases(&self, name: &str, client: u8, all_acknowledged: bool) -> usize {
        let length = u8::try_from(name.len()).expect("a short name");
        let mut body = [&[1 << 3 | 2, length][..], name.as_bytes(), &[2 << 3, client]].concat();
        if all_acknowledged {
            body.extend([3 << 3, 1]);
        }
        body.extend([4 << 3, 1]);
        let prefix = [0, 0, 0, 0, u8::try_from(body.len()).expect("a short message")];
        self.count(&[&prefix[..], &body].concat())
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, keeps: Option<&Mutex<Vec<u8>>>) {
    let mut part = vec![0; 16 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut part) {
        if let Some(keeps) = keeps {
            keeps.lock().expect("no panic while held").extend(&part[..bytes]);
        }
        if to.write_all(&part[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_release_says_that_all_was_acknowledged_only_where_the_host_has_seen_that() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let recorder = Recorder::start(&up.daemon);
        let guest = Guest::connect_for(&recorder.at, "writer", Duration::from_secs(10));
        let client = &guest.client;
        let id = u8::try_from(client.id()).expect("the first clients");
        assert!(id < 128, "an id of one byte on the wire");
        for (name, doubt) in [("certain", false), ("doubtful", true)] {
            volume(client, name, 1 << 20, 2);
            let file = client.open(name, Rights::Write).unwrap();
            file.write_at(0, &vec![7; BLOCK]).unwrap();
            if doubt {
                // The host does not see how a kernel's writes end.
                let running = crate::follow::Running::new(&file);
                running.stop();
                running.run(&file);
            }
            assert_eq!(recorder.releases(name, id, !doubt), 0, "{name} is open");
            drop(file);
            assert_eq!(recorder.releases(name, id, !doubt), 1, "{name}");
            assert_eq!(recorder.releases(name, id, doubt), 0, "{name}");
        }
        drop(guest);
        up.end("-TERM");
    });
}
