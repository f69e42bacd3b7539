//! How calls fail, and why connections end.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RpcError {
    /// As much waits for this peer's shard as may; the request was not sent.
    Overloaded,
    /// The time was over.
    Timeout {
        /// The request was handed to the connection, so the peer may have run it.
        may_have_run: bool,
    },
    /// There is no connection, or it ended.
    Disconnected {
        /// The request was handed to the connection, so the peer may have run it.
        may_have_run: bool,
    },
    /// The peer does not talk to this node, and says why. The request was not sent.
    Refused(String),
    /// The request is longer than a frame may be; it was not sent.
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The bytes it may have.
        bytes_max: usize,
    },
    /// The peer answered with an error.
    Remote(RemoteError),
}

impl RpcError {
    /// Whether the peer may have run the request.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Overloaded | Self::Refused(_) | Self::TooLarge { .. } => false,
            Self::Timeout { may_have_run } | Self::Disconnected { may_have_run } => *may_have_run,
            Self::Remote(error) => error.kind.may_have_run(),
        }
    }

    /// Whether a later attempt may succeed without intervention.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Overloaded | Self::Timeout { .. } | Self::Disconnected { .. } => true,
            Self::Refused(_) | Self::TooLarge { .. } => false,
            Self::Remote(error) => error.kind.is_passing(),
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ran = |may_have_run: bool| if may_have_run { "may have run" } else { "did not run" };
        match self {
            Self::Overloaded => formatter.write_str("too many requests wait for the node; the request was not sent"),
            Self::Timeout { may_have_run } => {
                write!(formatter, "no answer in time; the request {}", ran(*may_have_run))
            }
            Self::Disconnected { may_have_run } => {
                write!(
                    formatter,
                    "no connection to the node; the request {}",
                    ran(*may_have_run)
                )
            }
            Self::Refused(reason) => write!(formatter, "the node refused the connection: {reason}"),
            Self::TooLarge { bytes, bytes_max } => {
                write!(
                    formatter,
                    "a request of {bytes} bytes is above the {bytes_max} of a frame"
                )
            }
            Self::Remote(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for RpcError {}

/// What kind of error a peer answers with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteErrorKind {
    /// The handler failed; the message says how far it got.
    Failed = 1,
    /// The deadline passed before the request ran.
    Expired = 2,
    /// The request ran, and the connection has no room for its answer.
    AnswerLost = 3,
    /// The handler does not know the verb.
    UnknownVerb = 4,
    /// The caller acts on a state of the cluster that is not the present one any more; nothing was done.
    Stale = 5,
    /// The handler has no room for the request; nothing was done, and a later attempt may succeed.
    Overloaded = 6,
    /// The handler will never accept this request; nothing was done.
    Rejected = 7,
    /// The handler cannot do this now; nothing was done.
    Refused = 8,
    /// An index that the request needs is not built there yet; nothing was done.
    NotIndexed = 9,
}

impl RemoteErrorKind {
    /// Whether the peer may have run the request.
    #[must_use]
    pub fn may_have_run(self) -> bool {
        match self {
            Self::Failed | Self::AnswerLost => true,
            Self::Expired
            | Self::UnknownVerb
            | Self::Stale
            | Self::Overloaded
            | Self::Rejected
            | Self::Refused
            | Self::NotIndexed => false,
        }
    }

    /// Whether a later attempt may succeed without intervention.
    #[must_use]
    pub fn is_passing(self) -> bool {
        match self {
            Self::Overloaded | Self::Expired | Self::AnswerLost | Self::Refused | Self::NotIndexed => true,
            Self::Failed | Self::UnknownVerb | Self::Stale | Self::Rejected => false,
        }
    }
}

/// An error that a peer answers with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteError {
    /// What kind.
    pub kind: RemoteErrorKind,
    /// A sentence for people.
    pub message: String,
}

impl RemoteError {
    /// The handler failed.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            kind: RemoteErrorKind::Failed,
            message: message.into(),
        }
    }

    /// The handler does not know the verb.
    #[must_use]
    pub fn unknown_verb(verb: u16) -> Self {
        Self {
            kind: RemoteErrorKind::UnknownVerb,
            message: format!("verb {verb} is not known here"),
        }
    }

    /// The body of an error frame: the kind, then the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(1 + self.message.len());
        body.push(self.kind as u8);
        body.extend_from_slice(self.message.as_bytes());
        body
    }

    /// Reads the body of an error frame. A kind that only later versions know is a failure.
    pub(crate) fn decode(body: &[u8]) -> Self {
        let (kind, message) = body.split_first().unwrap_or((&1, &[]));
        Self {
            kind: match kind {
                2 => RemoteErrorKind::Expired,
                3 => RemoteErrorKind::AnswerLost,
                4 => RemoteErrorKind::UnknownVerb,
                5 => RemoteErrorKind::Stale,
                6 => RemoteErrorKind::Overloaded,
                7 => RemoteErrorKind::Rejected,
                8 => RemoteErrorKind::Refused,
                9 => RemoteErrorKind::NotIndexed,
                _ => RemoteErrorKind::Failed,
            },
            message: String::from_utf8_lossy(message).into_owned(),
        }
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for RemoteError {}

/// Why the node cannot accept connections from other nodes.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened at.
    Listen(std::net::SocketAddr, io::Error),
    /// A file of certificates cannot be read or holds none.
    TlsFile(PathBuf, String),
    /// The certificates do not fit together.
    Tls(String),
    /// The join secret could be guessed.
    ShortSecret,
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(formatter, "cannot listen for nodes on {address}: {error}"),
            Self::TlsFile(path, reason) => write!(formatter, "{}: {reason}", path.display()),
            Self::Tls(reason) => write!(formatter, "TLS between nodes cannot be set up: {reason}"),
            Self::ShortSecret => write!(
                formatter,
                "the join secret has fewer than {} bytes",
                crate::secret::SECRET_BYTES_MIN
            ),
        }
    }
}

impl std::error::Error for StartError {}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The other end closed it, or this one did on purpose.
    Closed,
    /// The system says.
    Io(io::Error),
    /// The other end sent what is not in the protocol.
    Garbage(String),
    /// TLS failed.
    Tls(String),
    /// The other end said no.
    Refused(String),
    /// Nothing came for too long.
    Silent,
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => formatter.write_str("it was closed"),
            Self::Io(error) => error.fmt(formatter),
            Self::Garbage(what) => formatter.write_str(what),
            Self::Tls(what) => write!(formatter, "TLS: {what}"),
            Self::Refused(reason) => write!(formatter, "refused: {reason}"),
            Self::Silent => formatter.write_str("nothing came for too long"),
        }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
