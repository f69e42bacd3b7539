//! Functions and aggregates by statements.

use std::collections::BTreeMap;

use ddl::{ChangeKind, SchemaChange, schema_difference, schema_version};
use schema::Schema;
use types::CqlType;
use uuid::Uuid;

use super::apply;

fn run(schema: &mut Schema, text: &str) -> Result<Vec<SchemaChange>, String> {
    run_with(schema, text, true)
}

fn run_with(schema: &mut Schema, text: &str, has_functions: bool) -> Result<Vec<SchemaChange>, String> {
    match apply(schema, text, "k", has_functions).map_err(|e| format!("{e}"))? {
        Some(outcome) => {
            let told = schema_difference(schema, &outcome.schema).changes;
            assert!(told.ends_with(&outcome.changes), "{text}: {told:?}");
            *schema = outcome.schema;
            Ok(outcome.changes)
        }
        None => Ok(Vec::new()),
    }
}

fn schema(texts: &[&str]) -> Schema {
    let mut schema = Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    };
    let first = [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE u (x int, y text)",
    ];
    for text in first.iter().chain(texts) {
        run(&mut schema, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    schema
}

#[track_caller]
fn refuse(schema: &mut Schema, text: &str, expected: &str) {
    match run(schema, text) {
        Err(error) => assert_eq!(error, expected, "{text}"),
        Ok(changes) => panic!("{text} was not refused: {changes:?}"),
    }
}

const F: &str = "CREATE FUNCTION f(a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a + 1'";
const SUM: &str = "CREATE FUNCTION s(s int, v int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return s'";
const STRICT: &str =
    "CREATE FUNCTION sn(s int, v int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return s'";
const FINAL: &str = "CREATE FUNCTION ff(s int) CALLED ON NULL INPUT RETURNS text LANGUAGE lua AS 'return s'";

#[test]
fn a_function_is_created_replaced_and_dropped() {
    let mut schema = schema(&[F]);
    let function = |change, types: &[&str]| {
        let argument_types = types.iter().map(|t| (*t).to_owned()).collect();
        let (keyspace, name) = ("k".to_owned(), "f".to_owned());
        SchemaChange::Function {
            change,
            keyspace,
            name,
            argument_types,
        }
    };
    let version = schema_version(&schema);
    refuse(&mut schema, F, "Function 'f' already exists");
    assert_eq!(
        run(&mut schema, &F.replace("FUNCTION", "FUNCTION IF NOT EXISTS")),
        Ok(vec![])
    );
    assert_eq!(run(&mut schema, &F.replace("CREATE", "CREATE OR REPLACE")), Ok(vec![]));
    let other = F.replace("CREATE", "CREATE OR REPLACE").replace("+ 1", "+ 2");
    assert_eq!(
        run(&mut schema, &other),
        Ok(vec![function(ChangeKind::Updated, &["int"])])
    );
    assert_ne!(schema_version(&schema), version);
    refuse(
        &mut schema,
        &other.replace("RETURNS NULL ON", "CALLED ON"),
        "Function 'f' must have CALLED ON NULL INPUT directive",
    );
    refuse(
        &mut schema,
        &other.replace("RETURNS int", "RETURNS bigint"),
        "Cannot replace function 'f', the new return type bigint is not compatible with the return type int of existing \
         function",
    );
    refuse(
        &mut schema,
        &other.replace("FUNCTION", "FUNCTION IF NOT EXISTS"),
        "Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives",
    );
    let text = F.replace("a int", "a text, b list<int>");
    assert_eq!(
        run(&mut schema, &text),
        Ok(vec![function(ChangeKind::Created, &["text", "list<int>"])])
    );
    refuse(
        &mut schema,
        "DROP FUNCTION f",
        "'DROP FUNCTION f' matches multiple function definitions; specify the argument types by issuing a statement like \
         'DROP FUNCTION f (type, type, ...)'. You can use cqlsh 'DESCRIBE FUNCTION f' command to find all overloads",
    );
    refuse(
        &mut schema,
        "DROP FUNCTION k.f(bigint)",
        "Function 'k.f(bigint)' doesn't exist",
    );
    refuse(&mut schema, "DROP FUNCTION none", "Function 'k.none' doesn't exist");
    refuse(&mut schema, "DROP FUNCTION nok.f", "Function 'nok.f' doesn't exist");
    for text in ["f(bigint)", "none", "nok.f"] {
        assert_eq!(run(&mut schema, &format!("DROP FUNCTION IF EXISTS {text}")), Ok(vec![]));
    }
    assert_eq!(
        run(&mut schema, "DROP FUNCTION f(int)"),
        Ok(vec![function(ChangeKind::Dropped, &["int"])])
    );
    let dropped = function(ChangeKind::Dropped, &["text", "list<int>"]);
    assert_eq!(run(&mut schema, "DROP FUNCTION f"), Ok(vec![dropped]));
}

#[test]
fn functions_that_cannot_be_are_refused() {
    let mut schema = schema(&[]);
    let frozen = |t: &str| format!("Argument '{t}' cannot be frozen; remove frozen<> modifier from '{t}'");
    let frozen_list = frozen("frozen<list<int>>");
    for (from, to, expected) in [
        (
            "a int",
            "a int, a text",
            "Duplicate argument names for given function f with argument names [a, a]",
        ),
        ("a int", "a frozen<list<int>>", frozen_list.as_str()),
        (
            "RETURNS int",
            "RETURNS frozen<u>",
            "Return type 'frozen<u>' cannot be frozen; remove frozen<> modifier from 'frozen<u>'",
        ),
        ("a int", "a nosuch", "Unknown type k.nosuch"),
        (
            "a int",
            "a list<list<int>>",
            "Non-frozen collections are not allowed inside collections: list<list<int>>",
        ),
        ("f(", "nok.f(", "Keyspace 'nok' doesn't exist"),
        ("f(", "system.f(", "System keyspace 'system' is not user-modifiable"),
        (
            "lua",
            "java",
            "Functions in java are not supported: LANGUAGE is lua or wasm",
        ),
        (
            "lua",
            "javascript",
            "Functions in javascript are not supported: LANGUAGE is lua or wasm",
        ),
    ] {
        refuse(&mut schema, &F.replace(from, to), expected);
    }
    let broken = run(&mut schema, &F.replace("return a", "return ("));
    assert!(broken.is_err_and(|e| e.starts_with("Function 'f' cannot be compiled: f:1:")));
    assert_eq!(
        run_with(&mut schema, F, false),
        Err(
            "User-defined functions are disabled in cassandra.yaml - set user_defined_functions_enabled=true to enable"
                .to_owned()
        )
    );
}

#[test]
fn the_client_is_warned_of_an_aggregate_whose_state_stays_null() {
    let mut schema = schema(&[SUM, STRICT]);
    for (text, stays) in [
        ("CREATE AGGREGATE a1(int) SFUNC sn STYPE int", true),
        ("CREATE AGGREGATE a2(int) SFUNC sn STYPE int INITCOND 0", false),
        ("CREATE AGGREGATE a3(int) SFUNC s STYPE int", false),
    ] {
        let outcome = apply(&schema, text, "k", true).expect(text).expect("it is new");
        schema = outcome.schema;
        let warning = "The state of aggregate k.a1 is always null: it has no INITCOND, and its state function k.sn does not accept 'null' arguments";
        let expected: &[&str] = if stays { &[warning] } else { &[] };
        assert_eq!(outcome.warnings, expected, "{text}");
    }
}

#[test]
fn an_aggregate_is_made_of_functions_that_stay() {
    let mut schema = schema(&[SUM, STRICT, FINAL, F]);
    let a = "CREATE AGGREGATE a(int) SFUNC s STYPE int FINALFUNC ff INITCOND 5";
    let aggregate = |change| SchemaChange::Aggregate {
        change,
        keyspace: "k".to_owned(),
        name: "a".to_owned(),
        argument_types: vec!["int".to_owned()],
    };
    assert_eq!(run(&mut schema, a), Ok(vec![aggregate(ChangeKind::Created)]));
    refuse(&mut schema, a, "Aggregate 'a' already exists");
    assert_eq!(
        run(&mut schema, &a.replace("GATE a", "GATE IF NOT EXISTS a")),
        Ok(vec![])
    );
    let replace = a.replace("CREATE", "CREATE OR REPLACE");
    assert_eq!(run(&mut schema, &replace), Ok(vec![]));
    assert_eq!(
        run(&mut schema, &replace.replace('5', "6")),
        Ok(vec![aggregate(ChangeKind::Updated)])
    );
    for (text, expected) in [
        (
            replace.replace(" FINALFUNC ff", ""),
            "Cannot replace aggregate 'a', the new return type int isn't compatible with the return type text of existing \
             function",
        ),
        (
            a.replace("a(int)", "b(text)"),
            "State function k.s(int, text) doesn't exist",
        ),
        (
            a.replace("a(int)", "b(int)").replace("FINALFUNC ff", "FINALFUNC no"),
            "Final function k.no(int) doesn't exist",
        ),
        (
            a.replace("a(int)", "b(int)")
                .replace("FINALFUNC", "REDUCEFUNC ff FINALFUNC"),
            "Reduce function k.ff(int, int) doesn't exist",
        ),
        (
            a.replace("a(int)", "b(int)").replace('5', "'x'"),
            "Invalid STRING constant (x) for \"(dummy)\" of type int",
        ),
        (
            a.replace("a(int)", "f(int)").replace("SFUNC s", "SFUNC sn"),
            "Aggregate 'f' cannot replace a function",
        ),
        (
            a.replace("a(int)", "b(frozen<u>)"),
            "Argument 'frozen<u>' cannot be frozen; remove frozen<> modifier from 'frozen<u>'",
        ),
        (
            a.replace("STYPE int", "STYPE frozen<u>"),
            "State type 'frozen<u>' cannot be frozen; remove frozen<> modifier from 'frozen<u>'",
        ),
        (
            F.replace("f(a int)", "a(a int)"),
            "Function 'a' cannot replace an aggregate",
        ),
        (
            "DROP FUNCTION s".to_owned(),
            "Function 'k.s' is still referenced by aggregates k.a",
        ),
        (
            "DROP FUNCTION ff(int)".to_owned(),
            "Function 'k.ff' is still referenced by aggregates k.a",
        ),
        ("DROP AGGREGATE f(int)".to_owned(), "Aggregate 'k.f(int)' doesn't exist"),
        ("DROP AGGREGATE none".to_owned(), "Aggregate 'k.none' doesn't exist"),
        ("DROP FUNCTION a".to_owned(), "Function 'k.a' doesn't exist"),
    ] {
        refuse(&mut schema, &text, expected);
    }
    let wrong = "CREATE FUNCTION w(s text, v int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return 1'";
    run(&mut schema, wrong).expect("it is a function");
    refuse(
        &mut schema,
        "CREATE AGGREGATE b(int) SFUNC w STYPE text",
        "State function k.w(text, int) return type must be the same as the first argument type - check STYPE, argument and \
         return types",
    );
    assert_eq!(
        run(&mut schema, "DROP AGGREGATE a"),
        Ok(vec![aggregate(ChangeKind::Dropped)])
    );
    assert!(run(&mut schema, "DROP FUNCTION s").is_ok());
}

#[test]
fn a_type_that_functions_use_is_altered_with_them_and_not_dropped() {
    let mut schema = schema(&[
        "CREATE FUNCTION s(s u, v int) CALLED ON NULL INPUT RETURNS u LANGUAGE lua AS 'return s'",
        "CREATE AGGREGATE a(int) SFUNC s STYPE u INITCOND {x: 1, y: 'a'}",
    ]);
    refuse(
        &mut schema,
        "DROP TYPE u",
        "Cannot drop user type 'k.u' as it is still used by functions k.s, k.a",
    );
    let outcome = apply(&schema, "ALTER TYPE u ADD z int", "k", false)
        .expect("it fits")
        .expect("it changes something");
    schema = outcome.schema;
    let keyspace = &schema.keyspaces["k"];
    let new = CqlType::Udt(keyspace.types["u"].clone());
    assert_eq!(keyspace.functions["s(u, int)"].returns, new);
    assert_eq!(keyspace.functions["s(u, int)"].arguments[0].1, new);
    assert_eq!(keyspace.aggregates["a(int)"].state_type, new);
    assert!(run(&mut schema, "DROP KEYSPACE k").is_ok());
}
