//! A front end that is not CQL: definitions and plans are built by hand, and rows come as values.
//!
//! A node of two shards, so that plans and sinks travel. It begins without a keyspace; the front end creates its table
//! by [`Engine::change_schema`]. Nothing here parses a text or reads a frame.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use coordinator::Coordinator;
use ddl::{
    AlterTable, ChangeKind, CreateKeyspace, CreateTable, Definition, DropTable, KeyspaceTablets, NameInKeyspace,
    NewColumn, SchemaChange, TableChange, TableOption,
};
use plan::function::{Aggregate, ArithmeticOperator, Operation};
use plan::restrict::{
    Choice, ClusteringBound, ClusteringRestriction, Comparison, Filter, FilterTest, PartitionRestriction, Restrictions,
};
use plan::selection::{AggregateCall, Expression, Item};
use plan::write::{
    Assignment, Change, ColumnCondition, ConditionTest, ConditionalAnswer, Conditions, ModificationKind, Part, Target,
};
use plan::{
    BatchKind, BatchPlan, BindContext, Bound, BoundValues, Execution, InOperand, Operand, OwnedBound, Plan, PlanError,
    ResultColumn, Select, SelectPlan, Selection, ValueRows, Write, WritePlan,
};
use query::engine::{DefinitionSource, KeepError, NodeState, SchemaKeeper, SharedStatements};
use query::{Engine, Outcome, Page, PointOutcome, Request};
use replica::{Shard, TableFiles};
use runtime::ShardId;
use schema::{Column, ColumnKind, Schema, Table, TableId, TableOptions};
use system_tables::Builder;
use test_node::{Machines, Process};
use topology::{Consistency, HostId};
use types::CqlType;
use uuid::Uuid;

use crate::support;

const SHARDS: u32 = 2;

/// Positions in `columns` of the one table: `device`, `minute`, `name`, `value`.
const DEVICE: usize = 0;
const MINUTE: usize = 1;
const NAME: usize = 2;
const VALUE: usize = 3;

fn table() -> Arc<Table> {
    let columns = vec![
        Column::new("device", CqlType::Int, ColumnKind::PartitionKey),
        Column::new("minute", CqlType::Int, ColumnKind::Clustering),
        Column::new("name", CqlType::Text, ColumnKind::Regular),
        Column::new("value", CqlType::Int, ColumnKind::Regular),
    ];
    let options = TableOptions::default();
    Arc::new(Table::new(
        "ks",
        "samples",
        TableId(Uuid::from_u128(1)),
        columns,
        options,
    ))
}

/// Gives every change of the schema to all shards, and keeps nothing on disk.
#[derive(Default)]
struct Keeper {
    /// How many changes from now on find that another one came first.
    conflicts: Cell<u32>,
}

impl SchemaKeeper for Keeper {
    fn change(
        &self,
        base: Uuid,
        next: Arc<Schema>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<String>, KeepError>> + '_>> {
        Box::pin(async move {
            let is_late = self.conflicts.get() > 0;
            self.conflicts.set(self.conflicts.get().saturating_sub(1));
            if is_late || Engine::local().schema().version != base {
                return Err(KeepError::Conflict);
            }
            for shard in 0..SHARDS {
                let next = next.clone();
                runtime::submit_async_to(ShardId(shard), move || async move { take_schema(next) }).await;
            }
            Ok(Vec::new())
        })
    }

    fn truncate(
        &self,
        _table: TableId,
        _replicas: Vec<HostId>,
        _timeout: Option<Duration>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + '_>> {
        Box::pin(async { Err("this front end truncates nothing".to_owned()) })
    }
}

/// Opens the tables that are new on this shard, and routes and plans by the schema from here on.
fn take_schema(next: Arc<Schema>) {
    let shard = runtime::local::<Shard>().expect("the shard was opened");
    for table in next.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
        if shard.store(table.id).is_none() {
            for table in [table, &coordinator::paxos_state_of(table)] {
                shard.open_table(table, &[shard.token_range()], &TableFiles::default());
            }
        }
    }
    Coordinator::local().take_view(Arc::new(support::view(&next)));
    Engine::local().take_schema(next);
}

fn name_of_table() -> NameInKeyspace {
    NameInKeyspace {
        keyspace: "ks".to_owned(),
        name: "samples".to_owned(),
    }
}

