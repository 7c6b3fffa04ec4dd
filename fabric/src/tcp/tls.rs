// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS of a TCP stream: version 1.3 only, by `rustls`. The array may ask each client for a certificate, which
//! a given CA has signed.
//!
//! ```text
//!   client                                              array
//!     ClientTls::hello ---------- handshake ----------> Wire::accept, Wire::shake_hands
//!         (waits, within a deadline) <-- one ticket --- (the client's certificate is good, or none asked)
//!     Wire::poll, Wire::flush <------- records -------> Wire::poll, Wire::flush
//! ```
//! In TLS 1.3 a client ends its handshake before the array has checked the client's certificate. The array
//! then sends a ticket or an alert, and the client waits for it. So a client without a good certificate fails
//! when it connects. Sessions are not resumed: each connection proves its certificate.
//!
//! The TLS library bounds records. The stream hands it a piece of its outbox only when the operating system
//! has taken the records before. So a peer that does not read holds 64 KiB more than without TLS.

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that the TLS library gets at a time.
const PIECE: usize = 64 << 10;

/// Certificates that an array asks of its clients.
#[derive(Clone, Copy, Debug)]
pub enum Callers<'a> {
    /// The array asks for none.
    Any,
    /// A certificate of this CA (PEM).
    Known(&'a [u8]),
    /// A certificate of this CA (PEM), or none. Other certificates are refused.
    KnownOrSilent(&'a [u8]),
}

/// TLS settings of an array.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ServerConfig>);

/// TLS settings of a client.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

fn sentence(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn roots(ca: &[u8]) -> std::result::Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        let certificate = certificate.map_err(|e| format!("the CA is no PEM file: {e}"))?;
        roots.add(certificate).map_err(|e| format!("the CA's certificate: {e}"))?;
    }
    if roots.is_empty() { Err("the CA's file has no certificate".into()) } else { Ok(Arc::new(roots)) }
}

/// Why a certificate and a key do not go together.
fn apart(error: rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => "the key is not that of the certificate".into(),
        error => format!("certificate and key: {error}"),
    }
}

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn own(certificate: &[u8], key: &[u8]) -> std::result::Result<Own, String> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<std::result::Result<Vec<_>, _>>();
    let chain = chain.map_err(|e| format!("the certificate is no PEM file: {e}"))?;
    if chain.is_empty() {
        return Err("the certificate's file has no certificate".into());
    }
    // The error of a PEM parser names no byte of the key.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("the key is no PEM file: {e}"))?;
    Ok((chain, key))
}

impl ServerTls {
    /// An array with this certificate and key (PEM).
    ///
    /// # Errors
    /// A sentence: a file holds something else, or they do not belong together.
    pub fn new(certificate: &[u8], key: &[u8], callers: Callers<'_>) -> std::result::Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = |ca| {
            roots(ca).map(|roots| WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)))
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(&[&TLS13]).map_err(sentence)?;
        let builder = match callers {
            Callers::Any => builder.with_no_client_auth(),
            Callers::Known(ca) => builder.with_client_cert_verifier(verifier(ca)?.build().map_err(sentence)?),
            Callers::KnownOrSilent(ca) => {
                let verifier = verifier(ca)?.allow_unauthenticated();
                builder.with_client_cert_verifier(verifier.build().map_err(sentence)?)
            }
        };
        let (chain, key) = own(certificate, key)?;
        let mut config = builder.with_single_cert(chain, key).map_err(apart)?;
        // One ticket tells the client that its certificate was accepted.
        config.send_tls13_tickets = 1;
        Ok(Self(Arc::new(config)))
    }

    /// The same settings for a server that speaks HTTP/2.
    pub fn for_http2(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.0);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

impl ClientTls {
    /// A client that trusts this CA, and has perhaps a certificate and a key of its own (PEM).
    ///
    /// # Errors
    /// A sentence: a file holds something else, or they do not belong together.
    pub fn new(ca: &[u8], proof: Option<(&[u8], &[u8])>) -> std::result::Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(sentence)?.with_root_certificates(roots(ca)?);
        let mut config = match proof {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, key) = own(certificate, key)?;
                builder.with_client_auth_cert(chain, key).map_err(apart)?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// The handshake of a client with an array that is called `host`, and the array's word that it took the
    /// client's certificate. The stream blocks meanwhile.
    #[expect(clippy::disallowed_methods, reason = "a bounded wait in real time for another process")]
    pub(super) fn hello(&self, tcp: TcpStream, host: &str, within: Duration) -> Result<Stream> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::new(ErrorKind::InvalidInput, format!("'{host}' is no name of a host")))?;
        let tls = ClientConnection::new(Arc::clone(&self.0), name).map_err(Error::other)?;
        let mut session = Session { tcp, tls: tls.into(), piece: 0 };
        let until = Instant::now() + within;
        let mut is_told = false;
        while !is_told {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(ErrorKind::TimedOut, "the TLS handshake takes too long"));
            }
            session.tcp.set_read_timeout(Some(left))?;
            session.tcp.set_write_timeout(Some(left))?;
            while session.tls.wants_write() {
                session.tls.write_tls(&mut session.tcp)?;
            }
            // A message after the handshake is the array's verdict.
            is_told = !session.tls.is_handshaking();
            if session.tls.read_tls(&mut session.tcp).map_err(late)? == 0 {
                return Err(Error::new(
                    ErrorKind::ConnectionAborted,
                    "the peer ended the TLS handshake; does it speak TLS?",
                ));
            }
            session.tls.process_new_packets().map_err(broken)?;
        }
        Ok(Stream::Tls(Box::new(session)))
    }
}

