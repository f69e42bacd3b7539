//! Records of schema objects: their numbers and bytes, what is refused of them, and that every value comes back.
//!
//! `testdata/records.txt` and `testdata/fields.txt` pin what is stored on disks. A difference in them is a change of a
//! durable format: a line may be added, for a field with a feature of its own; none may change or go.
//! `CETO_REWRITE=1 cargo test -p schema` writes them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use record::{Known, Problem, Record, RecordError, text};
use schema::record::{
    ChangeRecord, ObjectRecord, PER_PARTITION_RATE_LIMIT, SchemaRecord, object_from_record, object_record,
    open_objects, seal_objects,
};
use schema::{
    Change, Column, ColumnKind, CompactStorage, IndexKind, IndexPart, KeyspaceObject, Language, Object, ObjectKind,
    ObjectName, RateLimits, Schema, Table, TableId, TableOptions, TabletOptions, TombstoneGc, TombstoneGcMode,
    UserAggregate, UserFunction,
};
use types::{CqlType, UdtType};
use uuid::Uuid;

fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// A keyspace with something in every field.
fn full_keyspace() -> KeyspaceObject {
    KeyspaceObject {
        name: "ks".to_owned(),
        replication: options(&[("class", "SimpleStrategy"), ("replication_factor", "3")]),
        durable_writes: true,
        tablets: Some(options(&[("enabled", "true")])),
    }
}

/// Every type there is.
fn every_type() -> Vec<CqlType> {
    let natives = "ascii bigint blob boolean counter date decimal double duration float inet int smallint text time \
                   timestamp timeuuid tinyint uuid varint";
    let composed = [
        "list<int>",
        "set<text>",
        "map<int, frozen<list<text>>>",
        "tuple<int, text>",
        "vector<float, 3>",
        "frozen<map<int, text>>",
    ];
    let texts = natives.split_whitespace().chain(composed);
    let mut types: Vec<CqlType> = texts
        .map(|text| CqlType::parse_native(text).expect("it is a type"))
        .collect();
    types.push(CqlType::Empty);
    types.push(CqlType::Udt(Arc::new(UdtType {
        keyspace: "ks".to_owned(),
        name: "address".to_owned(),
        fields: vec![
            ("street".to_owned(), CqlType::Text),
            ("number".to_owned(), CqlType::Int),
        ],
    })));
    types
}

/// A table with something in every field.
fn full_table() -> Table {
    let key = |name: &str, kind, position, descending| Column {
        position,
        descending,
        ..Column::new(name, CqlType::Int, kind)
    };
    let mut columns = vec![
        key("k0", ColumnKind::PartitionKey, 0, false),
        key("k1", ColumnKind::PartitionKey, 1, false),
        key("c0", ColumnKind::Clustering, 0, true),
        Column::new("s", CqlType::Text, ColumnKind::Static),
    ];
    let of_type = |(number, cql_type)| Column::new(&format!("r{number:02}"), cql_type, ColumnKind::Regular);
    columns.extend(every_type().into_iter().enumerate().map(of_type));
    let options = TableOptions {
        comment: "all of it".to_owned(),
        bloom_filter_fp_chance: 0.25,
        caching: options(&[("keys", "ALL")]),
        compaction: options(&[("class", "Tiered")]),
        compression: options(&[("class", "Lz4")]),
        crc_check_chance: 0.5,
        default_time_to_live: 1,
        gc_grace_seconds: 2,
        min_index_interval: 3,
        max_index_interval: 4,
        memtable_flush_period_in_ms: 5,
        read_repair: "NONE".to_owned(),
        speculative_retry: "10ms".to_owned(),
        additional_write_policy: "99p".to_owned(),
        cdc: true,
        rate_limits: RateLimits {
            reads: Some(100),
            writes: Some(0),
        },
        tombstone_gc: Some(TombstoneGc {
            mode: TombstoneGcMode::Repair,
            propagation_delay_seconds: 6,
        }),
        tablets: Some(TabletOptions {
            min_tablet_count: Some(2),
            max_tablet_count: Some(64),
            min_per_shard_tablet_count: Some(0.5),
            expected_data_size_in_gb: Some(300),
            pow2_count: Some(true),
        }),
        extensions: options(&[("e", "0x00")]),
        allow_auto_snapshot: false,
        incremental_backups: false,
        paxos_grace_seconds: Some(9),
        guards_large_data: true,
    };
    let mut table = Table::new("ks", "t", TableId(Uuid::from_u128(7)), columns, options);
    table.drop_column("r05", 1_700_000_000_000_000);
    table.compact = Some(CompactStorage::Dense);
    let timestamp = table.regulars().find(|c| c.cql_type == CqlType::Timestamp);
    table.row_ttl = timestamp.map(|c| c.id);
    let ignoring_case = self::options(&[("case_sensitive", "false")]);
    table.add_index("dropped", ("c0", IndexPart::Value), IndexKind::Legacy, BTreeMap::new());
    table.drop_index("dropped");
    table
        .add_index("t_s_idx", ("s", IndexPart::Value), IndexKind::Sai, ignoring_case)
        .class = Some("StorageAttachedIndex".to_owned());
    table.add_index("t_c0_idx", ("c0", IndexPart::Value), IndexKind::Legacy, BTreeMap::new());
    table
}