fn create_keyspace() -> Definition {
    Definition::CreateKeyspace(CreateKeyspace {
        name: "ks".to_owned(),
        if_not_exists: false,
        replication: [("class", "SimpleStrategy"), ("replication_factor", "1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        durable_writes: None,
        tablets: Some(KeyspaceTablets {
            enabled: Some(false),
            initial: None,
        }),
    })
}

fn create_table(if_not_exists: bool) -> Definition {
    Definition::CreateTable(CreateTable {
        table: name_of_table(),
        if_not_exists,
        id: Some(TableId(Uuid::from_u128(1))),
        columns: vec![
            NewColumn::new("device", CqlType::Int, ColumnKind::PartitionKey),
            NewColumn::new("minute", CqlType::Int, ColumnKind::Clustering),
            NewColumn::new("name", CqlType::Text, ColumnKind::Regular),
            NewColumn::new("value", CqlType::Int, ColumnKind::Regular),
        ],
        ttl_column: None,
        is_compact: false,
        options: Vec::new(),
    })
}

/// Alters the table.
fn alter(change: TableChange) -> Definition {
    Definition::AlterTable(AlterTable {
        table: name_of_table(),
        if_exists: false,
        change,
    })
}

/// Changes the schema; returns what clients are notified of, or the refusal.
async fn change(engine: &Rc<Engine>, definition: Definition) -> Result<Option<SchemaChange>, String> {
    let source: DefinitionSource = Box::new(move |_| Ok(Some(definition.clone())));
    let changed = engine.change_schema(source).await;
    changed
        .map(|changed| changed.map(|(change, _)| change))
        .map_err(|e| e.message())
}

/// The engine of a shard of the node.
fn engine(process: &Process) -> Rc<Engine> {
    let schema = Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    };
    let node = NodeState {
        system_tables: Arc::new(Builder::new().build()),
        described: Box::new(|| panic!("nobody asks to describe the cluster")),
        statements: SharedStatements::default(),
    };
    support::engine_on(&process.open(runtime::shard()), node, schema)
}

/// Runs a front end on shard 0 of a node whose shards are all open.
fn with_node<F: Future<Output = ()> + 'static>(front_end: impl FnOnce(Rc<Engine>) -> F + 'static) {
    let mut machines = Machines::new(1);
    machines.add(SHARDS);
    let prepare = || Process::start(support::options(SHARDS), Vec::new());
    machines.start(0, prepare, |process| async move { engine(&process) });
    machines.await_start(0);
    machines.on(0, move |engine| async move {
        engine.set_keeper(Rc::new(Keeper::default()));
        for definition in [create_keyspace(), create_table(false)] {
            let created = change(&engine, definition).await.expect("the definition fits");
            assert!(created.is_some(), "the object was not there");
        }
        front_end(engine).await;
    });
}

fn int(value: i32) -> Operand {
    Operand::Constant(value.to_be_bytes().into())
}

fn marker(index: usize, cql_type: CqlType) -> Operand {
    Operand::Marker { index, cql_type }
}

fn run(values: &[&[u8]]) -> Execution {
    Execution {
        values: values.iter().map(|v| OwnedBound::Value(v.to_vec())).collect(),
        now_us: runtime::wall_clock_us(),
        now_in_seconds: None,
        random: 3,
    }
}

/// All partitions, or one.
fn rows_of(device: Option<i32>) -> Restrictions {
    Restrictions {
        partition: device.map_or(PartitionRestriction::All, |d| PartitionRestriction::Key(vec![int(d)])),
        clustering: ClusteringRestriction::default(),
        filters: Vec::new(),
        indexed: Vec::new(),
    }
}

/// One row.
fn row_of(device: i32, minute: i32) -> Restrictions {
    let prefix = vec![Choice::One(int(minute))];
    let clustering = ClusteringRestriction::new(&table(), prefix, None, None);
    Restrictions {
        clustering: clustering.expect("the table has a clustering column"),
        ..rows_of(Some(device))
    }
}

fn plan_of(select: Select) -> Plan {
    Plan::Select(Arc::new(SelectPlan::new(select).expect("the read fits its table")))
}

/// Reads some columns.
fn columns_of(positions: &[usize], restrictions: Restrictions) -> Select {
    let table = table();
    let selection = Selection::plain(&table, positions).expect("the table has the columns");
    Select::new(table, selection, restrictions)
}

