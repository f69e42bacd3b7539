//! What the fuzzer needs of the compiler: statements, plans and JSON to begin with, and everything that reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use plan::function::decode_json_row;
use plan::{BindContext, Bound, BoundValues, Plan, Row, SelectPlan};
use schema::{Schema, Table};
use uuid::Uuid;

use crate::describe::{DescribeContext, DescribedNode, describe};
use crate::{DdlContext, Statement, compile, compile_ddl};

const COLUMNS: &str = "k int, c int, d int, s int static, i int, b bigint, f float, dc decimal, x text, ts timestamp, u timeuuid, \
                       l list<int>, st set<text>, m map<text, int>, fl frozen<list<int>>, tp frozen<tuple<int, text>>, \
                       v vector<float, 2>, bo boolean, da date, ti time, du duration, ip inet, bl blob, vi varint";

const AGGREGATES: &[&str] = &[
    "SELECT count(*) FROM ks.t",
    "SELECT count(i), min(x), max(f), sum(b), avg(i), sum(dc) FROM ks.t",
    "SELECT sum(i * 2 + c), max(-i), min(i % 3), sum((int)? + i) FROM ks.t",
    "SELECT max(cast(i as text)), min(cast(ts as date)), max(abs(i)), sum(round(f)) FROM ks.t",
    "SELECT min(to_date(ts)), max(to_unix_timestamp(u)), max(floor(ts, 1h)), min(token(k)) FROM ks.t",
    "SELECT max(to_json(m)), max(int_as_blob(i)), max(blob_as_int(int_as_blob(i))), count(now()) FROM ks.t",
    "SELECT max(map_keys(m)), sum(collection_count(l)), max(collection_sum(l)) FROM ks.t",
    "SELECT max(m['a']), max(m['a'..'b']), max(st['a']), max(st[..'b']) FROM ks.t",
    "SELECT max(writetime(i)), max(ttl(i)), max(maxwritetime(m)), max(similarity_cosine(v, [0.25, 0.5])) FROM ks.t",
    "SELECT max((list<int>)[i, c]), max((set<int>){i, c}), max((tuple<int, text>)(i, x)), max(tp) FROM ks.t",
    "SELECT count(*) FROM ks.t WHERE c = 2 AND d IN (3, ?) ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE c IN ? ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE (c, d) IN ((2, 3), (4, ?)) ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE (c, d) IN ? ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE (c, d) > (1, ?) AND c <= 2 ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE (c, d) >= ? ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE i > ? AND x IN ('a text', 'b') AND l CONTAINS 1 ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE m CONTAINS KEY 'a' AND m['b'] = 2 AND tp = (1, 'y') ALLOW FILTERING",
];

