//! From syntax tree to write plan.

mod condition;

use std::sync::Arc;

use cql::ast::{
    Attributes, Conditions as AstConditions, Delete, Insert, InsertValues, Operation, Target as AstTarget, Update,
};
use plan::restrict::{ClusteringRestriction, PartitionRestriction, Restrictions};
use plan::write::{Addend, Assignment, Change, Conditions, ModificationKind, Target};
use plan::{Operand, Write, WritePlan};
use schema::{Column, ColumnKind, Table};
use types::CqlType;

use crate::CompileError;
use crate::restrict::{self, Scope, StatementKind};

/// Compiles the IF clause of an UPDATE or DELETE.
fn compile_conditions(conditions: &AstConditions, scope: &mut Scope<'_>) -> Result<Conditions, CompileError> {
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
fn check_conditional(conditions: &Conditions, table: &Table, a: &Attributes) -> Result<(), CompileError> {
    if matches!(conditions, Conditions::None) {
        return Ok(());
    }
    if table.is_counter() {
        return Err(CompileError::invalid(
            "Conditional updates are not supported on counter tables",
        ));
    }
    if a.timestamp.is_some() {
        return Err(CompileError::invalid(
            "Cannot provide custom timestamp for conditional updates",
        ));
    }
    Ok(())
}

fn check_keys(
    conditions: &Conditions,
    restrictions: &Restrictions,
    kind: ModificationKind,
) -> Result<(), CompileError> {
    if matches!(conditions, Conditions::None) {
        return Ok(());
    }
    for (is_in, key) in [
        (restrictions.partition.has_alternatives(), "partition key"),
        (restrictions.clustering.has_alternatives(), "clustering key columns"),
    ] {
        if is_in {
            let kind = kind.plural();
            return Err(CompileError::invalid(format!(
                "IN on the {key} is not supported with conditional {kind}"
            )));
        }
    }
    Ok(())
}

/// What a modification says behind `USING`.
struct Using {
    timestamp: Option<Operand>,
    ttl: Option<Operand>,
    timeout: Option<Operand>,
}

fn attributes(a: &Attributes, scope: &mut Scope<'_>) -> Result<Using, CompileError> {
    Ok(Using {
        timestamp: scope.optional(a.timestamp.as_ref(), "[timestamp]", &CqlType::BigInt)?,
        ttl: scope.optional(a.ttl.as_ref(), "[ttl]", &CqlType::Int)?,
        timeout: scope.optional(a.timeout.as_ref(), "[timeout]", &CqlType::Duration)?,
    })
}

/// The time of an addition says in what order its source made it, and nothing of it expires.
fn check_counter_attributes(table: &Table, a: &Attributes) -> Result<(), CompileError> {
    if table.is_counter() && a.timestamp.is_some() {
        return Err(CompileError::invalid(
            "Cannot provide custom timestamp for counter updates",
        ));
    }
    if table.is_counter() && a.ttl.is_some() {
        return Err(CompileError::invalid("Cannot provide custom TTL for counter updates"));
    }
    Ok(())
}

fn finish(
    table: &Arc<Table>,
    partition: PartitionRestriction,
    target: Target,
    using: Using,
    kind: ModificationKind,
    assignments: Vec<Assignment>,
    conditions: Conditions,
) -> Result<WritePlan, CompileError> {
    let Using {
        timestamp,
        ttl,
        timeout,
    } = using;
    Ok(WritePlan::new(Write {
        table: table.clone(),
        partition,
        target,
        timestamp,
        ttl,
        timeout,
        kind,
        assignments,
        conditions,
    })?)
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
pub fn compile_insert(insert: &Insert, table: &Arc<Table>, scope: &mut Scope<'_>) -> Result<WritePlan, CompileError> {
    let conditions = match insert.if_not_exists {
        true => Conditions::NotExists,
        false => Conditions::None,
    };
    if table.is_counter() {
        return Err(CompileError::invalid(
            "INSERT statements are not allowed on counter tables, use UPDATE instead",
        ));
    }
    check_conditional(&conditions, table, &insert.attributes)?;
    let InsertValues::Columns { columns, values } = &insert.values else {
        return Err(CompileError::invalid("INSERT JSON is not supported yet"));
    };
    if columns.len() != values.len() {
        return Err(CompileError::invalid("Unmatched column names/values"));
    }
    let mut keys: Vec<(usize, Operand)> = Vec::new();
    let mut assignments = Vec::new();
    let mut seen: Vec<usize> = Vec::new();
    for (name, term) in columns.iter().zip(values) {
        let (at, column) = scope.column(name)?;
        let column = column.clone();
        if seen.contains(&at) {
            return Err(CompileError::invalid("The column names contains duplicates"));
        }
        seen.push(at);
        let operand = scope.term(term, &column.name, &column.cql_type)?;
        match column.kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering => keys.push((at, operand)),
            _ => assignments.push(Assignment {
                column: at,
                change: set(&column, operand),
            }),
        }
    }
    let using = attributes(&insert.attributes, scope)?;
    let mut take = |kind: ColumnKind, what: &str| -> Result<Vec<Operand>, CompileError> {
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
        Err(CompileError::invalid(format!(
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
    finish(
        table,
        PartitionRestriction::Key(partition),
        target,
        using,
        ModificationKind::Insert,
        assignments,
        conditions,
    )
}

/// The list, set or map column of that name, or why it cannot be changed element by element.
fn collection<'c>(column: &'c Column, what: &str) -> Result<&'c CqlType, CompileError> {
    match &column.cql_type {
        t @ (CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..)) => Ok(t),
        CqlType::Frozen(_) => Err(CompileError::invalid(format!(
            "Invalid operation ({what}) for frozen collection column {}",
            column.name
        ))),
        _ => Err(CompileError::invalid(format!(
            "Invalid operation ({what}) for non collection column {}",
            column.name
        ))),
    }
}

fn compile_assignment(a: &cql::ast::Assignment, scope: &mut Scope<'_>) -> Result<Assignment, CompileError> {
    let name = target_name(&a.target);
    let (at, column) = scope.column(name)?;
    let column = column.clone();
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(CompileError::invalid(format!(
            "PRIMARY KEY part {name} found in SET part"
        )));
    }
    let value_name = format!("value({name})");
    let change = match (&a.target, &a.operation) {
        (AstTarget::Column(_), Operation::Set(term)) if column.cql_type.is_counter() => {
            scope.term(term, name, &column.cql_type)?;
            return Err(CompileError::invalid(format!(
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
            return Err(CompileError::invalid(format!(
                "Invalid operation ({name} = {name} + {term}) for non counter column {name}"
            )));
        }
        (AstTarget::Column(_), Operation::Subtract(term)) if !column.cql_type.is_collection() => {
            return Err(CompileError::invalid(format!(
                "Invalid operation ({name} = {name} - {term}) for non counter column {name}"
            )));
        }
        (AstTarget::Column(_), Operation::Add(term)) => {
            let t = collection(&column, &format!("{name} = {name} + {term}"))?.clone();
            Change::Append(scope.term(term, name, &t)?)
        }
        (AstTarget::Column(_), Operation::Prepend(term)) if !column.cql_type.is_collection() => {
            return Err(CompileError::invalid(format!(
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
                    return Err(CompileError::invalid(format!(
                        "Invalid operation ({name}[{key}] = {term}) for set column {name}"
                    )));
                }
            }
        }
        (
            AstTarget::Field { field, .. },
            Operation::Set(term) | Operation::Add(term) | Operation::Subtract(term) | Operation::Prepend(term),
        ) => {
            return Err(CompileError::invalid(format!(
                "Invalid operation ({name}.{field} = {term}) for non-UDT column {name}"
            )));
        }
        (AstTarget::Element { key, .. }, _) => {
            return Err(CompileError::invalid(format!(
                "Invalid operation on element {name}[{key}]"
            )));
        }
    };
    Ok(Assignment { column: at, change })
}

/// Compiles the assignments of an UPDATE. Additions to one counter are one, and one collection may have several of its elements changed.
fn compile_assignments(
    assignments: &[cql::ast::Assignment],
    scope: &mut Scope<'_>,
) -> Result<Vec<Assignment>, CompileError> {
    for (i, a) in assignments.iter().enumerate() {
        let contradicts = |b: &cql::ast::Assignment| {
            target_name(&a.target) == target_name(&b.target) && (sets_whole(a) || sets_whole(b))
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

/// Whether an assignment replaces the column.
fn sets_whole(assignment: &cql::ast::Assignment) -> bool {
    matches!(
        (&assignment.target, &assignment.operation),
        (AstTarget::Column(_), Operation::Set(_))
    )
}

fn set_twice(name: &str) -> CompileError {
    CompileError::Syntax(format!("Multiple incompatible setting of column {name}"))
}

fn rows_target(table: &Table, restrictions: Restrictions) -> Result<(PartitionRestriction, Target), CompileError> {
    let clustering = restrictions.clustering;
    if !clustering.is_full(table) || clustering.has_bounds() {
        if clustering.has_bounds() {
            return Err(CompileError::invalid(
                "Slice restrictions are not supported on the clustering columns in UPDATE statements",
            ));
        }
        let missing: Vec<&str> = table
            .clustering()
            .skip(clustering.prefix_columns())
            .map(|c| c.name.as_str())
            .collect();
        return Err(CompileError::invalid(format!(
            "Some clustering keys are missing: {}",
            missing.join(", ")
        )));
    }
    Ok((restrictions.partition, row_or_rows(table, clustering)))
}

fn row_or_rows(table: &Table, clustering: ClusteringRestriction) -> Target {
    match clustering.into_single_row(table) {
        Ok(operands) => Target::Row(operands),
        Err(clustering) => Target::Rows(clustering),
    }
}

/// Compiles an UPDATE.
pub fn compile_update(update: &Update, table: &Arc<Table>, scope: &mut Scope<'_>) -> Result<WritePlan, CompileError> {
    let conditions = compile_conditions(&update.conditions, scope)?;
    check_counter_attributes(table, &update.attributes)?;
    check_conditional(&conditions, table, &update.attributes)?;
    let using = attributes(&update.attributes, scope)?;
    let assignments = compile_assignments(&update.assignments, scope)?;
    let restrictions = restrict::compile(&update.relations, StatementKind::Update, scope)?;
    check_keys(&conditions, &restrictions, ModificationKind::Update)?;
    let only_statics = assignments
        .iter()
        .all(|a| table.columns[a.column].kind == ColumnKind::Static);
    let (partition, target) = if only_statics && !table.clustering_order.is_empty() && !conditions.concern_rows(table) {
        if !restrictions.clustering.is_empty() {
            return Err(CompileError::invalid(
                "Invalid restrictions on clustering columns since the UPDATE statement modifies only static columns",
            ));
        }
        (restrictions.partition, Target::Statics)
    } else {
        rows_target(table, restrictions)?
    };
    let kind = ModificationKind::Update;
    finish(table, partition, target, using, kind, assignments, conditions)
}

fn compile_removal(target: &AstTarget, scope: &mut Scope<'_>) -> Result<Assignment, CompileError> {
    let name = target_name(target);
    let (at, column) = scope.column(name)?;
    let column = column.clone();
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(CompileError::invalid(format!(
            "Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)"
        )));
    }
    let change = match target {
        AstTarget::Column(_) => Change::Delete,
        AstTarget::Element { key, .. } => {
            if matches!(column.cql_type, CqlType::Frozen(_)) {
                return Err(CompileError::invalid(format!(
                    "Invalid deletion operation for frozen collection column {name}"
                )));
            }
            match collection(&column, &format!("{name}[{key}]")).map_err(|_| {
                CompileError::invalid(format!("Invalid deletion operation for non collection column {name}"))
            })? {
                CqlType::List(_) => Change::TakeAt(scope.term(key, &format!("idx({name})"), &CqlType::Int)?),
                CqlType::Set(e) => Change::Take(scope.term(key, &format!("value({name})"), &e.clone())?),
                CqlType::Map(k, _) => Change::Take(scope.term(key, &format!("key({name})"), &k.clone())?),
                _ => Change::Delete,
            }
        }
        AstTarget::Field { .. } => {
            return Err(CompileError::invalid(format!(
                "Invalid deletion operation for non-UDT column {name}"
            )));
        }
    };
    Ok(Assignment { column: at, change })
}

/// Compiles a DELETE.
pub fn compile_delete(delete: &Delete, table: &Arc<Table>, scope: &mut Scope<'_>) -> Result<WritePlan, CompileError> {
    let conditions = compile_conditions(&delete.conditions, scope)?;
    check_counter_attributes(table, &delete.attributes)?;
    check_conditional(&conditions, table, &delete.attributes)?;
    let using = attributes(&delete.attributes, scope)?;
    let mut assignments: Vec<Assignment> = Vec::with_capacity(delete.targets.len());
    for target in &delete.targets {
        let removal = compile_removal(target, scope)?;
        let is_again = |b: &Assignment| {
            b.column == removal.column && matches!((&b.change, &removal.change), (Change::Delete, Change::Delete))
        };
        if !assignments.iter().any(is_again) {
            assignments.push(removal);
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
            return Err(CompileError::invalid(format!("{every} delete non static columns")));
        }
        if conditions.concern_rows(table) {
            return Err(CompileError::invalid(format!(
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
            return Err(CompileError::invalid(
                "Invalid restrictions on clustering columns since the DELETE statement modifies only static columns",
            ));
        }
        (restrictions.partition, Target::Statics)
    } else {
        if !is_full {
            return Err(CompileError::invalid(
                "Range deletions are not supported for specific columns",
            ));
        }
        (restrictions.partition, row_or_rows(table, restrictions.clustering))
    };
    let kind = ModificationKind::Delete;
    finish(table, partition, target, using, kind, assignments, conditions)
}
