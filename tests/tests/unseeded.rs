// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps whose hash has no seed.

use std::collections::BTreeMap;
use std::path::Path;

/// Files that use such maps, how often they name one, and who chooses the keys. The first is the `use`.
const OWN_KEYS: [(&str, usize, &str); 10] = [
    ("base/src/peer_map.rs", 1, "a test computes keys for it"),
    ("deengine/flash/src/flash.rs", 2, "units of the flash"),
    ("deengine/src/io/pending.rs", 2, "addresses of arbiters"),
    ("deengine/src/io/port.rs", 1, "names that the transport gives to connections"),
    ("deengine/src/io/state/by_queue.rs", 2, "names that the transport gives to connections"),
    ("fabric/src/hca/agent/executor.rs", 2, "regions of this process"),
    ("fabric/src/hca/soft.rs", 3, "keys and regions of this process: a peer only looks them up"),
    ("fabric/src/tcp/peer.rs", 4, "tags that the transport gives to transfers, and regions"),
    ("fabric/src/transport/mod.rs", 6, "names of links and tags that the transport gives; own queue pairs"),
    ("fabric/src/transport/remote.rs", 2, "names that the transport gives to connections"),
];

fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// A peer that chooses the keys of such a map can slow it down. `PeerMap` has a seed.
#[test]
fn maps_with_an_unseeded_hash_have_keys_that_no_peer_chooses() {
    let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let (mut paths, mut found) = (Vec::new(), BTreeMap::new());
    sources(root, &mut paths);
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("text");
        let is_fx = text.contains(concat!("rustc_", "hash"));
        if !is_fx {
            continue;
        }
        let names: &[&str] =
            if text.contains(concat!("FxHashMap as ", "HashMap")) { &["HashMap<"] } else { &["FxHashMap<"] };
        let of_line = |line: &str| {
            let is_use = line.contains(concat!("rustc_", "hash"));
            usize::from(is_use || names.iter().any(|name| line.contains(name)))
        };
        let count: usize = text.lines().map(of_line).sum();
        let name = path.strip_prefix(root).expect("it is in the workspace").display().to_string();
        found.insert(name, count);
    }
    let known: BTreeMap<_, _> =
        OWN_KEYS.iter().map(|(file, count, _)| ((*file).to_owned(), *count)).collect();
    assert_eq!(found, known, "use PeerMap if a peer chooses the keys, and list the map here if none does");
}
