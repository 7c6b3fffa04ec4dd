// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor cp` with files, links, devices and pipes, and with volumes that it did not make.

use super::*;
use crate::mounts::left_out;

/// No partial file is left.
fn nothing_partial(folder: &Folder) {
    let left =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| !name.contains("partial")), "a partial file is left");
}

#[test]
fn files_come_back_from_a_volume_as_they_went_in() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        for bytes in [1, 4096, 100_000] {
            let data = pattern(bytes as u64, bytes);
            let (from, name) = (file(&folder, &format!("in{bytes}"), &data), format!("gn://v{bytes}"));
            let to = folder.path().join(format!("out{bytes}"));
            let stored = up.cp(&["--json", &from, &name]).json();
            assert_eq!(stored["bytes"], bytes);
            let fetched = up.cp(&["--json", &name, to.to_str().unwrap()]).json();
            assert_eq!(fetched["sha256"], stored["sha256"]);
            assert!(std::fs::read(&to).unwrap() == data, "{bytes} bytes came back changed");
        }
        // Copies into a volume that exists, and replaces its content.
        let data = pattern(7, 100_000);
        let from = file(&folder, "again", &data);
        let to = folder.path().join("whole").display().to_string();
        up.cp(&[&from, "gn://v100000"]).worked();
        up.cp(&["gn://v100000", &to]).worked();
        assert!(std::fs::read(&to).unwrap() == data, "what was written last came back changed");
        // A shorter file, then a longer one: each copy makes a new volume with the length of the file.
        for bytes in [70_000, 300_000] {
            let from = file(&folder, "other", &pattern(8, bytes));
            up.cp(&[&from, "gn://v100000"]).worked();
            up.cp(&["gn://v100000", &to]).worked();
            assert!(std::fs::read(&to).unwrap() == pattern(8, bytes), "{bytes} bytes came back changed");
        }
        nothing_partial(&folder);
        up.end("-INT");
    });
}

#[test]
fn a_copy_into_a_volume_that_was_made_otherwise_keeps_its_size_and_its_settings() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        let (data, to) = (pattern(7, 100_000), folder.path().join("whole").display().to_string());
        // The volume has no length and no SHA-256, and the command says so.
        let settings = ["--size", "128KiB", "--replicas", "1", "--chunk", "4KiB", "--label", "kind=text"];
        up.volume(&[&["create", "plain"], &settings[..]].concat()).worked();
        let all = up.cp(&["gn://plain", &to]);
        assert!(all.code == 0 && all.stderr.contains("all of it is copied"), "{}", all.stderr);
        assert!(all.stderr.contains("keeps no sum"), "{}", all.stderr);
        assert_eq!(std::fs::metadata(&to).unwrap().len(), 128 << 10);
        let from = file(&folder, "shorter", &data[..70_000]);
        up.cp(&[&from, "gn://plain"]).worked();
        let plain = up.volume(&["show", "plain", "--json"]).json();
        assert_eq!((&plain["capacity_bytes"], &plain["replicas"]), (&(128 << 10).into(), &1.into()));
        assert_eq!((&plain["chunk_bytes"], &plain["labels"]["kind"]), (&4096.into(), &"text".into()));
        up.cp(&["gn://plain", &to]).worked();
        assert!(std::fs::read(&to).unwrap() == data[..70_000], "a file came back changed");
        let part = up.cp(&["gn://plain", &to, "--size", "50000"]);
        assert!(part.code == 0 && part.stderr.contains("not checked"), "{}", part.stderr);
        assert!(std::fs::read(&to).unwrap() == data[..50_000], "a part came back changed");
        nothing_partial(&folder);
        up.end("-INT");
    });
}

/// Rights go with the name of a volume, so the copy that replaces it brings none of its own.
#[test]
fn a_copy_replaces_a_volume_that_has_an_owner_and_is_shared() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let list = b"anna anna-0123456789abcdef\nben ben-0123456789abcdef\n";
        let secret = |name: &str, text: &[u8]| {
            let path = file(&folder, name, text);
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its own file");
            path
        };
        let up = Up::start(&["--ssds", "2", "--tokens", &secret("tokens", list)]);
        let (anna, ben) = (secret("anna", b"anna-0123456789abcdef"), secret("ben", b"ben-0123456789abcdef"));
        let with = |proof: &str, words: &[&str]| {
            gnstor(&[words, &["--array", &up.daemon, "--token-file", proof]].concat())
        };
        let (old, new) = (pattern(1, 100_000), pattern(2, 300_000));
        with(&anna, &["cp", &file(&folder, "old", &old), "gn://v"]).worked();
        with(&anna, &["volume", "share", "v", "ben", "read"]).worked();
        with(&anna, &["cp", &file(&folder, "new", &new), "gn://v"]).worked();
        let to = folder.path().join("out").display().to_string();
        with(&ben, &["cp", "gn://v", &to]).worked();
        assert!(std::fs::read(&to).unwrap() == new, "ben reads what anna copied in last");
        up.end("-INT");
    });
}

