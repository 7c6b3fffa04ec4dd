// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutated Connect data: of admin and I/O queues, recorded with its proof, with and without a manager key.
//!
//! An SSD that asks for proof gives no queue to mutated or recorded data. One that asks for none gives an I/O
//! queue only to the host of the controller that the data names. In both cases the queues of the client that
//! was there go on, and each Connect is answered once. `GNSTOR_FUZZ_SECONDS` and `GNSTOR_FUZZ_SEED` as in
//! `media.rs`.

use super::*;
use gnstor_hostile::mutate::{bent, file_of, inputs, seeds};
use gnstor_hostile::random::Random;
use gnstor_proto::fabrics::CONNECT_DATA_BYTES;
use zerocopy::FromBytes;

/// Connect data of a client's admin and I/O queue, and of other hosts.
const CORPUS: &[u8] = include_bytes!("../../../../tests/hostile/corpus/connect.bin");
/// Queues of the attacker.
const FIRST: u32 = 400;
const TRIES: u32 = 60;

/// An SSD with a volume, and client 7 whose I/O queue is [`WRITER`]. Without a key it asks for no proof.
fn with_client(asks: bool) -> (Harness, u16) {
    let mut harness = if asks { asking(Group::Null) } else { Harness::bare(0, 1024) };
    let (seven, daemon) = (host(7, 0x1_0000_0001), Host::from(Identity::Daemon));
    let proof = if asks {
        proven(&mut harness, DAEMON, daemon);
        let (cntlid, session) = proven(&mut harness, ADMIN, seven);
        (cntlid, session.prove(cntlid, 1, 1).as_bytes().to_vec())
    } else {
        let enabled = |harness: &mut Harness, key, host| {
            let cqe = begin(harness, key, host);
            harness.enable(key);
            u16::try_from(cqe.dw0.get()).unwrap()
        };
        enabled(&mut harness, DAEMON, daemon);
        (enabled(&mut harness, ADMIN, seven), Vec::new())
    };
    harness.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(VOLUME))), None);
    assert_eq!(connect_io(&mut harness, WRITER, seven, proof.0, &proof.1), None);
    (harness, proof.0)
}

/// What the wire shows of the queues of [`with_client`], and what other hosts would send.
fn recorded() -> Vec<Vec<u8>> {
    let (harness, cntlid) = with_client(true);
    let seven = host(7, 0x1_0000_0001);
    let of = |host: Host, cntlid, ssd| ConnectData::new(host, cntlid, &ssd_subnqn(ssd));
    let used = ConnectData::ref_from_bytes(&harness.memory[&WRITER][..CONNECT_DATA_BYTES]).unwrap();
    let all = [
        of(seven, CNTLID_ANY, 0),
        *used,
        of(seven, cntlid, 0),
        of(host(7, 0x1_0000_0002), CNTLID_ANY, 0),
        of(host(8, 1), cntlid, 0),
        of(Host::from(Identity::Daemon), CNTLID_ANY, 0),
        of(Host::from(Identity::Peer(1)), CNTLID_ANY, 0),
        of(Host::from(Identity::Client(client(7))), CNTLID_ANY, 0),
        of(seven, CNTLID_ANY, 1),
    ];
    all.iter().map(|data| data.as_bytes().to_vec()).collect()
}

/// The data are functions of the numbers above. `GNSTOR_WRITE_CORPUS=1` writes the file anew.
#[test]
fn the_corpus_is_what_hosts_send_with_connect() {
    let _deadline = crate::deadline::deadline();
    let data = recorded();
    if std::env::var_os("GNSTOR_WRITE_CORPUS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/hostile/corpus/connect.bin");
        std::fs::write(path, file_of(&data)).expect("it can be written");
    }
    assert_eq!(inputs(CORPUS), data);
}

/// One Connect with these data; the command and its fields may be bent, too.
fn connect(harness: &mut Harness, random: &mut Random, key: QueueKey, qid: u16, data: &[u8]) -> Cqe {
    harness.poke(key, 0, data);
    let fields = ConnectFields { qid: qid.into(), sqsize_z: 63.into(), ..Default::default() };
    let mut sqe = command(fctype::CONNECT, &fields);
    sqe.dptr = KeyedSgl::keyed(0, 1024, KEY);
    if random.below(6) == 0 {
        // Not the opcode and the type, so that it stays a Connect, and not the command id.
        let at = 5 + random.below(59);
        sqe.as_mut_bytes()[at] ^= 1 << random.below(8);
    }
    harness.run(key, sqe)
}

