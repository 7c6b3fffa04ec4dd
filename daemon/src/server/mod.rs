// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shell around the core: gRPC on one side, the SSDs on the other, the clock in between.
//!
//! ```text
//!   answers   answers on their way, and clients that take none
//!   add       an SSD that is to join is looked at
//!   access    certificates and tokens -> callers
//!   accept    the next connection
//!   stream    a connection: its bytes, its bounds, the reasons for its end
//!   hello     TLS handshakes, on a thread of their own
//!   requests  requests that are not complete
//!   budget    bytes of answers and requests, of each host and of all
//!   gate      deadlines of calls, codes of bad messages
//!   health    health and definitions of the calls, for tools that know nothing of GNStor
//!   fleet     the service of the fleet: its map, its SSDs, an operator's calls
//!   holders   messages of what clients have open, and of names and labels
//!   service   messages <-> checked requests and replies, failures -> tonic::Status
//!   look      the same questions, asked by the process of the daemon
//!   link      one SSD's connection: commands in flight, looked after, made anew
//!   ssds      the thread of all links
//!   clock     clocks and threads
//!   input     what goes in and out of the core's loop
//!   runtime   the loop that drives the core
//!   here      start, serve, stop
//! ```

mod accept;
mod access;
mod add;
mod answers;
mod asked;
mod budget;
mod clock;
mod config;
mod fleet;
mod gate;
mod handshakes;
mod health;
mod hello;
mod holders;
mod input;
pub mod link;
mod look;
mod messages;
mod publish;
mod repairs;
mod requests;
mod runtime;
mod service;
mod ssds;
mod stream;

use crate::core::Stop;
use crate::port::SsdPort;
use gnstor_proto::grpc::fleet_server::FleetServer;
use gnstor_proto::grpc::volumes_server::VolumesServer;
use input::{Input, State};
use runtime::Driver;
use service::Service;

pub use access::{Access, Tls, Tokens};
pub use config::DaemonConfig;
pub use look::Look;
pub use service::{NO_AUTH, ROOM, SSD_DAMAGED, SSD_DOWN, SSD_FILLING};
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::service::interceptor::InterceptedService;
use tonic_health::pb::health_server::HealthServer;

/// Calls of one connection at once. Further ones wait. Each may hold an answer until its client takes it.
const STREAMS: u32 = 32;
/// Longest message of a client: the longest Create is far below it.
const MESSAGE_BYTES: usize = 64 << 10;
/// Bytes of requests that a connection, and each of its calls, may send before the daemon has read them.
const WINDOW: u32 = 64 << 10;
/// Longest header list of a call.
const HEADER_BYTES: u32 = 16 << 10;

/// Why the daemon does not run, or runs no more.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The address cannot be listened on.
    #[error(
        "the daemon cannot listen on {address}: {cause}; choose another address or stop the program that \
         uses it"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: std::io::Error,
    },
    /// Others reach the address, and callers need no proof there.
    #[error("{0}")]
    Exposed(String),
    /// A certificate or a key cannot be used.
    #[error("the daemon's certificate, its key or the CA of callers cannot be used: {0}")]
    Tls(String),
    /// The ports are not those of SSDs 0..n in order.
    #[error("SSD {index} is listed at position {place}")]
    PortOrder {
        /// Position in the array.
        place: usize,
        /// The index found there.
        index: u16,
    },
    /// A thread or the runtime could not be started.
    #[error("the daemon cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// Some SSDs did not answer in time.
    #[error("the daemon did not start within {after:?}; it waits for {waits_for}")]
    StartTimeout {
        /// Length of the wait.
        after: Duration,
        /// The step that it waited for.
        waits_for: String,
    },
    /// The array cannot be served.
    #[error("the array cannot be served: {0}")]
    Array(String),
    /// Another daemon has taken over.
    #[error("{0}")]
    Deposed(String),
    /// The gRPC server failed.
    #[error("the gRPC server failed: {0}")]
    Server(#[source] tonic::transport::Error),
    /// The daemon's definitions of its calls cannot be read: a bug.
    #[error("internal error: {0}")]
    Definitions(String),
    /// The daemon does not answer its own process.
    #[error("the daemon does not answer: {0}")]
    Silent(String),
    /// The daemon's thread panicked: a bug.
    #[error("internal error: the daemon's thread panicked")]
    Panicked,
}

