//! Terms are in the order of the values, and equal where these are.

use std::cmp::Ordering;

use num_bigint::BigInt;
use types::term::{TERM_MAX, put_term};
use types::{CqlType, Decimal, Value};

fn term(of: &CqlType, value: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    put_term(of, value, &mut out);
    assert!(out.starts_with(b"before"), "a term is appended");
    out.split_off(6)
}

fn of(name: &str) -> CqlType {
    CqlType::parse_native(name).expect(name)
}

fn decimal(unscaled: BigInt, scale: i32) -> Vec<u8> {
    Value::Decimal(Decimal { unscaled, scale }).serialize()
}

/// All pairs of the values, each way round.
fn check(of: &CqlType, values: &[Vec<u8>]) {
    for a in values {
        for b in values {
            let (expected, terms) = (of.compare(a, b), (term(of, a), term(of, b)));
            assert_eq!(
                terms.0.cmp(&terms.1),
                expected,
                "{of}: {} against {}, terms {terms:02x?}",
                testkit::hex(a),
                testkit::hex(b)
            );
        }
    }
}

fn fixed<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<Vec<u8>> {
    let values = values.into_iter().map(|value| value.to_vec());
    std::iter::once(Vec::new()).chain(values).collect()
}

#[test]
fn integers_at_their_edges() {
    check(&CqlType::TinyInt, &fixed((0..=255_u8).map(|byte| [byte])));
    let small = [i16::MIN, -257, -256, -1, 0, 1, 255, 256, i16::MAX];
    check(&CqlType::SmallInt, &fixed(small.map(i16::to_be_bytes)));
    let int = [i32::MIN, i32::MIN + 1, -65_536, -1, 0, 1, 65_535, i32::MAX];
    check(&CqlType::Int, &fixed(int.map(i32::to_be_bytes)));
    let big = [i64::MIN, i64::MIN + 1, -(1 << 32), -1, 0, 1, 1 << 32, i64::MAX];
    for of in [CqlType::BigInt, CqlType::Timestamp, CqlType::Counter] {
        check(&of, &fixed(big.map(i64::to_be_bytes)));
    }
    check(&CqlType::Date, &fixed([0, 1, 1 << 31, u32::MAX].map(u32::to_be_bytes)));
    check(
        &CqlType::Time,
        &fixed([0, 1, 86_399_999_999_999_i64].map(i64::to_be_bytes)),
    );
    check(&CqlType::Boolean, &fixed([[0], [1], [2], [0xff]]));
}

#[test]
fn floats_with_infinities_zeros_and_nans() {
    let float = [
        f32::NEG_INFINITY,
        f32::MIN,
        -1.5,
        -f32::MIN_POSITIVE,
        -f32::from_bits(1),
        -0.0,
        0.0,
        f32::from_bits(1),
        1.0,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
        -f32::NAN,
        f32::from_bits(0x7fff_ffff),
    ];
    check(&CqlType::Float, &fixed(float.map(f32::to_be_bytes)));
    let double = float.map(|value| f64::from(value).to_be_bytes());
    let nans = [0x7ff0_0000_0000_0001, 0xffff_ffff_ffff_ffff, 1, 1 << 63 | 1].map(u64::to_be_bytes);
    check(&CqlType::Double, &fixed(double.into_iter().chain(nans)));
}

#[test]
fn varints_of_every_length() {
    let mut values = vec![
        Vec::new(),
        vec![0, 0],
        vec![0xff, 0xff],
        vec![0, 0, 0x80],
        vec![0xff, 0x7f],
    ];
    for bits in [
        0_usize, 1, 6, 7, 8, 9, 15, 16, 63, 64, 127, 1000, 1015, 1016, 1017, 1023, 1024, 1025, 2000,
    ] {
        let power = BigInt::from(1) << bits;
        for number in [&power - 1, power.clone(), &power + 1] {
            values.push(Value::VarInt(-number.clone()).serialize());
            values.push(Value::VarInt(number).serialize());
        }
    }
    check(&CqlType::VarInt, &values);
}

#[test]
fn decimals_of_every_scale() {
    let numbers = [
        0,
        1,
        2,
        9,
        10,
        11,
        12,
        99,
        100,
        101,
        120,
        1_200,
        12_001,
        999,
        1_000,
        i64::MAX,
    ];
    let mut values = vec![Vec::new(), vec![0, 0, 0, 5]];
    for number in numbers {
        for scale in [i32::MIN, -100, -2, -1, 0, 1, 2, 3, 100, i32::MAX] {
            values.push(decimal(BigInt::from(number), scale));
            values.push(decimal(BigInt::from(-number), scale));
        }
    }
    values.push(decimal(BigInt::from(10).pow(400) + 1, 400));
    values.push(decimal(-BigInt::from(10).pow(400) - 1, 400));
    check(&CqlType::Decimal, &values);
}

