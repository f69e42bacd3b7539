//! What a conditional request reads, decides and writes, without a shard.

use std::sync::Arc;

use crate::common::schema_of;
use cql::ast::{Modification, Statement as Ast};
use cql_compiler::restrict::Scope;
use cql_compiler::{Markers, compile_delete, compile_insert, compile_update};
use mutation::{Mutation, MutationItem, PartitionBlock};
use plan::restrict::NullRule;
use plan::write::{BoundWrite, ConditionalRequest, CurrentRows, WriteClock};
use plan::{BindContext, BoundValues, Execution, PlanError, WritePlan};
use schema::{Schema, Table};
use types::Token;

const NOW_US: i64 = 1_000_000_000;

fn schema() -> Schema {
    schema_of(&[
        "CREATE TABLE ks.t (k int, c int, s int static, v int, l list<int>, PRIMARY KEY (k, c)) \
         WITH CLUSTERING ORDER BY (c DESC)",
    ])
}

fn plan(schema: &Schema, m: &Modification) -> WritePlan {
    let table = schema.keyspaces["ks"].tables["t"].clone();
    let mut markers = Markers::new(0);
    let mut scope = Scope {
        schema,
        keyspace: "ks",
        table: &table,
        nulls: NullRule::Error,
        markers: &mut markers,
    };
    match m {
        Modification::Insert(i) => compile_insert(i, &table, &mut scope),
        Modification::Update(u) => compile_update(u, &table, &mut scope),
        Modification::Delete(d) => compile_delete(d, &table, &mut scope),
    }
    .expect("the test's statements are meant")
}

/// The statements of a text, and whether they are a BATCH.
fn statements(schema: &Schema, text: &str) -> (Vec<BoundWrite>, bool) {
    let (modifications, batch) = match cql::parse(text).expect(text).statement {
        Ast::Insert(i) => (vec![Modification::Insert(i)], false),
        Ast::Update(u) => (vec![Modification::Update(u)], false),
        Ast::Delete(d) => (vec![Modification::Delete(d)], false),
        Ast::Batch(b) => (b.statements.into_vec(), true),
        other => panic!("{other:?} is no modification"),
    };
    let statements = modifications.iter().map(|m| BoundWrite {
        plan: Arc::new(plan(schema, m)),
        run: Execution {
            values: Vec::new(),
            now_us: NOW_US,
            now_in_seconds: None,
            random: 0,
        },
    });
    (statements.collect(), batch)
}

/// What writes leave in the partition, each at its own timestamp: first the rows, in clustering order.
fn current(schema: &Schema, texts: &[(&str, i64)]) -> CurrentRows {
    let mut block = PartitionBlock::new(Token(0), &1_i32.to_be_bytes());
    for (text, timestamp) in texts {
        let (statements, _) = statements(schema, text);
        let ctx = BindContext {
            values: BoundValues::NONE,
            now_us: NOW_US,
            now_in_seconds: None,
            random: 0,
        };
        let mut bytes = Vec::new();
        let (key, clock) = (1_i32.to_be_bytes(), WriteClock::default());
        let packed = statements[0]
            .plan
            .pack(&key, *timestamp, &ctx, &clock, None, &mut bytes);
        assert_eq!(packed, Ok(true), "{text}");
        for item in Mutation::new(&bytes).expect("it was packed just now").items() {
            match item {
                MutationItem::Partition(t) => block.tombstone = t,
                MutationItem::StaticRow(row) => block.set_static_row(row),
                MutationItem::Row { clustering, row } => block.push_row(clustering, row),
                MutationItem::Range(r) => block.range_tombstones.push(r),
            }
        }
    }
    CurrentRows::new(vec![block.clone()], vec![block], 1000)
}

fn table(schema: &Schema) -> &Table {
    &schema.keyspaces["ks"].tables["t"]
}

/// The clustering column of a serialised clustering key.
fn clustering(key: &[u8]) -> i32 {
    let value = schema::components(key).next().flatten().expect("it has one column");
    i32::from_be_bytes(value.try_into().expect("an int"))
}

#[test]
fn a_request_reads_the_rows_that_have_conditions_in_their_order() {
    let schema = schema();
    for (text, rows, first_row) in [
        ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF v = 1", &[2][..], false),
        ("INSERT INTO ks.t (k, c) VALUES (1, 2) IF NOT EXISTS", &[2], false),
        ("UPDATE ks.t SET s = 1 WHERE k = 1 IF s = 1", &[], true),
        ("UPDATE ks.t SET s = 1 WHERE k = 1 AND c = 3 IF v = 1", &[3], false),
        ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF s = 1", &[], true),
        // A list is changed by place: its row must be read, though it has no condition.
        ("UPDATE ks.t SET l[0] = 1 WHERE k = 1 AND c = 2 IF s = 1", &[2], true),
        (
            "BEGIN BATCH UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF v = 1; \
             UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 5 IF v = 1; \
             UPDATE ks.t SET v = 2 WHERE k = 1 AND c = 5 IF v = 2; \
             INSERT INTO ks.t (k, c) VALUES (1, 9); APPLY BATCH",
            &[5, 2],
            false,
        ),
    ] {
        let (statements, batch) = statements(&schema, text);
        let request = ConditionalRequest::new(&statements, batch).expect(text);
        let read = request.what_to_read();
        let found: Vec<i32> = read.rows.iter().map(|r| clustering(r)).collect();
        assert_eq!((&found[..], read.first_row), (rows, first_row), "{text}");
    }
}