fn full_type() -> Arc<UdtType> {
    Arc::new(UdtType {
        keyspace: "ks".to_owned(),
        name: "place".to_owned(),
        fields: vec![
            ("x".to_owned(), CqlType::Int),
            ("tags".to_owned(), CqlType::Set(Arc::new(CqlType::Text))),
        ],
    })
}

fn full_function() -> Arc<UserFunction> {
    Arc::new(UserFunction {
        keyspace: "ks".to_owned(),
        name: "f".to_owned(),
        arguments: vec![
            ("a".to_owned(), CqlType::Int),
            ("b".to_owned(), CqlType::List(Arc::new(CqlType::Text))),
        ],
        returns: CqlType::Udt(full_type()),
        called_on_null: true,
        language: Language::Lua,
        body: "return nil".to_owned(),
    })
}

fn full_aggregate() -> Arc<UserAggregate> {
    Arc::new(UserAggregate {
        keyspace: "ks".to_owned(),
        name: "a".to_owned(),
        arguments: vec![CqlType::Text],
        state_function: "take".to_owned(),
        state_type: CqlType::Int,
        reduce_function: Some("join".to_owned()),
        final_function: Some("end".to_owned()),
        returns: CqlType::Double,
        initial_state: Some(vec![0, 0, 0, 7]),
    })
}

fn full_schema() -> Schema {
    let objects = [
        Object::Keyspace(full_keyspace()),
        Object::Type(full_type()),
        Object::Function(full_function()),
        Object::Aggregate(full_aggregate()),
        Object::Table(Arc::new(full_table())),
    ];
    Schema::of_objects(Uuid::from_u128(1), objects).expect("the table is in the keyspace")
}

fn full_change() -> Change {
    let table = ObjectName {
        kind: ObjectKind::Table,
        keyspace: "ks".to_owned(),
        name: "gone".to_owned(),
    };
    Change {
        base: Uuid::from_u128(1),
        next: Uuid::from_u128(2),
        put: vec![Object::Keyspace(full_keyspace())],
        dropped: vec![table],
    }
}

/// Compares with the content of a file of expectations, or writes the file where it is to be rewritten.
#[expect(
    clippy::disallowed_methods,
    reason = "rewrites its own expectations, outside any simulation"
)]
fn check_file(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if std::env::var_os("CETO_REWRITE").is_some() {
        std::fs::write(&path, found).expect("the source tree is writable");
        return;
    }
    let expected = std::fs::read_to_string(&path).expect("the file is part of the crate");
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(
            found,
            expected,
            "{name}, line {}: a durable format has changed",
            number + 1
        );
    }
    assert_eq!(found, expected, "{name}: a durable format has changed");
}

fn print<R: Record + PartialEq + std::fmt::Debug>(name: &str, record: &R) -> String {
    let bytes = record::encode(record);
    assert_eq!(
        record::decode(&bytes, &Known::everything()).as_ref(),
        Ok(record),
        "{name}"
    );
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}\n----\n{}{hex}\n\n", text::print(&bytes, R::MESSAGE))
}

