//! Aggregates that travel as encoded plans find what they find where they were compiled, and damaged ones do no harm.

use std::sync::Arc;

use crate::common::{self, schema_of};
use cql_compiler::{Dialect, Markers, Receiver, compile_term_of_table};
use plan::encoding::DecodeError;
use plan::{BindContext, Bound, BoundValues, Evaluated, Row, SelectPlan};
use schema::{Schema, Table};
use types::CqlType;

/// What a marker of type int is bound to.
const BOUND: [u8; 4] = [0, 0, 0, 3];

const COLUMNS: &str = "k int, c int, d int, s int static, i int, b bigint, f float, dc decimal, x text, ts timestamp, u timeuuid, \
                       l list<int>, st set<text>, m map<text, int>, fl frozen<list<int>>, tp frozen<tuple<int, text>>, \
                       v vector<float, 2>";

/// The values of two rows, by column.
const ROWS: [&[(&str, &str)]; 2] = [
    &[
        ("k", "1"),
        ("c", "2"),
        ("d", "3"),
        ("s", "9"),
        ("i", "7"),
        ("b", "70000000000"),
        ("f", "1.5"),
        ("dc", "12.34"),
        ("x", "'a text'"),
        ("ts", "1600000000000"),
        ("u", "5d1a4b00-f6d4-11ea-8080-808080808080"),
        ("l", "[3, 1]"),
        ("st", "{'a', 'b'}"),
        ("m", "{'a': 1, 'b': 2}"),
        ("fl", "[5, 6, 7]"),
        ("tp", "(1, 'y')"),
        ("v", "[0.5, 1.0]"),
    ],
    &[("k", "2"), ("c", "1"), ("d", "3"), ("i", "-8"), ("x", "'z'")],
];

/// One for each kind of what is encoded.
const STATEMENTS: &[&str] = &[
    "SELECT count(*) FROM ks.t",
    "SELECT count(i), min(x), max(f), sum(b), avg(i), sum(dc) FROM ks.t",
    "SELECT sum(i * 2 + c), max(-i), min(i % 3), sum((int)? + i) FROM ks.t",
    "SELECT max(cast(i as text)), min(cast(ts as date)), max(abs(i)), sum(round(f)) FROM ks.t",
    "SELECT min(to_date(ts)), max(to_unix_timestamp(u)), max(floor(ts, 1h)), min(token(k)) FROM ks.t",
    "SELECT max(to_json(m)), max(int_as_blob(i)), max(blob_as_int(int_as_blob(i))), count(now()), count(uuid()) FROM ks.t",
    "SELECT max(map_keys(m)), max(map_values(m)), sum(collection_count(l)), max(collection_sum(l)) FROM ks.t",
    "SELECT max(m['a']), max(m['a'..'b']), max(st['a']), max(st[..'b']) FROM ks.t",
    "SELECT max(writetime(i)), max(ttl(i)), max(similarity_cosine(v, [0.25, 0.5])) FROM ks.t",
    "SELECT max((list<int>)[i, c]), max((set<int>){i, c}), max((tuple<int, text>)(i, x)), max(tp) FROM ks.t",
    "SELECT count(*) FROM ks.t WHERE c = 2 AND d IN (3, ?) ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE c IN ? ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE (c, d) IN ((2, 3), (4, ?)) ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE (c, d) IN ? ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE (c, d) > (1, ?) AND c <= 2 ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE (c, d) >= ? ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE i > ? AND x IN ('a text', 'b') AND l CONTAINS 1 ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE m CONTAINS KEY 'a' AND m['b'] = 2 AND tp = (1, 'y') ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE token(k) > 5 AND i = 3 + (int)? ALLOW FILTERING",
    "SELECT max(mask_hash(i)) FROM ks.t",
    "SELECT sum(abs(length(x))) FROM ks.t",
    "SELECT max((list<int>)[octet_length(x)]) FROM ks.t",
    "SELECT max(set_intersection(st, st)) FROM ks.t",
    "SELECT count(*) FROM ks.t WHERE c IN (1, mask_replace(1, ?)) ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE i != 3 AND i NOT IN (4, ?) AND i IS NOT NULL ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE x LIKE 'a%' AND l NOT CONTAINS 1 AND m NOT CONTAINS KEY 'a' ALLOW FILTERING",
    "SELECT count(*) FROM ks.t GROUP BY k",
    "SELECT k, c, x, max(d), sum(i) + 1 FROM ks.t WHERE i > ? GROUP BY k, c ALLOW FILTERING",
    "SELECT k, c FROM ks.t GROUP BY k",
];

