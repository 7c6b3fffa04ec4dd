// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor up` on a full disk. The disk is a file system of fixed size, so these tests need a mount.
#![expect(clippy::disallowed_methods, reason = "the time of a shutdown is measured")]

use crate::mounts::left_out;
use gnstor_proto::status::Refusal;
use gnstor_tests::command::{BUILD_LIMIT, Guard, HOSTILE, Up};
use gnstor_tests::folder::Folder;
use gnstor_tests::{BLOCK, Guest, IO_TIMEOUT, assert_same, io_failure, pattern, volume, within};
use libgnstor::{IoFailure, Rights};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time in which the process must end. A service manager would kill it later.
const END: Duration = Duration::from_secs(10);
/// Blocks of the volume: more than fit on the disk.
const BLOCKS: usize = 12_000;
/// Blocks of a write.
const PIECE: usize = 64;

/// Checks and prints how long a process took that got TERM then, and has ended now.
fn ended_in_time(begun: Instant, what: &str) {
    let took = begun.elapsed();
    eprintln!("on a full disk, a process with {what} ended {took:.2?} after TERM; {END:?} are allowed");
    assert!(took < END, "{took:?}");
}

/// Checks that the SSD refused a write as its disk is full, within the write's deadline.
fn refused_for_room(failure: &IoFailure, took: Duration) {
    eprintln!("after {took:.2?}: {failure}");
    assert_eq!(failure.nvme_status(), Some(Refusal::CapacityExceeded.status()), "{failure}");
    assert_eq!(failure.errno(), libc::ENOSPC, "{failure}");
    assert!(took < IO_TIMEOUT, "{took:?}");
}

struct Mounted(Folder);

impl Mounted {
    fn new(size: &str) -> Option<Self> {
        let folder = Folder::new();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(folder.path()).output();
        if mounted.as_ref().is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(folder));
        }
        left_out("a mount", &mounted);
        None
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,{size}");
        let resized = Command::new("mount").args(["-o", &options]).arg(self.0.path()).status();
        assert!(resized.is_ok_and(|status| status.success()));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn a_process_on_a_full_disk_ends_soon_and_after_room_is_made_all_acknowledged_data_is_there() {
    fill_and_come_back(|_| None);
}

/// Hostile clients attack the SSD from before its disk is full until after its end.
#[test]
fn a_full_disk_beside_attackers_refuses_writes_and_keeps_all_acknowledged_data() {
    fill_and_come_back(|up| {
        let address = up.serving["fabric"].as_str().expect("an address");
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(&*HOSTILE).args([address, "600", "7"]);
        Some(Guard(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("they start")))
    });
}

fn fill_and_come_back(attack: fn(&Up) -> Option<Guard>) {
    within(BUILD_LIMIT, move || {
        let Some(disk) = Mounted::new("size=52m") else { return };
        let data = disk.0.path().join("array").to_str().expect("a plain path").to_owned();
        let up = Up::start(&["--ssds", "1", "--data", &data, "--sparse"]);
        let attackers = attack(&up);
        let piece = |nth: usize| pattern(nth as u64 + 1, PIECE * BLOCK);
        let mut acknowledged = Vec::new();
        {
            let guest = Guest::connect(&up.daemon, "writer");
            volume(&guest.client, "v", (BLOCKS * BLOCK) as u64, 1);
            let file = guest.client.open("v", Rights::Write).expect("it opens");
            let mut refused = 0;
            for nth in 0..BLOCKS / PIECE {
                let begun = Instant::now();
                match file.write_at((nth * PIECE * BLOCK) as u64, &piece(nth)) {
                    Ok(()) => acknowledged.push(nth),
                    failed => {
                        refused_for_room(&io_failure(failed), begun.elapsed());
                        refused += 1;
                    }
                }
                if refused == 2 {
                    break;
                }
            }
            assert_eq!(refused, 2, "the disk is full: {} pieces were written", acknowledged.len());
        }
        let begun = Instant::now();
        let (code, said) = up.end_anyhow("-TERM");
        ended_in_time(begun, "one SSD");
        eprintln!("{} pieces acknowledged; ended with {code}: {said:?}", acknowledged.len());
        let is_told = said.iter().any(|line| line.contains("nothing acknowledged is lost"));
        assert!(code == 0 || is_told, "{code}: {said:?}");
        drop(attackers);

        disk.resize("size=200m");
        let up = Up::start_as(&["--data", &data]);
        let guest = Guest::connect(&up.daemon, "reader");
        let file = guest.client.open("v", Rights::Read).expect("it opens");
        let mut back = vec![0; PIECE * BLOCK];
        for &nth in &acknowledged {
            file.read_at((nth * PIECE * BLOCK) as u64, &mut back).expect("it is served");
            assert_same("what was acknowledged", &back, &piece(nth));
        }
        assert!(acknowledged.len() > 25, "{}", acknowledged.len());
        drop((file, guest));
        up.end("-TERM");
    });
}

