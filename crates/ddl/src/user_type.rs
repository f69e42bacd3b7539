//! User-defined types are created, altered and dropped.
//!
//! A column holds the definition of its type by value, so an ALTER makes a new table of each table that uses the type.
//! Stored values stay as they are: they have fewer fields than the new definition, and fields that are missing are
//! null.

use std::sync::Arc;

use schema::{Keyspace, Schema, Table};
use types::{CqlType, UdtType};

use crate::error::DdlError;
use crate::type_limits::{self, check_size, has_nested_collection};
use crate::{
    AlterType, ChangeKind, CreateType, DropType, NameInKeyspace, Outcome, SchemaChange, TOLD_NAME_BYTES_MAX,
    TypeChange, check_modifiable, existing_keyspace, first_duplicate, outcome,
};

pub(crate) fn create(schema: &Schema, create: &CreateType) -> Result<Option<Outcome>, DdlError> {
    let Some(keyspace) = keyspace_of_new_type(schema, &create.name, create.if_not_exists)? else {
        return Ok(None);
    };
    let name = &create.name.name;
    if let Some(field) = first_duplicate(create.fields.iter().map(|(name, _)| name.as_str())) {
        return invalid(format!("Duplicate field name '{field}' in type '{name}'"));
    }
    let mut names = create.fields.iter().map(|(name, _)| name).chain([name]);
    if names.any(|name| name.len() > TOLD_NAME_BYTES_MAX) {
        return invalid(format!(
            "The names of a type and of its fields have at most {TOLD_NAME_BYTES_MAX} bytes"
        ));
    }
    create
        .fields
        .iter()
        .try_for_each(|(_, cql_type)| check_field(cql_type))?;
    let udt = UdtType {
        keyspace: keyspace.name.clone(),
        name: name.clone(),
        fields: create.fields.clone(),
    };
    outcome_of_type(schema, keyspace, udt, ChangeKind::Created).map(Some)
}

/// The keyspace in which a type of that name is to be made; None when there is one and that is no error.
///
/// # Errors
/// When no type of that name may be made.
pub fn keyspace_of_new_type<'s>(
    schema: &'s Schema,
    name: &NameInKeyspace,
    if_not_exists: bool,
) -> Result<Option<&'s Keyspace>, DdlError> {
    let NameInKeyspace { keyspace, name } = name;
    check_name(name)?;
    check_modifiable(keyspace, "CREATE", || format!("all tables in {keyspace}"))?;
    let found = existing_keyspace(schema, keyspace)?;
    if !found.types.contains_key(name) {
        Ok(Some(found))
    } else if if_not_exists {
        Ok(None)
    } else {
        invalid(format!("A user type with name '{name}' already exists"))
    }
}

fn invalid<T>(text: String) -> Result<T, DdlError> {
    Err(DdlError::Invalid(text))
}

/// Names that mean something else where a type is expected, quoted or not: a type's text is read back.
const RESERVED: [&str; 12] = [
    "bitstring",
    "byte",
    "complex",
    "enum",
    "frozen",
    "interval",
    "list",
    "macaddr",
    "map",
    "set",
    "tuple",
    "vector",
];

fn check_name(name: &str) -> Result<(), DdlError> {
    let is_native = name == name.to_ascii_lowercase() && CqlType::parse_native(name).is_ok();
    if is_native || RESERVED.contains(&name) || name.is_empty() {
        Err(DdlError::Reserved(format!("Invalid (reserved) user type name {name}")))
    } else {
        Ok(())
    }
}

fn check_field(cql_type: &CqlType) -> Result<(), DdlError> {
    match cql_type {
        CqlType::Counter => invalid("A user type cannot contain counters".to_owned()),
        CqlType::Udt(_) => invalid("A user type cannot contain non-frozen UDTs".to_owned()),
        other => type_limits::check(other),
    }
}

/// A type of the schema, with its keyspace.
type TypeInKeyspace<'s> = Option<(&'s Keyspace, &'s Arc<UdtType>)>;

/// The full name of the type that is changed, and the type if there is one.
fn existing_type<'s>(
    schema: &'s Schema,
    name: &NameInKeyspace,
    verb: &str,
) -> Result<(String, TypeInKeyspace<'s>), DdlError> {
    let NameInKeyspace { keyspace, name } = name;
    check_modifiable(keyspace, verb, || format!("all tables in {keyspace}"))?;
    let found = schema.keyspaces.get(keyspace);
    let found = found.and_then(|of| Some((&**of, of.types.get(name)?)));
    Ok((format!("{keyspace}.{name}"), found))
}

