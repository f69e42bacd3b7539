//! What statements do, as far as a principal needs permission for it. Statements are checked when they are executed,
//! not when they are prepared.

use front::{Access, Operation, Session};
use plan::Plan;
use query::{Prepared, QueryError, Statement};

/// Refuses a statement that the session's principal may not execute.
#[inline]
pub(crate) fn authorize(session: &Session, prepared: &Prepared) -> Result<(), QueryError> {
    let permitted = session.permits(|| access_of(&prepared.statement));
    permitted.map_err(|refusal| QueryError::Unauthorized(refusal.0))
}

/// What a statement does, and to which table if it is about one.
fn access_of(statement: &Statement) -> Access<'_> {
    let (operation, table) = match statement {
        Statement::Plan(Plan::Select(select)) => (Operation::Read, Some(&select.table)),
        Statement::Plan(Plan::Write(write) | Plan::VirtualWrite(write)) => (Operation::Write, Some(&write.table)),
        Statement::Plan(Plan::Batch(_)) => (Operation::Write, None),
        Statement::Truncate(table, _) => (Operation::Write, Some(table)),
        Statement::Use(_) | Statement::Describe(_) => (Operation::Read, None),
        Statement::Ddl(_) => (Operation::ChangeSchema, None),
    };
    Access {
        operation,
        table: table.map(|table| (&*table.keyspace, &*table.name)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use schema::{Column, ColumnKind, Keyspace, Schema, Table, TableId, TableOptions};
    use types::CqlType;
    use uuid::Uuid;

    use super::*;

    /// A schema with the table `ks.t`.
    fn schema() -> Schema {
        let columns = vec![
            Column::new("k", CqlType::Int, ColumnKind::PartitionKey),
            Column::new("v", CqlType::Int, ColumnKind::Regular),
        ];
        let id = TableId(Uuid::from_u128(1));
        let table = Table::new("ks", "t", id, columns, TableOptions::default());
        let keyspace = Keyspace {
            name: "ks".to_owned(),
            replication: BTreeMap::new(),
            durable_writes: true,
            tablets: None,
            types: BTreeMap::new(),
            functions: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            tables: BTreeMap::from([("t".to_owned(), Arc::new(table))]),
        };
        Schema {
            version: Uuid::from_u128(2),
            keyspaces: BTreeMap::from([("ks".to_owned(), Arc::new(keyspace))]),
        }
    }

    #[test]
    fn a_statement_reads_writes_or_changes_the_schema() {
        let schema = schema();
        for (text, operation, names_table) in [
            ("SELECT v FROM ks.t WHERE k = 1", Operation::Read, true),
            ("USE ks", Operation::Read, false),
            ("DESCRIBE TABLES", Operation::Read, false),
            ("INSERT INTO ks.t (k, v) VALUES (1, 2)", Operation::Write, true),
            ("UPDATE ks.t SET v = 2 WHERE k = 1 IF EXISTS", Operation::Write, true),
            ("DELETE FROM ks.t WHERE k = 1", Operation::Write, true),
            (
                "BEGIN BATCH DELETE FROM ks.t WHERE k = 1; APPLY BATCH",
                Operation::Write,
                false,
            ),
            ("TRUNCATE ks.t", Operation::Write, true),
            ("CREATE TABLE ks.u (k int PRIMARY KEY)", Operation::ChangeSchema, false),
            ("DROP TABLE ks.t", Operation::ChangeSchema, false),
        ] {
            let compiled = cql_compiler::compile(text, &schema, None).unwrap_or_else(|e| panic!("{text}: {e:?}"));
            let access = access_of(&compiled.statement);
            let table = names_table.then_some(("ks", "t"));
            assert_eq!(access, Access { operation, table }, "{text}");
        }
    }
}