#[test]
fn numbers_and_bytes_are_those_on_disks() {
    let empty = Schema {
        version: Uuid::from_u128(1),
        keyspaces: BTreeMap::new(),
    };
    let found = [
        print("a keyspace", &object_record(&Object::Keyspace(full_keyspace()))),
        print("a table", &object_record(&Object::Table(Arc::new(full_table())))),
        print("a user-defined type", &object_record(&Object::Type(full_type()))),
        print("a function", &object_record(&Object::Function(full_function()))),
        print("an aggregate", &object_record(&Object::Aggregate(full_aggregate()))),
        print("a change", &ChangeRecord::of(&full_change())),
        print("an empty schema", &SchemaRecord::of(&empty)),
    ];
    check_file("records.txt", &found.concat());
    let fields = text::fields(SchemaRecord::MESSAGE) + &text::fields(ChangeRecord::MESSAGE);
    check_file("fields.txt", &fields);
}

#[test]
fn the_pinned_records_have_every_field_there_is() {
    let schema = text::print(
        &record::encode(&SchemaRecord::of(&full_schema())),
        SchemaRecord::MESSAGE,
    );
    let change = text::print(
        &record::encode(&ChangeRecord::of(&full_change())),
        ChangeRecord::MESSAGE,
    );
    let fields = text::fields(SchemaRecord::MESSAGE) + &text::fields(ChangeRecord::MESSAGE);
    let named = fields.lines().filter_map(|line| line.trim().split_once(": "));
    for (field, _) in named {
        let (number, name) = field.split_once(' ').expect("number and name");
        let has = |text: &str| {
            let mut lines = text.lines().map(str::trim);
            lines.any(|line| line.starts_with(&format!("{number} ")) && line.contains(&format!("# {name}")))
        };
        assert!(has(&schema) || has(&change), "no pinned record has field {field}");
    }
}

#[test]
fn schemas_and_changes_come_back_from_their_records() {
    let schema = full_schema();
    let record = SchemaRecord::of(&schema);
    assert_eq!(record.schema(), Ok(schema));
    assert_eq!(ChangeRecord::of(&full_change()).change(), Ok(full_change()));
}

/// The object of a record in the words of `record::text`, as a node with these features reads it.
fn read(text: &str, known: &Known) -> Result<Object, RecordError> {
    let bytes = text::parse(text).expect("the case is a record");
    object_from_record(record::decode::<ObjectRecord>(&bytes, known)?)
}

fn table_text(inside: &str) -> String {
    format!("2 {{\n1 \"ks\"\n2 \"t\"\n3 0x{:032x}\n{inside}\n}}", 7)
}

fn column_text(inside: &str) -> String {
    table_text(&format!("4 {{\n1 \"c\"\n{inside}\n}}\n6 1\n7 {{\n}}"))
}

#[track_caller]
fn expect_refused(text: &str, expected: &str) {
    let error = read(text, &Known::everything()).expect_err(text).to_string();
    assert_eq!(error, expected, "{text}");
}

#[test]
fn an_object_of_no_kind_of_two_or_of_a_later_kind_is_refused() {
    let later = "which this release does not support; a later release wrote it";
    expect_refused("", "object is damaged: it has no kind");
    let both = "1 {\n1 \"ks\"\n}\n".to_owned() + &table_text("7 {\n}");
    expect_refused(&both, "object is damaged: it has two kinds");
    for (number, what) in [(4, "a materialized view"), (5, "a secondary index"), (8, "a role")] {
        let expected = format!("object has field {number} ({what}), {later}");
        expect_refused(&format!("{number} {{\n1 \"admin\"\n}}"), &expected);
    }
    expect_refused(
        "77 {\n}",
        "object has field 77, which this release does not know; a later release wrote it",
    );
}

