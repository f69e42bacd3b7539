//! WHERE: which partitions, which rows of them, and what remains to be filtered.
//!
//! Relations are sorted by what they restrict. The partition key takes `=` and `IN` on every column, or `token()`. The
//! clustering key takes `=` and `IN` on a prefix of its columns, then bounds on the next; a relation on several
//! columns at once counts for all of them. What neither place can take is a filter, which the statement must allow.

mod clustering;
mod filter;
mod partition;
mod together;

use std::borrow::Cow;

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Subject, Term};
use plan::restrict::{Comparison, IndexedTest, NullRule, Restrictions};
use plan::{InOperand, Operand};
use schema::{Column, ColumnKind, Schema, Table};
use smallvec::SmallVec;
use types::CqlType;

pub(crate) use clustering::preceding_is_not_restricted;

use crate::CompileError;
use crate::term::{Markers, Receiver, compile_in, compile_term_of_table, constant, marker_operand};

/// Some relations of a statement: few statements have more than this many of a kind.
type Relations<'r> = SmallVec<[&'r Relation; 4]>;

/// What terms of one statement are compiled in.
pub struct Scope<'a> {
    /// The schema that the statement is checked against.
    pub schema: &'a Schema,
    /// The keyspace that unqualified functions and types are looked up in.
    pub keyspace: &'a str,
    /// The table that the statement is about.
    pub table: &'a Table,
    /// What a comparison with null means.
    pub nulls: NullRule,
    /// The markers found so far.
    pub markers: &'a mut Markers,
}

