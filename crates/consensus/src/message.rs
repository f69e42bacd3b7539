//! What members send each other, as bytes.
//!
//! ```text
//! u8   format: 1
//! u64  group: messages of another group are refused
//! u64  number of the epoch: grows when a majority was given up; messages of another epoch are refused
//! u64  nonce of the epoch
//! u64  from, u64 to
//! u8   kind: 1 a Raft message; 2 a notice that the addressee's epoch is over
//! kind 1: u8 type, u64 term, log term, index, commit, commit term, requested snapshot, reject hint,
//!         u8 reject, i64 priority, bytes context, u32 count of entries, the entries, u8 1 and a snapshot, or u8 0
//! ```
//!
//! Big endian. The protocol buffers of the library are not used between nodes: these bytes are ours to keep compatible,
//! and their decoder has limits.

use crate::codec::{
    Malformed, expected, get_bytes, get_entry, get_number, get_snapshot, put_bytes, put_entry, put_snapshot, put_u32,
    put_u64,
};
use crate::epoch::Epoch;
use raft::eraftpb::{Message, MessageType};
use stdx::bytes::Reader;

const FORMAT: u8 = 1;
const KIND_RAFT: u8 = 1;
const KIND_EPOCH_OVER: u8 = 2;

/// The types that travel, by their number on the wire. Those that a node sends itself have none.
const TYPES: [(u8, MessageType); 13] = [
    (1, MessageType::MsgPropose),
    (2, MessageType::MsgAppend),
    (3, MessageType::MsgAppendResponse),
    (4, MessageType::MsgRequestVote),
    (5, MessageType::MsgRequestVoteResponse),
    (6, MessageType::MsgSnapshot),
    (7, MessageType::MsgHeartbeat),
    (8, MessageType::MsgHeartbeatResponse),
    (9, MessageType::MsgReadIndex),
    (10, MessageType::MsgReadIndexResp),
    (11, MessageType::MsgRequestPreVote),
    (12, MessageType::MsgRequestPreVoteResponse),
    (13, MessageType::MsgTimeoutNow),
];

/// The group, its epoch, the sender and the addressee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) group: u64,
    pub(crate) epoch: Epoch,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

pub(crate) enum Body {
    Raft(Box<Message>),
    /// The sender is in the epoch of the header, which is not the addressee's.
    EpochOver,
}

fn put_header(out: &mut Vec<u8>, header: Header, kind: u8) {
    let Epoch { number, nonce } = header.epoch;
    out.push(FORMAT);
    put_u64(out, header.group);
    put_u64(out, number);
    put_u64(out, nonce);
    put_u64(out, header.from);
    put_u64(out, header.to);
    out.push(kind);
}

pub(crate) fn encode_epoch_over(header: Header) -> Vec<u8> {
    let mut out = Vec::new();
    put_header(&mut out, header, KIND_EPOCH_OVER);
    out
}

/// `None` for a message that does not travel.
pub(crate) fn encode(header: Header, message: &Message) -> Option<Vec<u8>> {
    let (number, _) = TYPES.iter().find(|(_, kind)| *kind == message.msg_type)?;
    let mut out = Vec::new();
    put_header(&mut out, header, KIND_RAFT);
    out.push(*number);
    for field in [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
        message.reject_hint,
    ] {
        put_u64(&mut out, field);
    }
    out.push(u8::from(message.reject));
    out.extend_from_slice(&message.priority.to_be_bytes());
    put_bytes(&mut out, &message.context);
    put_u32(
        &mut out,
        u32::try_from(message.entries.len()).expect("a message has few entries"),
    );
    for entry in message.get_entries() {
        put_entry(&mut out, entry);
    }
    let snapshot = message.get_snapshot();
    out.push(u8::from(!snapshot.is_empty()));
    if !snapshot.is_empty() {
        put_snapshot(&mut out, snapshot);
    }
    Some(out)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<(Header, Body), Malformed> {
    let mut reader = Reader::new(bytes);
    let format = reader.get_u8().map_err(expected("the format of a message"))?;
    if format != FORMAT {
        return Err(Malformed {
            expected: "message format 1",
            at: 0,
        });
    }
    let mut field = || reader.get_u64().map_err(expected("the header of a message"));
    let header = Header {
        group: field()?,
        epoch: Epoch {
            number: field()?,
            nonce: field()?,
        },
        from: field()?,
        to: field()?,
    };
    let at = reader.at();
    let body = match reader.get_u8().map_err(expected("the kind of a message"))? {
        KIND_RAFT => Body::Raft(Box::new(decode_raft(&mut reader, header)?)),
        KIND_EPOCH_OVER => Body::EpochOver,
        _ => {
            return Err(Malformed {
                expected: "1 or 2 for the kind of a message",
                at,
            });
        }
    };
    if !reader.is_empty() {
        return Err(Malformed {
            expected: "the end of the message",
            at: reader.at(),
        });
    }
    Ok((header, body))
}

fn decode_raft(reader: &mut Reader<'_>, header: Header) -> Result<Message, Malformed> {
    let at = reader.at();
    let number = reader.get_u8().map_err(expected("the type of a message"))?;
    let Some((_, msg_type)) = TYPES.iter().find(|(known, _)| *known == number) else {
        return Err(Malformed {
            expected: "a known type of message",
            at,
        });
    };
    let mut message = Message {
        msg_type: *msg_type,
        from: header.from,
        to: header.to,
        ..Message::default()
    };
    message.term = get_number(reader, "a term")?;
    message.log_term = get_number(reader, "the term of an entry")?;
    message.index = get_number(reader, "an index")?;
    message.commit = get_number(reader, "a commit index")?;
    message.commit_term = get_number(reader, "the term of a commit")?;
    message.request_snapshot = get_number(reader, "the index of a requested snapshot")?;
    message.reject_hint = get_number(reader, "an index to try next")?;
    message.reject = reader.get_u8().map_err(expected("whether it is a refusal"))? != 0;
    message.priority = reader.get_i64().map_err(expected("a priority"))?;
    message.context = get_bytes(reader, "the context of a message")?.to_vec().into();
    let count = reader.get_u32().map_err(expected("a number of entries"))?;
    for _ in 0..count {
        message.entries.push(get_entry(reader)?);
    }
    if reader.get_u8().map_err(expected("whether there is a snapshot"))? != 0 {
        message.set_snapshot(get_snapshot(reader)?);
    }
    let wanted = match message.msg_type {
        MessageType::MsgPropose => (message.entries.len() == 1, "a proposal of one entry"),
        MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => (
            message.entries.len() == 1,
            "a question for the read index with one entry",
        ),
        MessageType::MsgSnapshot => (!message.get_snapshot().is_empty(), "a snapshot"),
        MessageType::MsgAppend => (
            message
                .get_entries()
                .iter()
                .zip(message.index + 1..)
                .all(|(entry, index)| entry.index == index && entry.term != 0),
            "entries without a gap",
        ),
        _ => (true, ""),
    };
    if wanted.0 {
        Ok(message)
    } else {
        Err(Malformed {
            expected: wanted.1,
            at: reader.at(),
        })
    }
}
