// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares docs/ordering.md with the device code. Each access that a row names must be in a function that
//! the row names. The document must name each function with an access that orders something towards others.
//! `fabric/simt/tests/check_ptx.sh` checks that each access is the stated PTX instruction.

use crate::deadline::{Deadline, LIMIT};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Accesses with an order that code relies on across warps, or that a NIC or the host sees.
const ORDERS: [&str; 11] = [
    "st_release_sys",
    "st_fenced_sys",
    "mmio_store_after_release_sys",
    "fence_release_sys",
    "fence_acquire_sys",
    "ld_acquire_sys",
    "st_poll2_sys",
    "ld_poll2_sys",
    "fence_release_gpu",
    "st_release_gpu",
    "ld_acquire_gpu",
];

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of this file")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The device headers without the definitions of the accesses.
fn headers() -> Vec<String> {
    let mut all = Vec::new();
    for folder in
        ["fabric/cuda/fabric", "fabric/cuda/fabric/hca", "gnor/cuda/gnor", "libgnstor/include/gnstor"]
    {
        let entries =
            std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder)).expect(folder);
        let names =
            entries.map(|entry| entry.expect(folder).file_name().into_string().expect("a plain name"));
        let wanted =
            names.filter(|name| name.ends_with(".cuh") && name != "arch.cuh" && name != "sharing.cuh");
        all.extend(wanted.map(|name| read(format!("{folder}/{name}"))));
    }
    all
}

/// The bodies of the device functions of each name.
fn functions(headers: &[String]) -> BTreeMap<String, Vec<String>> {
    let definition = regex(r"(?m)^(  )?GN_DEV (?:static |constexpr )*[\w:&<>* ]+?[ &*](\w+)\(");
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for header in headers {
        for found in definition.captures_iter(header) {
            let rest = &header[found.get(0).expect("the match").start()..];
            let line = rest.lines().next().unwrap_or_default();
            let is_one_line = line.contains('{') && line.matches('{').count() == line.matches('}').count();
            let end = if found.get(1).is_some() { "\n  }" } else { "\n}" };
            let body = if is_one_line { line } else { &rest[..rest.find(end).unwrap_or(rest.len())] };
            all.entry(found[2].to_owned()).or_default().push(body.to_owned());
        }
    }
    all
}

/// The words between backticks, without the brackets behind them.
fn words(cell: &str) -> Vec<String> {
    let word = regex(r"`([A-Za-z_0-9]+)(?:\([^`]*\))?`");
    word.captures_iter(cell).map(|found| found[1].to_owned()).collect()
}

#[test]
fn the_table_of_orders_says_what_the_device_code_does() {
    let _deadline = Deadline::after(LIMIT);
    let headers = headers();
    let functions = functions(&headers);
    // Calls of `gn::mem`, and calls of a channel's sharing, which stand for such accesses.
    let mut accesses: BTreeSet<String> = BTreeSet::new();
    let (plain, shared) = (regex(r"\bmem::(\w+)(?:<\w+>)?\("), regex(r"GN_DEV static \w+ (\w+)\("));
    for header in &headers {
        accesses.extend(plain.captures_iter(header).map(|found| found[1].to_owned()));
    }
    accesses
        .extend(shared.captures_iter(&read("gnor/cuda/gnor/sharing.cuh")).map(|found| found[1].to_owned()));
    let (mut named, mut checked, mut wrong) = (BTreeSet::new(), 0, Vec::new());
    let mut numbers = BTreeSet::new();
    let row = regex(r"^\| (\d+[a-z]?) \|");
    for line in read("docs/ordering.md").lines() {
        let Some(number) = row.captures(line).map(|found| found[1].to_owned()) else { continue };
        if !numbers.insert(number.clone()) {
            wrong.push(format!("two rows have the number {number}"));
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let pair = words(cells[1]).into_iter().chain(words(cells[2]));
        let (used, rest): (Vec<_>, Vec<_>) = pair.partition(|word| accesses.contains(word));
        let places: Vec<_> = rest.into_iter().filter(|word| functions.contains_key(word)).collect();
        for access in used.iter().filter(|_| !places.is_empty()) {
            let call = regex(&format!(r"\b(?:mem|S)::{access}(?:<\w+>)?\("));
            let is_there = places.iter().flat_map(|place| &functions[place]).any(|body| call.is_match(body));
            checked += 1;
            if !is_there {
                wrong.push(format!("row {number}: {access} is in none of {places:?}"));
            }
        }
        named.extend(places);
    }
    for (name, bodies) in functions.iter().filter(|(name, _)| !named.contains(*name)) {
        let orders = ORDERS
            .iter()
            .filter(|access| bodies.iter().any(|body| body.contains(&format!("mem::{access}("))));
        wrong.extend(orders.map(|access| format!("no row names {name}, which has {access}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 60 && functions.len() > 150, "{checked} accesses in {} functions", functions.len());
}
