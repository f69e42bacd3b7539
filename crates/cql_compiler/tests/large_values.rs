//! Every operator that takes values of a client's size, with so many on both sides that one which compares each with
//! each takes many minutes, and the others less than a second.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use cql_compiler::{Dialect, compile_with};
use mutation::{ClusteringSlice, Mutation, MutationItem, PartitionBlock};
use plan::write::{BoundWrite, ConditionalRequest, CurrentRows, ListContents, WriteClock, collect_lists};
use plan::{BindContext, Bound, BoundValues, Execution, OwnedBound, Plan, Row, ValueRows, WritePlan};
use schema::{Schema, Table};
use types::Token;

use crate::common::{schema_of, select};

/// How many values there are on each side.
const MANY: i32 = 100_000;
/// How often a statement may name an element in its text.
const MANY_IN_TEXT: i32 = 20_000;
/// All operators together need a hundredth of it; one that compares each value with each needs more.
const PATIENCE: Duration = Duration::from_secs(240);
const NOW_US: i64 = 1_000_000_000;
const KEY: [u8; 4] = 1_i32.to_be_bytes();

fn schema() -> Schema {
    schema_of(&[
        "CREATE TABLE ks.t (k int, c decimal, d int, v int, s set<int>, m map<int, int>, l list<int>, \
         f frozen<list<int>>, sl list<int> static, PRIMARY KEY (k, c, d))",
    ])
}

