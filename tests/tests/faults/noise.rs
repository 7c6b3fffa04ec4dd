// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts that send random capsules.

use super::*;

/// Random bytes, the same on every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        mix64(self.0)
    }

    fn byte(&mut self) -> u32 {
        u32::from(self.next().to_le_bytes()[0])
    }

    fn capsule(&mut self) -> Sqe {
        let mut raw = [0; 64];
        for word in raw.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
        zerocopy::transmute!(raw)
    }
}

/// Sends noise to queues of one SSD.
struct NoisyHost {
    engine: TransportHandle,
    soft: ExecutorId,
    noise: Noise,
    nqn: String,
    identity: Identity,
}

const NOISE_DEADLINE: Duration = Duration::from_secs(5);

impl NoisyHost {
    /// Commands before Connect, none of which works.
    fn before_connect(&mut self) {
        let mut fresh = RawQueue::open(&self.engine, self.soft, Port::Local(0), 0).unwrap();
        for _ in 0..300 {
            let answer = fresh.exchange(&self.noise.capsule(), NOISE_DEADLINE).unwrap();
            assert!(!Status(answer.status_word()).is_success(), "{answer:?}");
        }
    }

    /// Commands of an admin queue: any opcode of a command that ends by itself. Half of the time the fields
    /// make sense.
    fn admin(&mut self, queue: &mut HostQueue) {
        let opcodes = [
            admin::IDENTIFY,
            admin::SET_FEATURES,
            admin::GET_FEATURES,
            admin::ABORT,
            admin::GET_LOG_PAGE,
            opcode::VOLUME_ADD,
            opcode::VOLUME_LIST,
            opcode::VOLUME_DELETE,
            opcode::VOLUME_CHMOD,
            opcode::MAP_SET,
            opcode::MAP_GET,
            opcode::MAP_HOLD,
            opcode::TERM_TAKE,
            opcode::ACTIVATE,
            opcode::LEASE_ASK,
        ];
        for round in 0..600usize {
            let mut sqe = self.noise.capsule();
            if round % 2 == 0 {
                sqe.opcode = opcodes[round / 2 % opcodes.len()];
                sqe.cdw10 = self.noise.byte().into();
            }
            // Skips commands that are held until an event, and commands that end the controller on purpose.
            if sqe.opcode == admin::ASYNC_EVENT_REQUEST || sqe.opcode == fabrics::OPCODE {
                continue;
            }
            let mut data = vec![0xAA; (self.noise.next() % 9000) as usize];
            let payload = match round % 3 {
                0 => Payload::None,
                1 => Payload::Out(&data),
                _ => Payload::In(&mut data),
            };
            let answer = queue.execute(sqe, payload, NOISE_DEADLINE).unwrap();
            let refused = !Status(answer.status_word()).is_success();
            assert!(sqe.opcode < 0xC0 || refused, "a client used {:02x}h", sqe.opcode);
        }
    }

    /// Commands of an I/O queue: random bytes.
    fn io(&mut self, cntlid: u16) {
        let mut queue = RawQueue::open(&self.engine, self.soft, Port::Local(0), 1).unwrap();
        assert_eq!(queue.connect_io(1, cntlid, &self.nqn, self.identity).unwrap(), Status::SUCCESS);
        let opcodes = [
            io::READ,
            io::WRITE,
            io::FLUSH,
            io::COMPARE,
            io::WRITE_ZEROES,
            io::DATASET_MANAGEMENT,
            fabrics::OPCODE,
        ];
        for round in 0..2000usize {
            let mut sqe = self.noise.capsule();
            if round % 4 != 0 {
                sqe.opcode = opcodes[round % opcodes.len()];
                sqe.flags = nvme::FLAGS_SGL;
                sqe.nsid = 1.into();
            }
            if round % 8 > 3 {
                sqe.dptr = queue.data(self.noise.byte() << 12);
                sqe.cdw12 = self.noise.byte().into();
            }
            if sqe.opcode == fabrics::OPCODE && fabrics::fctype_of(&sqe) == fctype::DISCONNECT {
                continue;
            }
            let answer = queue.exchange(&sqe, NOISE_DEADLINE).unwrap();
            let status = Status(answer.status_word());
            assert!(!status.is_success() || sqe.opcode == io::FLUSH, "{:02x}h succeeded", sqe.opcode);
        }
    }
}

#[test]
fn random_capsules_get_a_status_and_the_array_goes_on() {
    within(LIMIT, || {
        let array = small_array(2);
        let engine = array.transport();
        let soft = engine.call(|e, _| e.add_soft()).unwrap();
        let identity = Identity::Client(ClientId::new(4711).unwrap());
        let mut host = NoisyHost { engine, soft, noise: Noise(0x5EED), nqn: ssd_subnqn(0), identity };
        host.before_connect();
        let (port, kato) = (Port::Local(0), Duration::ZERO);
        let mut queue = HostQueue::connect(
            &SsdPath { transport: &host.engine, executor: soft, port, subnqn: &host.nqn },
            identity,
            kato,
            NOISE_DEADLINE,
        )
        .unwrap();
        host.admin(&mut queue);
        host.io(queue.cntlid());
        queue.keep_alive(NOISE_DEADLINE).unwrap();
        usable(&array, "after-noise");
    });
}