const STATEMENTS: &[&str] = &[
    "SELECT * FROM ks.t WHERE k = 1 AND c > 2 ORDER BY c DESC PER PARTITION LIMIT 3 LIMIT ? ALLOW FILTERING",
    "SELECT JSON k, c AS x, (int)i + 1 FROM ks.t WHERE k IN (1, 2, :three) AND (c, d) > (1, 2)",
    "SELECT DISTINCT k, s FROM ks.t WHERE token(k) > token(5) AND token(k) <= ?",
    "SELECT k, c, count(*) FROM ks.t GROUP BY k, c",
    "SELECT writetime(i), ttl(x), m['a'], fl[0], tp, cast(da AS timestamp) FROM ks.t WHERE k = 1",
    "INSERT INTO ks.t (k, c, d, i, x, l, st, m, tp, v) VALUES (1, 2, 3, -4, 'text', [1, 2], {'a'}, {'a': 1}, (1, 'x'), [1.0, 2.0]) \
     IF NOT EXISTS USING TTL 60 AND TIMESTAMP 7",
    "INSERT INTO ks.t JSON '{\"k\": 1, \"c\": 2, \"d\": 3, \"m\": {\"a\": 1}, \"du\": \"1y2mo\"}' DEFAULT UNSET",
    "UPDATE ks.t USING TTL ? SET i = i + 1, l = [0] + l, l[0] = 7, st = st - {'b'}, m['k'] = 9, x = 'y' WHERE k = 1 AND c = 2 AND d = 3 \
     IF i > 3 AND x IN ('a', 'b') AND m['a'] != null",
    "DELETE i, m['a'], l[3] FROM ks.t USING TIMESTAMP 8 WHERE k = 1 AND c = 2 AND d = 3 IF EXISTS",
    "DELETE FROM ks.t WHERE k = 1 AND (c, d) >= (1, 2) AND (c) < (3)",
    "UPDATE ks.n SET v = v + 5 WHERE k = 1",
    "BEGIN UNLOGGED BATCH USING TIMESTAMP 5 INSERT INTO ks.t (k, c, d) VALUES (1, 2, 3); DELETE s FROM ks.t WHERE k = 1; APPLY BATCH",
    "CREATE TABLE ks.u (a int, b text, c map<text, frozen<list<int>>>, d int static, PRIMARY KEY ((a, b), c2)) WITH CLUSTERING ORDER BY (c2 DESC) \
     AND compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': 4} AND gc_grace_seconds = 5 AND comment = 'x' \
     AND compression = {'sstable_compression': 'LZ4Compressor', 'chunk_length_in_kb': 4} AND speculative_retry = '99p'",
    "CREATE TABLE IF NOT EXISTS ks.w (a uuid PRIMARY KEY, b vector<float, 3>) WITH default_time_to_live = 60 AND caching = {'keys': 'ALL'}",
    "CREATE KEYSPACE o WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND durable_writes = false AND tablets = {'enabled': true}",
    "ALTER TABLE ks.t ADD (n1 int, n2 frozen<set<int>>)",
    "ALTER TABLE ks.t DROP i USING TIMESTAMP 9",
    "ALTER TABLE ks.t RENAME c TO cc WITH bloom_filter_fp_chance = 0.01",
    "ALTER KEYSPACE ks WITH durable_writes = true",
    "DROP TABLE IF EXISTS ks.t",
    "TRUNCATE ks.t USING TIMEOUT 5s",
    "DESCRIBE FULL SCHEMA",
    "DESCRIBE KEYSPACE ks WITH INTERNALS",
    "USE ks",
];

fn node_counts() -> BTreeMap<String, u32> {
    BTreeMap::from([("datacenter1".to_owned(), 1)])
}

/// A schema with a table of columns of every type and a table of counters.
///
/// # Panics
/// Never: its statements are right.
#[must_use]
pub fn schema() -> Schema {
    let table =
        format!("CREATE TABLE ks.t ({COLUMNS}, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)");
    let statements = [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        &table,
        "CREATE TABLE ks.n (k int PRIMARY KEY, v counter)",
    ];
    let mut schema = Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    };
    for (number, text) in (1..).zip(statements) {
        schema = changed(&schema, text, number).unwrap_or_else(|| panic!("'{text}' changes nothing"));
    }
    schema
}

/// The schema after a statement, if it is valid and changes something.
fn changed(schema: &Schema, text: &str, number: u128) -> Option<Schema> {
    let statement = cql::parse(text).ok()?.statement;
    let ctx = DdlContext {
        keyspace: Some("ks"),
        now_us: 1_600_000_000_000_000,
    };
    let definition = compile_ddl(schema, &statement, &ctx).ok()??;
    let ctx = ddl::Context {
        new_id: Uuid::from_u128(number),
        nodes: &node_counts(),
        has_functions: true,
        racks: &BTreeMap::new(),
        lists_racks: false,
    };
    Some(ddl::apply(schema, &definition, &ctx).ok()??.schema)
}

fn table(schema: &Schema) -> &Arc<Table> {
    &schema.keyspaces["ks"].tables["t"]
}

/// Statements of every kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    STATEMENTS
        .iter()
        .chain(AGGREGATES)
        .map(|text| text.as_bytes().to_vec())
        .collect()
}