impl<'a> Scope<'a> {
    /// Compiles a term for a receiver of that name and type.
    pub fn term(&mut self, term: &Term, name: &str, cql_type: &CqlType) -> Result<Operand, CompileError> {
        match term {
            Term::BindMarker(marker) => return Ok(marker_operand(marker, name, cql_type, self.markers)),
            Term::Literal(literal) => return constant(literal, name, cql_type),
            _ => {}
        }
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
    pub fn column(&self, name: &str) -> Result<(usize, &'a Column), CompileError> {
        match self.table.position(name) {
            Some(at) => Ok((at, &self.table.columns[at])),
            None => Err(CompileError::undefined_column(name, self.table)),
        }
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

impl StatementKind {
    /// The word of a statement that writes.
    const fn verb(self) -> Option<&'static str> {
        match self {
            Self::Select { .. } => None,
            Self::Update => Some("UPDATE"),
            Self::Delete => Some("DELETE"),
        }
    }
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

/// Compiles the relations of a WHERE clause. For a SELECT, the second value is whether it has to look for rows in all
/// partitions and does not allow it. That is refused only if nothing else is wrong with the statement, so that a client
/// which then allows it is not refused again.
pub fn compile(
    relations: &[Relation],
    kind: StatementKind,
    scope: &mut Scope<'_>,
) -> Result<(Restrictions, bool), CompileError> {
    let relations = &*without_between(relations);
    let says_allow_filtering = matches!(kind, StatementKind::Select { allow_filtering: true });
    let indexed = indexed_tests(relations, kind, scope);
    // An index finds the rows, and what else is restricted is checked on those.
    let kind = match kind {
        StatementKind::Select { .. } if !indexed.is_empty() => StatementKind::Select { allow_filtering: true },
        kind => kind,
    };
    let allow_filtering = matches!(kind, StatementKind::Select { allow_filtering: true });
    let mut partition = Relations::new();
    let mut clustering = Relations::new();
    let mut others = Relations::new();
    for r in relations {
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
                check_tuple_operator(r)?;
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
        check_written(r, kind)?;
        check_operator(column, r)?;
        match (column.kind, &r.subject) {
            (ColumnKind::PartitionKey, Subject::Column(_)) => partition.push(r),
            (ColumnKind::Clustering, Subject::Column(_)) => clustering.push(r),
            _ => others.push(r),
        }
    }
    check_filters(relations, kind)?;
    together::check(relations)?;
    let (partition, mut residue) = partition::compile(&partition, kind, scope)?;
    if !matches!(kind, StatementKind::Select { .. })
        && let Some(r) = others.first()
        && let Subject::Column(name) | Subject::Element { column: name, .. } | Subject::Field { column: name, .. } =
            &r.subject
    {
        if matches!(r.subject, Subject::Element { .. }) {
            filter::map_of(scope.column(name)?.1)?;
        }
        return Err(CompileError::invalid(format!(
            "Non PRIMARY KEY columns found in where clause: {name} "
        )));
    }
    let clustering = clustering::compile(&clustering, kind, scope, &mut residue)?;
    residue.extend(others.iter().copied());
    let scans_for_rows = !partition.is_keys() && !clustering.is_empty();
    let is_filtered = !residue.is_empty();
    let mut filters = Vec::with_capacity(residue.len());
    let mut add = |r: &Relation| {
        let filter = filter::compile(r, scope)?;
        // Without filtering it is refused below, null or not.
        if says_allow_filtering && scope.nulls == NullRule::Error && matches!(r.subject, Subject::Column(_)) {
            filter.refuse_constant_null(scope.table)?;
        }
        filters.push(filter);
        Ok::<_, CompileError>(())
    };
    for r in residue {
        match filter::of_single_columns(r)? {
            Some(singles) => singles.iter().try_for_each(&mut add)?,
            None => add(r)?,
        }
    }
    if !allow_filtering && (is_filtered || scans_for_rows && kind.verb().is_some()) {
        return Err(CompileError::invalid(NEEDS_FILTERING));
    }
    let restrictions = Restrictions {
        partition,
        clustering,
        filters,
        indexed,
    };
    Ok((restrictions, scans_for_rows && !allow_filtering))
}

/// What the indexes of the table know of a SELECT's relations. A relation that is refused elsewhere is none of them.
fn indexed_tests(relations: &[Relation], kind: StatementKind, scope: &mut Scope<'_>) -> Vec<IndexedTest> {
    let table = scope.table;
    if table.indexes.is_empty() || !matches!(kind, StatementKind::Select { .. }) {
        return Vec::new();
    }
    let mut tests = Vec::new();
    for relation in relations {
        let singles = match filter::of_single_columns(relation) {
            Ok(Some(singles)) => singles,
            Ok(None) => vec![relation.clone()],
            Err(_) => continue,
        };
        for single in &singles {
            let (Subject::Column(name) | Subject::Element { column: name, .. }) = &single.subject else {
                continue;
            };
            if !table.indexes.iter().any(|index| index.column == *name) {
                continue;
            }
            let Ok(filter) = filter::compile(single, scope) else {
                continue;
            };
            tests.extend(
                table
                    .indexes
                    .iter()
                    .find_map(|index| IndexedTest::new(table, index, &filter)),
            );
        }
    }
    tests
}

/// The relations with `>= a` and `<= b` in the place of `BETWEEN a AND b`, as SQL defines it.
pub(crate) fn without_between(relations: &[Relation]) -> Cow<'_, [Relation]> {
    if !relations.iter().any(|r| matches!(r.predicate, Predicate::Between(..))) {
        return Cow::Borrowed(relations);
    }
    let mut out = Vec::with_capacity(relations.len() + 1);
    for relation in relations {
        let Predicate::Between(low, high) = &relation.predicate else {
            out.push(relation.clone());
            continue;
        };
        let bounds = [
            (ComparisonOperator::GreaterOrEqual, low),
            (ComparisonOperator::LessOrEqual, high),
        ];
        out.extend(bounds.map(|(operator, bound)| Relation {
            subject: relation.subject.clone(),
            predicate: Predicate::Compare(operator, (**bound).clone()),
        }));
    }
    Cow::Owned(out)
}

/// Whether a relation can only be a filter, whatever column it is on.
fn is_filter(r: &Relation) -> bool {
    match &r.predicate {
        Predicate::Compare(operator, _) => matches!(
            operator,
            ComparisonOperator::NotEqual
                | ComparisonOperator::Like
                | ComparisonOperator::NotContains
                | ComparisonOperator::NotContainsKey
        ),
        Predicate::In { negated, .. } => *negated,
        Predicate::IsNotNull => true,
        Predicate::Between(..) | Predicate::Matches(_) => false,
    }
}

/// Refuses relations that can only be filters where the statement does not filter.
fn check_filters(relations: &[Relation], kind: StatementKind) -> Result<(), CompileError> {
    let Some(r) = relations.iter().find(|r| is_filter(r)) else {
        return Ok(());
    };
    if !matches!(r.subject, Subject::Column(_)) {
        return Ok(());
    }
    match kind {
        StatementKind::Select { allow_filtering: true } => Ok(()),
        StatementKind::Select { allow_filtering: false } => Err(CompileError::invalid(NEEDS_FILTERING)),
        StatementKind::Update | StatementKind::Delete => Err(CompileError::Invalid(format!(
            "Unsupported relation in a WHERE clause of UPDATE and DELETE statements: {r}"
        ))),
    }
}

/// What a type that has durations in it is called, if it does; a duration alone has a name of its own.
pub(crate) fn holder_of_durations(cql_type: &CqlType) -> Option<&'static str> {
    let kind = match cql_type.unfrozen() {
        CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) => "collections",
        CqlType::Tuple(_) => "tuples",
        CqlType::Udt(_) => "UDTs",
        _ => return None,
    };
    cql_type.has_duration().then_some(kind)
}

