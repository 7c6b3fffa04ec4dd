// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemons of an array: one serves, and others may stand by ([`Daemons`]).
//!
//! ```text
//!   "a:7117,b:7117"   a serves, b stands by: b's port refuses     a is killed: b serves
//!   connects          to a                                        to b, once b accepts
//! ```
//! A connection that breaks is made anew. It begins with the address after the last one, so a machine that
//! accepts connections and answers nothing is not tried twice in a row.

use crate::error::Error;
use gnstor_proto::status::{DEPOSED, NOT_SERVING_YET};
use std::io::{Error as IoError, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Error as TransportError};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Time in which one of several daemons has to accept a connection. A daemon that stands by takes over within
/// a few seconds, also where an SSD is away.
const TAKES_OVER: Duration = Duration::from_secs(15);
/// Pause between two rounds of tries.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest wait for one address.
const DIAL: Duration = Duration::from_secs(1);
/// If nothing comes on a connection for so long, and another daemon may take over, the client asks for a sign
/// of life. After the same time it gives the connection up.
const SILENCE: Duration = Duration::from_secs(1);
/// The same two times where no other daemon may take over. They hold while a call is under way. So a change
/// does not wait until its deadline for a daemon that is stopped.
const ASK_ALONE: Duration = Duration::from_secs(10);
const GIVE_UP_ALONE: Duration = Duration::from_secs(15);

/// The daemons of an array, and how to connect to the one that serves.
#[derive(Clone, Debug)]
pub struct Daemons {
    endpoint: Endpoint,
    /// Empty: there is one daemon.
    hosts: Arc<[(String, u16)]>,
    next: Arc<AtomicUsize>,
}

/// Whether a daemon has answered that it serves not yet, or no more.
pub fn is_no_leader(status: &tonic::Status) -> bool {
    status.message().starts_with(NOT_SERVING_YET) || status.message().starts_with(DEPOSED)
}

/// What a daemon says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It serves the array.
    Serves,
    /// It is there, and does not say that it serves: it may be starting, or have stopped.
    Starts,
    /// It does not answer.
    Silent,
}

/// Asks a daemon again and again whether it serves, by `grpc.health.v1`. That needs no proof.
#[derive(Debug)]
pub struct Probe {
    daemons: Daemons,
    host: (String, u16),
    channel: Option<Channel>,
}

impl Probe {
    /// Asks the daemon at this address.
    ///
    /// # Errors
    /// As [`crate::Credentials::daemons`].
    pub fn new(address: &str, credentials: &crate::Credentials) -> Result<Self, Error> {
        let daemons = credentials.daemons(address)?.0;
        let host = host_of(&daemons.endpoint)?;
        Ok(Self { daemons, host, channel: None })
    }

    /// Asks once. The daemon has `limit` to answer. One that accepts a connection is there: it may be
    /// starting, or refuse this certificate.
    pub async fn ask(&mut self, limit: Duration) -> Health {
        let answer = tokio::time::timeout(limit, self.check()).await.ok().flatten();
        if let Some(health) = answer {
            return health;
        }
        self.channel = None;
        let address = (self.host.0.as_str(), self.host.1);
        match tokio::time::timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(_)) => Health::Starts,
            Ok(Err(_)) | Err(_) => Health::Silent,
        }
    }

    async fn check(&mut self) -> Option<Health> {
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => self.daemons.connect().await.ok()?,
        };
        let mut health = HealthClient::new(channel.clone());
        let answer = health.check(HealthCheckRequest::default()).await.ok()?;
        self.channel = Some(channel);
        Some(match answer.get_ref().status() {
            ServingStatus::Serving => Health::Serves,
            _ => Health::Starts,
        })
    }
}

fn host_of(url: &Endpoint) -> Result<(String, u16), Error> {
    let (host, port) = (url.uri().host(), url.uri().port_u16());
    let found = host.zip(port).map(|(host, port)| (host.trim_matches(['[', ']']).to_owned(), port));
    found.ok_or_else(|| Error::Unreachable {
        endpoint: url.uri().to_string(),
        cause: "an address in a list of daemons needs a port: write it like host:7117".into(),
    })
}

