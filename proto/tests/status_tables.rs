// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is generated from `src/status.rs`: the table of refusals in `docs/statuses.md`, and
//! `nvmevirt-patch/deengine/gn_status.h`. A test fails where a file is not what the source says;
//! `GNSTOR_BLESS=1 cargo test -p gnstor-proto status_tables` writes both.

use crate::deadline::{Deadline, LIMIT};
use gnstor_proto::status::Refusal;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `UnknownVolume` -> `UNKNOWN_VOLUME`.
fn constant(refusal: Refusal) -> String {
    let mut name = String::new();
    for letter in format!("{refusal:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// `PermissionDenied` -> `PERMISSION_DENIED`.
fn grpc(refusal: Refusal) -> String {
    let mut name = String::new();
    for letter in format!("{:?}", refusal.grpc()).chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// The kernel-side file is GPL-2.0-only as all of its folder.
fn header() -> String {
    let mut text = String::from(
        "/* SPDX-License-Identifier: GPL-2.0-only */\n\
         /* Generated from proto/src/status.rs by proto/tests/status_tables.rs: the refusals of an SSD. */\n\
         #ifndef GN_STATUS_H\n#define GN_STATUS_H\n\n#include \"gn_os.h\"\n\nenum {\n",
    );
    for &refusal in Refusal::ALL {
        let _ = writeln!(text, "  GN_{} = {},", constant(refusal), refusal as u8);
    }
    text += "  GN_REFUSALS_END\n};\n\n\
             /* NVMe status without the phase bit, name, rule of the protocol; 0 and question marks for a \
             number\n \
             * that there is not. */\n\
             struct gn_refusal {\n  gn_u16 status;\n  const char *name;\n  const char *rule;\n};\n\n\
             static inline const struct gn_refusal *gn_refusal_of(gn_u8 code) {\n  \
             static const struct gn_refusal all[GN_REFUSALS_END] = {\n      {0, \"?\", \"?\"},\n";
    for &refusal in Refusal::ALL {
        let (name, status, rule) = (constant(refusal), refusal.status().0, refusal.rule());
        let _ = writeln!(text, "      [GN_{name}] = {{0x{status:04X}, \"{refusal:?}\", \"{rule}\"}},");
    }
    text += "  };\n  return &all[code < GN_REFUSALS_END ? code : 0];\n}\n";
    for (kind, what) in [("gn_u16 ", "status"), ("const char *", "name"), ("const char *", "rule")] {
        let _ = writeln!(
            text,
            "\nstatic inline {kind}gn_{what}_of(gn_u8 code) {{ return gn_refusal_of(code)->{what}; }}"
        );
    }
    text + "\n#endif\n"
}

fn rows() -> String {
    let mut text = String::new();
    for &refusal in Refusal::ALL {
        let _ = writeln!(
            text,
            "| {} | `{refusal:?}` | {:04x}h | {} ({}) | {} | {} | {} |",
            refusal as u8,
            refusal.status().0,
            errno(refusal.errno()),
            refusal.errno(),
            grpc(refusal),
            refusal.rule(),
            refusal.sentence(),
        );
    }
    text
}

/// The name of an errno of Linux that the table has.
fn errno(number: i32) -> &'static str {
    match number {
        1 => "EPERM",
        2 => "ENOENT",
        5 => "EIO",
        6 => "ENXIO",
        11 => "EAGAIN",
        13 => "EACCES",
        16 => "EBUSY",
        17 => "EEXIST",
        22 => "EINVAL",
        28 => "ENOSPC",
        30 => "EROFS",
        61 => "ENODATA",
        71 => "EPROTO",
        84 => "EILSEQ",
        95 => "ENOTSUP",
        111 => "ECONNREFUSED",
        116 => "ESTALE",
        125 => "ECANCELED",
        other => panic!("errno {other} has no name here"),
    }
}

fn is_told_to_write() -> bool {
    std::env::var_os("GNSTOR_BLESS").is_some()
}

#[test]
fn the_header_of_the_kernel_side_is_what_the_source_says() {
    let _deadline = Deadline::after(LIMIT);
    let path = root().join("nvmevirt-patch/deengine/gn_status.h");
    if is_told_to_write() {
        std::fs::write(&path, header()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), header(), "see the head of this test");
}

#[test]
fn the_table_of_statuses_is_what_the_source_says() {
    let _deadline = Deadline::after(LIMIT);
    let path = root().join("docs/statuses.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let begin = page.find("|---|---|---|---|---|---|---|\n").expect("the table") + 30;
    let end = begin + page[begin..].find("\n\n").expect("its end") + 1;
    if is_told_to_write() {
        std::fs::write(&path, format!("{}{}{}", &page[..begin], rows(), &page[end..])).unwrap();
        return;
    }
    assert_eq!(&page[begin..end], rows(), "see the head of this test");
}
