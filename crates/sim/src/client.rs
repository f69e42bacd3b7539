//! A CQL client, as small as one can be: protocol version 4 in plain frames, and of version 5, in uncompressed
//! segments, what one needs to say at which second a statement is executed.
//!
//! ```text
//! request  04 00 stream[2] opcode[1] length[4]
//!   QUERY:   text [long string], consistency [short], flags (04 page size, 08 paging state, 10 serial level),
//!            [int], [bytes], [short]
//!   PREPARE: text [long string]
//!   EXECUTE: id [short bytes], consistency [short], flags 01, values [short] times [bytes]
//! response 84 flags stream[2] opcode[1] length[4]
//! version 5: 05 and 85; QUERY has flags [int]: 100 the second [int];
//!   after STARTUP and its answer, frames are in segments:
//!   length and flag [3, little endian], CRC-24 [3], payload, CRC-32 [4]
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use runtime::net::TcpStream;

use crate::decode::{Reader, Rows};

const HEADER_BYTES: usize = 9;
/// The flag of a response that begins with warnings.
const WARNINGS: u8 = 0x08;
const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;
const REGISTER: u8 = 0x0b;
const EVENT: u8 = 0x0c;
const CONSISTENCY_ONE: [u8; 2] = [0, 1];

/// The outcome of a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// Done, without a result.
    Done,
    /// Rows, and the state from which the next page continues.
    Rows(Rows, Option<Vec<u8>>),
    /// The id of a prepared statement.
    Prepared(Vec<u8>),
    /// Refused or failed.
    Error {
        /// The protocol's number of it.
        code: i32,
        /// In words.
        message: String,
    },
}

/// A connection that has started.
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    version: u8,
    /// Of version 5: what was read of segments that are not whole.
    segments: Option<Vec<u8>>,
}

/// The bytes around the payload of an uncompressed segment, and the bits of its length.
const SEGMENT_HEADER_BYTES: usize = 6;
const SEGMENT_TRAILER_BYTES: usize = 4;
const SEGMENT_LENGTH: usize = 0x1_ffff;