/// Share of a core that the idle array may take. It is generous, as the machine may be loaded.
const OF_A_CORE: f64 = 0.25;

fn takes_little(up: &Up, what: &str) {
    let (before, over) = (up.cpu_seconds(), Duration::from_secs(3));
    std::thread::sleep(over);
    let took = (up.cpu_seconds() - before) / over.as_secs_f64();
    eprintln!("{what}: {took:.2} of a core");
    assert!(took < OF_A_CORE, "{what}, the array takes {took:.2} of a core");
}

/// Deleting a volume writes to the journal, too, and the dump of the shutdown contains all of the journal's
/// tail.
#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn four_ssds_on_a_full_disk_leave_the_core_to_others_and_end_with_their_dumps() {
    within(BUILD_LIMIT, || {
        let Some(disk) = Mounted::new("size=140m") else { return };
        let data = disk.0.path().join("array").to_str().expect("a plain path").to_owned();
        let up = Up::start(&["--ssds", "4", "--data", &data, "--sparse"]);
        {
            let guest = Guest::connect(&up.daemon, "writer");
            volume(&guest.client, "kept", 8 << 20, 1);
            volume(&guest.client, "gone", 200 << 20, 1);
            let kept = guest.client.open("kept", Rights::Write).expect("it opens");
            (0..16).for_each(|nth| {
                kept.write_at((nth * PIECE * BLOCK) as u64, &pattern(nth as u64, PIECE * BLOCK))
                    .expect("room");
            });
            let file = guest.client.open("gone", Rights::Write).expect("it opens");
            let full = (0..800).find_map(|nth| {
                let data = pattern(1000 + nth as u64, PIECE * BLOCK);
                let begun = Instant::now();
                let failed = file.write_at((nth * PIECE * BLOCK) as u64, &data).err()?;
                Some((failed, begun.elapsed()))
            });
            let (failed, took) = full.expect("the disk is full");
            refused_for_room(&io_failure(Err(failed)), took);
            takes_little(&up, "beside a volume that cannot be written");
        }
        up.volume(&["delete", "gone"]).worked();
        takes_little(&up, "after the volume was deleted");
        let begun = Instant::now();
        let (code, said) = up.end_anyhow("-TERM");
        ended_in_time(begun, "four SSDs");
        let is_told = said.iter().any(|line| line.contains("nothing acknowledged is lost"));
        assert!(code == 0 || is_told, "{code}: {said:?}");
        disk.resize("size=600m");
        let up = Up::start_as(&["--data", &data]);
        let guest = Guest::connect(&up.daemon, "reader");
        let file = guest.client.open("kept", Rights::Read).expect("it opens");
        let mut back = vec![0; PIECE * BLOCK];
        for nth in 0..16 {
            file.read_at((nth * PIECE * BLOCK) as u64, &mut back).expect("it is served");
            assert_same("what was acknowledged", &back, &pattern(nth as u64, PIECE * BLOCK));
        }
        drop((file, guest));
        up.end("-TERM");
    });
}
