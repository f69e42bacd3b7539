//! From syntax tree to write plan.

mod condition;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cql::ast::{
    Attributes, Conditions as AstConditions, Delete, Insert, InsertValues, LiteralKind, Operation, Target as AstTarget,
    Term, Update,
};
use plan::function::{self, ArithmeticOperator, decode_json_row};
use plan::restrict::{ClusteringRestriction, PartitionRestriction, Restrictions};
use plan::write::{Addend, Arithmetic, Assignment, Change, Conditions, JsonRow, ModificationKind, Target};
use plan::{Operand, Write, WritePlan};
use schema::{Column, ColumnKind, CompactStorage, Table};
use smallvec::SmallVec;
use types::CqlType;

use crate::CompileError;
use crate::restrict::{self, Scope, StatementKind};

/// Compiles the IF clause of an UPDATE or DELETE.
fn compile_conditions(conditions: &AstConditions, scope: &mut Scope<'_>) -> Result<Conditions, CompileError> {
    Ok(match conditions {
        AstConditions::None => Conditions::None,
        AstConditions::Exists => Conditions::Exists,
        AstConditions::All(relations) => Conditions::Columns(
            restrict::without_between(relations)
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

/// What a modification has after `USING`.
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

/// Values by the position of their column in `table.columns`, and where they come from if an execution brings them as
/// JSON.
type InsertedValues = (Vec<(usize, Operand)>, Option<JsonRow>);

/// What an INSERT gives to which columns.
fn insert_values(values: &InsertValues, table: &Table, scope: &mut Scope<'_>) -> Result<InsertedValues, CompileError> {
    let (columns, values) = match values {
        InsertValues::Columns { columns, values } => (columns, values),
        InsertValues::Json { value, default_unset } => return json_values(value, *default_unset, table, scope),
    };
    if columns.len() != values.len() {
        return Err(CompileError::invalid("Unmatched column names/values"));
    }
    let mut given: Vec<(usize, Operand)> = Vec::with_capacity(columns.len());
    for (name, term) in columns.iter().zip(values) {
        let (at, column) = scope.column(name)?;
        if given.iter().any(|(other, _)| *other == at) {
            return Err(CompileError::invalid("The column names contains duplicates"));
        }
        given.push((at, scope.term(term, &column.name, &column.cql_type)?));
    }
    Ok((given, None))
}

/// The values of `INSERT JSON`: constants if the text is in the statement, else markers to which each execution gives
/// values.
fn json_values(
    value: &Term,
    is_default_unset: bool,
    table: &Table,
    scope: &mut Scope<'_>,
) -> Result<InsertedValues, CompileError> {
    // As in Cassandra, which takes the hidden columns for missing ones.
    if let Some(hidden) = table.columns.iter().find(|c| table.is_hidden(c)) {
        return Err(CompileError::undefined_column(&hidden.name, table));
    }
    let first = scope.markers.count();
    let text = match scope.term(value, "[json]", &CqlType::Text)? {
        Operand::Marker { index, .. } => {
            let json = JsonRow {
                text: index,
                first,
                is_default_unset,
            };
            let columns = table.columns.iter().enumerate();
            let operands = columns.map(|(at, column)| (at, json.operand(at, &column.cql_type)));
            return Ok((operands.collect(), Some(json)));
        }
        Operand::Constant(text) => text,
        Operand::Null | Operand::Computed(_) => {
            return Err(CompileError::invalid("INSERT JSON takes a string or a bind marker"));
        }
    };
    let columns: Vec<_> = table.columns.iter().map(|c| (c.name.as_str(), &c.cql_type)).collect();
    let mut given = Vec::with_capacity(columns.len());
    for (at, value) in decode_json_row(&text, &columns)?.into_iter().enumerate() {
        let column = &table.columns[at];
        let is_key = matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
        given.push((
            at,
            match value {
                Some(Some(bytes)) => Operand::Constant(bytes.into()),
                None if is_default_unset && is_key => {
                    let name = &column.name;
                    return Err(CompileError::invalid(format!("Invalid unset value for column {name}")));
                }
                None if is_default_unset => continue,
                Some(None) | None => Operand::Null,
            },
        ));
    }
    Ok((given, None))
}

/// Compiles an INSERT.
pub fn compile_insert(insert: &Insert, table: &Arc<Table>, scope: &mut Scope<'_>) -> Result<WritePlan, CompileError> {
    let conditions = if insert.if_not_exists {
        Conditions::NotExists
    } else {
        Conditions::None
    };
    if table.is_counter() {
        return Err(CompileError::invalid(
            "INSERT statements are not allowed on counter tables, use UPDATE instead",
        ));
    }
    check_conditional(&conditions, table, &insert.attributes)?;
    let (values, json) = insert_values(&insert.values, table, scope)?;
    let mut keys: SmallVec<[(usize, Operand); 4]> = SmallVec::new();
    let mut assignments = Vec::with_capacity(values.len());
    for (at, operand) in values {
        let column = &table.columns[at];
        match column.kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering => keys.push((at, operand)),
            _ => assignments.push(Assignment {
                column: at,
                change: set(column, operand),
            }),
        }
    }
    if table.compact == Some(CompactStorage::Dense) {
        assign_dense(table, &mut assignments)?;
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
        if kind == ColumnKind::Clustering && table.is_row_name(out.len()) {
            return match behind_a_gap(table, &missing) {
                Some((column, preceding)) => Err(restrict::preceding_is_not_restricted(column, preceding)),
                None => Ok(out),
            };
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
    let plan = finish(
        table,
        PartitionRestriction::Key(partition),
        target,
        using,
        ModificationKind::Insert,
        assignments,
        conditions,
    )?;
    Ok(match json {
        Some(json) => plan.of_json(json),
        None => plan,
    })
}

/// The first clustering column that has a value though the one before it is missing, and that one.
fn behind_a_gap<'t>(table: &'t Table, missing: &[&str]) -> Option<(&'t str, &'t str)> {
    let names: Vec<&str> = table.clustering().map(|column| column.name.as_str()).collect();
    let mut pairs = names.windows(2).map(|pair| (pair[1], pair[0]));
    pairs.find(|(column, preceding)| missing.contains(preceding) && !missing.contains(column))
}

/// Gives an INSERT into a dense table its cell, without which there would be no row: the hidden column has no value but
/// the empty one.
fn assign_dense(table: &Table, assignments: &mut Vec<Assignment>) -> Result<(), CompileError> {
    let Some((column, regular)) = table
        .columns
        .iter()
        .enumerate()
        .find(|(_, c)| c.kind == ColumnKind::Regular)
    else {
        return Ok(());
    };
    if table.is_hidden(regular) {
        assignments.push(Assignment {
            column,
            change: Change::Set(Operand::Constant(Vec::new().into())),
        });
    } else if assignments.is_empty() {
        return Err(CompileError::Invalid(format!(
            "Column {} is mandatory for this COMPACT STORAGE table",
            regular.name
        )));
    }
    Ok(())
}

/// The list, set or map column of that name, or why it cannot be changed element by element.
fn collection(column: &Column, what: impl FnOnce() -> String) -> Result<&CqlType, CompileError> {
    let which = match &column.cql_type {
        t @ (CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..)) => return Ok(t),
        CqlType::Frozen(_) => "frozen",
        _ => "non",
    };
    Err(CompileError::Invalid(format!(
        "Invalid operation ({}) for {which} collection column {}",
        what(),
        column.name
    )))
}

/// The place and type of a field of a column whose type is user-defined; `frozen` says what is wrong if it is frozen.
fn field_of(column: &Column, field: &str, frozen: impl FnOnce() -> String) -> Result<(u16, CqlType), CompileError> {
    let CqlType::Udt(udt) = &column.cql_type else {
        return Err(CompileError::Invalid(frozen()));
    };
    let place = udt.position(field).and_then(|place| u16::try_from(place).ok());
    let Some(place) = place else {
        return Err(CompileError::Invalid(format!(
            "UDT column {} does not have a field named {field}",
            column.name
        )));
    };
    Ok((place, udt.fields[usize::from(place)].1.clone()))
}

/// Whether a term is a literal of what no map is; `{}` is one.
fn is_no_map(term: &Term) -> bool {
    match term {
        Term::Set(elements) => !elements.is_empty(),
        Term::List(_) | Term::Tuple(_) | Term::UserType(_) => true,
        Term::Literal(literal) => literal.kind != LiteralKind::Null,
        _ => false,
    }
}

/// Whether a term is a literal of what no set is.
fn is_no_set(term: &Term) -> bool {
    match term {
        Term::Map(_) | Term::List(_) | Term::Tuple(_) | Term::UserType(_) => true,
        Term::Literal(literal) => literal.kind != LiteralKind::Null,
        _ => false,
    }
}

fn compile_assignment(
    a: &cql::ast::Assignment,
    is_conditional: bool,
    scope: &mut Scope<'_>,
) -> Result<Assignment, CompileError> {
    let name = target_name(&a.target);
    let (at, column) = scope.column(name)?;
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(CompileError::invalid(format!(
            "PRIMARY KEY part {name} found in SET part"
        )));
    }
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
            set(column, operand)
        }
        (AstTarget::Column(_), Operation::Add(term))
            if matches!(column.cql_type.unfrozen(), CqlType::Tuple(_) | CqlType::Udt(_)) =>
        {
            return Err(CompileError::invalid(format!(
                "Invalid operation ({name} = {name} + {term}) for tuple column {name}"
            )));
        }
        (AstTarget::Column(_), Operation::Add(term) | Operation::Subtract(term))
            if is_conditional && !column.cql_type.is_collection() =>
        {
            compute(column, &a.operation, term, scope)?
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
        (AstTarget::Column(_), Operation::Add(term))
            if matches!(column.cql_type, CqlType::Map(..)) && is_no_map(term) =>
        {
            return Err(CompileError::Invalid(format!(
                "Value for a map addition has to be a map, but was: '{term}'"
            )));
        }
        (AstTarget::Column(_), Operation::Subtract(term))
            if matches!(column.cql_type, CqlType::Map(..)) && is_no_set(term) =>
        {
            return Err(CompileError::Invalid(format!(
                "Value for a map substraction has to be a set, but was: '{term}'"
            )));
        }
        (AstTarget::Column(_), Operation::Add(term)) => {
            let t = collection(column, || format!("{name} = {name} + {term}"))?.clone();
            Change::Append(scope.term(term, name, &t)?)
        }
        (AstTarget::Column(_), Operation::Prepend(term)) => match &column.cql_type {
            list @ CqlType::List(_) => Change::Prepend(scope.term(term, name, list)?),
            other => {
                let is_list = matches!(other.unfrozen(), CqlType::List(_));
                return Err(CompileError::invalid(format!(
                    "Invalid operation ({name} = {term} + {name}) for {} list column {name}",
                    if is_list { "frozen" } else { "non" }
                )));
            }
        },
        (AstTarget::Column(_), Operation::Subtract(term)) => {
            match collection(column, || format!("{name} = {name} - {term}"))?.clone() {
                t @ CqlType::List(_) => Change::Discard(scope.term(term, name, &t)?),
                CqlType::Map(k, _) => Change::Remove(scope.term(term, name, &CqlType::Set(k))?),
                t => Change::Remove(scope.term(term, name, &t)?),
            }
        }
        (AstTarget::Element { key, .. }, Operation::Set(term)) => change_of_element(column, key, term, scope)?,
        (AstTarget::Field { field, .. }, Operation::Set(term))
            if matches!(column.cql_type.unfrozen(), CqlType::Udt(_)) =>
        {
            let (place, field_type) = field_of(column, field, || {
                format!("Invalid operation ({name}.{field} = {term}) for frozen UDT column {name}")
            })?;
            Change::PutField {
                field: place,
                value: scope.term(term, &format!("{name}.{field}"), &field_type)?,
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

/// `m[k] = v` of a map and `l[i] = v` of a list.
fn change_of_element(column: &Column, key: &Term, term: &Term, scope: &mut Scope<'_>) -> Result<Change, CompileError> {
    let name = &column.name;
    let value_name = format!("value({name})");
    match collection(column, || format!("{name}[{key}] = {term}"))?.clone() {
        CqlType::List(e) => Ok(Change::PutAt {
            index: scope.term(key, &format!("idx({name})"), &CqlType::Int)?,
            value: scope.term(term, &value_name, &e)?,
        }),
        CqlType::Map(k, v) => Ok(Change::Put {
            key: scope.term(key, &format!("key({name})"), &k)?,
            value: scope.term(term, &value_name, &v)?,
        }),
        _ => Err(CompileError::invalid(format!(
            "Invalid operation ({name}[{key}] = {term}) for set column {name}"
        ))),
    }
}

/// `n = n + 1` and `n = n - 1` of a number, and `t = t + 'a'` of a text, which a conditional statement computes from
/// what it reads.
fn compute(column: &Column, operation: &Operation, term: &Term, scope: &mut Scope<'_>) -> Result<Change, CompileError> {
    let (name, cql_type) = (&column.name, &column.cql_type);
    let is_text = matches!(cql_type, CqlType::Text | CqlType::Ascii);
    let operator = match operation {
        Operation::Subtract(_) => ArithmeticOperator::Subtract,
        _ => ArithmeticOperator::Add,
    };
    let is_possible = match operator {
        ArithmeticOperator::Add => is_text || function::is_number(cql_type),
        _ => function::is_number(cql_type),
    };
    if !is_possible {
        let sign = operator.sign();
        return Err(CompileError::Invalid(format!(
            "Invalid operation ({name} = {name} {sign} {term}) for non-numeric and non-text type {name}"
        )));
    }
    let operand = scope.term(term, name, cql_type)?;
    Ok(Change::Compute(Arithmetic::new(operator, cql_type, operand)?))
}

/// Compiles the assignments of an UPDATE. Additions to one counter are one, and one collection may have several of its
/// elements changed.
fn compile_assignments(
    assignments: &[cql::ast::Assignment],
    is_conditional: bool,
    scope: &mut Scope<'_>,
) -> Result<Vec<Assignment>, CompileError> {
    check_targets(assignments)?;
    let mut out: Vec<Assignment> = Vec::with_capacity(assignments.len());
    for a in assignments {
        stdx::preempt::point();
        let mut new = compile_assignment(a, is_conditional, scope)?;
        if matches!(new.change, Change::Compute(_)) && out.iter().any(|b| b.column == new.column) {
            return Err(set_twice(target_name(&a.target)));
        }
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

/// Refuses a column that is replaced and changed once more, and a field that is set twice. Elements may be set any
/// number of times, so this takes linear time.
fn check_targets(assignments: &[cql::ast::Assignment]) -> Result<(), CompileError> {
    let mut replaced: HashMap<&str, bool> = HashMap::new();
    let mut fields = HashSet::new();
    for assignment in assignments {
        stdx::preempt::point();
        let name = target_name(&assignment.target);
        let is_whole = sets_whole(assignment);
        let is_again = match &assignment.target {
            AstTarget::Field { field, .. } => !fields.insert((name, field)),
            AstTarget::Column(_) | AstTarget::Element { .. } => false,
        };
        let known = replaced.insert(name, is_whole);
        if is_again || known.is_some_and(|was_whole| was_whole || is_whole) {
            return Err(set_twice(name));
        }
    }
    Ok(())
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
    if !clustering.names_rows(table) {
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
    let is_conditional = !matches!(conditions, Conditions::None);
    let assignments = compile_assignments(&update.assignments, is_conditional, scope)?;
    let (restrictions, _) = restrict::compile(&update.relations, StatementKind::Update, scope)?;
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
            match collection(column, || format!("{name}[{key}]")).map_err(|_| {
                CompileError::invalid(format!("Invalid deletion operation for non collection column {name}"))
            })? {
                CqlType::List(_) => Change::TakeAt(scope.term(key, &format!("idx({name})"), &CqlType::Int)?),
                CqlType::Set(e) => Change::Take(scope.term(key, &format!("value({name})"), &e.clone())?),
                CqlType::Map(k, _) => Change::Take(scope.term(key, &format!("key({name})"), &k.clone())?),
                _ => Change::Delete,
            }
        }
        AstTarget::Field { field, .. } => {
            if !matches!(column.cql_type.unfrozen(), CqlType::Udt(_)) {
                return Err(CompileError::invalid(format!(
                    "Invalid field deletion operation for non-UDT column {name}"
                )));
            }
            let (field, _) = field_of(column, field, || {
                format!("Frozen UDT column {name} does not support field deletions")
            })?;
            Change::PutField {
                field,
                value: Operand::Null,
            }
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
    let mut deleted = HashSet::new();
    for target in &delete.targets {
        stdx::preempt::point();
        let removal = compile_removal(target, scope)?;
        let is_again = matches!(removal.change, Change::Delete) && !deleted.insert(removal.column);
        if !is_again {
            assignments.push(removal);
        }
    }
    let (restrictions, _) = restrict::compile(&delete.relations, StatementKind::Delete, scope)?;
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
    let mut plan = finish(table, partition, target, using, kind, assignments, conditions)?;
    plan.bypasses_large_data_guardrails = delete.bypasses_large_data_guardrails;
    Ok(plan)
}
