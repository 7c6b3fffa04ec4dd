// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters of lists of volumes, leases and SSDs: `--filter WORD=VALUE`.

use libgnstor::{LeaseInfo, Rights, VolumeInfo};

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

/// A condition on a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseFilter {
    /// The volume's name matches a pattern of `*` (any text) and `?` (any character).
    Volume(String),
    /// This client has it.
    Client(u32),
    /// The principal's name matches a pattern; one that the daemon does not know has the name `-`.
    Principal(String),
    /// The client may read, or may write.
    Rights(Rights),
}

/// A condition on an SSD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SsdFilter {
    /// Its state matches a pattern of `*` (any text) and `?` (any character).
    State(String),
    /// It is on this node.
    Node(u32),
    /// It is in this rack.
    Rack(u32),
}

/// Reads the `WORD=VALUE` of a list of SSDs.
///
/// # Errors
/// A sentence about what is wrong.
pub(crate) fn parse_ssd_filter(text: &str) -> Result<SsdFilter, String> {
    match split(text, "state=filling")? {
        ("state", value) => Ok(SsdFilter::State(value.into())),
        ("node", value) => Ok(SsdFilter::Node(number("node", value)?)),
        ("rack", value) => Ok(SsdFilter::Rack(number("rack", value)?)),
        (word, _) => Err(format!("'{word}' is not a word of a filter; use state, node or rack")),
    }
}

impl SsdFilter {
    /// An SSD with these fulfils it.
    pub(crate) fn matches(&self, state: &str, node: u32, rack: u32) -> bool {
        match self {
            Self::State(pattern) => glob(pattern.as_bytes(), state.as_bytes()),
            Self::Node(number) => node == *number,
            Self::Rack(number) => rack == *number,
        }
    }
}

/// The word and the value of `WORD=VALUE`.
fn split<'a>(text: &'a str, example: &str) -> Result<(&'a str, &'a str), String> {
    text.split_once('=').ok_or_else(|| format!("'{text}' is not a filter; write it like {example}"))
}

fn number(word: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("{word}={value}: '{value}' is not a number"))
}

/// Reads the `WORD=VALUE` of a list of leases.
///
/// # Errors
/// A sentence about what is wrong.
pub(crate) fn parse_lease(text: &str) -> Result<LeaseFilter, String> {
    let (word, value) = split(text, "volume=train-*")?;
    match (word, value) {
        ("volume", _) => Ok(LeaseFilter::Volume(value.into())),
        ("client", _) => Ok(LeaseFilter::Client(number(word, value)?)),
        ("principal", _) => Ok(LeaseFilter::Principal(value.into())),
        ("rights", "read") => Ok(LeaseFilter::Rights(Rights::Read)),
        ("rights", "write") => Ok(LeaseFilter::Rights(Rights::Write)),
        ("rights", _) => Err(format!("rights={value}: use read or write")),
        _ => Err(format!("'{word}' is not a word of a filter; use volume, client, principal or rights")),
    }
}

impl LeaseFilter {
    /// The lease fulfils it.
    pub(crate) fn matches(&self, lease: &LeaseInfo) -> bool {
        match self {
            Self::Volume(pattern) => glob(pattern.as_bytes(), lease.volume.as_bytes()),
            Self::Client(client) => lease.client == *client,
            Self::Principal(pattern) => {
                glob(pattern.as_bytes(), lease.principal.as_deref().unwrap_or("-").as_bytes())
            }
            Self::Rights(rights) => lease.rights == *rights,
        }
    }
}

/// Reads the `WORD=VALUE` of a list of volumes.
///
/// # Errors
/// A sentence about what is wrong.
pub(crate) fn parse(text: &str) -> Result<Filter, String> {
    let (word, value) = split(text, "name=train-*")?;
    match word {
        "name" => Ok(Filter::Name(value.into())),
        "label" => Ok(match value.split_once('=') {
            Some((key, value)) => Filter::Label(key.into(), Some(value.into())),
            None => Filter::Label(value.into(), None),
        }),
        "replicas" => Ok(Filter::Replicas(number(word, value)?)),
        "writer" if value == "none" => Ok(Filter::Writer(None)),
        "writer" => Ok(Filter::Writer(Some(number(word, value)?))),
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
        assert_eq!(parse_lease("rights=write"), Ok(LeaseFilter::Rights(Rights::Write)));
        assert_eq!(parse_ssd_filter("rack=2"), Ok(SsdFilter::Rack(2)));
        assert!(["state", "node=b", "ssd=1"].iter().all(|wrong| parse_ssd_filter(wrong).is_err()));
        let wrong = ["volume", "name=v", "client=two", "rights=all"];
        assert!(wrong.iter().all(|wrong| parse_lease(wrong).is_err()));
    }
}