/// A write of one row.
fn write_of(kind: ModificationKind, row: [Operand; 2], changes: Vec<(usize, Operand)>) -> Write {
    let [device, minute] = row;
    let set = |(column, operand)| Assignment {
        column,
        change: Change::Set(operand),
    };
    Write {
        table: table(),
        partition: PartitionRestriction::Key(vec![device]),
        target: Target::Row(vec![minute]),
        timestamp: None,
        ttl: None,
        timeout: None,
        kind,
        assignments: changes.into_iter().map(set).collect(),
        conditions: Conditions::None,
    }
}

fn write_plan(write: Write) -> Arc<WritePlan> {
    Arc::new(WritePlan::new(write).expect("the write fits its table"))
}

async fn execute(engine: &Rc<Engine>, plan: &Plan, run: &Execution, request: &Request) -> Outcome<ValueRows> {
    let outcome = engine.execute_plan(plan, run, request).await;
    outcome.expect("the plan is executed")
}

async fn page(engine: &Rc<Engine>, plan: &Plan, request: &Request) -> Page<ValueRows> {
    match execute(engine, plan, &run(&[]), request).await {
        Outcome::Rows(page) => page,
        other => panic!("a read gives rows: {other:?}"),
    }
}

/// The integers of rows that hold nothing else.
fn ints(page: &Page<ValueRows>) -> Vec<Vec<i32>> {
    assert_eq!(page.rows as usize, page.sink.rows.len(), "the page counts its rows");
    let int = |value: &Option<Vec<u8>>| {
        let bytes = value.as_deref().expect("a value is null");
        i32::from_be_bytes(bytes.try_into().expect("an int has four bytes"))
    };
    let rows = page.sink.rows.iter();
    rows.map(|row| row.iter().map(int).collect()).collect()
}

/// Writes 16 devices of 4 minutes, through one plan with markers: `value` is `10 * device + minute`.
async fn fill(engine: &Rc<Engine>) {
    let row = [marker(0, CqlType::Int), marker(1, CqlType::Int)];
    let changes = vec![(NAME, marker(2, CqlType::Text)), (VALUE, marker(3, CqlType::Int))];
    let plan = Plan::Write(write_plan(write_of(ModificationKind::Insert, row, changes)));
    for (device, minute) in (0..16_i32).flat_map(|d| (0..4_i32).map(move |m| (d, m))) {
        let (d, m, v) = (
            device.to_be_bytes(),
            minute.to_be_bytes(),
            (10 * device + minute).to_be_bytes(),
        );
        let outcome = execute(engine, &plan, &run(&[&d, &m, b"a name", &v]), &Request::default()).await;
        assert_eq!(outcome, Outcome::Void, "a write returns nothing");
    }
}

#[test]
fn the_schema_changes_by_values() {
    with_node(|engine| async move {
        let table_now = |engine: &Rc<Engine>| engine.schema().table("ks", "samples").cloned();
        assert_eq!(table_now(&engine), Some(table()), "the table is as the definition says");
        let notice = |change| {
            Some(SchemaChange::Table {
                change,
                keyspace: "ks".to_owned(),
                table: "samples".to_owned(),
            })
        };
        assert_eq!(change(&engine, create_table(true)).await, Ok(None), "it is there");
        let refused = change(&engine, create_table(false)).await.expect_err("it is there");
        assert_eq!(
            refused,
            "Cannot add already existing table \"samples\" to keyspace \"ks\""
        );
        let unit = NewColumn::new("unit", CqlType::Text, ColumnKind::Regular);
        let add = alter(TableChange::Add {
            if_not_exists: false,
            columns: vec![unit],
            ttl_column: None,
        });
        assert_eq!(change(&engine, add).await, Ok(notice(ChangeKind::Updated)));
        let options = vec![
            TableOption::DefaultTimeToLive(60),
            TableOption::Comment("by minute".to_owned()),
        ];
        assert_eq!(
            change(&engine, alter(TableChange::Options(options))).await,
            Ok(notice(ChangeKind::Updated))
        );
        let altered = table_now(&engine).expect("it is there");
        assert!(altered.column("unit").is_some() && altered.options.default_time_to_live == 60);
        // What a compiler would not make is refused all the same.
        for (definition, words) in [
            (
                alter(TableChange::Options(vec![TableOption::GcGraceSeconds(-1)])),
                "greater than or equal to 0",
            ),
            (
                alter(TableChange::Add {
                    if_not_exists: false,
                    columns: vec![NewColumn::new(
                        "c",
                        CqlType::List(Arc::new(CqlType::Counter)),
                        ColumnKind::Regular,
                    )],
                    ttl_column: None,
                }),
                "No value has the type list<counter>",
            ),
            (
                alter(TableChange::Add {
                    if_not_exists: false,
                    columns: vec![NewColumn::new("c", CqlType::Int, ColumnKind::Clustering)],
                    ttl_column: None,
                }),
                "cannot be added to the PRIMARY KEY",
            ),
        ] {
            let refused = change(&engine, definition).await.expect_err(words);
            assert!(refused.contains(words), "{refused}");
        }
        let dropped = DropTable {
            table: name_of_table(),
            if_exists: false,
        };
        assert_eq!(
            change(&engine, Definition::DropTable(dropped)).await,
            Ok(notice(ChangeKind::Dropped))
        );
        assert_eq!(table_now(&engine), None);
    });
}

