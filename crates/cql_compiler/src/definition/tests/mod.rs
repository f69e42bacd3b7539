//! Statements, compiled and applied.

mod function;
mod user_type;

use std::collections::BTreeMap;

use ddl::Outcome;
use schema::Schema;
use uuid::Uuid;

use super::{DdlContext, compile_ddl};
use crate::CompileError;

/// What becomes of the schema by a statement; None when it changes nothing.
fn apply(schema: &Schema, text: &str, keyspace: &str, has_functions: bool) -> Result<Option<Outcome>, CompileError> {
    let statement = cql::parse(text).expect("the test's statements are CQL").statement;
    let ctx = DdlContext {
        keyspace: Some(keyspace),
        now_us: 1,
    };
    let Some(definition) = compile_ddl(schema, &statement, &ctx)? else {
        return Ok(None);
    };
    let ctx = ddl::Context {
        new_id: Uuid::from_u128(schema.keyspaces.values().map(|k| k.tables.len() as u128 + 1).sum()),
        nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
        has_functions,
        racks: &BTreeMap::new(),
        lists_racks: false,
    };
    Ok(ddl::apply(schema, &definition, &ctx)?)
}