fn schema() -> Schema {
    schema_of(&[&format!(
        "CREATE TABLE ks.t ({COLUMNS}, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)"
    )])
}

fn table(schema: &Schema) -> &Arc<Table> {
    &schema.keyspaces["ks"].tables["t"]
}

const NO_VALUES: BindContext<'static> = BindContext {
    values: BoundValues::NONE,
    now_us: 1_600_000_000_000_000,
    now_in_seconds: None,
    random: 7,
};

fn rows(schema: &Schema) -> Vec<Row> {
    let table = table(schema);
    let row = |values: &[(&str, &str)]| {
        let mut row = Row::new(table);
        for (name, text) in values {
            let at = table
                .columns
                .iter()
                .position(|c| c.name == *name)
                .expect("the column is there");
            let parsed = cql::parse(&format!("INSERT INTO t (c) VALUES ({text})")).expect("a term");
            let cql::ast::Statement::Insert(insert) = parsed.statement else {
                panic!("it was written as an INSERT");
            };
            let cql::ast::InsertValues::Columns { values, .. } = insert.values else {
                panic!("it was written with columns");
            };
            let receiver = Receiver::new(*name, table.columns[at].cql_type.clone());
            let term = compile_term_of_table(&values[0], &receiver, &mut Markers::new(0), schema, table);
            let value = term.expect(text);
            let Ok(Evaluated::Value(bytes)) = value.eval(&NO_VALUES) else {
                panic!("{text} has a value");
            };
            row.set(at, &bytes);
            row.set_times(at, 1_000, 60);
        }
        row
    };
    ROWS.iter().map(|values| row(values)).collect()
}

fn select(schema: &Schema, text: &str) -> Arc<SelectPlan> {
    common::select(schema, text, Dialect::default())
}

/// The values of a statement's one marker, whatever its type is.
fn bound(text: &str) -> Vec<u8> {
    let one = [&[0, 0, 0, 4], &BOUND[..]].concat();
    match text {
        _ if text.contains("c IN ?") => [&[0, 0, 0, 1], &one[..]].concat(),
        _ if text.contains("(c, d) IN ?") => [&[0, 0, 0, 1, 0, 0, 0, 16], &one[..], &one[..]].concat(),
        _ if text.contains("(c, d) >= ?") => [&one[..], &one[..]].concat(),
        _ => BOUND.to_vec(),
    }
}

/// All that a shard finds by a plan: which rows pass, the part of its aggregate, and which slices it reads.
fn found(plan: &SelectPlan, rows: &[Row], ctx: &BindContext<'_>) -> String {
    let mut group = plan.selection.new_group();
    let mut out = String::new();
    for row in rows {
        let filters = plan.restrictions.filters.iter();
        let passes: Vec<_> = filters.map(|f| f.passes(row, ctx, &f.alternatives(ctx)?)).collect();
        let taken = plan.selection.accumulate(&mut group, row, ctx);
        out.push_str(&format!("{passes:?} {taken:?}\n"));
    }
    let mut part = Vec::new();
    group.encode(&mut part);
    let slices = plan.restrictions.clustering.slices(&plan.table, ctx);
    out.push_str(&format!("{part:?}\n{slices:?}"));
    out
}