/// Serves the array on `listener` until `shutdown` completes or another daemon takes over.
///
/// # Errors
/// [`DaemonError`]; a shutdown that was asked for is `Ok`.
pub async fn serve(
    listener: TcpListener,
    array: Vec<SsdPort>,
    config: DaemonConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), DaemonError> {
    serve_and_tell(listener, array, config, shutdown, |_| {}).await
}

async fn serve_and_tell(
    listener: TcpListener,
    array: Vec<SsdPort>,
    config: DaemonConfig,
    shutdown: impl Future<Output = ()>,
    serving: impl FnOnce(&Service),
) -> Result<(), DaemonError> {
    if let Some((place, port)) =
        array.iter().enumerate().find(|&(place, port)| place != usize::from(port.index))
    {
        return Err(DaemonError::PortOrder { place, index: port.index });
    }
    let (driver, ends) = Driver::start(array, &config).map_err(DaemonError::Thread)?;
    let (inputs, state) = (ends.inputs.clone(), ends.state.clone());
    let service = Service::new(ends, &config);
    tokio::select! {
        // The core runs as part of this future: when it is dropped, so is the core, and the thread of the
        // SSDs ends.
        never = driver.drive() => match never {},
        result = async {
            tokio::pin!(shutdown);
            tokio::select! {
                started = wait_for_start(state.clone(), config.start_timeout) => started?,
                () = &mut shutdown => return Ok(()),
            }
            serving(&service);
            serve_grpc(Entrance { listener, inputs }, service, state, &config, shutdown).await
        } => result,
    }
}

async fn wait_for_start(mut state: watch::Receiver<State>, after: Duration) -> Result<(), DaemonError> {
    // The state says whether the daemon started in time.
    tokio::time::timeout(after, state.wait_for(|s| !matches!(s, State::Starting(_)))).await.map(drop).ok();
    let state = state.borrow().clone();
    match state {
        State::Stopped(stop) => Err(stop.into()),
        State::Serving => Ok(()),
        State::Starting(waits_for) => Err(DaemonError::StartTimeout { after, waits_for }),
    }
}

/// Where connections come in, and where the core hears of their ends.
struct Entrance {
    listener: TcpListener,
    inputs: mpsc::UnboundedSender<Input>,
}

async fn serve_grpc(
    entrance: Entrance,
    service: Service,
    mut state: watch::Receiver<State>,
    config: &DaemonConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), DaemonError> {
    let (quit, quitting) = oneshot::channel::<()>();
    let (serves, is_serving) = watch::channel(true);
    let health = health::Healthy { serves: is_serving, stream: config.keep_alive };
    let health = HealthServer::new(health).max_decoding_message_size(health::MESSAGE_BYTES);
    let (v1, v1alpha) = health::reflection().map_err(DaemonError::Definitions)?;
    let access = std::sync::Arc::new(config.access.clone());
    let manager_key = config.manager_key.clone();
    let proof = move |call| service::prove(&access, manager_key.as_ref(), call);
    let volumes = VolumesServer::new(service.clone()).max_decoding_message_size(MESSAGE_BYTES);
    let fleet = FleetServer::new(service).max_decoding_message_size(MESSAGE_BYTES);
    let bounds = stream::Bounds {
        connections: config.max_connections,
        of_host: config.max_host_connections,
        handshakes: config.max_handshakes,
        answer_bytes: config.max_answer_bytes,
        request_bytes: config.max_request_bytes,
        silence: config.keep_alive * 3,
    };
    let Entrance { listener, inputs } = entrance;
    let tls = config.access.server_tls().map_err(DaemonError::Tls)?.map(|tls| tls.for_http2());
    let incoming = accept::incoming(listener, tls, bounds, inputs).map_err(DaemonError::Thread)?;
    let server = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(config.keep_alive))
        .http2_keepalive_timeout(Some(config.keep_alive))
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .max_concurrent_streams(STREAMS)
        .concurrency_limit_per_connection(STREAMS as usize)
        .http2_max_header_list_size(HEADER_BYTES)
        .layer(gate::GateLayer)
        .add_service(InterceptedService::new(volumes, proof.clone()))
        .add_service(InterceptedService::new(fleet, proof.clone()))
        .add_service(InterceptedService::new(v1, proof.clone()))
        .add_service(InterceptedService::new(v1alpha, proof))
        .add_service(health)
        .serve_with_incoming_shutdown(incoming, async {
            quitting.await.ok();
        });
    let stop_timeout = config.stop_timeout;
    tokio::pin!(server);
    let why = tokio::select! {
        // The reason for the end comes first: the caller may ask for the stop because it just heard of that
        // reason.
        biased;
        result = &mut server => return result.map_err(DaemonError::Server),
        stopped = state.wait_for(|s| matches!(s, State::Stopped(_))) => stopped.ok().map(|s| s.clone()),
        () = shutdown => None,
    };
    serves.send_replace(false);
    quit.send(()).ok();
    // Calls under way get their answer. A client that keeps its connection delays the end by `stop_timeout`.
    if tokio::time::timeout(stop_timeout, server).await.is_err() {
        tracing::warn!(?stop_timeout, "calls were still under way when the daemon stopped");
    }
    match why {
        Some(State::Stopped(stop)) => Err(stop.into()),
        Some(State::Starting(_) | State::Serving) | None => Ok(()),
    }
}