#[test]
fn a_request_refuses_what_one_turn_cannot_do() {
    let schema = schema();
    for (text, error) in [
        (
            "BEGIN BATCH UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF v = 1; \
             UPDATE ks.t SET v = 1 WHERE k = 2 AND c = 2; APPLY BATCH",
            "Batch with conditions cannot span multiple partitions",
        ),
        (
            "BEGIN BATCH UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF EXISTS; \
             INSERT INTO ks.t (k, c) VALUES (1, 2) IF NOT EXISTS; APPLY BATCH",
            "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row",
        ),
        (
            "UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF v > null",
            "Invalid comparison with null for operator \">\"",
        ),
        (
            "BEGIN BATCH UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF v = 1; \
             DELETE FROM ks.t WHERE k = 1 AND c > null; APPLY BATCH",
            "Invalid null value in condition for column c",
        ),
        (
            "UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF l[-1] = 1",
            "Invalid negative list index -1",
        ),
    ] {
        let (statements, batch) = statements(&schema, text);
        let refused = ConditionalRequest::new(&statements, batch).expect_err(text);
        assert_eq!(refused, PlanError::invalid(error), "{text}");
    }
}

#[test]
fn the_newest_timestamp_of_what_was_read_counts_deletions_too() {
    let schema = schema();
    for (texts, newest) in [
        (&[][..], i64::MIN),
        (&[("INSERT INTO ks.t (k, c, v) VALUES (1, 2, 3)", 7)], 7),
        (&[("INSERT INTO ks.t (k, s) VALUES (1, 2)", 9)], 9),
        (&[("DELETE v FROM ks.t WHERE k = 1 AND c = 2", 5)], 5),
        (&[("DELETE l FROM ks.t WHERE k = 1 AND c = 2", 6)], 6),
        (&[("DELETE FROM ks.t WHERE k = 1 AND c = 2", 8)], 8),
        (&[("DELETE FROM ks.t WHERE k = 1 AND c > 2", 11)], 11),
        (&[("DELETE FROM ks.t WHERE k = 1", 12)], 12),
        (
            &[
                ("INSERT INTO ks.t (k, c, v) VALUES (1, 2, 3)", 20),
                ("INSERT INTO ks.t (k, s) VALUES (1, 2)", 30),
            ],
            30,
        ),
    ] {
        assert_eq!(
            current(&schema, texts).timestamp_max(table(&schema)),
            newest,
            "{texts:?}"
        );
    }
}

#[test]
fn a_request_applies_when_all_its_conditions_hold_and_deletes_only_what_it_read() {
    let schema = schema();
    let rows = current(
        &schema,
        &[
            ("INSERT INTO ks.t (k, c, v) VALUES (1, 5, 50)", 3),
            ("INSERT INTO ks.t (k, c, v) VALUES (1, 2, 20)", 3),
            ("INSERT INTO ks.t (k, s) VALUES (1, 1)", 3),
        ],
    );
    for (text, applies) in [
        ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF v = 20 AND s = 1", true),
        ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2 IF v = 20 AND s = 2", false),
        ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 3 IF v = null", true),
        ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 3 IF EXISTS", false),
        ("INSERT INTO ks.t (k, c) VALUES (1, 5) IF NOT EXISTS", false),
        ("INSERT INTO ks.t (k, c) VALUES (1, 4) IF NOT EXISTS", true),
    ] {
        let (statements, batch) = statements(&schema, text);
        let request = ConditionalRequest::new(&statements, batch).expect(text);
        assert_eq!(request.applies(&rows), applies, "{text}");
    }
    let text = "BEGIN BATCH DELETE FROM ks.t WHERE k = 1; UPDATE ks.t SET v = 9 WHERE k = 1 AND c = 2 IF v = 20; \
                APPLY BATCH";
    let (statements, batch) = statements(&schema, text);
    let request = ConditionalRequest::new(&statements, batch).expect(text);
    let timestamp = rows.timestamp_max(table(&schema)) + 1;
    let bytes = request.mutation(&statements, &rows, timestamp, &WriteClock::default());
    let bytes = bytes.expect("it can be packed").expect("it changes something");
    let mut items = Mutation::new(&bytes).expect("it was packed just now").items();
    let Some(MutationItem::Partition(tombstone)) = items.next() else {
        panic!("the partition is deleted first");
    };
    assert!(tombstone.covers(3), "the deletion leaves what was read");
    assert!(
        !tombstone.covers(timestamp),
        "the deletion hides what the same batch writes"
    );
    assert!(matches!(items.next(), Some(MutationItem::Row { .. })) && items.next().is_none());
}

#[test]
fn a_condition_on_static_columns_shows_the_row_when_a_statement_beside_it_changes_rows() {
    let schema = schema();
    let rows = current(&schema, &[("INSERT INTO ks.t (k, c, v) VALUES (1, 5, 50)", 3)]);
    for (beside, value) in [
        ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 2", Some(&[0, 0, 0, 50][..])),
        ("INSERT INTO ks.t (k, s) VALUES (1, 1)", None),
    ] {
        let text = format!("BEGIN BATCH UPDATE ks.t SET s = 3 WHERE k = 1 IF EXISTS; {beside}; APPLY BATCH");
        let (statements, batch) = statements(&schema, &text);
        let request = ConditionalRequest::new(&statements, batch).expect(&text);
        let answer = request.answer(request.applies(&rows), &rows);
        let v = table(&schema).columns.iter().position(|c| c.name == "v");
        let at = answer
            .shown
            .iter()
            .position(|shown| Some(*shown) == v)
            .expect("every column is shown");
        let shown: Vec<_> = answer.rows.iter().map(|row| row[at].as_deref()).collect();
        assert_eq!((answer.applied, shown), (false, vec![value]), "{text}");
    }
}
