//! Which partitions a plan is about.

use std::borrow::Cow;

use schema::{Column, Table};
use smallvec::SmallVec;
use stdx::preempt;
use types::Token;
use types::token::token_of;

use super::combinations::{Size, combine};
use crate::{BindContext, Evaluated, InOperand, Operand, PlanError};

/// The longest partition key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// A marker for each column of a partition key: most have a few columns.
pub type KeyMarkers = SmallVec<[u16; 4]>;

/// Which partitions, by their keys or tokens.
#[derive(Clone, Debug)]
pub enum PartitionRestriction {
    /// Every partition.
    All,
    /// One value for each column: one partition.
    Key(Vec<Operand>),
    /// Alternatives for each column: their product.
    Keys(Vec<InOperand>),
    /// Those of a product of alternatives whose tokens are in a range.
    KeysWithin {
        /// Alternatives for each column.
        keys: Vec<InOperand>,
        /// Lower bound.
        start: Option<TokenBound>,
        /// Upper bound.
        end: Option<TokenBound>,
    },
    /// A range of tokens.
    Token {
        /// Lower bound.
        start: Option<TokenBound>,
        /// Upper bound.
        end: Option<TokenBound>,
    },
}

/// A bound of a token range.
#[derive(Clone, Debug)]
pub struct TokenBound {
    /// The token, a bigint.
    pub value: Operand,
    /// Whether the token itself is inside.
    pub inclusive: bool,
}

/// What a partition restriction is in one execution.
#[derive(Debug, PartialEq, Eq)]
pub enum Partitions {
    /// These partitions, each once, in the order of their values.
    Keys(Vec<(Token, Vec<u8>)>),
    /// Tokens from the first to the second, both included.
    Tokens(Token, Token),
    /// None at all.
    None,
}

impl PartitionRestriction {
    /// Refuses a restriction that names another number of columns than the partition key has.
    pub(crate) fn check(&self, table: &Table) -> Result<(), PlanError> {
        let has = table.partition_key().count();
        let named = match self {
            Self::Key(operands) => operands.len(),
            Self::Keys(operands) | Self::KeysWithin { keys: operands, .. } => operands.len(),
            Self::All | Self::Token { .. } => has,
        };
        if named != has {
            return Err(PlanError::Invalid(format!(
                "The partition key of {}.{} has {has} columns, and {named} are named",
                table.keyspace, table.name
            )));
        }
        Ok(())
    }

    /// Whether it may name several partitions by IN. An IN of one alternative is as good as `=`.
    pub fn has_alternatives(&self) -> bool {
        match self {
            Self::Keys(columns) | Self::KeysWithin { keys: columns, .. } => columns.iter().any(|o| o.len() != Some(1)),
            Self::All | Self::Key(_) | Self::Token { .. } => false,
        }
    }

    /// Whether it names single partitions.
    pub fn is_keys(&self) -> bool {
        matches!(self, Self::Key(_) | Self::Keys(_) | Self::KeysWithin { .. })
    }

    /// How many partitions it names by IN in this execution: the product of each column's distinct values, which is not
    /// built for that.
    ///
    /// # Errors
    /// As [`InOperand::eval`].
    pub fn product(&self, ctx: &BindContext<'_>) -> Result<u64, PlanError> {
        match self {
            Self::Keys(columns) | Self::KeysWithin { keys: columns, .. } => {
                columns.iter().try_fold(1_u64, |product, column| {
                    Ok(product.saturating_mul(column.distinct(ctx)?))
                })
            }
            Self::All | Self::Key(_) | Self::Token { .. } => Ok(1),
        }
    }

    /// The memory that the partitions take which it names by IN in several columns; 0 of others, which take what their
    /// request does.
    ///
    /// # Errors
    /// As [`InOperand::eval`].
    pub fn combination_bytes(&self, ctx: &BindContext<'_>) -> Result<usize, PlanError> {
        match self {
            Self::Keys(columns) | Self::KeysWithin { keys: columns, .. } if columns.len() > 1 => {
                let size = columns.iter().try_fold(Size::EMPTY, |size, column| {
                    Ok::<_, PlanError>(size.with(column.eval(ctx)?.iter().map(|value| value.len())))
                })?;
                Ok(size.memory())
            }
            _ => Ok(0),
        }
    }

