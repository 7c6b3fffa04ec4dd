// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that options name. One that is missing is a wrong command line.

use gnstor_console::CliError;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Checks that these files can be read; each is named with its option.
///
/// # Errors
/// [`CliError::Usage`] names all that cannot be read.
pub(crate) fn readable<'a>(named: impl IntoIterator<Item = (&'a str, &'a Path)>) -> Result<(), CliError> {
    let wrong = |(option, path): (&str, &Path)| {
        let why = fault(path)?;
        Some(format!("{option} {}: {why}", path.display()))
    };
    let wrong: Vec<String> = named.into_iter().filter_map(wrong).collect();
    if wrong.is_empty() { Ok(()) } else { Err(CliError::Usage(wrong.join("; "))) }
}

/// Why the file cannot be read.
fn fault(path: &Path) -> Option<String> {
    // A pipe is not opened: its writer would see a reader that goes away.
    let found = std::fs::metadata(path).and_then(|meta| match meta.is_file() {
        true => File::open(path).map(|_| meta),
        false => Ok(meta),
    });
    match found {
        Ok(meta) if meta.is_dir() => Some("it is a directory, not a file".into()),
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => Some("No such file or directory".into()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Some("it may not be read".into()),
        Err(error) => Some(error.to_string()),
    }
}
