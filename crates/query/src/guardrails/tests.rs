use std::collections::BTreeMap;
use std::sync::Arc;

use ddl::Definition;
use plan::Plan;
use schema::Schema;

use super::*;

fn limits(warn: u64, fail: u64) -> Thresholds {
    Thresholds {
        warn: Some(warn),
        fail: Some(fail),
    }
}

#[test]
fn a_threshold_is_passed_beyond_it_and_refusal_comes_before_warning() {
    let told = |value| {
        let mut warnings = Vec::new();
        let checked = limits(5, 10).check_max(value, "tables", format_args!("There are {value} tables"), &mut warnings);
        match checked {
            Ok(()) => warnings.join("; "),
            Err(e) => format!("{warnings:?} {e}"),
        }
    };
    assert_eq!(told(5), "");
    assert_eq!(told(6), "There are 6 tables, and tables_warn_threshold is 5");
    assert_eq!(told(10), "There are 10 tables, and tables_warn_threshold is 5");
    assert_eq!(told(11), "[] There are 11 tables, and tables_fail_threshold is 10");
}

#[test]
fn timestamps_are_usual_up_to_the_first_threshold() {
    let mut guardrails = Guardrails::default();
    assert_eq!(guardrails.usual_timestamps(), (u64::MAX, u64::MAX));
    guardrails.restricts_future = true;
    assert_eq!(guardrails.usual_timestamps(), (u64::MAX, 3 * 86_400 * 1_000_000));
    guardrails.ahead_us = limits(7, 9);
    guardrails.behind_us.fail = Some(11);
    assert_eq!(guardrails.usual_timestamps(), (11, 7));
}

/// What a statement asks for, with the keyspace `ks` in use.
fn definition(schema: &Schema, statement: &str) -> Definition {
    let statement = cql::parse(statement).expect("it is CQL").statement;
    let ctx = cql_compiler::DdlContext {
        keyspace: Some("ks"),
        now_us: 1,
    };
    let definition = cql_compiler::compile_ddl(schema, &statement, &ctx);
    definition.expect("it fits").expect("it asks for something")
}

/// A schema by statements.
fn apply(schema: &Schema, statement: &str) -> Schema {
    let tables = schema.keyspaces.values().map(|ks| ks.tables.len() as u128);
    let ctx = ddl::Context {
        new_id: uuid::Uuid::from_u128(tables.sum::<u128>() + 1),
        nodes: &BTreeMap::from([("dc1".to_owned(), 3)]),
        has_functions: true,
        racks: &BTreeMap::new(),
        lists_racks: false,
    };
    let outcome = ddl::apply(schema, &definition(schema, statement), &ctx);
    outcome.expect("it fits").expect("it changes something").schema
}

/// The outcome of a change of the schema: its warnings, or the refusal.
fn change(limits: &SchemaGuardrails, base: &Schema, statement: &str) -> String {
    let told = check_definition(limits, &definition(base, statement)).and_then(|mut warnings| {
        warnings.extend(check_change(limits, base, &apply(base, statement))?);
        Ok(warnings)
    });
    told.map_or_else(|e| format!("refused: {e}"), |warnings| warnings.join("\n"))
}

fn base() -> Schema {
    let empty = Schema {
        version: uuid::Uuid::nil(),
        keyspaces: std::collections::BTreeMap::new(),
    };
    let ks = "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}";
    let table = "CREATE TABLE t (a int, b int, c int, v int, l list<int>, f frozen<list<int>>, m map<int, text>, \
                 PRIMARY KEY ((a, b), c))";
    apply(&apply(&empty, ks), table)
}