    /// The marker that each partition key column is compared with, when each has one: drivers compute tokens from them.
    pub fn key_markers(&self) -> KeyMarkers {
        let marker = |operand: &Operand| match operand {
            Operand::Marker { index, .. } => u16::try_from(*index).ok(),
            _ => None,
        };
        let markers: Option<KeyMarkers> = match self {
            Self::Key(operands) => operands.iter().map(marker).collect(),
            Self::Keys(keys) | Self::KeysWithin { keys, .. } => keys
                .iter()
                .map(|key| match key {
                    InOperand::Terms { operands, .. } if operands.len() == 1 => marker(&operands[0]),
                    InOperand::Terms { .. } | InOperand::List { .. } => None,
                })
                .collect(),
            Self::All | Self::Token { .. } => None,
        };
        markers.unwrap_or_default()
    }

    /// The partitions that it means in this execution.
    pub fn partitions(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Partitions, PlanError> {
        match self {
            Self::All => Ok(Partitions::Tokens(Token::MIN, Token::MAX)),
            Self::Key(operands) => {
                let mut key = Vec::new();
                partition_key_bytes(table, operands, ctx, &mut key)?;
                Ok(Partitions::Keys(vec![(token_of(&key), key)]))
            }
            Self::Keys(operands) => Ok(Partitions::Keys(product_of_keys(table, operands, ctx)?)),
            Self::KeysWithin { keys, start, end } => {
                let mut keys = product_of_keys(table, keys, ctx)?;
                let Some((from, to)) = tokens_between(start.as_ref(), end.as_ref(), ctx)? else {
                    return Ok(Partitions::None);
                };
                keys.retain(|(token, _)| (from..=to).contains(token));
                Ok(Partitions::Keys(keys))
            }
            Self::Token { start, end } => Ok(match tokens_between(start.as_ref(), end.as_ref(), ctx)? {
                Some((from, to)) => Partitions::Tokens(from, to),
                None => Partitions::None,
            }),
        }
    }
}

/// The partitions of each combination of the columns' alternatives, each once, in the order of their values.
fn product_of_keys(
    table: &Table,
    operands: &[InOperand],
    ctx: &BindContext<'_>,
) -> Result<Vec<(Token, Vec<u8>)>, PlanError> {
    let mut keys = vec![Vec::new()];
    for (operand, column) in operands.iter().zip(table.partition_key()) {
        let part = |value: Cow<'_, [u8]>| match operands {
            [_] => Ok(value.into_owned()),
            _ => component(&value),
        };
        let parts = preempt::try_collect(sorted_values(operand, column, ctx)?.into_iter().map(part))?;
        // Of values that are in order, the combinations are.
        keys = combine(keys, parts)?;
    }
    let key = |key: Vec<u8>| {
        validate_partition_key(table, &key, std::iter::empty())?;
        Ok((token_of(&key), key))
    };
    preempt::try_collect(keys.into_iter().map(key))
}

/// The alternatives of a column, each once, in their order. Clients may name very many of them.
fn sorted_values<'v>(
    operand: &'v InOperand,
    column: &Column,
    ctx: &BindContext<'v>,
) -> Result<Vec<Cow<'v, [u8]>>, PlanError> {
    let mut values = operand.eval(ctx)?;
    let comparator = column.cql_type.comparator();
    // Equal values may be written in several ways (1.0 and 1.00), and name partitions of their own.
    preempt::sort_by(&mut values, |a, b| comparator.compare(a, b).then_with(|| a.cmp(b)));
    values.dedup_by(|a, b| {
        preempt::point();
        a == b
    });
    Ok(values)
}

/// A value as a component of a serialised key of several columns.
fn component(value: &[u8]) -> Result<Vec<u8>, PlanError> {
    if value.len() > KEY_BYTES_MAX {
        return Err(key_too_long(value.len()));
    }
    let mut component = Vec::with_capacity(value.len() + 3);
    put_component(&mut component, value);
    Ok(component)
}

