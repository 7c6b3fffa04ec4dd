// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that no host of the protocol sends.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes, at any step of a run: no panic, and nothing is proven.
    #[test]
    fn any_bytes_prove_nothing(
        good in 0usize..2,
        bytes in proptest::collection::vec(any::<u8>(), 1..MAX_MESSAGE),
    ) {
        let mut harness = asking(Group::Ffdhe2048);
        begin(&mut harness, ADMIN, host(7, 1));
        let (mut prover, negotiate) = prover(host(7, 1), manager_key().of_host(&host(7, 1).nqn()));
        if good > 0 {
            send(&mut harness, ADMIN, &negotiate);
            prover.on_challenge(&receive(&mut harness, ADMIN)).unwrap();
        }
        prop_assert_eq!(send(&mut harness, ADMIN, &bytes), None);
        prop_assert_eq!(receive(&mut harness, ADMIN)[1], id::FAILURE1);
        let refused = harness.refused(ADMIN, sqe(admin::KEEP_ALIVE));
        prop_assert_eq!(refused, Some(Refusal::AuthenticationRequired));
    }
}
