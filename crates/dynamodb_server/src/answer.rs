//! Answers as bytes: status, headers, checksum, body.

use std::fmt::Display;

use http::{Head, Version, write_head};
use runtime::random_u64;
use stdx::preempt;
use tz::UtcDateTime;

use crate::encoding::{self, Coding, crc32};
use crate::{Refusal, Settings};

/// The type of bodies of operations and of errors.
const JSON: &str = "application/x-amz-json-1.0";
/// The body for a request that the service does not know at all.
const UNKNOWN: &[u8] = b"<UnknownOperationException/>\n";
/// Characters of a request's id.
const ID_CHARS: usize = 52;
/// How long a client may take a preflight's answer for granted, in seconds.
const PREFLIGHT_MAX_AGE: u32 = 172_800;
/// Headers that scripts of other sites may read.
const EXPOSED: &str = "x-amzn-RequestId,x-amz-crc32,Date";

/// What is kept of a request's head for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    /// The connection stays open afterwards.
    pub keep_alive: bool,
    version: Version,
    /// To HEAD there is no body.
    has_body: bool,
    /// A script of another site asks.
    has_origin: bool,
    /// How a long body is compressed.
    coding: Option<Coding>,
}

impl Style {
    /// Of the answer to a request.
    pub(crate) fn of(head: &Head<'_>) -> Self {
        Self {
            keep_alive: head.keep_alive,
            version: head.version,
            has_body: head.method != "HEAD",
            has_origin: head.values("origin").next().is_some(),
            coding: encoding::of_answer(head),
        }
    }

    /// Of an answer after which the connection ends, because the next request cannot be found.
    pub(crate) fn last() -> Self {
        Self {
            keep_alive: false,
            version: Version::Http11,
            has_body: true,
            has_origin: false,
            coding: None,
        }
    }
}

/// An answer that is not encoded yet.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub status: u16,
    content_type: &'static str,
    body: Vec<u8>,
    /// What a preflight asked for: method and headers.
    preflight: Option<(String, String)>,
}

impl Answer {
    fn new(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        Self {
            status,
            content_type,
            body,
            preflight: None,
        }
    }

    /// JSON of an operation.
    pub(crate) fn json(status: u16, body: Vec<u8>) -> Self {
        Self::new(status, JSON, body)
    }

    /// JSON of a page that is no operation.
    pub(crate) fn page(body: Vec<u8>) -> Self {
        Self::new(200, "application/json", body)
    }

    pub(crate) fn text(body: String) -> Self {
        Self::new(200, "text/plain", body.into_bytes())
    }

    pub(crate) fn refusal(refusal: &Refusal) -> Self {
        Self::json(refusal.status, refusal.body())
    }

    /// Of a request that the service does not know at all.
    pub(crate) fn unknown() -> Self {
        Self::new(404, "text/plain", UNKNOWN.to_vec())
    }

    /// What a page of another site may send: what it asked for.
    pub(crate) fn preflight(head: &Head<'_>) -> Self {
        let asked = |name: &str| head.value(name).unwrap_or("*").to_owned();
        Self {
            preflight: Some((
                asked("access-control-request-method"),
                asked("access-control-request-headers"),
            )),
            ..Self::text(String::new())
        }
    }

    /// The head and the body as they are sent. Compression, checksum and copies have preemption points.
    pub(crate) fn encode(self, style: &Style, settings: &Settings, now_us: i64) -> (Vec<u8>, Vec<u8>) {
        let coding = style.coding.filter(|_| {
            let bytes_min = settings.compression_bytes_min;
            style.has_body && bytes_min.is_some_and(|bytes_min| self.body.len() >= bytes_min.max(1))
        });
        let (id, date) = (request_id(), http_date(now_us));
        let body = match coding {
            Some(coding) => preempt::allowed(|| encoding::compress(coding, settings.compression_level, &self.body)),
            None => self.body,
        };
        let (length, crc) = (body.len(), preempt::allowed(|| crc32(&body)));
        let mut headers: Vec<(&str, &dyn Display)> = vec![("x-amzn-RequestId", &id)];
        if settings.sends_content_type && length > 0 {
            headers.push(("Content-Type", &self.content_type));
        }
        headers.push(("Content-Length", &length));
        headers.push(("x-amz-crc32", &crc));
        let name = coding.map(Coding::name);
        if let Some(name) = &name {
            headers.push(("Content-Encoding", name));
            headers.push(("Vary", &"Accept-Encoding"));
        }
        match (style.keep_alive, style.version) {
            (false, _) => headers.push(("Connection", &"close")),
            (true, Version::Http10) => headers.push(("Connection", &"keep-alive")),
            (true, Version::Http11) => {}
        }
        if settings.sends_date {
            headers.push(("Date", &date));
        }
        if let Some(server) = &settings.server_header {
            headers.push(("Server", server));
        }
        if style.has_origin {
            headers.push(("Access-Control-Allow-Origin", &"*"));
        }
        match &self.preflight {
            Some((method, asked)) => {
                headers.push(("Access-Control-Allow-Methods", method));
                headers.push(("Access-Control-Allow-Headers", asked));
                headers.push(("Access-Control-Max-Age", &PREFLIGHT_MAX_AGE));
            }
            None if style.has_origin => headers.push(("Access-Control-Expose-Headers", &EXPOSED)),
            None => {}
        }
        let mut out = Vec::with_capacity(320);
        write_head(&mut out, self.status, &headers);
        let body = if style.has_body { body } else { Vec::new() };
        (out, body)
    }
}

/// The id of a request: capital letters and digits.
fn request_id() -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ012345";
    let mut id = String::with_capacity(ID_CHARS);
    let (mut bits, mut left) = (0_u64, 0);
    for _ in 0..ID_CHARS {
        if left == 0 {
            (bits, left) = (random_u64(), 64 / 5);
        }
        id.push(char::from(ALPHABET[usize::try_from(bits % 32).unwrap_or(0)]));
        bits >>= 5;
        left -= 1;
    }
    id
}

/// A time as HTTP writes it (RFC 9110, section 5.6.7).
fn http_date(now_us: i64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let Ok(time) = UtcDateTime::from_timespec(now_us.div_euclid(1_000_000), 0) else {
        return String::new();
    };
    format!(
        "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
        DAYS[usize::from(time.week_day()) % 7],
        time.month_day(),
        MONTHS[usize::from(time.month().saturating_sub(1)) % 12],
        time.year(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_as_http_writes_them() {
        assert_eq!(http_date(784_111_777_000_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(951_782_400_999_999), "Tue, 29 Feb 2000 00:00:00 GMT");
    }
}
