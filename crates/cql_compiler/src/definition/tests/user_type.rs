//! User-defined types by statements.

use std::collections::BTreeMap;

use ddl::{ChangeKind, SchemaChange};
use schema::Schema;
use types::CqlType;
use uuid::Uuid;

use super::apply;

/// Applies these statements to the schema; returns their changes, or the error of the first that is refused.
fn run(schema: &mut Schema, texts: &[&str]) -> Result<Vec<SchemaChange>, String> {
    let mut changes = Vec::new();
    for text in texts {
        if let Some(outcome) = apply(schema, text, "ks", true).map_err(|e| format!("{e}"))? {
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
