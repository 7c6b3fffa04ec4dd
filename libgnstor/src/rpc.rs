// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocking gRPC calls to the daemon. Each call has a deadline. A runtime with one thread serves them.
//!
//! Of the connections of one host that have proven nothing, the daemon lets the oldest one give way to a new
//! one. So beside a flood of connections from its own host a new client may be cut off before its first call
//! is answered. It tries again, for two seconds or so. A port that is no daemon's, or that speaks TLS to a
//! client without it, may cut it off, too.
//!
//! A call that may be repeated is asked again, within its deadline, where its connection is cut. That is a
//! call that reads, or a change with a request id, which the daemon carries out once.

use crate::credentials::{Credentials, Proof, SignedChannel, root_cause};
use crate::daemons::{Daemons, is_no_leader};
use crate::error::Error;
use crate::unreachable::{unreachable, was_cut};
use gnstor_auth::ShownClient;
use gnstor_proto::grpc;
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use std::error::Error as _;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tonic::Code;
use tonic::transport::Channel;

/// Longest waits for one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For a call that the daemon answers by itself.
    question: Duration,
    /// For a call that changes entries at SSDs. An SSD syncs its disk several times for one change, and
    /// changes of one SSD follow each other. The daemon repeats a command of which it heard nothing for 12 s.
    change: Duration,
    /// For a daemon that is away to be back. No further try begins after it.
    back: Duration,
}

const LIMITS: Limits = Limits {
    question: Duration::from_secs(15),
    change: Duration::from_secs(60),
    back: Duration::from_secs(5),
};
/// The answer to the first call of a connection.
const REGISTRATION: &str = "a client id";
/// How often a client names its id, so that the daemon keeps it after a connection broke.
const KEEP: Duration = Duration::from_secs(5);

/// The answer of a call, which may still be on its way.
pub(crate) trait Answer<T>: Future<Output = Result<tonic::Response<T>, tonic::Status>> {}

impl<T, F: Future<Output = Result<tonic::Response<T>, tonic::Status>>> Answer<T> for F {}

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Rpc {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    proof: Proof,
    endpoint: String,
    is_tls: bool,
    /// Another daemon may take over. Then a call that can be repeated is, until its deadline.
    are_several: bool,
    limits: Limits,
    /// The daemon did not come back while [`Self::change_if_back`] waited for it, and no such call has
    /// succeeded since then.
    is_away: AtomicBool,
}

impl Rpc {
    /// Connects and asks for a client id.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Credentials`], or the daemon's.
    pub(crate) fn register(
        endpoint: &str,
        credentials: &Credentials,
        name: &str,
    ) -> Result<(Self, grpc::RegisterResponse), Error> {
        let mut rests = again();
        loop {
            let tried = Self::connect_for(endpoint, credentials, LIMITS).and_then(|rpc| {
                let mut fleet = rpc.fleet();
                let call = fleet.register(grpc::RegisterRequest { name: name.into() });
                let question = LIMITS.question;
                let answer = rpc.runtime.block_on(async { tokio::time::timeout(question, call).await });
                let answer = answer.map_err(|_| rpc.silent(REGISTRATION, question))?;
                let answer = answer.map_err(|status| rpc.failed(REGISTRATION, status))?;
                Ok((rpc, answer.into_inner()))
            });
            match tried {
                Err(Failed { was_cut: true, error }) if let Some(rest) = rests.next() => {
                    tracing::debug!("a new connection was cut off, and is made again: {error}");
                    std::thread::sleep(rest);
                }
                tried => return tried.map_err(|failed| failed.error),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn connect(endpoint: &str, credentials: &Credentials) -> Result<Self, Error> {
        Self::connect_for(endpoint, credentials, LIMITS).map_err(|failed| failed.error)
    }

    /// Connects, with these deadlines of calls.
    fn connect_for(endpoint: &str, credentials: &Credentials, limits: Limits) -> Result<Self, Failed> {
        let is_tls = credentials.tls_ca.is_some();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("gn-rpc")
            .enable_all()
            .build()
            .map_err(|cause| Failed::from(Error::Os { what: "starting the RPC runtime".into(), cause }))?;
        let (daemons, proof) = credentials.daemons(endpoint)?;
        let are_several = daemons.are_several();
        let connected = runtime.block_on(daemons.timeout(limits.change).connect());
        let failed = |e: tonic::transport::Error| Failed {
            error: unreachable(endpoint, is_tls, &e),
            was_cut: was_cut(&e),
        };
        let channel = connected.map_err(failed)?;
        let (endpoint, is_away) = (endpoint.into(), AtomicBool::new(false));
        Ok(Self { runtime, channel, proof, endpoint, is_tls, are_several, limits, is_away })
    }

    pub(crate) fn volumes(&self) -> VolumesClient<SignedChannel> {
        VolumesClient::with_interceptor(self.channel.clone(), self.proof.clone())
    }

    pub(crate) fn fleet(&self) -> FleetClient<SignedChannel> {
        FleetClient::with_interceptor(self.channel.clone(), self.proof.clone())
    }

    /// From here on each call shows that the caller is this client.
    pub(crate) fn prove(&self, client: &ShownClient) {
        self.proof.set_client(client);
    }

    /// Names a client id to the daemon again and again, until this connection is dropped.
    pub(crate) fn keep(&self, client_id: u32) {
        let mut fleet = self.fleet();
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(KEEP).await;
                if let Err(status) = fleet.keep(grpc::KeepRequest { client_id }).await {
                    tracing::debug!(client_id, %status, "the daemon did not hear of the client id");
                }
            }
        });
    }

