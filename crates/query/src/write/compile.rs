//! From syntax tree to write plan.

use std::sync::Arc;

use cql::ast::{
    Attributes, Conditions as AstConditions, Delete, Insert, InsertValues, Operation, Target as AstTarget, Update,
};
use schema::{Column, ColumnKind, Table};
use types::CqlType;

use super::condition::{self, Conditions};
use super::{Addend, Assignment, Change, ModificationKind, Target, WritePlan};
use crate::QueryError;
use crate::restrict::{self, PartitionRestriction, Restrictions, Scope, StatementKind};
use crate::term::Operand;

/// Compiles the IF clause of an UPDATE or DELETE.
fn compile_conditions(conditions: &AstConditions, scope: &mut Scope<'_>) -> Result<Conditions, QueryError> {
    Ok(match conditions {
        AstConditions::None => Conditions::None,
        AstConditions::Exists => Conditions::Exists,
        AstConditions::All(relations) => Conditions::Columns(
            relations
                .iter()
                .map(|r| condition::compile(r, scope).map(Arc::new))
                .collect::<Result<_, _>>()?,
        ),
    })
}

/// What no conditional statement may be.
fn check_conditional(conditions: &Conditions, table: &Table, a: &Attributes) -> Result<(), QueryError> {
    if matches!(conditions, Conditions::None) {
        return Ok(());
    }
    if table.is_counter() {
        return Err(QueryError::invalid(
            "Conditional updates are not supported on counter tables",
        ));
    }
    if a.timestamp.is_some() {
        return Err(QueryError::invalid(
            "Cannot provide custom timestamp for conditional updates",
        ));
    }
    Ok(())
}

fn check_keys(conditions: &Conditions, restrictions: &Restrictions, kind: ModificationKind) -> Result<(), QueryError> {
    if matches!(conditions, Conditions::None) {
        return Ok(());
    }
    for (is_in, key) in [
        (restrictions.partition.has_alternatives(), "partition key"),
        (restrictions.clustering.has_alternatives(), "clustering key columns"),
    ] {
        if is_in {
            let kind = kind.plural();
            return Err(QueryError::invalid(format!(
                "IN on the {key} is not supported with conditional {kind}"
            )));
        }
    }
    Ok(())
}

impl Conditions {
    /// Whether a column that is not static has a condition.
    fn concern_rows(&self, table: &Table) -> bool {
        match self {
            Self::Columns(conditions) => conditions
                .iter()
                .any(|c| table.columns[c.column].kind == ColumnKind::Regular),
            Self::None | Self::Exists | Self::NotExists => false,
        }
    }
}

fn attributes(a: &Attributes, scope: &mut Scope<'_>) -> Result<(Option<Operand>, Option<Operand>), QueryError> {
    let timestamp = a
        .timestamp
        .as_ref()
        .map(|t| scope.term(t, "[timestamp]", &CqlType::BigInt))
        .transpose()?;
    let ttl = a
        .ttl
        .as_ref()
        .map(|t| scope.term(t, "[ttl]", &CqlType::Int))
        .transpose()?;
    Ok((timestamp, ttl))
}

/// The time of an addition says in what order its source made it, and nothing of it expires.
fn check_counter_attributes(table: &Table, a: &Attributes) -> Result<(), QueryError> {
    if table.is_counter() && a.timestamp.is_some() {
        return Err(QueryError::invalid(
            "Cannot provide custom timestamp for counter updates",
        ));
    }
    if table.is_counter() && a.ttl.is_some() {
        return Err(QueryError::invalid("Cannot provide custom TTL for counter updates"));
    }
    Ok(())
}

fn finish(
    table: &Arc<Table>,
    partition: PartitionRestriction,
    target: Target,
    times: (Option<Operand>, Option<Operand>),
    kind: ModificationKind,
    assignments: Vec<Assignment>,
    conditions: Conditions,
) -> WritePlan {
    let marker = kind == ModificationKind::Insert && matches!(target, Target::Row(_));
    let (mut statics, mut regulars): (Vec<_>, Vec<_>) = assignments
        .into_iter()
        .partition(|a| table.columns[a.column].kind == ColumnKind::Static);
    statics.sort_by_key(|a| a.id);
    regulars.sort_by_key(|a| a.id);
    let columns = statics.iter().chain(&regulars).map(|a| a.id + 1).max().unwrap_or(0);
    WritePlan {
        table: table.clone(),
        partition,
        target,
        timestamp: times.0,
        ttl: times.1,
        marker,
        statics,
        regulars,
        columns,
        kind,
        conditions,
    }
}

