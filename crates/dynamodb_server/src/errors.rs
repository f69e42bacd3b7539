//! Requests that are refused before an operation runs, in the service's words.
//!
//! The names and texts are those that the service answers with; clients match on them. Errors of operations are the
//! API's.

use std::fmt;

/// A refusal: status, type and text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// 400 and more.
    pub status: u16,
    /// The type without its namespace, such as `InvalidSignatureException`.
    pub kind: &'static str,
    /// The text for the client; None where the service sends none.
    pub message: Option<String>,
}

impl Refusal {
    /// A refusal with status 400.
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self::with_status(400, kind, message)
    }

    pub(crate) fn with_status(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: Some(message.into()),
        }
    }

    /// A request that names no operation.
    pub(crate) fn unknown_operation() -> Self {
        Self {
            status: 400,
            kind: "UnknownOperationException",
            message: None,
        }
    }

    /// A request that HTTP refuses.
    pub(crate) fn of_http(status: u16, reason: impl Into<String>) -> Self {
        let kind = match status {
            408 => "RequestTimeoutException",
            413 => "RequestEntityTooLargeException",
            503 => "ServiceUnavailableException",
            _ => "SerializationException",
        };
        Self::with_status(status, kind, reason)
    }

    pub(crate) fn serialization(message: impl Into<String>) -> Self {
        Self::new("SerializationException", message)
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let kind = format!("com.amazon.coral.service#{}", self.kind);
        let body = match &self.message {
            Some(message) => serde_json::json!({ "__type": kind, "message": message }),
            None => serde_json::json!({ "__type": kind }),
        };
        body.to_string().into_bytes()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.kind)?;
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}
