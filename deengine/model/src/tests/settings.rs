// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of single values, and differences of two presets.

use crate::preset::{Policy, Preset, SlowDie};

fn changed(settings: &[&str]) -> Result<Preset, String> {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Preset::by_name("gnstor-980pro").unwrap().with_settings(&settings).map_err(|error| error.to_string())
}

#[test]
fn settings_change_what_they_name_and_nothing_else() {
    let _deadline = crate::tests::deadline();
    let base = Preset::by_name("gnstor-980pro").unwrap();
    assert_eq!(changed(&[]), Ok(base.clone()));
    let settings = [
        "collection.policy=cost-benefit",
        "collection.wear_bound = 50",
        "over_provisioning_permille=280",
        "faults.read_errors=1e-6",
        "faults.bit_rot=1",
        "faults.slow_dies=[{die=3, percent=400}]",
    ];
    let preset = changed(&settings).unwrap();
    assert_eq!((preset.collection.policy, preset.collection.wear_bound), (Policy::CostBenefit, 50));
    assert_eq!((preset.faults.read_errors, preset.faults.bit_rot), (1e-6, 1.0));
    assert_eq!(preset.faults.slow_dies, [SlowDie { die: 3, percent: 400 }]);
    let differences = base.differences(&preset);
    let keys: Vec<&str> = differences.iter().map(|difference| difference.key.as_str()).collect();
    let want = [
        "over_provisioning_permille",
        "collection.policy",
        "collection.wear_bound",
        "faults.bit_rot",
        "faults.read_errors",
        "faults.slow_dies",
    ];
    assert_eq!(keys, want, "what is fixed comes first");
    assert_eq!((differences[0].one.as_str(), differences[0].other.as_str()), ("70", "280"));
    assert_eq!(
        differences.iter().map(|difference| difference.is_fixed).collect::<Vec<_>>(),
        [true, false, false, false, false, false]
    );
    assert_eq!(Preset::from_toml(&preset.to_toml()), Ok(preset), "it is a file like any other");
}

#[test]
fn a_setting_that_cannot_be_is_named_in_one_line() {
    let _deadline = crate::tests::deadline();
    let cases = [
        ("faults.read_errors", "write it like KEY=VALUE"),
        ("faults.read_error=1e-6", "unknown field `read_error`"),
        ("collections.policy=greedy", "unknown field `collections`"),
        ("collection.policy=lazy", "unknown variant `lazy`"),
        ("faults=1", "invalid type"),
        ("faults.read_errors=1.5", "`faults.read_errors = 1.5` must be from 0 to 1"),
        ("faults.bit_rot=-0.1", "`faults.bit_rot = -0.1` must be from 0 to 1"),
        ("faults.program_failures=nan", "must be from 0 to 1"),
        ("faults.factory_bad_blocks=0.6", "must be from 0 to 0.5"),
        ("faults.slow_dies=[{die=32, percent=200}]", "`faults.slow_dies.die = 32` must be from 0 to 31"),
        ("faults.slow_dies=[{die=0, percent=0}]", "`faults.slow_dies.percent = 0` must be from 1"),
        ("collection.wear_bound=0", "`collection.wear_bound = 0` must be from 1"),
        ("faults.seed=-1", "invalid value"),
        ("name=other", "only a preset file says this"),
        ("base=null", "only a preset file says this"),
        ("=1", "=1"),
        ("a\nb=1", "a\nb=1"),
    ];
    for (setting, sentence) in cases {
        let error = changed(&[setting]).expect_err(setting);
        assert!(error.contains(sentence), "{setting}: {error}");
        assert_eq!(error.lines().count(), setting.lines().count(), "{error}");
    }
}

#[test]
fn times_can_be_changed_of_an_ssd_that_is_there_but_not_whether_it_takes_time() {
    let _deadline = crate::tests::deadline();
    let timed = Preset::by_name("gnstor-980pro").unwrap();
    let slower = changed(&["sense_ns=50_000"]).unwrap();
    assert!(timed.differences(&slower).iter().all(|difference| !difference.is_fixed));
    let null = Preset::by_name("null").unwrap();
    let slow_null = null.with_settings(&["sense_ns=50_000".to_owned()]).unwrap();
    assert!(null.differences(&slow_null)[0].is_fixed, "its space was laid out for no time at all");
    assert_eq!(timed.differences(&null)[0].key, "name");
}
