//! Ports for a proxy: each connection begins with a header of the PROXY protocol, which has the client's address.
//!
//! From there on, the address in the header replaces the peer's: in `system.clients`, in the log, and for the choice of
//! the shard. Headers are read on the shard that accepted, [`HEADERS_MAX`] at once; a connection above that is closed
//! unread. A proxy has [`HANDSHAKE_TIME_MAX`] for its header, and one that sends something else is closed, with a line
//! in the log.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use logging::LineLimit;
use runtime::net::TcpStream;

use crate::listeners::{Door, hand_over};
use crate::proxy_header::{self, Progress};
use crate::session::HANDSHAKE_TIME_MAX;

/// Headers of a shard that are read at once.
const HEADERS_MAX: usize = 1024;

/// A shard's account of headers.
pub(crate) struct Headers {
    /// Those that are read now.
    under_way: Cell<usize>,
    refused: LineLimit,
}

impl Default for Headers {
    fn default() -> Self {
        Self {
            under_way: Cell::new(0),
            refused: LineLimit::new(|lines| {
                log::warn!("{lines} more connections without a PROXY header are not logged");
            }),
        }
    }
}

/// Reads the header of a connection and makes its front door serve the connection; `peer` is the proxy.
pub(crate) fn serve<D: Door>(door: Rc<D>, mut stream: TcpStream, peer: SocketAddr, shard_aware: bool) {
    let front = door.front().clone();
    let headers = &front.headers;
    if headers.under_way.get() >= HEADERS_MAX {
        headers.log(peer, "too many others are read");
        return;
    }
    headers.under_way.set(headers.under_way.get() + 1);
    drop(runtime::spawn_in(front.drivers_group, async move {
        let front = door.front().clone();
        let read = runtime::timeout(HANDSHAKE_TIME_MAX, header(&mut stream));
        let read = front.until_drain(read).await;
        front.headers.under_way.set(front.headers.under_way.get() - 1);
        match read {
            None => {}
            Some(Ok(Ok(client))) => hand_over(door, stream, client.unwrap_or(peer), shard_aware),
            Some(Ok(Err(reason))) => front.headers.log(peer, &reason),
            Some(Err(_)) => front.headers.log(peer, "it did not come in time"),
        }
    }));
}

/// Reads a header and nothing after it: the client's address, if the header has one.
async fn header(stream: &mut TcpStream) -> Result<Option<SocketAddr>, String> {
    let mut bytes = Vec::new();
    loop {
        let wanted = match proxy_header::read(&bytes) {
            Ok(Progress::Whole(client)) => return Ok(client),
            Ok(Progress::Wants(more)) => more,
            Err(e) => return Err(e.to_string()),
        };
        let (result, piece) = stream.read(Vec::with_capacity(wanted)).await;
        match result {
            Ok(0) => return Err("the connection ended in it".to_owned()),
            Ok(_) => {}
            Err(e) => return Err(e.to_string()),
        }
        if piece.len() > wanted {
            return Err("more was read than belongs to it".to_owned());
        }
        bytes.extend_from_slice(&piece);
    }
}

impl Headers {
    /// Logs that a connection is closed, unless the period has had its share of such lines.
    #[cold]
    fn log(&self, peer: SocketAddr, reason: &str) {
        if self.refused.admits() {
            log::warn!("a connection of {peer} is closed, as it begins with no PROXY header: {reason}");
        }
    }
}
