// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that is killed at any moment.
//!
//! The test runs itself a second time as the victim. The victim programs, erases, and prints which units are
//! durable. It is killed after a number of lines, and every unit that it printed must be there.

use super::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const VICTIM: &str = "GNSTOR_FLASH_TEST_VICTIM";

/// Programs unit after unit, three in flight, and erases a superblock before it is used again.
fn victim(path: &Path, io: IoMode) {
    let flash = on_file(&Arc::new(open(path).unwrap().with_io(io)));
    let of = flash.geometry();
    let mut out = std::io::stdout();
    let mut started = Vec::new();
    for step in 0..1_000_000u32 {
        let unit = Unit(step % of.units());
        if unit == of.first_unit(of.superblock_of_unit(unit)) {
            for die in 0..of.dies() {
                let block = of.block_of(Unit(unit.0 + die));
                writeln!(out, "erase {}", block.0).unwrap();
                flash.erase(block).unwrap();
            }
        }
        for (page, number) in of.pages_of(unit).zip(u64::from(step) * 4..) {
            put(&flash, page, number);
        }
        flash.start_program(unit);
        started.push((unit, step));
        if started.len() == 3 {
            let (unit, step) = started.remove(0);
            finish(&flash, unit).unwrap();
            writeln!(out, "durable {} {step}", unit.0).unwrap();
        }
    }
}

#[test]
fn what_a_killed_process_said_was_durable_is_there() {
    let _deadline = crate::tests::deadline();
    if let Ok(what) = std::env::var(VICTIM) {
        let (io, path) = what.split_once(' ').unwrap();
        victim(Path::new(path), if io == "auto" { IoMode::Auto } else { IoMode::Blocking });
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (round, lines) in [1usize, 40, 77, 150, 333, 600].into_iter().enumerate() {
        let path = folder.path().join(format!("ssd{round}"));
        drop(new_file(&path, IoMode::Auto));
        let io = if round % 2 == 0 { "auto" } else { "blocking" };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "tests::killed::what_a_killed_process_said_was_durable_is_there",
            ])
            .env(VICTIM, format!("{io} {}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut durable = BTreeMap::new();
        let geometry = Geometry::new(shape(), 5).unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut take = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["durable", unit, step] => {
                durable.insert(Unit(unit.parse().unwrap()), step.parse::<u64>().unwrap());
            }
            ["erase", block] => {
                let block = Block(block.parse().unwrap());
                durable.retain(|&unit, _| geometry.block_of(unit) != block);
            }
            _ => {}
        };
        said.by_ref().take(lines + 4).for_each(|line| take(&line));
        child.kill().unwrap();
        child.wait().unwrap();
        // Its output between the last line and its end counts too.
        said.for_each(|line| take(&line));

        assert!(lines < 40 || !durable.is_empty(), "the victim said nothing");
        let flash = on_file(&Arc::new(open(&path).unwrap()));
        for (&unit, &step) in &durable {
            for (page, number) in geometry.pages_of(unit).zip(step * 4..) {
                assert_holds(&flash, page, number, true);
            }
        }
        for page in (0..240).map(Ppa) {
            match flash.page(page) {
                PageState::Programmed(found) => assert_holds(&flash, page, found.seq, true),
                state => assert_eq!(state, PageState::Erased),
            }
        }
    }
}
