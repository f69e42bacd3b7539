//! Which partitions a statement is about.

use std::borrow::Cow;
use std::cmp::Ordering;

use cql::ast::{ComparisonOperator, Predicate, Relation, Subject};
use schema::Table;
use types::token::token_of;
use types::{Comparator, CqlType, Token};

use super::{NEEDS_FILTERING, Scope, StatementKind, flip, single_alternative};
use crate::term::{InOperand, Operand};
use crate::{BindContext, Evaluated, QueryError};

/// The longest partition key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// What WHERE says of the partition key.
#[derive(Debug)]
pub enum PartitionRestriction {
    /// Every partition.
    All,
    /// One value for each column: one partition.
    Key(Vec<Operand>),
    /// Alternatives for each column: their product.
    Keys(Vec<InOperand>),
    /// A range of tokens.
    Token {
        /// Lower bound.
        start: Option<TokenBound>,
        /// Upper bound.
        end: Option<TokenBound>,
    },
}

/// A bound of a token range.
#[derive(Debug)]
pub struct TokenBound {
    value: Operand,
    inclusive: bool,
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

pub(super) fn compile<'r>(
    relations: &[&'r Relation],
    kind: StatementKind,
    scope: &mut Scope<'_>,
) -> Result<(PartitionRestriction, Vec<&'r Relation>), QueryError> {
    let select = matches!(kind, StatementKind::Select { .. });
    let allow_filtering = kind == StatementKind::Select { allow_filtering: true };
    if relations.iter().any(|r| matches!(r.subject, Subject::Token(_))) {
        if !select {
            return Err(QueryError::invalid(format!(
                "The token function cannot be used in WHERE clauses for {} statements",
                if kind == StatementKind::Update {
                    "UPDATE"
                } else {
                    "DELETE"
                }
            )));
        }
        return compile_token(relations, scope).map(|r| (r, Vec::new()));
    }
    let columns: Vec<_> = scope.table.partition_key().cloned().collect();
    let mut operands: Vec<Option<InOperand>> = Vec::new();
    let mut single: Vec<Option<Operand>> = Vec::new();
    let mut residue: Vec<&Relation> = Vec::new();
    let mut missing: Vec<&str> = Vec::new();
    let named = |r: &Relation, name: &str| matches!(&r.subject, Subject::Column(n) if n == name);
    for column in &columns {
        let mine: Vec<&&Relation> = relations.iter().filter(|r| named(r, &column.name)).collect();
        let equal = mine.iter().any(|r| {
            matches!(
                r.predicate,
                Predicate::Compare(ComparisonOperator::Equal, _) | Predicate::In { negated: false, .. }
            )
        });
        if mine.is_empty() {
            missing.push(&column.name);
            continue;
        }
        if equal && mine.len() > 1 {
            return Err(QueryError::invalid(format!(
                "{} cannot be restricted by more than one relation if it includes an Equal",
                column.name
            )));
        }
        if !equal {
            if !allow_filtering {
                return Err(QueryError::invalid(if select {
                    NEEDS_FILTERING
                } else {
                    "Only EQ and IN relation are supported on the partition key (unless you use the token() function) \
                     for UPDATE and DELETE statements"
                }));
            }
            missing.push(&column.name);
            residue.extend(mine.into_iter().copied());
            continue;
        }
        residue.push(mine[0]);
    }
    if !missing.is_empty() {
        if !select {
            return Err(QueryError::invalid(format!(
                "Some partition key parts are missing: {}",
                missing.join(", ")
            )));
        }
        if !residue.is_empty() && !allow_filtering {
            return Err(QueryError::invalid(NEEDS_FILTERING));
        }
        return Ok((PartitionRestriction::All, residue));
    }
    for (column, r) in columns.iter().zip(&residue) {
        match &r.predicate {
            Predicate::Compare(_, term) => {
                single.push(Some(scope.term(term, &column.name, &column.cql_type)?));
                operands.push(None);
            }
            Predicate::In { values, .. } => {
                operands.push(Some(scope.alternatives(values, &column.name, &column.cql_type)?));
                single.push(None);
            }
            _ => return Err(QueryError::invalid(NEEDS_FILTERING)),
        }
    }
    if single.iter().all(Option::is_some) {
        return Ok((
            PartitionRestriction::Key(single.into_iter().flatten().collect()),
            Vec::new(),
        ));
    }
    let keys = single
        .into_iter()
        .zip(operands)
        .zip(&columns)
        .filter_map(|((one, many), c)| many.or_else(|| one.map(|o| single_alternative(&c.name, o))))
        .collect();
    Ok((PartitionRestriction::Keys(keys), Vec::new()))
}

fn compile_token(relations: &[&Relation], scope: &mut Scope<'_>) -> Result<PartitionRestriction, QueryError> {
    let names: Vec<String> = scope.table.partition_key().map(|c| c.name.clone()).collect();
    let (mut start, mut end) = (None, None);
    for r in relations {
        let Subject::Token(columns) = &r.subject else {
            return Err(QueryError::invalid(format!(
                "Columns \"{}\" cannot be restricted by both a normal relation and a token relation",
                names.join(", ")
            )));
        };
        if columns.len() != names.len() || columns.iter().any(|c| !names.contains(c)) {
            return Err(QueryError::invalid(
                "The token() function must be applied to all partition key components or none of them",
            ));
        }
        if columns != &names {
            return Err(QueryError::invalid(format!(
                "The token function arguments must be in the partition key order: {}",
                names.join(", ")
            )));
        }
        let Predicate::Compare(op, term) = &r.predicate else {
            return Err(QueryError::invalid(format!(
                "{} cannot be used with the token function",
                if matches!(r.predicate, Predicate::In { .. }) {
                    "IN"
                } else {
                    "This relation"
                }
            )));
        };
        let mut value = || scope.term(term, "partition key token", &CqlType::BigInt);
        let twice = |which: &str| {
            QueryError::invalid(format!(
                "More than one restriction was found for the {which} bound on {}",
                names.join(", ")
            ))
        };
        match (op, flip(*op)) {
            (ComparisonOperator::Equal, _) => {
                if start.is_some() || end.is_some() || relations.len() > 1 {
                    return Err(QueryError::invalid(format!(
                        "{} cannot be restricted by more than one relation if it includes an Equal",
                        names.join(", ")
                    )));
                }
                start = Some(TokenBound {
                    value: value()?,
                    inclusive: true,
                });
                end = Some(TokenBound {
                    value: value()?,
                    inclusive: true,
                });
            }
            (_, Some((true, inclusive))) => {
                if start.is_some() {
                    return Err(twice("start"));
                }
                start = Some(TokenBound {
                    value: value()?,
                    inclusive,
                });
            }
            (_, Some((false, inclusive))) => {
                if end.is_some() {
                    return Err(twice("end"));
                }
                end = Some(TokenBound {
                    value: value()?,
                    inclusive,
                });
            }
            _ => return Err(QueryError::invalid("Unsupported operator on the token function")),
        }
    }
    Ok(PartitionRestriction::Token { start, end })
}

impl PartitionRestriction {
    /// Whether it may name several partitions by IN. An IN of one alternative is as good as `=`.
    pub fn has_alternatives(&self) -> bool {
        match self {
            Self::Keys(columns) => columns.iter().any(|o| o.len() != Some(1)),
            Self::All | Self::Key(_) | Self::Token { .. } => false,
        }
    }