/// Refuses CONTAINS where a statement writes.
fn check_written(r: &Relation, kind: StatementKind) -> Result<(), CompileError> {
    match (kind.verb(), &r.predicate) {
        (Some(verb), Predicate::Compare(op @ (ComparisonOperator::Contains | ComparisonOperator::ContainsKey), _)) => {
            Err(CompileError::Invalid(format!("Cannot use {verb} with {op}")))
        }
        _ => Ok(()),
    }
}

/// Refuses operators that tuples of columns do not have.
fn check_tuple_operator(r: &Relation) -> Result<(), CompileError> {
    let op = match &r.predicate {
        Predicate::Compare(op, _) if *op != ComparisonOperator::Equal && flip(*op).is_none() => op.to_string(),
        Predicate::In { negated: true, .. } => "NOT IN".to_owned(),
        Predicate::IsNotNull => "IS NOT NULL".to_owned(),
        _ => return Ok(()),
    };
    Err(CompileError::Invalid(format!("Unsupported \"{op}\" relation: {r}")))
}

/// Refuses operators that a column's type does not have.
fn check_operator(column: &Column, r: &Relation) -> Result<(), CompileError> {
    let is_equality = matches!(r.predicate, Predicate::Compare(ComparisonOperator::Equal, _));
    if is_equality && matches!(r.subject, Subject::Column(_)) && !column.cql_type.is_multi_cell() {
        return Ok(());
    }
    let collection = column.cql_type.is_collection();
    let is_udt = matches!(column.cql_type, CqlType::Udt(_));
    if let Subject::Field { column, field } = &r.subject {
        return Err(CompileError::Syntax(format!(
            "A field cannot be restricted in WHERE: {column}.{field}"
        )));
    }
    match &r.predicate {
        Predicate::Compare(op @ ComparisonOperator::NotEqual, _) if matches!(r.subject, Subject::Element { .. }) => {
            return Err(CompileError::Invalid(format!("Unsupported \"{op}\" relation: {r}")));
        }
        Predicate::Compare(ComparisonOperator::Like, _)
            if !matches!(column.cql_type, CqlType::Text | CqlType::Ascii) =>
        {
            return Err(CompileError::invalid(format!(
                "LIKE is allowed only on text and ascii columns, which {} of type {} is not",
                schema::quote_identifier(&column.name),
                column.cql_type
            )));
        }
        Predicate::Compare(
            op @ (ComparisonOperator::Contains
            | ComparisonOperator::ContainsKey
            | ComparisonOperator::NotContains
            | ComparisonOperator::NotContainsKey),
            _,
        ) if !collection || (is_of_keys(*op) && !matches!(column.cql_type.unfrozen(), CqlType::Map(..))) => {
            let kind = if is_of_keys(*op) { "map" } else { "collection" };
            return Err(CompileError::invalid(format!(
                "Cannot use {op} on non-{kind} column {}",
                schema::quote_identifier(&column.name)
            )));
        }
        Predicate::Compare(..) | Predicate::In { .. } if is_udt => {
            return Err(CompileError::invalid(format!(
                "Non-frozen UDT column '{}' ({}) cannot be restricted by any relation",
                column.name, column.cql_type
            )));
        }
        Predicate::Compare(op, _)
            if column.cql_type.is_multi_cell()
                && matches!(r.subject, Subject::Column(_))
                && !matches!(
                    op,
                    ComparisonOperator::Contains
                        | ComparisonOperator::ContainsKey
                        | ComparisonOperator::NotContains
                        | ComparisonOperator::NotContainsKey
                ) =>
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

const fn is_of_keys(op: ComparisonOperator) -> bool {
    matches!(op, ComparisonOperator::ContainsKey | ComparisonOperator::NotContainsKey)
}

/// `=` as the IN of one alternative.
pub(crate) fn single_alternative(receiver: &str, operand: Operand) -> InOperand {
    InOperand::Terms {
        receiver: receiver.to_owned(),
        operands: vec![operand].into(),
    }
}