    /// Waits at most `limit` for the answer of a call.
    pub(crate) fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Option<T> {
        let ended = self.runtime.block_on(async { tokio::time::timeout(limit, answer).await });
        Some(ended.ok()?.ok()?.into_inner())
    }

    /// Waits for a call that changes nothing at SSDs. `call` names it in errors, as in "the list of volumes".
    ///
    /// # Errors
    /// [`Error::Silent`] when the deadline passes, [`Error::Unreachable`] when the connection breaks, or the
    /// daemon's.
    pub(crate) fn wait<T>(&self, call: &str, answer: impl Answer<T>) -> Result<T, Error> {
        self.wait_for(self.limits.question, call, answer)
    }

    /// Waits for a call that changes entries at SSDs.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) fn change<T>(&self, call: &str, answer: impl Answer<T>) -> Result<T, Error> {
        self.wait_for(self.limits.change, call, answer)
    }

    fn wait_for<T>(&self, limit: Duration, call: &str, answer: impl Answer<T>) -> Result<T, Error> {
        match self.runtime.block_on(async { tokio::time::timeout(limit, answer).await }) {
            Ok(answer) => {
                answer.map(tonic::Response::into_inner).map_err(|status| self.failed(call, status).error)
            }
            Err(_) => Err(self.silent(call, limit)),
        }
    }

    /// Waits for a call that may be repeated: where its connection is cut, `ask` is called again, until the
    /// deadline of one call.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) fn wait_again<T, F: Answer<T>>(&self, call: &str, ask: impl Fn() -> F) -> Result<T, Error> {
        self.again_for(self.limits.question, call, ask, |failed| failed.was_cut)
    }

    /// Waits for a change that may be repeated, as [`Self::wait_again`] does.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) fn change_again<T, F: Answer<T>>(&self, call: &str, ask: impl Fn() -> F) -> Result<T, Error> {
        self.again_for(self.limits.change, call, ask, |failed| failed.was_cut)
    }

    /// As [`Self::change_again`], also while the daemon is away, as it may just start again. No try begins
    /// after five seconds. Once that was in vain, further calls wait no more until one succeeds.
    ///
    /// # Errors
    /// As [`Self::wait`].
    #[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
    pub(crate) fn change_if_back<T, F: Answer<T>>(
        &self,
        call: &str,
        ask: impl Fn() -> F,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        let waits = !self.is_away.load(Ordering::Relaxed);
        let may_come_back = |failed: &Failed| failed.was_cut || is_away(&failed.error);
        let again = |failed: &Failed| waits && begun.elapsed() < self.limits.back && may_come_back(failed);
        let ended = self.again_for(self.limits.change, call, ask, again);
        self.is_away.store(ended.as_ref().err().is_some_and(is_away), Ordering::Relaxed);
        ended
    }

    fn again_for<T, F: Answer<T>>(
        &self,
        limit: Duration,
        call: &str,
        ask: impl Fn() -> F,
        again: impl Fn(&Failed) -> bool,
    ) -> Result<T, Error> {
        let tries = async {
            let ask = async || ask().await.map_err(|status| self.failed(call, status));
            within(limit, ask, again).await
        };
        match self.runtime.block_on(tries) {
            Ok(answer) => Ok(answer.into_inner()),
            Err(Some(Failed { error, .. })) => Err(error),
            Err(None) => Err(self.silent(call, limit)),
        }
    }

    fn silent(&self, call: &str, waited: Duration) -> Error {
        Error::Silent { endpoint: self.endpoint.clone(), call: call.into(), waited }
    }

    /// The fleet map and the SSDs.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) fn map(&self) -> Result<grpc::GetMapResponse, Error> {
        let ask = || async { self.fleet().get_map(grpc::GetMapRequest {}).await };
        self.wait_again("the map of the array", ask)
    }

    /// Why a call failed. A status of the daemon has no source. Tonic adds one to each status that it makes
    /// itself: Cancelled when the deadline passes, Unavailable, Unknown or Internal when the connection
    /// breaks.
    fn failed(&self, call: &str, status: tonic::Status) -> Failed {
        let endpoint = self.endpoint.clone();
        match status.code() {
            _ if status.source().is_none() => {
                let was_cut = self.are_several && is_no_leader(&status);
                Failed { error: Error::Daemon(status), was_cut }
            }
            Code::Cancelled => self.silent(call, self.limits.change).into(),
            Code::Unavailable | Code::Unknown | Code::Internal => {
                let was_cut = self.are_several || was_cut(&status);
                let error = match call {
                    REGISTRATION => unreachable(&endpoint, self.is_tls, &status),
                    // This connection is a daemon's.
                    _ => Error::Unreachable { endpoint, cause: root_cause(&status) },
                };
                Failed { error, was_cut }
            }
            _ => Error::Daemon(status).into(),
        }
    }
}

