// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where clients of other processes come in: accepted TCP streams are given to the engines in turn.

use gnstor_fabric::engine::tcp::Wire;
use gnstor_fabric::runtime::EngineHandle;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

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
    pub fn open(listener: TcpListener, engine: EngineHandle) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut turn = 0;
            while !asked.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, from)) => match Wire::new(stream) {
                        Ok(wire) => {
                            engine.nth(turn).cast(move |e, _| _ = e.add_peer(wire));
                            turn = turn.wrapping_add(1);
                        }
                        Err(e) => tracing::warn!("client {from}: {e}"),
                    },
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
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
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
