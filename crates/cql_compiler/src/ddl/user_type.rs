//! CREATE, ALTER and DROP TYPE.
//!
//! A column holds the definition of its type by value, so an ALTER makes a new table of each table that uses the type.
//! Stored values stay as they are: they have fewer fields than the new definition, and fields that are missing are
//! null.

use std::sync::Arc;

use cql::ast::{AlterType, CreateType, DropType, FieldDefinition, QualifiedName, TypeChange, TypeName};
use schema::{Keyspace, Schema, Table};
use types::{CqlType, UdtType};

use super::properties::first_duplicate;
use super::types::{check_size, has_nested_collection, resolve};
use super::{
    ChangeKind, DdlContext, DdlOutcome, SchemaChange, TOLD_NAME_BYTES_MAX, check_modifiable, keyspace_of, outcome,
};
use crate::error::CompileError;

pub(super) fn create(
    schema: &Schema,
    s: &CreateType,
    ctx: &DdlContext<'_>,
) -> Result<Option<DdlOutcome>, CompileError> {
    let keyspace_name = keyspace_of(&s.name, ctx)?;
    check_name(&s.name.name)?;
    check_fields(s)?;
    check_modifiable(keyspace_name, "CREATE", || format!("all tables in {keyspace_name}"))?;
    let Some(keyspace) = schema.keyspaces.get(keyspace_name) else {
        return invalid(format!("Keyspace '{keyspace_name}' doesn't exist"));
    };
    let name = &s.name.name;
    if keyspace.types.contains_key(name) {
        if s.if_not_exists {
            return Ok(None);
        }
        return invalid(format!("A user type with name '{name}' already exists"));
    }
    let fields = s.fields.iter();
    let fields = fields.map(|field| Ok((field.name.clone(), type_of_field(keyspace, field)?)));
    let udt = UdtType {
        keyspace: keyspace_name.to_owned(),
        name: name.clone(),
        fields: fields.collect::<Result<_, CompileError>>()?,
    };
    outcome_of_type(schema, keyspace, udt, ChangeKind::Created).map(Some)
}

fn invalid<T>(text: String) -> Result<T, CompileError> {
    Err(CompileError::Invalid(text))
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

fn check_name(name: &str) -> Result<(), CompileError> {
    let is_native = name == name.to_ascii_lowercase() && CqlType::parse_native(name).is_ok();
    match is_native || RESERVED.contains(&name) || name.is_empty() {
        true => Err(CompileError::Syntax(format!(
            "Invalid (reserved) user type name {name}"
        ))),
        false => Ok(()),
    }
}

/// What is wrong with the fields whatever the schema is.
fn check_fields(s: &CreateType) -> Result<(), CompileError> {
    if let Some(name) = first_duplicate(s.fields.iter().map(|field| field.name.as_str())) {
        return invalid(format!("Duplicate field name '{name}' in type '{}'", s.name.name));
    }
    let names = s.fields.iter().map(|field| &field.name).chain([&s.name.name]);
    if names.into_iter().any(|name| name.len() > TOLD_NAME_BYTES_MAX) {
        return invalid(format!(
            "The names of a type and of its fields have at most {TOLD_NAME_BYTES_MAX} bytes"
        ));
    }
    s.fields.iter().try_for_each(check_field)
}

fn check_field(field: &FieldDefinition) -> Result<(), CompileError> {
    match &field.type_name {
        TypeName::Native(cql::ast::NativeType::Counter) => invalid("A user type cannot contain counters".to_owned()),
        TypeName::UserType(_) => invalid("A user type cannot contain non-frozen UDTs".to_owned()),
        _ => Ok(()),
    }
}

fn type_of_field(keyspace: &Keyspace, field: &FieldDefinition) -> Result<CqlType, CompileError> {
    match resolve(keyspace, &field.type_name)? {
        // By the name of its Java class.
        CqlType::Counter => invalid("A user type cannot contain counters".to_owned()),
        cql_type => Ok(cql_type),
    }
}

/// A type of the schema, with its keyspace.
type Found<'s> = Option<(&'s Keyspace, &'s Arc<UdtType>)>;

/// The full name of the type that a statement changes, and the type if there is one.
fn existing_type<'s>(
    schema: &'s Schema,
    name: &QualifiedName,
    verb: &str,
    ctx: &DdlContext<'_>,
) -> Result<(String, Found<'s>), CompileError> {
    let keyspace_name = keyspace_of(name, ctx)?;
    check_modifiable(keyspace_name, verb, || format!("all tables in {keyspace_name}"))?;
    let keyspace = schema.keyspaces.get(keyspace_name);
    let found = keyspace.and_then(|keyspace| Some((&**keyspace, keyspace.types.get(&name.name)?)));
    Ok((format!("{keyspace_name}.{}", name.name), found))
}