#[test]
fn an_aggregate_finds_elsewhere_what_it_finds_here() {
    let schema = schema();
    let rows = rows(&schema);
    for text in STATEMENTS {
        let plan = select(&schema, text);
        let bytes = plan.encode_part().unwrap_or_else(|| panic!("{text} has parts"));
        let find = |id| schema.table_by_id(id).cloned();
        let decoded = SelectPlan::decode_part(&bytes, &schema, find).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(
            decoded.encode_part().as_ref(),
            Some(&bytes),
            "{text} is encoded in one way"
        );
        assert_eq!(
            decoded.selection.needed, plan.selection.needed,
            "{text} needs the same columns"
        );
        assert_eq!(decoded.selection.needs_times, plan.selection.needs_times, "{text}");
        let value = bound(text);
        let ctx = BindContext {
            values: BoundValues::Lent(&[Bound::Value(&value)]),
            ..NO_VALUES
        };
        assert_eq!(found(&decoded, &rows, &ctx), found(&plan, &rows, &ctx), "{text}");
    }
}

/// The schema with functions in Lua, and aggregates of which one has parts.
fn with_functions() -> Schema {
    let mut schema = schema();
    let keyspace = Arc::make_mut(schema.keyspaces.get_mut("ks").expect("it is there"));
    let int = |name: &str| (name.to_owned(), CqlType::Int);
    for (name, arguments, body) in [
        ("twice", vec![int("a")], "return 2 * a"),
        ("add", vec![int("s"), int("v")], "return s + v"),
        ("seven", vec![], "return 7"),
    ] {
        let function = schema::UserFunction {
            keyspace: "ks".to_owned(),
            name: name.to_owned(),
            arguments,
            returns: CqlType::Int,
            called_on_null: false,
            language: schema::Language::Lua,
            body: body.to_owned(),
        };
        keyspace.functions.insert(function.signature(), Arc::new(function));
    }
    for (name, reduce) in [("total", Some("add".to_owned())), ("whole", None)] {
        let aggregate = schema::UserAggregate {
            keyspace: "ks".to_owned(),
            name: name.to_owned(),
            arguments: vec![CqlType::Int],
            state_function: "add".to_owned(),
            state_type: CqlType::Int,
            reduce_function: reduce,
            final_function: None,
            returns: CqlType::Int,
            initial_state: Some(vec![0; 4]),
        };
        keyspace.aggregates.insert(aggregate.signature(), Arc::new(aggregate));
    }
    schema
}

#[test]
fn user_defined_functions_are_found_in_the_schema_of_the_other_side() {
    let schema = with_functions();
    let rows = rows(&schema);
    let find = |id| schema.table_by_id(id).cloned();
    for text in [
        "SELECT ks.total(i) FROM ks.t",
        "SELECT total(twice(i)), sum(ks.twice(i)), max(seven()) FROM ks.t",
        "SELECT total(i) FROM ks.t WHERE i = twice(seven()) ALLOW FILTERING",
    ] {
        let plan = select(&schema, text);
        let bytes = plan.encode_part().unwrap_or_else(|| panic!("{text} has parts"));
        let decoded = SelectPlan::decode_part(&bytes, &schema, find).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(
            decoded.encode_part().as_ref(),
            Some(&bytes),
            "{text} is encoded in one way"
        );
        assert_eq!(
            found(&decoded, &rows, &NO_VALUES),
            found(&plan, &rows, &NO_VALUES),
            "{text}"
        );
        let elsewhere = SelectPlan::decode_part(&bytes, &self::schema(), find).map(drop);
        assert!(
            matches!(elsewhere, Err(DecodeError::Malformed(_))),
            "{text}: {elsewhere:?}"
        );
        for at in 0..bytes.len() {
            for change in [1, 2, 4, 0x40, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                if let Ok(plan) = SelectPlan::decode_part(&damaged, &schema, find) {
                    found(&plan, &rows, &NO_VALUES);
                }
            }
        }
    }
    assert_eq!(
        select(&schema, "SELECT whole(i) FROM ks.t").encode_part(),
        None,
        "its states cannot be joined"
    );
}