fn assignment(scope: &Scope<'_>, column: usize, change: Change) -> Assignment {
    Assignment {
        id: usize::from(scope.table.columns[column].id.0),
        column,
        change,
    }
}

/// The change that `column = term` makes.
fn set(column: &Column, operand: Operand) -> Change {
    if column.cql_type.is_multi_cell() {
        Change::Replace(operand)
    } else {
        Change::Set(operand)
    }
}

/// Compiles an INSERT.
pub fn compile_insert(insert: &Insert, table: &Arc<Table>, scope: &mut Scope<'_>) -> Result<WritePlan, QueryError> {
    let conditions = match insert.if_not_exists {
        true => Conditions::NotExists,
        false => Conditions::None,
    };
    if table.is_counter() {
        return Err(QueryError::invalid(
            "INSERT statements are not allowed on counter tables, use UPDATE instead",
        ));
    }
    check_conditional(&conditions, table, &insert.attributes)?;
    let InsertValues::Columns { columns, values } = &insert.values else {
        return Err(QueryError::invalid("INSERT JSON is not supported yet"));
    };
    if columns.len() != values.len() {
        return Err(QueryError::invalid("Unmatched column names/values"));
    }
    let mut keys: Vec<(usize, Operand)> = Vec::new();
    let mut assignments = Vec::new();
    let mut seen: Vec<usize> = Vec::new();
    for (name, term) in columns.iter().zip(values) {
        let (at, column) = scope.column(name)?;
        let column = column.clone();
        if seen.contains(&at) {
            return Err(QueryError::invalid("The column names contains duplicates"));
        }
        seen.push(at);
        let operand = scope.term(term, &column.name, &column.cql_type)?;
        match column.kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering => keys.push((at, operand)),
            _ => assignments.push(assignment(scope, at, set(&column, operand))),
        }
    }
    let times = attributes(&insert.attributes, scope)?;
    let mut take = |kind: ColumnKind, what: &str| -> Result<Vec<Operand>, QueryError> {
        let mut out = Vec::new();
        let mut missing = Vec::new();
        for (i, c) in table.columns.iter().enumerate().filter(|(_, c)| c.kind == kind) {
            match keys.iter().position(|(k, _)| *k == i) {
                Some(p) => out.push(keys.swap_remove(p).1),
                None => missing.push(c.name.as_str()),
            }
        }
        if missing.is_empty() || (kind == ColumnKind::Clustering && out.is_empty() && what.is_empty()) {
            return Ok(out);
        }
        Err(QueryError::invalid(format!(
            "Some {what} are missing: {}",
            missing.join(", ")
        )))
    };
    let partition = take(ColumnKind::PartitionKey, "partition key parts")?;
    let only_statics = !assignments.is_empty()
        && assignments
            .iter()
            .all(|a| table.columns[a.column].kind == ColumnKind::Static);
    let clustering = take(
        ColumnKind::Clustering,
        if only_statics { "" } else { "clustering keys" },
    )?;
    let target = if only_statics && clustering.is_empty() && !table.clustering_order.is_empty() {
        Target::Statics
    } else {
        Target::Row(clustering)
    };
    Ok(finish(
        table,
        PartitionRestriction::Key(partition),
        target,
        times,
        ModificationKind::Insert,
        assignments,
        conditions,
    ))
}

/// The list, set or map column of that name, or why it cannot be changed element by element.
fn collection<'c>(column: &'c Column, what: &str) -> Result<&'c CqlType, QueryError> {
    match &column.cql_type {
        t @ (CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..)) => Ok(t),
        CqlType::Frozen(_) => Err(QueryError::invalid(format!(
            "Invalid operation ({what}) for frozen collection column {}",
            column.name
        ))),
        _ => Err(QueryError::invalid(format!(
            "Invalid operation ({what}) for non collection column {}",
            column.name
        ))),
    }
}