#[test]
fn a_copy_replaces_no_volume_that_was_created_meanwhile() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let mut copy = Command::new(GNSTOR.as_path())
            .args(["cp", "--array", &up.daemon, "--size", "100000", "-", "gn://v"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let is_begun = || up.volume(&["list"]).stdout.contains("partial");
        until("the copy has begun", is_begun);
        up.volume(&["create", "v", "--size", "1MiB", "--label", "mine=yes"]).worked();
        copy.stdin.take().expect("a pipe").write_all(&pattern(1, 100_000)).expect("it reads");
        let ended = copy.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && said.contains("was created by another client"), "{said}");
        let list = up.volume(&["list", "--json"]).json();
        assert_eq!((list.as_array().map(Vec::len), &list[0]["labels"]["mine"]), (Some(1), &"yes".into()));
        up.end("-INT");
    });
}

#[test]
fn a_copy_into_a_file_keeps_its_permissions() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        let data = pattern(1, 100_000);
        up.cp(&[&file(&folder, "in", &data), "gn://v"]).worked();
        for mode in [0o600, 0o400, 0o755] {
            let to = file(&folder, "out", b"old");
            std::fs::set_permissions(&to, Permissions::from_mode(mode)).expect("its own file");
            up.cp(&["gn://v", &to]).worked();
            let is = std::fs::metadata(&to).expect("it is there").permissions().mode() & 0o7777;
            assert_eq!((is, std::fs::read(&to).unwrap() == data), (mode, true), "{is:o}");
            std::fs::remove_file(&to).expect("its own file");
        }
        up.end("-INT");
    });
}

#[test]
fn a_copy_leaves_links_and_devices_what_they_are() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        let (data, to) = (pattern(7, 100_000), folder.path().join("whole").display().to_string());
        for (name, data) in [("v1", &pattern(1, 1)), ("v100000", &data)] {
            up.cp(&[&file(&folder, name, data), &format!("gn://{name}")]).worked();
        }
        std::fs::write(&to, "something else").unwrap();
        let link = folder.path().join("link").display().to_string();
        std::os::unix::fs::symlink("whole", &link).unwrap();
        up.cp(&["gn://v100000", &link]).worked();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(std::fs::read(&to).unwrap() == data, "a link was not followed");
        let new = folder.path().join("new");
        std::os::unix::fs::symlink("new", folder.path().join("ahead")).unwrap();
        up.cp(&["gn://v1", folder.path().join("ahead").to_str().unwrap()]).worked();
        assert_eq!(
            std::fs::read(&new).unwrap(),
            pattern(1, 1),
            "a link to what was not there was not followed"
        );
        up.cp(&[&file(&folder, "words", b"read me"), "gn://words"]).worked();
        let piped = up.cp(&["gn://words", "/dev/stdout"]);
        assert!(piped.code == 0 && piped.stdout == "read me" && piped.stderr.contains("sha256"), "{piped:?}");
        up.cp(&["gn://v1", "/dev/null"]).worked();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        nothing_partial(&folder);
        up.end("-INT");
    });
}

#[test]
fn a_refused_copy_says_why_and_leaves_nothing() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        assert_eq!(up.volume(&["create", "small", "--size", "8192"]).code, 0);
        let empty = file(&folder, "empty", &[]);
        let data = file(&folder, "data", &pattern(1, 10_000));
        let missing = folder.path().join("missing").display().to_string();
        let this = folder.path().display().to_string();
        let out = folder.path().join("out").display().to_string();
        up.cp(&[&empty, "gn://v"]).failed(&["empty", "nothing to copy"]);
        up.cp(&[&missing, "gn://v"]).failed(&["missing", "No such file"]);
        up.cp(&[&this, "gn://v"]).failed(&["not a regular file"]);
        up.cp(&[&data, "gn://small"]).failed(&["do not fit", "small", "8.0 KiB"]);
        up.cp(&[&data, "gn://"]).failed(&["not valid"]);
        up.cp(&[&data, &out]).failed(&["gn://"]);
        up.cp(&["gn://small", "gn://v"])
            .failed(&["volume to volume is not supported", "copy to a file first"]);
        up.cp(&["gn://nowhere", &out]).failed(&["no volume \"nowhere\""]);
        up.cp(&["gn://small", &out, "--size", "9000"]).failed(&["9000", "8192"]);
        let nowhere = format!("{this}/no/such/folder");
        up.cp(&["gn://small", &nowhere]).failed(&["No such file"]);
        up.cp(&["gn://small", &this]).failed(&["it is a directory"]);
        assert!(!Path::new(&out).exists(), "a refused copy left a file");
        let names = up.volume(&["list", "--json"]).json();
        assert_eq!(names.as_array().map(Vec::len), Some(1), "a refused copy left a volume: {names}");
        let daemon = up.daemon.clone();
        up.end("-TERM");
        gnstor(&["cp", "--device", "host", "--array", &daemon, &data, "gn://v"])
            .failed(&["cannot reach", &daemon]);
        gnstor(&["volume", "list", "--array", &daemon]).failed(&["cannot reach", &daemon]);
    });
}

