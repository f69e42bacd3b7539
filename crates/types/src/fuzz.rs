//! What the fuzzer needs of types: values and names to begin with, and everything that reads them.

use std::cmp::Ordering;

use crate::{
    CqlType, Duration, LiteralKind, partition_key_from_marshal_name, partition_key_marshal_name, sorted, term,
};

/// The first byte of an input chooses one of these, or by its top bit that the rest is a text.
const TYPES: &[&str] = &[
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "counter",
    "date",
    "decimal",
    "double",
    "duration",
    "float",
    "inet",
    "int",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
    "varint",
    "list<int>",
    "set<text>",
    "map<varint, text>",
    "tuple<int, text, uuid>",
    "vector<float, 3>",
    "vector<text, 2>",
    "frozen<map<int, frozen<set<decimal>>>>",
    "list<frozen<tuple<int, frozen<list<text>>>>>",
    "map<timeuuid, frozen<map<text, duration>>>",
    "tuple<frozen<set<float>>, inet>",
    "frozen<'org.apache.cassandra.db.marshal.UserType(ks,706f696e74,78:org.apache.cassandra.db.marshal.Int32Type,79:org.apache.cassandra.db.marshal.SetType(org.apache.cassandra.db.marshal.UTF8Type))'>",
    "map<text, 'org.apache.cassandra.db.marshal.FrozenType(org.apache.cassandra.db.marshal.UserType(ks,70,78:org.apache.cassandra.db.marshal.TupleType(org.apache.cassandra.db.marshal.Int32Type)))'>",
];
const KINDS: [LiteralKind; 7] = [
    LiteralKind::String,
    LiteralKind::Integer,
    LiteralKind::Float,
    LiteralKind::Boolean,
    LiteralKind::Uuid,
    LiteralKind::Hex,
    LiteralKind::Duration,
];
const IS_TEXT: u8 = 0x80;

fn types() -> impl Iterator<Item = CqlType> {
    TYPES
        .iter()
        .map(|name| CqlType::parse_native(name).expect("the name of a type"))
}

/// Values of each type, literals, and names of types.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let values: &[(u8, &[u8])] = &[
        (0, b"ascii"),
        (1, &[0, 0, 0, 0, 0, 0, 1, 0]),
        (3, &[1]),
        (5, &[0x80, 0, 0x4e, 0x20]),
        (6, &[0, 0, 0, 2, 4, 0xd2]),
        (8, &[2, 4, 0xc0, 0x80]),
        (9, &[0x7f, 0xc0, 0, 0]),
        (10, &[10, 0, 0, 1]),
        (11, &[0, 0, 0, 7]),
        (13, "ä text".as_bytes()),
        (14, &[0, 0, 0x4e, 0x94, 0x91, 0x4e, 0xff, 0xff]),
        (15, &[0, 0, 1, 0x8c, 0, 0, 0, 0]),
        (
            16,
            &[
                0x5d, 0x1a, 0x4b, 0, 0xf6, 0xd4, 0x11, 0xea, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
            ],
        ),
        (19, &[0x80, 0, 0, 0, 0, 0, 0, 0, 0]),
        (20, &[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 2]),
        (21, &[0, 0, 0, 2, 0, 0, 0, 1, b'a', 0, 0, 0, 1, b'b']),
        (
            22,
            &[0, 0, 0, 2, 0, 0, 0, 1, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 1, 9, 0, 0, 0, 0],
        ),
        (23, &[0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, b'x', 0xff, 0xff, 0xff, 0xff]),
        (24, &[0x3f, 0x80, 0, 0, 0x40, 0, 0, 0, 0x7f, 0x80, 0, 0]),
        (25, &[1, b'a', 2, b'b', b'c']),
        (
            26,
            &[
                0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 13, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 1, 7,
            ],
        ),
    ];
    let texts = [
        "2024-02-29 23:59:59.999+0100",
        "1969-12-31",
        "13:14:15.123456789",
        "P1Y2M3DT4H5M6S",
        "P1Y2M3DT",
        "1y2mo3w4d5h6m7s8ms9us10ns",
        "P0001-02-03T04:05:06",
        "-12345678901234567890",
        "1.5e-300",
        "-0x0fff",
        "NaN",
        "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        "2001:db8::1",
        "map<text, frozen<list<tuple<int, vector<float, 3>>>>>",
        "org.apache.cassandra.db.marshal.ReversedType(org.apache.cassandra.db.marshal.TimeUUIDType)",
        "org.apache.cassandra.db.marshal.MapType(org.apache.cassandra.db.marshal.UTF8Type,org.apache.cassandra.db.marshal.FrozenType(org.apache.cassandra.db.marshal.ListType(org.apache.cassandra.db.marshal.Int32Type)))",
        "org.apache.cassandra.db.marshal.CompositeType(org.apache.cassandra.db.marshal.Int32Type,org.apache.cassandra.db.marshal.BytesType)",
        "org.apache.cassandra.db.marshal.UserType(ks,706f696e74,78:org.apache.cassandra.db.marshal.Int32Type,79:org.apache.cassandra.db.marshal.UTF8Type)",
    ];
    let values = values.iter().map(|(number, bytes)| [&[*number], *bytes].concat());
    values
        .chain(texts.iter().map(|text| [&[IS_TEXT], text.as_bytes()].concat()))
        .collect()
}