#[test]
fn a_definition_is_made_again_when_another_change_came_first() {
    with_node(|engine| async move {
        let keeper = Keeper::default();
        keeper.conflicts.set(2);
        engine.set_keeper(Rc::new(keeper));
        let made = Arc::new(AtomicU32::new(0));
        let counted = made.clone();
        let source: DefinitionSource = Box::new(move |schema| {
            counted.fetch_add(1, Ordering::AcqRel);
            assert!(
                schema.table("ks", "samples").is_some(),
                "it is given the schema as it is"
            );
            Ok(Some(alter(TableChange::Options(vec![TableOption::Comment(
                "c".to_owned(),
            )]))))
        });
        let changed = engine
            .change_schema(source)
            .await
            .expect("the third change is the first one");
        assert!(changed.is_some());
        assert_eq!(made.load(Ordering::Acquire), 3);
    });
}

#[test]
fn rows_are_written_and_read_by_plans_that_were_built_by_hand() {
    with_node(|engine| async move {
        fill(&engine).await;
        let owners: Vec<u32> = (0..16_i32)
            .map(|d| {
                engine
                    .coordinator
                    .own
                    .owner(table().id, types::token::token_of(&d.to_be_bytes()))
            })
            .collect();
        assert!(
            owners.contains(&0) && owners.contains(&1),
            "the rows are on both shards"
        );
        for device in 0..16 {
            let plan = plan_of(columns_of(&[NAME, VALUE, MINUTE], row_of(device, 2)));
            let page = page(&engine, &plan, &Request::default()).await;
            let value = (10 * device + 2).to_be_bytes().to_vec();
            let row = vec![
                Some(b"a name".to_vec()),
                Some(value),
                Some(2_i32.to_be_bytes().to_vec()),
            ];
            assert_eq!(page.sink.rows, [row], "the row of device {device}");
        }
        // One call reads a row if this shard has it.
        let Plan::Select(point) = plan_of(columns_of(&[VALUE], row_of(5, 1))) else {
            panic!("it was built as a read");
        };
        let (mut rows, run) = (ValueRows::default(), run(&[]));
        let outcome = run.with(|ctx| engine.read_now(&point, ctx, Consistency::One, &mut rows));
        match (outcome, owners[5]) {
            (Ok(PointOutcome::Rows(1)), 0) => assert_eq!(rows.rows, [[Some(51_i32.to_be_bytes().to_vec())]]),
            (Ok(PointOutcome::OtherShard(1)), 1) => assert!(rows.rows.is_empty()),
            (other, owner) => panic!("shard {owner} has the row, and one call found {other:?}"),
        }
        // A batch of a deletion and an update is there wholly.
        let update = write_of(ModificationKind::Update, [int(1), int(1)], vec![(VALUE, int(-1))]);
        let delete = Write {
            target: Target::Partition,
            assignments: Vec::new(),
            ..write_of(ModificationKind::Delete, [int(2), int(0)], Vec::new())
        };
        let batch = Plan::Batch(Arc::new(BatchPlan {
            kind: BatchKind::Logged,
            timestamp: None,
            timeout: None,
            writes: vec![write_plan(update), write_plan(delete)].into(),
        }));
        assert_eq!(
            execute(&engine, &batch, &run, &Request::default()).await,
            Outcome::Batch(Vec::new())
        );
        let both = PartitionRestriction::Keys(vec![InOperand::Terms {
            receiver: "device".to_owned(),
            operands: vec![int(2), int(1)].into(),
        }]);
        let restrictions = Restrictions {
            partition: both,
            ..rows_of(None)
        };
        let read = plan_of(columns_of(&[DEVICE, VALUE], restrictions));
        let left = page(&engine, &read, &Request::default()).await;
        assert_eq!(ints(&left), [[1, 10], [1, -1], [1, 12], [1, 13]]);
    });
}