/// Compiles the text, applies it where it changes the schema, and describes what comes of it.
pub fn read(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let schema = schema();
    if let Err(error) = compile(&text, &schema, Some("ks")) {
        drop(error.to_string());
    }
    let Some(next) = changed(&schema, &text, 77) else {
        return;
    };
    let node = DescribedNode {
        cluster_name: "sea".to_owned(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        endpoint: ([10, 0, 0, 1], 7000).into(),
        tokens: vec!["5".to_owned()],
    };
    let described = cql::parse("DESCRIBE SCHEMA").expect("a statement").statement;
    let cql::ast::Statement::Describe(statement) = described else {
        panic!("a DESCRIBE becomes a different statement");
    };
    let ctx = DescribeContext {
        keyspace: Some("ks"),
        node: &node,
    };
    let _ = describe(&next, &statement, &ctx);
}

/// Selects the schema's table; None for what is no valid SELECT.
#[must_use]
pub fn select(schema: &Schema, text: &str) -> Option<Arc<SelectPlan>> {
    let compiled = compile(text, schema, None).ok()?;
    match &*compiled.statement {
        Statement::Plan(Plan::Select(select)) => Some(select.clone()),
        _ => None,
    }
}

/// Encoded aggregates.
#[must_use]
pub fn plan_seeds() -> Vec<Vec<u8>> {
    let schema = schema();
    let plans = AGGREGATES.iter().filter_map(|text| select(&schema, text));
    plans.filter_map(|plan| plan.encode_part()).collect()
}

/// Reads the bytes as an aggregate, computes it over rows, and writes it again.
pub fn read_plan(bytes: &[u8]) {
    let schema = schema();
    let table = table(&schema);
    let plan = match SelectPlan::decode_part(bytes, &schema, |id| (id == table.id).then(|| table.clone())) {
        Ok(plan) => plan,
        Err(error) => return drop(error.to_string()),
    };
    let written = plan.encode_part().expect("a plan that was read has parts");
    let again = SelectPlan::decode_part(&written, &schema, |_| Some(table.clone())).expect("it was encoded");
    assert_eq!(again.encode_part(), Some(written), "a plan changes when it is written");
    let ctx = BindContext {
        values: BoundValues::Lent(&[Bound::Value(&[0, 0, 0, 3]), Bound::Null, Bound::Unset]),
        now_us: 1_600_000_000_000_000,
        now_in_seconds: None,
        random: 7,
    };
    let mut row = Row::new(table);
    let mut group = plan.selection.new_group();
    for value in [&[][..], &[0, 0, 0, 1], &[0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 5], &[7; 16]] {
        for (at, column) in table.columns.iter().enumerate() {
            if column.cql_type.validate(value).is_ok() {
                row.set(at, value);
                row.set_times(at, 1_000, 60);
            }
        }
        for filter in &plan.restrictions.filters {
            let _ = filter
                .alternatives(&ctx)
                .and_then(|alternatives| filter.passes(&row, &ctx, &alternatives));
        }
        let _ = plan.selection.accumulate(&mut group, &row, &ctx);
    }
    let _ = plan.restrictions.clustering.slices(&plan.table, &ctx);
}

/// Rows as objects of JSON.
#[must_use]
pub fn json_seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"k": 1, "c": -2, "d": "3", "s": null, "i": 7, "b": 9223372036854775807, "f": 1.5e-3, "dc": 12345678901234567890.5}"#,
        r#"{"x": "a \"text\" \u00e4\ud83d\ude00\n", "ts": "2024-02-29 12:00:00.123Z", "u": "5d1a4b00-f6d4-11ea-8080-808080808080"}"#,
        r#"{"l": [1, 2, 3], "st": ["a", "b", "a"], "m": {"a": 1, "b": "2"}, "fl": "[5, 6]", "tp": [1, "y"], "v": [0.5, 1]}"#,
        r#"{"\"K\"": 1, "bo": true, "da": "2024-02-29", "ti": "12:13:14.5", "du": "P1Y2M3D", "ip": "::1", "bl": "0xcafe", "vi": -99999999999999999999}"#,
        r#"{"bo": "false", "da": 2147483648, "ti": 7, "ts": 1600000000000, "f": "NaN", "dc": "1E-400", "vi": "12"}"#,
        r"[[[[[[[[[[]]]]]]]]]]",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Reads the bytes as a row of JSON; every value that is read is valid.
pub fn read_json(bytes: &[u8]) {
    let schema = schema();
    let columns: Vec<_> = table(&schema)
        .columns
        .iter()
        .map(|column| (&*column.name, &column.cql_type))
        .collect();
    let Ok(values) = decode_json_row(bytes, &columns) else {
        return;
    };
    assert_eq!(values.len(), columns.len(), "a row has another number of columns");
    for ((name, cql_type), value) in columns.iter().zip(values) {
        if let Some(Some(value)) = value {
            assert_eq!(cql_type.validate(&value), Ok(()), "{name} was read wrong");
        }
    }
}
