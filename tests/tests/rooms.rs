// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rooms of the firmware (`deengine/src`) use each other only in these directions.

use crate::deadline::{Deadline, LIMIT};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each room may use of others. The struct `Ssd` is in `controller`: it holds the state of admin, io and
/// repair, and these implement its commands. There are no other circles.
const RULES: &[(&str, &[&str])] = &[
    ("request", &[]),
    ("config", &[]),
    ("error", &["request"]),
    ("smart", &["request"]),
    ("workers", &["request", "smart"]),
    ("permission", &["request", "smart", "workers"]),
    ("commands", &["config", "permission", "request"]),
    ("hosts", &["commands", "request", "smart"]),
    (
        "controller",
        &[
            "admin",
            "commands",
            "config",
            "error",
            "hosts",
            "io",
            "permission",
            "repair",
            "request",
            "smart",
            "workers",
        ],
    ),
    ("admin", &["commands", "controller", "error", "hosts", "permission", "request", "smart"]),
    ("io", &["commands", "controller", "hosts", "permission", "repair", "request", "smart", "workers"]),
    ("repair", &["admin", "commands", "controller", "permission", "request", "workers"]),
    ("session", &["commands", "controller", "hosts", "request"]),
    ("durable", &["config", "controller", "error", "permission"]),
    ("manager_key", &["controller", "error"]),
    ("recovering", &[]),
];

/// Rooms of one circle may not be more than these.
const LARGEST_CIRCLE: &[&str] = &["admin", "controller", "io", "repair"];

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Names right behind `crate::` or, in the first file of a room, behind `super::`.
fn used(text: &str, is_root: bool) -> BTreeSet<String> {
    let comment = Regex::new(r"(?m)//.*$").expect("a pattern");
    let tests = Regex::new(r"(?s)#\[cfg\(test\)\]\s*mod \w+ \{.*").expect("a pattern");
    let text = comment.replace_all(text, "");
    let text = tests.replace(&text, "");
    let mut names = BTreeSet::new();
    let mut take = |item: &str| {
        let name: String = item.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if name.starts_with(|c: char| c.is_lowercase()) {
            names.insert(name);
        }
    };
    let starts: &[&str] = if is_root { &["crate::", "super::"] } else { &["crate::"] };
    for rest in starts.iter().flat_map(|start| text.split(start).skip(1)) {
        let Some(group) = rest.strip_prefix('{') else {
            take(rest);
            continue;
        };
        let mut depth = 0;
        for item in group.split_inclusive(['{', '}', ',']) {
            if depth == 0 {
                take(item);
            }
            depth += i32::from(item.ends_with('{')) - i32::from(item.ends_with('}'));
            if depth < 0 {
                break;
            }
        }
    }
    names
}

fn read(folder: &Path, room: Option<&str>, arrows: &mut Arrows) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        if matches!(name.as_str(), "tests" | "lib") {
            continue;
        }
        let own = room.unwrap_or(&name).to_owned();
        if path.is_dir() {
            read(&path, Some(&own), arrows);
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source");
        let is_root = room.is_none() || name == "mod";
        let mut names = used(&text, is_root);
        names.remove(&own);
        arrows.entry(own).or_default().extend(names);
    }
}

/// Rooms that a room reaches by arrows.
fn reach(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(room) = todo.pop() {
        for next in arrows.get(&room).into_iter().flatten() {
            if seen.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    seen
}

#[test]
fn rooms_of_the_firmware_use_each_other_only_in_the_directions_of_the_design() {
    let _deadline = Deadline::after(LIMIT);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("deengine/src");
    let mut arrows = Arrows::new();
    read(&source, None, &mut arrows);
    let known: BTreeSet<&str> = RULES.iter().map(|(room, _)| *room).collect();
    assert_eq!(arrows.keys().map(String::as_str).collect::<BTreeSet<_>>(), known, "each room has its line");
    for names in arrows.values_mut() {
        names.retain(|name| known.contains(name.as_str()));
    }
    for (room, allowed) in RULES {
        for other in &arrows[*room] {
            assert!(allowed.contains(&other.as_str()), "deengine/src/{room} must not use crate::{other}");
        }
        for allowed in *allowed {
            assert!(arrows[*room].contains(*allowed), "{room} does not use {allowed}: take it off the list");
        }
    }
    for room in arrows.keys() {
        let is_in_circle = reach(&arrows, room).contains(room);
        assert!(!is_in_circle || LARGEST_CIRCLE.contains(&room.as_str()), "{room} is part of a circle");
    }
}

#[test]
fn uses_are_found_in_lists_and_not_in_comments_or_tests() {
    let _deadline = Deadline::after(LIMIT);
    let text = "use crate::{a::{b, c}, d, E};\nuse super::f;\n// crate::g\nlet x = crate::h::i();\n\
                #[cfg(test)]\nmod tests { use crate::j; }";
    let of = |is_root| used(text, is_root).into_iter().collect::<Vec<_>>();
    assert_eq!(of(false), ["a", "d", "h"]);
    assert_eq!(of(true), ["a", "d", "f", "h"]);
}
