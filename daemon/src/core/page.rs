// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A page of a list, as a caller asks for it.

use super::failure::Failure;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::GrpcCode;

/// The most volumes of a page.
pub const PAGE_MOST: usize = 1_000;

/// Which volumes a List asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The lowest volume id.
    pub(super) from: Vid,
    /// The most volumes; `None`: all.
    pub(super) most: Option<usize>,
}

impl Page {
    /// All volumes.
    pub const ALL: Self = Self { from: Vid::MIN, most: None };

    /// A page as a client asks for it. The token is the volume id at which it begins.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the size is below 0, or no answer had this token.
    pub fn new(size: i32, token: &str) -> Result<Self, Failure> {
        let invalid = |message: String| Failure::new(GrpcCode::InvalidArgument, message);
        let size = usize::try_from(size).map_err(|_| {
            invalid(format!(
                "a page of {size} volumes is not possible: use 1 to {PAGE_MOST}, or 0 for all volumes"
            ))
        })?;
        let digits = |token: &&str| token.len() <= 5 && token.bytes().all(|b| b.is_ascii_digit());
        let from = match token {
            "" => Some(Vid::MIN),
            token => Some(token).filter(digits).and_then(|token| Vid::new(token.parse().ok()?)),
        };
        let from = from.ok_or_else(|| {
            let shown: String = token.chars().take(16).collect();
            invalid(format!(
                "page token {shown:?} is not valid: use the next_page_token of the answer before, or none for \
                 the first page"
            ))
        })?;
        Ok(Self { from, most: (size > 0).then(|| size.min(PAGE_MOST)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn pages_are_checked_and_no_larger_than_the_most() {
        let _deadline = Deadline::after(LIMIT);
        assert_eq!(Page::new(0, ""), Ok(Page::ALL));
        assert_eq!(Page::new(7, "").map(|page| page.most), Ok(Some(7)));
        assert_eq!(Page::new(i32::MAX, "65534").map(|page| page.most), Ok(Some(PAGE_MOST)));
        assert!(Page::new(-1, "").is_err());
        for bad in ["0", "65535", "65536", "-1", "+1", " 1", "1 ", "x", "000001", "１", &"9".repeat(1_000)] {
            let failure = Page::new(1, bad).expect_err(bad);
            assert!(failure.message.contains("next_page_token") && failure.message.len() < 200, "{bad}");
        }
    }
}
