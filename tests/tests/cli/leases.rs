// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Leases, names and labels by the command line, beside clients that use the volumes.

use super::*;
use gnstor_tests::{BLOCK, Guest, io_failure, volume};
use libgnstor::Rights;

fn on(up: &Up, args: &[&str]) -> gnstor_tests::command::Ended {
    gnstor(&[args, &["--array", &up.daemon]].concat())
}

/// A client writes `corpus`, and another one reads it.
fn is_sorted_and_filtered(up: &Up) {
    let rights = |args: &[&str]| {
        let args = [&["lease", "list", "--json"], args].concat();
        let listed = on(up, &args).json();
        listed.as_array().expect("a list").iter().map(|lease| lease["rights"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(rights(&["--sort", "left"]), ["write", "read"], "a reader's lease has no end");
    assert_eq!(rights(&["--sort", "left", "--reverse"]), ["read", "write"]);
    assert_eq!(rights(&["--filter", "volume=cor*", "--filter", "rights=read"]), ["read"]);
    assert!(on(up, &["lease", "ls", "--filter", "volume=x*"]).stdout.contains("no lease matches"));
    on(up, &["lease", "ls", "--filter", "rights=all"]).not_understood(&["read or write"]);
}

#[test]
fn a_lease_is_listed_and_revoked_and_the_writers_next_write_is_refused() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "3"]);
        on(&up, &["lease", "list"]).worked();
        assert!(on(&up, &["lease", "list"]).stdout.contains("no client has a volume open"));
        let (writer, other) = (Guest::connect(&up.daemon, "writer"), Guest::connect(&up.daemon, "other"));
        volume(&writer.client, "corpus", 1 << 20, 2);
        volume(&writer.client, "idle", 1 << 20, 2);
        let file = writer.client.open("corpus", Rights::Write).unwrap();
        let reads = other.client.open("corpus", Rights::Read).unwrap();
        file.write_at(0, &pattern(1, BLOCK)).unwrap();

        let listed = on(&up, &["lease", "list", "--json"]).json();
        let [held, read] = &listed.as_array().expect("a list")[..] else { panic!("{listed:#}") };
        assert_eq!(
            (&held["volume"], &held["rights"], &held["lease_epoch"]),
            (&"corpus".into(), &"write".into(), &1.into())
        );
        assert!(held["left_s"].as_f64().is_some_and(|left| (1.0..=310.0).contains(&left)), "{held:#}");
        assert_eq!((&read["rights"], read["left_s"].is_null()), (&"read".into(), true));
        let table = on(&up, &["lease", "list", "--volume", "corpus"]).stdout;
        assert!(table.contains("CLIENT") && table.lines().count() == 3, "{table}");
        assert!(on(&up, &["lease", "ls", "--volume", "idle"]).stdout.contains("no client has idle open"));
        on(&up, &["lease", "list", "--volume", "nowhere"]).failed(&["no volume \"nowhere\""]);

        is_sorted_and_filtered(&up);

        let client = held["client"].to_string();
        let words = [format!("client {client} holds the write lease"), "gnstor lease revoke".into()];
        up.volume(&["rename", "corpus", "other"]).failed(&[&words[0], &words[1]]);
        let ended = on(&up, &["lease", "revoke", "corpus", &client]);
        ended.worked();
        let words = format!("ended: client {client} held the write lease of volume corpus");
        assert!(ended.stdout.contains(&words), "{}", ended.stdout);
        let refused = io_failure(file.write_at(0, &pattern(2, BLOCK)));
        assert!(refused.to_string().contains("the write lease has expired"), "{refused}");
        let ssd = refused.ssd.as_ref().expect("it says which SSD has refused");
        let address = ssd.address.as_deref().expect("it is in another process");
        let map = on(&up, &["status", "--json"]).state();
        assert_eq!(map["ssds"][usize::from(ssd.index)]["address"], address, "{map:#}");
        let words = format!("write of block 0 failed on SSD {} ({address}): ", ssd.index);
        assert!(refused.to_string().starts_with(&words), "{refused}");
        let mut block = vec![0; BLOCK];
        reads.read_at(0, &mut block).unwrap();
        assert_eq!(block, pattern(1, BLOCK), "the refused write has changed nothing");
        let again = on(&up, &["lease", "revoke", "corpus", &client]);
        again.worked();
        assert!(again.stdout.contains("does not have volume corpus open: nothing to do"), "{}", again.stdout);
        assert_eq!(on(&up, &["lease", "revoke", "corpus", &client, "--json"]).json(), serde_json::json!([]));

        // The volume is free for the next writer, which may be the same client.
        let next = other.client.open("corpus", Rights::Write).unwrap();
        next.write_at(0, &pattern(3, BLOCK)).unwrap();
        // A client releases a volume with the last of its files.
        drop((file, next, reads));
        writer.client.open("corpus", Rights::Write).unwrap().write_at(0, &pattern(4, BLOCK)).unwrap();
        on(&up, &["lease", "revoke", "corpus", "0"]).not_understood(&["1 to 65534"]);
        on(&up, &["lease", "revoke", "corpus"]).not_understood(&["CLIENT"]);
        up.end("-TERM");
    });
}

