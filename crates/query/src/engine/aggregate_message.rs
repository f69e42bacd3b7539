//! What nodes say to each other about aggregates that are computed beside the data, as bytes.
//!
//! ```text
//! request  u8 format 3, [u8; 16] schema version, vint length and encoded plan (`plan::encoding`),
//!          vint count of bound values: u8 0, vint length and bytes; u8 1 null; u8 2 unset
//!          i64 now, u64 random, u16 consistency level, u32 milliseconds to answer in,
//!          vint count of spans: i64 after, i64 to, u8 0, or u8 1 and a place
//! place    i64 token, vint length and key; u8 0, or inside that partition
//!          u8 1 (2: it had rows), u8 side (0 before, 1 after), vint length and prefix
//! answer   u8 format 1, u8 kind
//!          0 found: vint count of spans that are done, then their parts; u8 0, or u8 1, the part of the next span and its place
//!          1 replicas too few: u16 level, u16 required, u16 alive
//!          2 time out: u16 level, u16 received, u16 block for, u8 data present, text
//!          3 failed: the same, vint count of failures: u8 4 or 16 and so many bytes of an address, u16 code
//!          4 the statement's function failed, 5 it is not valid, 6 not done here: text
//! text     vint length and UTF-8
//! ```
//!
//! Numbers are little endian; a part is [`Found`], as the plan's types make it: [`plan::selection::AggregateState`], or
//! with GROUP BY a vint count of groups, each a vint count of values (vint 0, or length + 1 and bytes), vint length and
//! partition key, vint length and clustering key of its last row, its state, and the values of its first row. A plan
//! names columns by position, so it is decoded under the same schema only. A node that has another schema, or knows
//! another format of request or plan, answers that it does not do it, and the coordinator goes elsewhere, at last to
//! itself. So nodes of two releases compute aggregates together, each where it can: the format of answers stays when
//! that of requests changes. Requests of format 1 had the text of the statement; a part that answers one of format 2
//! has no exact total of floating numbers.

use std::net::IpAddr;

use coordinator::{CoordinatorError, Tally};
use mutation::{Bound, BoundKind};
use plan::{Execution, FunctionFailure, OwnedBound, SelectPlan};
use stdx::bytes::{Reader, Truncated};
use stdx::vint;
use topology::{Consistency, Unavailable};
use types::Token;
use uuid::Uuid;

use super::groups::Found;
use crate::QueryError;

/// The format of requests.
const REQUEST_FORMAT: u8 = 3;
/// The format of answers.
const ANSWER_FORMAT: u8 = 1;

/// Tokens to aggregate: all above `after`, up to `to`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) after: Token,
    pub(super) to: Token,
    /// Where in them it continues; None at their beginning.
    pub(super) place: Option<ResumePoint>,
}

/// The position after what was aggregated already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ResumePoint {
    /// The first partition to come.
    pub(super) from: (Token, Vec<u8>),
    /// In the middle of it: after this bound, and whether it had rows before.
    pub(super) inside: Option<(Bound, bool)>,
}

/// What a shard is asked for.
#[derive(Clone, Debug)]
pub(super) struct PartRequest {
    pub(super) schema: Uuid,
    /// See `plan::encoding`.
    pub(super) plan: Vec<u8>,
    pub(super) run: Execution,
    pub(super) level: Consistency,
    pub(super) timeout_ms: u32,
    pub(super) spans: Vec<Span>,
}

/// What a shard found.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Of each span that is done, in their order.
    pub(super) done: Vec<Found>,
    /// Of the span after them, as far as it was read.
    pub(super) begun: Option<(Found, ResumePoint)>,
}

/// The bytes are not a message of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Self {
        Self
    }
}

pub(super) fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    vint::put_unsigned(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn sized<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let len = reader.get_vint()?;
    Ok(reader.get_slice(usize::try_from(len).map_err(|_| Malformed)?)?)
}

fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    String::from_utf8(sized(reader)?.to_vec()).map_err(|_| Malformed)
}

fn le_u16(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    Ok(u16::from_le_bytes(reader.get_array()?))
}

fn le_i64(reader: &mut Reader<'_>) -> Result<i64, Malformed> {
    Ok(i64::from_le_bytes(reader.get_array()?))
}

fn level(reader: &mut Reader<'_>) -> Result<Consistency, Malformed> {
    Consistency::from_number(le_u16(reader)?).ok_or(Malformed)
}

