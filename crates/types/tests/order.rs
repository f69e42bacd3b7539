//! Serialised values are ordered as Cassandra orders them.

use std::cmp::Ordering;

use types::CqlType;

fn bytes_from_hex(hex: &str) -> Vec<u8> {
    testkit::from_hex(if hex == "-" { "" } else { hex })
}

#[test]
fn as_cassandra() {
    for line in include_str!("cassandra/compare.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [class, a, b, sign] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("four fields in: {line}");
        };
        let (of, _) = CqlType::from_marshal_name(class).expect(line);
        let expected = sign.parse::<i32>().expect(line).cmp(&0);
        assert_eq!(
            of.compare(&bytes_from_hex(a), &bytes_from_hex(b)),
            expected,
            "{of}: {a} against {b}"
        );
        assert_eq!(
            of.compare(&bytes_from_hex(b), &bytes_from_hex(a)),
            expected.reverse(),
            "{of}: {b} against {a}"
        );
    }
}

/// Each line is in ascending order.
#[test]
fn decimals_of_any_scale_are_numbers() {
    let lines: [&[&str]; 4] = [
        // -1E+2147483648, -1, -1E-2147483647, 0, 1E-2147483647, 0.5, 1, 1E+2147483648
        &[
            "80000000ff",
            "00000000ff",
            "7fffffffff",
            "0000000000",
            "7fffffff01",
            "0000000105",
            "0000000001",
            "8000000001",
        ],
        // 99.9, 1E+2, 100.1
        &["0000000103e7", "fffffffe01", "0000000103e9"],
        // 18446744073709551615.9, 18446744073709551616, 1844674407370955161.7E+1
        &[
            "0000000109ffffffffffffffff",
            "00000000010000000000000000",
            "ffffffff199999999999999a",
        ],
        &["-", "0000000000", "000000"],
    ];
    for line in lines {
        for (i, a) in line.iter().enumerate() {
            for (j, b) in line.iter().enumerate() {
                let ordering = CqlType::Decimal.compare(&bytes_from_hex(a), &bytes_from_hex(b));
                assert_eq!(ordering, i.cmp(&j), "{a} against {b}");
            }
        }
    }
    let equal = CqlType::Decimal.compare(&bytes_from_hex("000000010a"), &bytes_from_hex("0000000264"));
    assert_eq!(equal, Ordering::Equal, "1.0 is 1.00");
}

#[test]
fn bytes_that_are_no_value_come_last() {
    for (of, value, damaged) in [
        (CqlType::Int, "7fffffff", "00"),
        (CqlType::BigInt, "7fffffffffffffff", "0000000000000000ff"),
        (CqlType::TimeUuid, "ffffffffffff1fff7f7f7f7f7f7f7f7f", "00"),
        (CqlType::Boolean, "01", "0000"),
        (
            CqlType::parse_native("list<int>").expect("a type"),
            "0000000100000000",
            "000000",
        ),
    ] {
        let (value, damaged) = (bytes_from_hex(value), bytes_from_hex(damaged));
        assert_eq!(
            of.compare(&value, &damaged),
            Ordering::Less,
            "a {of} against damaged bytes"
        );
        assert_eq!(
            of.compare(&[], &damaged),
            Ordering::Less,
            "an empty {of} against damaged bytes"
        );
    }
}