#[test]
fn replication_is_checked_where_it_is_new() {
    let limits = SchemaGuardrails {
        copies_min: limits(3, 2),
        copies_max: Thresholds {
            fail: Some(5),
            warn: None,
        },
        strategies: Lists {
            warned: vec!["SimpleStrategy".to_owned()],
            refused: Vec::new(),
        },
        ..SchemaGuardrails::default()
    };
    let base = base();
    let create = |replication: &str| {
        change(
            &limits,
            &base,
            &format!("CREATE KEYSPACE n WITH replication = {replication}"),
        )
    };
    assert_eq!(create("{'class': 'NetworkTopologyStrategy', 'dc1': 3}"), "");
    assert_eq!(
        create("{'class': 'NetworkTopologyStrategy', 'dc1': 2}"),
        "The keyspace n has the replication factor 2 in the datacenter dc1, and minimum_replication_factor_warn_threshold is 3"
    );
    assert_eq!(
        create("{'class': 'NetworkTopologyStrategy', 'dc1': 1}"),
        "refused: The keyspace n has the replication factor 1 in the datacenter dc1, and minimum_replication_factor_fail_threshold is 2"
    );
    assert_eq!(
        create("{'class': 'SimpleStrategy', 'replication_factor': 3}"),
        "The keyspace n has the replication strategy SimpleStrategy (see replication_strategy_warn_list)"
    );
    assert_eq!(
        create("{'class': 'SimpleStrategy', 'replication_factor': 6}"),
        "refused: The keyspace n has the replication factor 6, and maximum_replication_factor_fail_threshold is 5"
    );
    let table = "CREATE TABLE t2 (k int PRIMARY KEY)";
    let few = SchemaGuardrails {
        copies_min: super::Thresholds {
            fail: Some(4),
            warn: None,
        },
        ..SchemaGuardrails::default()
    };
    assert_eq!(
        change(&few, &base, table),
        "",
        "a table does not change the keyspace that is there"
    );
}

#[test]
fn tables_are_counted_and_their_options_looked_at() {
    let base = base();
    let create = "CREATE TABLE n (k int PRIMARY KEY, v int)";
    let with = |limits: SchemaGuardrails, statement: &str| change(&limits, &base, statement);
    let tables = |tables| SchemaGuardrails {
        tables,
        ..SchemaGuardrails::default()
    };
    assert_eq!(with(tables(limits(2, 2)), create), "");
    assert_eq!(
        with(tables(limits(1, 2)), create),
        "With this one there are 2 tables, and tables_warn_threshold is 1"
    );
    let columns = || SchemaGuardrails {
        columns: limits(7, 8),
        ..SchemaGuardrails::default()
    };
    assert_eq!(with(columns(), "ALTER TABLE t WITH comment = 'x'"), "");
    assert_eq!(
        with(columns(), "ALTER TABLE t ADD w int"),
        "The table ks.t has 8 columns, and columns_per_table_warn_threshold is 7"
    );
    assert!(with(columns(), "ALTER TABLE t ADD (w int, x int)").starts_with("refused: The table ks.t has 9 columns"));
    let indexes = SchemaGuardrails {
        indexes: limits(0, 1),
        ..SchemaGuardrails::default()
    };
    let base_of_one = apply(&base, "CREATE INDEX one ON t (c)");
    assert_eq!(
        change(&indexes, &base, "CREATE INDEX ON t (v)"),
        "The table ks.t has 1 secondary indexes, and secondary_indexes_per_table_warn_threshold is 0"
    );
    assert_eq!(
        change(&indexes, &base_of_one, "CREATE INDEX ON t (v)"),
        "refused: The table ks.t has 2 secondary indexes, and secondary_indexes_per_table_fail_threshold is 1"
    );
    assert_eq!(change(&indexes, &base_of_one, "DROP INDEX one"), "");
    let forbids = SchemaGuardrails {
        forbids_indexes: true,
        ..SchemaGuardrails::default()
    };
    assert_eq!(
        change(&forbids, &base, "CREATE INDEX ON t (v)"),
        "refused: CREATE INDEX is refused: secondary_indexes_enabled is false"
    );
    assert_eq!(change(&forbids, &base_of_one, "DROP INDEX one"), "");
    let windows = |windows_without_ttl| SchemaGuardrails {
        windows_max: Some(50),
        windows_without_ttl,
        ..SchemaGuardrails::default()
    };
    let time_windows = |ttl: u32| {
        format!(
            "ALTER TABLE t WITH compaction = {{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': \
             'HOURS', 'compaction_window_size': 2}} AND default_time_to_live = {ttl}"
        )
    };
    assert_eq!(with(windows(Mode::Allow), &time_windows(0)), "");
    let without = "The table ks.t has TimeWindowCompactionStrategy and no default_time_to_live (see restrict_twcs_without_default_ttl)";
    assert_eq!(with(windows(Mode::Warn), &time_windows(0)), without);
    assert_eq!(
        with(windows(Mode::Refuse), &time_windows(0)),
        format!("refused: {without}")
    );
    assert_eq!(with(windows(Mode::Warn), &time_windows(50 * 7_200)), "");
    assert_eq!(
        with(windows(Mode::Warn), &time_windows(50 * 7_200 + 1)),
        "refused: The rows of the table ks.t live for 51 windows of compaction, and twcs_max_window_count is 50"
    );
    let forbids = SchemaGuardrails {
        forbids_uncompressed: true,
        forbids_alter_table: true,
        properties: Lists {
            warned: vec!["comment".to_owned()],
            refused: vec!["caching".to_owned()],
        },
        ..SchemaGuardrails::default()
    };
    assert_eq!(
        change(&forbids, &base, "CREATE TABLE n (k int PRIMARY KEY) WITH comment = 'x'"),
        "The statement gives the table property comment (see table_properties_warned)"
    );
    assert!(
        change(
            &forbids,
            &base,
            "CREATE TABLE n (k int PRIMARY KEY) WITH compression = {'enabled': 'false'}"
        )
        .ends_with("uncompressed_tables_enabled is false")
    );
    assert_eq!(
        change(&forbids, &base, "ALTER TABLE t ADD w int"),
        "refused: ALTER TABLE is refused: alter_table_enabled is false"
    );
}