/// The type that is altered, with its keyspace; None when there is none and that is no error.
///
/// # Errors
/// When there is no such type, or it may not be altered.
pub fn type_to_alter<'s>(
    schema: &'s Schema,
    name: &NameInKeyspace,
    if_exists: bool,
) -> Result<TypeInKeyspace<'s>, DdlError> {
    let (full_name, found) = existing_type(schema, name, "ALTER")?;
    if found.is_none() && !if_exists {
        invalid(format!("Type {full_name} doesn't exist"))
    } else {
        Ok(found)
    }
}

pub(crate) fn alter(schema: &Schema, alter: &AlterType) -> Result<Option<Outcome>, DdlError> {
    let Some((keyspace, old)) = type_to_alter(schema, &alter.name, alter.if_exists)? else {
        return Ok(None);
    };
    let full_name = quoted_name_of(old);
    let mut udt = UdtType::clone(old);
    match &alter.change {
        TypeChange::Add {
            if_not_exists,
            field,
            cql_type,
        } => {
            if old.position(field).is_some() {
                if *if_not_exists {
                    return Ok(None);
                }
                return invalid(format!(
                    "Cannot add field {field} to type {full_name}: a field with name {field} already exists"
                ));
            }
            if field.len() > TOLD_NAME_BYTES_MAX {
                return invalid(format!("The name of a field has at most {TOLD_NAME_BYTES_MAX} bytes"));
            }
            check_field(cql_type)?;
            check_addition(keyspace, old, field, cql_type)?;
            udt.fields.push((field.clone(), cql_type.clone()));
        }
        TypeChange::Rename { if_exists, fields } => {
            for (from, to) in fields {
                // A chain of renames does not pass through names of its own making.
                match old.position(from) {
                    Some(at) => udt.fields[at].0.clone_from(to),
                    None if *if_exists => {}
                    None => return invalid(format!("Unknown field {from} in user type {full_name}")),
                }
            }
            if let Some(name) = first_duplicate(udt.fields.iter().map(|(name, _)| name.as_str())) {
                return invalid(format!("Duplicate field name {name} in type {full_name}"));
            }
        }
    }
    if udt == **old {
        return Ok(None);
    }
    outcome_of_type(schema, keyspace, udt, ChangeKind::Updated).map(Some)
}

/// A type's text in which user-defined types have their keyspaces.
fn with_keyspaces(cql_type: &CqlType) -> String {
    let of = with_keyspaces;
    match cql_type {
        CqlType::Udt(udt) => quoted_name_of(udt),
        CqlType::Frozen(inner) => format!("frozen<{}>", of(inner)),
        CqlType::List(element) => format!("list<{}>", of(element)),
        CqlType::Set(element) => format!("set<{}>", of(element)),
        CqlType::Map(key, value) => format!("map<{}, {}>", of(key), of(value)),
        CqlType::Vector(element, dimension) => format!("vector<{}, {dimension}>", of(element)),
        other => other.to_string(),
    }
}

/// Refuses a new field that the type, or anything that uses it, cannot have.
fn check_addition(keyspace: &Keyspace, udt: &UdtType, name: &str, cql_type: &CqlType) -> Result<(), DdlError> {
    let full_name = quoted_name_of(udt);
    if cql_type.has_user_type(&udt.keyspace, &udt.name) {
        return invalid(format!(
            "Cannot add new field {name} of type {} to user type {full_name} as it would create a circular \
             reference",
            with_keyspaces(cql_type)
        ));
    }
    // A partition key keeps its token only as long as it keeps its bytes.
    let in_key = |table: &&Arc<Table>| {
        let mut key = table.partition_key();
        key.any(|column| column.cql_type.has_user_type(&udt.keyspace, &udt.name))
    };
    let tables: Vec<String> = keyspace
        .tables
        .values()
        .filter(in_key)
        .map(|table| table.quoted_name())
        .collect();
    if !tables.is_empty() {
        return invalid(format!(
            "Cannot add new field {name} of type {cql_type} to user type {full_name} as the type is being used in \
             partition key by the following tables: {}",
            tables.join(", ")
        ));
    }
    let is_multi_cell_somewhere = || {
        let mut columns = keyspace.tables.values().flat_map(|table| &table.columns);
        columns.any(|column| matches!(&column.cql_type, CqlType::Udt(used) if used.is_named_as(udt)))
    };
    if cql_type.is_multi_cell() && is_multi_cell_somewhere() {
        return invalid(format!(
            "Cannot add new field {name} of type {cql_type} to user type {full_name}: a column of that type is not \
             frozen, and non-frozen UDTs with nested non-frozen collections are not supported"
        ));
    }
    // A duration has no order, and a clustering key needs one.
    let needs_order = |table: &&Arc<Table>| {
        let mut key = table.clustering();
        key.any(|column| column.cql_type.has_user_type(&udt.keyspace, &udt.name))
    };
    if cql_type.has_duration()
        && let Some(table) = keyspace.tables.values().find(needs_order)
    {
        return invalid(format!(
            "Cannot add new field {name} of type {cql_type} to user type {full_name}: durations have no order, and table {} \
             has values of that type in its clustering key",
            table.quoted_name()
        ));
    }
    Ok(())
}