#[test]
fn what_has_no_parts_is_not_encoded() {
    let schema = schema();
    for text in [
        "SELECT i FROM ks.t",
        "SELECT avg(dc) FROM ks.t GROUP BY k",
        "SELECT k, writetime(i), count(*) FROM ks.t GROUP BY k",
        "SELECT k, count(*) FROM ks.t GROUP BY k PER PARTITION LIMIT 1",
        "SELECT count(*), k FROM ks.t",
        "SELECT avg(dc) FROM ks.t",
    ] {
        assert_eq!(select(&schema, text).encode_part(), None, "{text}");
    }
}

#[test]
fn damaged_plans_are_refused_or_harmless() {
    let schema = schema();
    let rows = rows(&schema);
    let find = |id| schema.table_by_id(id).cloned();
    for text in STATEMENTS {
        let bytes = select(&schema, text).encode_part().expect("it has parts");
        let value = bound(text);
        let values = [Bound::Value(&value[..])];
        let ctx = BindContext {
            values: BoundValues::Lent(&values),
            ..NO_VALUES
        };
        for cut in 0..bytes.len() {
            // What ends with a field may be a plan, of fewer restrictions.
            if let Ok(plan) = SelectPlan::decode_part(&bytes[..cut], &schema, find) {
                found(&plan, &rows, &ctx);
            }
        }
        for at in 0..bytes.len() {
            for change in [1, 2, 3, 4, 8, 0x40, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                if let Ok(plan) = SelectPlan::decode_part(&damaged, &schema, find) {
                    found(&plan, &rows, &ctx);
                }
            }
        }
    }
}

#[test]
fn plans_of_other_formats_tables_and_depths_are_refused() {
    let schema = schema();
    let find = |id| schema.table_by_id(id).cloned();
    let bytes = select(&schema, "SELECT sum(i) FROM ks.t")
        .encode_part()
        .expect("it has parts");
    let mut other = bytes.clone();
    other[0] += 1;
    let refused = SelectPlan::decode_part(&other, &schema, find).map(drop);
    assert_eq!(refused, Err(DecodeError::UnknownFormat(2)));
    assert_eq!(
        refused.expect_err("the format is unknown").to_string(),
        "the encoded plan has format 2: expected 1, the only one known here"
    );
    let refused = SelectPlan::decode_part(&bytes, &schema, |_| None).map(drop);
    assert_eq!(refused, Err(DecodeError::UnknownTable(table(&schema).id)));
    let unknown = [&bytes[..], &[9, 0]].concat();
    let refused = SelectPlan::decode_part(&unknown, &schema, find).map(drop);
    assert_eq!(refused, Err(DecodeError::Malformed("an unknown field")));
    // An expression in an expression in an expression: fields of fields.
    let mut deep = bytes[..19].to_vec();
    let body = [&[1, 1][..], &[6_u8; 10_000]].concat();
    deep.push(2);
    stdx::vint::put_unsigned(&mut deep, body.len() as u64);
    deep.extend_from_slice(&body);
    let refused = SelectPlan::decode_part(&deep, &schema, find).map(drop);
    assert_eq!(refused, Err(DecodeError::Malformed("a plan that is nested too deep")));
}

#[test]
fn the_bytes_of_a_plan_stay() {
    let schema = schema();
    let text = "SELECT count(*), max(i + 1) FROM ks.t WHERE c > ? AND x = 'y' ALLOW FILTERING";
    let bytes = select(&schema, text).encode_part().expect("it has parts");
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    // The length and the Java class of an int.
    let int = "296f72672e6170616368652e63617373616e6472612e64622e6d61727368616c2e496e74333254797065";
    let expected = [
        "01",
        "01 10 00000000000000000000000000001234",
        "02 02 00 00",
        "02 80bd 03 int 01 02 06 045f616464 02 int int int 00 02 00 08 01 00 04 00000001",
        "04 2f 00 00 01 02 00 int",
        "06 06 10 00 00 00 01 79",
    ];
    let expected = expected.concat().replace("int", int).replace(' ', "");
    assert_eq!(
        hex, expected,
        "nodes of another release read these bytes: give a new layout a new format"
    );
}
