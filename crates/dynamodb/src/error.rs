//! Errors of the service: a kind, which decides `__type` and the HTTP status, and a message.
//!
//! The kinds are those of the API reference (the errors of each action, "Common Errors" and "Error handling with
//! DynamoDB" of the developer guide).

use std::fmt;

use crate::value::{Item, json};

/// The namespace of the errors of DynamoDB's actions.
const DYNAMODB: &str = "com.amazonaws.dynamodb.v20120810#";
/// The namespace of the errors that the front of every service of AWS answers.
const SERVICE: &str = "com.amazon.coral.service#";
/// The namespace of failed validations.
const VALIDATE: &str = "com.amazon.coral.validate#";

/// An error as a client gets it.
#[derive(Clone, PartialEq, Debug)]
pub struct Error {
    /// Which error it is.
    pub kind: ErrorKind,
    /// What a person reads.
    pub message: String,
}

/// The kinds of errors, each with what its answer carries beside the message.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the names are those of the API reference")]
pub enum ErrorKind {
    AccessDenied,
    BackupInUse,
    BackupNotFound,
    ConditionalCheckFailed {
        /// The item that the condition failed on, if the request asked for it.
        item: Option<Box<Item>>,
    },
    ContinuousBackupsUnavailable,
    DuplicateItem,
    ExpiredIterator,
    ExpiredToken,
    IdempotentParameterMismatch,
    IncompleteSignature,
    IndexNotFound,
    InternalServerError,
    InvalidSignature,
    ItemCollectionSizeLimitExceeded,
    LimitExceeded,
    MissingAuthenticationToken,
    PolicyNotFound,
    ProvisionedThroughputExceeded,
    ReplicatedWriteConflict,
    RequestLimitExceeded,
    ResourceInUse,
    ResourceNotFound,
    Serialization,
    ServiceUnavailable,
    TableAlreadyExists,
    TableInUse,
    TableNotFound,
    Throttling,
    TransactionCanceled {
        /// One for each action of the transaction, in their order.
        reasons: Vec<CancellationReason>,
    },
    TransactionConflict,
    TransactionInProgress,
    TrimmedDataAccess,
    UnknownOperation,
    UnrecognizedClient,
    Validation,
}

/// Why one action of a transaction failed; `None` as code if another action did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CancellationReason {
    /// The code, such as `ConditionalCheckFailed` or `ValidationError`; empty for `None`.
    pub code: &'static str,
    /// What a person reads; absent for `None`.
    pub message: Option<String>,
    /// The item, if the action asked for it.
    pub item: Option<Box<Item>>,
}

impl CancellationReason {
    /// The code in the answer.
    pub fn code_text(&self) -> &'static str {
        if self.code.is_empty() { "None" } else { self.code }
    }
}

impl ErrorKind {
    /// The HTTP status of the answer.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::InternalServerError => 500,
            Self::ServiceUnavailable => 503,
            _ => 400,
        }
    }

    /// The name of the exception, as in the API reference.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AccessDenied => "AccessDeniedException",
            Self::BackupInUse => "BackupInUseException",
            Self::BackupNotFound => "BackupNotFoundException",
            Self::ConditionalCheckFailed { .. } => "ConditionalCheckFailedException",
            Self::ContinuousBackupsUnavailable => "ContinuousBackupsUnavailableException",
            Self::DuplicateItem => "DuplicateItemException",
            Self::ExpiredIterator => "ExpiredIteratorException",
            Self::ExpiredToken => "ExpiredTokenException",
            Self::IdempotentParameterMismatch => "IdempotentParameterMismatchException",
            Self::IncompleteSignature => "IncompleteSignatureException",
            Self::IndexNotFound => "IndexNotFoundException",
            Self::InternalServerError => "InternalServerError",
            Self::InvalidSignature => "InvalidSignatureException",
            Self::ItemCollectionSizeLimitExceeded => "ItemCollectionSizeLimitExceededException",
            Self::LimitExceeded => "LimitExceededException",
            Self::MissingAuthenticationToken => "MissingAuthenticationTokenException",
            Self::PolicyNotFound => "PolicyNotFoundException",
            Self::ProvisionedThroughputExceeded => "ProvisionedThroughputExceededException",
            Self::ReplicatedWriteConflict => "ReplicatedWriteConflictException",
            Self::RequestLimitExceeded => "RequestLimitExceeded",
            Self::ResourceInUse => "ResourceInUseException",
            Self::ResourceNotFound => "ResourceNotFoundException",
            Self::Serialization => "SerializationException",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::TableAlreadyExists => "TableAlreadyExistsException",
            Self::TableInUse => "TableInUseException",
            Self::TableNotFound => "TableNotFoundException",
            Self::Throttling => "ThrottlingException",
            Self::TransactionCanceled { .. } => "TransactionCanceledException",
            Self::TransactionConflict => "TransactionConflictException",
            Self::TransactionInProgress => "TransactionInProgressException",
            Self::TrimmedDataAccess => "TrimmedDataAccessException",
            Self::UnknownOperation => "UnknownOperationException",
            Self::UnrecognizedClient => "UnrecognizedClientException",
            Self::Validation => "ValidationException",
        }
    }

    /// The namespace of the name in `__type`, with its #.
    pub fn namespace(&self) -> &'static str {
        match self {
            Self::AccessDenied
            | Self::ExpiredToken
            | Self::IncompleteSignature
            | Self::InvalidSignature
            | Self::MissingAuthenticationToken
            | Self::Serialization
            | Self::ServiceUnavailable
            | Self::UnknownOperation
            | Self::UnrecognizedClient => SERVICE,
            Self::Validation => VALIDATE,
            _ => DYNAMODB,
        }
    }
}