#[test]
fn a_field_that_is_unknown_or_damaged_is_named_with_its_object() {
    let unknown = |place: &str, number: u32| {
        format!("{place} has field {number}, which this release does not know; a later release wrote it")
    };
    expect_refused("1 {\n3 1\n}", "keyspace, name is damaged: it is missing");
    expect_refused("1 {\n1 \"ks\"\n9 1\n}", &unknown("keyspace ks", 9));
    let cases = [
        (table_text(""), "table ks.t, options is damaged: it is missing"),
        (
            table_text("6 70000\n7 {\n}"),
            "table ks.t, next_column_id is damaged: expected at most 65535, found 70000",
        ),
        (table_text("7 {\n99 1\n}"), &unknown("table ks.t, options", 99)),
        (
            table_text("7 {\n17 {\n3 5\n}\n}"),
            &unknown("table ks.t, options, per_partition_rate_limit", 3),
        ),
        (
            "2 {\n1 \"ks\"\n2 \"t\"\n3 0x00\n7 {\n}\n}".to_owned(),
            "table ks.t, id is damaged: expected the 16 bytes of a UUID, found 1",
        ),
    ];
    for (text, expected) in cases {
        expect_refused(&text, expected);
    }
}

#[test]
fn a_column_that_cannot_be_is_refused() {
    let c = |rest: &str| format!("table ks.t, column c, {rest}");
    let cases = [
        ("3 4\n6 0", c("type is damaged: it is missing")),
        (
            "2 {\n1 12\n}\n3 9\n6 0",
            c("kind is damaged: expected a kind from 1 to 4, found 9"),
        ),
        ("2 {\n1 99\n}\n3 4\n6 0", c("type is damaged: there is no type 99")),
        (
            "2 {\n1 40\n}\n3 4\n6 0",
            c("type is damaged: type 40 with 0 types inside"),
        ),
        (
            "2 {\n1 12\n3 5\n}\n3 4\n6 0",
            c("type is damaged: type 12 has what only others have"),
        ),
        ("2 {\n1 12\n}\n3 4", c("id is damaged: it is missing")),
        ("2 {\n1 12\n}\n3 1\n6 0", c("id is damaged: a column of a key has none")),
        (
            "2 {\n1 12\n}\n3 4\n6 1",
            "table ks.t, columns is damaged: column c has id 1, and the next is 1".to_owned(),
        ),
    ];
    let gc = table_text("6 1\n7 {\n18 {\n1 \"often\"\n}\n}");
    expect_refused(
        &gc,
        "table ks.t, options, tombstone_gc is damaged: there is no mode 'often'",
    );
    for (column, expected) in cases {
        expect_refused(&column_text(column), &expected);
    }
    expect_refused(
        &table_text("5 {\n1 \"d\"\n2 {\n1 12\n}\n3 1\n}\n6 1\n7 {\n}"),
        "table ks.t, dropped column d, kind is damaged: a column of a key cannot be dropped",
    );
    expect_refused(
        &table_text("4 {\n1 \"c\"\n2 {\n1 12\n}\n3 4\n6 0\n}\n5 {\n1 \"d\"\n2 {\n1 12\n}\n3 4\n}\n6 1\n7 {\n}"),
        "table ks.t, columns is damaged: column d has id 0, which another one has",
    );
}

#[test]
fn a_node_from_before_rate_limits_refuses_a_table_that_has_some_and_reads_one_that_has_none() {
    let before = Known::features(["another_feature"]);
    let limited = object_record(&Object::Table(Arc::new(full_table())));
    let error = record::decode::<ObjectRecord>(&record::encode(&limited), &before).expect_err("it must not be dropped");
    let expected = Problem::Unknown {
        number: 17,
        reserved_for: None,
    };
    assert_eq!(
        (error.place.as_str(), &error.problem),
        ("table ks.t, options", &expected)
    );
    let needs: Vec<&str> = record::needs(&limited).iter().map(|need| need.feature).collect();
    assert_eq!(needs, [PER_PARTITION_RATE_LIMIT]);

    let mut table = full_table();
    table.options.rate_limits = RateLimits::default();
    let free = object_record(&Object::Table(Arc::new(table)));
    assert_eq!(record::needs(&free), []);
    assert_eq!(record::decode(&record::encode(&free), &before), Ok(free));
}

