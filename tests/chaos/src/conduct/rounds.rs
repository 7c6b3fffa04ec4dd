// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A campaign: rounds of faults, each followed by a quiet in which all must be right.

use super::Settings;
use super::array::{Array, SSDS, pause};
use super::clients::{CLIENTS, WRITERS};
use super::{faults, plan};
use crate::check::{Judge, Violation};
use crate::dice::Dice;
use crate::history::{Event, Writer, now};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// From the end of the last fault until the array is healthy again.
const HEALS: Duration = Duration::from_secs(60);
/// From an order until each client has carried it out.
const ORDER: Duration = Duration::from_secs(60);
/// Load before the faults, and behind them.
const LOAD_MS: u64 = 300;

/// Plays the campaign.
pub(crate) fn campaign(settings: &Settings) -> Result<(), String> {
    let begun = Instant::now();
    let mut array = Array::start(settings)?;
    heal(&mut array)?;
    let mut judge = Judge::default();
    let mut lines = Writer::open(&settings.out.join("conductor.history")).map_err(|e| e.to_string())?;
    let mut dice = Dice::new(settings.seed, u64::MAX);
    for number in 0..settings.rounds {
        round(&mut array, &mut judge, (&mut dice, &mut lines), number)
            .map_err(|why| format!("round {number}: {why}"))?;
    }
    for client in &mut array.clients {
        client.order("end");
    }
    for ssd in 0..SSDS {
        array.end_ssd(ssd, Signal::SIGTERM)?;
    }
    println!(
        "{} rounds in {} s with seed {}; calls:",
        settings.rounds,
        begun.elapsed().as_secs(),
        settings.seed
    );
    for ((call, failure), count) in judge.counts() {
        let how = failure.map_or("ended well".into(), |failure| format!("failed: {failure:?}"));
        println!("  {count:>8} {call}, {how}");
    }
    Ok(())
}

fn round(
    array: &mut Array,
    judge: &mut Judge,
    (dice, lines): (&mut Dice, &mut Writer),
    round: u64,
) -> Result<(), String> {
    let plan = plan::draw(dice, array.leader);
    let words = plan::words(&plan);
    let begins = Event::Round { round, at: now(), alone: plan::is_alone(&plan), faults: words.clone() };
    lines.add(&begins);
    println!("round {round}: {words}");
    for (client, order) in plan::orders(&plan) {
        array.clients[client].order(&order);
    }
    pause(LOAD_MS);
    faults::play(array, &plan)?;
    let healing = Instant::now();
    let healed = heal(array);
    let took = healing.elapsed();
    let healed = Event::Healed { at: now(), lacks: healed.err() };
    lines.add(&healed);
    pause(LOAD_MS);
    let quiet = quiet(array);
    let mut events = vec![begins, healed];
    for client in &mut array.clients {
        events.extend(client.lines()?);
    }
    let (count, broken) = (events.len(), judge.judge(events));
    // What clients saw says more than a client that does not answer.
    told(&broken)?;
    quiet?;
    println!("round {round}: healthy after {} ms, {count} lines", took.as_millis());
    Ok(())
}

fn told(broken: &[Violation]) -> Result<(), String> {
    let Some(first) = broken.first() else { return Ok(()) };
    for violation in broken.iter().take(20) {
        println!("BROKEN: {}: {}", violation.rule, violation.facts);
    }
    Err(format!("broken: {}: {} ({} in all)", first.rule, first.facts, broken.len()))
}

/// All processes serve, and the array is healthy within its time.
fn heal(array: &mut Array) -> Result<(), String> {
    let begun = Instant::now();
    (0..SSDS).try_for_each(|ssd| array.ssd_serves(ssd))?;
    array.daemon_serves(array.leader)?;
    healthy(array, begun + HEALS)
}

/// Waits until `gnstor fleet show` says healthy and no change is under way. SSDs that came back too often or
/// are taken out are resumed, as an operator does.
fn healthy(array: &mut Array, until: Instant) -> Result<(), String> {
    loop {
        if let Some(lost) = array.lost() {
            return Err(lost);
        }
        let (code, shown) = array.fleet()?;
        let is_at_rest = shown["settling_volumes"].as_u64() == Some(0) && shown["next_epoch"].is_null();
        if code == 0 && is_at_rest {
            return Ok(());
        }
        for ssd in shown["ssds"].as_array().into_iter().flatten() {
            if ["flaps", "taken_out", "leaves"].iter().any(|is_so| ssd[is_so] == true) {
                let index = ssd["index"].to_string();
                array.command(&["fleet", "resume", &index])?;
            }
        }
        if Instant::now() > until {
            return Err(format!("after {HEALS:?} gnstor fleet show exits with {code}: {shown}"));
        }
        pause(150);
    }
}

/// Clients give all back; the array is healthy, and each copy is read.
fn quiet(array: &mut Array) -> Result<(), String> {
    let all: Vec<usize> = (0..CLIENTS).collect();
    order(array, &all, "pause")?;
    healthy(array, Instant::now() + HEALS)?;
    order(array, &[WRITERS], "copies")?;
    array.clients.iter_mut().for_each(|client| client.order("go"));
    Ok(())
}

fn order(array: &mut Array, clients: &[usize], order: &str) -> Result<(), String> {
    clients.iter().for_each(|client| array.clients[*client].order(order));
    let until = Instant::now() + ORDER;
    clients.iter().try_for_each(|client| array.clients[*client].wait(order, until))
}
