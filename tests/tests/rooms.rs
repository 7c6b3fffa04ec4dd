// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rooms of the firmware (`deengine/src`) may use each other only in these directions.

use crate::deadline::{Deadline, LIMIT};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each room may use of others. No room is part of a circle.
///
/// The struct `Ssd` is in `controller`, and the rooms above it implement its commands. It holds what admin,
/// io and repair remember. So each of these three has its state in a module of its own, such as
/// `admin/state`. Such a module counts as a room here. It lies below `controller`, and only its own room sees
/// its fields. Calls of methods of `Ssd` name no room, so they are no arrows: `controller` calls the steps of
/// the rooms above it in this way.
const RULES: &[(&str, &[&str])] = &[
    ("request", &[]),
    ("config", &[]),
    ("error", &["request"]),
    ("smart", &["request"]),
    ("workers", &["request", "smart"]),
    ("permission", &["request", "smart", "workers"]),
    ("commands", &["config", "permission", "request"]),
    ("hosts", &["commands", "request", "smart"]),
    ("admin::state", &["commands"]),
    ("io::state", &["commands", "permission", "request"]),
    ("repair::state", &["commands"]),
    (
        "controller",
        &[
            "admin::state",
            "commands",
            "config",
            "error",
            "hosts",
            "io::state",
            "permission",
            "repair::state",
            "request",
            "smart",
            "workers",
        ],
    ),
    ("admin", &["commands", "controller", "error", "hosts", "permission", "request", "smart"]),
    ("io", &["commands", "controller", "hosts", "permission", "repair", "request", "smart", "workers"]),
    ("repair", &["commands", "controller", "permission", "request", "workers"]),
    ("session", &["commands", "controller", "hosts", "request"]),
    ("durable", &["config", "controller", "error", "permission"]),
    ("manager_key", &["controller", "error"]),
    ("recovering", &[]),
];

/// Crates whose modules use each other in one direction only.
const WITHOUT_CIRCLES: &[&str] = &[
    "array",
    "auth",
    "base",
    "bench",
    "cli",
    "cli/console",
    "daemon",
    "deengine/durable",
    "deengine/flash",
    "deengine/ftl",
    "deengine/map",
    "deengine/model",
    "fabric",
    "fleet",
    "gnor",
    "libgnstor",
    "proto",
    "sim",
    "tests/chaos",
];

/// Folders in which modules do use each other in both directions. In all other folders of these crates they
/// do not.
const WITH_CIRCLES: &[&str] = &["sim/src/survive"];

/// The module of a room that holds its state.
const STATE: &str = "state";

/// Rooms whose state other rooms hold or see, by their files, with the plain values that they hand out. The
/// fields of a plain value are open to the crate; all other fields are private to the room.
const VALUES: &[(&str, &[&str])] = &[
    ("commands", &["Accepted", "Answer", "Delivered", "Ended", "Fetched", "Links"]),
    ("hosts", &["Judged", "NewHost", "QueueState"]),
    ("smart", &["Activity", "Done", "DoneCounter", "ErrorEntry", "IoCount"]),
    ("permission", &[]),
    ("admin/state", &[]),
    ("io/state", &["Grant", "Load"]),
    ("repair/state", &[]),
];

/// What a worker owns, with the file of `io` that alone sees its fields.
const OF_WORKER: &[(&str, &str)] = &[
    ("Backlog", "dispatch.rs"),
    ("Handle", "guard.rs"),
    ("JudgedCommands", "judged.rs"),
    ("Outbox", "effects.rs"),
    ("Pending", "pending.rs"),
    ("Ports", "port.rs"),
    ("Reads", "read.rs"),
    ("SlowReads", "slow_read.rs"),
    ("RulesCopy", "rules_copy.rs"),
    ("Writes", "write.rs"),
];

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// What begins the name of a module of the crate, in the first file of a room and in others.
const STARTS: [&[&str]; 2] = [&["crate::", "super::"], &["crate::"]];

