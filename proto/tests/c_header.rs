// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `include/gnproto/nvme.h` says the same as the Rust structures. A program compiled from it prints every
//! size, offset, constant and computed value, as C99, C11 and C++17. The test compares the lines.

mod computed;

use crate::deadline::{Deadline, LIMIT};
use core::mem::{offset_of, size_of};
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::{
    self, CmRequest, ConnectData, ConnectFields, PropertyFields, cm_reject, fctype, property,
};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe, admin, cns, io};
use gnstor_proto::placement::map3::State3;
use gnstor_proto::placement::{self, FleetMap, Rows, SsdState, group_of, mix64};
use gnstor_proto::slba::{Address, ClientId, Slba, Vid};
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::vendor::{self, RawEntry};
use std::path::Path;
use std::process::Command;
use zerocopy::IntoBytes;

/// One list for both languages: the C program prints the rows, Rust computes them.
#[derive(Default)]
struct Table {
    program: String,
    rows: Vec<String>,
}

impl Table {
    fn value(&mut self, c: &str, value: impl Into<u64>) {
        let name = c.replace('"', "\\\"");
        self.program += &format!("  printf(\"{name} = %llu\\n\", (unsigned long long)({c}));\n");
        self.rows.push(format!("{c} = {}", value.into()));
    }

    fn text(&mut self, c: &str, value: &str) {
        self.program += &format!("  printf(\"{c} = %s\\n\", {c});\n");
        self.rows.push(format!("{c} = {value}"));
    }

    fn bytes(&mut self, c: &str, value: &[u8]) {
        self.program += &format!("  dump(\"{c}\", &{c}, sizeof {c});\n");
        self.rows.push(value.iter().fold(format!("{c} ="), |row, byte| format!("{row} {byte:02x}")));
    }
}

macro_rules! layout {
    ($table:ident, $rust:ty, $c:literal, [$($field:ident),* $(,)?]) => {
        $table.value(concat!("sizeof(", $c, ")"), size_of::<$rust>() as u64);
        $($table.value(
            concat!("offsetof(", $c, ", ", stringify!($field), ")"),
            offset_of!($rust, $field) as u64,
        );)*
    };
}

macro_rules! constants {
    ($table:ident, $($c:literal = $rust:expr),* $(,)?) => {
        $($table.value($c, $rust as u64);)*
    };
}

fn layouts(t: &mut Table) {
    layout!(t, KeyedSgl, "gnp_keyed_sgl", [address, length, key, kind]);
    layout!(
        t,
        Sqe,
        "gnp_sqe",
        [opcode, flags, cid, nsid, cdw2, cdw3, mptr, dptr, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15]
    );
    layout!(t, Cqe, "gnp_cqe", [dw0, dw1, sqhd, sqid, cid, status]);
    layout!(
        t,
        ConnectFields,
        "gnp_connect_fields",
        [recfmt, qid, sqsize_z, cattr, reserved, kato_ms, reserved2]
    );
    layout!(t, PropertyFields, "gnp_property_fields", [attrib, reserved, offset, value, reserved2]);
    layout!(
        t,
        ConnectData,
        "gnp_connect_data",
        [host_id, cntlid, reserved, subnqn, hostnqn, proof, reserved2]
    );
    layout!(t, CmRequest, "gnp_cm_request", [recfmt, qid, hrqsize, hsqsize_z, cntlid, reserved]);
    layout!(
        t,
        RawEntry,
        "gnp_entry",
        [
            magic,
            format,
            vid,
            generation,
            lease_epoch,
            version,
            term,
            capacity_blocks,
            factor,
            lease_ms,
            owner,
            writer,
            state,
            replicas,
            chunk_shift,
            any_reader,
            reader_count,
            name_len,
            labels_len,
            flags,
            reserved,
            request_ids,
            name,
            labels,
            readers,
            salvaged_s,
            reserved2,
            crc,
        ]
    );
}

fn constants(t: &mut Table) {
    nvme_constants(t);
    fabrics_constants(t);
    gnstor_constants(t);
}