fn compile_assignment(a: &cql::ast::Assignment, scope: &mut Scope<'_>) -> Result<Assignment, QueryError> {
    let name = target_name(&a.target);
    let (at, column) = scope.column(name)?;
    let column = column.clone();
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(QueryError::invalid(format!(
            "PRIMARY KEY part {name} found in SET part"
        )));
    }
    let value_name = format!("value({name})");
    let change = match (&a.target, &a.operation) {
        (AstTarget::Column(_), Operation::Set(term)) if column.cql_type.is_counter() => {
            scope.term(term, name, &column.cql_type)?;
            return Err(QueryError::invalid(format!(
                "Cannot set the value of counter column {name} (counters can only be incremented/decremented, not set)"
            )));
        }
        (AstTarget::Column(_), Operation::Add(term) | Operation::Subtract(term)) if column.cql_type.is_counter() => {
            Change::Count(vec![Addend {
                number: scope.term(term, name, &column.cql_type)?,
                is_negative: matches!(a.operation, Operation::Subtract(_)),
            }])
        }
        (AstTarget::Column(_), Operation::Set(term)) => {
            let operand = scope.term(term, name, &column.cql_type)?;
            set(&column, operand)
        }
        (AstTarget::Column(_), Operation::Add(term)) if !column.cql_type.is_collection() => {
            return Err(QueryError::invalid(format!(
                "Invalid operation ({name} = {name} + {term}) for non counter column {name}"
            )));
        }
        (AstTarget::Column(_), Operation::Subtract(term)) if !column.cql_type.is_collection() => {
            return Err(QueryError::invalid(format!(
                "Invalid operation ({name} = {name} - {term}) for non counter column {name}"
            )));
        }
        (AstTarget::Column(_), Operation::Add(term)) => {
            let t = collection(&column, &format!("{name} = {name} + {term}"))?.clone();
            Change::Append(scope.term(term, name, &t)?)
        }
        (AstTarget::Column(_), Operation::Prepend(term)) if !column.cql_type.is_collection() => {
            return Err(QueryError::invalid(format!(
                "Invalid operation ({name} = {term} + {name}) for non list column {name}"
            )));
        }
        (AstTarget::Column(_), Operation::Prepend(term)) => {
            let t = collection(&column, &format!("{name} = {term} + {name}"))?.clone();
            match t {
                CqlType::List(_) => Change::Prepend(scope.term(term, name, &t)?),
                _ => Change::Append(scope.term(term, name, &t)?),
            }
        }
        (AstTarget::Column(_), Operation::Subtract(term)) => {
            match collection(&column, &format!("{name} = {name} - {term}"))?.clone() {
                t @ CqlType::List(_) => Change::Discard(scope.term(term, name, &t)?),
                CqlType::Map(k, _) => Change::Remove(scope.term(term, name, &CqlType::Set(k))?),
                t => Change::Remove(scope.term(term, name, &t)?),
            }
        }
        (AstTarget::Element { key, .. }, Operation::Set(term)) => {
            match collection(&column, &format!("{name}[{key}] = {term}"))?.clone() {
                CqlType::List(e) => Change::PutAt {
                    index: scope.term(key, &format!("idx({name})"), &CqlType::Int)?,
                    value: scope.term(term, &value_name, &e)?,
                },
                CqlType::Map(k, v) => Change::Put {
                    key: scope.term(key, &format!("key({name})"), &k)?,
                    value: scope.term(term, &value_name, &v)?,
                },
                _ => {
                    return Err(QueryError::invalid(format!(
                        "Invalid operation ({name}[{key}] = {term}) for set column {name}"
                    )));
                }
            }
        }
        (
            AstTarget::Field { field, .. },
            Operation::Set(term) | Operation::Add(term) | Operation::Subtract(term) | Operation::Prepend(term),
        ) => {
            return Err(QueryError::invalid(format!(
                "Invalid operation ({name}.{field} = {term}) for non-UDT column {name}"
            )));
        }
        (AstTarget::Element { key, .. }, _) => {
            return Err(QueryError::invalid(format!(
                "Invalid operation on element {name}[{key}]"
            )));
        }
    };
    Ok(assignment(scope, at, change))
}