#[test]
fn a_table_with_a_ttl_column_comes_back_and_the_column_can_be_one() {
    let full = full_table();
    let table = Table {
        compact: None,
        options: TableOptions::default(),
        ..full.clone()
    };
    let record = object_record(&Object::Table(Arc::new(table.clone())));
    assert_eq!(object_from_record(record), Ok(Object::Table(Arc::new(table))));
    expect_refused(
        &table_text("7 {\n}\n9 3"),
        "table ks.t, row_ttl is damaged: no regular column with a type for it has the number 3",
    );
}

#[test]
fn a_compact_table_comes_back_and_its_form_is_a_known_one() {
    let plain = Table::new(
        "ks",
        "t",
        TableId(Uuid::from_u128(7)),
        Vec::new(),
        TableOptions::default(),
    );
    for form in [CompactStorage::Static, CompactStorage::Dense] {
        let table = Object::Table(Arc::new(Table {
            compact: Some(form),
            ..plain.clone()
        }));
        let record = object_record(&table);
        assert_eq!(object_from_record(record), Ok(table));
    }
    expect_refused(
        &table_text("7 {\n}\n8 3"),
        "table ks.t, compact_storage is damaged: it is 3; 0, 1 and 2 are known",
    );
}

#[test]
fn a_type_comes_back_and_is_refused_without_name_or_keyspace() {
    let object = object_record(&Object::Type(full_type()));
    let bytes = record::encode(&object);
    let read: ObjectRecord = record::decode(&bytes, &Known::everything()).expect("it was just written");
    assert_eq!(object_from_record(read), Ok(Object::Type(full_type())));
    let nameless = "user-defined type is damaged: expected a user-defined type with keyspace and name, found";
    expect_refused("3 {\n1 12\n}", &format!("{nameless} int"));
    expect_refused("3 {\n1 44\n4 \"ks\"\n}", &format!("{nameless} \"\""));
}

#[test]
fn functions_and_aggregates_come_back_and_are_refused_without_what_they_need() {
    for object in [Object::Function(full_function()), Object::Aggregate(full_aggregate())] {
        let record = object_record(&object);
        let bytes = record::encode(&record);
        let read: ObjectRecord = record::decode(&bytes, &Known::everything()).expect("it was just written");
        assert_eq!(object_from_record(read), Ok(object));
    }
    let names = "1 \"ks\"\n2 \"f\"\n";
    expect_refused(
        "6 {\n1 \"ks\"\n}",
        "function is damaged: its keyspace or name is missing",
    );
    expect_refused(
        &format!("6 {{\n{names}3 \"a\"\n5 {{\n1 12\n}}\n7 \"lua\"\n}}"),
        "function is damaged: 1 names and 0 types of arguments",
    );
    expect_refused(
        &format!("6 {{\n{names}5 {{\n1 12\n}}\n7 \"java\"\n}}"),
        "function, language is damaged: expected lua or wasm, found java",
    );
    expect_refused(
        &format!("6 {{\n{names}7 \"lua\"\n}}"),
        "function, returns is damaged: it is missing",
    );
    expect_refused(
        &format!("7 {{\n{names}5 {{\n1 12\n}}\n8 {{\n1 12\n}}\n}}"),
        "aggregate, state_function is damaged: it is missing",
    );
    expect_refused(
        &format!("7 {{\n{names}4 \"s\"\n5 {{\n1 12\n}}\n8 {{\n1 12\n}}\n9 0x00\n}}"),
        "aggregate, initial_state is damaged: Expected 4 or 0 byte int (1)",
    );
}

#[test]
fn functions_are_put_and_dropped_by_signature() {
    let base = full_schema();
    let mut next = base.clone();
    next.version = Uuid::from_u128(2);
    let keyspace = Arc::make_mut(next.keyspaces.get_mut("ks").expect("it is there"));
    keyspace.aggregates.clear();
    let function = keyspace.functions.get_mut("f(int, list<text>)").expect("it is there");
    Arc::make_mut(function).body = "return 1".to_owned();
    let mut overload = UserFunction::clone(function);
    overload.arguments.pop();
    let overload = Arc::new(overload);
    keyspace.functions.insert(overload.signature(), overload);
    let change = Change::between(&base, &next);
    let put: Vec<String> = change.put.iter().map(|object| object.name().to_string()).collect();
    assert_eq!(put, ["function ks.f(int)", "function ks.f(int, list<text>)"]);
    let dropped: Vec<String> = change.dropped.iter().map(ToString::to_string).collect();
    assert_eq!(dropped, ["aggregate ks.a(text)"]);
    let read = ChangeRecord::of(&change).change().expect("it was a change");
    assert_eq!(read.apply(&base), Ok(next));
}

