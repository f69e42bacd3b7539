//! Opening connections, and the few statements before a run: one request at a time.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use runtime::net::TcpStream;

use super::frames::{HEADER_BYTES, OPCODE_ERROR, OPCODE_RESULT, REQUEST_VERSION, ResponseFrame};
use crate::load::LoadError;

const OPCODE_STARTUP: u8 = 0x01;
const OPCODE_READY: u8 = 0x02;
const OPCODE_AUTHENTICATE: u8 = 0x03;
const OPCODE_OPTIONS: u8 = 0x05;
const OPCODE_SUPPORTED: u8 = 0x06;
const OPCODE_QUERY: u8 = 0x07;
const OPCODE_PREPARE: u8 = 0x09;
const OPCODE_AUTH_RESPONSE: u8 = 0x0f;
const OPCODE_AUTH_SUCCESS: u8 = 0x10;

const FLAG_TRACING: u8 = 0x02;
const FLAG_CUSTOM_PAYLOAD: u8 = 0x04;
const FLAG_WARNING: u8 = 0x08;

const RESULT_PREPARED: [u8; 4] = [0, 0, 0, 4];

/// A schema change can take long on a busy node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How connections introduce themselves.
pub(super) struct Setup {
    pub(super) user: String,
    pub(super) password: String,
}

/// What SUPPORTED said about the server's shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sharding {
    /// The shard this connection reached.
    pub(super) shard: u32,
    pub(super) shards: u32,
    pub(super) ignore_msb: u32,
    /// The port on which the client's port chooses the shard.
    pub(super) port: Option<u16>,
}

/// An open connection.
pub(super) struct Handshake {
    pub(super) stream: TcpStream,
    pub(super) sharding: Option<Sharding>,
    input: Vec<u8>,
}

impl Setup {
    pub(super) async fn open(&self, address: SocketAddr) -> Result<Handshake, LoadError> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| LoadError::Io(format!("connecting to {address}"), error))?;
        stream
            .set_nodelay(true)
            .map_err(|error| LoadError::Io("no delay".to_string(), error))?;
        let mut connection = Handshake::again(stream, None);
        let (opcode, body) = connection.ask(OPCODE_OPTIONS, &[]).await?;
        if opcode != OPCODE_SUPPORTED {
            return Err(unexpected("OPTIONS", opcode));
        }
        connection.sharding = sharding(&body);
        let mut startup = vec![0, 1];
        append_string(&mut startup, "CQL_VERSION");
        append_string(&mut startup, "3.0.0");
        let (opcode, _) = connection.ask(OPCODE_STARTUP, &startup).await?;
        match opcode {
            OPCODE_READY => return Ok(connection),
            OPCODE_AUTHENTICATE => {}
            other => return Err(unexpected("STARTUP", other)),
        }
        let token = format!("\0{}\0{}", self.user, self.password);
        let mut response = length(&token).to_be_bytes().to_vec();
        response.extend_from_slice(token.as_bytes());
        match connection.ask(OPCODE_AUTH_RESPONSE, &response).await? {
            (OPCODE_AUTH_SUCCESS, _) => Ok(connection),
            (other, _) => Err(unexpected("AUTH_RESPONSE", other)),
        }
    }
}

impl Handshake {
    /// A connection whose handshake is done.
    pub(super) fn again(stream: TcpStream, sharding: Option<Sharding>) -> Handshake {
        Handshake {
            stream,
            sharding,
            input: Vec::with_capacity(64 * 1024),
        }
    }

    /// Runs a statement whose result does not matter.
    pub(super) async fn query(&mut self, text: &str) -> Result<(), LoadError> {
        let mut body = length(text).to_be_bytes().to_vec();
        body.extend_from_slice(text.as_bytes());
        body.extend_from_slice(&[0, 1, 0]);
        match self.ask(OPCODE_QUERY, &body).await? {
            (OPCODE_RESULT, _) => Ok(()),
            (other, _) => Err(unexpected(text, other)),
        }
    }

    /// The id of a prepared statement.
    pub(super) async fn prepare(&mut self, text: &str) -> Result<Vec<u8>, LoadError> {
        let mut body = length(text).to_be_bytes().to_vec();
        body.extend_from_slice(text.as_bytes());
        let (opcode, result) = self.ask(OPCODE_PREPARE, &body).await?;
        let id = match result.split_first_chunk() {
            Some((&RESULT_PREPARED, rest)) if opcode == OPCODE_RESULT => read_short_bytes(rest),
            _ => None,
        };
        id.map(|(id, _)| id.to_vec()).ok_or_else(|| unexpected(text, opcode))
    }

    /// Sends one request, and waits for its answer.
    async fn ask(&mut self, opcode: u8, body: &[u8]) -> Result<(u8, Vec<u8>), LoadError> {
        let failed = |error| LoadError::Io("talking to the server".to_string(), error);
        let mut request = vec![REQUEST_VERSION, 0, 0, 0, opcode];
        request.extend_from_slice(&u32::try_from(body.len()).expect("short statements").to_be_bytes());
        request.extend_from_slice(body);
        self.stream.write_all(request).await.0.map_err(failed)?;
        loop {
            if let Some(frame) = ResponseFrame::parse(&self.input)? {
                let consumed = HEADER_BYTES + frame.body.len();
                if frame.opcode == OPCODE_ERROR {
                    let (name, text) = frame.error();
                    self.input.drain(..consumed);
                    return Err(LoadError::Refused(format!("{name}: {text}")));
                }
                let body = message_of(&frame).ok_or_else(|| unexpected("what precedes a message", frame.opcode))?;
                let answer = (frame.opcode, body.to_vec());
                self.input.drain(..consumed);
                return Ok(answer);
            }
            let mut input = std::mem::take(&mut self.input);
            if input.len() == input.capacity() {
                input.reserve(64 * 1024);
            }
            let reading = runtime::timeout(ANSWER_TIMEOUT, self.stream.read(input)).await;
            let (result, input) = reading.map_err(|_| failed(io::Error::from(io::ErrorKind::TimedOut)))?;
            self.input = input;
            if result.map_err(failed)? == 0 {
                return Err(failed(io::Error::from(io::ErrorKind::UnexpectedEof)));
            }
        }
    }
}

