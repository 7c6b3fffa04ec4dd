// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callers, and the rights that each has to a volume.
//!
//! A volume's entry names its owner and the principals that it is shared with, in labels with a reserved
//! prefix. So the rights are on every SSD, and a daemon that starts knows them.

use super::failure::Failure;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode::{InvalidArgument, PermissionDenied, ResourceExhausted};
use gnstor_proto::vendor::LABEL_BYTES;
use std::sync::Arc;

/// Prefix of the daemon's labels, which no request may set.
pub use gnstor_proto::labels::OWNER as OWNER_PREFIX;
/// The connection of a call whose connection has closed.
pub const HUNG_UP: u64 = u64::MAX;
/// Longest name of a principal, in bytes.
pub const PRINCIPAL_BYTES: usize = 64;

/// A right that a caller has to a volume; each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Right {
    /// See and read.
    Read,
    /// Write.
    Write,
    /// Delete, share and revoke.
    Admin,
}

impl Right {
    fn label(self) -> &'static str {
        match self {
            Self::Read => "gnstor.owner.read",
            Self::Write => "gnstor.owner.write",
            Self::Admin => "gnstor.owner.admin",
        }
    }

    /// The word for messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

/// The party that makes a request, as the server has proven it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The principal's name.
    pub name: Arc<str>,
    /// The caller has every right to every volume.
    pub admin: bool,
    /// The caller may create volumes.
    pub creator: bool,
    /// The daemon asks for no proof. It has one principal, which owns all volumes without an owner.
    pub single: bool,
    /// The connection that it calls on; [`HUNG_UP`] once that has closed.
    pub connection: u64,
    /// The client id that it has proven to be its own.
    pub client: ClientProof,
}

/// What a caller has proven about a client id, beside its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientProof {
    /// The daemon gives clients no secrets, so it asks for no proof.
    NotAsked,
    /// The same, and the caller says that it has this registration of the id.
    Said(ClientId, u64),
    /// The caller has proven nothing.
    Missing,
    /// The caller has the secret of this registration of the id.
    Of(ClientId, u64),
}

impl ClientProof {
    /// The registration of this id that the caller shows.
    pub(super) fn registration(self, id: ClientId) -> Option<u64> {
        match self {
            Self::Said(shown, serial) | Self::Of(shown, serial) if shown == id => Some(serial),
            Self::NotAsked | Self::Said(..) | Self::Missing | Self::Of(..) => None,
        }
    }
}

impl Caller {
    /// The one principal of a daemon that asks for no proof.
    pub fn local(connection: u64) -> Self {
        Self {
            name: "local".into(),
            admin: true,
            creator: true,
            single: true,
            connection,
            client: ClientProof::NotAsked,
        }
    }

    /// Whether an id that an earlier daemon gave may be the caller's. If clients have secrets, only a proof
    /// in the call counts. A daemon that asks for no names cannot tell callers apart.
    pub(super) fn may_be(&self, id: ClientId) -> bool {
        match self.client {
            ClientProof::NotAsked | ClientProof::Said(..) => true,
            ClientProof::Missing => self.single,
            ClientProof::Of(proven, _) => self.single || proven == id,
        }
    }

    /// The caller's right to a volume with these labels.
    pub(super) fn right(&self, labels: &str) -> Option<Right> {
        if self.admin || owner(labels) == Some(&self.name) {
            return Some(Right::Admin);
        }
        let listed = |right: &Right| list(labels, *right).any(|name| *name == *self.name);
        [Right::Admin, Right::Write, Right::Read].into_iter().find(listed)
    }

    /// Refuses the caller that lacks a right.
    pub(super) fn needs(&self, right: Right, labels: &str, name: &str) -> Result<(), Failure> {
        if self.right(labels) >= Some(right) {
            return Ok(());
        }
        Err(Failure::new(
            PermissionDenied,
            format!(
                "{:?} has no {} right to volume {name:?}: ask its owner for gnstor volume share",
                self.name,
                right.word()
            ),
        ))
    }
}

/// A principal's name: 1 to 64 printable bytes without a space, a comma or an equals sign.
pub fn is_principal(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= PRINCIPAL_BYTES
        && name.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b',' | b'='))
}

/// Checks the name of a principal in a request.
///
/// # Errors
/// `INVALID_ARGUMENT` when it is none.
pub fn principal(name: &str) -> Result<Arc<str>, Failure> {
    if is_principal(name) {
        return Ok(name.into());
    }
    let shown: String = name.chars().take(PRINCIPAL_BYTES).collect();
    Err(Failure::new(
        InvalidArgument,
        format!(
            "principal {shown:?} is not valid: use 1 to {PRINCIPAL_BYTES} printable characters without ' ', \
             ',' and '='"
        ),
    ))
}