impl ResumePoint {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.from.0.0.to_le_bytes());
        put_sized(out, &self.from.1);
        let Some((bound, had_rows)) = &self.inside else {
            return out.push(0);
        };
        out.push(1 + u8::from(*had_rows));
        out.push(u8::from(bound.kind == BoundKind::After));
        put_sized(out, &bound.prefix);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let from = (Token(le_i64(reader)?), sized(reader)?.to_vec());
        let inside = match reader.get_u8()? {
            0 => None,
            flag @ (1 | 2) => {
                let kind = match reader.get_u8()? {
                    0 => BoundKind::Before,
                    1 => BoundKind::After,
                    _ => return Err(Malformed),
                };
                let prefix = sized(reader)?.into();
                Some((Bound { prefix, kind }, flag == 2))
            }
            _ => return Err(Malformed),
        };
        Ok(Self { from, inside })
    }
}

impl PartRequest {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![REQUEST_FORMAT];
        out.extend_from_slice(self.schema.as_bytes());
        put_sized(&mut out, &self.plan);
        vint::put_unsigned(&mut out, self.run.values.len() as u64);
        for value in &self.run.values {
            match value {
                OwnedBound::Value(bytes) => {
                    out.push(0);
                    put_sized(&mut out, bytes);
                }
                OwnedBound::Null => out.push(1),
                OwnedBound::Unset => out.push(2),
            }
        }
        out.extend_from_slice(&self.run.now_us.to_le_bytes());
        out.extend_from_slice(&self.run.random.to_le_bytes());
        out.extend_from_slice(&(self.level as u16).to_le_bytes());
        out.extend_from_slice(&self.timeout_ms.to_le_bytes());
        vint::put_unsigned(&mut out, self.spans.len() as u64);
        for span in &self.spans {
            out.extend_from_slice(&span.after.0.to_le_bytes());
            out.extend_from_slice(&span.to.0.to_le_bytes());
            out.push(u8::from(span.place.is_some()));
            if let Some(place) = &span.place {
                place.encode(&mut out);
            }
        }
        out
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(body);
        if reader.get_u8()? != REQUEST_FORMAT {
            return Err(Malformed);
        }
        let schema = Uuid::from_bytes(reader.get_array()?);
        let plan = sized(reader)?.to_vec();
        let mut values = Vec::new();
        for _ in 0..reader.get_vint()? {
            values.push(match reader.get_u8()? {
                0 => OwnedBound::Value(sized(reader)?.to_vec()),
                1 => OwnedBound::Null,
                2 => OwnedBound::Unset,
                _ => return Err(Malformed),
            });
        }
        let run = Execution {
            values,
            now_us: le_i64(reader)?,
            now_in_seconds: None,
            random: u64::from_le_bytes(reader.get_array()?),
        };
        let level = level(reader)?;
        let timeout_ms = u32::from_le_bytes(reader.get_array()?);
        let mut spans = Vec::new();
        for _ in 0..reader.get_vint()? {
            let (after, to) = (Token(le_i64(reader)?), Token(le_i64(reader)?));
            let place = match reader.get_u8()? {
                0 => None,
                _ => Some(ResumePoint::decode(reader)?),
            };
            spans.push(Span { after, to, place });
        }
        if !reader.rest().is_empty() {
            return Err(Malformed);
        }
        Ok(Self {
            schema,
            plan,
            run,
            level,
            timeout_ms,
            spans,
        })
    }
}

