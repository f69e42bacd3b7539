//! The first bytes of a connection, one message each way.
//!
//! ```text
//! magic       8 bytes, "CETO-RPC"
//! length      4 bytes, of what follows the checksum; at most HELLO_BYTES_MAX
//! CRC-32      4 bytes, of what follows
//! ```
//!
//! The end that connects then says:
//!
//! ```text
//! version       2 bytes, the highest protocol version it knows
//! cluster       text (2 bytes of length, UTF-8)
//! source        host id, 16 bytes; shard, 4 bytes, whose highest bit marks the control lane
//! target        host id, 16 bytes, zeros for whichever node is there; shard, 4 bytes
//! features      2 bytes of count, a text each
//! compression   1 byte of count, 1 byte each, the preferred first
//! has secret    1 byte: 1 when it can show that it knows the cluster's secret
//! ```
//!
//! and is answered with 0, the version (2 bytes), the features that both have, the compression (1 byte, 0 for none),
//! the host id of the answering node (16 bytes), and, where there is a secret, the code of the answering node (32
//! bytes); or with 1 and a text that says why not; or, where there is a secret, first with 2 and a challenge (32
//! bytes), to which the caller sends random bytes of its own (32) and its code (32). See `secret`. Whatever follows in
//! a message is of a later version and is skipped. Nothing is sent after the first message before it is answered.

use crate::codec::Compression;
use crate::secret::{CODE_BYTES, NONCE_BYTES};
use std::fmt;
use stdx::bytes::{Reader, Truncated};
use uuid::Uuid;

/// The version of the protocol this code speaks, and the oldest.
pub(crate) const PROTOCOL_VERSION: u16 = 1;
/// The longest message.
pub(crate) const HELLO_BYTES_MAX: usize = 64 << 10;

const MAGIC: [u8; 8] = *b"CETO-RPC";
const ENVELOPE_BYTES: usize = 16;

/// Which of the two connections of a pair of shards this is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Lane {
    /// For requests about data.
    Data,
    /// For the verbs that must not wait for data: [`crate::Config::control_verbs`].
    Control,
}

/// Marks the control lane in the number of the source's shard.
const CONTROL_BIT: u32 = 1 << 31;

/// What the connecting end says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) cluster_name: String,
    pub(crate) source_host: Uuid,
    pub(crate) source_shard: u32,
    pub(crate) lane: Lane,
    pub(crate) target_host: Uuid,
    pub(crate) target_shard: u32,
    pub(crate) features: Vec<String>,
    pub(crate) compression: Vec<Compression>,
    pub(crate) has_secret: bool,
}

/// What a caller sends to a challenge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Proof {
    pub(crate) nonce: [u8; NONCE_BYTES],
    pub(crate) code: [u8; CODE_BYTES],
}

impl Proof {
    /// The whole message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        seal(&[&self.nonce[..], &self.code[..]].concat())
    }

    /// Reads what [`split`] found.
    pub(crate) fn decode(message: &[u8]) -> Result<Self, HelloError> {
        let mut reader = Reader::new(message);
        Ok(Self {
            nonce: reader.get_array()?,
            code: reader.get_array()?,
        })
    }
}

/// What it is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Accepted {
        version: u16,
        features: Vec<String>,
        compression: Option<Compression>,
        /// The node that answers.
        host: Uuid,
        /// Its code, where the caller has shown its own.
        code: Option<[u8; CODE_BYTES]>,
    },
    Refused(String),
    /// The caller is to show that it knows the secret.
    Challenge([u8; NONCE_BYTES]),
}

/// Why bytes are not a message of the hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HelloError {
    Magic([u8; 8]),
    TooLarge(usize),
    Checksum,
    Truncated(Truncated),
    NotUtf8,
    UnknownAnswer(u8),
    UnknownCompression(u8),
}

impl fmt::Display for HelloError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(found) => {
                write!(
                    formatter,
                    "it begins with \"{}\" where \"CETO-RPC\" was expected: not a node of ceto, or TLS on one side only",
                    found.escape_ascii()
                )
            }
            Self::TooLarge(bytes) => write!(formatter, "a hello of {bytes} bytes is above {HELLO_BYTES_MAX}"),
            Self::Checksum => formatter.write_str("a hello has a wrong checksum"),
            Self::Truncated(error) => write!(formatter, "a hello ends too early: {error}"),
            Self::NotUtf8 => formatter.write_str("a text of a hello is not UTF-8"),
            Self::UnknownAnswer(answer) => {
                write!(
                    formatter,
                    "a hello is answered with {answer} where 0, 1 or 2 was expected"
                )
            }
            Self::UnknownCompression(id) => write!(formatter, "a hello is answered with compression {id}"),
        }
    }
}