pub(super) fn alter(schema: &Schema, s: &AlterType, ctx: &DdlContext<'_>) -> Result<Option<DdlOutcome>, CompileError> {
    let (full_name, found) = existing_type(schema, &s.name, "ALTER", ctx)?;
    let Some((keyspace, old)) = found else {
        return match s.if_exists {
            true => Ok(None),
            false => invalid(format!("Type {full_name} doesn't exist")),
        };
    };
    let full_name = quoted_name_of(old);
    let mut udt = UdtType::clone(old);
    match &s.change {
        TypeChange::Add { if_not_exists, field } => {
            check_field(field)?;
            if old.position(&field.name).is_some() {
                if *if_not_exists {
                    return Ok(None);
                }
                return invalid(format!(
                    "Cannot add field {name} to type {full_name}: a field with name {name} already exists",
                    name = field.name
                ));
            }
            if field.name.len() > TOLD_NAME_BYTES_MAX {
                return invalid(format!("The name of a field has at most {TOLD_NAME_BYTES_MAX} bytes"));
            }
            let cql_type = type_of_field(keyspace, field)?;
            check_addition(keyspace, old, &field.name, &cql_type)?;
            udt.fields.push((field.name.clone(), cql_type));
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
        TypeChange::Alter(_) => return invalid("Altering field types is no longer supported".to_owned()),
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
fn check_addition(keyspace: &Keyspace, udt: &UdtType, name: &str, cql_type: &CqlType) -> Result<(), CompileError> {
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
    if super::has_duration(cql_type)
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

pub(super) fn drop(schema: &Schema, s: &DropType, ctx: &DdlContext<'_>) -> Result<Option<DdlOutcome>, CompileError> {
    let (full_name, found) = existing_type(schema, &s.name, "DROP", ctx)?;
    let Some((keyspace, udt)) = found else {
        return match s.if_exists {
            true => Ok(None),
            false => invalid(format!("Type '{full_name}' doesn't exist")),
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
) -> Result<DdlOutcome, CompileError> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::ddl::apply;

    /// Applies these statements to the schema; returns their changes, or the error of the first that is refused.
    fn run(schema: &mut Schema, texts: &[&str]) -> Result<Vec<SchemaChange>, String> {
        let mut changes = Vec::new();
        for text in texts {
            let statement = cql::parse(text).expect("the test's statements are CQL").statement;
            let ctx = DdlContext {
                keyspace: Some("ks"),
                now_us: 1,
                new_id: Uuid::from_u128(schema.keyspaces.values().map(|k| k.tables.len() as u128 + 1).sum()),
                nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
                has_tombstone_gc: false,
                has_functions: true,
                racks: &BTreeMap::new(),
                lists_racks: false,
            };
            if let Some(outcome) = apply(schema, &statement, &ctx).map_err(|e| format!("{e}"))? {
                *schema = outcome.schema;
                changes.extend(outcome.changes);
            }
        }
        Ok(changes)
    }

    fn schema() -> Schema {
        let mut schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        run(
            &mut schema,
            &[
                "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
                "CREATE TYPE point (x int, y int)",
                "CREATE TYPE line (a frozen<point>, b frozen<point>)",
                "CREATE TABLE t (k int, c frozen<line>, p point, l list<frozen<line>>, PRIMARY KEY (k, c))",
            ],
        )
        .expect("the statements are valid");
        schema
    }

    #[test]
    fn an_altered_type_is_new_in_types_and_tables_that_use_it() {
        let mut schema = schema();
        let before = schema.version;
        let changes = run(&mut schema, &["ALTER TYPE point ADD z text"]).expect("it is valid");
        let expected = SchemaChange::Type {
            change: ChangeKind::Updated,
            keyspace: "ks".to_owned(),
            name: "point".to_owned(),
        };
        assert_eq!(changes, [expected]);
        assert_ne!(schema.version, before);
        let keyspace = &schema.keyspaces["ks"];
        let point = &keyspace.types["point"];
        assert_eq!(point.fields.len(), 3);
        let table = &keyspace.tables["t"];
        let of_columns = table.columns.iter().flat_map(|column| column.cql_type.user_types());
        let of_types = keyspace.types["line"]
            .fields
            .iter()
            .flat_map(|(_, field)| field.user_types());
        let used: Vec<_> = of_columns.chain(of_types).filter(|udt| udt.name == "point").collect();
        assert_eq!(used.len(), 7, "two in each of c, l and line, and p");
        assert!(used.iter().all(|udt| *udt == point));
    }

    #[test]
    fn what_an_alter_would_break_is_refused() {
        for (text, words) in [
            ("ALTER TYPE line ADD d duration", "in its clustering key"),
            (
                "ALTER TYPE point ADD d frozen<map<int, duration>>",
                "in its clustering key",
            ),
            ("ALTER TYPE point ADD tags set<text>", "nested non-frozen collections"),
            ("ALTER TYPE point ADD up frozen<line>", "circular"),
            ("ALTER TYPE point RENAME q TO r", "Unknown field q"),
            ("ALTER TYPE point RENAME x TO y", "Duplicate field name y"),
            (
                "ALTER TABLE t DROP p",
                "Cannot drop non-frozen column p of user type point",
            ),
            ("DROP TYPE point", "still used by user types line"),
            ("CREATE TYPE \"int\" (x int)", "reserved"),
            ("CREATE TYPE frozen (x int)", "reserved"),
        ] {
            let refusal = run(&mut schema(), &[text]).expect_err(text);
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
    }

    #[test]
    fn nested_types_have_limits_that_readers_of_their_records_and_files_do_not_reach() {
        let mut schema = schema();
        run(&mut schema, &["CREATE TYPE d0 (x int)", "CREATE TYPE w0 (x int)"]).expect("they are valid");
        let grow = |schema: &mut Schema, field: &dyn Fn(usize) -> String| {
            let mut grown = (1..).map(|level| run(schema, &[&field(level)]));
            grown.find_map(Result::err).expect("there is a limit")
        };
        let deep = grow(&mut schema, &|n| format!("CREATE TYPE d{n} (x frozen<d{}>)", n - 1));
        assert!(deep.contains("nested more than"), "{deep}");
        let wide = grow(&mut schema, &|n| {
            let before = n - 1;
            format!("CREATE TYPE w{n} (a frozen<w{before}>, b frozen<w{before}>)")
        });
        assert!(wide.contains("types in it"), "{wide}");
        for deep in [
            format!("{}int{}", "frozen<list<".repeat(43), ">>".repeat(43)),
            format!("{}int{}", "tuple<".repeat(99), ">".repeat(99)),
            format!("'{}Int32Type{}'", "ListType(".repeat(50), ")".repeat(50)),
        ] {
            let refused = run(
                &mut schema,
                &[&format!("CREATE TABLE deep (k int PRIMARY KEY, v {deep})")],
            );
            let refused = refused.expect_err("the records of the schema have no room for it");
            assert!(refused.contains("nested more than"), "{refused}");
        }
        let many = format!(
            "CREATE TABLE wide (k int PRIMARY KEY, v tuple<{}>)",
            vec!["int"; 70_000].join(",")
        );
        let refused = run(&mut schema, &[&many]).expect_err("the protocol counts the types of a tuple in 16 bits");
        assert!(refused.contains("types in it"), "{}", &refused[refused.len() - 60..]);
        let long = "n".repeat(65_536);
        let refused = run(
            &mut schema,
            &[&format!("CREATE TABLE named (k int PRIMARY KEY, {long} int)")],
        );
        assert!(refused.expect_err("as long as that").contains("65535 bytes"));
        for udt in schema.keyspaces["ks"].types.values() {
            let cql_type = CqlType::Udt(udt.clone()).frozen();
            let read = CqlType::from_marshal_name(&cql_type.marshal_name());
            assert!(read.is_ok(), "{}", udt.name);
        }
    }
}
