// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proofs of callers: client certificates and tokens, and what may listen without them.

use crate::core::rights::{Caller, ClientProof, is_principal};
use gnstor_fabric::tcp::{Callers, ServerTls};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tonic::Status;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Shortest token, in bytes.
const TOKEN_BYTES: usize = 16;

/// Which callers may call the daemon, and by which proof. The default asks for no proof, and serves loopback
/// only.
#[derive(Clone, Default, Debug)]
pub struct Access {
    /// The daemon's certificate and key.
    pub tls: Option<Tls>,
    /// Tokens of callers.
    pub tokens: Option<Tokens>,
    /// Principals with every right to every volume.
    pub admins: Vec<String>,
    /// Principals that may create volumes; `None`: each that is proven.
    pub creators: Option<Vec<String>>,
    /// Serve an address that others reach, without TLS or without proof.
    pub insecure: bool,
}

/// TLS of the daemon, in PEM.
#[derive(Clone)]
pub struct Tls {
    /// The daemon's certificate.
    pub certificate: Vec<u8>,
    /// Key of the certificate.
    pub key: Vec<u8>,
    /// The CA of client certificates.
    pub client_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("client_ca", &self.client_ca.is_some()).finish_non_exhaustive()
    }
}

/// Tokens, by their SHA-256: the time of a look-up says nothing of a token.
#[derive(Clone, Default)]
pub struct Tokens(BTreeMap<[u8; 32], Arc<str>>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// Reads a file of lines `NAME TOKEN`. Empty lines, and lines that begin with `#`, are skipped.
    ///
    /// # Errors
    /// A sentence with the file and the line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        gnstor_auth::check_private(path)?;
        let text = std::fs::read_to_string(path).map_err(|e| format!("the tokens in {shown}: {e}"))?;
        Self::parse(&text).map_err(|why| format!("the tokens in {shown}: {why}"))
    }

    /// Reads lines `NAME TOKEN`.
    ///
    /// # Errors
    /// A sentence with the line's number, never with its content.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            let mut words = line.split_whitespace();
            let (name, token) = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(first), ..) if first.starts_with('#') => continue,
                (Some(name), Some(token), None) => (name, token),
                _ => return Err(format!("line {number} is not 'NAME TOKEN'")),
            };
            if !is_principal(name) {
                return Err(format!(
                    "the name in line {number} is not valid: no ',' and '=', at most 64 bytes"
                ));
            }
            if token.len() < TOKEN_BYTES {
                return Err(format!("the token in line {number} is shorter than {TOKEN_BYTES} characters"));
            }
            if tokens.insert(digest(token), Arc::from(name)).is_some() {
                return Err(format!("the token in line {number} is there twice"));
            }
        }
        Ok(Self(tokens))
    }

    fn name(&self, token: &str) -> Option<Arc<str>> {
        self.0.get(&digest(token)).cloned()
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl Tls {
    /// Reads PEM files.
    ///
    /// # Errors
    /// A sentence with the file.
    pub fn read(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, String> {
        gnstor_auth::check_private(key)?;
        let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        Ok(Self {
            certificate: read(certificate)?,
            key: read(key)?,
            client_ca: client_ca.map(read).transpose()?,
        })
    }
}

impl Access {
    /// Callers prove their names.
    pub fn is_proven(&self) -> bool {
        self.tokens.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// A sentence if `address` must not be listened on like this.
    pub fn objection(&self, address: SocketAddr) -> Option<String> {
        if address.ip().is_loopback() || self.insecure || (self.tls.is_some() && self.is_proven()) {
            return None;
        }
        let lacks = if self.tls.is_none() { "TLS" } else { "proof of callers" };
        Some(format!(
            "the daemon does not listen on {address} without {lacks}, because others reach that address: use \
             --tls CERT KEY with --client-ca CA or --tokens FILE, a loopback address, or --insecure"
        ))
    }

    /// The warning of `--insecure` for `address`; `None` if there is no danger.
    pub fn warning(&self, address: SocketAddr) -> Option<String> {
        let as_if_secure = Self { insecure: false, ..self.clone() };
        as_if_secure.objection(address)?;
        let wire = "an attacker on the wire reads and changes what is sent";
        let wire = if self.tls.is_some() { "" } else { wire };
        let calls = "each caller may read, change and delete every volume";
        let calls = if self.is_proven() { "" } else { calls };
        let both = [calls, wire].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
        Some(format!("insecure: others reach {address}; {both}"))
    }

    /// TLS of the daemon and its data port; `None`: without TLS.
    ///
    /// # Errors
    /// A sentence: a file has the wrong content.
    pub fn server_tls(&self) -> Result<Option<ServerTls>, String> {
        let Some(Tls { certificate, key, client_ca }) = &self.tls else { return Ok(None) };
        let callers = match client_ca.as_deref() {
            None => Callers::Any,
            Some(ca) if self.tokens.is_some() => Callers::KnownOrSilent(ca),
            Some(ca) => Callers::Known(ca),
        };
        ServerTls::new(certificate, key, callers).map(Some)
    }

    /// The caller that the proofs name.
    pub(super) fn caller(
        &self,
        connection: u64,
        certificate: Option<&[u8]>,
        authorization: Option<&str>,
    ) -> Result<Caller, Status> {
        if !self.is_proven() {
            return Ok(Caller::local(connection));
        }
        let refuse = |why: &str| Status::unauthenticated(why.to_owned());
        let certified = match certificate {
            None => None,
            Some(der) => Some(principal(der).ok_or_else(|| {
                refuse(
                    "the client certificate names no principal: it needs a URI or a common name that is one",
                )
            })?),
        };
        let told = match (authorization, &self.tokens) {
            (Some(value), Some(tokens)) => {
                let token = value.strip_prefix("Bearer ").unwrap_or_default();
                Some(tokens.name(token).ok_or_else(|| refuse("the token is not one of this daemon's"))?)
            }
            _ => None,
        };
        let name = match (certified, told) {
            (Some(a), Some(b)) if a != b => {
                return Err(refuse(
                    "the client certificate and the token name different principals: use one",
                ));
            }
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => {
                return Err(refuse(
                    "this daemon serves callers that prove their name: use --tls-cert and --tls-key, or \
                     --token-file",
                ));
            }
        };
        let is_in = |names: &[String]| names.iter().any(|other| **other == *name);
        let admin = is_in(&self.admins);
        let creator = admin || self.creators.as_deref().is_none_or(is_in);
        Ok(Caller { admin, creator, name, single: false, connection, client: ClientProof::NotAsked })
    }
}

/// The principal that a certificate names: its first URI, else its common name.
fn principal(der: &[u8]) -> Option<Arc<str>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let names = certificate.subject_alternative_name().ok()?;
    let uri = names.iter().flat_map(|names| &names.value.general_names).find_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let common = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    uri.or(common).filter(|name| is_principal(name)).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    const ANNA: &str = "0123456789abcdef";

    fn access() -> Access {
        let tokens = Tokens::parse(&format!("# who\n\nanna {ANNA}\nben fedcba9876543210\n")).unwrap();
        Access { tokens: Some(tokens), admins: vec!["ben".into()], ..Access::default() }
    }

    fn tls() -> Tls {
        Tls { certificate: Vec::new(), key: Vec::new(), client_ca: None }
    }

    #[test]
    fn a_token_is_the_whole_token_of_its_principal() {
        let _deadline = Deadline::after(LIMIT);
        let access = access();
        let name = |value: Option<&str>| access.caller(1, None, value).map(|caller| caller.name.to_string());
        assert_eq!(name(Some(&format!("Bearer {ANNA}"))).unwrap(), "anna");
        for bad in ["", "Bearer ", ANNA, "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "bearer x"] {
            assert_eq!(name(Some(bad)).unwrap_err().code(), tonic::Code::Unauthenticated, "{bad}");
        }
        assert!(name(None).is_err());
        assert!(!format!("{access:?}").contains(ANNA), "a token is never shown");
    }

    #[test]
    fn rights_of_the_daemons_lists() {
        let _deadline = Deadline::after(LIMIT);
        let mut access = access();
        let bearer = format!("Bearer {ANNA}");
        let anna = access.caller(1, None, Some(&bearer)).unwrap();
        assert!((anna.creator, anna.admin, anna.single) == (true, false, false));
        access.creators = Some(Vec::new());
        let anna = access.caller(1, None, Some(&bearer)).unwrap();
        let ben = access.caller(1, None, Some("Bearer fedcba9876543210")).unwrap();
        assert!(!anna.creator && ben.creator && ben.admin);
    }

    #[test]
    fn files_that_are_no_token_files_are_refused_without_their_content() {
        let _deadline = Deadline::after(LIMIT);
        for (bad, line) in [
            ("Anna77", "line 1"),
            ("\nAnna77 Sh0rt", "line 2"),
            ("Anna77,Ben77 0123456789abcdef", "line 1"),
            ("Anna77 Ben77 Carl77", "line 1"),
        ] {
            let why = Tokens::parse(bad).unwrap_err();
            let shown = bad.split(['\n', ' ', ',']).find(|word| !word.is_empty() && why.contains(word));
            assert!(why.contains(line) && shown.is_none(), "{why}");
        }
        let twice = format!("anna {ANNA}\nben {ANNA}");
        let why = Tokens::parse(&twice).unwrap_err();
        assert!(why.contains("twice") && !why.contains(ANNA), "{why}");
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Tokens::read(file.path()).is_ok());
        use std::os::unix::fs::PermissionsExt as _;
        for mode in [0o640, 0o604, 0o620, 0o644] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(Tokens::read(file.path()).unwrap_err().contains("chmod 600"), "{mode:o}");
        }
    }

    #[test]
    fn an_address_that_others_reach_needs_tls_and_proof() {
        let _deadline = Deadline::after(LIMIT);
        let (loopback, open) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let none = Access::default();
        assert_eq!((none.objection(loopback), none.warning(loopback)), (None, None));
        assert!(none.objection(open).unwrap().contains("--insecure"));
        assert!(access().objection(open).unwrap().contains("without TLS"));
        let encrypted = Access { tls: Some(tls()), ..Access::default() };
        assert!(encrypted.objection(open).unwrap().contains("proof"));
        assert_eq!(Access { tls: Some(tls()), ..access() }.objection(open), None);
        let insecure = Access { insecure: true, ..Access::default() };
        assert_eq!(insecure.objection(open), None);
        let warning = insecure.warning(open).unwrap();
        assert!(
            warning.contains("delete every volume") && warning.contains("reads and changes"),
            "{warning}"
        );
    }

    #[test]
    fn a_certificate_names_its_uri_or_its_common_name() {
        let _deadline = Deadline::after(LIMIT);
        let key = rcgen::KeyPair::generate().unwrap();
        let made = |common: &str, uri: Option<&str>| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, common);
            params.subject_alt_names =
                uri.map(|uri| rcgen::SanType::URI(uri.try_into().unwrap())).into_iter().collect();
            let certificate = params.self_signed(&key).unwrap();
            principal(certificate.der()).map(|name| name.to_string())
        };
        assert_eq!(made("anna", None).as_deref(), Some("anna"));
        assert_eq!(made("anna", Some("spiffe://a/ben")).as_deref(), Some("spiffe://a/ben"));
        assert_eq!(made("a,b", None), None);
        assert_eq!(principal(b"no certificate"), None);
    }
}
