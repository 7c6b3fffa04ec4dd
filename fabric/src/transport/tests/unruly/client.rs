// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an array that keeps no rules can do to a client: numbers and lengths of its frames.

use super::*;

/// A client with a link to an array that is in the test's hand, and a connection over it.
fn with_a_liar() -> (Two, Wire, u32) {
    let mut two = Two::new(0);
    let (near, mut liar) = pair();
    let remote = two.client.add_remote(near).unwrap();
    let (reply, answer) = mpsc::channel();
    let conn = two.client.connect(two.now, to(two.executor, QPN, Port::Remote { remote, ssd: 0 }), reply);
    two.until("it is asked", |_| {
        liar.flush();
        matches!(liar.poll(), Some(Frame::Connect { conn: asked, .. }) if asked == conn.0)
    });
    liar.send(&Frame::Accept { conn: conn.0, refused: 0 });
    two.until("it is connected", |_| {
        liar.flush();
        answer.try_recv() == Ok(Ok(()))
    });
    (two, liar, conn.0)
}

/// The client's answers to these frames, one for each.
fn answers(two: &mut Two, liar: &mut Wire, frames: &[Frame]) -> Vec<Frame> {
    frames.iter().for_each(|frame| liar.send(frame));
    let mut got = Vec::new();
    two.until("each is answered", |_| {
        liar.flush();
        got.extend(liar.poll());
        got.len() == frames.len()
    });
    got
}

#[test]
fn a_transfer_is_answered_with_its_own_tag_however_often_and_never_longer_than_a_piece() {
    let _deadline = deadline();
    let (mut two, mut liar, conn) = with_a_liar();
    let data = vec![7; 4096];
    two.memory.write(DATA, &data);
    let address = two.memory.address() + DATA;
    let ask = |tag, bytes| Frame::FromOwner { conn, tag, address, key: KEY, bytes };
    let most = u32::try_from(crate::tcp::MAX_DATA).unwrap();
    let refused = |tag| Frame::Done { conn, tag, status: COPY_BAD_KEY, sum: 0, data: vec![] };
    let got = answers(&mut two, &mut liar, &[ask(1, most + 1), ask(2, u32::MAX)]);
    assert_eq!(got, [refused(1), refused(2)]);
    let good = |tag| Frame::Done { conn, tag, status: COPY_OK, sum: data_sum(&data), data: data.clone() };
    let got = answers(&mut two, &mut liar, &[ask(u32::MAX, 4096), ask(9, 4096), ask(9, 4096)]);
    assert_eq!(got, [good(u32::MAX), good(9), good(9)]);
}

#[test]
fn an_accept_of_another_array_is_not_taken_for_the_one_that_was_asked() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    let (near, mut liar) = pair();
    two.client.add_remote(near).unwrap();
    for refused in [0, 5] {
        let (conn, answer) = two.connect(0);
        liar.send(&Frame::Accept { conn: conn.0, refused });
        // The right array has not been asked yet.
        for _ in 0..100 {
            liar.flush();
            two.now = two.now + Span::from_ns(1000);
            two.client.step(two.now);
        }
        assert!(answer.try_recv().is_err(), "another array has answered for it");
        let mut got = None;
        two.until("the right one answers", |_| {
            got = answer.try_recv().ok();
            got.is_some()
        });
        assert_eq!(got, Some(Ok(())));
        two.client.close(two.now, conn);
        two.pass(20);
    }
}