#[test]
fn conditional_writes_are_decided_by_the_rows_that_are_there() {
    with_node(|engine| async move {
        let request = Request::default();
        let decide = async |write: Write| -> ConditionalAnswer {
            let plan = Plan::Write(write_plan(write));
            match execute(&engine, &plan, &run(&[]), &request).await {
                Outcome::Conditional(answer) => answer,
                other => panic!("a conditional write says whether it was applied: {other:?}"),
            }
        };
        // Keys of both shards.
        for device in 0..8 {
            let insert = |value| Write {
                conditions: Conditions::NotExists,
                ..write_of(
                    ModificationKind::Insert,
                    [int(device), int(0)],
                    vec![(VALUE, int(value))],
                )
            };
            assert!(decide(insert(1)).await.applied, "the row was not there");
            let refused = decide(insert(2)).await;
            assert!(!refused.applied, "the row is there");
            let shown = refused.shown.iter().position(|column| *column == VALUE);
            let current = &refused.rows[0][shown.expect("an insertion that is refused shows every column")];
            assert_eq!(current.as_deref(), Some(&1_i32.to_be_bytes()[..]));
            let update = |from, to| {
                let test = ConditionTest::Compare(Comparison::Equal, int(from));
                let condition = ColumnCondition::new(&table(), VALUE, Part::Whole, test);
                Write {
                    conditions: Conditions::Columns(vec![Arc::new(condition.expect("the column has the test"))]),
                    ..write_of(ModificationKind::Update, [int(device), int(0)], vec![(VALUE, int(to))])
                }
            };
            assert!(!decide(update(2, 3)).await.applied, "the value is 1");
            assert!(decide(update(1, 3)).await.applied, "the value is 1");
            let read = plan_of(columns_of(&[VALUE], row_of(device, 0)));
            let serial = Request {
                level: Consistency::Serial,
                is_serial: true,
                ..Request::default()
            };
            assert_eq!(ints(&page(&engine, &read, &serial).await), [[3]]);
        }
    });
}

#[test]
fn a_range_is_read_in_pages_and_filtered() {
    with_node(|engine| async move {
        fill(&engine).await;
        // minute >= 1 and minute < 3 of every device, where value > 50.
        let bound = |minute, inclusive| {
            Some(ClusteringBound {
                values: vec![int(minute)],
                tuple: None,
                inclusive,
            })
        };
        let clustering = ClusteringRestriction::new(&table(), Vec::new(), bound(1, true), bound(3, false));
        let test = FilterTest::Compare(Comparison::Greater, int(50));
        let restrictions = Restrictions {
            clustering: clustering.expect("the table has a clustering column"),
            filters: vec![Filter::new(&table(), VALUE, test).expect("the column has the test")],
            indexed: Vec::new(),
            ..rows_of(None)
        };
        let plan = plan_of(columns_of(&[DEVICE, MINUTE, VALUE], restrictions));
        let (mut found, mut pages, mut paging_state) = (Vec::new(), 0, None);
        loop {
            let request = Request {
                page_rows: Some(7),
                paging_state,
                ..Request::default()
            };
            let page = page(&engine, &plan, &request).await;
            assert!(page.rows <= 7, "a page of {} rows", page.rows);
            found.extend(ints(&page));
            pages += 1;
            paging_state = page.paging_state;
            if paging_state.is_none() {
                break;
            }
        }
        found.sort_unstable();
        let expected = (5..16).flat_map(|d| (1..3).map(move |m| vec![d, m, 10 * d + m]));
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(pages, 4, "22 rows are three full pages and one row more");
    });
}

