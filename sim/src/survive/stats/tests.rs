// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the counters.

use super::*;

#[test]
fn what_never_happened_is_named_until_it_has() {
    let _deadline = gnstor_base::testing::deadline();
    let mut stats = Stats::default();
    let all = Fault::ALL.len() + Path::ALL.len() + Change::ALL.len() + REFUSED.len();
    assert_eq!(stats.never().len(), all);
    Fault::ALL.into_iter().for_each(|fault| stats.fault(fault));
    Path::ALL.into_iter().for_each(|path| stats.path(path));
    Change::ALL.into_iter().for_each(|change| stats.change(change));
    REFUSED.into_iter().skip(1).for_each(|refusal| stats.refusal(refusal));
    assert_eq!(stats.never(), [REFUSED[0].sentence()]);
    stats.refusal(REFUSED[0]);
    assert!(stats.never().is_empty());
}