/// The addresses of a list that is divided by commas.
pub(crate) fn addresses(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

impl Daemons {
    /// The daemons at these addresses. The endpoint is that of the first one.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: one of several addresses has no port.
    pub(crate) fn new(endpoint: Endpoint, urls: &[Endpoint]) -> Result<Self, Error> {
        let next = Arc::default();
        if urls.len() < 2 {
            let endpoint = endpoint.http2_keep_alive_interval(ASK_ALONE).keep_alive_timeout(GIVE_UP_ALONE);
            return Ok(Self { endpoint, hosts: Arc::default(), next });
        }
        let hosts = urls.iter().map(host_of).collect::<Result<Vec<_>, _>>()?;
        let endpoint = endpoint
            .http2_keep_alive_interval(SILENCE)
            .keep_alive_timeout(SILENCE)
            .keep_alive_while_idle(true)
            .connect_timeout(TAKES_OVER);
        Ok(Self { endpoint, hosts: hosts.into(), next })
    }

    /// The same with this deadline for each call.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        Self { endpoint: self.endpoint.timeout(limit), ..self }
    }

    /// Whether another daemon may take over.
    pub fn are_several(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Connects to the daemon, or to the first of several that accepts. The channel does the same whenever
    /// its connection breaks.
    ///
    /// # Errors
    /// The transport's.
    pub async fn connect(&self) -> Result<Channel, TransportError> {
        if self.hosts.is_empty() {
            return self.endpoint.connect().await;
        }
        let (hosts, next) = (Arc::clone(&self.hosts), Arc::clone(&self.next));
        let connector = tower::service_fn(move |_| {
            let (hosts, next) = (Arc::clone(&hosts), Arc::clone(&next));
            async move { first_of(&hosts, &next).await.map(hyper_util::rt::TokioIo::new) }
        });
        self.endpoint.connect_with_connector(connector).await
    }
}

/// A connection to the first of these hosts that accepts.
async fn first_of(hosts: &[(String, u16)], next: &AtomicUsize) -> Result<TcpStream, IoError> {
    let mut last = IoError::from(ErrorKind::AddrNotAvailable);
    let tries = async {
        loop {
            let first = next.load(Ordering::Relaxed);
            for at in (first..).take(hosts.len()) {
                let (host, port) = &hosts[at % hosts.len()];
                let dialled = TcpStream::connect((host.as_str(), *port));
                match tokio::time::timeout(DIAL, dialled).await {
                    Ok(Ok(stream)) => {
                        next.store((at + 1) % hosts.len(), Ordering::Relaxed);
                        stream.set_nodelay(true)?;
                        return Ok(stream);
                    }
                    Ok(Err(error)) => last = error,
                    Err(_) => last = ErrorKind::TimedOut.into(),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let ended = tokio::time::timeout(TAKES_OVER - DIAL, tries).await;
    ended.unwrap_or_else(|_| Err(IoError::new(last.kind(), format!("none of the daemons: {last}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use std::net::TcpListener;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn host(listener: &TcpListener) -> (String, u16) {
        ("127.0.0.1".into(), listener.local_addr().unwrap().port())
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a daemon that starts later")]
    fn the_daemon_that_accepts_is_found_and_the_next_connection_begins_behind_it() {
        let _deadline = Deadline::after(LIMIT);
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let hosts: Vec<_> = listeners.iter().map(host).collect();
        let ports = [hosts[1].1, hosts[2].1];
        drop(listeners);
        let next = AtomicUsize::new(0);
        let runtime = runtime();
        let dial = || runtime.block_on(first_of(&hosts, &next)).unwrap().peer_addr().unwrap().port();
        // A daemon that starts later is waited for.
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            ports.map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap())
        });
        assert!(ports.contains(&dial()));
        let _listeners = later.join().unwrap();
        let both = [dial(), dial()];
        assert!(both[0] != both[1] && both.iter().all(|port| ports.contains(port)), "{both:?}");
    }

    #[test]
    fn each_address_of_a_list_needs_a_port() {
        let _deadline = Deadline::after(LIMIT);
        let urls: Vec<Endpoint> = addresses("a:1, b")
            .map(|host| Endpoint::from_shared(format!("http://{host}")).unwrap())
            .collect();
        let error = Daemons::new(urls[0].clone(), &urls).unwrap_err().to_string();
        assert!(error.contains("needs a port"), "{error}");
        assert!(!Daemons::new(urls[0].clone(), &urls[..1]).unwrap().are_several());
        assert!(Daemons::new(urls[0].clone(), &[urls[0].clone(), urls[0].clone()]).unwrap().are_several());
    }
}
