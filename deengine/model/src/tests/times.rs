// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of single commands, as the sum of their parts.

use crate::{Preset, Stream, Timing};
use gnstor_base::time::{Span, Time};
use gnstor_flash::{Block, Geometry, Ppa, Unit};

const LOGICAL_PAGES: u64 = 1 << 18;

fn ssd(name: &str) -> (Preset, Geometry, Timing) {
    of(Preset::by_name(name).unwrap())
}

fn of(preset: Preset) -> (Preset, Geometry, Timing) {
    let geometry = preset.geometry(LOGICAL_PAGES).unwrap();
    let timing = Timing::new(&preset, &geometry);
    (preset, geometry, timing)
}

fn ppas(pages: std::ops::Range<u32>) -> Vec<Ppa> {
    pages.map(Ppa).collect()
}

fn transfer(pages: u32, rate: u64) -> Span {
    let page = Span::transfer(4096, rate).as_ps();
    Span::from_ps(page * u64::from(pages))
}

/// The first unit on this die.
fn unit_on(geometry: &Geometry, die: u32) -> Unit {
    let unit = Unit(die);
    assert_eq!(geometry.die_of(unit), die);
    unit
}

#[test]
fn a_lone_read_takes_firmware_hash_sense_and_transfers() {
    let _deadline = crate::tests::deadline();
    for name in Preset::NAMES {
        let (preset, _, mut timing) = ssd(name);
        let start = Time::from_ns(1_000_003);
        let accepted = timing.accept_read(start);
        let took = timing.read(accepted, &[Ppa(77)], 0).since(start);
        let want = Span::from_ns(preset.fw_read_ns + preset.hash_ns + preset.fixed_read_ns + preset.sense_ns)
            + transfer(1, preset.channel_bytes_per_s)
            + transfer(1, preset.to_host_bytes_per_s);
        assert_eq!(took, want, "{name}");
    }
}

#[test]
fn a_lone_write_is_done_when_the_buffer_has_it() {
    let _deadline = crate::tests::deadline();
    for name in Preset::NAMES {
        let (preset, _, mut timing) = ssd(name);
        let accepted = timing.accept_write(Time::ZERO);
        let took = timing.buffer(accepted, 1).since(Time::ZERO);
        let want = Span::from_ns(preset.fw_write_ns + preset.hash_ns + preset.fixed_write_ns);
        assert_eq!(took, want + transfer(1, preset.from_host_bytes_per_s), "{name}");
    }
}

#[test]
fn the_hash_delays_a_command_and_not_the_next_one() {
    let _deadline = crate::tests::deadline();
    let (preset, _, mut timing) = ssd("gnstor-980pro");
    let first = timing.accept_read(Time::ZERO);
    assert_eq!(timing.firmware_free(), Time::from_ns(preset.fw_read_ns));
    let second = timing.accept_read(Time::ZERO);
    assert_eq!(first, Time::from_ns(preset.fw_read_ns + preset.hash_ns));
    assert_eq!(second.since(first), Span::from_ns(preset.fw_read_ns));
    let third = timing.accept_write(Time::ZERO);
    assert_eq!(third.since(second), Span::from_ns(preset.fw_write_ns));
}

#[test]
fn null_takes_no_time_at_all() {
    let _deadline = crate::tests::deadline();
    let (preset, geometry, mut timing) = ssd("null");
    assert!(preset.is_null());
    let now = Time::from_ns(5);
    for number in 0..1000 {
        assert_eq!(timing.accept_write(now), now);
        assert_eq!(timing.accept_read(now), now);
        assert_eq!(timing.buffer(now, 256), now);
        assert_eq!(timing.read(now, &ppas(number..number + 16), 3), now);
        assert_eq!(timing.program(now, Unit(number % geometry.units()), Stream::Host), now);
        assert_eq!(timing.collect(now, &ppas(number..number + 16)), now);
        assert_eq!(timing.erase(now, Block(number % geometry.blocks())), now);
    }
    assert!(timing.drained() <= now && timing.firmware_free() <= now);
}

#[test]
fn only_null_is_null() {
    let _deadline = crate::tests::deadline();
    for name in Preset::NAMES {
        assert_eq!(Preset::by_name(name).unwrap().is_null(), *name == "null");
    }
}

#[test]
fn a_block_from_the_buffer_is_read_without_sensing() {
    let _deadline = crate::tests::deadline();
    let (preset, _, mut timing) = ssd("gnstor-980pro");
    let took = timing.read(Time::ZERO, &[], 3).since(Time::ZERO);
    assert_eq!(took, transfer(3, preset.to_host_bytes_per_s));
}

