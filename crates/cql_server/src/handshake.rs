//! A connection's start: from its first byte to READY.
//!
//! Until then a connection is one task, a socket and a small buffer: no writer, no outbox. What its client sends is
//! answered in place; each answer is work that needs a place ([`front::Uninitialized`]), and waiting for the client has
//! none. A client has [`HANDSHAKE_TIME_MAX`] for its part of it, and [`REQUESTS_MAX`] requests.

use cql_protocol::{
    Extensions, FRAME_BYTES_MAX_BEFORE_STARTUP, Frame, ProtocolVersion, Request, Splitter, decode_request, write_ready,
};
use front::{Client, HANDSHAKE_TIME_MAX, Uninitialized, increment};
use runtime::net::TcpStream;

use crate::Server;
use crate::respond::{Reply, frame_error};
use crate::startup::{self, StartupOptions};

/// Requests before READY: drivers send two. Their answers together fit into the smallest buffer that a socket has, so
/// that no answer waits for a client that does not read.
const REQUESTS_MAX: usize = 8;

/// STARTUP and its options fit, and what HTTP clients say; a longer request takes memory of the shard first, and makes
/// the buffer grow as it arrives.
const INPUT_BYTES: usize = 2 << 10;

/// What a connection continues with after its handshake.
pub(crate) struct Started {
    pub(crate) version: ProtocolVersion,
    pub(crate) startup: StartupOptions,
    /// What the client sent after STARTUP.
    pub(crate) input: Vec<u8>,
}

/// Whether a request was the one that opens the connection.
enum Answered {
    Other,
    Startup(ProtocolVersion, StartupOptions),
}

/// Brings a connection to READY; None when it ends before.
pub(crate) async fn handshake(
    server: &Server,
    stream: &mut TcpStream,
    splitter: &mut Splitter,
    uninitialized: &Uninitialized,
    client: &Client,
) -> Option<Started> {
    let mut patience = HANDSHAKE_TIME_MAX;
    let mut input: Vec<u8> = Vec::with_capacity(INPUT_BYTES);
    let mut requests_left = REQUESTS_MAX;
    let mut reserved = None;
    loop {
        if input.len() == input.capacity() {
            if reserved.is_none() {
                let wanted = server.front.memory.frames.acquire(FRAME_BYTES_MAX_BEFORE_STARTUP);
                reserved = Some(runtime::timeout(patience, wanted).await.ok()?);
            }
            input.reserve(input.len());
        }
        let began = runtime::now();
        let (read, filled) = runtime::timeout(patience, stream.read(input)).await.ok()?;
        patience = patience.saturating_sub(began.elapsed());
        input = filled;
        if !matches!(read, Ok(n) if n > 0) {
            return None;
        }
        let place = uninitialized.place().await;
        let (mut out, mut consumed) = (Vec::new(), 0);
        let mut started = None;
        let mut ends = false;
        while started.is_none() && !ends {
            match splitter.next(&input, &mut consumed) {
                Ok(Some(frame)) => {
                    increment(&server.counts.frames);
                    client.add_requests(1);
                    if requests_left == 0 {
                        let message = format!("{REQUESTS_MAX} messages before STARTUP are enough");
                        Reply::to(&frame.header).protocol_error(&mut out, &message);
                        ends = true;
                    } else if let Answered::Startup(version, startup) = answer(server, &frame, client, &mut out) {
                        started = Some((version, startup));
                    }
                    requests_left = requests_left.saturating_sub(1);
                }
                Ok(None) => break,
                Err(error) => {
                    frame_error(&mut out, &error);
                    ends = true;
                }
            }
        }
        // STARTUP's answer is still sent plain, what follows as agreed.
        let (sent, _) = runtime::timeout(patience, stream.write_all(out)).await.ok()?;
        drop(place);
        if ends || sent.is_err() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return None;
        }
        input.drain(..consumed);
        if let Some((version, startup)) = started {
            return Some(Started {
                version,
                startup,
                input,
            });
        }
    }
}

/// Answers one request.
fn answer(server: &Server, frame: &Frame<'_>, client: &Client, out: &mut Vec<u8>) -> Answered {
    let reply = Reply::to(&frame.header);
    let request = match decode_request(frame, Extensions::default()) {
        Ok((_payload, request)) => request,
        Err(e) => {
            reply.protocol_error(out, &e.to_string());
            return Answered::Other;
        }
    };
    let name = match request {
        Request::Options => {
            server.supported(out, reply.version, reply.stream);
            return Answered::Other;
        }
        Request::Startup(options) => match startup::agree(&options, reply.version, server.options.tablets_routing_v2) {
            Ok(startup) => {
                let told = options
                    .iter()
                    .map(|(name, value)| (name.to_ascii_uppercase(), value.to_owned()));
                client.started(reply.version.number(), told.collect());
                write_ready(out, reply.version, reply.stream);
                return Answered::Startup(reply.version, startup);
            }
            Err(e) => {
                reply.protocol_error(out, &e);
                return Answered::Other;
            }
        },
        Request::Query { .. } => "QUERY",
        Request::Prepare { .. } => "PREPARE",
        Request::Execute { .. } => "EXECUTE",
        Request::Batch(_) => "BATCH",
        Request::Register(_) => "REGISTER",
        Request::AuthResponse(_) => "AUTH_RESPONSE",
    };
    let message = format!("Unexpected message {name}, expecting STARTUP or OPTIONS");
    reply.protocol_error(out, &message);
    Answered::Other
}
