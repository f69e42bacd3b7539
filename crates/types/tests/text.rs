//! Literals are read, and values are written, as Cassandra does both. What ceto does otherwise is listed here too.

use testkit::hex;
use types::{CqlType, LiteralKind, TypeError};

fn bytes_from_hex(hex: &str) -> Vec<u8> {
    testkit::from_hex(if hex == "-" { "" } else { hex })
}

fn cases<const N: usize>(file: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    file.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&str> = line.splitn(N, '|').collect();
        fields.try_into().unwrap_or_else(|_| panic!("{N} fields in: {line}"))
    })
}

fn class(name: &str) -> CqlType {
    CqlType::from_marshal_name(name).expect(name).0
}

fn outcome(result: Result<Vec<u8>, TypeError>) -> String {
    result.map_or_else(|error| format!("! {}", error.message_for("c")), |bytes| hex(&bytes))
}

#[test]
fn texts_are_read_as_cassandra_reads_them() {
    for [name, text, expected] in cases(include_str!("cassandra/texts.txt")) {
        let kind = if name == "DurationType" {
            LiteralKind::Duration
        } else {
            LiteralKind::String
        };
        assert_eq!(
            outcome(class(name).parse_literal(kind, text)),
            expected,
            "{name} {text:?}"
        );
    }
}

#[test]
fn literals_are_read_as_cassandra_reads_them() {
    for [name, kind, text, expected] in cases(include_str!("cassandra/literals.txt")) {
        let kind = match kind {
            "s" => LiteralKind::String,
            "i" => LiteralKind::Integer,
            "f" => LiteralKind::Float,
            "b" => LiteralKind::Boolean,
            "u" => LiteralKind::Uuid,
            "h" => LiteralKind::Hex,
            "d" => LiteralKind::Duration,
            other => panic!("no kind of literal: {other}"),
        };
        assert_eq!(
            outcome(class(name).parse_literal(kind, text)),
            expected,
            "{kind} {text:?} for {name}"
        );
    }
}

#[test]
fn values_are_written_as_cassandra_writes_them() {
    for [name, value, expected] in cases(include_str!("cassandra/formats.txt")) {
        assert_eq!(class(name).format(&bytes_from_hex(value)), expected, "{name} {value}");
    }
}

/// Where Cassandra's answer depends on Java's names of time zones, on name resolution, on the Java version, or is a
/// mistake.
#[test]
fn what_ceto_does_otherwise() {
    let refused = [
        // Java has names for these; each belongs to several zones.
        (
            CqlType::Timestamp,
            "2024-07-01 00:00:00 IST",
            "! Unable to parse a date/time from '2024-07-01 00:00:00 IST'",
        ),
        // The compiler makes a call of it.
        (CqlType::Timestamp, "now", "! Unable to parse a date/time from 'now'"),
        (
            CqlType::Inet,
            "localhost",
            "! Unable to make inet address from 'localhost'",
        ),
    ];
    for (of, text, message) in refused {
        assert_eq!(outcome(of.parse_literal(LiteralKind::String, text)), message);
    }
    let hex_for_tinyint = CqlType::TinyInt.parse_literal(LiteralKind::Hex, "0x0102");
    assert_eq!(
        outcome(hex_for_tinyint),
        "! Invalid HEX constant (0x0102) for \"c\" of type tinyint"
    );

    let written = [
        (CqlType::Duration, "000000", "0s"),
        (CqlType::Double, "44b52d02c7e14af6", "1.0E23"),
        (
            CqlType::Timestamp,
            "8000000000000000",
            "'-292275055-05-16T16:47:04.192Z'",
        ),
        (CqlType::Timestamp, "ffffc76e394a7400", "'-0001-01-01T00:00:00.000Z'"),
        (CqlType::Time, "ffffffffffffffff", "-1"),
    ];
    for (of, value, text) in written {
        assert_eq!(of.format(&bytes_from_hex(value)), text, "{of} {value}");
    }
}

