// SPDX-License-Identifier: Apache-2.0 OR MIT
//! With and without `io_uring`: the same content, by choice or because the kernel says no.
#![expect(unsafe_code, reason = "a filter that forbids system calls to one thread")]
#![expect(clippy::disallowed_methods, reason = "the filter stays on its thread for ever")]

use super::*;
use std::ffi::OsStr;
use std::time::Duration;

/// Loads the number of the system call. If it equals `call`, refuses with EPERM, else lets it pass. This
/// process makes no calls of another architecture.
fn forbid(call: libc::c_long) -> bool {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let no = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::try_from(call).unwrap()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, no),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives as long as the call.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

/// Writes an SSD and reads it back; its data area, and whether there was a ring.
fn content(io: IoMode) -> std::io::Result<(Vec<u8>, bool)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, io);
    let flash = Flash::new(config(MediaConfig::File(Arc::clone(&file))))?;
    (0..60).for_each(|unit| program(&flash, Unit(unit), u64::from(unit) * 4));
    (0..240).for_each(|page| assert_holds(&flash, Ppa(page), u64::from(page), true));
    (0..4).for_each(|block| flash.erase(Block(block)).unwrap());
    program(&flash, Unit(2), 5000);
    let has_ring = flash.has_ring();
    drop((flash, file));
    Ok((std::fs::read(&path).unwrap().split_off(1 << 20), has_ring))
}

#[test]
fn an_ssd_has_the_same_content_with_io_uring_and_without() {
    let _deadline = crate::tests::deadline();
    let (blocking, has_ring) = content(IoMode::Blocking).unwrap();
    assert!(!has_ring);
    let (auto, had_ring) = content(IoMode::Auto).unwrap();
    assert!(auto == blocking, "with io_uring: {had_ring}");
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
        let (tell, is_reported) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let refused = forbid(call)
                .then(|| (content(IoMode::Auto).unwrap(), content(IoMode::Uring).unwrap_err().to_string()));
            tell.send(refused)
        });
        let refused = is_reported
            .recv_timeout(Duration::from_secs(60))
            .expect("it does not wait for a ring that never answers");
        let Some(((content, has_ring), error)) = refused else {
            eprintln!("no system call can be forbidden here: not tested");
            return;
        };
        assert!(!has_ring && content == blocking, "without system call {call}");
        assert!(!error.is_empty());
    }
}

#[test]
fn the_environment_can_forbid_io_uring() {
    let _deadline = crate::tests::deadline();
    for (value, io) in [
        (None, IoMode::Auto),
        (Some(""), IoMode::Auto),
        (Some("0"), IoMode::Auto),
        (Some("1"), IoMode::Blocking),
        (Some("yes"), IoMode::Blocking),
    ] {
        assert_eq!(IoMode::asked(value.map(OsStr::new)), io, "{value:?}");
    }
}
