// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters of lists of volumes: `--filter WORD=VALUE`.

use libgnstor::VolumeInfo;

/// A condition on a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// The name matches a pattern of `*` (any text) and `?` (any character).
    Name(String),
    /// The volume has a label with this key, and with this value if one is given.
    Label(String, Option<String>),
    /// The volume has this number of replicas.
    Replicas(u32),
    /// This client has the write lease; `None`: no client has it.
    Writer(Option<u32>),
}

/// Reads `WORD=VALUE`.
///
/// # Errors
/// A sentence about what is wrong.
pub(crate) fn parse(text: &str) -> Result<Filter, String> {
    let (word, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not a filter; write it like name=train-*"))?;
    let number = || value.parse::<u32>().map_err(|_| format!("{word}={value}: '{value}' is not a number"));
    match word {
        "name" => Ok(Filter::Name(value.into())),
        "label" => Ok(match value.split_once('=') {
            Some((key, value)) => Filter::Label(key.into(), Some(value.into())),
            None => Filter::Label(value.into(), None),
        }),
        "replicas" => Ok(Filter::Replicas(number()?)),
        "writer" if value == "none" => Ok(Filter::Writer(None)),
        "writer" => Ok(Filter::Writer(Some(number()?))),
        _ => Err(format!("'{word}' is not a word of a filter; use name, label, replicas or writer")),
    }
}

impl Filter {
    /// The volume fulfils it.
    pub(crate) fn matches(&self, volume: &VolumeInfo) -> bool {
        match self {
            Self::Name(pattern) => glob(pattern.as_bytes(), volume.name.as_bytes()),
            Self::Label(key, None) => volume.labels.contains_key(key),
            Self::Label(key, Some(value)) => volume.labels.get(key) == Some(value),
            Self::Replicas(replicas) => volume.replicas == *replicas,
            Self::Writer(writer) => volume.writer == *writer,
        }
    }
}

/// Whether the text matches the pattern. After a mismatch the last `*` takes one more byte.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn patterns_match_whole_names() {
        let _deadline = deadline();
        for (pattern, text) in [("*", ""), ("a*c", "abbc"), ("a?c", "abc"), ("*-1", "train-1"), ("**x", "x")]
        {
            assert!(glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*c", "abcd"), ("?", ""), ("*-1", "train-2"), ("", "x")] {
            assert!(!glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn a_filter_is_a_word_and_a_value() {
        let _deadline = deadline();
        assert_eq!(parse("label=kind=text"), Ok(Filter::Label("kind".into(), Some("text".into()))));
        assert_eq!(parse("writer=none"), Ok(Filter::Writer(None)));
        assert!(["name", "size=1", "replicas=two", "writer="].iter().all(|wrong| parse(wrong).is_err()));
    }
}
