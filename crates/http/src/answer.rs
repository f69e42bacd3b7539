//! Answers to requests, as bytes.

use std::fmt::Display;
use std::io::Write;

/// The interim answer to a client that expects it before it sends a body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The reason phrase of a status (RFC 9110, section 15).
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

/// Appends the head of an answer of HTTP/1.1: status line, these headers in their order, and the empty line. Values
/// never end their line: line ends in them become spaces.
pub fn write_head(out: &mut Vec<u8>, status: u16, headers: &[(&str, &dyn Display)]) {
    // Writing to a vector does not fail.
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        let _ = write!(out, "{name}: ");
        let begin = out.len();
        let _ = write!(out, "{value}");
        for byte in &mut out[begin..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