/// The outcome of executing a statement at second 1,000 of the clock, with pages of 100 rows: its warnings, or the
/// refusal.
fn run(guardrails: &Guardrails, text: &str, consistency: Consistency) -> String {
    let compiled = cql_compiler::compile(text, &base(), Some("ks")).expect("it fits");
    let plan: Option<&Plan> = compiled.statement.plan();
    let run = plan::Execution {
        values: Vec::new(),
        now_us: 1,
        now_in_seconds: None,
        random: 1,
    };
    let request = crate::Request {
        level: consistency,
        page_rows: Some(100),
        ..crate::Request::default()
    };
    let told = guardrails
        .check_text(&compiled.statement)
        .and_then(|()| guardrails.check(plan.expect("it reads or writes"), &run, &request, 1_000_000_000));
    told.map_or_else(|e| format!("refused: {e}"), |warnings| warnings.join("\n"))
}

#[test]
fn a_product_is_counted_by_distinct_values_before_it_is_built() {
    let list = |to: u32| (0..to).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let guardrails = Guardrails {
        partition_product_max: Some(100),
        clustering_product_max: Some(3),
        product_in_select: limits(50, 99),
        ..Guardrails::default()
    };
    let read = |a: &str, b: &str| {
        run(
            &guardrails,
            &format!("SELECT * FROM t WHERE a IN ({a}) AND b IN ({b})"),
            Consistency::One,
        )
    };
    assert_eq!(read("1, 1, 1", &list(50)), "", "three times the same is one");
    assert_eq!(
        read("1, 2", &list(30)),
        "The IN restrictions of the partition key come to 60 combinations, and in_select_cartesian_product_warn_threshold is 50"
    );
    // Built, these would be 4,000,000.
    assert_eq!(
        read(&list(2_000), &list(2_000)),
        "refused: The restrictions of the partition key come to 4000000 combinations, and max_partition_key_restrictions_per_query is 100"
    );
    let delete = "DELETE FROM t WHERE a = 1 AND b = 1 AND c IN (1, 2, 3, 4)";
    assert_eq!(
        run(&guardrails, delete, Consistency::One),
        "refused: The restrictions of the clustering key come to 4 combinations, and max_clustering_key_restrictions_per_query is 3"
    );
}