#[test]
fn a_volume_is_deleted_under_its_writer_with_force_only() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "3"]);
        let writer = Guest::connect(&up.daemon, "writer");
        volume(&writer.client, "corpus", 1 << 20, 2);
        volume(&writer.client, "free", 1 << 20, 2);
        let file = writer.client.open("corpus", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, BLOCK)).unwrap();
        let words = ["\"corpus\" cannot be deleted", "holds the write lease for at most another", "--force"];
        up.volume(&["delete", "corpus"]).failed(&words);
        file.write_at(0, &pattern(2, BLOCK)).unwrap();
        let gone = on(&up, &["rm", "--force", "corpus", "free"]);
        assert_eq!((gone.code, &*gone.stdout), (0, "deleted corpus\ndeleted free\n"), "{}", gone.stderr);
        assert!(gone.stderr.contains(" held the write lease of volume corpus"), "{}", gone.stderr);
        let refused = io_failure(file.write_at(0, &pattern(3, BLOCK)));
        // As long as the SSD sweeps, and then.
        let words = ["the volume is being deleted", "no such volume"];
        assert!(words.iter().any(|word| refused.to_string().contains(word)), "{refused}");
        assert_eq!(up.volume(&["list", "--json"]).json(), serde_json::json!([]));

        volume(&writer.client, "corpus", 1 << 20, 2);
        let later = writer.client.open("corpus", Rights::Write).unwrap();
        let gone = up.volume(&["delete", "--force", "corpus", "--json"]).json();
        assert_eq!((&gone["deleted"], &gone["ended"][0]["rights"]), (&"corpus".into(), &"write".into()));
        drop((file, later));
        up.end("-TERM");
    });
}

#[test]
fn a_volume_gets_another_name_and_other_labels() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let folder = folder();
        let (bytes, copy) = (pattern(5, 10_000), folder.path().join("copy").display().to_string());
        let source = file(&folder, "source", &bytes);
        assert_eq!(up.cp(&[&source, "gn://corpus"]).code, 0);
        up.volume(&["create", "taken", "--size", "64KiB"]).worked();
        up.volume(&["rename", "corpus", "taken"]).failed(&["\"taken\"", "there is one of that name"]);
        up.volume(&["rename", "corpus", "a b"]).failed(&["\"a b\" is not valid"]);
        let renamed = up.volume(&["rename", "corpus", "corpus-2026"]);
        assert_eq!(renamed.stdout, "volume corpus is now corpus-2026\n", "{}", renamed.stderr);
        up.volume(&["show", "corpus"]).failed(&["no volume \"corpus\""]);
        assert_eq!(up.cp(&["gn://corpus-2026", &copy]).code, 0);
        assert_eq!(std::fs::read(&copy).unwrap(), bytes, "the content goes with it, and its length");

        let labelled = up.volume(&["label", "corpus-2026", "kind=text", "team=graph", "--json"]).json();
        assert_eq!(
            (&labelled["labels"]["kind"], &labelled["labels"]["team"]),
            (&"text".into(), &"graph".into())
        );
        let labelled = up.volume(&["label", "corpus-2026", "kind=image", "--remove", "team"]);
        assert!(
            labelled.stdout.contains("kind=image") && !labelled.stdout.contains("team"),
            "{}",
            labelled.stdout
        );
        assert!(labelled.stdout.contains("gnstor.sha256"), "the copy's own labels stay: {}", labelled.stdout);
        up.volume(&["label", "corpus-2026", "gnstor.sha256=0"]).failed(&["the array's own"]);
        up.volume(&["label", "corpus-2026"]).not_understood(&["KEY=VALUE"]);
        up.volume(&["label", "corpus-2026", "oops"]).failed(&["'oops'", "KEY=VALUE"]);
        assert_eq!(
            on(&up, &["ls", "--filter", "label=kind=image", "--json"]).json()[0]["name"],
            "corpus-2026"
        );
        up.end("-TERM");
    });
}