/// The host that these data name, and the controller.
fn named(data: &[u8]) -> Option<(u16, String, [u8; 16])> {
    let (data, _) = ConnectData::ref_from_prefix(data).ok()?;
    Some((data.cntlid.get(), data.hostnqn(), data.host_id))
}

/// Data of a Connect: of the corpus, with one bit flipped, or bent.
fn connect_data(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut data = match random.below(4) {
        0 => corpus[random.below(corpus.len())].clone(),
        1 => {
            // Flips one bit of a meaningful field: host and controller, the names, the proof.
            let mut data = corpus[random.below(corpus.len())].clone();
            let fields = [0..18, 256..296, 512..560, 768..808];
            let field = &fields[random.below(fields.len())];
            data[field.start + random.below(field.len())] ^= 1 << random.below(8);
            data
        }
        _ => bent(random, corpus),
    };
    data.resize(CONNECT_DATA_BYTES, 0);
    data
}

/// Runs one seed. Returns the number of queues that the attacker got, and how many of them were I/O queues.
fn run(seed: u64, corpus: &[Vec<u8>]) -> [u64; 2] {
    let mut random = Random::new(seed);
    let asks = random.below(2) == 0;
    let (mut harness, cntlid) = with_client(asks);
    harness.completions.clear();
    // The hosts of the controllers.
    let seven = host(7, 0x1_0000_0001);
    let mut controllers = vec![(cntlid, seven.nqn(), seven.id)];
    let mut got = [0; 2];
    for key in (FIRST..FIRST + TRIES).map(QueueKey) {
        let qid = u16::try_from(random.below(4)).unwrap();
        harness.open(key, qid, 64);
        let data = connect_data(&mut random, corpus);
        let cqe = connect(&mut harness, &mut random, key, qid, &data);
        assert_eq!(harness.completions.iter().filter(|c| c.queue == key).count(), 0, "answered twice");
        let role = harness.role(key).expect("the queue stays");
        match role {
            Role::Fresh => assert!(refusal(&cqe).is_some(), "seed {seed}: no queue, and no refusal"),
            Role::Unproven(_) => assert!(asks && qid == 0, "seed {seed}: {role:?}"),
            Role::Admin(of) => {
                assert!(!asks && qid == 0, "seed {seed}: {role:?} without a proof");
                controllers.extend(named(&data).map(|(_, nqn, id)| (of, nqn, id)));
            }
            Role::Io(of, _) => {
                assert!(!asks, "seed {seed}: an I/O queue without a fresh proof");
                let host = named(&data).filter(|(cntlid, ..)| *cntlid == of);
                assert!(host.is_some_and(|host| controllers.contains(&host)), "seed {seed}: of another host");
                got[1] += 1;
            }
            Role::Connecting | Role::Ended(_) => panic!("seed {seed}: {role:?} after its answer"),
        }
        got[0] += u64::from(!matches!(role, Role::Fresh));
    }
    // Without proof a newer host with the client's name ends the older one. That is why proof is needed.
    if asks {
        assert_eq!(refusal(&harness.write(3, &[seed])), None, "seed {seed}: the client's queue serves");
        assert_eq!(harness.read(3), block(seed));
        harness.advance(Span::from_ms(5_000));
        let left = (FIRST..FIRST + TRIES)
            .map(QueueKey)
            .filter(|&key| harness.role(key).is_some_and(|role| matches!(role, Role::Unproven(_))));
        assert_eq!(left.count(), 0, "seed {seed}: queues without proof stay");
        assert!(!harness.closed.contains(&WRITER) && !harness.closed.contains(&ADMIN), "seed {seed}");
    }
    let stats = harness.stats();
    assert_eq!(stats.permits_issued, stats.permits_spent + stats.permits_forfeited, "seed {seed}");
    assert!(harness.in_flight() == 0 && harness.frames_are_whole(), "seed {seed}");
    got
}

#[test]
fn bent_connect_data_gives_no_queue_of_another_host() {
    let corpus = inputs(CORPUS);
    let (mut queues, mut io) = (0, 0);
    let count = seeds(40, |seed| {
        let [all, of_io] = run(seed, &corpus);
        (queues, io) = (queues + all, io + of_io);
    });
    println!("{count} seeds: {queues} queues, {io} of them for I/O");
    assert!(queues > 2 * count && io > 0, "what is always refused tests little");
}
