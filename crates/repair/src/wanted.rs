//! Tables that an operator wants repaired by all nodes: each node repairs the ranges of which it is the first replica, and says how many are left.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use rpc::{Later, Peer, RemoteError, RemoteErrorKind, Reply, Rpc};
use schema::TableId;
use stdx::bytes::Reader;
use stdx::vint;
use uuid::Uuid;

use crate::marking::IncrementalMode;
use crate::message::{self, Malformed, begin_answer, decode_answer, ended, get_count, put_sized};
use crate::repairs::Repairs;

/// How long a node may take to count what is left.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a node is asked for. Asking again changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Repairs that began at this second or later count.
    pub since: u32,
    /// The tables.
    pub tables: Vec<TableId>,
    /// How they are repaired; None is what the node does by itself, and what earlier releases understand.
    pub mode: Option<IncrementalMode>,
}

/// What is left on a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Left {
    /// Ranges that are not repaired since.
    pub ranges: u64,
    /// Why the last repair of one of them failed; empty when none did.
    pub failure: String,
}

/// Has a node's ranges repaired, and tells what is left.
pub type OnWanted = Box<dyn Fn(Wanted) -> Pin<Box<dyn Future<Output = Left>>>>;

impl Wanted {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.since.to_be_bytes().to_vec();
        vint::put_unsigned(&mut out, self.tables.len() as u64);
        self.tables
            .iter()
            .for_each(|table| out.extend_from_slice(table.0.as_bytes()));
        out.extend(self.mode.map(IncrementalMode::number));
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let since = reader.get_u32()?;
        let mut tables = Vec::new();
        for _ in 0..get_count(&mut reader)? {
            tables.push(TableId(Uuid::from_bytes(reader.get_array()?)));
        }
        let mode = match reader.is_empty() {
            true => None,
            false => Some(IncrementalMode::of_number(reader.get_u8()?).ok_or(Malformed("a mode of repairs, 1 to 3"))?),
        };
        ended(&reader, Self { since, tables, mode })
    }
}

impl Left {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ranges.to_be_bytes());
        put_sized(out, self.failure.as_bytes());
    }

    pub(crate) fn decode(content: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let ranges = u64::from_be_bytes(reader.get_array()?);
        let failure = String::from_utf8_lossy(message::get_sized(&mut reader)?).into_owned();
        ended(&reader, Self { ranges, failure })
    }
}

/// Has a node repair what it is the first replica of; what is left there.
///
/// # Errors
/// A sentence, when it does not answer.
pub async fn want(rpc: &Rc<Rpc>, peer: &Peer, wanted: &Wanted) -> Result<Left, String> {
    let answer = rpc.call(peer, 0, message::WANT, wanted.encode(), TIMEOUT).await;
    let answer = answer.map_err(|e| e.to_string())?;
    match decode_answer(&answer) {
        Ok(Ok(content)) => Left::decode(content).map_err(|malformed| malformed.0.to_owned()),
        Ok(Err(refusal)) => Err(refusal.to_string()),
        Err(malformed) => Err(malformed.0.to_owned()),
    }
}

pub(crate) fn serve(wanted: Wanted) -> Reply {
    let repairs = Repairs::local();
    let Some(left) = repairs.wanted(wanted) else {
        return Reply::Err(RemoteError {
            kind: RemoteErrorKind::Refused,
            message: "the node is starting".to_owned(),
        });
    };
    let answer: Later = Box::pin(async move {
        let mut answer = begin_answer();
        left.await.put(&mut answer);
        Ok(answer)
    });
    Reply::Later(answer)
}