#[test]
fn a_whole_table_is_aggregated() {
    with_node(|engine| async move {
        fill(&engine).await;
        // count(*), sum(value), max(value * 2) + 1
        let resolve = |operator| {
            let argument = Typed(CqlType::Int);
            let found = plan::function::resolve_arithmetic(operator, [&argument, &argument], Some(&CqlType::Int));
            found
                .and_then(|f| f.into_operation(0))
                .expect("integers are added and multiplied")
        };
        let apply = |operation: Operation, left, right| Expression::Apply {
            operation,
            arguments: vec![left, Expression::Term(int(right))],
        };
        let item = |name: &str, cql_type: CqlType, expression| Item {
            column: ResultColumn {
                name: name.to_owned(),
                cql_type,
            },
            expression,
        };
        let twice = apply(resolve(ArithmeticOperator::Multiply), Expression::Column(VALUE), 2);
        let call = |aggregate, argument| AggregateCall { aggregate, argument };
        let aggregates = vec![
            call(Aggregate::CountRows, None),
            call(Aggregate::Sum(CqlType::Int), Some(Expression::Column(VALUE))),
            call(Aggregate::Max(CqlType::Int), Some(twice)),
        ];
        let more = apply(resolve(ArithmeticOperator::Add), Expression::Aggregate(2), 1);
        let items = vec![
            item("rows", CqlType::BigInt, Expression::Aggregate(0)),
            item("sum", CqlType::Int, Expression::Aggregate(1)),
            item("more", CqlType::Int, more),
        ];
        let selection = Selection::new(&table(), items, aggregates, false).expect("it fits the table");
        let plan = plan_of(Select::new(table(), selection, rows_of(None)));
        let page = page(&engine, &plan, &Request::default()).await;
        let sum: i32 = (0..16).flat_map(|d| (0..4).map(move |m| 10 * d + m)).sum();
        let row = [
            64_i64.to_be_bytes().to_vec(),
            sum.to_be_bytes().to_vec(),
            (2 * 153 + 1_i32).to_be_bytes().to_vec(),
        ];
        assert_eq!(page.sink.rows, [row.map(Some)]);
        let parts = engine.coordinator.context.metrics().aggregate_parts;
        assert!(parts > 0, "each shard aggregates its own rows");
    });
}

/// A value of that type, as an argument of a function.
struct Typed(CqlType);

impl plan::function::Argument for Typed {
    fn test(&self, receiver: &CqlType) -> plan::function::Assignment {
        plan::function::test_type(&self.0, receiver)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }

    fn has_marker(&self) -> bool {
        false
    }

    fn known_type(&self) -> Option<CqlType> {
        Some(self.0.clone())
    }
}

#[test]
fn a_plan_that_does_not_fit_its_table_is_not_made() {
    let refused = |made: Result<(), PlanError>, what: &str| assert!(made.is_err(), "{what} is taken");
    let table = table();
    let no_column = table.columns.len();
    refused(
        Selection::plain(&table, &[no_column]).map(drop),
        "a column that is not there",
    );
    let wrong_key = Restrictions {
        partition: PartitionRestriction::Key(vec![int(1), int(2)]),
        ..rows_of(None)
    };
    let select = SelectPlan::new(columns_of(&[VALUE], wrong_key));
    refused(select.map(drop), "a partition key of two values");
    let mut select = columns_of(&[VALUE], rows_of(None));
    select.group_by = vec![no_column];
    refused(
        SelectPlan::new(select).map(drop),
        "a group by a column that is not there",
    );
    let two = vec![Choice::One(int(1)), Choice::One(int(2))];
    let clustering = ClusteringRestriction::new(&table, two, None, None);
    refused(clustering.map(drop), "a clustering key of two values");
    let test = FilterTest::ContainsKey(int(1));
    refused(Filter::new(&table, VALUE, test).map(drop), "a key in a number");
    let test = ConditionTest::Compare(Comparison::Equal, int(1));
    let condition = ColumnCondition::new(&table, DEVICE, Part::Whole, test);
    refused(condition.map(drop), "a condition on the key");
    let write = |change: (usize, Operand)| write_of(ModificationKind::Update, [int(1), int(2)], vec![change]);
    refused(WritePlan::new(write((DEVICE, int(1)))).map(drop), "a change of the key");
    let missing = Write {
        target: Target::Row(Vec::new()),
        ..write((VALUE, int(1)))
    };
    refused(WritePlan::new(missing).map(drop), "a row without its clustering key");
    let list = Write {
        assignments: vec![Assignment {
            column: VALUE,
            change: Change::Append(int(1)),
        }],
        ..write((VALUE, int(1)))
    };
    refused(WritePlan::new(list).map(drop), "an element of a number");
    let everywhere = Write {
        partition: PartitionRestriction::All,
        ..write((VALUE, int(1)))
    };
    refused(WritePlan::new(everywhere).map(drop), "a write of all partitions");
    // Values are checked as they are bound.
    let plan = write_plan(write((VALUE, marker(0, CqlType::Int))));
    let ctx = BindContext {
        values: BoundValues::Lent(&[Bound::Value(b"no int")]),
        now_us: 0,
        now_in_seconds: None,
        random: 0,
    };
    let packed = plan.pack(&[0, 0, 0, 1], 1, &ctx, &Default::default(), None, &mut Vec::new());
    assert!(packed.is_err(), "six bytes are no int");
}
