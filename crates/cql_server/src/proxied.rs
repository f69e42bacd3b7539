//! Ports for a proxy: each connection begins with a header of the PROXY protocol, which has the client's address.
//!
//! From there on, the address in the header replaces the peer's: in `system.clients`, in the log, and for the choice of
//! the shard. Headers are read on the shard that accepted, [`HEADERS_MAX`] at once; a connection above that is closed
//! unread. A proxy has [`CLIENT_PATIENCE`] for its header, and one that sends something else is closed, with a line in
//! the log.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use cql_protocol::{Progress, read_proxy_header};
use logging::LineLimit;
use runtime::net::TcpStream;

use crate::Server;
use crate::handshake::CLIENT_PATIENCE;

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

impl Server {
    /// Reads the header of a connection and has the connection served; `peer` is the proxy.
    pub(crate) fn serve_proxied(self: &Rc<Self>, mut stream: TcpStream, peer: SocketAddr, shard_aware: bool) {
        let under_way = &self.headers.under_way;
        if under_way.get() >= HEADERS_MAX {
            self.headers.log(peer, "too many others are read");
            return;
        }
        under_way.set(under_way.get() + 1);
        let server = self.clone();
        drop(runtime::spawn_in(self.drivers_group, async move {
            let read = runtime::timeout(CLIENT_PATIENCE, header(&mut stream));
            let read = server.until_drain(read).await;
            server.headers.under_way.set(server.headers.under_way.get() - 1);
            match read {
                None => {}
                Some(Ok(Ok(client))) => {
                    let client = client.unwrap_or(peer);
                    server.hand_over(stream, client, shard_aware);
                }
                Some(Ok(Err(reason))) => server.headers.log(peer, &reason),
                Some(Err(_)) => server.headers.log(peer, "it did not come in time"),
            }
        }));
    }
}

/// Reads a header and nothing after it: the client's address, if the header has one.
async fn header(stream: &mut TcpStream) -> Result<Option<SocketAddr>, String> {
    let mut bytes = Vec::new();
    loop {
        let wanted = match read_proxy_header(&bytes) {
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
