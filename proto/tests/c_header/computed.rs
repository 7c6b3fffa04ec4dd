// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that functions of the header compute, golden bytes, and a map that Rust has encoded.

use super::*;

pub(super) fn computed(t: &mut Table) {
    for (vid, client, vba) in [(1, 1, 0), (0x1234, 0x5678, 0x9ABC_DEF0), (0xFFFE, 0xFFFE, u32::MAX)] {
        let address = Address { vid: Vid::new(vid).unwrap(), client: ClientId::new(client).unwrap(), vba };
        let slba = Slba::pack(address).0;
        t.value(&format!("gnp_slba_pack({vid}, {client}, {vba}u)"), slba);
        t.value(&format!("gnp_slba_vid({slba}u)"), vid);
        t.value(&format!("gnp_slba_client({slba}u)"), client);
        t.value(&format!("gnp_slba_vba({slba}u)"), vba);
    }
    for id in [0, 1, 0xFFFE, 0xFFFF] {
        t.value(&format!("gnp_id_is_valid({id})"), Vid::new(id).is_some());
    }
    for x in [0, 1, 0x0123_4567_89AB_CDEF, u64::MAX] {
        t.value(&format!("gnp_mix64({x}u)"), mix64(x));
    }
    for vba in [0, 15, 16, 1 << 20, u32::MAX] {
        for (vid, shift, factor, groups) in
            [(3, 4, 42, 65_536), (0xFFFE, 0, u64::MAX, 1), (7, 12, 0xF00D, 1 << 24)]
        {
            let group = group_of(Vid::new(vid).unwrap(), vba, shift, factor, groups);
            t.value(&format!("gnp_group_of({vid}, {vba}u, {shift}, {factor}u, {groups})"), group);
        }
    }
}

/// The golden blocks: (index * multiplier + addend) as 32-bit words.
const BLOCKS: [(u32, u32); 4] = [(0, 0), (1, 0), (0x9E37_79B9, 0x1234_5678), (0, u32::MAX)];

pub(super) fn golden_bytes(t: &mut Table) {
    for (multiplier, addend) in BLOCKS {
        let words = (0u32..1024).map(|i| i.wrapping_mul(multiplier).wrapping_add(addend));
        let block: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        t.value(&format!("sum_of({multiplier}u, {addend}u)"), block_sum(&block));
    }
    t.program += "  gnp_sqe sqe;\n  memset(&sqe, 0, sizeof sqe);\n  sqe.opcode = GNP_IO_READ;\n  sqe.flags \
        = GNP_FLAGS_SGL;\n";
    t.program += "  sqe.cid = 0x0102;\n  sqe.cdw3 = 9;\n  sqe.dptr = gnp_sgl_make(0x1122334455667788u, \
        0x2345, 0xAABBCCDDu);\n";
    t.program += "  sqe.cdw10 = 0x100;\n  sqe.cdw15 = 0xDEADBEEFu;\n";
    let sqe = Sqe {
        opcode: io::READ,
        flags: nvme::FLAGS_SGL,
        cid: 0x0102.into(),
        cdw3: 9.into(),
        dptr: KeyedSgl::keyed(0x1122_3344_5566_7788, 0x2345, 0xAABB_CCDD),
        cdw10: 0x100.into(),
        cdw15: 0xDEAD_BEEF.into(),
        ..Sqe::default()
    };
    t.bytes("sqe", sqe.as_bytes());
    t.value("gnp_sgl_bytes(&sqe.dptr)", sqe.dptr.bytes());
    t.value("gnp_sgl_key(&sqe.dptr)", sqe.dptr.key.get());
    t.program += "  gnp_cqe cqe;\n  memset(&cqe, 0, sizeof cqe);\n  cqe.status = 0x850D;\n";
    t.value("gnp_cqe_status(&cqe)", 0x4286u16);
}

/// The map has no structure in Rust: the C program reads a map that Rust has encoded.
pub(super) fn map(t: &mut Table) {
    let mut map = FleetMap::equal(5, 8, 0x0102_0304_0506_0708, 77).unwrap().without(1);
    map.epoch = 0x1_0000_0002;
    let bytes = map.encode();
    let list = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
    t.program += &format!("  static const unsigned char encoded[] = {{{list}}};\n");
    t.program += "  gnp_map_header header;\n  gnp_map_ssd ssd;\n  gnp_u16 place;\n  memcpy(&header, \
        encoded, sizeof header);\n";
    t.program += "  memcpy(&ssd, encoded + sizeof header + sizeof ssd, sizeof ssd);\n";
    t.program += "  memcpy(&place, encoded + sizeof header + header.ssds * sizeof ssd, sizeof place);\n";
    t.value("memcmp(header.magic, \"GNFM\", 4)", 0u8);
    t.value("header.format == GNP_MAP_FORMAT", 1u8);
    t.value("header.width", map.width() as u64);
    t.value("header.term", map.term);
    t.value("header.epoch", map.epoch);
    t.value("header.groups", map.groups());
    t.value("header.ssds", map.ssds.len() as u64);
    t.value("header.seed", map.seed);
    t.value("ssd.id", map.ssds[1].id);
    t.value("ssd.state == GNP_SSD_OUT", 1u8);
    t.value("ssd.domain", map.ssds[1].domain);
    t.value("ssd.weight", map.ssds[1].weight);
    t.value("place", map.places()[0]);
    let places = "sizeof header + header.ssds * sizeof ssd + header.groups * header.width * sizeof place";
    t.value(places, bytes.len() as u64);
    // Five SSDs less one: the lost one's places are filled by another. Three less one: no SSD is left, the
    // places are empty.
    let filling = map.places().iter().copied().find(|p| p & 0x8000 != 0).expect("a place is being filled");
    let member = (0..map.groups()).flat_map(|g| map.row(g).flatten()).find(|m| m.filling).expect("likewise");
    t.value(&format!("({filling} & GNP_PLACE_FILLING) != 0"), 1u8);
    t.value(&format!("{filling} & ~GNP_PLACE_FILLING"), member.ssd);
    let small = FleetMap::equal(3, 2, 1, 1).unwrap().without(1);
    t.value("GNP_PLACE_NONE", small.places().iter().copied().max().expect("there are groups"));
}