fn value<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    labels.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

fn owner(labels: &str) -> Option<&str> {
    value(labels, OWNER_PREFIX)
}

fn list(labels: &str, right: Right) -> impl Iterator<Item = &str> {
    value(labels, right.label()).into_iter().flat_map(|names| names.split(','))
}

fn set(labels: &str, key: &str, value: &str) -> Result<String, Failure> {
    let kept = labels.lines().filter(|line| line.split_once('=').is_none_or(|(k, _)| k != key));
    let mut lines: Vec<String> = kept.map(str::to_owned).collect();
    if !value.is_empty() {
        lines.push(format!("{key}={value}"));
    }
    lines.sort_unstable();
    let text: String = lines.into_iter().flat_map(|line| [line, "\n".into()]).collect();
    if text.len() > LABEL_BYTES {
        let message = format!(
            "the labels, the owner and the principals it is shared with take {} bytes: {LABEL_BYTES} is the \
             most a volume can hold; use fewer labels, or revoke rights",
            text.len()
        );
        return Err(Failure::new(ResourceExhausted, message));
    }
    Ok(text)
}

/// Labels that name the caller as owner. The one principal of a daemon without proofs needs no label.
pub(super) fn owned(labels: &str, caller: &Caller) -> Result<String, Failure> {
    if caller.single { Ok(labels.into()) } else { set(labels, OWNER_PREFIX, &caller.name) }
}

/// Labels with a principal's right changed: it has `right` and no other, or none.
pub(super) fn shared(labels: &str, name: &str, right: Option<Right>) -> Result<String, Failure> {
    let mut labels = labels.to_owned();
    for each in [Right::Read, Right::Write, Right::Admin] {
        let mut names: Vec<&str> = list(&labels, each).filter(|&other| other != name).collect();
        if right == Some(each) {
            names.push(name);
        }
        names.sort_unstable();
        labels = set(&labels, each.label(), &names.join(","))?;
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    fn caller(name: &str) -> Caller {
        Caller {
            name: name.into(),
            admin: false,
            creator: true,
            single: false,
            connection: 0,
            client: ClientProof::NotAsked,
        }
    }

    #[test]
    fn the_owner_and_the_listed_have_their_rights_and_others_none() {
        let _deadline = Deadline::after(LIMIT);
        let labels = owned("a=1\n", &caller("anna")).unwrap();
        assert_eq!(labels, "a=1\ngnstor.owner=anna\n");
        let labels = shared(&labels, "ben", Some(Right::Read)).unwrap();
        let labels = shared(&labels, "carl", Some(Right::Write)).unwrap();
        let right = |name| caller(name).right(&labels);
        assert_eq!(right("anna"), Some(Right::Admin));
        assert_eq!(right("ben"), Some(Right::Read));
        assert_eq!(right("carl"), Some(Right::Write));
        for stranger in ["an", "anna2", "ben,carl", "", "be"] {
            assert_eq!(right(stranger), None, "{stranger}");
        }
        let labels = shared(&labels, "ben", Some(Right::Admin)).unwrap();
        assert_eq!(caller("ben").right(&labels), Some(Right::Admin));
        let labels = shared(&labels, "ben", None).unwrap();
        assert_eq!((caller("ben").right(&labels), caller("carl").right(&labels)), (None, Some(Right::Write)));
        assert_eq!(caller("anna").right("a=gnstor.owner=anna\n"), None, "a value is no label");
        assert_eq!(caller("local").right(""), None, "a name gives no right to volumes without an owner");
        assert_eq!(Caller::local(0).right(&labels), Some(Right::Admin));
    }

    #[test]
    fn names_that_would_break_a_list_are_no_principals() {
        let _deadline = Deadline::after(LIMIT);
        for good in ["anna", "CN-1", "spiffe://cluster/gpu7", "a@b.c"] {
            assert!(is_principal(good), "{good}");
        }
        for bad in ["", "a,b", "a=b", "a b", "a\nb", "ä", &"x".repeat(65)] {
            assert!(!is_principal(bad), "{bad}");
        }
        let full = "k=".to_owned() + &"x".repeat(1000) + "\n";
        assert_eq!(owned(&full, &caller(&"y".repeat(64))).unwrap_err().code, ResourceExhausted);
    }
}