    /// Whether it names single partitions.
    pub fn is_keys(&self) -> bool {
        matches!(self, Self::Key(_) | Self::Keys(_))
    }

    /// The marker that each partition key column is compared with, when each has one: drivers compute tokens from them.
    pub fn key_markers(&self) -> Vec<u16> {
        let Self::Key(operands) = self else { return Vec::new() };
        let markers: Option<Vec<u16>> = operands
            .iter()
            .map(|o| match o {
                Operand::Marker { index, .. } => u16::try_from(*index).ok(),
                _ => None,
            })
            .collect();
        markers.unwrap_or_default()
    }

    /// The partitions that it means in this execution.
    pub fn partitions(&self, table: &Table, ctx: &BindContext<'_>) -> Result<Partitions, QueryError> {
        match self {
            Self::All => Ok(Partitions::Tokens(Token::MIN, Token::MAX)),
            Self::Key(operands) => {
                let mut key = Vec::new();
                partition_key_bytes(table, operands, ctx, &mut key)?;
                Ok(Partitions::Keys(vec![(token_of(&key), key)]))
            }
            Self::Keys(operands) => {
                let mut products: Vec<Vec<Cow<'_, [u8]>>> = vec![Vec::new()];
                for operand in operands {
                    let values = operand.eval(ctx)?;
                    products = products
                        .into_iter()
                        .flat_map(|p| {
                            values.iter().map(move |v| {
                                let mut p = p.clone();
                                p.push(v.clone());
                                p
                            })
                        })
                        .collect();
                }
                let comparators: Vec<Comparator> = table.partition_key().map(|c| c.cql_type.comparator()).collect();
                products.sort_by(|a, b| {
                    let parts = comparators.iter().zip(a.iter().zip(b));
                    parts
                        .map(|(c, (a, b))| c.compare(a, b))
                        .find(|o| o.is_ne())
                        .unwrap_or(Ordering::Equal)
                });
                products.dedup();
                let mut keys = Vec::with_capacity(products.len());
                for parts in products {
                    let mut key = Vec::new();
                    put_key(&mut key, parts.iter().map(|p| &**p), parts.len());
                    validate_partition_key(table, &key, parts.iter().map(|p| &**p))?;
                    keys.push((token_of(&key), key));
                }
                Ok(Partitions::Keys(keys))
            }
            Self::Token { start, end } => {
                let bound = |b: &Option<TokenBound>| -> Result<Option<(i64, bool)>, QueryError> {
                    let Some(b) = b else { return Ok(None) };
                    let Evaluated::Value(v) = b.value.eval(ctx)? else {
                        return Err(QueryError::invalid("Invalid null token value for column partition key"));
                    };
                    let bytes = v
                        .as_ref()
                        .try_into()
                        .map_err(|_| QueryError::invalid("Expected 8 byte long"))?;
                    Ok(Some((i64::from_be_bytes(bytes), b.inclusive)))
                };
                let from = match bound(start)? {
                    None | Some((i64::MIN, _)) => i64::MIN,
                    Some((t, true)) => t,
                    Some((i64::MAX, false)) => return Ok(Partitions::None),
                    Some((t, false)) => t + 1,
                };
                // The minimum token as an upper bound means the end of the ring, as drivers' range scans use it.
                let to = match bound(end)? {
                    None | Some((i64::MIN, _)) => i64::MAX,
                    Some((t, true)) => t,
                    Some((t, false)) => t - 1,
                };
                Ok(if from > to {
                    Partitions::None
                } else {
                    Partitions::Tokens(Token(from), Token(to))
                })
            }
        }
    }
}

fn put_key<'k>(out: &mut Vec<u8>, parts: impl Iterator<Item = &'k [u8]>, count: usize) {
    for part in parts {
        if count == 1 {
            out.extend_from_slice(part);
            return;
        }
        // A component that is too long is refused by the check of the whole key.
        let len = u16::try_from(part.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(part);
        out.push(0);
    }
}

/// Appends the serialised partition key: the value itself, or for a composite key each component as u16 length, bytes
/// and a zero.
#[inline]
pub fn partition_key_bytes(
    table: &Table,
    operands: &[Operand],
    ctx: &BindContext<'_>,
    out: &mut Vec<u8>,
) -> Result<(), QueryError> {
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
fn invalid_key_value(table: &Table, i: usize, what: &str) -> QueryError {
    let name = table.partition_key().nth(i).map_or("", |c| &c.name);
    QueryError::invalid(if what == "null" {
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
) -> Result<(), QueryError> {
    let single = table.partition_key().count() == 1;
    if single && key.is_empty() {
        return Err(QueryError::invalid("Key may not be empty"));
    }
    if key.len() > KEY_BYTES_MAX || parts.any(|p| p.len() > KEY_BYTES_MAX) {
        return Err(QueryError::invalid(format!(
            "Key length of {} is longer than maximum of {KEY_BYTES_MAX}",
            key.len()
        )));
    }
    Ok(())
}