/// The message of a response, after its tracing id, warnings and custom payload.
fn message_of<'a>(frame: &ResponseFrame<'a>) -> Option<&'a [u8]> {
    let mut rest = frame.body;
    if frame.flags & FLAG_TRACING != 0 {
        rest = rest.get(16..)?;
    }
    if frame.flags & FLAG_WARNING != 0 {
        let (count, mut after) = read_short(rest)?;
        for _ in 0..count {
            (_, after) = read_short_bytes(after)?;
        }
        rest = after;
    }
    if frame.flags & FLAG_CUSTOM_PAYLOAD != 0 {
        let (count, mut after) = read_short(rest)?;
        for _ in 0..count {
            (_, after) = read_short_bytes(after)?;
            let (length, value) = after.split_first_chunk::<4>()?;
            after = value.get(usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0)..)?;
        }
        rest = after;
    }
    Some(rest)
}

fn unexpected(what: &str, opcode: u8) -> LoadError {
    LoadError::Protocol(format!("opcode {opcode:#04x} in answer to {what}"))
}

fn length(text: &str) -> u32 {
    u32::try_from(text.len()).expect("short statements")
}

fn append_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&u16::try_from(text.len()).expect("short strings").to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn read_short(bytes: &[u8]) -> Option<(u16, &[u8])> {
    bytes
        .split_first_chunk()
        .map(|(number, rest)| (u16::from_be_bytes(*number), rest))
}

fn read_short_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = read_short(bytes)?;
    rest.split_at_checked(usize::from(length))
}

/// What SUPPORTED says about shards, if it does.
fn sharding(body: &[u8]) -> Option<Sharding> {
    let (count, mut rest) = read_short(body)?;
    let mut options = BTreeMap::new();
    for _ in 0..count {
        let (name, values) = read_short_bytes(rest)?;
        let (values_count, mut after) = read_short(values)?;
        for _ in 0..values_count {
            let (value, next) = read_short_bytes(after)?;
            options.entry(name).or_insert(std::str::from_utf8(value).ok()?);
            after = next;
        }
        rest = after;
    }
    let number = |name: &str| options.get(name.as_bytes())?.parse::<u32>().ok();
    Some(Sharding {
        shard: number("SCYLLA_SHARD")?,
        shards: number("SCYLLA_NR_SHARDS").filter(|shards| (1..=4096).contains(shards))?,
        ignore_msb: number("SCYLLA_SHARDING_IGNORE_MSB").unwrap_or(0),
        port: number("SCYLLA_SHARD_AWARE_PORT").and_then(|port| u16::try_from(port).ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supported(options: &[(&str, &[&str])]) -> Vec<u8> {
        let mut body = (options.len() as u16).to_be_bytes().to_vec();
        for (name, values) in options {
            append_string(&mut body, name);
            body.extend_from_slice(&(values.len() as u16).to_be_bytes());
            values.iter().for_each(|value| append_string(&mut body, value));
        }
        body
    }

    #[test]
    fn sharding_is_read_from_supported() {
        let body = supported(&[
            ("COMPRESSION", &["lz4", "snappy"]),
            ("SCYLLA_SHARD", &["3"]),
            ("SCYLLA_NR_SHARDS", &["8"]),
            ("SCYLLA_SHARDING_IGNORE_MSB", &["12"]),
            ("SCYLLA_SHARD_AWARE_PORT", &["19042"]),
        ]);
        let expected = Sharding {
            shard: 3,
            shards: 8,
            ignore_msb: 12,
            port: Some(19042),
        };
        assert_eq!(sharding(&body), Some(expected));
        for cut in 0..body.len() {
            assert_eq!(sharding(&body[..cut]), None, "cut at {cut}");
        }
        assert_eq!(
            sharding(&supported(&[("COMPRESSION", &["lz4"])])),
            None,
            "Cassandra has no shards"
        );
        assert_eq!(
            sharding(&supported(&[("SCYLLA_SHARD", &["0"]), ("SCYLLA_NR_SHARDS", &["0"])])),
            None
        );
    }

    #[test]
    fn the_message_stands_behind_warnings_and_payload() {
        let body = b"\0\x01\0\x04warn\0\x02\0\x01a\0\0\0\x02xy\0\x01b\xff\xff\xff\xffMESSAGE";
        let frame = ResponseFrame {
            opcode: OPCODE_RESULT,
            flags: FLAG_WARNING | FLAG_CUSTOM_PAYLOAD,
            stream: 0,
            body,
        };
        assert_eq!(message_of(&frame), Some(b"MESSAGE".as_slice()));
        let cut = ResponseFrame {
            body: &body[..10],
            ..frame
        };
        assert_eq!(message_of(&cut), None);
    }
}