#[test]
fn texts_blobs_addresses_and_uuids() {
    let texts = ["", "\0", "\0\0", "a", "a\0", "aa", "b", "ä", "\u{10ffff}"].map(|text| text.as_bytes().to_vec());
    for of in [CqlType::Text, CqlType::Blob] {
        check(&of, &texts);
    }
    let addresses = [vec![], vec![10, 0, 0, 1], vec![10; 16], vec![0xff; 4], vec![0; 16]];
    check(&CqlType::Inet, &addresses);
    let mut uuids = Vec::new();
    for version in [0_u128, 1, 3, 4, 7, 15] {
        for rest in [
            0,
            1,
            u128::MAX >> 64,
            0x7f << 56,
            0x80 << 56,
            1 << 64,
            0xfff << 64,
            1 << 80,
            1 << 96,
            u128::MAX,
        ] {
            uuids.push((rest & !(0xf << 76) | version << 76).to_be_bytes());
        }
    }
    check(&CqlType::Uuid, &fixed(uuids.clone()));
    check(&CqlType::TimeUuid, &fixed(uuids));
}

#[test]
fn collections_and_tuples() {
    let int = |value: i32| Value::Int(value);
    let list = |values: &[i32]| Value::List(values.iter().copied().map(int).collect()).serialize();
    let lists = [
        vec![],
        list(&[]),
        list(&[0]),
        list(&[-1, 5]),
        list(&[0, 0]),
        list(&[0, -1]),
        list(&[256]),
    ];
    check(&of("list<int>"), &lists);
    let text = |value: &str| Value::Text(value.to_owned());
    let texts = |values: &[&str]| Value::Set(values.iter().copied().map(text).collect()).serialize();
    let sets = [
        texts(&[""]),
        texts(&["", ""]),
        texts(&["\0"]),
        texts(&["\0", "a"]),
        texts(&["\0a"]),
        texts(&["a", "b"]),
    ];
    check(&of("set<text>"), &sets);
    let tuple = |first: Option<Value>, second: Option<Value>| Value::Tuple(vec![first, second]).serialize();
    let tuples = [
        vec![],
        tuple(None, None),
        tuple(Some(int(1)), None),
        tuple(Some(int(1)), Some(text(""))),
        tuple(None, Some(text("a"))),
        Value::Tuple(vec![Some(int(1))]).serialize(),
    ];
    check(&of("tuple<int, text>"), &tuples);
    let one = |scale: usize| {
        Value::List(vec![Value::Decimal(Decimal {
            unscaled: BigInt::from(10).pow(u32::try_from(scale).expect("few")),
            scale: i32::try_from(scale).expect("few"),
        })])
    };
    let (a, b) = (one(1).serialize(), one(2).serialize());
    let decimals = of("list<decimal>");
    assert_ne!(a, b);
    assert_eq!(term(&decimals, &a), term(&decimals, &b), "1.0 is 1.00 in a list too");
    let vector = |values: [f32; 2]| Value::Vector(values.map(Value::Float).to_vec()).serialize();
    check(
        &of("vector<float, 2>"),
        &[vector([0.0, -1.0]), vector([-1.0, 0.0]), vector([-1.0, 1.0])],
    );
}

#[test]
fn a_long_term_is_cut_and_keeps_its_place() {
    let long = |len: usize, last: u8| [vec![b'a'; len], vec![last]].concat();
    let texts: Vec<_> = [0, 1, TERM_MAX - 2, TERM_MAX - 1, TERM_MAX, TERM_MAX + 1, 5_000]
        .into_iter()
        .flat_map(|len| [long(len, 0), long(len, b'a'), long(len, b'b')])
        .collect();
    let digits =
        |count: u32, last: i32| decimal(BigInt::from(10).pow(count) + last, i32::try_from(count).expect("few"));
    let mut decimals: Vec<_> = [1, 2_000, 2_035, 2_036, 2_037, 2_047, 2_048, 2_049, 2_100, 3_000, 5_000]
        .into_iter()
        .flat_map(|count| [digits(count, -1), digits(count, 0), digits(count, 1)])
        .collect();
    let negated = decimals.iter().map(|value| match CqlType::Decimal.deserialize(value) {
        Ok(Value::Decimal(Decimal { unscaled, scale })) => decimal(-unscaled, scale),
        other => panic!("no decimal: {other:?}"),
    });
    decimals.extend(negated.collect::<Vec<_>>());
    let varints: Vec<_> = [1_000_usize, 8 * TERM_MAX - 9, 8 * TERM_MAX, 9 * TERM_MAX, 20 * TERM_MAX]
        .into_iter()
        .flat_map(|bits| [-1, 0, 1].map(|last| (BigInt::from(1) << bits) + last))
        .flat_map(|number: BigInt| {
            [
                Value::VarInt(number.clone()).serialize(),
                Value::VarInt(-number).serialize(),
            ]
        })
        .collect();
    let lists: Vec<_> = texts
        .iter()
        .flat_map(|text| [b"".to_vec(), text.clone()].map(|second| [text.clone(), second]))
        .map(|pair| Value::List(pair.map(Value::Blob).to_vec()).serialize())
        .collect();
    for (of, values) in [
        (of("text"), texts),
        (of("decimal"), decimals),
        (of("varint"), varints),
        (of("list<blob>"), lists),
    ] {
        for a in &values {
            assert!(term(&of, a).len() <= TERM_MAX);
            for b in &values {
                if of.compare(a, b) != Ordering::Greater {
                    assert!(
                        term(&of, a) <= term(&of, b),
                        "{of}: {} and {}",
                        testkit::hex(a),
                        testkit::hex(b)
                    );
                }
            }
        }
    }
}
