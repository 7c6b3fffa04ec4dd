// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Presets as files: valid ones are read, and each kind of wrong one has its own error sentence.

use crate::preset::{Preset, PresetError};
use gnstor_flash::Shape;

const EXAMPLE: &str = include_str!("../../presets/example.toml");

fn own(lines: &str) -> Result<Preset, PresetError> {
    Preset::from_toml(&format!("name = \"mine\"\nbase = \"gnstor-980pro\"\n{lines}"))
}

#[test]
fn every_name_has_a_preset_of_that_name() {
    let _deadline = crate::tests::deadline();
    assert_eq!(Preset::NAMES.len(), 8);
    for name in Preset::NAMES {
        assert_eq!(&Preset::by_name(name).unwrap().name, name);
    }
    assert_eq!(Preset::by_name("floppy"), None);
}

#[test]
fn every_preset_survives_a_round_trip() {
    let _deadline = crate::tests::deadline();
    let example = Preset::from_toml(EXAMPLE).unwrap();
    for preset in Preset::NAMES.iter().map(|name| Preset::by_name(name).unwrap()).chain([example]) {
        let text = preset.to_toml();
        assert_eq!(Preset::from_toml(&text).unwrap(), preset, "{text}");
        assert_eq!(toml::from_str::<Preset>(&text).unwrap(), preset);
    }
}

#[test]
fn the_example_has_every_key() {
    let _deadline = crate::tests::deadline();
    let example = Preset::from_toml(EXAMPLE).unwrap();
    assert_eq!(
        example.shape,
        Shape { channels: 8, dies_per_channel: 8, planes: 4, unit_pages: 16, sense_pages: 4, rows: 512 }
    );
    assert_eq!((example.sense_ns, example.figures().len()), (50_000, 1));
    for line in example.to_toml().lines().filter(|line| line.contains(" = ")) {
        let key = line.split(" = ").next().unwrap();
        assert!(EXAMPLE.contains(&format!("{key} = ")), "{key} is not in the example");
    }
}

#[test]
fn what_is_left_out_comes_from_the_base_but_for_the_figures() {
    let _deadline = crate::tests::deadline();
    let base = Preset::by_name("gnstor-980pro").unwrap();
    let preset = own("sense_ns = 40_000").unwrap();
    let want = Preset { name: "mine".to_owned(), sense_ns: 40_000, figures: Vec::new(), ..base };
    assert_eq!(preset, want);
}

#[test]
fn without_a_base_every_key_is_needed() {
    let _deadline = crate::tests::deadline();
    let full = Preset::by_name("pm1743").unwrap().to_toml();
    let keys: Vec<&str> = full.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(keys.len(), 22);
    for left_out in 1..keys.len() {
        let lines: Vec<&str> =
            keys.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, line)| *line).collect();
        let key = keys[left_out].split(" = ").next().unwrap();
        let sentence = Preset::from_toml(&lines.join("\n")).unwrap_err().to_string();
        assert!(
            sentence.starts_with(&format!("`{key}` is missing; give it, or name a preset")),
            "{sentence}"
        );
    }
}

