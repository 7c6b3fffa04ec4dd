// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A map of 93 % load has the same words on both sides, and each side loads the other's.

use crate::op::{MOST_FILLED, MOST_WORDS, Op, block_of};
use crate::pipe::{Peer, frame};
use crate::play::event;
use gnstor_map::{Map, MapWriter};
use gnstor_proto::slba::Vid;
use std::sync::Arc;

/// Keys, and so many pages: more than the slots of a script of single commands.
const KEYS: u64 = 200_000;

/// Plays operations to the program. Returns their answers, one after the other without their lengths.
fn ask(peer: &Peer, ops: &[Op]) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    ops.iter().for_each(|op| frame(&mut bytes, &op.encode()));
    peer.send(bytes, ops.len());
    let all = peer.answers().expect("the program has ended");
    let mut rest = &all[..];
    let mut answers = Vec::new();
    while let Some((head, tail)) = rest.split_at_checked(4) {
        let length = u32::from_le_bytes(head.try_into().unwrap()) as usize;
        answers.push(tail[..length].to_vec());
        rest = &tail[length..];
    }
    answers
}

fn value(answer: &[u8]) -> u64 {
    assert_eq!(answer[0], event::VALUE, "{answer:?}");
    u64::from_le_bytes(answer[1..9].try_into().unwrap())
}

/// Parts of [`KEYS`].
fn parts() -> impl Iterator<Item = (u64, u32)> {
    (0..KEYS).step_by(MOST_FILLED as usize).map(|first| {
        let count = (KEYS - first).min(MOST_FILLED.into());
        (first, u32::try_from(count).unwrap())
    })
}

fn words_there(peer: &Peer, count: u64) -> Vec<u64> {
    let ops: Vec<Op> =
        (0..count).step_by(MOST_WORDS as usize).map(|first| Op::Words { first, count: MOST_WORDS }).collect();
    let words = |answer: &Vec<u8>| {
        assert_eq!(answer[0], event::WORDS);
        answer[3..]
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect::<Vec<_>>()
    };
    ask(peer, &ops).iter().flat_map(words).collect()
}

fn words_here(map: &Map) -> Vec<u64> {
    let mut words = vec![0; usize::try_from(map.words()).unwrap()];
    map.read_words(0, &mut words);
    words
}

fn make(seed: u64) -> (Arc<Map>, MapWriter) {
    Map::new(KEYS, KEYS, seed).unwrap()
}

fn key(seed: u64, number: u64) -> (Vid, u32, u32) {
    let (vid, vba) = block_of(seed, number);
    (Vid::new(vid).unwrap(), vba, u32::try_from(number).unwrap())
}

#[test]
fn an_image_of_each_side_is_loaded_by_the_other_at_93_percent() {
    let _deadline = crate::deadline::deadline();
    let program = crate::make("all");
    let peer = Peer::start(program.to_str().unwrap()).unwrap();

    // Filled there, loaded here.
    let seed = 21;
    let mut ops = vec![Op::Map { entries: KEYS, pages: KEYS, seed }];
    ops.extend(parts().map(|(first, count)| Op::Fill { first, seed, count }));
    let answers = ask(&peer, &ops);
    assert_eq!(answers[1..].iter().map(|answer| value(answer)).sum::<u64>(), KEYS);
    let words = words_there(&peer, value(&answers[0]));
    let slots = words.len() as u64 - 64;
    assert!(KEYS * 100 / slots >= 92, "{KEYS} keys in {slots} slots are no load of 93 %");
    let (map, mut writer) = make(seed);
    for (index, &word) in (0..).zip(&words) {
        writer.redo(index, word).unwrap();
    }
    writer.finish_load(|_| {}).unwrap();
    assert_eq!(map.len(), KEYS);
    for number in 0..KEYS {
        let (vid, vba, page) = key(seed, number);
        assert_eq!(map.get(vid, vba), Some(page), "key {number}");
    }
    // Rust makes the same words of the same keys.
    let (own, mut writer) = make(seed);
    for number in 0..KEYS {
        let (vid, vba, page) = key(seed, number);
        writer.insert(vid, vba, page, &mut |_, _| {}).unwrap();
    }
    assert!(words_here(&own) == words, "the words of both maps differ");

    // Filled here, loaded there.
    let seed = 22;
    let (map, mut writer) = make(seed);
    for number in 0..KEYS {
        let (vid, vba, page) = key(seed, number);
        writer.insert(vid, vba, page, &mut |_, _| {}).unwrap();
    }
    let words = words_here(&map);
    let mut ops = vec![Op::Map { entries: KEYS, pages: KEYS, seed }];
    ops.extend(
        (0..)
            .zip(&words)
            .filter(|&(_, &value)| value != 0)
            .map(|(index, &value)| Op::SetWord { index, value }),
    );
    let set = ops.len();
    ops.push(Op::Check);
    ops.extend(parts().map(|(first, count)| Op::Look { first, seed, count }));
    let answers = ask(&peer, &ops);
    assert_eq!(value(&answers[set]), 0, "the image is refused");
    assert_eq!(answers[set + 1..].iter().map(|answer| value(answer)).sum::<u64>(), KEYS);
    assert!(words_there(&peer, value(&answers[0])) == words, "the words change on their way");
}
