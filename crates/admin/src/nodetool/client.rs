//! The client's side of the API: one connection, one request at a time.

use std::net::SocketAddr;
use std::time::Duration;

use runtime::net::TcpStream;
use serde_json::Value;

/// An answer longer than this is not an API's.
const ANSWER_BYTES_MAX: usize = 256 << 20;
const HEADERS_MAX: usize = 32;
/// How long the node may take to accept a connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);

/// A connection to a node's API.
pub(super) struct Client {
    address: SocketAddr,
    stream: TcpStream,
    /// Whether a user looks at a terminal while a command waits.
    pub(super) shows_progress: bool,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr, shows_progress: bool) -> Result<Self, String> {
        let failed = |e: &dyn std::fmt::Display| format!("the node's REST API at {address} does not answer: {e}");
        match runtime::timeout(CONNECT_WAIT_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => Ok(Self {
                address,
                stream,
                shows_progress,
            }),
            // From elsewhere an API that listens on its own machine alone looks like none.
            Ok(Err(e)) if !address.ip().is_loopback() => Err(failed(&format_args!(
                "{e}. An API is reached from other machines only if the node's api_address names an address for that"
            ))),
            Ok(Err(e)) => Err(failed(&e)),
            Err(_) => Err(failed(&"it did not accept the connection in time")),
        }
    }

    /// Another connection to the same node.
    pub(super) async fn again(&self) -> Result<Self, String> {
        Self::connect(self.address, self.shows_progress).await
    }

    pub(super) async fn get(&mut self, path: &str) -> Result<Value, String> {
        self.ask("GET", path).await
    }

    pub(super) async fn text(&mut self, path: &str) -> Result<String, String> {
        Ok(string(&self.get(path).await?).to_owned())
    }

    pub(super) async fn number(&mut self, path: &str) -> Result<u64, String> {
        Ok(self.get(path).await?.as_u64().unwrap_or(0))
    }

    pub(super) async fn post(&mut self, path: &str) -> Result<(), String> {
        self.ask("POST", path).await.map(drop)
    }

    pub(super) async fn delete(&mut self, path: &str) -> Result<(), String> {
        self.ask("DELETE", path).await.map(drop)
    }

    /// The body of an answer.
    pub(super) async fn ask(&mut self, method: &str, path: &str) -> Result<Value, String> {
        match self.answer(method, path).await? {
            (200, value) => Ok(value),
            (status, value) => {
                let message = value["message"].as_str().map(str::to_owned);
                Err(message.unwrap_or_else(|| format!("{method} {path}: {status}")))
            }
        }
    }

    /// Status and body; null for an answer without a body.
    pub(super) async fn answer(&mut self, method: &str, path: &str) -> Result<(u16, Value), String> {
        let broken = |reason: &dyn std::fmt::Display| format!("{method} {path}: {reason}");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        let sent = self.stream.write_all(request.into_bytes()).await.0;
        sent.map_err(|e| broken(&e))?;
        let mut input = Vec::new();
        loop {
            if let Some((status, from, to)) = whole(&input).map_err(|e| broken(&e))? {
                let body = &input[from..to];
                let value = match body {
                    [] => Value::Null,
                    body => serde_json::from_slice(body).map_err(|e| broken(&e))?,
                };
                return Ok((status, value));
            }
            if input.len() > ANSWER_BYTES_MAX {
                return Err(broken(&"the answer has no end"));
            }
            input.reserve(16 << 10);
            let (result, filled) = self.stream.read(input).await;
            input = filled;
            match result {
                Ok(0) => return Err(broken(&"the node closed the connection")),
                Ok(_) => {}
                Err(e) => return Err(broken(&e)),
            }
        }
    }
}

/// Status of the answer and where its body is, once all of it is there.
fn whole(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => return Err(format!("not an HTTP answer: {e}")),
    };
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse::<usize>().ok());
    let length = length.filter(|length| *length <= ANSWER_BYTES_MAX);
    let end = head + length.ok_or("the answer does not say its length")?;
    Ok((bytes.len() >= end).then_some((response.code.unwrap_or(0), head, end)))
}

/// A value's text; empty for what is none.
pub(super) fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The texts of a list.
pub(super) fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|item| string(item).to_owned()).collect()
}

/// The pairs of a list of keys and values.
pub(super) fn pairs(value: &Value) -> Vec<(String, Value)> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|item| (string(&item["key"]).to_owned(), item["value"].clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(whole(answer), Ok(Some((404, 45, 47))));
        assert_eq!(whole(&answer[..46]), Ok(None));
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\n"), Ok(None));
        assert!(
            whole(b"HTTP/1.1 200 OK\r\n\r\n").is_err(),
            "without a length nobody knows where it ends"
        );
        assert!(whole(b"SSH-2.0\r\n").is_err());
    }
}