#[test]
fn an_altered_type_is_put_with_the_tables_that_use_it() {
    let mut base = full_schema();
    let keyspace = Arc::make_mut(base.keyspaces.get_mut("ks").expect("it is there"));
    let column = |t: CqlType| Column::new("p", t, ColumnKind::Regular);
    let key = Column::new("k", CqlType::Int, ColumnKind::PartitionKey);
    let columns = vec![key, column(CqlType::List(Arc::new(CqlType::Udt(full_type()).frozen())))];
    let user = Table::new(
        "ks",
        "user",
        TableId(Uuid::from_u128(9)),
        columns,
        TableOptions::default(),
    );
    keyspace.tables.insert("user".to_owned(), Arc::new(user));
    let mut next = base.clone();
    next.version = Uuid::from_u128(2);
    let mut wider = UdtType::clone(&full_type());
    wider.fields.push(("y".to_owned(), CqlType::Int));
    let wider = Arc::new(wider);
    let keyspace = Arc::make_mut(next.keyspaces.get_mut("ks").expect("it is there"));
    keyspace.types.insert("place".to_owned(), wider.clone());
    Arc::make_mut(keyspace.tables.get_mut("user").expect("it is there")).alter_type(&wider);
    let change = Change::between(&base, &next);
    let names = |objects: &[Object]| objects.iter().map(|o| o.name().to_string()).collect::<Vec<_>>();
    assert_eq!(names(&change.put), ["type ks.place", "table ks.user"]);
    assert_eq!(change.apply(&base), Ok(next.clone()));
    let keyspace = Arc::make_mut(next.keyspaces.get_mut("ks").expect("it is there"));
    keyspace.tables.remove("user");
    keyspace.types.remove("place");
    next.version = Uuid::from_u128(3);
    let change = Change::between(&base, &next);
    let dropped: Vec<String> = change.dropped.iter().map(ToString::to_string).collect();
    assert_eq!(dropped, ["table ks.user", "type ks.place"]);
    assert_eq!(change.apply(&base), Ok(next));
}

#[test]
fn a_change_has_only_what_differs_and_shares_the_rest() {
    let base = full_schema();
    let mut other = full_table();
    (other.name, other.id) = ("other".to_owned(), TableId(Uuid::from_u128(8)));
    let objects = base.objects().chain([Object::Table(Arc::new(other))]);
    let next = Schema::of_objects(Uuid::from_u128(2), objects).expect("the keyspace is there");
    let change = Change::between(&base, &next);
    let put: Vec<String> = change.put.iter().map(|object| object.name().to_string()).collect();
    assert_eq!((put, change.dropped.len()), (vec!["table ks.other".to_owned()], 0));
    let after = change.apply(&base).expect("it fits");
    assert_eq!(after, next);
    let table = |schema: &Schema| schema.table("ks", "t").expect("it is there").clone();
    assert!(
        Arc::ptr_eq(&table(&base), &table(&after)),
        "a table that did not change is another one"
    );

    let back = Change::between(&next, &base);
    let dropped: Vec<String> = back.dropped.iter().map(ToString::to_string).collect();
    assert_eq!((back.put.len(), dropped), (0, vec!["table ks.other".to_owned()]));
    assert_eq!(back.apply(&next), Ok(base.clone()));
    assert_eq!(
        back.apply(&base),
        Err("table ks.other is dropped and does not exist".to_owned())
    );
    let orphan = Change {
        put: vec![Object::Table(Arc::new(full_table()))],
        dropped: vec![Object::Keyspace(full_keyspace()).name()],
        ..back
    };
    assert_eq!(
        orphan.apply(&base),
        Err("table ks.t is in a keyspace that does not exist".to_owned())
    );
}