fn nvme_constants(t: &mut Table) {
    constants!(
        t,
        "GNP_BLOCK_BYTES" = gnstor_proto::BLOCK_BYTES,
        "GNP_BLOCK_SHIFT" = gnstor_proto::BLOCK_SHIFT,
        "GNP_SGL_KEYED" = KeyedSgl::KEYED,
        "GNP_SGL_MAX_BYTES" = KeyedSgl::MAX_BYTES,
        "GNP_FLAGS_SGL" = nvme::FLAGS_SGL,
        "GNP_CDW12_FUA" = nvme::CDW12_FUA,
        "GNP_ADMIN_GET_LOG_PAGE" = admin::GET_LOG_PAGE,
        "GNP_ADMIN_IDENTIFY" = admin::IDENTIFY,
        "GNP_ADMIN_ABORT" = admin::ABORT,
        "GNP_ADMIN_SET_FEATURES" = admin::SET_FEATURES,
        "GNP_ADMIN_GET_FEATURES" = admin::GET_FEATURES,
        "GNP_ADMIN_ASYNC_EVENT_REQUEST" = admin::ASYNC_EVENT_REQUEST,
        "GNP_ADMIN_KEEP_ALIVE" = admin::KEEP_ALIVE,
        "GNP_IO_FLUSH" = io::FLUSH,
        "GNP_IO_WRITE" = io::WRITE,
        "GNP_IO_READ" = io::READ,
        "GNP_IO_COMPARE" = io::COMPARE,
        "GNP_IO_WRITE_ZEROES" = io::WRITE_ZEROES,
        "GNP_IO_DATASET_MANAGEMENT" = io::DATASET_MANAGEMENT,
        "GNP_CNS_NAMESPACE" = cns::NAMESPACE,
        "GNP_CNS_CONTROLLER" = cns::CONTROLLER,
        "GNP_CNS_ACTIVE_NAMESPACES" = cns::ACTIVE_NAMESPACES,
        "GNP_STATUS_SUCCESS" = Status::SUCCESS.0,
        "GNP_STATUS_ABORTED" = Status::ABORTED.0,
        "GNP_STATUS_DNR" = Status::DNR,
    );
}

fn fabrics_constants(t: &mut Table) {
    constants!(
        t,
        "GNP_FABRICS_OPCODE" = fabrics::OPCODE,
        "GNP_FCTYPE_PROPERTY_SET" = fctype::PROPERTY_SET,
        "GNP_FCTYPE_CONNECT" = fctype::CONNECT,
        "GNP_FCTYPE_PROPERTY_GET" = fctype::PROPERTY_GET,
        "GNP_FCTYPE_DISCONNECT" = fctype::DISCONNECT,
        "GNP_PROPERTY_CAP" = property::CAP,
        "GNP_PROPERTY_VS" = property::VS,
        "GNP_PROPERTY_CC" = property::CC,
        "GNP_PROPERTY_CSTS" = property::CSTS,
        "GNP_CC_ENABLE" = property::CC_ENABLE,
        "GNP_CSTS_READY" = property::CSTS_READY,
        "GNP_CNTLID_ANY" = fabrics::CNTLID_ANY,
        "GNP_CM_INVALID_LENGTH" = cm_reject::INVALID_LENGTH,
        "GNP_CM_INVALID_RECFMT" = cm_reject::INVALID_RECFMT,
        "GNP_CM_INVALID_QID" = cm_reject::INVALID_QID,
        "GNP_CM_INVALID_HSQSIZE" = cm_reject::INVALID_HSQSIZE,
        "GNP_CM_INVALID_HRQSIZE" = cm_reject::INVALID_HRQSIZE,
        "GNP_CM_NO_RESOURCES" = cm_reject::NO_RESOURCES,
        "GNP_CM_INVALID_CNTLID" = cm_reject::INVALID_CNTLID,
    );
}