#[test]
fn each_mistake_has_its_sentence() {
    let _deadline = crate::tests::deadline();
    let cases = [
        ("base = 1", "the preset file cannot be read"),
        ("channels = 0", "`channels = 0` must be from 1 to 64"),
        ("channels = 65", "`channels = 65` must be from 1 to 64"),
        ("dies_per_channel = 0", "`dies_per_channel = 0` must be from 1 to 64"),
        ("planes = 17", "`planes = 17` must be from 1 to 16"),
        ("unit_pages = 65", "`unit_pages = 65` must be from 1 to 64"),
        ("sense_pages = 0", "`sense_pages = 0` must be from 1 to 64"),
        ("rows = 0", "`rows = 0` must be from 1 to 16384"),
        ("sense_pages = 3", "`unit_pages = 8` must be a multiple of `sense_pages = 3`"),
        (
            "unit_pages = 4\nindependent_planes = true",
            "`unit_pages = 4` must be a multiple of `planes = 2` times `sense_pages = 4`",
        ),
        ("sense_ns = 1_000_000_001", "`sense_ns = 1000000001` must be from 0 to 1000000000"),
        ("erase_ns = -1", "the preset file cannot be read"),
        (
            "channel_bytes_per_s = 999_999",
            "`channel_bytes_per_s = 999999` must be from 1000000 to 1000000000000",
        ),
        ("to_host_bytes_per_s = 2_000_000_000_000", "`to_host_bytes_per_s = 2000000000000` must be from"),
        ("from_host_bytes_per_s = 1", "`from_host_bytes_per_s = 1` must be from"),
        ("over_provisioning_permille = 9", "`over_provisioning_permille = 9` must be from 10 to 4000"),
        (
            "buffer_pages = 271",
            "`buffer_pages = 271` must be at least 272: two units and a command of 256 pages",
        ),
        (
            "buffer_pages = 15_617",
            "`buffer_pages = 15617` is more than the 15616 that can be saved at a power failure",
        ),
        (
            "buffer_pages = 1_048_577\npower_protected = false",
            "`buffer_pages = 1048577` must be from 1 to 1048576",
        ),
        ("power_protected = 1", "the preset file cannot be read"),
        ("tR = 5", "unknown field `tR`"),
        ("sense_ns = 1\nsense_ns = 2", "duplicate key"),
        ("sense_ns =", "the preset file cannot be read"),
    ];
    for (lines, sentence) in cases {
        let error = own(lines).expect_err(lines).to_string();
        assert!(error.contains(sentence), "{lines}: {error}");
    }
    for name in ["", "a b", "a/b", "\u{e4}", &"x".repeat(33)] {
        let error = Preset::from_toml(&format!("name = \"{name}\"\nbase = \"null\"")).unwrap_err();
        assert_eq!(error, PresetError::Name(name.to_owned()));
        assert!(error.to_string().contains("must have 1 to 32 of a-z"));
    }
    let error = Preset::from_toml("name = \"x\"\nbase = \"floppy\"").unwrap_err().to_string();
    assert_eq!(error, format!("`base = \"floppy\"` is no preset; there are {}", Preset::NAMES.join(", ")));
    assert!(Preset::from_toml("base = \"null\"").unwrap_err().to_string().contains("missing field `name`"));
}

#[test]
fn figures_are_checked_too() {
    let _deadline = crate::tests::deadline();
    let good = "[[figures]]\nwhat = { op = \"read\", pattern = \"random\", blocks = 1, depth = 1 }\nvalue \
        = 4\nunit = \"us\"\nstate = \"fresh\"\nsource = \"x\"";
    assert_eq!(own(good).unwrap().figures().len(), 1);
    let cases = [
        ("value = 4", "value = 0", "figure 1 (4K random read QD1): `value` must be a number above 0"),
        ("value = 4", "value = nan", "`value` must be a number above 0"),
        ("blocks = 1", "blocks = 257", "`blocks` must be from 1 to 256"),
        ("depth = 1", "depth = 0", "`depth` must be from 1 to 4096"),
        ("\"x\"", "\" \"", "`source` must say who published it, or \"modelled\""),
        ("\"us\"", "\"ms\"", "unknown variant `ms`"),
        ("\"read\"", "\"trim\"", "unknown variant `trim`"),
        ("state =", "stale =", "unknown field `stale`"),
    ];
    for (from, to, sentence) in cases {
        let error = own(&good.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains(sentence), "{to}: {error}");
    }
}

#[test]
fn units_nest_and_the_buffer_keeps_all_dies_busy() {
    let _deadline = crate::tests::deadline();
    for name in Preset::NAMES {
        let preset = Preset::by_name(name).unwrap();
        let Shape { channels, dies_per_channel, unit_pages, .. } = preset.shape;
        assert!(preset.buffer_pages >= 2 * channels * dies_per_channel * unit_pages, "{name}");
    }
}

#[test]
fn a_geometry_has_the_spare_space_and_little_more() {
    let _deadline = crate::tests::deadline();
    for name in Preset::NAMES {
        let preset = Preset::by_name(name).unwrap();
        for shift in [14, 18, 20, 22, 26, 28] {
            let logical = 1 << shift;
            let geometry = preset.geometry(logical).unwrap();
            let reserved = preset.reserved_superblocks(&geometry);
            let held = u64::from(geometry.superblocks() - reserved) * u64::from(geometry.superblock_pages());
            let want = preset.physical_pages(logical);
            assert!(held >= want && held - want < u64::from(geometry.superblock_pages()), "{name} 2^{shift}");
            assert!(geometry.rows() <= preset.shape.rows);
            assert!(geometry.rows() == 1 || held - want < want / 128, "{name} 2^{shift}: {held} of {want}");
        }
        assert!(preset.geometry(u64::MAX).is_err() && preset.geometry(1 << 33).is_err());
        assert!(preset.geometry(0).is_ok_and(|geometry| geometry.superblocks() > 3));
    }
}
