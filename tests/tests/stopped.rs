// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that was stopped in the middle of an I/O, for longer than the I/O and its launch may take, goes
//! on.
#![expect(clippy::disallowed_methods, reason = "a process is stopped in real time")]

use gnstor_tests::command::{BUILD_LIMIT, Guard, Up, signal};
use gnstor_tests::{Guest, assert_same, pattern, volume, within};
use libgnstor::Rights;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Deadline of each I/O. A launch may take 5 s more.
const IO_TIMEOUT: Duration = Duration::from_secs(1);
const STOPPED: Duration = Duration::from_secs(8);
/// Names the array to the process that is stopped.
const ARRAY: &str = "GNSTOR_TEST_STOPPED_ARRAY";
/// The process says this when it is about to write until it is stopped.
const WRITING: &str = "stopped: it writes";

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn a_client_that_was_stopped_for_longer_than_a_launch_may_take_goes_on() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let mut client = Command::new(std::env::current_exe().expect("a path"));
        client.args(["--ignored", "--exact", "--nocapture", "stopped::a_client_that_is_stopped"]);
        client.env(ARRAY, &up.daemon).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut client = Guard(client.spawn().expect("this test once more"));
        let mut said = BufReader::new(client.0.stdout.take().expect("piped")).lines();
        assert!(said.any(|line| line.expect("text").contains(WRITING)), "it writes");
        std::thread::sleep(Duration::from_millis(300));
        signal(&client, "-STOP");
        std::thread::sleep(STOPPED);
        signal(&client, "-CONT");
        said.map_while(Result::ok).for_each(|line| println!("{line}"));
        assert!(client.0.wait().expect("it ends").success(), "it has gone on");
        up.end("-TERM");
    });
}

#[test]
#[ignore = "a process of its own, which the test above stops"]
fn a_client_that_is_stopped() {
    within(BUILD_LIMIT, || {
        let guest = Guest::connect_for(&std::env::var(ARRAY).expect("an array"), "sleeper", IO_TIMEOUT);
        volume(&guest.client, "v", MIB as u64, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let data = pattern(1, MIB);
        println!("{WRITING}");
        let longest = loop {
            let begun = Instant::now();
            // The one in flight may end at its deadline, which passes while the process is stopped.
            let wrote = file.write_at(0, &data);
            let took = begun.elapsed();
            assert!(wrote.is_ok() || took > IO_TIMEOUT, "{wrote:?} after {took:?}");
            if took > STOPPED / 2 {
                break took;
            }
        };
        println!("the longest write took {longest:?}");
        // Its lease has ended meanwhile. The client opens the volume again.
        drop(file);
        let file = guest.client.open("v", Rights::Write).expect("the client goes on");
        let new = pattern(2, MIB);
        file.write_at(0, &new).expect("it writes");
        let mut back = vec![0; MIB];
        file.read_at(0, &mut back).expect("it reads");
        assert_same("what was written", &back, &new);
    });
}