#[test]
fn statements_are_refused_or_warned_of_for_their_text_level_page_and_time() {
    let guardrails = Guardrails {
        forbids_filtering: true,
        forbids_group_by: true,
        forbids_list_reads: true,
        restricts_future: true,
        behind_us: limits(100, 1_000_000_000),
        page_rows: limits(99, 200),
        read_levels: Lists {
            warned: vec![Consistency::All],
            refused: vec![Consistency::One],
        },
        write_levels: Lists {
            warned: vec![Consistency::Serial],
            refused: vec![Consistency::Any],
        },
        ..Guardrails::default()
    };
    let at = |level, text: &str| run(&guardrails, text, level);
    let point = "SELECT v FROM t WHERE a = 1 AND b = 1 AND c = 1";
    assert_eq!(at(Consistency::Quorum, point), "");
    assert_eq!(
        at(Consistency::All, point),
        "The read has the consistency level ALL (see read_consistency_levels_warned)"
    );
    assert!(at(Consistency::One, point).ends_with("(see read_consistency_levels_disallowed)"));
    assert_eq!(
        at(Consistency::Quorum, "SELECT * FROM t"),
        "The pages of the read have 100 rows, and page_size_warn_threshold is 99"
    );
    assert!(at(Consistency::Quorum, "SELECT * FROM t WHERE v = 1 ALLOW FILTERING").contains("allow_filtering_enabled"));
    assert!(at(Consistency::Quorum, "SELECT a, b FROM t GROUP BY a, b").contains("group_by_enabled"));
    let update = "UPDATE t SET l[0] = 1 WHERE a = 1 AND b = 1 AND c = 1";
    assert!(at(Consistency::One, update).contains("read_before_write_list_operations_enabled"));
    let conditional = "UPDATE t SET v = 1 WHERE a = 1 AND b = 1 AND c = 1 IF EXISTS";
    assert!(at(Consistency::One, conditional).starts_with("The write has the consistency level SERIAL"));
    let insert = |timestamp: i64| {
        let text = format!("INSERT INTO t (a, b, c) VALUES (1, 1, 1) USING TIMESTAMP {timestamp}");
        at(Consistency::One, &text)
    };
    let now = 1_000_000_000;
    let days = 3 * 86_400 * 1_000_000;
    assert_eq!(insert(now + days), "");
    assert!(insert(now + days + 1).contains("restrict_future_timestamp"));
    assert_eq!(insert(now - 100), "");
    assert!(insert(now - 101).contains("minimum_timestamp_warn_threshold is 100"));
    assert!(insert(-1).starts_with("refused: ") && insert(-1).contains("minimum_timestamp_fail_threshold"));
    let batch = format!(
        "BEGIN BATCH USING TIMESTAMP {} INSERT INTO t (a, b, c) VALUES (1, 1, 1); APPLY BATCH",
        now - 101
    );
    assert!(at(Consistency::One, &batch).contains("minimum_timestamp_warn_threshold is 100"));
}

#[test]
fn collections_and_values_are_measured() {
    let guardrails = Guardrails {
        collection_items: limits(2, 3),
        collection_bytes: limits(1_000, 2_000),
        value_bytes: limits(10, 20),
        ..Guardrails::default()
    };
    let set = |assignment: &str| {
        run(
            &guardrails,
            &format!("UPDATE t SET {assignment} WHERE a = 1 AND b = 1 AND c = 1"),
            Consistency::One,
        )
    };
    assert_eq!(set("l = [1, 2]"), "");
    assert_eq!(
        set("l = l + [1, 2, 3]"),
        "The statement writes 3 items of the collection ks.t.l, and items_per_collection_warn_threshold is 2"
    );
    assert!(set("l = [1, 2, 3, 4]").starts_with("refused: The statement writes 4 items"));
    assert_eq!(
        set("f = [1, 2]"),
        "A value of the column ks.t.f has 20 bytes, and column_value_size_warn_threshold is 10"
    );
    assert!(set("m[1] = '123456789012345678901'").starts_with("refused: A value of the column ks.t.m has 21 bytes"));
    let long = "x".repeat(1_001);
    let sizes = Guardrails {
        collection_bytes: limits(1_000, 2_000),
        ..Guardrails::default()
    };
    let text = format!("UPDATE t SET m = {{1: '{long}'}} WHERE a = 1 AND b = 1 AND c = 1");
    assert!(run(&sizes, &text, Consistency::One).contains("collection_size_warn_threshold is 1000"));
    assert_eq!(set("v = null"), "");
}

#[test]
fn a_statement_is_watched_only_where_a_guardrail_is_about_it() {
    let schema = base();
    let watches = |guardrails: &Guardrails, text: &str| {
        let compiled = cql_compiler::compile(text, &schema, Some("ks")).expect("it fits");
        let statement: Arc<_> = compiled.statement;
        guardrails.watches(&statement)
    };
    let read = "SELECT v FROM t WHERE a = 1 AND b = 1 AND c = 1";
    let write = "INSERT INTO t (a, b, c, v) VALUES (1, 1, 1, 1)";
    let several = "DELETE FROM t WHERE a = 1 AND b = 1 AND c IN (1, 2)";
    let products = Guardrails {
        clustering_product_max: Some(100),
        restricts_future: true,
        page_rows: limits(1, 2),
        ..Guardrails::default()
    };
    assert!(!watches(&products, read) && !watches(&products, write) && watches(&products, several));
    let mut levels = Guardrails::default();
    levels.read_levels.warned.push(Consistency::One);
    assert!(watches(&levels, read) && !watches(&levels, write));
}