impl Error {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// A ValidationException.
    #[cold]
    pub fn validation(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Validation, message)
    }

    /// A SerializationException: the body is not the JSON that the action takes.
    #[cold]
    pub fn serialization(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Serialization, message)
    }

    /// The answer to a condition that does not hold, with the item if the request asked for it.
    pub fn condition_failed(item: Option<Item>) -> Self {
        let item = item.map(Box::new);
        Self::new(
            ErrorKind::ConditionalCheckFailed { item },
            "The conditional request failed",
        )
    }

    /// The answer to a transaction of which an action failed; the message lists the codes.
    pub fn transaction_canceled(reasons: Vec<CancellationReason>) -> Self {
        let codes: Vec<&str> = reasons.iter().map(CancellationReason::code_text).collect();
        let message = format!(
            "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
            codes.join(", ")
        );
        Self::new(ErrorKind::TransactionCanceled { reasons }, message)
    }

    /// The HTTP status of the answer.
    pub fn http_status(&self) -> u16 {
        self.kind.http_status()
    }

    /// The `__type` of the answer: namespace, # and name.
    pub fn type_text(&self) -> String {
        [self.kind.namespace(), self.kind.name()].concat()
    }

    /// Places a text before the message.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str) -> Self {
        self.message.insert_str(0, prefix);
        self
    }

    /// Appends the body of the answer.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"__type\":");
        json::write_string(out, &self.type_text());
        // The service spells it with a capital where the answer has more than a message.
        let (message, reasons): (&[u8], &[CancellationReason]) = match &self.kind {
            ErrorKind::TransactionCanceled { reasons } => (b",\"Message\":", reasons),
            ErrorKind::Serialization => (b",\"Message\":", &[]),
            _ => (b",\"message\":", &[]),
        };
        out.extend_from_slice(message);
        json::write_string(out, &self.message);
        if let ErrorKind::ConditionalCheckFailed { item: Some(item) } = &self.kind {
            out.extend_from_slice(b",\"Item\":");
            json::write_item(out, item);
        }
        if matches!(self.kind, ErrorKind::TransactionCanceled { .. }) {
            out.extend_from_slice(b",\"CancellationReasons\":[");
            for (number, reason) in reasons.iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                write_reason(out, reason);
            }
            out.push(b']');
        }
        out.push(b'}');
    }
}

/// The beginning of a text that a client sent, for a message: it may be megabytes long.
pub(crate) fn clip(text: &str) -> &str {
    /// Bytes of a client's text in a message.
    const SHOWN_BYTES_MAX: usize = 2048;
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

fn write_reason(out: &mut Vec<u8>, reason: &CancellationReason) {
    out.extend_from_slice(b"{\"Code\":");
    json::write_string(out, reason.code_text());
    if let Some(message) = &reason.message {
        out.extend_from_slice(b",\"Message\":");
        json::write_string(out, message);
    }
    if let Some(item) = &reason.item {
        out.extend_from_slice(b",\"Item\":");
        json::write_item(out, item);
    }
    out.push(b'}');
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}

impl std::error::Error for Error {}