#[test]
fn years_of_more_than_four_digits_have_a_sign() {
    for of in [CqlType::Date, CqlType::Timestamp] {
        let read = |text: &str| of.parse_literal(LiteralKind::String, text);
        for text in ["+12011-02-03", "-12011-02-03", "-0001-02-03", "2011-02-03"] {
            read(text).unwrap_or_else(|error| panic!("{of} {text}: {error}"));
        }
        for text in ["12011-02-03", "+2011-02-03", "+-2011-02-03"] {
            assert!(read(text).is_err(), "{of} {text}");
        }
    }
    // Before a time of day no sign is needed.
    let read = |text: &str| CqlType::Timestamp.parse_literal(LiteralKind::String, text).ok();
    assert_eq!(read("12011-02-03T04:05:06Z"), read("+12011-02-03T04:05:06Z"));
    assert!(read("12011-02-03 04:05").is_some());
}

#[test]
fn addresses_may_lack_parts_and_have_brackets() {
    let read = |text: &str| CqlType::Inet.parse_literal(LiteralKind::String, text).ok();
    for (text, octets) in [
        ("1.2.3", [1, 2, 0, 3]),
        ("1.2", [1, 0, 0, 2]),
        ("1", [0, 0, 0, 1]),
        ("127.1", [127, 0, 0, 1]),
        ("01.02.03.04", [1, 2, 3, 4]),
        ("1.2.65535", [1, 2, 255, 255]),
        ("4294967295", [255; 4]),
        ("::ffff:1.2.3.4", [1, 2, 3, 4]),
    ] {
        assert_eq!(read(text), Some(octets.to_vec()), "{text}");
    }
    assert_eq!(read("[::1]"), read("::1"));
    for text in [
        "256.1",
        "1.2.3.256",
        "1.2.65536",
        "4294967296",
        "1..2",
        "1.2.3.",
        "0x1.2",
        "[1.2.3.4]",
        "+1",
        "1.2.3.4.5",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn bytes_that_are_no_value_are_shown_as_they_are() {
    assert_eq!(CqlType::Int.format(&[1, 2]), "0x0102");
    assert_eq!(CqlType::Text.format(&[0xff]), "0xff");
    assert_eq!(
        class("FrozenType(ListType(Int32Type))").format(&[0, 0, 0, 1]),
        "0x00000001"
    );
}

#[test]
fn only_a_text_by_itself_loses_its_quotes() {
    assert_eq!(CqlType::Text.format_unquoted(b"it's"), "it's");
    assert_eq!(CqlType::Date.format_unquoted(&[0x80, 0, 0, 0]), "1970-01-01");
    assert_eq!(
        class("FrozenType(ListType(UTF8Type))").format_unquoted(b"\0\0\0\x01\0\0\0\x01a"),
        "['a']"
    );
}

#[test]
fn a_number_too_long_to_read_is_refused() {
    let digits = "9".repeat(types::NUMBER_DIGITS_MAX + 1);
    let message = "a number has at most 65536 digits, not 65537";
    for of in [CqlType::VarInt, CqlType::Decimal] {
        let error = of.parse_literal(LiteralKind::Integer, &digits).expect_err("too long");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn decimals_are_not_read_from_what_only_looks_like_one() {
    for text in [
        "",
        "-",
        ".",
        "1.-5",
        "1e",
        "1e+",
        "1.5.5",
        "0x1",
        "1_000",
        "1e99999999999",
        "--1",
        "1 ",
    ] {
        let error = CqlType::Decimal
            .parse_literal(LiteralKind::Float, text)
            .expect_err(text);
        assert_eq!(error.to_string(), format!("unable to make BigDecimal from '{text}'"));
    }
}

#[test]
fn a_moment_is_told_to_the_second_in_utc() {
    let cases = [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (951_827_696, "2000-02-29T12:34:56Z"),
        (1_722_268_135, "2024-07-29T15:48:55Z"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(types::iso_seconds(seconds), expected, "{seconds} s");
    }
}