#[test]
fn neighbours_in_a_flash_page_are_sensed_together() {
    let _deadline = crate::tests::deadline();
    let (preset, _, mut timing) = ssd("gnstor-980pro");
    let sense = Span::from_ns(preset.sense_ns);
    let four = timing.read(Time::ZERO, &ppas(0..4), 0).since(Time::ZERO);
    assert_eq!(
        four,
        sense + transfer(4, preset.channel_bytes_per_s) + transfer(4, preset.to_host_bytes_per_s)
    );
    // The next flash page is on the same die, whose planes cannot sense independently.
    let (_, _, mut timing) = ssd("gnstor-980pro");
    let eight = timing.read(Time::ZERO, &ppas(0..8), 0).since(Time::ZERO);
    assert_eq!(eight.as_ps() - four.as_ps(), (sense + transfer(4, preset.channel_bytes_per_s)).as_ps());
}

#[test]
fn planes_that_sense_on_their_own_work_side_by_side() {
    let _deadline = crate::tests::deadline();
    let independent = Preset::by_name("pm1743").unwrap();
    let (preset, geometry, mut timing) = of(independent.clone());
    let unit = ppas(0..geometry.unit_pages());
    let together = timing.collect(Time::ZERO, &unit).since(Time::ZERO);
    let sense = Span::from_ns(preset.sense_ns);
    // All pages reach the channel at once. The channel does not store positions within a slot, so an end may
    // be one slot early.
    let want = sense + transfer(geometry.unit_pages(), preset.channel_bytes_per_s);
    assert!(
        together <= want && together + Span::from_ns(4195) > want,
        "{together:?}, the parts make {want:?}"
    );
    let (_, _, mut timing) = of(Preset { independent_planes: false, ..independent });
    let one_by_one = timing.collect(Time::ZERO, &unit).since(Time::ZERO);
    let four = transfer(4, preset.channel_bytes_per_s).as_ps();
    assert_eq!(one_by_one.as_ps(), 4 * (sense.as_ps() + four), "each waits until the register is empty");
}

#[test]
fn a_program_holds_its_die_and_no_other() {
    let _deadline = crate::tests::deadline();
    let (preset, geometry, mut timing) = ssd("pm1743");
    let loaded = transfer(geometry.unit_pages(), preset.channel_bytes_per_s);
    let programmed = timing.program(Time::ZERO, unit_on(&geometry, 3), Stream::Host);
    assert_eq!(programmed.since(Time::ZERO), loaded + Span::from_ns(preset.program_ns));
    for plane in 0..4 {
        let page = geometry.first_page(unit_on(&geometry, 3)).0 + plane * 4;
        let read = timing.read(Time::ZERO, &[Ppa(page)], 0);
        assert!(read.since(programmed) >= Span::from_ns(preset.sense_ns), "plane {plane} was busy");
    }
    let elsewhere = timing.read(Time::ZERO, &[geometry.first_page(unit_on(&geometry, 4))], 0);
    assert!(elsewhere < programmed);
}

#[test]
fn dies_of_a_channel_share_it_and_dies_of_two_do_not() {
    let _deadline = crate::tests::deadline();
    let (preset, geometry, mut timing) = ssd("gnstor-980pro");
    let loaded = transfer(8, preset.channel_bytes_per_s);
    let first = timing.program(Time::ZERO, unit_on(&geometry, 0), Stream::Host);
    let same_channel = timing.program(Time::ZERO, unit_on(&geometry, preset.shape.channels), Stream::Host);
    let other_channel = timing.program(Time::ZERO, unit_on(&geometry, 1), Stream::Host);
    assert_eq!(same_channel.since(first), loaded);
    assert_eq!(other_channel, first);
}

#[test]
fn the_rows_of_a_block_are_programmed_in_order() {
    let _deadline = crate::tests::deadline();
    let (_, geometry, mut timing) = ssd("pm1743");
    let dies = geometry.dies();
    let late = timing.program(Time::from_ns(50_000_000), Unit(0), Stream::Host);
    let next_row = timing.program(Time::ZERO, Unit(dies), Stream::Host);
    assert!(next_row > late);
    let other_stream = timing.program(Time::ZERO, Unit(2 * dies), Stream::Collect);
    assert!(other_stream < late, "collection's block is another: it uses the gap");
    assert_eq!(timing.drained(), next_row);
}

#[test]
fn a_write_waits_for_room_and_padding_gives_none_back() {
    let _deadline = crate::tests::deadline();
    let (preset, geometry, mut timing) = ssd("gnstor-980pro");
    let all = preset.buffer_pages;
    let full = timing.buffer(Time::ZERO, all);
    // Two units leave: six pages of the first were padding.
    timing.pad(4);
    timing.pad(2);
    let first = timing.program(full, unit_on(&geometry, 0), Stream::Host);
    let second = timing.program(first, unit_on(&geometry, 1), Stream::Host);
    let two = timing.buffer(full, 2);
    assert_eq!(
        two.since(first),
        transfer(2, preset.from_host_bytes_per_s),
        "the two host pages of the first unit"
    );
    let three = timing.buffer(full, 3);
    assert_eq!(three.since(second), transfer(3, preset.from_host_bytes_per_s));
}