fn int(number: i32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A decimal without digits after the point.
fn decimal(number: i32) -> Vec<u8> {
    [int(0), int(number)].concat()
}

/// A list, a set or a map of these values.
fn collection(values: impl ExactSizeIterator<Item = Vec<u8>>, per_element: usize) -> Vec<u8> {
    let count = i32::try_from(values.len() / per_element).expect("a small number");
    let mut out = int(count);
    for value in values {
        out.extend(int(i32::try_from(value.len()).expect("a small number")));
        out.extend(value);
    }
    out
}

fn ints() -> Vec<u8> {
    collection((0..MANY).map(int), 1)
}

fn pairs() -> Vec<u8> {
    collection((0..2 * MANY).map(|n| int(n / 2)), 2)
}

fn decimals() -> Vec<u8> {
    collection((0..MANY).map(decimal), 1)
}

/// Tuples of a decimal and an int.
fn tuples() -> Vec<u8> {
    let tuple = |n: i32| [int(8), decimal(n), int(4), int(0)].concat();
    collection((0..MANY).map(tuple), 1)
}

fn ctx<'v>(values: &'v [Bound<'v>]) -> BindContext<'v> {
    BindContext {
        values: BoundValues::Lent(values),
        now_us: NOW_US,
        now_in_seconds: None,
        random: 0,
    }
}

fn writes(schema: &Schema, text: &str) -> Vec<Arc<WritePlan>> {
    let what = &text[..text.len().min(100)];
    let compiled = compile_with(text, schema, None, Dialect::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    match compiled.statement.plan() {
        Some(Plan::Write(write)) => vec![write.clone()],
        Some(Plan::Batch(batch)) => batch.writes.to_vec(),
        _ => panic!("{what} is a write"),
    }
}

/// The mutation that a statement makes of the partition.
fn packed(plan: &WritePlan, values: &[Vec<u8>], lists: Option<&ListContents>) -> Vec<u8> {
    let values: Vec<Bound<'_>> = values.iter().map(|v| Bound::Value(v)).collect();
    let mut bytes = Vec::new();
    let made = plan.pack(&KEY, 1, &ctx(&values), &WriteClock::default(), lists, &mut bytes);
    assert_eq!(made, Ok(true));
    bytes
}

fn block_of(mutation: &[u8]) -> PartitionBlock {
    let mut block = PartitionBlock::new(Token(0), &KEY);
    for item in Mutation::new(mutation).expect("it was packed just now").items() {
        match item {
            MutationItem::Partition(tombstone) => block.tombstone = tombstone,
            MutationItem::StaticRow(row) => block.set_static_row(row),
            MutationItem::Row { clustering, row } => block.push_row(clustering, row),
            MutationItem::Range(range) => block.range_tombstones.push(range),
        }
    }
    block
}

fn lists_of(table: &Table, plan: &WritePlan, block: &PartitionBlock) -> ListContents {
    let (mut lists, ids) = (ListContents::new(), plan.columns_read().collect::<Vec<_>>());
    collect_lists(table, &ids, block, &KEY, 1000, &mut lists);
    lists
}

/// Runs what should take less than a second, and fails if it takes minutes.
fn ends(test: impl FnOnce() + Send + 'static) {
    let (ended, wait) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        test();
        let _ = ended.send(());
    });
    let thread = thread.expect("there is a thread");
    match wait.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("an operator compares each value with each"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {}
    }
    thread.join().expect("nothing went wrong");
}

const ROW: &str = "WHERE k = 1 AND c = 1 AND d = 0";

#[test]
fn changes_of_collections() {
    ends(|| {
        let schema = schema();
        let table = &schema.keyspaces["ks"].tables["t"];
        let insert = writes(&schema, "INSERT INTO ks.t (k, c, d, l) VALUES (1, 1, 0, ?)");
        let stored = block_of(&packed(&insert[0], &[ints()], None));
        for (set, value) in [
            ("l = l - ?", ints()),
            ("l = l + ?", ints()),
            ("l = ? + l", ints()),
            ("l = ?", ints()),
            ("s = s + ?", ints()),
            ("s = s - ?", ints()),
            ("s = ?", collection((0..MANY).rev().map(int), 1)),
            ("m = m + ?", pairs()),
            ("m = m - ?", ints()),
            ("m = ?", pairs()),
        ] {
            let plan = writes(&schema, &format!("UPDATE ks.t SET {set} {ROW}"));
            let lists = lists_of(table, &plan[0], &stored);
            let mutation = packed(&plan[0], &[value], Some(&lists));
            assert!(
                mutation.len() > 4 * MANY as usize,
                "{set} writes {} bytes",
                mutation.len()
            );
        }
        let repeated = |one: &str| vec![one; MANY_IN_TEXT as usize].join(", ");
        for text in [
            format!("UPDATE ks.t SET {} {ROW}", repeated("l[99999] = 1")),
            format!("UPDATE ks.t SET {} {ROW}", repeated("m[1] = 1")),
            format!("UPDATE ks.t SET {} {ROW}", repeated("l = l - [7]")),
            format!("UPDATE ks.t SET {} {ROW}", repeated("l = [7] + l")),
            format!("DELETE {} FROM ks.t {ROW}", repeated("l[0]")),
            format!("DELETE {} FROM ks.t {ROW}", repeated("m[0]")),
        ] {
            let plan = writes(&schema, &text);
            packed(&plan[0], &[], Some(&lists_of(table, &plan[0], &stored)));
        }
        let json = (0..MANY).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let json = format!(r#"{{"k": 1, "c": 1, "d": 0, "l": [{json}], "s": [{json}]}}"#);
        let insert = writes(&schema, "INSERT INTO ks.t JSON ?");
        let run = Execution {
            values: vec![OwnedBound::Value(json.into_bytes())],
            now_us: NOW_US,
            now_in_seconds: None,
            random: 0,
        };
        let read = insert[0].read_json(&run).expect("it is JSON");
        read.with(|ctx| insert[0].pack(&KEY, 1, ctx, &WriteClock::default(), None, &mut Vec::new()))
            .expect("it is packed");
    });
}

#[test]
fn rows_and_partitions_by_in() {
    ends(|| {
        let schema = schema();
        let table = &schema.keyspaces["ks"].tables["t"];
        // Each row has a list, and is named in another way than it is stored.
        let rows = |text: &str| {
            writes(
                &schema,
                &format!("UPDATE ks.t SET {text} WHERE k = 1 AND c IN ? AND d = 0"),
            )
        };
        let stored = block_of(&packed(&rows("l = [7]")[0], &[decimals()], None));
        assert_eq!(stored.len(), MANY as usize);
        let plan = rows("l = l - [7]");
        let lists = lists_of(table, &plan[0], &stored);
        let spelled = |n: i32| [int(1), int(10 * n)].concat();
        let spelled = collection((0..MANY).map(spelled), 1);
        let named = packed(&plan[0], &[spelled], Some(&lists));
        let unnamed = packed(&plan[0], &[collection((MANY..2 * MANY).map(decimal), 1)], Some(&lists));
        assert!(
            named.len() > unnamed.len() + 16 * MANY as usize,
            "each list loses its element"
        );

        for (text, value) in [
            ("SELECT v FROM ks.t WHERE k = 1 AND c IN ?", decimals()),
            ("SELECT v FROM ks.t WHERE k = 1 AND (c, d) IN ?", tuples()),
        ] {
            let plan = select(&schema, text, Dialect::default());
            let values = [Bound::Value(&value)];
            let slices = plan
                .restrictions
                .clustering
                .slices(&plan.table, &ctx(&values))
                .expect(text);
            assert_eq!(slices.len(), MANY as usize, "{text}");
            let order = &table.clustering_order;
            let inside =
                (0..stored.len()).filter(|&at| ClusteringSlice::any_contains(&slices, order, stored.clustering(at)));
            assert_eq!(inside.count(), MANY as usize, "{text}");
        }
        let plan = select(&schema, "SELECT v FROM ks.t WHERE k IN ?", Dialect::default());
        let (value, twice) = (ints(), collection((0..2 * MANY).map(|n| int(n / 2)), 1));
        for value in [&value, &twice] {
            let values = [Bound::Value(value)];
            let partitions = plan.restrictions.partition.partitions(&plan.table, &ctx(&values));
            let Ok(plan::restrict::Partitions::Keys(keys)) = partitions else {
                panic!("{partitions:?}");
            };
            assert_eq!(keys.len(), MANY as usize);
        }
    });
}

#[test]
fn filters() {
    ends(|| {
        let schema = schema();
        let table = &schema.keyspaces["ks"].tables["t"];
        let at = |name: &str| table.position(name).expect("the table has it");
        let (many, backwards) = (ints(), collection((0..MANY).rev().map(int), 1));
        for text in ["v IN ?", "v NOT IN ?"] {
            let plan = select(
                &schema,
                &format!("SELECT v FROM ks.t WHERE {text} ALLOW FILTERING"),
                Dialect::default(),
            );
            let values = [Bound::Value(&backwards)];
            let (filter, ctx) = (&plan.restrictions.filters[0], ctx(&values));
            let alternatives = filter.alternatives(&ctx).expect(text);
            let mut row = Row::new(table);
            let passing = (0..2 * MANY).filter(|&n| {
                row.clear();
                row.set(at("v"), &int(n));
                filter.passes(&row, &ctx, &alternatives).expect(text)
            });
            assert_eq!(passing.count(), MANY as usize, "{text}");
        }
        let mut row = Row::new(table);
        for (column, value) in [("l", &many), ("s", &many), ("f", &many), ("m", &pairs())] {
            row.set(at(column), value);
        }
        let contains = vec!["l CONTAINS 7"; MANY_IN_TEXT as usize].join(" AND ");
        for (text, value) in [
            ("l CONTAINS ?", int(MANY - 1)),
            ("s CONTAINS ?", int(MANY - 1)),
            ("m CONTAINS ?", int(MANY - 1)),
            ("m CONTAINS KEY ?", int(MANY - 1)),
            ("f = ?", many.clone()),
            (&contains, Vec::new()),
        ] {
            let text = format!("SELECT v FROM ks.t WHERE {text} ALLOW FILTERING");
            let plan = select(&schema, &text, Dialect::default());
            let values = [Bound::Value(&value)];
            for filter in &plan.restrictions.filters {
                let alternatives = filter.alternatives(&ctx(&values)).expect("there are none");
                assert_eq!(filter.passes(&row, &ctx(&values), &alternatives), Ok(true));
            }
        }
        for text in [
            "SELECT JSON l, s, m FROM ks.t",
            "SELECT collection_count(l), collection_max(s), collection_sum(l), map_keys(m), to_json(m) FROM ks.t",
            "SELECT m[99999], s, l FROM ks.t",
        ] {
            let plan = select(&schema, text, Dialect::default());
            let mut out = ValueRows::default();
            plan.selection.write_row(&row, &ctx(&[]), &mut out).expect(text);
        }
    });
}

#[test]
fn conditions() {
    ends(|| {
        let schema = schema();
        let insert = writes(&schema, "INSERT INTO ks.t (k, c, d, v, l) VALUES (1, 1, 0, 0, ?)");
        let stored = block_of(&packed(&insert[0], &[ints()], None));
        let current = |block: PartitionBlock| CurrentRows::new(vec![block], Vec::new(), 1000);
        let run = |values: &[Vec<u8>]| Execution {
            values: values.iter().cloned().map(OwnedBound::Value).collect(),
            now_us: NOW_US,
            now_in_seconds: None,
            random: 0,
        };
        let one = current(stored);
        for (condition, value, applies) in [
            ("v IN ?", ints(), true),
            ("v NOT IN ?", ints(), false),
            ("l CONTAINS ?", int(MANY - 1), true),
            ("l = ?", ints(), true),
            ("l[99999] = ?", int(MANY - 1), true),
        ] {
            let plan = writes(&schema, &format!("UPDATE ks.t SET v = 1 {ROW} IF {condition}"));
            let statements = [BoundWrite {
                plan: plan[0].clone(),
                run: run(&[value]),
            }];
            let request = ConditionalRequest::new(&statements, false).expect(condition);
            assert_eq!(request.applies(&one), applies, "{condition}");
        }
        // A batch of as many statements as the protocol allows, each on a row of its own, in no order.
        let of_each_row = |text: &str| -> Vec<BoundWrite> {
            let plan = writes(&schema, text);
            let of = |n: i32| BoundWrite {
                plan: plan[0].clone(),
                run: run(&[decimal(n * 7919 % MANY)]),
            };
            (0..i32::from(u16::MAX)).map(of).collect()
        };
        let rows = writes(
            &schema,
            "UPDATE ks.t SET v = 0, l = [7] WHERE k = 1 AND c IN ? AND d = 0",
        );
        let all = current(block_of(&packed(&rows[0], &[decimals()], None)));
        let statements = of_each_row("UPDATE ks.t SET l[0] = 8 WHERE k = 1 AND c = ? AND d = 0 IF v = 0");
        let request = ConditionalRequest::new(&statements, true).expect("it is one request");
        assert!(request.applies(&all));
        let made = request.mutation(&statements, &all, 2, &WriteClock::default());
        assert!(made.expect("it is made").is_some());
        // As a read returns rows that were asked for by name: each in a block of its own, here with a range tombstone
        // of another row.
        let row = writes(&schema, "UPDATE ks.t SET v = 0 WHERE k = 1 AND c = ? AND d = 0");
        let deletion = writes(&schema, "DELETE FROM ks.t WHERE k = 1 AND c > ? AND c < ?");
        let beside = block_of(&packed(&deletion[0], &[decimal(-2), decimal(-1)], None));
        let blocks = (0..MANY).map(|n| {
            let mut block = block_of(&packed(&row[0], &[decimal(n)], None));
            block.range_tombstones.clone_from(&beside.range_tombstones);
            block
        });
        let each = CurrentRows::new(blocks.collect(), Vec::new(), 1000);
        let statements = of_each_row("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = ? AND d = 0 IF v = 5");
        let request = ConditionalRequest::new(&statements, true).expect("it is one request");
        assert!(!request.applies(&each));
        assert_eq!(request.answer(false, &each).rows.len(), usize::from(u16::MAX));
    });
}
