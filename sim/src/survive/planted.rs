// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mistakes that a build makes on purpose, to see whether the checkers find them. This build makes none:
//! `scripts/planted-survive` plants them in a copy of the files, in which this file is another one.

/// From now on this mistake is made.
///
/// # Errors
/// A sentence, if the build does not have it.
pub fn plant(name: &str) -> Result<(), String> {
    Err(format!(
        "the mistake '{name}' is not in this build, which has none: scripts/planted-survive {name} builds one \
         that has it"
    ))
}
