// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that a golden script meets every refusal of an SSD. The exceptions are listed here with their
//! reasons.

use crate::op::In;
use gnstor_proto::status::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// Refusals that no script can meet. The subset in C lacks their subject, or no command brings the firmware
/// there. `gn_run --alone` meets the second kind in C.
const NOT_MET: [(Refusal, &str); 18] = [
    (Refusal::OtherArray, "no daemon here asks voters for a term"),
    (Refusal::Deprived, "no peer here asks for a serving lease"),
    (Refusal::OlderImage, "no peer here asks for a serving lease"),
    (Refusal::NotReady, "the firmware of a script has room for every command, fence and page; `--alone`"),
    (Refusal::WrongKey, "only damaged memory makes a record name another block; `--alone`"),
    (Refusal::BadChecksum, "the data is the emulator's, and it has no medium that fails"),
    (Refusal::ConnectRefused, "no Fabrics: a queue of PCIe is not connected"),
    (Refusal::ConnectInvalid, "no Fabrics"),
    (Refusal::HostsFull, "no Fabrics"),
    (Refusal::SequenceError, "no Fabrics, no Fused commands"),
    (Refusal::InvalidLogPage, "log pages are the emulator's"),
    (Refusal::FeatureNotSaveable, "features are the emulator's"),
    (Refusal::EventLimit, "event requests are the emulator's"),
    (Refusal::AbortRequested, "Abort is the emulator's"),
    (Refusal::Deallocated, "answered only where a feature of error recovery asks for it: the emulator's"),
    (Refusal::Unreadable, "there is no medium that fails"),
    (Refusal::AuthenticationRequired, "no Fabrics"),
    (Refusal::CopyUnusable, "an SSD that another one stands in for does not exist here"),
];

/// Success has this number in [`codes_of`].
const SUCCESS: u8 = 0;

/// The codes of the completions in an answer.
fn codes_of(answer: &[u8]) -> Vec<u8> {
    let mut codes = Vec::new();
    let mut from = In(answer);
    while let Some(&[event]) = from.take(1) {
        let rest = match event {
            1 => {
                let fields = from.take(14).expect("a completion");
                let status = u16::from_le_bytes([fields[4], fields[5]]);
                codes.push(if status == 0 { SUCCESS } else { fields[6] });
                0
            }
            2 => {
                from.take(4).expect("a token");
                usize::from(from.u16().expect("a count")) * 4
            }
            3 | 6 | 7 => 8,
            4 => 12,
            5 => 2,
            8 => usize::from(from.u16().expect("a count")) * 8,
            other => panic!("event {other} is never right"),
        };
        from.take(rest).expect("a whole event");
    }
    codes
}

/// What the scripts in the folder meet: by code, the names of some files.
fn met() -> BTreeMap<u8, BTreeSet<String>> {
    let mut met: BTreeMap<u8, BTreeSet<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(crate::folder()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut from = In(&bytes[16..]);
        let length = from.u16().unwrap();
        from.take(length.into()).unwrap();
        while let Some(length) = from.u32() {
            from.take(length as usize).unwrap();
            let length = from.u32().unwrap();
            for code in codes_of(from.take(length as usize).unwrap()) {
                met.entry(code).or_default().insert(name.clone());
            }
        }
    }
    met
}

#[test]
fn every_refusal_that_applies_is_met_by_a_script() {
    let _deadline = crate::deadline::deadline();
    let met = met();
    for &refusal in Refusal::ALL {
        let scripts = met.get(&(refusal as u8));
        match NOT_MET.iter().find(|(other, _)| *other == refusal) {
            Some((_, why)) => assert!(scripts.is_none(), "{refusal:?} is met by {scripts:?}, and yet: {why}"),
            None => assert!(scripts.is_some(), "{refusal:?} is met by no script"),
        }
    }
    assert!(met[&SUCCESS].len() > 200, "too few scripts let anything by");
}