/// Keyspace and name as a statement would write them: in double quotes where that is needed.
fn quoted_name_of(udt: &UdtType) -> String {
    let [keyspace, name] = [&udt.keyspace, &udt.name].map(|name| types::quote_identifier(name));
    format!("{keyspace}.{name}")
}

pub(crate) fn drop(schema: &Schema, dropped: &DropType) -> Result<Option<Outcome>, DdlError> {
    let (full_name, found) = existing_type(schema, &dropped.name, "DROP")?;
    let Some((keyspace, udt)) = found else {
        return if dropped.if_exists {
            Ok(None)
        } else {
            invalid(format!("Type '{full_name}' doesn't exist"))
        };
    };
    let uses = |other: &&Arc<UdtType>| {
        let mut fields = other.fields.iter();
        fields.any(|(_, field)| field.has_user_type(&udt.keyspace, &udt.name))
    };
    let types: Vec<&str> = keyspace
        .types
        .values()
        .filter(uses)
        .map(|other| other.name.as_str())
        .collect();
    let tables = keyspace.tables.values().filter(|table| table.uses_type(&udt.name));
    let tables: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
    let functions = keyspace
        .functions
        .values()
        .filter(|function| function.uses_type(&udt.name));
    let functions = functions.map(|function| format!("{}.{}", function.keyspace, function.name));
    let aggregates = keyspace
        .aggregates
        .values()
        .filter(|aggregate| aggregate.uses_type(&udt.name));
    let aggregates = aggregates.map(|aggregate| format!("{}.{}", aggregate.keyspace, aggregate.name));
    let functions: Vec<String> = functions.chain(aggregates).collect();
    let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
    for (kind, names) in [("functions", functions), ("user types", types), ("tables", tables)] {
        if !names.is_empty() {
            return invalid(format!(
                "Cannot drop user type '{full_name}' as it is still used by {kind} {}",
                names.join(", ")
            ));
        }
    }
    let mut next = keyspace.clone();
    next.types.remove(&udt.name);
    let change = type_change(ChangeKind::Dropped, udt);
    Ok(Some(outcome(schema, &udt.keyspace, Some(next), change)))
}

fn type_change(change: ChangeKind, udt: &UdtType) -> SchemaChange {
    SchemaChange::Type {
        change,
        keyspace: udt.keyspace.clone(),
        name: udt.name.clone(),
    }
}

/// The outcome of adding or replacing one type: everything in its keyspace that uses it gets the new definition.
fn outcome_of_type(
    schema: &Schema,
    keyspace: &Keyspace,
    udt: UdtType,
    change: ChangeKind,
) -> Result<Outcome, DdlError> {
    let udt = Arc::new(udt);
    let mut next = keyspace.clone();
    for other in next.types.values_mut() {
        let altered = CqlType::Udt(other.clone()).with_user_type(&udt);
        if let CqlType::Udt(altered) = altered
            && altered != *other
        {
            *other = altered;
        }
    }
    for table in next.tables.values_mut().filter(|table| table.uses_type(&udt.name)) {
        Arc::make_mut(table).alter_type(&udt);
        for column in &table.columns {
            check_size(&column.cql_type)?;
        }
    }
    for function in next
        .functions
        .values_mut()
        .filter(|function| function.uses_type(&udt.name))
    {
        *function = Arc::new(function.with_user_type(&udt));
    }
    for aggregate in next
        .aggregates
        .values_mut()
        .filter(|aggregate| aggregate.uses_type(&udt.name))
    {
        *aggregate = Arc::new(aggregate.with_user_type(&udt));
    }
    next.types.insert(udt.name.clone(), udt.clone());
    for other in next.types.values() {
        check_size(&CqlType::Udt(other.clone()))?;
    }
    debug_assert!(
        next.tables
            .values()
            .flat_map(|t| &t.columns)
            .all(|c| !has_nested_collection(&c.cql_type))
    );
    Ok(outcome(schema, &keyspace.name, Some(next), type_change(change, &udt)))
}