/// What a shard answers.
pub(super) fn encode_answer(answer: &Result<Part, QueryError>, columns: &[usize]) -> Vec<u8> {
    let mut out = vec![ANSWER_FORMAT];
    let error = match answer {
        Ok(part) => {
            out.push(0);
            vint::put_unsigned(&mut out, part.done.len() as u64);
            part.done.iter().for_each(|found| found.encode(columns, &mut out));
            out.push(u8::from(part.begun.is_some()));
            if let Some((found, place)) = &part.begun {
                found.encode(columns, &mut out);
                place.encode(&mut out);
            }
            return out;
        }
        Err(error) => error,
    };
    let put_tally = |out: &mut Vec<u8>, tally: &Tally, data_present: bool| {
        for number in [tally.consistency as u16, tally.received, tally.block_for] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(u8::from(data_present));
    };
    match error {
        QueryError::Replicas(CoordinatorError::Unavailable(unavailable)) => {
            out.push(1);
            for number in [unavailable.consistency as u16, unavailable.required, unavailable.alive] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        QueryError::Replicas(CoordinatorError::ReadTimeout {
            tally,
            data_present,
            missing,
        }) => {
            out.push(2);
            put_tally(&mut out, tally, *data_present);
            put_sized(&mut out, missing.as_bytes());
        }
        QueryError::Replicas(CoordinatorError::ReadFailure {
            tally,
            data_present,
            failures,
            reason,
        }) => {
            out.push(3);
            put_tally(&mut out, tally, *data_present);
            put_sized(&mut out, reason.as_bytes());
            vint::put_unsigned(&mut out, failures.len() as u64);
            for (address, code) in failures {
                match address {
                    IpAddr::V4(v4) => {
                        out.push(4);
                        out.extend_from_slice(&v4.octets());
                    }
                    IpAddr::V6(v6) => {
                        out.push(16);
                        out.extend_from_slice(&v6.octets());
                    }
                }
                out.extend_from_slice(&code.to_le_bytes());
            }
        }
        QueryError::Function(message) => {
            out.push(4);
            put_sized(&mut out, message.as_bytes());
        }
        QueryError::UserFunction(failure) => {
            out.push(7);
            for part in [&failure.keyspace, &failure.function, &failure.message] {
                put_sized(&mut out, part.as_bytes());
            }
            vint::put_unsigned(&mut out, failure.argument_types.len() as u64);
            for cql_type in &failure.argument_types {
                put_sized(&mut out, cql_type.as_bytes());
            }
        }
        QueryError::Invalid(message) => {
            out.push(5);
            put_sized(&mut out, message.as_bytes());
        }
        other => {
            out.push(6);
            put_sized(&mut out, other.message().as_bytes());
        }
    }
    out
}

/// A shard's answer about a statement that selects this; of `spans` spans, at most.
pub(super) fn decode_answer(
    body: &[u8],
    select: &SelectPlan,
    spans: usize,
) -> Result<Result<Part, QueryError>, Malformed> {
    let reader = &mut Reader::new(body);
    if reader.get_u8()? != ANSWER_FORMAT {
        return Err(Malformed);
    }
    let tally = |reader: &mut Reader<'_>| -> Result<(Tally, bool), Malformed> {
        let tally = Tally {
            consistency: level(reader)?,
            received: le_u16(reader)?,
            block_for: le_u16(reader)?,
        };
        Ok((tally, reader.get_u8()? == 1))
    };
    let answer = match reader.get_u8()? {
        0 => {
            let count = usize::try_from(reader.get_vint()?).map_err(|_| Malformed)?;
            let has_more = |begun: u8| count + usize::from(begun) > spans;
            if has_more(0) {
                return Err(Malformed);
            }
            let columns = select.selection.columns_of_first();
            let found = (0..count).map(|_| Found::decode(select, &columns, reader));
            let done = found.collect::<Result<Vec<_>, _>>()?;
            let begun = match reader.get_u8()? {
                0 => None,
                1 if !has_more(1) => Some((Found::decode(select, &columns, reader)?, ResumePoint::decode(reader)?)),
                _ => return Err(Malformed),
            };
            Ok(Part { done, begun })
        }
        1 => Err(QueryError::Replicas(CoordinatorError::Unavailable(Unavailable {
            consistency: level(reader)?,
            required: le_u16(reader)?,
            alive: le_u16(reader)?,
            datacenter: None,
        }))),
        2 => {
            let (tally, data_present) = tally(reader)?;
            Err(QueryError::Replicas(CoordinatorError::ReadTimeout {
                tally,
                data_present,
                missing: text(reader)?,
            }))
        }
        3 => {
            let (tally, data_present) = tally(reader)?;
            let reason = text(reader)?;
            let mut failures = Vec::new();
            for _ in 0..reader.get_vint()? {
                let address: IpAddr = match reader.get_u8()? {
                    4 => reader.get_array::<4>()?.into(),
                    16 => reader.get_array::<16>()?.into(),
                    _ => return Err(Malformed),
                };
                failures.push((address, le_u16(reader)?));
            }
            Err(QueryError::Replicas(CoordinatorError::ReadFailure {
                tally,
                data_present,
                failures,
                reason,
            }))
        }
        4 => Err(QueryError::Function(text(reader)?)),
        5 => Err(QueryError::Invalid(text(reader)?)),
        6 => Err(QueryError::Server(text(reader)?)),
        7 => {
            let (keyspace, function, message) = (text(reader)?, text(reader)?, text(reader)?);
            let mut argument_types = Vec::new();
            for _ in 0..reader.get_vint()? {
                argument_types.push(text(reader)?);
            }
            Err(QueryError::UserFunction(Box::new(FunctionFailure {
                keyspace,
                function,
                argument_types,
                message,
            })))
        }
        _ => return Err(Malformed),
    };
    if !reader.rest().is_empty() {
        return Err(Malformed);
    }
    Ok(answer)
}
