//! Names of types, in CQL and as Java classes, agree with Cassandra's and come back from their text.

use std::sync::Arc;

use types::{
    CqlType, NESTING_MAX, TypeNameProblem, UdtType, partition_key_from_marshal_name, partition_key_marshal_name,
    quote_identifier,
};

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

/// Drops the package at every occurrence.
fn short(class: &str) -> String {
    class.replace(PACKAGE, "")
}

fn find_udts(of: &CqlType, found: &mut Vec<Arc<UdtType>>) {
    match of {
        CqlType::Udt(udt) => found.push(Arc::clone(udt)),
        CqlType::Frozen(inner) | CqlType::List(inner) | CqlType::Set(inner) | CqlType::Vector(inner, _) => {
            find_udts(inner, found);
        }
        CqlType::Map(key, value) => [key, value].into_iter().for_each(|part| find_udts(part, found)),
        CqlType::Tuple(elements) => elements.iter().for_each(|part| find_udts(part, found)),
        _ => {}
    }
}

#[test]
fn drivers_are_not_told_what_is_frozen() {
    for (stored, told) in [
        (
            "VectorType(FrozenType(SetType(FloatType)) , 2)",
            "VectorType(SetType(FloatType) , 2)",
        ),
        (
            "VectorType(VectorType(FrozenType(MapType(UTF8Type,Int32Type)) , 5) , 3)",
            "VectorType(VectorType(MapType(UTF8Type,Int32Type) , 5) , 3)",
        ),
        (
            "VectorType(FrozenType(UserType(ks,61,62:ListType(Int32Type))) , 2)",
            "VectorType(UserType(ks,61,62:ListType(Int32Type)) , 2)",
        ),
        ("FrozenType(ListType(Int32Type))", "ListType(Int32Type)"),
        ("DurationType", "DurationType"),
    ] {
        let (read, _) = CqlType::from_marshal_name(stored).expect(stored);
        assert_eq!(short(&read.marshal_name_unfrozen()), told);
    }
}

#[test]
fn as_cassandra() {
    for line in include_str!("cassandra/names.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [class, fixed_len, cql, multi_cell, written] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("five fields in: {line}");
        };
        let (read, is_reversed) = CqlType::from_marshal_name(class).expect(line);
        assert_eq!(is_reversed, class.starts_with("ReversedType"), "order of {class}");
        assert_eq!(read.to_string(), cql, "CQL name of {class}");
        assert_eq!(
            read.fixed_len()
                .map_or(-1, |len| i64::try_from(len).expect("small"))
                .to_string(),
            fixed_len,
            "fixed length of {class}"
        );
        assert_eq!(read.is_multi_cell().to_string(), multi_cell, "cells of {class}");
        let full = if is_reversed {
            read.marshal_name_reversed()
        } else {
            read.marshal_name()
        };
        if !class.contains("ReversedType") || is_reversed {
            // Cassandra keeps the name that 1.x had for timestamps; ceto writes the one that replaced it.
            assert_eq!(
                short(&full),
                if written == "DateType" {
                    "TimestampType"
                } else {
                    written
                },
                "class written for {class}"
            );
        }
        // A frozen user-defined type does not say which of its fields are frozen, so the text comes back, not always
        // the type.
        let (read_back, is_read_back_reversed) = CqlType::from_marshal_name(&full).expect(&full);
        assert_eq!(
            (read_back.marshal_name(), is_read_back_reversed),
            (read.marshal_name(), is_reversed),
            "{full} is read back"
        );

        let mut udts = Vec::new();
        find_udts(&read, &mut udts);
        let resolve = |_: Option<&str>, name: &str| udts.iter().find(|udt| udt.name == name).cloned();
        if cql != "frozen<tuple<>>" {
            assert_eq!(CqlType::parse(cql, &resolve).expect(cql), read, "{cql} is read back");
        }
    }
}

#[test]
fn cql_text_takes_what_people_write() {
    let address = Arc::new(UdtType {
        keyspace: "ks".to_owned(),
        name: "Address".to_owned(),
        fields: vec![("street".to_owned(), CqlType::Text)],
    });
    let resolve = |keyspace: Option<&str>, name: &str| {
        (keyspace.is_none_or(|keyspace| keyspace == "ks") && name == "Address").then(|| Arc::clone(&address))
    };
    let table = [
        ("varchar", "text"),
        (" INT ", "int"),
        ("Map<Text,List<int>>", "map<text, frozen<list<int>>>"),
        ("frozen<tuple<int>>", "frozen<tuple<int>>"),
        (
            "tuple<int,frozen< tuple<text> >>",
            "frozen<tuple<int, frozen<tuple<text>>>>",
        ),
        ("frozen<frozen<set<int>>>", "frozen<set<int>>"),
        ("vector<float, 3>", "vector<float, 3>"),
        ("ks.\"Address\"", "\"Address\""),
        ("list<\"Address\">", "list<frozen<\"Address\">>"),
        ("'org.apache.cassandra.db.marshal.EmptyType'", "empty"),
        ("'ListType(Int32Type)'", "list<int>"),
    ];
    for (text, name) in table {
        let parsed = CqlType::parse(text, &resolve).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(parsed.to_string(), name, "name of {text}");
    }
}

#[test]
fn text_that_names_no_type_is_refused_with_its_place() {
    testkit::run(testkit::path!("tests/refused_names.txt"), |case| {
        let text = case.arguments();
        let error = match case.command() {
            "cql" => CqlType::parse_native(text).expect_err(text),
            _ => CqlType::from_marshal_name(text).map(|(read, _)| read).expect_err(text),
        };
        let message = error.to_string();
        assert!(message.contains(&format!("at offset {} ", error.at)), "{message}");
        message
    });
}

#[test]
fn a_hostile_nesting_is_refused_before_it_costs_the_stack() {
    let deep = 100_000;
    let error = CqlType::parse_native(&"list<".repeat(deep)).expect_err("too deep");
    assert_eq!(error.problem, TypeNameProblem::TooDeep);
    let error = CqlType::from_marshal_name(&"ListType(".repeat(deep)).expect_err("too deep");
    assert_eq!(error.problem, TypeNameProblem::TooDeep);
    let allowed = format!("{}int{}", "list<".repeat(NESTING_MAX), ">".repeat(NESTING_MAX));
    CqlType::parse_native(&allowed).expect("the limit itself is allowed");
}

#[test]
fn partition_keys_are_one_class_or_a_composite() {
    for columns in [
        vec![CqlType::Int],
        vec![CqlType::Int, CqlType::Text],
        vec![CqlType::Tuple(Arc::new([CqlType::Int])), CqlType::Uuid],
    ] {
        let class = partition_key_marshal_name(&columns);
        assert_eq!(
            partition_key_from_marshal_name(&class),
            Ok(columns),
            "{class} is read back"
        );
    }
    assert_eq!(
        partition_key_marshal_name(&[CqlType::Int, CqlType::Text]),
        "org.apache.cassandra.db.marshal.CompositeType(org.apache.cassandra.db.marshal.Int32Type,org.apache.cassandra.db.marshal.UTF8Type)"
    );
}

#[test]
fn identifiers_are_quoted_when_they_must_be() {
    for (name, quoted) in [
        ("abc_1", "abc_1"),
        ("Abc", "\"Abc\""),
        ("a b", "\"a b\""),
        ("1a", "\"1a\""),
        ("a\"b", "\"a\"\"b\""),
        ("select", "\"select\""),
        ("", "\"\""),
    ] {
        assert_eq!(quote_identifier(name), quoted);
    }
}