/// A call failed.
#[derive(Debug)]
struct Failed {
    error: Error,
    /// The connection was made, and ended before the answer.
    was_cut: bool,
}

/// Whether the daemon did not carry a call out, and may do so soon.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Daemon(status) => status.code() == Code::Unavailable,
        _ => false,
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, was_cut: false }
    }
}

/// The waits before further tries of a connection that was cut off.
fn again() -> impl Iterator<Item = Duration> {
    (0..12).map(rest)
}

/// The wait after the nth try.
fn rest(nth: u32) -> Duration {
    Duration::from_millis((5 << nth.min(6)).min(250))
}

/// Calls `ask` until it succeeds, fails otherwise than by a cut connection, or the time is over. Then the
/// error is that of the last try, or `None` where the first one has none yet.
///
/// # Errors
/// The error of the last try.
pub async fn within<T, E>(
    limit: Duration,
    ask: impl AsyncFn() -> Result<T, E>,
    was_cut: impl Fn(&E) -> bool,
) -> Result<T, Option<E>> {
    let (mut last, mut nth) = (None, 0);
    let tries = async {
        loop {
            match ask().await {
                Err(error) if was_cut(&error) => last = Some(error),
                ended => return ended,
            }
            tokio::time::sleep(rest(nth)).await;
            nth = nth.saturating_add(1);
        }
    };
    match tokio::time::timeout(limit, tries).await {
        Ok(ended) => ended.map_err(Some),
        Err(_) => Err(last),
    }
}

/// Connects to a daemon. A connection that is cut off is made again.
///
/// # Errors
/// The transport's, of the last try.
pub async fn dial(daemons: &Daemons) -> Result<Channel, tonic::transport::Error> {
    let mut rests = again();
    loop {
        match daemons.connect().await {
            Err(error)
                if was_cut(&error)
                    && let Some(rest) = rests.next() =>
            {
                tokio::time::sleep(rest).await;
            }
            dialled => return dialled,
        }
    }
}

#[cfg(test)]
mod tests;
