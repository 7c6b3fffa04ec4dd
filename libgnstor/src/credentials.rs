// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The proofs that a client has for the daemon, and the daemon's for the client: TLS files and a token.

use crate::daemons::{self, Daemons};
use crate::error::Error;
use gnstor_auth::{CLIENT_PROOF, ShownClient};
use gnstor_fabric::tcp::ClientTls;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Files that a client connects with. The default has none: the daemon listens on loopback, and asks for no
/// proof.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    /// PEM of the CA that issued the daemon's certificate. With it the client speaks TLS.
    pub tls_ca: Option<PathBuf>,
    /// PEM of the client's certificate.
    pub tls_cert: Option<PathBuf>,
    /// PEM of its key.
    pub tls_key: Option<PathBuf>,
    /// A file with the client's token.
    pub token_file: Option<PathBuf>,
    /// The token may go to another machine without TLS, so an attacker on the wire may read it.
    pub insecure: bool,
}

impl Credentials {
    /// Credentials from the files in `GNSTOR_TLS_CA`, `GNSTOR_TLS_CERT`, `GNSTOR_TLS_KEY` and
    /// `GNSTOR_TOKEN_FILE`. `GNSTOR_INSECURE=true` lets the token go to another machine without TLS.
    pub fn from_env() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            tls_ca: path("GNSTOR_TLS_CA"),
            tls_cert: path("GNSTOR_TLS_CERT"),
            tls_key: path("GNSTOR_TLS_KEY"),
            token_file: path("GNSTOR_TOKEN_FILE"),
            insecure: std::env::var_os("GNSTOR_INSECURE").is_some_and(|value| value == "true"),
        }
    }

    /// The daemon at `address`, or several, divided by commas; and the proof for each call. With TLS the
    /// certificate of each has the host name of the first one.
    ///
    /// # Errors
    /// [`Error::Credentials`]: a file cannot be read, or others can read a secret in it. Or certificate or
    /// key is missing, or the token would go to another machine without TLS.
    pub fn daemons(&self, list: &str) -> Result<(Daemons, Proof), Error> {
        let scheme = if self.tls_ca.is_some() { "https" } else { "http" };
        let url = |address: &str| {
            let url = if address.contains("://") { address.into() } else { format!("{scheme}://{address}") };
            Endpoint::from_shared(url)
                .map_err(|e| Error::Unreachable { endpoint: address.into(), cause: e.to_string() })
        };
        let urls = daemons::addresses(list).map(url).collect::<Result<Vec<_>, _>>()?;
        let is_tls = urls[0].uri().scheme_str() == Some("https");
        let mut endpoint = urls[0].clone().connect_timeout(CONNECT);
        match &self.tls_ca {
            Some(_) if is_tls && self.tls_cert.is_some() != self.tls_key.is_some() => {
                return Err(wrong("a client certificate and its key are used together"));
            }
            Some(ca) if is_tls => {
                let ca_text = read(ca)?;
                ClientTls::new(&ca_text, None).map_err(|why| wrong(format!("{}: {why}", ca.display())))?;
                let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&ca_text));
                if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
                    let (own, own_key) = (read(certificate)?, read_secret(key)?);
                    let named = |why: String| {
                        wrong(format!("{} and {}: {why}", certificate.display(), key.display()))
                    };
                    ClientTls::new(&ca_text, Some((&own, &own_key))).map_err(named)?;
                    tls = tls.identity(Identity::from_pem(own, own_key));
                }
                endpoint = endpoint.tls_config(tls).map_err(|e| wrong(root_cause(&e)))?;
            }
            None if is_tls => return Err(wrong("https needs the CA of the daemon's certificate (--tls-ca)")),
            Some(_) => return Err(wrong("an address with http:// is not reached by TLS: write https://")),
            None if self.tls_cert.is_some() || self.tls_key.is_some() => {
                return Err(wrong("a client certificate needs TLS: name the daemon's CA (--tls-ca)"));
            }
            None => {}
        }
        let token = match &self.token_file {
            None => None,
            Some(_) if !is_tls && !self.insecure && !urls.iter().all(is_loopback) => {
                return Err(wrong(
                    "the token would go to another machine in clear: name the CA of the daemon's certificate \
                     (--tls-ca), or accept that an attacker on the wire may read it (--insecure)",
                ));
            }
            Some(path) => {
                let no_token = |why: &str| wrong(format!("{}: the token is {why}", path.display()));
                let text = String::from_utf8(read_secret(path)?).map_err(|_| no_token("no text"))?;
                let value = format!("Bearer {}", text.trim()).parse::<MetadataValue<Ascii>>();
                let mut value = value.map_err(|_| no_token(
                        "not one line of printable ASCII (a list for gnstor up --tokens is none: name a file with \
                         the caller's token alone)",
                    ))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok((Daemons::new(endpoint, &urls)?, Proof { token, client: Arc::default() }))
    }
}

