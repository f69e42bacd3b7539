//! Relations on the partition key, and on its token.

use cql::ast::{ComparisonOperator, Predicate, Relation, Subject};
use plan::restrict::{PartitionRestriction, TokenBound};
use plan::{InOperand, Operand};
use types::CqlType;

use super::{NEEDS_FILTERING, Scope, StatementKind, flip, single_alternative};
use crate::CompileError;

pub(super) fn compile<'r>(
    relations: &[&'r Relation],
    kind: StatementKind,
    scope: &mut Scope<'_>,
) -> Result<(PartitionRestriction, Vec<&'r Relation>), CompileError> {
    let (tokens, relations): (Vec<&Relation>, Vec<&Relation>) =
        relations.iter().partition(|r| matches!(r.subject, Subject::Token(_)));
    if tokens.is_empty() {
        return compile_columns(&relations, kind, scope);
    }
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
) -> Result<(PartitionRestriction, Vec<&'r Relation>), CompileError> {
    let select = matches!(kind, StatementKind::Select { .. });
    let table = scope.table;
    let columns: Vec<_> = table.partition_key().collect();
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
            residue.extend(mine.into_iter().copied());
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
            _ => return Err(CompileError::invalid(NEEDS_FILTERING)),
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
