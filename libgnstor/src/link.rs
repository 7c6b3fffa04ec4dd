// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The TCP stream to an SSD, as the daemon describes the way to it.

use crate::client::SsdInfo;
use crate::credentials::Credentials;
use crate::error::Error;
use gnstor_fabric::tcp::Wire;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The SSD is reached over TCP without TLS.
pub const TCP: &str = "tcp";
/// The SSD is reached over TCP with TLS.
pub const TLS: &str = "tls";

/// Connects with an SSD within this time for each step: with TLS where the daemon says so. `daemon` is the
/// daemon's address: an SSD that listens on all addresses of its machine is reached there.
///
/// # Errors
/// [`Error::Os`] of the connection or its TLS handshake; [`Error::Credentials`] where it needs a CA.
pub fn connect_to_ssd(
    ssd: &SsdInfo,
    daemon: &str,
    credentials: &Credentials,
    within: Duration,
) -> Result<Wire, Error> {
    let (host, port) = split(&ssd.address);
    let host = match host.parse::<IpAddr>() {
        Ok(any) if any.is_unspecified() => split(daemon.rsplit("://").next().unwrap_or(daemon)).0,
        _ => host,
    };
    let failed = |cause| Error::Os { what: format!("connecting to the SSDs at {}", ssd.address), cause };
    let none = || std::io::Error::other("the address has no meaning");
    let port = port.parse::<u16>().map_err(|_| failed(none()))?;
    let target = (host, port).to_socket_addrs().map_err(failed)?.next().ok_or_else(none).map_err(failed)?;
    let tls = if ssd.transport == TLS { Some(credentials.data_tls()?) } else { None };
    let stream = TcpStream::connect_timeout(&target, within).map_err(failed)?;
    Wire::client(stream, tls.as_ref(), host, within).map_err(failed)
}

/// Host and port of an address; an IPv6 address without its brackets.
fn split(address: &str) -> (&str, &str) {
    let (host, port) = address.trim_end_matches('/').rsplit_once(':').unwrap_or((address, ""));
    (host.trim_matches(['[', ']']), port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn ssd(address: &str, transport: &str) -> SsdInfo {
        SsdInfo {
            index: 0,
            subnqn: String::new(),
            transport: transport.into(),
            address: address.into(),
            capacity_bytes: 0,
            model: String::new(),
        }
    }

    #[test]
    fn an_ssd_that_listens_everywhere_is_reached_where_the_daemon_is() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let within = Duration::from_secs(5);
        let none = Credentials::default();
        for daemon in ["127.0.0.1:7117", "https://127.0.0.1:7117/"] {
            let ssd = ssd(&format!("0.0.0.0:{port}"), TCP);
            connect_to_ssd(&ssd, daemon, &none, within).expect("it is reached");
        }
        assert_eq!(split("[::1]:7"), ("::1", "7"));
        let no_ca = connect_to_ssd(&ssd(&format!("127.0.0.1:{port}"), TLS), "x:1", &none, within);
        assert!(no_ca.expect_err("no CA").to_string().contains("--tls-ca"));
        assert!(connect_to_ssd(&ssd("127.0.0.1", TCP), "x:1", &none, within).is_err());
    }
}