impl From<Truncated> for HelloError {
    fn from(error: Truncated) -> Self {
        Self::Truncated(error)
    }
}

/// The message at the front of the bytes, and its end; `None` when more bytes are needed.
pub(crate) fn split(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, HelloError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        let mut found = [0; 8];
        found[..known].copy_from_slice(&bytes[..known]);
        return Err(HelloError::Magic(found));
    }
    if bytes.len() < ENVELOPE_BYTES {
        return Ok(None);
    }
    let mut reader = Reader::new(&bytes[MAGIC.len()..]);
    let length = reader.get_u32()? as usize;
    let checksum = reader.get_u32()?;
    if length > HELLO_BYTES_MAX {
        return Err(HelloError::TooLarge(length));
    }
    let end = ENVELOPE_BYTES + length;
    let Some(message) = bytes.get(ENVELOPE_BYTES..end) else {
        return Ok(None);
    };
    if crc32fast::hash(message) != checksum {
        return Err(HelloError::Checksum);
    }
    Ok(Some((message, end)))
}

/// The message without what seals it.
pub(crate) fn unseal(bytes: &[u8]) -> Vec<u8> {
    bytes.get(ENVELOPE_BYTES..).unwrap_or_default().to_vec()
}

fn seal(message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ENVELOPE_BYTES + message.len());
    bytes.extend_from_slice(&MAGIC);
    let length = u32::try_from(message.len()).expect("texts are cut at 64 KiB");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(message).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

/// Appends a text; what is above 4 KiB is cut, so that names from a configuration cannot break the format.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(4096)];
    out.extend_from_slice(&u16::try_from(text.len()).expect("cut at 4 KiB").to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn get_text(reader: &mut Reader<'_>) -> Result<String, HelloError> {
    let length = usize::from(reader.get_u16()?);
    let text = std::str::from_utf8(reader.get_slice(length)?).map_err(|_| HelloError::NotUtf8)?;
    Ok(text.to_owned())
}

fn put_texts(out: &mut Vec<u8>, texts: &[String]) {
    let count = u16::try_from(texts.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for text in &texts[..usize::from(count)] {
        put_text(out, text);
    }
}

fn get_texts(reader: &mut Reader<'_>) -> Result<Vec<String>, HelloError> {
    let count = reader.get_u16()?;
    (0..count).map(|_| get_text(reader)).collect()
}

impl Hello {
    /// The whole message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.extend_from_slice(&self.version.to_be_bytes());
        put_text(&mut out, &self.cluster_name);
        out.extend_from_slice(self.source_host.as_bytes());
        let lane = match self.lane {
            Lane::Data => 0,
            Lane::Control => CONTROL_BIT,
        };
        out.extend_from_slice(&(self.source_shard & !CONTROL_BIT | lane).to_be_bytes());
        out.extend_from_slice(self.target_host.as_bytes());
        out.extend_from_slice(&self.target_shard.to_be_bytes());
        put_texts(&mut out, &self.features);
        let count = u8::try_from(self.compression.len()).unwrap_or(u8::MAX);
        out.push(count);
        out.extend(self.compression.iter().take(usize::from(count)).map(|&c| c as u8));
        out.push(u8::from(self.has_secret));
        seal(&out)
    }

    /// Reads what [`split`] found. Compression that is not known here is skipped.
    pub(crate) fn decode(message: &[u8]) -> Result<Self, HelloError> {
        let mut reader = Reader::new(message);
        let version = reader.get_u16()?;
        let cluster_name = get_text(&mut reader)?;
        let source_host = Uuid::from_bytes(reader.get_array()?);
        let source = reader.get_u32()?;
        let lane = if source & CONTROL_BIT == 0 {
            Lane::Data
        } else {
            Lane::Control
        };
        let target_host = Uuid::from_bytes(reader.get_array()?);
        let target_shard = reader.get_u32()?;
        let features = get_texts(&mut reader)?;
        let count = usize::from(reader.get_u8()?);
        let compression = reader.get_slice(count)?;
        let has_secret = reader.get_u8()? == 1;
        Ok(Self {
            has_secret,
            version,
            cluster_name,
            source_host,
            source_shard: source & !CONTROL_BIT,
            lane,
            target_host,
            target_shard,
            features,
            compression: compression
                .iter()
                .filter_map(|&id| Compression::from_byte(id))
                .collect(),
        })
    }
}

impl Answer {
    /// The whole message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Self::Accepted {
                version,
                features,
                compression,
                host,
                code,
            } => {
                out.push(0);
                out.extend_from_slice(&version.to_be_bytes());
                put_texts(&mut out, features);
                out.push(compression.map_or(0, |compression| compression as u8));
                out.extend_from_slice(host.as_bytes());
                out.extend_from_slice(code.as_ref().map_or(&[][..], |code| &code[..]));
            }
            Self::Challenge(challenge) => {
                out.push(2);
                out.extend_from_slice(challenge);
            }
            Self::Refused(reason) => {
                out.push(1);
                put_text(&mut out, reason);
            }
        }
        seal(&out)
    }

    /// Reads what [`split`] found.
    pub(crate) fn decode(message: &[u8]) -> Result<Self, HelloError> {
        let mut reader = Reader::new(message);
        match reader.get_u8()? {
            0 => Ok(Self::Accepted {
                version: reader.get_u16()?,
                features: get_texts(&mut reader)?,
                compression: match reader.get_u8()? {
                    0 => None,
                    id => Some(Compression::from_byte(id).ok_or(HelloError::UnknownCompression(id))?),
                },
                host: Uuid::from_bytes(reader.get_array()?),
                code: match reader.rest().len() {
                    0..CODE_BYTES => None,
                    _ => Some(reader.get_array()?),
                },
            }),
            2 => Ok(Self::Challenge(reader.get_array()?)),
            1 => Ok(Self::Refused(get_text(&mut reader)?)),
            other => Err(HelloError::UnknownAnswer(other)),
        }
    }
}