/// Compiles the assignments of an UPDATE. Additions to one counter are one.
fn compile_assignments(
    assignments: &[cql::ast::Assignment],
    scope: &mut Scope<'_>,
) -> Result<Vec<Assignment>, QueryError> {
    for (i, a) in assignments.iter().enumerate() {
        let contradicts = |b: &cql::ast::Assignment| {
            target_name(&a.target) == target_name(&b.target) && !(adds(a, scope.table) && adds(b, scope.table))
        };
        if assignments[..i].iter().any(contradicts) {
            return Err(set_twice(target_name(&a.target)));
        }
    }
    let mut out: Vec<Assignment> = Vec::with_capacity(assignments.len());
    for a in assignments {
        let mut new = compile_assignment(a, scope)?;
        if let Change::Count(more) = &mut new.change
            && let Some(Change::Count(addends)) = out.iter_mut().find(|b| b.column == new.column).map(|b| &mut b.change)
        {
            addends.append(more);
            continue;
        }
        out.push(new);
    }
    Ok(out)
}

fn target_name(target: &AstTarget) -> &str {
    match target {
        AstTarget::Column(name) | AstTarget::Element { column: name, .. } | AstTarget::Field { column: name, .. } => {
            name
        }
    }
}

/// Whether an assignment adds to a counter.
fn adds(assignment: &cql::ast::Assignment, table: &Table) -> bool {
    let name = target_name(&assignment.target);
    matches!(assignment.operation, Operation::Add(_) | Operation::Subtract(_))
        && table.columns.iter().any(|c| c.name == name && c.cql_type.is_counter())
}

fn set_twice(name: &str) -> QueryError {
    QueryError::Syntax(format!("Multiple incompatible setting of column {name}"))
}

fn rows_target(table: &Table, restrictions: Restrictions) -> Result<(PartitionRestriction, Target), QueryError> {
    let clustering = restrictions.clustering;
    if !clustering.is_full(table) || clustering.has_bounds() {
        if clustering.has_bounds() {
            return Err(QueryError::invalid(
                "Slice restrictions are not supported on the clustering columns in UPDATE statements",
            ));
        }
        let missing: Vec<&str> = table
            .clustering()
            .skip(clustering.prefix_columns())
            .map(|c| c.name.as_str())
            .collect();
        return Err(QueryError::invalid(format!(
            "Some clustering keys are missing: {}",
            missing.join(", ")
        )));
    }
    Ok((restrictions.partition, row_or_rows(table, clustering)))
}

fn row_or_rows(table: &Table, clustering: restrict::ClusteringRestriction) -> Target {
    match clustering.into_single_row(table) {
        Ok(operands) => Target::Row(operands),
        Err(clustering) => Target::Rows(clustering),
    }
}

/// Compiles an UPDATE.
pub fn compile_update(update: &Update, table: &Arc<Table>, scope: &mut Scope<'_>) -> Result<WritePlan, QueryError> {
    let conditions = compile_conditions(&update.conditions, scope)?;
    check_counter_attributes(table, &update.attributes)?;
    check_conditional(&conditions, table, &update.attributes)?;
    let times = attributes(&update.attributes, scope)?;
    let assignments = compile_assignments(&update.assignments, scope)?;
    let restrictions = restrict::compile(&update.relations, StatementKind::Update, scope)?;
    check_keys(&conditions, &restrictions, ModificationKind::Update)?;
    let only_statics = assignments
        .iter()
        .all(|a| table.columns[a.column].kind == ColumnKind::Static);
    let (partition, target) = if only_statics && !table.clustering_order.is_empty() && !conditions.concern_rows(table) {
        if !restrictions.clustering.is_empty() {
            return Err(QueryError::invalid(
                "Invalid restrictions on clustering columns since the UPDATE statement modifies only static columns",
            ));
        }
        (restrictions.partition, Target::Statics)
    } else {
        rows_target(table, restrictions)?
    };
    let kind = ModificationKind::Update;
    Ok(finish(table, partition, target, times, kind, assignments, conditions))
}

