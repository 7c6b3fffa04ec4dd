// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists that the daemon gives in pages.

use crate::error::Error;

/// Volumes or leases of one answer of the daemon. So no answer is too long, however many there are.
pub const PAGE: i32 = 500;

/// Asks for page after page until the daemon says that none follows.
///
/// # Errors
/// As the call for a page; [`Error::Protocol`] if the daemon names the same page twice.
pub(crate) fn pages<T>(
    mut ask: impl FnMut(String) -> Result<(Vec<T>, String), Error>,
) -> Result<Vec<T>, Error> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let (page, next) = ask(token.clone())?;
        all.extend(page);
        if next.is_empty() {
            return Ok(all);
        }
        if next == token {
            return Err(Error::Protocol(format!("page {token:?} follows itself")));
        }
        token = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn pages_are_read_to_the_last_one_and_one_that_follows_itself_is_an_error() {
        let _deadline = Deadline::after(LIMIT);
        let book = |token: String| {
            Ok(match token.as_str() {
                "" => (vec![1, 2], "a".into()),
                "a" => (vec![], "b".into()),
                _ => (vec![3], String::new()),
            })
        };
        assert_eq!(pages(book).ok(), Some(vec![1, 2, 3]));
        let error = pages(|_| Ok((vec![1], "a".into()))).expect_err("it would never end");
        assert!(error.to_string().contains("follows itself"), "{error}");
    }
}
