//! A client of the DynamoDB API, as small as one can be: one request of HTTP/1.1 after the other, unsigned.

use std::io;
use std::net::SocketAddr;

use runtime::net::TcpStream;
use serde_json::Value;

const READ_BYTES: usize = 4096;

/// A connection.
pub(crate) struct ApiClient {
    stream: TcpStream,
    input: Vec<u8>,
}

/// What was answered: 200, or what went wrong.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The status of HTTP.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Value,
}

impl Answered {
    /// The name of the error, without what it begins with; none if there is no error.
    pub(crate) fn error(&self) -> Option<&str> {
        let name = self.body.get("__type")?.as_str()?;
        Some(name.rsplit_once('#').map_or(name, |(_, name)| name))
    }
}

impl ApiClient {
    /// Connects.
    ///
    /// # Errors
    /// When the node does not take the connection.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            stream: TcpStream::connect(address).await?,
            input: Vec::new(),
        })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When the connection is lost, or what comes is no answer.
    pub(crate) async fn ask(&mut self, operation: &str, body: &Value) -> io::Result<Answered> {
        let body = body.to_string();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: ceto\r\nX-Amz-Target: DynamoDB_20120810.{operation}\r\n\
             Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all([head, body].concat().into_bytes()).await.0?;
        let head = loop {
            let end = self.input.windows(4).position(|four| four == b"\r\n\r\n");
            match end {
                Some(end) => break self.input.drain(..end + 4).collect::<Vec<u8>>(),
                None => self.read_more().await?,
            }
        };
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let no_answer = || io::Error::other(format!("no answer of HTTP: {head:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let (status, length): (u16, usize) = status.zip(length).ok_or_else(no_answer)?;
        while self.input.len() < length {
            self.read_more().await?;
        }
        let body: Vec<u8> = self.input.drain(..length).collect();
        let body = serde_json::from_slice(&body).map_err(io::Error::other)?;
        Ok(Answered { status, body })
    }

    async fn read_more(&mut self) -> io::Result<()> {
        self.input.reserve(READ_BYTES);
        let (read, input) = self.stream.read(std::mem::take(&mut self.input)).await;
        self.input = input;
        match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
