//! WHERE: which partitions, which rows of them, and what remains to be filtered.
//!
//! Relations are sorted by what they restrict. The partition key takes `=` and `IN` on every column, or `token()`. The
//! clustering key takes `=` and `IN` on a prefix of its columns, then bounds on the next; a relation on several
//! columns at once counts for all of them. What neither place can take is a filter, which the statement must allow.

mod clustering;
mod filter;
mod partition;
mod together;

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Subject, Term};
use plan::restrict::{Comparison, Restrictions};
use plan::{InOperand, Operand};
use schema::{Column, ColumnKind, Schema, Table};
use types::CqlType;

use crate::CompileError;
use crate::ddl::has_duration;
use crate::term::{Markers, Receiver, compile_in, compile_term_of_table};

/// What terms of one statement are compiled in.
pub struct Scope<'a> {
    /// The schema that the statement is checked against.
    pub schema: &'a Schema,
    /// The keyspace that unqualified functions and types are looked up in.
    pub keyspace: &'a str,
    /// The table that the statement is about.
    pub table: &'a Table,
    /// The markers found so far.
    pub markers: &'a mut Markers,
}

impl Scope<'_> {
    /// Compiles a term for a receiver of that name and type.
    pub fn term(&mut self, term: &Term, name: &str, cql_type: &CqlType) -> Result<Operand, CompileError> {
        let receiver = Receiver {
            name: name.to_owned(),
            cql_type: cql_type.clone(),
        };
        compile_term_of_table(term, &receiver, self.markers, self.schema, self.table)
    }

    /// Compiles a term that may be missing, as [`Scope::term`].
    pub fn optional(
        &mut self,
        term: Option<&Term>,
        name: &str,
        cql_type: &CqlType,
    ) -> Result<Option<Operand>, CompileError> {
        term.map(|term| self.term(term, name, cql_type)).transpose()
    }

    /// Compiles the alternatives of IN.
    pub fn alternatives(
        &mut self,
        values: &InValues,
        name: &str,
        cql_type: &CqlType,
    ) -> Result<InOperand, CompileError> {
        let receiver = Receiver {
            name: name.to_owned(),
            cql_type: cql_type.clone(),
        };
        compile_in(values, &receiver, self.markers, self.schema, self.keyspace)
    }

    /// The column of that name, or Cassandra's error.
    pub fn column(&self, name: &str) -> Result<(usize, &Column), CompileError> {
        self.table
            .columns
            .iter()
            .enumerate()
            .find(|(_, c)| c.name == name)
            .ok_or_else(|| {
                CompileError::invalid(format!(
                    "Undefined column name {} in table {}.{}",
                    schema::quote_identifier(name),
                    self.table.keyspace,
                    self.table.name
                ))
            })
    }
}

/// What kind of statement restricts: they differ in what they may leave open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatementKind {
    /// SELECT; true when it says ALLOW FILTERING.
    Select {
        /// `ALLOW FILTERING`.
        allow_filtering: bool,
    },
    /// UPDATE: every key column is named, but for writes to static columns only.
    Update,
    /// DELETE: may name a prefix or a range of the clustering key.
    Delete,
}

/// The error for a SELECT that would have to filter.
pub const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may have \
    unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
    FILTERING";

/// The relation of values that an operator means; None when it is of another kind.
pub(crate) const fn comparison(op: ComparisonOperator) -> Option<Comparison> {
    Some(match op {
        ComparisonOperator::Equal => Comparison::Equal,
        ComparisonOperator::NotEqual => Comparison::NotEqual,
        ComparisonOperator::Less => Comparison::Less,
        ComparisonOperator::LessOrEqual => Comparison::LessOrEqual,
        ComparisonOperator::Greater => Comparison::Greater,
        ComparisonOperator::GreaterOrEqual => Comparison::GreaterOrEqual,
        ComparisonOperator::Contains
        | ComparisonOperator::ContainsKey
        | ComparisonOperator::NotContains
        | ComparisonOperator::NotContainsKey
        | ComparisonOperator::Like => return None,
    })
}

pub(crate) fn flip(op: ComparisonOperator) -> Option<(bool, bool)> {
    // (is a lower bound, is inclusive)
    match op {
        ComparisonOperator::Greater => Some((true, false)),
        ComparisonOperator::GreaterOrEqual => Some((true, true)),
        ComparisonOperator::Less => Some((false, false)),
        ComparisonOperator::LessOrEqual => Some((false, true)),
        _ => None,
    }
}