impl From<Stop> for DaemonError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Deposed(why) => Self::Deposed(why),
            Stop::Array(why) => Self::Array(why),
        }
    }
}

/// A daemon on a thread and a tokio runtime of its own, for callers that are not async.
///
/// Dropping it stops it, without saying how it ended.
#[derive(Debug)]
pub struct Daemon {
    local_addr: SocketAddr,
    looker: look::Looker,
    quit: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<Result<(), DaemonError>>>,
}

impl Daemon {
    /// Listens on `address` (port 0: any free one), reads the array and returns once requests are served.
    ///
    /// # Errors
    /// [`DaemonError`] when it cannot listen, or the array is not ready within `config.start_timeout`.
    pub fn start(
        address: SocketAddr,
        array: Vec<SsdPort>,
        config: DaemonConfig,
    ) -> Result<Self, DaemonError> {
        let listen_error = move |cause| DaemonError::Listen { address, cause };
        if let Some(objection) = config.access.objection(address) {
            return Err(DaemonError::Exposed(objection));
        }
        // Files that cannot be used are named before the array is read.
        config.access.server_tls().map_err(DaemonError::Tls)?;
        let listener = std::net::TcpListener::bind(address).map_err(listen_error)?;
        let local_addr = listener.local_addr().map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        gnstor_fabric::tcp::lengthen_queue(&listener).map_err(listen_error)?;
        let (quit, quitting) = oneshot::channel::<()>();
        let (serving, served) = std::sync::mpsc::sync_channel(1);
        let thread = clock::spawn("gnstord".into(), move || {
            let tokio = clock::tokio().map_err(DaemonError::Thread)?;
            tokio.block_on(async {
                let listener = TcpListener::from_std(listener).map_err(listen_error)?;
                let shutdown = async {
                    quitting.await.ok();
                };
                serve_and_tell(listener, array, config, shutdown, move |service| {
                    let (runtime, service) = (tokio::runtime::Handle::current(), service.clone());
                    serving.send(look::Looker { runtime, service }).ok();
                })
                .await
            })
        })
        .map_err(DaemonError::Thread)?;
        // The sender is dropped unused only if serving never began; then the thread's end says why.
        let Ok(looker) = served.recv() else {
            return Err(match thread.join() {
                Ok(Err(error)) => error,
                Ok(Ok(())) | Err(_) => DaemonError::Panicked,
            });
        };
        Ok(Self { local_addr, looker, quit: Some(quit), thread: Some(thread) })
    }

    /// The address on which the daemon listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Whether the daemon still serves. If not, [`Self::stop`] says why.
    pub fn is_serving(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Lets the calls under way end, at most `stop_timeout`, and stops.
    ///
    /// # Errors
    /// The reason that ended the daemon before it was asked to stop, such as [`DaemonError::Deposed`].
    pub fn stop(mut self) -> Result<(), DaemonError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), DaemonError> {
        if let Some(quit) = self.quit.take() {
            quit.send(()).ok();
        }
        match self.thread.take().map(std::thread::JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(DaemonError::Panicked),
            None => Ok(()),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::error!(%error, "the daemon had ended");
        }
    }
}
