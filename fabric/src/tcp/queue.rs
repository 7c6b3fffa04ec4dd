// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many TCP connections wait at a listener until the array accepts them.

use nix::sys::socket::{Backlog, listen};
use std::net::TcpListener;

/// Makes the queue of connections that wait to be accepted as long as the operating system allows
/// (`net.core.somaxconn`, 4,096 by default). The standard library asks for 128. Where the queue is full,
/// Linux drops the first packet of a further connection, and its client tries again a second later.
///
/// # Errors
/// The operating system's error.
pub fn lengthen_queue(listener: &TcpListener) -> std::io::Result<()> {
    listen(listener, Backlog::MAXALLOWABLE).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::time::Duration;

    #[test]
    fn a_thousand_connections_wait_to_be_accepted() {
        let _deadline = gnstor_base::testing::deadline();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        lengthen_queue(&listener).unwrap();
        let address = listener.local_addr().unwrap();
        // A client whose first packet is dropped waits for a second.
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500));
        let held: Vec<_> = (0..1000).map(connect).collect();
        assert_eq!(held.iter().filter(|stream| stream.is_err()).count(), 0);
    }
}