/// The tokens between two bounds, both included; `None` when there are none.
fn tokens_between(
    start: Option<&TokenBound>,
    end: Option<&TokenBound>,
    ctx: &BindContext<'_>,
) -> Result<Option<(Token, Token)>, PlanError> {
    let bound = |b: Option<&TokenBound>| -> Result<Option<(i64, bool)>, PlanError> {
        let Some(b) = b else { return Ok(None) };
        let Evaluated::Value(v) = b.value.eval(ctx)? else {
            return Err(PlanError::invalid("Invalid null token value"));
        };
        let bytes = v
            .as_ref()
            .try_into()
            .map_err(|_| PlanError::invalid("Expected 8 byte long"))?;
        Ok(Some((i64::from_be_bytes(bytes), b.inclusive)))
    };
    let (start, end) = (bound(start)?, bound(end)?);
    let from = match start {
        None | Some((i64::MIN, _)) => i64::MIN,
        Some((t, true)) => t,
        Some((i64::MAX, false)) => return Ok(None),
        Some((t, false)) => t + 1,
    };
    // The minimum token as an upper bound means the end of the ring, as drivers' range scans use it.
    let to = match end {
        None | Some((i64::MIN, _)) => i64::MAX,
        Some((t, true)) => t,
        Some((t, false)) => t - 1,
    };
    Ok((from <= to).then_some((Token(from), Token(to))))
}

fn put_key<'k>(out: &mut Vec<u8>, parts: impl Iterator<Item = &'k [u8]>, count: usize) {
    for part in parts {
        if count == 1 {
            out.extend_from_slice(part);
            return;
        }
        put_component(out, part);
    }
}

fn put_component(out: &mut Vec<u8>, part: &[u8]) {
    // A component that is too long is refused by the check of the whole key.
    let len = u16::try_from(part.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(part);
    out.push(0);
}

/// Appends the serialised partition key: the value itself, or for a composite key each component as u16 length, bytes
/// and a zero.
#[inline]
pub fn partition_key_bytes(
    table: &Table,
    operands: &[Operand],
    ctx: &BindContext<'_>,
    out: &mut Vec<u8>,
) -> Result<(), PlanError> {
    if let [operand] = operands {
        match operand.eval(ctx)? {
            Evaluated::Value(v) => {
                if v.is_empty() || v.len() > KEY_BYTES_MAX {
                    validate_partition_key(table, &v, std::iter::once(&*v))?;
                }
                out.extend_from_slice(&v);
                return Ok(());
            }
            Evaluated::Null => return Err(invalid_key_value(table, 0, "null")),
            Evaluated::Unset => return Err(invalid_key_value(table, 0, "unset")),
        }
    }
    let mut parts = Vec::with_capacity(operands.len());
    for (i, operand) in operands.iter().enumerate() {
        match operand.eval(ctx)? {
            Evaluated::Value(v) => parts.push(v),
            Evaluated::Null => return Err(invalid_key_value(table, i, "null")),
            Evaluated::Unset => return Err(invalid_key_value(table, i, "unset")),
        }
    }
    let from = out.len();
    put_key(out, parts.iter().map(|p| &**p), parts.len());
    validate_partition_key(table, &out[from..], parts.iter().map(|p| &**p))
}

#[cold]
fn invalid_key_value(table: &Table, i: usize, what: &str) -> PlanError {
    let name = table.partition_key().nth(i).map_or("", |c| &c.name);
    PlanError::invalid(if what == "null" {
        format!("Invalid null value in condition for column {name}")
    } else {
        format!("Invalid unset value for column {name}")
    })
}

/// Refuses keys that cannot be stored: an empty single-column key, or more than 65,535 bytes.
pub fn validate_partition_key<'k>(
    table: &Table,
    key: &[u8],
    mut parts: impl Iterator<Item = &'k [u8]>,
) -> Result<(), PlanError> {
    let single = table.partition_key().count() == 1;
    if single && key.is_empty() {
        return Err(PlanError::invalid("Key may not be empty"));
    }
    if key.len() > KEY_BYTES_MAX || parts.any(|p| p.len() > KEY_BYTES_MAX) {
        return Err(key_too_long(key.len()));
    }
    Ok(())
}

/// The error of a key, or of a part of one, that is too long to be stored.
pub(super) fn key_too_long(bytes: usize) -> PlanError {
    PlanError::invalid(format!(
        "Key length of {bytes} is longer than maximum of {KEY_BYTES_MAX}"
    ))
}