fn compile_removal(target: &AstTarget, scope: &mut Scope<'_>) -> Result<Assignment, QueryError> {
    let name = target_name(target);
    let (at, column) = scope.column(name)?;
    let column = column.clone();
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(QueryError::invalid(format!(
            "Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)"
        )));
    }
    let change = match target {
        AstTarget::Column(_) => Change::Delete,
        AstTarget::Element { key, .. } => {
            let name_of_key = format!("key({name})");
            if matches!(column.cql_type, CqlType::Frozen(_)) {
                return Err(QueryError::invalid(format!(
                    "Invalid deletion operation for frozen collection column {name}"
                )));
            }
            match collection(&column, &format!("{name}[{key}]")).map_err(|_| {
                QueryError::invalid(format!("Invalid deletion operation for non collection column {name}"))
            })? {
                CqlType::List(_) => Change::TakeAt(scope.term(key, &format!("idx({name})"), &CqlType::Int)?),
                CqlType::Set(e) | CqlType::Map(e, _) => {
                    let e = (**e).clone();
                    Change::Take(scope.term(key, &name_of_key, &e)?)
                }
                _ => Change::Delete,
            }
        }
        AstTarget::Field { .. } => {
            return Err(QueryError::invalid(format!(
                "Invalid deletion operation for non-UDT column {name}"
            )));
        }
    };
    Ok(assignment(scope, at, change))
}

/// Compiles a DELETE.
pub fn compile_delete(delete: &Delete, table: &Arc<Table>, scope: &mut Scope<'_>) -> Result<WritePlan, QueryError> {
    let conditions = compile_conditions(&delete.conditions, scope)?;
    check_counter_attributes(table, &delete.attributes)?;
    check_conditional(&conditions, table, &delete.attributes)?;
    let times = attributes(&delete.attributes, scope)?;
    let assignments = delete
        .targets
        .iter()
        .map(|t| compile_removal(t, scope))
        .collect::<Result<Vec<_>, _>>()?;
    for (i, a) in assignments.iter().enumerate() {
        if assignments[..i].iter().any(|b| b.column == a.column) {
            return Err(set_twice(&table.columns[a.column].name));
        }
    }
    let restrictions = restrict::compile(&delete.relations, StatementKind::Delete, scope)?;
    check_keys(&conditions, &restrictions, ModificationKind::Delete)?;
    let has_regular = assignments
        .iter()
        .any(|a| table.columns[a.column].kind == ColumnKind::Regular);
    let is_full = restrictions.clustering.is_full(table) && !restrictions.clustering.has_bounds();
    if !matches!(conditions, Conditions::None) && !is_full {
        let every = "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to";
        if has_regular || assignments.is_empty() {
            return Err(QueryError::invalid(format!("{every} delete non static columns")));
        }
        if conditions.concern_rows(table) {
            return Err(QueryError::invalid(format!(
                "{every} use IF condition on non static columns"
            )));
        }
    }
    let (partition, target) = if assignments.is_empty() {
        let clustering = restrictions.clustering;
        let target = if table.clustering_order.is_empty() || clustering.is_empty() {
            Target::Partition
        } else if clustering.is_full(table) && !clustering.has_bounds() {
            Target::WholeRows(clustering)
        } else {
            Target::Range(clustering)
        };
        (restrictions.partition, target)
    } else if !has_regular && !table.clustering_order.is_empty() && !conditions.concern_rows(table) {
        if !restrictions.clustering.is_empty() {
            return Err(QueryError::invalid(
                "Invalid restrictions on clustering columns since the DELETE statement modifies only static columns",
            ));
        }
        (restrictions.partition, Target::Statics)
    } else {
        if !is_full {
            return Err(QueryError::invalid(
                "Range deletions are not supported for specific columns",
            ));
        }
        (restrictions.partition, row_or_rows(table, restrictions.clustering))
    };
    let kind = ModificationKind::Delete;
    Ok(finish(table, partition, target, times, kind, assignments, conditions))
}
