//! Serialised values are accepted and refused as Cassandra does, in its words.

use types::CqlType;

fn bytes_from_hex(hex: &str) -> Vec<u8> {
    testkit::from_hex(if hex == "-" { "" } else { hex })
}

#[test]
fn as_cassandra() {
    for line in include_str!("cassandra/validate.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [class, value, expected] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("three fields in: {line}");
        };
        let (of, _) = CqlType::from_marshal_name(class).expect(line);
        let bytes = bytes_from_hex(value);
        let outcome = of
            .validate(&bytes)
            .map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        assert_eq!(outcome, expected, "{of} {value}");
        assert_eq!(
            of.deserialize(&bytes).is_ok(),
            expected == "ok",
            "{of} {value} is read when it is well-formed"
        );
    }
}

/// Cassandra stops with an assertion on most of these, and names version 0 whatever the version is.
#[test]
fn what_ceto_refuses_in_its_own_words() {
    let table = [
        (
            "TimeUUIDType",
            "00000000000040008000000000000000",
            "Invalid version for TimeUUID type: 0x4",
        ),
        (
            "DurationType",
            "7fffffffffffffff",
            "Not enough bytes to read a duration",
        ),
        (
            "VectorType(UTF8Type,2)",
            "02",
            "Not enough bytes to read a vector<text, 2>",
        ),
        (
            "VectorType(UTF8Type,2)",
            "ff",
            "Not enough bytes to read a vector<text, 2>",
        ),
        (
            "VectorType(UTF8Type,2)",
            "ffffffffffffffffff",
            "Not enough bytes to read a vector<text, 2>",
        ),
    ];
    for (class, value, message) in table {
        let (of, _) = CqlType::from_marshal_name(class).expect(class);
        let error = of.validate(&bytes_from_hex(value)).expect_err(value);
        assert_eq!(error.to_string(), message, "{of} {value}");
    }
}