/// Compiles the relations of a WHERE clause.
pub fn compile(
    relations: &[Relation],
    kind: StatementKind,
    scope: &mut Scope<'_>,
) -> Result<Restrictions, CompileError> {
    let allow_filtering = matches!(kind, StatementKind::Select { allow_filtering: true });
    let mut partition: Vec<&Relation> = Vec::new();
    let mut clustering: Vec<&Relation> = Vec::new();
    let mut others: Vec<&Relation> = Vec::new();
    for r in relations {
        check_predicate(r)?;
        let name = match &r.subject {
            Subject::Column(name) | Subject::Element { column: name, .. } | Subject::Field { column: name, .. } => name,
            Subject::Columns(names) => {
                for name in names {
                    let (_, c) = scope.column(name)?;
                    if c.kind != ColumnKind::Clustering {
                        return Err(CompileError::invalid(format!(
                            "Multi-column relations can only be applied to clustering columns but was applied to: {}",
                            c.name
                        )));
                    }
                }
                clustering.push(r);
                continue;
            }
            Subject::Token(_) => {
                partition.push(r);
                continue;
            }
            Subject::Index(_) => return Err(CompileError::invalid("Custom index expressions are not supported")),
        };
        let (_, column) = scope.column(name)?;
        check_operator(column, r)?;
        match (column.kind, &r.subject) {
            (ColumnKind::PartitionKey, Subject::Column(_)) => partition.push(r),
            (ColumnKind::Clustering, Subject::Column(_)) => clustering.push(r),
            _ => others.push(r),
        }
    }
    together::check(relations)?;
    let (partition, mut residue) = partition::compile(&partition, kind, scope)?;
    if !matches!(kind, StatementKind::Select { .. })
        && let Some(r) = others.first()
        && let Subject::Column(name) | Subject::Element { column: name, .. } | Subject::Field { column: name, .. } =
            &r.subject
    {
        return Err(CompileError::invalid(format!(
            "Non PRIMARY KEY columns found in where clause: {name} "
        )));
    }
    let clustering = clustering::compile(&clustering, kind, scope, &mut residue)?;
    residue.extend(others.iter().copied());
    let scans_for_rows = !partition.is_keys() && !clustering.is_empty();
    if (!residue.is_empty() || scans_for_rows) && !allow_filtering {
        return Err(CompileError::invalid(NEEDS_FILTERING));
    }
    let filters = residue
        .iter()
        .map(|r| filter::compile(r, scope))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Restrictions {
        partition,
        clustering,
        filters,
    })
}

/// Refuses predicates of later versions of CQL, which the grammar knows.
fn check_predicate(r: &Relation) -> Result<(), CompileError> {
    let what = match &r.predicate {
        Predicate::Between(..) => "BETWEEN is not supported in WHERE; use >= and <=",
        Predicate::In { negated: true, .. } => "NOT IN is not supported in WHERE",
        Predicate::Compare(ComparisonOperator::NotContains, _) => "NOT CONTAINS is not supported in WHERE",
        Predicate::Compare(ComparisonOperator::NotContainsKey, _) => "NOT CONTAINS KEY is not supported in WHERE",
        _ => return Ok(()),
    };
    Err(CompileError::Syntax(what.to_owned()))
}

/// What a type that has durations in it is called, if it does; a duration alone has a name of its own.
pub(crate) fn holder_of_durations(cql_type: &CqlType) -> Option<&'static str> {
    let kind = match cql_type.unfrozen() {
        CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) => "collections",
        CqlType::Tuple(_) => "tuples",
        CqlType::Udt(_) => "UDTs",
        _ => return None,
    };
    has_duration(cql_type).then_some(kind)
}

/// Refuses operators that a column's type does not have.
fn check_operator(column: &Column, r: &Relation) -> Result<(), CompileError> {
    let collection = column.cql_type.is_collection();
    match &r.predicate {
        Predicate::IsNotNull => {
            return Err(CompileError::invalid(format!(
                "Unsupported restriction: {} IS NOT NULL",
                schema::quote_identifier(&column.name)
            )));
        }
        Predicate::Compare(ComparisonOperator::NotEqual, _) => {
            return Err(CompileError::invalid(format!(
                "Unsupported \"!=\" relation: {} != {}",
                schema::quote_identifier(&column.name),
                term_text(r)
            )));
        }
        Predicate::Compare(ComparisonOperator::Like, _) => {
            return Err(CompileError::invalid(format!(
                "LIKE restriction is only supported on properly indexed columns. {} LIKE {} is not valid.",
                schema::quote_identifier(&column.name),
                term_text(r)
            )));
        }
        Predicate::Compare(ComparisonOperator::Contains | ComparisonOperator::ContainsKey, _) if !collection => {
            return Err(CompileError::invalid(format!(
                "Cannot use CONTAINS on non-collection column {}",
                schema::quote_identifier(&column.name)
            )));
        }
        Predicate::Compare(op, _)
            if column.cql_type.is_multi_cell()
                && matches!(r.subject, Subject::Column(_))
                && !matches!(op, ComparisonOperator::Contains | ComparisonOperator::ContainsKey) =>
        {
            return Err(CompileError::invalid(format!(
                "Collection column '{}' ({}) cannot be restricted by a '{op}' relation",
                column.name, column.cql_type
            )));
        }
        Predicate::Compare(op, _) if column.cql_type.unfrozen() == &CqlType::Duration && flip(*op).is_some() => {
            return Err(CompileError::invalid(
                "Slice restrictions are not supported on duration columns",
            ));
        }
        Predicate::Compare(op, _)
            if matches!(r.subject, Subject::Column(_))
                && flip(*op).is_some()
                && let Some(holder) = holder_of_durations(&column.cql_type) =>
        {
            return Err(CompileError::invalid(format!(
                "Slice restrictions are not supported on {holder} containing durations"
            )));
        }
        _ if matches!((&r.subject, &column.cql_type), (Subject::Element { .. }, CqlType::Frozen(inner)) if matches!(**inner, CqlType::Map(..))) =>
        {
            return Err(CompileError::invalid(format!(
                "Map-entry equality predicates on frozen map column {} are not supported",
                column.name
            )));
        }
        Predicate::In { .. } if column.cql_type.is_multi_cell() => {
            return Err(CompileError::invalid(format!(
                "Collection column '{}' ({}) cannot be restricted by a 'IN' relation",
                column.name, column.cql_type
            )));
        }
        _ => {}
    }
    Ok(())
}

fn term_text(r: &Relation) -> String {
    match &r.predicate {
        Predicate::Compare(_, t) => t.to_string(),
        _ => String::new(),
    }
}

/// `=` as the IN of one alternative.
pub(crate) fn single_alternative(receiver: &str, operand: Operand) -> InOperand {
    InOperand::Terms {
        receiver: receiver.to_owned(),
        operands: vec![operand],
    }
}
