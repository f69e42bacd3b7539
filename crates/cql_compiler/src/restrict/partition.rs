//! Relations on the partition key, and on its token.

use cql::ast::{ComparisonOperator, Predicate, Relation, Subject, Term};
use plan::restrict::{PartitionRestriction, TokenBound};
use smallvec::SmallVec;
use types::CqlType;

use super::{NEEDS_FILTERING, Relations, Scope, StatementKind, flip, single_alternative};
use crate::CompileError;

pub(super) fn compile<'r>(
    relations: &[&'r Relation],
    kind: StatementKind,
    scope: &mut Scope<'_>,
) -> Result<(PartitionRestriction, Relations<'r>), CompileError> {
    let is_of_token = |r: &&Relation| matches!(r.subject, Subject::Token(_));
    if !relations.iter().any(is_of_token) {
        return compile_columns(relations, kind, scope);
    }
    let (tokens, relations): (Vec<&Relation>, Vec<&Relation>) = relations.iter().partition(|r| is_of_token(r));
    if let Some(verb) = kind.verb() {
        return Err(CompileError::invalid(format!(
            "The token function cannot be used in WHERE clauses for {verb} statements"
        )));
    }
    let (start, end) = compile_token(&tokens, scope)?;
    let (columns, residue) = compile_columns(&relations, kind, scope)?;
    let keys = match columns {
        PartitionRestriction::Keys(keys) => keys,
        PartitionRestriction::Key(values) => scope
            .table
            .partition_key()
            .zip(values)
            .map(|(column, value)| single_alternative(&column.name, value))
            .collect(),
        PartitionRestriction::All | PartitionRestriction::Token { .. } | PartitionRestriction::KeysWithin { .. } => {
            return Ok((PartitionRestriction::Token { start, end }, residue));
        }
    };
    Ok((PartitionRestriction::KeysWithin { keys, start, end }, residue))
}

/// Compiles the relations on columns of the partition key.
fn compile_columns<'r>(
    relations: &[&'r Relation],
    kind: StatementKind,
    scope: &mut Scope<'_>,
) -> Result<(PartitionRestriction, Relations<'r>), CompileError> {
    let select = matches!(kind, StatementKind::Select { .. });
    let table = scope.table;
    let mut residue = Relations::new();
    let mut missing: SmallVec<[&str; 4]> = SmallVec::new();
    let named = |r: &Relation, name: &str| matches!(&r.subject, Subject::Column(n) if n == name);
    for column in table.partition_key() {
        let mine: Relations<'r> = relations.iter().copied().filter(|r| named(r, &column.name)).collect();
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
            return Err(CompileError::invalid(format!(
                "{} cannot be restricted by more than one relation if it includes an Equal",
                column.name
            )));
        }
        if !equal {
            if let Some(verb) = kind.verb() {
                return Err(CompileError::invalid(format!(
                    "Only EQ and IN relation are supported on the partition key (unless you use the token() \
                     function) for {verb} statements"
                )));
            }
            missing.push(&column.name);
            residue.extend(mine);
            continue;
        }
        residue.push(mine[0]);
    }
    if !missing.is_empty() {
        if !select {
            return Err(CompileError::invalid(format!(
                "Some partition key parts are missing: {}",
                missing.join(", ")
            )));
        }
        return Ok((PartitionRestriction::All, residue));
    }
    let value = |r: &&'r Relation| match &r.predicate {
        Predicate::Compare(_, term) => Some(term),
        _ => None,
    };
    if let Some(values) = residue.iter().map(value).collect::<Option<SmallVec<[&Term; 4]>>>() {
        let mut operands = Vec::with_capacity(values.len());
        for (column, term) in table.partition_key().zip(values) {
            operands.push(scope.term(term, &column.name, &column.cql_type)?);
        }
        return Ok((PartitionRestriction::Key(operands), Relations::new()));
    }
    let mut keys = Vec::with_capacity(residue.len());
    for (column, r) in table.partition_key().zip(&residue) {
        keys.push(match &r.predicate {
            Predicate::Compare(_, term) => {
                single_alternative(&column.name, scope.term(term, &column.name, &column.cql_type)?)
            }
            Predicate::In { values, .. } => scope.alternatives(values, &column.name, &column.cql_type)?,
            _ => return Err(CompileError::invalid(NEEDS_FILTERING)),
        });
    }
    Ok((PartitionRestriction::Keys(keys), Relations::new()))
}

/// The bounds of a range of tokens.
type TokenRange = (Option<TokenBound>, Option<TokenBound>);

fn compile_token(relations: &[&Relation], scope: &mut Scope<'_>) -> Result<TokenRange, CompileError> {
    let names: Vec<String> = scope.table.partition_key().map(|c| c.name.clone()).collect();
    let (mut start, mut end) = (None, None);
    for r in relations {
        let Subject::Token(columns) = &r.subject else {
            continue;
        };
        for column in columns {
            scope.column(column)?;
        }
        let refuse = |what: &str| Err(CompileError::invalid(format!("The token() function {what}")));
        if names.iter().any(|name| !columns.contains(name)) {
            return refuse("must be applied to all partition key components or none of them");
        }
        if columns.iter().any(|c| !names.contains(c)) {
            return refuse("must contains only partition key components");
        }
        if columns.len() > names.len() {
            return refuse("contains duplicate partition key components");
        }
        if columns != &names {
            return Err(CompileError::invalid(format!(
                "The token function arguments must be in the partition key order: {}",
                names.join(", ")
            )));
        }
        let Predicate::Compare(op, term) = &r.predicate else {
            return Err(CompileError::invalid(format!(
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
            CompileError::invalid(format!(
                "More than one restriction was found for the {which} bound on {}",
                names.join(", ")
            ))
        };
        match (op, flip(*op)) {
            (ComparisonOperator::Equal, _) => {
                if start.is_some() || end.is_some() {
                    return Err(CompileError::invalid(format!(
                        "Columns \"{}\" cannot be restricted by both an equality and an inequality relation",
                        names.join(", ")
                    )));
                }
                if relations.len() > 1 {
                    return Err(CompileError::invalid(format!(
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
            _ => {
                return Err(CompileError::invalid(format!(
                    "Unsupported \"{op}\" relation: token({}) {op} {term}",
                    names.join(", ")
                )));
            }
        }
    }
    Ok((start, end))
}