/// Names right behind one of `starts`. The module of a room's state counts as `room::state`.
fn used(text: &str, starts: &[&str]) -> BTreeSet<String> {
    let comment = Regex::new(r"(?m)//.*$").expect("a pattern");
    let tests = Regex::new(r"(?s)#\[cfg\(test\)\]\s*mod \w+ \{.*").expect("a pattern");
    // Who may see an item is no use of that room.
    let seen_by = Regex::new(r"pub\(in [\w:]+\)").expect("a pattern");
    let text = comment.replace_all(text, "");
    let text = seen_by.replace_all(&text, "");
    let text = tests.replace(&text, "");
    let mut names = BTreeSet::new();
    let mut take = |item: &str| {
        let word = |text: &str| -> String {
            text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        let mut name = word(item);
        let part = item.trim()[name.len()..].strip_prefix("::").map(word);
        if part.is_some_and(|part| part == STATE) {
            name = format!("{name}::{STATE}");
        }
        if name.starts_with(|c: char| c.is_lowercase()) {
            names.insert(name);
        }
    };
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
        let own = match room {
            Some(room) if name == STATE => format!("{room}::{STATE}"),
            _ => room.unwrap_or(&name).to_owned(),
        };
        if path.is_dir() {
            read(&path, Some(&own), arrows);
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source");
        let is_root = room.is_none() || name == "mod";
        // What is above the state is its room, not another one of the crate.
        let above = own.strip_suffix(STATE).and_then(|room| room.strip_suffix("::"));
        let up = if is_root { "super::" } else { "super::super::" };
        assert!(above.is_none() || !text.contains(up), "{own} names its room by `super`");
        let mut names = used(&text, STARTS[usize::from(!is_root)]);
        names.remove(&own);
        // A room works on its own state.
        names.remove(&format!("{own}::{STATE}"));
        arrows.entry(own).or_default().extend(names);
    }
}

/// The rooms that a room uses directly or through others.
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
        assert!(!reach(&arrows, room).contains(room), "{room} is part of a circle");
    }
}

/// The structs of a file, each with the visibilities of its fields.
fn fields_of(text: &str) -> Vec<(String, Vec<String>)> {
    let item = Regex::new(r"(?s)\bstruct (\w+)(?:<[^>]*>)? \{\n(.*?)\n\}").expect("a pattern");
    let field = Regex::new(r"(?m)^    (pub(?:\([^)]*\))? )?\w+: ").expect("a pattern");
    let seen_by = |body: &str| {
        let fields = field.captures_iter(body);
        fields.map(|found| found.get(1).map_or("", |seen| seen.as_str().trim()).to_owned()).collect()
    };
    item.captures_iter(text).map(|found| (found[1].to_owned(), seen_by(&found[2]))).collect()
}

fn sources(folder: &Path, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, into),
            false => into.push(std::fs::read_to_string(&path).expect("a source")),
        }
    }
}

/// So each change of a room's state is one of its functions, and has a name.
#[test]
fn the_state_of_a_room_has_no_field_that_other_rooms_write() {
    let _deadline = Deadline::after(LIMIT);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("deengine/src");
    for (room, values) in VALUES {
        let mut files = Vec::new();
        sources(&source.join(room), &mut files);
        let structs = files.iter().flat_map(|text| fields_of(text));
        let is_open = |(_, fields): &(_, Vec<String>)| fields.iter().any(|seen| seen == "pub(crate)");
        let open: BTreeSet<String> = structs.filter(is_open).map(|(name, _)| name).collect();
        let values = values.iter().map(ToString::to_string).collect();
        assert_eq!(open, values, "deengine/src/{room}: structs with a field that is `pub(crate)`");
    }
    for (name, file) in OF_WORKER {
        let text = std::fs::read_to_string(source.join("io").join(file)).expect("a source");
        let all = fields_of(&text);
        let (_, fields) = all.iter().find(|(found, _)| found == name).expect("a struct of this name");
        assert!(fields.iter().all(String::is_empty), "{name} of io/{file} has a field that others see");
    }
}

#[test]
fn fields_are_found_with_who_sees_them() {
    let _deadline = Deadline::after(LIMIT);
    let text = "pub struct A {\n    /// b: no field\n    pub(crate) b: u8,\n    c: D,\n}\n\
                struct E<'a> {\n    pub(super) f: &'a u8,\n}\n";
    let own = |name: &str, seen: &[&str]| (name.to_owned(), seen.iter().map(ToString::to_string).collect());
    assert_eq!(fields_of(text), [own("A", &["pub(crate)", ""]), own("E", &["pub(super)"])]);
}

