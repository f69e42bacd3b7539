//! Tables that an operator wants repaired by all nodes: each node repairs the ranges of which it is the first replica,
//! and says how many are left.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use rpc::{Later, Peer, RemoteError, RemoteErrorKind, Reply, Rpc};
use schema::TableId;
use stdx::bytes::{Reader, put_sized};
use stdx::vint;
use uuid::Uuid;

use crate::marking::IncrementalMode;
use crate::message::{self, Malformed, begin_answer, decode_answer, ended, get_count};
use crate::repairs::Repairs;

/// How long a node may take to count what is left.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a node is asked for. Asking again changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepairRequest {
    /// Repairs that began at this second or later count.
    pub since: u32,
    /// The tables.
    pub tables: Vec<TableId>,
    /// How they are repaired; None is what the node does by itself.
    pub mode: Option<IncrementalMode>,
    /// Only some tablets, or with some replicas, now.
    pub selected: Option<Selected>,
}

/// Some tablets of tables, or some of their replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selected {
    /// Identifies the request: a node that knows the id has begun, and says what is left.
    pub id: u128,
    /// Tablets that have one of these tokens; none: all.
    pub tokens: Vec<i64>,
    /// Replicas on these nodes; none: on all.
    pub hosts: Vec<Uuid>,
    /// The node must stop after the range that it is repairing.
    pub is_over: bool,
}

/// Most tokens of a request, and most hosts.
pub const SELECTED_MAX: usize = 4_096;

/// What is left on a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Left {
    /// Ranges that are not repaired since.
    pub ranges: u64,
    /// Why the last repair of one of them failed; empty when none did.
    pub failure: String,
}

/// Repairs a node's ranges as requested, and returns what is left.
pub type OnRequest = Box<dyn Fn(RepairRequest) -> Pin<Box<dyn Future<Output = Left>>>>;

impl RepairRequest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.since.to_be_bytes().to_vec();
        vint::put_unsigned(&mut out, self.tables.len() as u64);
        self.tables
            .iter()
            .for_each(|table| out.extend_from_slice(table.0.as_bytes()));
        out.push(self.mode.map_or(0, IncrementalMode::number));
        if let Some(selected) = &self.selected {
            out.extend_from_slice(&selected.id.to_be_bytes());
            vint::put_unsigned(&mut out, selected.tokens.len() as u64);
            for token in &selected.tokens {
                out.extend_from_slice(&token.to_be_bytes());
            }
            vint::put_unsigned(&mut out, selected.hosts.len() as u64);
            for host in &selected.hosts {
                out.extend_from_slice(host.as_bytes());
            }
            out.push(u8::from(selected.is_over));
        }
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let since = reader.get_u32()?;
        let mut tables = Vec::new();
        for _ in 0..get_count(&mut reader)? {
            tables.push(TableId(Uuid::from_bytes(reader.get_array()?)));
        }
        let mode = match reader.get_u8()? {
            0 => None,
            number => Some(IncrementalMode::of_number(number).ok_or(Malformed("a mode of repairs, 0 to 3"))?),
        };
        let selected = if reader.is_empty() {
            None
        } else {
            Some(Selected::get(&mut reader)?)
        };
        let wanted = Self {
            since,
            tables,
            mode,
            selected,
        };
        ended(&reader, wanted)
    }
}

impl Selected {
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let id = u128::from_be_bytes(reader.get_array()?);
        let count = |reader: &mut Reader<'_>| match get_count(reader)? {
            count if count <= SELECTED_MAX => Ok(count),
            _ => Err(Malformed("at most 4096 tokens and hosts")),
        };
        let mut tokens = Vec::new();
        for _ in 0..count(reader)? {
            tokens.push(i64::from_be_bytes(reader.get_array()?));
        }
        let mut hosts = Vec::new();
        for _ in 0..count(reader)? {
            hosts.push(Uuid::from_bytes(reader.get_array()?));
        }
        let is_over = match reader.get_u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed("whether a repair is over, 0 or 1")),
        };
        Ok(Self {
            id,
            tokens,
            hosts,
            is_over,
        })
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
        let failure = String::from_utf8_lossy(reader.get_sized()?).into_owned();
        ended(&reader, Self { ranges, failure })
    }
}

/// Makes a node repair the ranges of which it is the first replica; returns what is left there.
///
/// # Errors
/// A sentence, when it does not answer.
pub async fn want(rpc: &Rc<Rpc>, peer: &Peer, wanted: &RepairRequest) -> Result<Left, String> {
    let answer = rpc.call(peer, 0, message::WANT, wanted.encode(), TIMEOUT).await;
    let answer = answer.map_err(|e| e.to_string())?;
    match decode_answer(&answer) {
        Ok(Ok(content)) => Left::decode(content).map_err(|malformed| malformed.0.to_owned()),
        Ok(Err(refusal)) => Err(refusal.to_string()),
        Err(malformed) => Err(malformed.0.to_owned()),
    }
}

pub(crate) fn serve(wanted: RepairRequest) -> Reply {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_read_as_written() {
        let plain = RepairRequest {
            since: 7,
            tables: vec![TableId(Uuid::from_u128(9))],
            mode: None,
            selected: None,
        };
        let with_mode = RepairRequest {
            mode: Some(IncrementalMode::Full),
            ..plain.clone()
        };
        let mut all = vec![plain.clone(), with_mode.clone()];
        for (before, is_over) in [(&plain, false), (&with_mode, true)] {
            all.push(RepairRequest {
                selected: Some(Selected {
                    id: 5 << 100,
                    tokens: vec![-3, 3],
                    hosts: vec![Uuid::from_u128(1)],
                    is_over,
                }),
                ..before.clone()
            });
        }
        for wanted in all {
            let bytes = wanted.encode();
            assert_eq!(RepairRequest::decode(&bytes), Ok(wanted));
            assert!(RepairRequest::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn more_tokens_than_there_may_be_are_refused() {
        let tokens = |count: usize| RepairRequest {
            since: 7,
            tables: Vec::new(),
            mode: None,
            selected: Some(Selected {
                id: 1,
                tokens: vec![0; count],
                hosts: Vec::new(),
                is_over: false,
            }),
        };
        assert!(RepairRequest::decode(&tokens(SELECTED_MAX).encode()).is_ok());
        assert!(RepairRequest::decode(&tokens(SELECTED_MAX + 1).encode()).is_err());
    }
}