fn gnstor_constants(t: &mut Table) {
    constants!(
        t,
        "GNP_VOLUME_ADD" = vendor::opcode::VOLUME_ADD,
        "GNP_VOLUME_LIST" = vendor::opcode::VOLUME_LIST,
        "GNP_VOLUME_DELETE" = vendor::opcode::VOLUME_DELETE,
        "GNP_VOLUME_CHMOD" = vendor::opcode::VOLUME_CHMOD,
        "GNP_MAP_SET" = vendor::opcode::MAP_SET,
        "GNP_MAP_GET" = vendor::opcode::MAP_GET,
        "GNP_MAP_HOLD" = vendor::opcode::MAP_HOLD,
        "GNP_TERM_TAKE" = vendor::opcode::TERM_TAKE,
        "GNP_ACTIVATE" = vendor::opcode::ACTIVATE,
        "GNP_LEASE_ASK" = vendor::opcode::LEASE_ASK,
        "GNP_SETTLE" = vendor::opcode::SETTLE,
        "GNP_ENTRY_FORMAT" = RawEntry::FORMAT,
        "GNP_NAME_BYTES" = vendor::NAME_BYTES,
        "GNP_LABEL_BYTES" = vendor::LABEL_BYTES,
        "GNP_MAX_READERS" = vendor::MAX_READERS,
        "GNP_REQUEST_IDS" = vendor::REQUEST_IDS,
        "GNP_MAX_REPLICAS" = vendor::MAX_REPLICAS,
        "GNP_WRITE_LEASE_MIN_MS" = *vendor::WRITE_LEASE_MS.start(),
        "GNP_WRITE_LEASE_MAX_MS" = *vendor::WRITE_LEASE_MS.end(),
        "GNP_SERVING_LEASE_MIN_MS" = *vendor::SERVING_LEASE_MS.start(),
        "GNP_SERVING_LEASE_MAX_MS" = *vendor::SERVING_LEASE_MS.end(),
        "GNP_VOLUME_ACTIVE" = vendor::state::ACTIVE,
        "GNP_ENTRY_UNSETTLED" = vendor::entry_flags::UNSETTLED,
        "GNP_VOLUME_DELETING" = vendor::state::DELETING,
        "GNP_SSD_IN" = SsdState::In,
        "GNP_SSD_OUT" = SsdState::Out,
        "GNP_SSD_SPARE" = State3::Spare,
        "GNP_SSD_ABSENT" = State3::Absent,
        "GNP_SSD_FULL" = State3::Full,
        "GNP_DEFAULT_GROUPS" = placement::DEFAULT_GROUPS,
        "GNP_DEFAULT_CHUNK_SHIFT" = placement::DEFAULT_CHUNK_SHIFT,
    );
}

/// `UnknownVolume` as the header spells it.
fn upper_snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_uppercase());
    }
    out
}

fn refusals(t: &mut Table) {
    for &refusal in Refusal::ALL {
        let name = format!("GNP_REFUSED_{}", upper_snake(&format!("{refusal:?}")));
        t.value(&name, refusal as u8);
        t.value(&format!("gnp_refusal_status({name})"), refusal.status().0);
        t.value(&format!("gnp_refusal_errno({name})"), refusal.errno().unsigned_abs());
        t.text(&format!("gnp_refusal_rule({name})"), refusal.rule());
        t.text(&format!("gnp_refusal_sentence({name})"), refusal.sentence());
    }
    t.value("GNP_REFUSED_LAST", Refusal::ALL.len() as u64);
    for unknown in [0, Refusal::ALL.len() + 1, 255] {
        t.value(&format!("gnp_refusal_status({unknown})"), 0u8);
        t.value(&format!("gnp_refusal_sentence({unknown}) == 0"), 1u8);
    }
    let dw0 = Detail::new(Refusal::StaleMap, Vid::new(0xABCD)).to_dw0();
    t.value(&format!("gnp_dw0_refusal({dw0}u)"), Refusal::StaleMap as u8);
    t.value(&format!("gnp_dw0_vid({dw0}u)"), 0xABCDu16);
    t.value(&format!("gnp_dw0_ssd({dw0}u) == GNP_DW0_NO_SSD"), 1u8);
    for ssd in [0, 63, 254] {
        let dw0 = Detail::from_dw0(dw0).from_ssd(ssd).to_dw0();
        t.value(&format!("gnp_dw0_ssd({dw0}u)"), ssd);
        t.value(&format!("gnp_dw0_vid({dw0}u)"), 0xABCDu16);
        t.value(&format!("gnp_dw0_refusal({dw0}u)"), Refusal::StaleMap as u8);
    }
    for refusal in [Refusal::StaleMap, Refusal::OutOfRange] {
        let status = refusal.status();
        t.value(&format!("gnp_status_do_not_retry({})", status.0), status.do_not_retry());
        t.value(&format!("gnp_status_is_success({})", status.0), status.is_success());
    }
}