#[test]
fn modules_of_other_crates_are_part_of_no_circle() {
    let _deadline = Deadline::after(LIMIT);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut found = Vec::new();
    for of in WITHOUT_CIRCLES {
        let mut arrows = Arrows::new();
        read(&workspace.join(of).join("src"), None, &mut arrows);
        let known: BTreeSet<String> = arrows.keys().cloned().collect();
        arrows.values_mut().for_each(|names| names.retain(|name| known.contains(name)));
        let circle = |module: &&String| reach(&arrows, module).contains(*module);
        found.extend(known.iter().filter(circle).map(|module| format!("{of}/src/{module}")));
    }
    assert!(found.is_empty(), "part of a circle: {found:?}");
}

/// Adds what the files of a module, in this file or folder, use of the other modules of its parent. `parent`
/// is the parent's path with `crate::`. `depth` counts folders below the parent.
fn read_module(at: &Path, parent: &str, depth: usize, names: &mut BTreeSet<String>) {
    let name = at.file_stem().and_then(|stem| stem.to_str()).expect("a name");
    if name == "tests" {
        return;
    }
    if !at.is_dir() {
        let up = "super::".repeat(if name == "mod" { depth } else { depth + 1 });
        let text = std::fs::read_to_string(at).expect("a source");
        let found = used(&text, &[parent, &up]);
        return names.extend(found.iter().filter_map(|name| name.split("::").next()).map(str::to_owned));
    }
    for entry in std::fs::read_dir(at).expect("a folder of sources") {
        read_module(&entry.expect("an entry").path(), parent, depth + 1, names);
    }
}

/// The modules of a folder, and of the folders in it, that are part of a circle. `of` is the folder's path.
fn circles_below(folder: &Path, (of, parent): (&str, &str), found: &mut BTreeSet<String>) {
    let mut arrows = Arrows::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        if matches!(name.as_str(), "tests" | "mod" | "lib" | "main") {
            continue;
        }
        read_module(&path, parent, 0, arrows.entry(name.clone()).or_default());
        if path.is_dir() {
            circles_below(&path, (&format!("{of}/{name}"), &format!("{parent}{name}::")), found);
        }
    }
    let known: BTreeSet<String> = arrows.keys().cloned().collect();
    for (module, names) in &mut arrows {
        names.retain(|name| known.contains(name) && name != module);
    }
    // The test above is for the modules of the crate itself.
    if parent != "crate::" && known.iter().any(|module| reach(&arrows, module).contains(module)) {
        found.insert(of.to_owned());
    }
}

#[test]
fn modules_of_a_folder_are_part_of_no_circle() {
    let _deadline = Deadline::after(LIMIT);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut found = BTreeSet::new();
    for of in WITHOUT_CIRCLES {
        let of = format!("{of}/src");
        circles_below(&workspace.join(&of), (&of, "crate::"), &mut found);
    }
    let known = WITH_CIRCLES.iter().map(ToString::to_string).collect();
    assert_eq!(found, known, "folders whose modules use each other in circles");
}

#[test]
fn uses_are_found_in_lists_and_not_in_comments_or_tests() {
    let _deadline = Deadline::after(LIMIT);
    let text = "use crate::{a::{b, c}, d, E};\nuse super::f;\n// crate::g\nlet x = crate::h::i();\n\
                #[cfg(test)]\nmod tests { use crate::j; }";
    let of = |starts: &[&str]| used(text, starts).into_iter().collect::<Vec<_>>();
    assert_eq!(of(STARTS[1]), ["a", "d", "h"]);
    assert_eq!(of(STARTS[0]), ["a", "d", "f", "h"]);
    let text =
        "pub(in crate::z) x: u8,\nuse crate::a::state::B;\nuse crate::{b::state::{C, D}, c::{state, E}};";
    assert_eq!(used(text, STARTS[1]).into_iter().collect::<Vec<_>>(), ["a::state", "b::state", "c"]);
}