fn late(e: Error) -> Error {
    let is_late = matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    if is_late { Error::new(ErrorKind::TimedOut, "the TLS handshake takes too long") } else { e }
}

fn broken(e: rustls::Error) -> Error {
    Error::new(ErrorKind::InvalidData, format!("TLS: {e}"))
}

/// A stream's two ways over TCP.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<Session>),
}

#[derive(Debug)]
pub(super) struct Session {
    tcp: TcpStream,
    tls: Connection,
    /// Bytes of the last piece that the TLS library got.
    piece: usize,
}

impl Stream {
    /// The array's end of a stream whose handshake has not begun.
    pub(super) fn accept(tcp: TcpStream, tls: &ServerTls) -> Result<Self> {
        let tls = ServerConnection::new(Arc::clone(&tls.0)).map_err(Error::other)?;
        Ok(Self::Tls(Box::new(Session { tcp, tls: tls.into(), piece: 0 })))
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(session) => &session.tcp,
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(session) if session.tls.is_handshaking())
    }

    /// Whether there are records that the operating system has not taken.
    pub(super) fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(session) if session.tls.wants_write())
    }

    /// Bytes that the TLS library holds for the operating system.
    pub(super) fn unsent(&self) -> usize {
        match self {
            Self::Tls(session) if session.tls.wants_write() => session.piece,
            _ => 0,
        }
    }

    /// Appends to `inbox` the bytes that have arrived, by one call to the operating system. Returns how many
    /// that call brought; 0 for the end of the stream.
    pub(super) fn read(&mut self, buffer: &mut [u8], inbox: &mut Vec<u8>) -> Result<usize> {
        match self {
            Self::Plain(tcp) => {
                let got = tcp.read(buffer)?;
                inbox.extend_from_slice(&buffer[..got]);
                Ok(got)
            }
            Self::Tls(session) => session.read(buffer, inbox),
        }
    }

    /// Writes from the front of `outbox` what the operating system takes. Returns how many bytes it took.
    pub(super) fn write(&mut self, outbox: &mut VecDeque<u8>) -> Result<usize> {
        let mut moved = 0;
        loop {
            let wrote = match self {
                Self::Plain(_) if outbox.is_empty() => return Ok(moved),
                Self::Plain(tcp) => tcp.write(outbox.as_slices().0),
                Self::Tls(session) if session.tls.wants_write() => session.tls.write_tls(&mut session.tcp),
                Self::Tls(session) if outbox.is_empty() || session.tls.is_handshaking() => return Ok(moved),
                Self::Tls(session) => {
                    let piece = outbox.as_slices().0;
                    let taken = session.tls.writer().write(&piece[..piece.len().min(PIECE)])?;
                    session.piece = taken;
                    outbox.drain(..taken);
                    continue;
                }
            };
            match wrote {
                Ok(0) => return Err(Error::new(ErrorKind::WriteZero, "the stream takes no more bytes")),
                Ok(n) => {
                    moved += n;
                    if matches!(self, Self::Plain(_)) {
                        outbox.drain(..n);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(moved),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Session {
    fn read(&mut self, buffer: &mut [u8], inbox: &mut Vec<u8>) -> Result<usize> {
        let got = self.tcp.read(buffer)?;
        let mut records = &buffer[..got];
        while !records.is_empty() {
            self.tls.read_tls(&mut records)?;
            let state = self.tls.process_new_packets();
            // Data before the wrong record has arrived whole.
            let plain = self.tls.reader().read_to_end(inbox);
            if let Err(e) = plain
                && e.kind() != ErrorKind::WouldBlock
            {
                return Err(e);
            }
            match state {
                Ok(state) if state.peer_has_closed() => return Ok(0),
                Ok(_) => {}
                Err(e) => {
                    // Sends the alert, as far as the stream takes it.
                    let _ = self.tls.write_tls(&mut self.tcp);
                    return Err(broken(e));
                }
            }
        }
        Ok(got)
    }
}