/// What the end that was connected to knows of itself.
pub(crate) struct Host<'a> {
    pub(crate) cluster_name: &'a str,
    pub(crate) host_id: Uuid,
    pub(crate) shards: u32,
    pub(crate) features: &'a [String],
    pub(crate) compression: &'a [Compression],
}

/// What both ends of a connection have agreed on, as the one that connects sees it.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Agreement {
    pub(crate) features: Vec<String>,
    pub(crate) compression: Option<Compression>,
    pub(crate) host: Uuid,
}

impl Answer {
    /// What was agreed on.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(crate) fn agreed(self) -> Result<Agreement, String> {
        match self {
            Self::Refused(reason) => Err(reason),
            Self::Challenge(_) => {
                Err("the node asks for the cluster's join_secret, and this one has none or has shown it".to_owned())
            }
            Self::Accepted { version, .. } if version != PROTOCOL_VERSION => {
                Err(unknown_version("the node that is called", version))
            }
            Self::Accepted {
                features,
                compression,
                host,
                ..
            } => Ok(Agreement {
                features,
                compression,
                host,
            }),
        }
    }
}

/// Why a node is not spoken with whose version is unknown here.
pub(crate) fn unknown_version(peer: &str, version: u16) -> String {
    format!(
        "{peer} speaks version {version} of the protocol between nodes, and this node version {PROTOCOL_VERSION}: nodes of these two \
         releases cannot form one cluster; stop all of them and start them with the newer release"
    )
}

