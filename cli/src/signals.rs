// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The signal that acts as a power failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// A flag that SIGUSR1 sets. From here on the signal does not end the process by itself.
///
/// # Errors
/// The operating system's error.
pub(crate) fn power_failure() -> std::io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        signal(SignalKind::user_defined1())?
    };
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    // The thread waits as long as the process lives.
    std::thread::Builder::new().name("gn-signals".into()).spawn(move || {
        runtime.block_on(signals.recv());
        raised.store(true, Ordering::Release);
    })?;
    Ok(flag)
}