/// The lock is what a copy holds on its partial file, as long as it writes.
#[test]
fn a_copy_into_a_file_that_another_copy_writes_is_refused() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        let data = pattern(5, 50_000);
        up.cp(&[&file(&folder, "data", &data), "gn://v"]).worked();
        let out = folder.path().join("out").display().to_string();
        let partial = file(&folder, "out.gnstor-partial", &pattern(6, 90_000));
        let other = std::fs::File::open(&partial).unwrap();
        other.lock().unwrap();
        up.cp(&["gn://v", &out]).failed(&["another copy is writing", &partial]);
        assert!(std::fs::read(&partial).unwrap() == pattern(6, 90_000), "its data was changed");
        assert!(!Path::new(&out).exists());
        // The other copy was killed.
        drop(other);
        up.cp(&["gn://v", &out]).worked();
        assert!(std::fs::read(&out).unwrap() == data, "something of the killed copy is left");
        nothing_partial(&folder);
        up.end("-TERM");
    });
}

#[test]
fn copies_go_through_pipes() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        let data = pattern(3, 100_001);
        let input = file(&folder, "input", &data);
        let out = folder.path().join("out").display().to_string();
        let (bin, array) = (GNSTOR.display(), format!("--device host --array {}", up.daemon));
        let shell = |script: &str| {
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("set -o pipefail; {script}")]);
            run_for(shell, LIMIT)
        };
        shell(&format!("cat {input} | {bin} cp {array} - gn://piped")).worked();
        shell(&format!("{bin} cp {array} gn://piped - | cat > {out}")).worked();
        assert!(std::fs::read(&out).unwrap() == data, "a pipe changed the bytes");
        // A redirected file is not a pipe. The offset of a file that is appended to stays.
        shell(&format!("{bin} cp {array} - gn://redirected < {input}")).worked();
        shell(&format!("echo head > {out}; {bin} cp {array} gn://redirected - >> {out}")).worked();
        assert!(std::fs::read(&out).unwrap() == [b"head\n", &data[..]].concat(), "what was there is lost");
        shell(&format!("(cat {input} || true) | {bin} cp {array} - gn://part --size 5000")).worked();
        shell(&format!("{bin} cp {array} gn://part - > {out}")).worked();
        assert!(std::fs::read(&out).unwrap() == data[..5000], "--size is not the length");
        let short = shell(&format!("echo x | {bin} cp {array} - gn://short --size 5000"));
        short.failed(&["-: it ended early"]);
        shell(&format!(": | {bin} cp {array} - gn://none")).failed(&["nothing to copy"]);
        shell(&format!("{bin} cp {array} /dev/zero gn://none")).failed(&["/dev/zero", "--size"]);
        let gone = shell(&format!("{bin} cp {array} gn://piped - | true"));
        assert!([0, 141].contains(&gone.code), "{}: {}", gone.code, gone.stderr);
        up.end("-TERM");
    });
}

/// A loop device over a file, until the end of a test; `None` where the test may be left out.
struct Loop(String);

impl Loop {
    fn over(file: &str) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show", file]).output();
        match made {
            Ok(made) if made.status.success() => {
                Some(Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
            }
            made => {
                left_out("a loop device", &made);
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_copied_whole_or_in_part() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let data = pattern(9, 1 << 20);
        let Some(device) = Loop::over(&file(&folder, "device", &data)) else { return };
        let out = folder.path().join("out").display().to_string();
        let up = Up::start(&["--ssds", "2"]);
        let stored = up.cp(&["--json", &device.0, "gn://whole"]).json();
        assert_eq!(stored["bytes"], 1 << 20, "the length is that of the device");
        up.cp(&["gn://whole", &out]).worked();
        assert!(std::fs::read(&out).unwrap() == data, "a device came back changed");
        up.cp(&[&device.0, "gn://part", "--size", "5000"]).worked();
        up.cp(&["gn://part", &out]).worked();
        assert!(std::fs::read(&out).unwrap() == data[..5000], "--size is not the length");
        up.cp(&[&device.0, "gn://more", "--size", "2MiB"]).failed(&[&device.0, "1048576 bytes"]);
        up.end("-TERM");
    });
}
