// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections of clients: their number, the longest silence, and the report of their end. If a host has as
//! many as it may, its oldest one that is not admitted gives way to a new one. If all hosts together have as
//! many as there may be, the host with most of that kind loses its oldest one. A connection is admitted when
//! its caller has proven itself. Where the daemon asks for no proof, it is admitted when the caller opens a
//! volume.

use super::budget::MemoryBudget;
use super::hello::{Hellos, Wire};
use super::input::Input;
use super::stream::{Bounds, Shared};
use gnstor_fabric::tcp::{NoPlace, Place, Places};
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Wait after a connection could not be accepted: the process may be out of descriptors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The next connection of a host that may have one more. While clients that are admitted have all places, it
/// waits until one of them goes, and later ones wait in the kernel's queue.
async fn next(listener: &TcpListener, places: &Places, freed: &Notify) -> (TcpStream, Place) {
    'next: loop {
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(BACK_OFF).await;
                continue;
            }
        };
        loop {
            // One host cannot have all connections, so it cannot keep others out.
            match places.take(from.ip()) {
                Ok(place) => return (tcp, place),
                Err(NoPlace::OfHost) => {
                    tracing::debug!(%from, "a connection is closed at once: its host has as many as it may");
                    continue 'next;
                }
                Err(NoPlace::Full) => freed.notified().await,
            }
        }
    }
}

/// Accepts connections until the stream is dropped.
///
/// # Errors
/// The thread of TLS handshakes cannot be started.
pub(super) fn incoming(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    bounds: Bounds,
    inputs: mpsc::UnboundedSender<Input>,
) -> std::io::Result<ReceiverStream<std::io::Result<Wire>>> {
    let (accepted, stream) = mpsc::channel(1);
    let hellos = Hellos::new(tls, bounds, accepted.clone())?;
    tokio::spawn(async move {
        let places = Places::new(bounds.connections, bounds.of_host);
        let freed = Arc::new(Notify::new());
        let shared = Shared {
            answers: Arc::new(MemoryBudget::new(bounds.answer_bytes)),
            requests: Arc::new(MemoryBudget::new(bounds.request_bytes)),
            freed: Arc::clone(&freed),
            inputs,
            silence: bounds.silence,
        };
        let accept = async {
            // 0 means calls without a connection.
            for id in 1.. {
                let (tcp, place) = next(&listener, &places, &freed).await;
                tcp.set_nodelay(true).ok();
                let stream = shared.stream(id, tcp, place);
                if !hellos.take(stream).await {
                    return;
                }
            }
        };
        tokio::select! {
            () = accept => {}
            () = accepted.closed() => {}
        }
    });
    Ok(ReceiverStream::new(stream))
}
