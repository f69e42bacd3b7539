//! What nodes say to each other about aggregates that are computed beside the data, as bytes, inside the messages of
//! [`coordinator::near`].
//!
//! ```text
//! aggregate  u8 format 1, [u8; 16] schema version, vint length and encoded plan (`plan::encoding`),
//!            vint count of bound values: u8 0, vint length and bytes; u8 1 null; u8 2 unset
//!            i64 now, u64 random, u16 consistency level
//! error      u8 1 to 3: of replicas ([`coordinator::near::put_replicas_error`]);
//!            u8 4 the statement's function failed, 5 it is not valid, 6 not done here: text;
//!            u8 7 a user-defined function failed: keyspace, name, message, vint count of argument types, each a text
//! text       vint length and UTF-8
//! ```
//!
//! Numbers are little endian. What is found is [`Found`](super::groups::Found), as the plan's types make it:
//! [`plan::selection::AggregateState`], or with GROUP BY a vint count of groups, each a vint count of values (vint 0,
//! or length + 1 and bytes), vint length and partition key, vint length and clustering key of its last row, its state,
//! and the values of its first row. A plan names columns by position, so it is decoded under the same schema only.

use coordinator::near::{Malformed, get_replicas_error, put_replicas_error};
use plan::{Execution, FunctionFailure, OwnedBound};
use stdx::bytes::{Reader, put_sized};
use stdx::vint;
use topology::Consistency;
use uuid::Uuid;

use crate::QueryError;

const FORMAT: u8 = 1;

/// An aggregate, as other nodes are sent it.
#[derive(Clone, Debug)]
pub(super) struct AggregateMessage {
    pub(super) schema: Uuid,
    /// See `plan::encoding`.
    pub(super) plan: Vec<u8>,
    pub(super) run: Execution,
    pub(super) level: Consistency,
}

fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    String::from_utf8(reader.get_sized()?.to_vec()).map_err(|_| Malformed)
}

impl AggregateMessage {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
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
        out
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(body);
        if reader.get_u8()? != FORMAT {
            return Err(Malformed);
        }
        let schema = Uuid::from_bytes(reader.get_array()?);
        let plan = reader.get_sized()?.to_vec();
        let mut values = Vec::new();
        for _ in 0..reader.get_vint()? {
            values.push(match reader.get_u8()? {
                0 => OwnedBound::Value(reader.get_sized()?.to_vec()),
                1 => OwnedBound::Null,
                2 => OwnedBound::Unset,
                _ => return Err(Malformed),
            });
        }
        let run = Execution {
            values,
            now_us: i64::from_le_bytes(reader.get_array()?),
            now_in_seconds: None,
            random: u64::from_le_bytes(reader.get_array()?),
        };
        let level = Consistency::from_number(u16::from_le_bytes(reader.get_array()?)).ok_or(Malformed)?;
        if reader.rest().is_empty() {
            Ok(Self {
                schema,
                plan,
                run,
                level,
            })
        } else {
            Err(Malformed)
        }
    }
}

/// Packs an error. One that has no form of its own becomes its text.
pub(super) fn put_error(error: &QueryError, out: &mut Vec<u8>) {
    match error {
        QueryError::Replicas(error) if put_replicas_error(error, out) => {}
        QueryError::Function(message) => {
            out.push(4);
            put_sized(out, message.as_bytes());
        }
        QueryError::UserFunction(failure) => {
            out.push(7);
            for part in [&failure.keyspace, &failure.function, &failure.message] {
                put_sized(out, part.as_bytes());
            }
            vint::put_unsigned(out, failure.argument_types.len() as u64);
            for cql_type in &failure.argument_types {
                put_sized(out, cql_type.as_bytes());
            }
        }
        QueryError::Invalid(message) => {
            out.push(5);
            put_sized(out, message.as_bytes());
        }
        other => {
            out.push(6);
            put_sized(out, other.message().as_bytes());
        }
    }
}

pub(super) fn get_error(reader: &mut Reader<'_>) -> Result<QueryError, Malformed> {
    let kind = reader.get_u8()?;
    if let Some(error) = get_replicas_error(kind, reader)? {
        return Ok(QueryError::Replicas(error));
    }
    Ok(match kind {
        4 => QueryError::Function(text(reader)?),
        5 => QueryError::Invalid(text(reader)?),
        6 => QueryError::Server(text(reader)?),
        7 => {
            let (keyspace, function, message) = (text(reader)?, text(reader)?, text(reader)?);
            let mut argument_types = Vec::new();
            for _ in 0..reader.get_vint()? {
                argument_types.push(text(reader)?);
            }
            QueryError::UserFunction(Box::new(FunctionFailure {
                keyspace,
                function,
                argument_types,
                message,
            }))
        }
        _ => return Err(Malformed),
    })
}