#[test]
fn collected_units_free_no_room() {
    let _deadline = crate::tests::deadline();
    let (preset, geometry, mut timing) = ssd("gnstor-980pro");
    let full = timing.buffer(Time::ZERO, preset.buffer_pages);
    timing.program(full, unit_on(&geometry, 0), Stream::Collect);
    let host = timing.program(full, unit_on(&geometry, 1), Stream::Host);
    assert!(timing.buffer(full, 1) > host);
}

#[test]
fn a_smaller_block_takes_its_share_of_an_erase() {
    let _deadline = crate::tests::deadline();
    let (preset, geometry, mut timing) = ssd("gnstor-980pro");
    assert!(geometry.rows() < preset.shape.rows, "a small SSD");
    let took = timing.erase(Time::from_ns(9), Block(5)).since(Time::from_ns(9));
    let share = preset.erase_ns * 1000 * u64::from(geometry.rows()) / u64::from(preset.shape.rows);
    assert_eq!(took.as_ps(), share);
    let after = timing.program(Time::from_ns(9), unit_on(&geometry, 5), Stream::Host);
    assert!(after.since(Time::from_ns(9)) >= took + Span::from_ns(preset.program_ns), "the die was busy");
}

#[test]
fn a_slow_die_takes_its_multiple_and_the_others_do_not() {
    let _deadline = crate::tests::deadline();
    let (preset, geometry, mut timing) = ssd("gnstor-980pro");
    timing.set_slow(2, 300);
    timing.set_slow(geometry.dies() + 7, 300);
    let read = |timing: &mut Timing, die| {
        timing.read(Time::ZERO, &[geometry.first_page(unit_on(&geometry, die))], 0).since(Time::ZERO)
    };
    let (slow, usual) = (read(&mut timing, 2), read(&mut timing, 3));
    assert_eq!(slow.as_ps() - usual.as_ps(), 2 * preset.sense_ns * 1000);
    timing.set_slow(2, u32::MAX);
    assert!(timing.erase(Time::ZERO, Block(2)) < Time::NEVER, "no fault ends time");
}

#[test]
fn no_call_goes_back_in_time() {
    let _deadline = crate::tests::deadline();
    for name in Preset::NAMES {
        let (_, geometry, mut timing) = ssd(name);
        let mut state = 1u64;
        let mut draw = move |below: u32| {
            state = gnstor_proto::placement::mix64(state);
            u32::try_from(state % u64::from(below)).unwrap()
        };
        for number in 0..20_000u64 {
            let from = Time::from_ns(number * 300 + u64::from(draw(100_000)));
            let page = draw(u32::try_from(geometry.pages()).unwrap() - 64);
            let done = match draw(7) {
                0 => timing.accept_read(from),
                1 => timing.accept_write(from),
                2 => timing.read(from, &ppas(page..page + draw(64)), draw(4)),
                3 => timing.buffer(from, draw(64)),
                4 => timing.program(
                    from,
                    geometry.unit_of(Ppa(page)),
                    if draw(2) == 0 { Stream::Host } else { Stream::Collect },
                ),
                5 => timing.collect(from, &ppas(page..page + draw(64))),
                _ => timing.erase(from, Block(draw(geometry.blocks()))),
            };
            assert!(done >= from, "{name}: call {number}");
        }
    }
}

#[test]
fn an_erase_holds_every_plane_of_its_die_and_no_other() {
    let _deadline = crate::tests::deadline();
    let (preset, geometry, _) = ssd("pm1743");
    assert!(preset.independent_planes && preset.shape.planes > 1);
    let sense_pages = preset.shape.sense_pages;
    for plane in 0..preset.shape.planes {
        let (_, _, mut timing) = ssd("pm1743");
        let unit = unit_on(&geometry, 3);
        let erased = timing.erase(Time::ZERO, geometry.block_of(unit));
        let page = Ppa(geometry.first_page(unit).0 + plane * sense_pages);
        let read = timing.read(Time::ZERO, &[page], 0);
        assert!(
            read.since(erased) >= Span::from_ns(preset.sense_ns),
            "plane {plane} was free during the erase"
        );
        let other = geometry.first_page(unit_on(&geometry, 4));
        let (_, _, mut idle) = ssd("pm1743");
        let free = idle.read(Time::ZERO, &[other], 0);
        let (_, _, mut timing) = ssd("pm1743");
        timing.erase(Time::ZERO, geometry.block_of(unit));
        assert_eq!(timing.read(Time::ZERO, &[other], 0), free, "the next die is free");
    }
}