#[test]
fn what_is_written_and_what_is_there_is_compared_with_the_limits_of_large_data() {
    let limits = LargeDataGuardrails {
        partition_bytes: limits(1_000, 2_000),
        rows: limits(10, 20),
        row_bytes: limits(50, 60),
        cell_bytes: limits(30, 40),
        elements: limits(2, 3),
        warns_clients: true,
    };
    let schema = base();
    let text = |result: Result<(), QueryError>, warnings: Vec<String>| match result {
        Ok(()) => warnings.join("\n"),
        Err(e) => format!("refused: {e}"),
    };
    let compiled = |assignment: &str| {
        let update = format!("UPDATE t SET {assignment} WHERE a = 1 AND b = 1 AND c = 1");
        let compiled = cql_compiler::compile(&update, &schema, Some("ks")).expect("it fits");
        match compiled.statement.plan() {
            Some(Plan::Write(write)) => write.clone(),
            _ => panic!("{update} writes"),
        }
    };
    let run = plan::Execution {
        values: Vec::new(),
        now_us: 1,
        now_in_seconds: None,
        random: 1,
    };
    let written = |assignment: &str| {
        let mut warnings = Vec::new();
        let result = limits.check_written(&compiled(assignment), &run, &mut warnings);
        text(result, warnings)
    };
    let long = |len: usize| format!("m[1] = '{}'", "x".repeat(len));
    assert_eq!(written(&long(30)), "");
    assert!(written(&long(31)).ends_with("has 31 bytes, and compaction_large_cell_warning_threshold is 30"));
    assert!(
        written(&long(41))
            .starts_with("refused: A value of the column ks.t.m has 41 bytes, and large_cell_fail_threshold is 40")
    );
    assert_eq!(written("l = [1, 2]"), "");
    assert!(written("l = l + [1, 2, 3]").starts_with("The statement writes 3 elements of the collection ks.t.l"));
    assert!(written("l = [1, 2, 3, 4]").starts_with("refused: The statement writes 4 elements"));
    let row = format!("v = 1, {}, l = [1, 2]", long(30));
    assert!(
        written(&row).starts_with(
            "A row that is written to ks.t has 54 bytes, and compaction_large_row_warning_threshold is 50"
        ),
        "{}",
        written(&row)
    );

    let key = [0, 4, 0, 0, 0, 1, 0, 0, 4, 0, 0, 0, 1, 0];
    let row = vec![4, 0, 0, 0, 1];
    let present = |assignment: &str, bytes, rows, row_bytes, elements: &[(u16, u64)]| {
        let of_row = coordinator::MeasuredRow {
            bytes: row_bytes,
            elements: elements.iter().copied().collect(),
        };
        let other = coordinator::MeasuredRow {
            bytes: 1_000,
            elements: [(0, 1_000), (1, 1_000), (2, 1_000)].into(),
        };
        let measured = coordinator::Measured {
            bytes,
            rows,
            of_rows: [(row.clone(), of_row), (vec![4, 0, 0, 0, 2], other)].into(),
        };
        let mut warnings = Vec::new();
        let names = (&key[..], std::slice::from_ref(&row));
        let result = limits.check_present(&compiled(assignment), names, &measured, &mut warnings);
        text(result, warnings)
    };
    assert_eq!(present("v = 1", 1_000, 10, 50, &[]), "");
    let where_ = "ks.t has a partition where a = 1 AND b = 1";
    assert_eq!(
        present("v = 1", 1_001, 11, 51, &[]),
        format!(
            "{where_} of 1001 bytes, and compaction_large_partition_warning_threshold is 1000\n\
             {where_} with 11 rows, and compaction_rows_count_warning_threshold is 10\n\
             {where_} with a row of 51 bytes, and compaction_large_row_warning_threshold is 50"
        )
    );
    assert!(present("v = 1", 2_001, 0, 0, &[]).contains("large_partition_fail_threshold is 2000"));
    assert!(present("v = 1", 0, 21, 0, &[]).contains("rows_count_fail_threshold is 20"));
    assert!(present("v = 1", 0, 0, 61, &[]).contains("large_row_fail_threshold is 60"));
    let list = compiled("l = [1]")
        .changed_columns()
        .next()
        .map_or(0, |column| column.id.0);
    assert!(
        present("l = l + [1]", 0, 0, 0, &[(list, 4)])
            .contains("4 elements in the collection l, and large_collection_elements_fail_threshold is 3")
    );
    assert_eq!(present("v = 1", 0, 0, 0, &[(list, 4)]), "", "another column of the row");
}