/// Reads the bytes as a value of the chosen type and as a text.
pub fn read(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    if first & IS_TEXT == 0 {
        let cql_type = types().nth(usize::from(first) % TYPES.len()).expect("fewer");
        read_value(&cql_type, bytes);
    } else {
        read_text(&String::from_utf8_lossy(bytes));
    }
}

fn read_value(cql_type: &CqlType, bytes: &[u8]) {
    let comparator = cql_type.comparator();
    let mut listed = Vec::new();
    term::put_term(cql_type, bytes, &mut listed);
    assert!(listed.len() <= term::TERM_MAX, "the term of a {cql_type} is too long");
    // Text for an error message, whatever the bytes are.
    let (_, unquoted) = (cql_type.format(bytes), cql_type.format_unquoted(bytes));
    let Ok(value) = cql_type.deserialize(bytes) else {
        assert!(
            cql_type.validate(bytes).is_err(),
            "{cql_type} is refused, but was validated"
        );
        return;
    };
    assert_eq!(
        comparator.compare(bytes, bytes),
        Ordering::Equal,
        "a {cql_type} differs from itself"
    );
    let written = value.serialize();
    assert_eq!(cql_type.validate(&written), Ok(()), "a {cql_type} was written wrong");
    let again = cql_type.deserialize(&written).expect("it was validated");
    assert_eq!(
        again.serialize(),
        written,
        "a {cql_type} changes when it is written twice"
    );
    let in_order = sorted::sorted(cql_type, bytes);
    assert_eq!(
        cql_type.validate(&in_order),
        Ok(()),
        "a {cql_type} is damaged by sorting"
    );
    assert_eq!(
        sorted::sorted(cql_type, &in_order),
        in_order,
        "a {cql_type} is sorted twice"
    );
    if CqlType::SCALARS.contains(cql_type) && !bytes.is_empty() {
        for kind in KINDS {
            if let Ok(read) = cql_type.parse_literal(kind, &unquoted) {
                assert_eq!(
                    cql_type.validate(&read),
                    Ok(()),
                    "the {cql_type} {unquoted:?} was read wrong"
                );
            }
        }
    }
}

fn read_text(text: &str) {
    for cql_type in CqlType::SCALARS {
        for kind in KINDS {
            if let Ok(bytes) = cql_type.parse_literal(kind, text) {
                assert_eq!(
                    cql_type.validate(&bytes),
                    Ok(()),
                    "the {kind} {text:?} is no {cql_type}"
                );
            }
        }
    }
    if let Ok(duration) = Duration::parse(text) {
        let mut bytes = Vec::new();
        duration.serialize_into(&mut bytes);
        assert_eq!(Duration::deserialize(&bytes), Ok(duration), "the duration {text:?}");
    }
    if let Ok(cql_type) = CqlType::parse_native(text) {
        let name = cql_type.to_string();
        assert_eq!(
            CqlType::parse_native(&name).as_ref(),
            Ok(&cql_type),
            "the type {text:?} is named {name:?}"
        );
    }
    if let Ok((cql_type, _)) = CqlType::from_marshal_name(text) {
        let name = cql_type.marshal_name();
        assert_eq!(
            CqlType::from_marshal_name(&name),
            Ok((cql_type, false)),
            "the class {text:?} is named {name:?}"
        );
    }
    if let Ok(columns) = partition_key_from_marshal_name(text) {
        let name = partition_key_marshal_name(&columns);
        assert_eq!(
            partition_key_from_marshal_name(&name),
            Ok(columns),
            "the key {text:?} is named {name:?}"
        );
    }
}