/// The frame of a request.
#[must_use]
pub fn frame(stream: u16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![4, 0];
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(opcode);
    out.extend_from_slice(&u32::try_from(body.len()).expect("requests are small").to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn long_string(text: &str) -> Vec<u8> {
    bytes(text.as_bytes())
}

fn bytes(value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).expect("statements and values are short");
    [&length.to_be_bytes()[..], value].concat()
}

/// The QUERY frame of a statement.
#[must_use]
pub fn query(stream: u16, text: &str) -> Vec<u8> {
    query_at(stream, text, u16::from_be_bytes(CONSISTENCY_ONE))
}

/// The QUERY frame of a statement in version 5 of the protocol, which belongs into a segment.
#[must_use]
pub fn query_of_version_5(stream: u16, text: &str) -> Vec<u8> {
    let mut request = frame(
        stream,
        QUERY,
        &[&long_string(text)[..], &CONSISTENCY_ONE, &[0; 4]].concat(),
    );
    request[0] = 5;
    request
}

/// The QUERY frame of a statement at a consistency level, by its number in the protocol.
#[must_use]
pub fn query_at(stream: u16, text: &str, level: u16) -> Vec<u8> {
    let body = [&long_string(text)[..], &level.to_be_bytes(), &[0]].concat();
    frame(stream, QUERY, &body)
}

/// The QUERY frame of a conditional statement: the level of its commit, and the serial level.
#[must_use]
pub fn query_serially(stream: u16, text: &str, level: u16, serial: u16) -> Vec<u8> {
    let body = [
        &long_string(text)[..],
        &level.to_be_bytes(),
        &[0x10],
        &serial.to_be_bytes(),
    ]
    .concat();
    frame(stream, QUERY, &body)
}

/// The QUERY frame that asks for a page, the first one or the one after a state, at ONE.
#[must_use]
pub fn query_page(stream: u16, text: &str, rows: i32, state: Option<&[u8]>) -> Vec<u8> {
    query_page_at(stream, text, u16::from_be_bytes(CONSISTENCY_ONE), rows, state)
}

/// The QUERY frame that asks for a page at a consistency level, by its number in the protocol.
#[must_use]
pub fn query_page_at(stream: u16, text: &str, level: u16, rows: i32, state: Option<&[u8]>) -> Vec<u8> {
    let flags = if state.is_some() { 0x0c } else { 0x04 };
    let mut body = [
        &long_string(text)[..],
        &level.to_be_bytes(),
        &[flags],
        &rows.to_be_bytes(),
    ]
    .concat();
    body.extend(state.map(bytes).unwrap_or_default());
    frame(stream, QUERY, &body)
}

/// The PREPARE frame of a statement.
#[must_use]
pub fn prepare(stream: u16, text: &str) -> Vec<u8> {
    frame(stream, PREPARE, &long_string(text))
}

/// The EXECUTE frame of a prepared statement, at ONE.
#[must_use]
pub fn execute(stream: u16, id: &[u8], values: &[Vec<u8>]) -> Vec<u8> {
    execute_at(stream, id, values, u16::from_be_bytes(CONSISTENCY_ONE))
}

/// The EXECUTE frame of a prepared statement at a consistency level, by its number in the protocol.
#[must_use]
pub fn execute_at(stream: u16, id: &[u8], values: &[Vec<u8>], level: u16) -> Vec<u8> {
    let short = |n: usize| {
        u16::try_from(n)
            .expect("ids and lists of values are short")
            .to_be_bytes()
    };
    let mut body = [
        &short(id.len())[..],
        id,
        &level.to_be_bytes(),
        &[1],
        &short(values.len()),
    ]
    .concat();
    values.iter().for_each(|v| body.extend(bytes(v)));
    frame(stream, EXECUTE, &body)
}

impl Client {
    /// Connects and starts.
    ///
    /// # Errors
    /// When nothing listens at the address, or the connection ends before it is ready.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::connect_with(address, 4, &[]).await
    }

    /// Connects and starts with version 5 of the protocol, for [`Client::ask_at_second`] alone.
    ///
    /// # Errors
    /// As those of [`Client::connect`].
    pub async fn connect_with_version_5(address: SocketAddr) -> io::Result<Self> {
        let mut client = Self::connect_with(address, 5, &[]).await?;
        client.segments = Some(Vec::new());
        Ok(client)
    }

    /// Connects and starts with version 5 of the protocol and compressed segments, for [`Client::send`] alone.
    ///
    /// # Errors
    /// As those of [`Client::connect`].
    pub async fn connect_with_lz4(address: SocketAddr) -> io::Result<Self> {
        Self::connect_with(address, 5, &["COMPRESSION", "lz4"]).await
    }

    /// `options` are names and values of STARTUP.
    async fn connect_with(address: SocketAddr, version: u8, options: &[&str]) -> io::Result<Self> {
        let mut client = Self {
            stream: TcpStream::connect(address).await?,
            input: Vec::new(),
            version,
            segments: None,
        };
        let count = 1 + u16::try_from(options.len() / 2).expect("a few options");
        let mut body = count.to_be_bytes().to_vec();
        for word in ["CQL_VERSION", "3.0.0"].iter().chain(options) {
            body.extend_from_slice(&u16::try_from(word.len()).expect("a short word").to_be_bytes());
            body.extend_from_slice(word.as_bytes());
        }
        let mut startup = frame(0, STARTUP, &body);
        startup[0] = version;
        client.send(startup).await?;
        match client.answer().await? {
            (0, Answer::Done) => Ok(client),
            other => Err(io::Error::other(format!("expected READY, got {other:?}"))),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.stream.write_all(bytes).await.0
    }

    /// Asks one statement.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn ask(&mut self, statement: &str) -> io::Result<Answer> {
        self.send(query(0, statement)).await?;
        Ok(self.answer().await?.1)
    }

    /// Asks one statement at a consistency level, by its number in the protocol.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn ask_at(&mut self, statement: &str, level: u16) -> io::Result<Answer> {
        self.send(query_at(0, statement, level)).await?;
        Ok(self.answer().await?.1)
    }

    /// Asks one statement, which is executed at this second of the client's (`now_in_seconds`).
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn ask_at_second(&mut self, statement: &str, level: u16, second: i32) -> io::Result<Answer> {
        let flags = 0x100_u32.to_be_bytes();
        let body = [
            &long_string(statement)[..],
            &level.to_be_bytes(),
            &flags,
            &second.to_be_bytes(),
        ]
        .concat();
        let mut request = frame(0, QUERY, &body);
        request[0] = self.version;
        let mut segments = Vec::new();
        cql_protocol::encode_segments(&request, false, &mut segments);
        self.send(segments).await?;
        Ok(self.answer().await?.1)
    }

    /// Asks for a page at a consistency level, by its number in the protocol.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn ask_page(&mut self, text: &str, level: u16, rows: i32, state: Option<&[u8]>) -> io::Result<Answer> {
        self.send(query_page_at(0, text, level, rows, state)).await?;
        Ok(self.answer().await?.1)
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn prepare(&mut self, text: &str) -> io::Result<Answer> {
        self.send(prepare(0, text)).await?;
        Ok(self.answer().await?.1)
    }

    /// Executes a prepared statement at a consistency level, by its number in the protocol.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn execute_at(&mut self, id: &[u8], values: &[Vec<u8>], level: u16) -> io::Result<Answer> {
        self.send(execute_at(0, id, values, level)).await?;
        Ok(self.answer().await?.1)
    }

    /// Asks one conditional statement, at the level of its commit and a serial level, by their numbers in the protocol.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn ask_serially(&mut self, statement: &str, level: u16, serial: u16) -> io::Result<Answer> {
        self.send(query_serially(0, statement, level, serial)).await?;
        Ok(self.answer().await?.1)
    }

    /// The next answer and the stream it belongs to.
    ///
    /// # Errors
    /// When the connection is lost.
    ///
    /// # Panics
    /// When the node sends what is not CQL.
    pub async fn answer(&mut self) -> io::Result<(u16, Answer)> {
        let Frame {
            stream,
            flags,
            opcode,
            body,
        } = self.frame().await?;
        let answer = parse(flags, opcode, &body).expect("the node sends whole answers");
        Ok((stream, answer))
    }

    /// Registers for the events of members: TOPOLOGY_CHANGE and STATUS_CHANGE.
    ///
    /// # Errors
    /// When the connection is lost, or the node refuses it.
    pub async fn register_for_members(&mut self) -> io::Result<()> {
        let mut body = vec![0, 2];
        for event in ["TOPOLOGY_CHANGE", "STATUS_CHANGE"] {
            body.extend_from_slice(&u16::try_from(event.len()).expect("a short word").to_be_bytes());
            body.extend_from_slice(event.as_bytes());
        }
        self.send(frame(0, REGISTER, &body)).await?;
        match self.answer().await? {
            (_, Answer::Done) => Ok(()),
            (_, other) => Err(io::Error::other(format!("expected READY, got {other:?}"))),
        }
    }

    /// The next event of a connection that has registered for those of members and asks nothing: what happened, and the
    /// address that it is about.
    ///
    /// # Errors
    /// When the connection is lost.
    ///
    /// # Panics
    /// When the node sends anything else.
    pub async fn member_event(&mut self) -> io::Result<(String, SocketAddr)> {
        let frame = self.frame().await?;
        assert_eq!(frame.opcode, EVENT, "the node sends events alone");
        let mut reader = Reader(&frame.body);
        let event = reader.string().and_then(|_| Some((reader.string()?, reader.inet()?)));
        Ok(event.expect("the node sends whole events"))
    }

    /// The next frame.
    async fn frame(&mut self) -> io::Result<Frame> {
        loop {
            if let Some((header, rest)) = self.input.split_first_chunk::<HEADER_BYTES>() {
                let [version, flags, stream0, stream1, opcode, length @ ..] = *header;
                assert_eq!(
                    version,
                    0x80 | self.version,
                    "the node answers in the version of the request"
                );
                let length = u32::from_be_bytes(length) as usize;
                if let Some(body) = rest.get(..length) {
                    let frame = Frame {
                        stream: u16::from_be_bytes([stream0, stream1]),
                        flags,
                        opcode,
                        body: body.to_vec(),
                    };
                    self.input.drain(..HEADER_BYTES + length);
                    return Ok(frame);
                }
            }
            let into = self.segments.as_mut().unwrap_or(&mut self.input);
            let mut read = std::mem::take(into);
            read.reserve(16 << 10);
            let (result, read) = self.stream.read(read).await;
            match &mut self.segments {
                Some(segments) => {
                    *segments = read;
                    self.take_segments();
                }
                None => self.input = read,
            }
            if result? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Takes the payloads of whole segments.
    fn take_segments(&mut self) {
        let Some(segments) = &mut self.segments else { return };
        while let Some([length0, length1, length2, ..]) = segments.first_chunk::<SEGMENT_HEADER_BYTES>() {
            let length = u32::from_le_bytes([*length0, *length1, *length2, 0]) as usize & SEGMENT_LENGTH;
            let end = SEGMENT_HEADER_BYTES + length;
            if segments.len() < end + SEGMENT_TRAILER_BYTES {
                return;
            }
            self.input.extend_from_slice(&segments[SEGMENT_HEADER_BYTES..end]);
            segments.drain(..end + SEGMENT_TRAILER_BYTES);
        }
    }
}

/// A frame that the node has sent.
struct Frame {
    stream: u16,
    flags: u8,
    opcode: u8,
    body: Vec<u8>,
}

fn parse(flags: u8, opcode: u8, body: &[u8]) -> Option<Answer> {
    let mut reader = Reader(body);
    if flags & WARNINGS != 0 {
        for _ in 0..reader.short()? {
            reader.string()?;
        }
    }
    Some(match opcode {
        0x00 => Answer::Error {
            code: reader.int()?,
            message: reader.string()?,
        },
        0x02 => Answer::Done,
        0x08 => match reader.int()? {
            2 => {
                let (rows, next) = reader.rows()?;
                Answer::Rows(rows, next)
            }
            4 => {
                let length = reader.short()?;
                Answer::Prepared(reader.take(length.into())?.to_vec())
            }
            1 | 3 | 5 => Answer::Done,
            _ => return None,
        },
        _ => return None,
    })
}

/// Connections that break off in the middle of a frame, or ask and do not read what they are answered. Ends never.
pub(crate) async fn be_rude(address: SocketAddr) {
    loop {
        runtime::sleep(Duration::from_millis(runtime::random_u64() % 30)).await;
        let Ok(mut client) = Client::connect(address).await else {
            continue;
        };
        if runtime::random_u64().is_multiple_of(2) {
            let mut bytes = query(1, "SELECT * FROM system.local");
            bytes.truncate(usize::try_from(runtime::random_u64() % bytes.len() as u64).expect("below a length"));
            let _ = client.send(bytes).await;
        } else {
            let request = query(2, "SELECT * FROM system_schema.columns");
            let asking = async {
                for _ in 0..200 {
                    if client.send(request.clone()).await.is_err() {
                        break;
                    }
                }
            };
            let _ = runtime::timeout(Duration::from_millis(200), asking).await;
        }
    }
}