#[test]
fn an_object_that_is_there_twice_is_refused() {
    let twice = [Object::Keyspace(full_keyspace()), Object::Keyspace(full_keyspace())];
    assert_eq!(
        Schema::of_objects(Uuid::nil(), twice),
        Err("keyspace ks is there twice".to_owned())
    );
}

#[test]
fn objects_beside_a_snapshot_come_back_and_damage_is_noticed() {
    let objects: Vec<Object> = full_schema().objects().collect();
    let file = seal_objects(&objects);
    assert_eq!(open_objects(&file, &Known::everything()), Ok(objects));
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        assert!(open_objects(&damaged, &Known::everything()).is_err(), "damage at {at}");
        assert!(open_objects(&file[..at], &Known::everything()).is_err(), "cut at {at}");
    }
}

fn any_name() -> impl Strategy<Value = String> {
    "[a-zA-Z_ü]{1,12}"
}

fn any_options() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[ -~]{0,8}", "[ -~]{0,8}", 0..4)
}

fn any_type() -> impl Strategy<Value = CqlType> {
    prop::sample::select(every_type()).prop_recursive(6, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|t| CqlType::List(Arc::new(t))),
            inner.clone().prop_map(|t| CqlType::Frozen(Arc::new(t))),
            (inner.clone(), inner.clone()).prop_map(|(k, v)| CqlType::Map(Arc::new(k), Arc::new(v))),
            (inner.clone(), 1..=types::DIMENSION_MAX)
                .prop_map(|(t, dimension)| CqlType::Vector(Arc::new(t), dimension)),
            prop::collection::vec(inner, 0..4).prop_map(|types| CqlType::Tuple(types.into())),
        ]
    })
}

fn any_table_options() -> impl Strategy<Value = TableOptions> {
    let numbers = (any::<[i32; 5]>(), 0.0..1.0, 0.0..1.0, any::<bool>());
    let texts = ("[ -~]{0,9}", any_name(), any_name(), any_name());
    let maps = (any_options(), any_options(), any_options(), any_options());
    let limits = (any::<Option<u32>>(), any::<Option<u32>>());
    let newer = (any::<[bool; 3]>(), any::<Option<u32>>());
    let gc = prop::option::of((prop::sample::select(&TombstoneGcMode::ALL[..]), any::<u32>()));
    let tablets = prop::option::of((
        any::<[Option<u32>; 3]>(),
        prop::option::of(0.0..9.0),
        any::<Option<bool>>(),
    ));
    (numbers, texts, maps, limits, (gc, tablets, newer)).prop_map(
        |((n, fp, crc, cdc), texts, maps, (reads, writes), (gc, tablets, newer))| TableOptions {
            comment: texts.0,
            bloom_filter_fp_chance: fp,
            caching: maps.0,
            compaction: maps.1,
            compression: maps.2,
            crc_check_chance: crc,
            default_time_to_live: n[0],
            gc_grace_seconds: n[1],
            min_index_interval: n[2],
            max_index_interval: n[3],
            memtable_flush_period_in_ms: n[4],
            read_repair: texts.1,
            speculative_retry: texts.2,
            additional_write_policy: texts.3,
            cdc,
            rate_limits: RateLimits { reads, writes },
            tombstone_gc: gc.map(|(mode, propagation_delay_seconds)| TombstoneGc {
                mode,
                propagation_delay_seconds,
            }),
            tablets: tablets.map(|([least, most, size], per_shard, pow2_count)| TabletOptions {
                min_tablet_count: least,
                max_tablet_count: most,
                min_per_shard_tablet_count: per_shard,
                expected_data_size_in_gb: size,
                pow2_count,
            }),
            extensions: maps.3,
            allow_auto_snapshot: newer.0[0],
            incremental_backups: newer.0[1],
            paxos_grace_seconds: newer.1,
            guards_large_data: newer.0[2],
        },
    )
}