const PRELUDE: &str = r#"#include <gnproto/nvme.h>
#include <stdio.h>
#include <string.h>
static void dump(const char *name, const void *data, size_t bytes) {
  const unsigned char *at = (const unsigned char *)data;
  printf("%s =", name);
  while (bytes--) printf(" %02x", *at++);
  printf("\n");
}
static gnp_u32 sum_of(gnp_u32 multiplier, gnp_u32 addend) {
  static gnp_u32 words[GNP_BLOCK_BYTES / 4];
  gnp_u32 i;
  for (i = 0; i < GNP_BLOCK_BYTES / 4; ++i) words[i] = i * multiplier + addend;
  return gnp_block_sum(words);
}
int main(void) {
"#;

fn compiler(variable: &str, usual: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| usual.into())
}

fn header_agrees(compiler: &str, language: &str, standard: &str) {
    let mut table = Table::default();
    layouts(&mut table);
    constants(&mut table);
    refusals(&mut table);
    computed::computed(&mut table);
    computed::golden_bytes(&mut table);
    computed::map(&mut table);
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("table.c"), folder.path().join("table"));
    std::fs::write(&source, format!("{PRELUDE}{}  return 0;\n}}\n", table.program)).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compiled = Command::new(compiler)
        .args([
            "-x",
            language,
            standard,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-Wno-unused-function",
            "-I",
        ])
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|e| panic!("this test needs a C and a C++ compiler; {compiler}: {e}"));
    assert!(
        compiled.status.success(),
        "{compiler} {standard}: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success());
    let printed = String::from_utf8(ran.stdout).unwrap();
    let printed: Vec<&str> = printed.lines().collect();
    assert_eq!(printed.len(), table.rows.len());
    for (c, rust) in printed.iter().zip(&table.rows) {
        assert_eq!(c, rust, "the header (left) and the Rust source (right) differ");
    }
}

#[test]
fn the_header_agrees_with_rust_as_c99() {
    let _deadline = Deadline::after(LIMIT);
    header_agrees(&compiler("CC", "cc"), "c", "-std=c99");
}

#[test]
fn the_header_agrees_with_rust_as_c11() {
    let _deadline = Deadline::after(LIMIT);
    header_agrees(&compiler("CC", "cc"), "c", "-std=c11");
}

#[test]
fn the_header_agrees_with_rust_as_cpp17() {
    let _deadline = Deadline::after(LIMIT);
    header_agrees(&compiler("CXX", "c++"), "c++", "-std=c++17");
}

/// Two headers of the kernel, as far as this one needs them, and no header of a C library.
#[test]
fn the_header_compiles_with_the_types_of_the_linux_kernel() {
    let _deadline = Deadline::after(LIMIT);
    let folder = tempfile::tempdir().unwrap();
    let linux = folder.path().join("linux");
    std::fs::create_dir(&linux).unwrap();
    std::fs::write(
        linux.join("types.h"),
        "typedef unsigned char u8;\ntypedef unsigned short u16;\ntypedef unsigned int u32;\n\
         typedef unsigned long long u64;\n",
    )
    .unwrap();
    std::fs::write(
        linux.join("stddef.h"),
        "#define offsetof(TYPE, MEMBER) __builtin_offsetof(TYPE, MEMBER)\n",
    )
    .unwrap();
    let source = folder.path().join("kernel.c");
    let uses = "#include <gnproto/nvme.h>\n\
        u32 f(const u32 *words);\n\
        u32 f(const u32 *words) { return gnp_block_sum(words) + gnp_group_of(3, 16, 4, 42, 65536); }\n";
    std::fs::write(&source, uses).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compiled = Command::new(compiler("CC", "cc"))
        .args(["-std=gnu11", "-D__KERNEL__", "-ffreestanding", "-nostdinc", "-Wall", "-Wextra", "-Werror"])
        .args(["-Wno-unused-function", "-c", "-I"])
        .arg(folder.path())
        .arg("-I")
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(folder.path().join("kernel.o"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
