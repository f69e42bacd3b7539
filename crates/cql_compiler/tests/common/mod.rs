//! What several tests need.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_compiler::{DdlContext, Dialect, compile_ddl, compile_with};
use plan::{Plan, SelectPlan};
use schema::Schema;
use uuid::Uuid;

/// A schema with the keyspace `ks`, and what these statements make.
pub fn schema_of(statements: &[&str]) -> Schema {
    let mut schema = Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    };
    let keyspace = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    for text in [&[keyspace], statements].concat() {
        let ctx = DdlContext {
            keyspace: None,
            now_us: 1,
        };
        let statement = cql::parse(text).expect("the test's statements are CQL").statement;
        let definition = compile_ddl(&schema, &statement, &ctx).expect(text);
        let ctx = ddl::Context {
            new_id: Uuid::from_u128(0x1234),
            nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
            has_functions: true,
            racks: &BTreeMap::new(),
            lists_racks: false,
        };
        let changed = ddl::apply(&schema, &definition.expect("it asks for something"), &ctx).expect(text);
        schema = changed.expect("it changes something").schema;
    }
    schema
}

/// The plan of a SELECT.
pub fn select(schema: &Schema, text: &str, dialect: Dialect) -> Arc<SelectPlan> {
    let compiled = compile_with(text, schema, None, dialect).unwrap_or_else(|e| panic!("{text}: {e}"));
    match compiled.statement.plan() {
        Some(Plan::Select(select)) => select.clone(),
        _ => panic!("{text} is a SELECT"),
    }
}