/// Decides whether the connecting node is accepted.
pub(crate) fn answer(hello: &Hello, host: &Host<'_>) -> Answer {
    if hello.version < PROTOCOL_VERSION {
        return Answer::Refused(unknown_version("the node that connects", hello.version));
    }
    if hello.cluster_name != host.cluster_name {
        return Answer::Refused(format!(
            "this node belongs to cluster \"{}\", and the one that connects to \"{}\": correct the cluster name (cluster_name) or the seeds of \
             one of them",
            host.cluster_name, hello.cluster_name
        ));
    }
    if !hello.target_host.is_nil() && hello.target_host != host.host_id {
        return Answer::Refused(format!(
            "at this address is node {}, and node {} was looked for",
            host.host_id, hello.target_host
        ));
    }
    if hello.target_shard >= host.shards {
        return Answer::Refused(format!(
            "this node has {} shards, there is no shard {}",
            host.shards, hello.target_shard
        ));
    }
    let is_shared = |feature: &&String| hello.features.contains(feature);
    Answer::Accepted {
        version: hello.version.min(PROTOCOL_VERSION),
        features: host.features.iter().filter(is_shared).cloned().collect(),
        compression: hello
            .compression
            .iter()
            .copied()
            .find(|offered| host.compression.contains(offered)),
        host: host.host_id,
        code: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn hello() -> Hello {
        Hello {
            version: PROTOCOL_VERSION,
            cluster_name: "sea".to_owned(),
            source_host: Uuid::from_u128(1),
            source_shard: 3,
            lane: Lane::Control,
            target_host: Uuid::from_u128(2),
            target_shard: 1,
            features: texts(&["old", "new"]),
            compression: vec![Compression::Zstd, Compression::Lz4],
            has_secret: true,
        }
    }

    #[test]
    fn the_caller_refuses_a_version_that_it_does_not_know_by_name() {
        let accepted = |version| Answer::Accepted {
            version,
            features: texts(&["old"]),
            compression: None,
            host: Uuid::from_u128(2),
            code: None,
        };
        let agreed = accepted(PROTOCOL_VERSION).agreed().expect("it is of this version");
        assert_eq!((agreed.features, agreed.host), (texts(&["old"]), Uuid::from_u128(2)));
        for unknown in [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1] {
            let refused = accepted(unknown).agreed().expect_err("its frames may have other bytes");
            let named = format!(
                "the node that is called speaks version {unknown} of the protocol between nodes, and this node version {PROTOCOL_VERSION}: "
            );
            assert!(refused.starts_with(&named), "{refused}");
        }
    }

    #[test]
    fn a_hello_is_answered_by_who_it_is_for() {
        let features = texts(&["older", "old"]);
        let host = Host {
            cluster_name: "sea",
            host_id: Uuid::from_u128(2),
            shards: 2,
            features: &features,
            compression: &[Compression::Lz4],
        };
        let accepted = Answer::Accepted {
            version: PROTOCOL_VERSION,
            features: texts(&["old"]),
            compression: Some(Compression::Lz4),
            host: Uuid::from_u128(2),
            code: None,
        };
        let refused = |reason: &str| Answer::Refused(reason.to_owned());
        type Change = fn(&mut Hello);
        let cases: &[(&str, Change, Answer)] = &[
            ("fitting", |_| {}, accepted.clone()),
            ("a later version", |hello| hello.version = 7, accepted.clone()),
            (
                "for whoever is there",
                |hello| hello.target_host = Uuid::nil(),
                accepted,
            ),
            (
                "no compression",
                |hello| hello.compression.clear(),
                Answer::Accepted {
                    version: PROTOCOL_VERSION,
                    features: texts(&["old"]),
                    compression: None,
                    host: Uuid::from_u128(2),
                    code: None,
                },
            ),
            (
                "an older version",
                |hello| hello.version = PROTOCOL_VERSION - 1,
                Answer::Refused(unknown_version("the node that connects", PROTOCOL_VERSION - 1)),
            ),
            (
                "another cluster",
                |hello| hello.cluster_name = "lake".to_owned(),
                refused(
                    "this node belongs to cluster \"sea\", and the one that connects to \"lake\": correct the cluster name \
                     (cluster_name) or the seeds of one of them",
                ),
            ),
            (
                "another node",
                |hello| hello.target_host = Uuid::from_u128(9),
                refused(
                    "at this address is node 00000000-0000-0000-0000-000000000002, and node \
                     00000000-0000-0000-0000-000000000009 was looked for",
                ),
            ),
            (
                "no such shard",
                |hello| hello.target_shard = 2,
                refused("this node has 2 shards, there is no shard 2"),
            ),
        ];
        for (story, change, expected) in cases {
            let mut hello = hello();
            change(&mut hello);
            assert_eq!(answer(&hello, &host), *expected, "{story}");
        }
    }

    #[test]
    fn messages_are_read_as_written_and_not_before_they_are_whole() {
        let bytes = hello().encode();
        for end in 0..bytes.len() {
            assert_eq!(split(&bytes[..end]), Ok(None), "{end} bytes are not a whole hello");
        }
        let (message, end) = split(&bytes).expect("it is a hello").expect("it is whole");
        assert_eq!(end, bytes.len());
        assert_eq!(Hello::decode(message), Ok(hello()));
        for answer in [
            Answer::Refused("no".to_owned()),
            Answer::Accepted {
                version: PROTOCOL_VERSION,
                features: texts(&["a", ""]),
                compression: Some(Compression::Zstd),
                host: Uuid::from_u128(7),
                code: Some([8; CODE_BYTES]),
            },
            Answer::Challenge([9; NONCE_BYTES]),
        ] {
            let bytes = answer.encode();
            let (message, _) = split(&bytes).expect("it is an answer").expect("it is whole");
            assert_eq!(Answer::decode(message), Ok(answer));
        }
    }

    #[test]
    fn a_client_of_another_protocol_is_told_apart_by_its_first_byte() {
        assert!(matches!(split(b"GET / HTTP/1.1"), Err(HelloError::Magic(_))));
        assert!(matches!(split(&[0x16]), Err(HelloError::Magic(_))));
    }

    #[test]
    fn a_damaged_hello_is_found() {
        let mut bytes = hello().encode();
        *bytes.last_mut().expect("it is not empty") ^= 1;
        assert_eq!(split(&bytes), Err(HelloError::Checksum));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoders_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = split(&bytes);
            let _ = Hello::decode(&bytes);
            let _ = Answer::decode(&bytes);
            let sealed = seal(&bytes);
            let (message, _) = split(&sealed).expect("it is sealed").expect("it is whole");
            prop_assert_eq!(message, &bytes[..]);
        }
    }
}
