// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD in a file has its preset with it, whatever it is called.

use super::*;
use crate::SsdError;
use std::path::Path;

fn own(settings: &[&str]) -> Preset {
    let text = "name = \"mine\"\nbase = \"gnstor-980pro\"\nbuffer_pages = 400\nsense_ns = 20_000\n";
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Preset::from_toml(text).unwrap().with_settings(&settings).unwrap()
}

fn config(path: &Path, preset: Preset) -> SsdConfig {
    let media = SsdMedia::File(path.into());
    SsdConfig { index: 2, preset, capacity_bytes: 16 << 20, serial: "GN0002".into(), media }
}

#[test]
fn a_preset_of_ones_own_comes_back_with_the_file() {
    let _deadline = crate::deadline::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let preset = own(&["collection.policy=cost-benefit", "faults.read_errors=1e-9"]);
    Ssd::format(config(&path, preset.clone())).unwrap().shut_down().unwrap();
    let info = Ssd::describe(&path).unwrap();
    assert_eq!(info.preset, preset);
    let mut ssd = Ssd::open(config(&path, info.preset), &|_, _| {}).unwrap();
    assert!(!ssd.boot().is_lossy());
    ssd.shut_down().unwrap();
}

#[test]
fn what_can_be_changed_is_changed_for_good_and_the_rest_is_refused_by_name() {
    let _deadline = crate::deadline::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    Ssd::format(config(&path, own(&[]))).unwrap().shut_down().unwrap();
    for (setting, words) in [
        ("buffer_pages=500", "buffer_pages = 400, not 500"),
        ("over_provisioning_permille=100", "over_provisioning_permille = 70, not 100"),
        ("rows=128", "rows = 256, not 128"),
        ("faults.seed=4", "faults.seed = 0, not 4"),
    ] {
        let asked = own(&[setting, "sense_ns=30_000"]);
        let error = Ssd::open(config(&path, asked), &|_, _| {}).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(Ssd::describe(&path).unwrap().preset, own(&[]), "a refused change leaves nothing");
    }
    let slower = own(&["sense_ns=30_000", "faults.bit_rot=1e-6", "collection.background=false"]);
    Ssd::open(config(&path, slower.clone()), &|_, _| {}).unwrap().shut_down().unwrap();
    assert_eq!(Ssd::describe(&path).unwrap().preset, slower);
}

#[test]
fn a_file_whose_preset_is_damaged_says_so() {
    let _deadline = crate::deadline::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    Ssd::format(config(&path, own(&[]))).unwrap().shut_down().unwrap();
    let raw = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for at in [12 << 10, 36 << 10] {
        std::os::unix::fs::FileExt::write_all_at(&raw, b"x", at + 100).unwrap();
    }
    let error = Ssd::describe(&path).unwrap_err();
    assert!(matches!(error, SsdError::File(_)) && error.to_string().contains("damaged"), "{error}");
}
