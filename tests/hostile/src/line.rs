// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a hostile client on their way: plain, or by TLS with a certificate that the array takes.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What all connections of this process speak; nothing: no TLS.
static TLS: OnceLock<Arc<ClientConfig>> = OnceLock::new();

/// From now on all connections of this process are by TLS, with these files in PEM.
///
/// # Errors
/// In words: a file cannot be read, or is no certificate or key.
pub fn use_tls(ca: &str, cert: &str, key: &str) -> Result<(), String> {
    let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let read = |path: &str| {
        CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| said(path, &e))
    };
    let mut roots = RootCertStore::empty();
    for root in read(ca)? {
        roots.add(root).map_err(|e| said(ca, &e))?;
    }
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|e| said(key, &e))?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| said("TLS 1.3", &e))?
        .with_root_certificates(roots)
        .with_client_auth_cert(read(cert)?, key_der)
        .map_err(|e| said(cert, &e))?;
    TLS.set(Arc::new(config)).map_err(|_| "TLS was set before".to_owned())
}

/// A stream to the array.
#[derive(Debug)]
pub(crate) enum Line {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Line {
    pub(crate) fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_nodelay(true)?;
        let Some(config) = TLS.get() else { return Ok(Self::Plain(stream)) };
        let name = ServerName::IpAddress(address.ip().into());
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
        let mut stream = StreamOwned::new(tls, stream);
        stream.sock.set_read_timeout(Some(Duration::from_secs(5)))?;
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self::Tls(Box::new(stream)))
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Asks the array for new keys, in a message of TLS. Without TLS it sends bytes that look like one.
    pub(crate) fn ask_for_keys(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(&[22, 3, 3, 0, 5, 24, 0, 0, 1, 1]),
            Self::Tls(stream) => {
                stream.conn.refresh_traffic_keys().map_err(std::io::Error::other)?;
                stream.flush()
            }
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
