// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Strangers who begin a proof, on SSDs that demand a Diffie-Hellman group or none.

use crate::attack::{Beside, measure, more_pairs, pairs, slice, time_of};
use crate::beside::another_client_reads;
use crate::{LIMIT, guest, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_hostile::proof::Heard;
use gnstor_hostile::random::Random;
use gnstor_hostile::talk::Talk;
use gnstor_proto::fabrics::CNTLID_ANY;
use gnstor_tests::command::Up;
use gnstor_tests::within;
use std::time::Instant;

/// Number of strangers to measure.
const STRANGERS: u32 = 100;

/// Each SSD challenges a stranger, who replies without the secret. Prints how long its messages take, with
/// their ways. Returns the group that the SSDs demand.
fn challenged(up: &Up) -> u8 {
    let mut talk = Talk::connect(ssd_address(up)).expect("it is let in");
    let (mut random, mut times, mut demanded) = (Random::new(7), Vec::new(), 0);
    for conn in 1..=STRANGERS {
        assert!(talk.open(conn, 0, 0).expect("an answer"), "stranger {conn} has a queue");
        assert_ne!(talk.connect_queue(conn, 0, 0, CNTLID_ANY).expect("an answer"), 0);
        let begun = Instant::now();
        let heard = talk.prove_falsely(conn, &mut random).expect("an answer");
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        let Heard::Challenge { group } = heard else { panic!("stranger {conn} is not challenged") };
        demanded = group;
    }
    times.sort_by(f64::total_cmp);
    println!("summary a stranger's messages, group {demanded}: {:.0} us", times[times.len() / 2]);
    demanded
}

/// A group makes a stranger dear: for each of its two messages the SSD computes a power.
#[test]
fn the_load_beside_strangers_who_reply_to_challenges_has_no_error_and_goes_on() {
    let (pairs, slice) = (pairs(), slice());
    within(2 * LIMIT + time_of(pairs + more_pairs(), slice, 2), move || {
        for (name, group) in [("null", 0), ("3072", 2)] {
            let up = Up::start(&["--ssds", "2", "--dh-group", name]);
            let honest = guest(&up.daemon, "honest");
            assert_eq!(challenged(&up), group, "the SSDs demand the group of --dh-group");
            println!("beside strangers, --dh-group {name}:");
            let load = measure(&up, &honest, &[Beside::Attack(Attack::Unproven)], pairs, slice);
            another_client_reads(&guest(&up.daemon, "other"), &load.file);
            drop((load, honest));
            up.end("-TERM");
        }
    });
}