fn any_table() -> impl Strategy<Value = Table> {
    let columns = prop::collection::btree_map(any_name(), (any_type(), 0..4_u8, any::<u16>(), any::<bool>()), 1..9);
    let drops = prop::collection::vec((any::<prop::sample::Index>(), any::<i64>()), 0..3);
    let place = any::<prop::sample::Index>;
    let index = (
        any_name(),
        place(),
        place(),
        place(),
        any_options(),
        prop::option::of(any_name()),
    );
    let indexes = prop::collection::vec(index, 0..3);
    let parts = (any_name(), any::<u128>(), columns, any_table_options(), drops, indexes);
    parts.prop_map(|(name, id, columns, options, drops, indexes)| {
        let columns = columns
            .into_iter()
            .map(|(name, (cql_type, kind, position, descending))| {
                use ColumnKind::{Clustering, PartitionKey, Regular, Static};
                let kind = [PartitionKey, Clustering, Static, Regular][usize::from(kind)];
                Column {
                    position,
                    descending,
                    ..Column::new(&name, cql_type, kind)
                }
            });
        let mut table = Table::new("ks", &name, TableId(Uuid::from_u128(id)), columns.collect(), options);
        for (which, at) in drops {
            let droppable = table.statics().chain(table.regulars());
            let names: Vec<String> = droppable.map(|c| c.name.clone()).collect();
            if !names.is_empty() {
                table.drop_column(&names[which.index(names.len())], at);
            }
        }
        for (name, column, part, kind, options, class) in indexes {
            let columns: Vec<String> = table.columns.iter().map(|c| c.name.clone()).collect();
            if columns.is_empty() {
                continue;
            }
            use IndexPart::{Entries, Full, Keys, Value, Values};
            let target = (
                columns[column.index(columns.len())].as_str(),
                [Value, Keys, Values, Entries, Full][part.index(5)],
            );
            use IndexKind::{Legacy, Local, Sai, Sasi};
            table.drop_index(&name);
            let kind = [Legacy, Sai, Sasi, Local][kind.index(4)];
            table.add_index(&name, target, kind, options).class = class;
        }
        table
    })
}

fn any_schema() -> impl Strategy<Value = Schema> {
    let tables = prop::collection::vec(any_table(), 0..4);
    let keyspace = (any_options(), any::<bool>(), prop::option::of(any_options()), tables);
    let keyspaces = prop::collection::btree_map(any_name(), keyspace, 0..4);
    (any::<u128>(), keyspaces).prop_map(|(version, keyspaces)| {
        let keyspaces = keyspaces
            .into_iter()
            .map(|(name, (replication, durable_writes, tablets, tables))| {
                let in_keyspace = |mut table: Table| {
                    table.keyspace.clone_from(&name);
                    (table.name.clone(), Arc::new(table))
                };
                let keyspace = KeyspaceObject {
                    name: name.clone(),
                    replication,
                    durable_writes,
                    tablets,
                };
                let mut keyspace = keyspace.with_objects_of(None);
                keyspace.tables = tables.into_iter().map(in_keyspace).collect();
                (name, Arc::new(keyspace))
            });
        Schema {
            version: Uuid::from_u128(version),
            keyspaces: keyspaces.collect(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_schema_comes_back_from_its_bytes(schema in any_schema()) {
        let bytes = record::encode(&SchemaRecord::of(&schema));
        let read: SchemaRecord = record::decode(&bytes, &Known::everything()).expect("this release wrote it");
        prop_assert_eq!(read.schema().expect("it was a schema"), schema);
    }

    #[test]
    fn a_change_between_any_two_schemas_makes_the_one_of_the_other(base in any_schema(), next in any_schema()) {
        let change = Change::between(&base, &next);
        let bytes = record::encode(&ChangeRecord::of(&change));
        let read: ChangeRecord = record::decode(&bytes, &Known::everything()).expect("this release wrote it");
        let read = read.change().expect("it was a change");
        prop_assert_eq!(&read, &change);
        prop_assert_eq!(read.apply(&base), Ok(next));
    }

    #[test]
    fn changed_bytes_are_refused_or_another_schema(schema in any_schema(), at in any::<usize>(), to in any::<u8>()) {
        let mut bytes = record::encode(&SchemaRecord::of(&schema));
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(record) = record::decode::<SchemaRecord>(&bytes, &Known::everything()) {
            prop_assert_eq!(record::encode(&record), bytes);
            drop(record.schema());
        }
    }
}