impl Credentials {
    /// TLS for the SSDs of an array, with the files for the daemon.
    ///
    /// # Errors
    /// [`Error::Credentials`]: no CA is named, or a file is unreadable or not valid.
    pub fn data_tls(&self) -> Result<ClientTls, Error> {
        let Some(ca) = &self.tls_ca else {
            return Err(wrong("the SSDs are reached by TLS: name the CA of their certificates (--tls-ca)"));
        };
        let proof = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read_secret(key)?)),
            _ => None,
        };
        let proof = proof.as_ref().map(|(certificate, key)| (certificate.as_slice(), key.as_slice()));
        ClientTls::new(&read(ca)?, proof).map_err(wrong)
    }
}

/// Adds the token to each call, and the proof of the client's id once it has one.
#[derive(Clone, Debug)]
pub struct Proof {
    token: Option<MetadataValue<Ascii>>,
    client: Arc<OnceLock<MetadataValue<Ascii>>>,
}

impl Proof {
    /// From here on each call shows that the caller is this client.
    pub(crate) fn set_client(&self, shown: &ShownClient) {
        let mut value: MetadataValue<Ascii> = shown.to_text().parse().expect("digits and spaces");
        value.set_sensitive(true);
        // A connection registers once.
        let _ = self.client.set(value);
    }
}

/// A channel whose calls carry the token.
pub type SignedChannel = InterceptedService<Channel, Proof>;

impl Interceptor for Proof {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        if let Some(client) = self.client.get() {
            request.metadata_mut().insert(CLIENT_PROOF, client.clone());
        }
        Ok(request)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|e| wrong(format!("{}: {e}", path.display())))
}

/// Reads a file that only its user may read.
fn read_secret(path: &Path) -> Result<Vec<u8>, Error> {
    gnstor_auth::check_private(path).map_err(wrong)?;
    read(path)
}

/// Whether the daemon is on this machine, as far as its address tells.
fn is_loopback(endpoint: &Endpoint) -> bool {
    let host = endpoint.uri().host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn wrong(why: impl Into<String>) -> Error {
    Error::Credentials(why.into())
}

pub(crate) fn root_cause(e: &dyn std::error::Error) -> String {
    let mut cause = e;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn half_a_credential_is_named() {
        let _deadline = Deadline::after(LIMIT);
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "text").unwrap();
            set_mode(&path, 0o600);
            Some(path)
        };
        let none = Credentials::default();
        let says = |credentials: &Credentials, address: &str, word: &str| {
            let error = credentials.daemons(address).map(drop).unwrap_err().to_string();
            assert!(error.contains(word), "{word:?} is not in {error}");
        };
        says(&none, "https://host:1", "--tls-ca");
        says(&Credentials { tls_cert: file("c"), ..none.clone() }, "host:1", "needs TLS");
        says(&Credentials { tls_ca: file("ca"), ..none.clone() }, "http://host:1", "write https://");
        let half = Credentials { tls_ca: file("ca"), tls_key: file("k"), ..none.clone() };
        says(&half, "host:1", "together");
        says(&Credentials { token_file: Some("/nowhere".into()), ..none.clone() }, "[::1]:1", "/nowhere");
        let token = Credentials { token_file: file("t"), ..none };
        for address in ["127.0.0.1:1", "localhost:1", "[::1]:1", "http://127.9.9.9:1"] {
            let (_, proof) = token.daemons(address).unwrap();
            assert!(!format!("{proof:?}").contains("text"), "a token is never shown: {proof:?}");
        }
        // A daemon of another machine would be shown the token, and so would the wire.
        for address in
            ["host:1", "127.0.0.1:1,host:1", "192.0.2.1:1", "http://[2001:db8::1]:1", "localhost.example:1"]
        {
            says(&token, address, "in clear");
            Credentials { insecure: true, ..token.clone() }.daemons(address).unwrap();
        }
        set_mode(token.token_file.as_ref().unwrap(), 0o640);
        says(&token, "localhost:1", "chmod 600");
    }

    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}
