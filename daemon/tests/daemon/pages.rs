// SPDX-License-Identifier: Apache-2.0 OR MIT
//! List in pages.

use crate::array::SimArray;
use crate::bench::{Bench, create_with, created, delete, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::trust::Party;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{PAGE_MOST, Page, Reply};
use gnstor_proto::status::GrpcCode;

fn ask(bench: &mut Bench, size: i32, token: &str) -> (Vec<String>, Option<String>) {
    match bench.ask_now(Request::List(Page::new(size, token).unwrap())) {
        Ok(Reply::Volumes { volumes, next }) => (volumes.into_iter().map(|entry| entry.name).collect(), next),
        other => panic!("no page: {other:?}"),
    }
}

/// The pages of a whole listing.
fn pages(bench: &mut Bench, size: i32) -> Vec<Vec<String>> {
    let (mut pages, mut token) = (Vec::new(), Some(String::new()));
    while let Some(at) = token {
        let (page, next) = ask(bench, size, &at);
        pages.push(page);
        token = next;
    }
    pages
}

fn made(bench: &mut Bench, volumes: std::ops::Range<u32>) {
    for volume in volumes {
        created(bench.ask(create_with(&format!("v{volume}"), 1, None)));
    }
}

#[test]
fn pages_together_are_the_list_and_none_is_longer_than_it_may_be() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(2), 0);
    assert_eq!(pages(&mut bench, 3), [[""; 0]; 1], "an empty array has one empty page");
    made(&mut bench, 0..7);
    let all: Vec<String> = bench.list().into_iter().map(|entry| entry.name).collect();
    for (size, lengths) in [(1, &[1; 7][..]), (3, &[3, 3, 1]), (7, &[7]), (1_000, &[7]), (0, &[7])] {
        let pages = pages(&mut bench, size);
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "pages of {size}");
        assert_eq!(pages.concat(), all);
    }
}

#[test]
fn a_listing_has_each_volume_once_that_is_there_the_whole_time() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(2), 0);
    made(&mut bench, 0..6);
    let (first, token) = ask(&mut bench, 2, "");
    assert_eq!(first, ["v0", "v1"]);
    // One that was listed goes, one that was not, and the one at which the next page begins.
    for gone in ["v0", "v2", "v4"] {
        bench.ask(delete(gone, 1)).unwrap();
    }
    made(&mut bench, 6..7);
    let (second, token) = ask(&mut bench, 2, &token.unwrap());
    assert_eq!(second, ["v3", "v5"]);
    // The new volume has an id that was free by then: it is in the listing, or it is not, but not twice.
    let (third, end) = token.map_or((Vec::new(), None), |token| ask(&mut bench, 2, &token));
    assert!(end.is_none() && third.len() <= 1, "{third:?}");
    assert_eq!(ask(&mut bench, 2, "65534"), (vec![], None), "behind the last volume");
}

#[test]
fn a_page_is_of_volumes_that_the_caller_has_a_right_to() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(2), 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    for volume in 0..6 {
        let owner = if volume % 2 == 0 { &anna } else { &ben };
        owner.make(&mut bench, &format!("v{volume}"));
    }
    let page = |bench: &mut Bench, token: &str| {
        let outcome = ben.ask(bench, Request::List(Page::new(2, token).unwrap()));
        let Ok(Reply::Volumes { volumes, next }) = outcome else { panic!("{outcome:?}") };
        (volumes.into_iter().map(|entry| entry.name).collect::<Vec<_>>(), next)
    };
    let (first, token) = page(&mut bench, "");
    let (second, end) = page(&mut bench, &token.unwrap());
    assert_eq!((first, second, end), (vec!["v1".into(), "v3".into()], vec!["v5".into()], None));
}

/// The answer to a List of so many volumes at once would be above the 4 MiB that a client of gRPC takes.
#[test]
fn some_thousand_volumes_are_listed_in_pages_of_a_thousand() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(1), 0);
    made(&mut bench, 0..3_500);
    let pages = pages(&mut bench, i32::MAX);
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [PAGE_MOST, PAGE_MOST, PAGE_MOST, 500]);
    let mut names = pages.concat();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 3_500, "each once");
}

#[test]
fn a_size_below_zero_and_a_token_of_no_answer_are_refused() {
    let _deadline = Deadline::after(LIMIT);
    for (size, token, word) in [(-1, "", "1 to 1000"), (5, "abc", "next_page_token"), (5, "0", "\"0\"")] {
        let refusal = Page::new(size, token).map(|_| Reply::Done);
        refused(&refusal, GrpcCode::InvalidArgument, &[word]);
    }
}
