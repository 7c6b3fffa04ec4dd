// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where clients of other processes come in: accepted TCP streams are given to the engines in turn.

use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::tcp::Wire;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Wait after an `accept` that fails, and for the connection that ends the thread.
const PAUSE: Duration = Duration::from_millis(100);

/// An open listener; dropping it closes it. Connected clients stay.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Accepts every connection to `listener`.
    ///
    /// # Errors
    /// The operating system's error.
    #[expect(clippy::disallowed_methods, reason = "the accepting thread is the runtime part of this module")]
    pub fn open(listener: TcpListener, engine: TransportHandle) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut turn = 0;
            while !asked.load(Ordering::Acquire) {
                match listener.accept() {
                    // The connection of `drop` ends the wait.
                    Ok(_) if asked.load(Ordering::Acquire) => return,
                    Ok((stream, from)) => match Wire::new(stream) {
                        Ok(wire) => {
                            engine.nth(turn).cast(move |e, _| _ = e.add_peer(wire));
                            turn = turn.wrapping_add(1);
                        }
                        Err(e) => tracing::warn!("client {from}: {e}"),
                    },
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread waits in `accept`.
        let _ = TcpStream::connect_timeout(&self.address, PAUSE);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
