//! Rules that hold for every type and every value, on cases that a fixed seed makes.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use num_bigint::BigInt;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use types::term::{TERM_MAX, put_term};
use types::{CqlType, Decimal, Duration, LiteralKind, UdtType, Value, timeuuid};
use uuid::Uuid;

fn check<S: Strategy>(strategy: S, cases: u32, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    if let Err(failure) = runner.run(&strategy, test) {
        panic!("{failure}");
    }
}

fn any_scalar_type() -> impl Strategy<Value = CqlType> {
    prop::sample::select(CqlType::SCALARS.to_vec())
}

fn any_type() -> impl Strategy<Value = CqlType> {
    any_scalar_type().prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|element| CqlType::List(Arc::new(element))),
            inner.clone().prop_map(|element| CqlType::Set(Arc::new(element))),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| CqlType::Map(Arc::new(key), Arc::new(value))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|elements| CqlType::Tuple(elements.into())),
            (inner.clone(), 1..4_u32).prop_map(|(element, dimension)| CqlType::Vector(Arc::new(element), dimension)),
            inner.clone().prop_map(|inner| inner.frozen()),
            prop::collection::vec(inner, 1..4).prop_map(|types| {
                let fields = types
                    .into_iter()
                    .enumerate()
                    .map(|(index, field)| (format!("f{index}"), field))
                    .collect();
                CqlType::Udt(Arc::new(UdtType {
                    keyspace: "ks".to_owned(),
                    name: "udt".to_owned(),
                    fields,
                }))
            }),
        ]
    })
}

/// Numbers with many neighbours and many extremes.
fn any_i64() -> impl Strategy<Value = i64> {
    prop_oneof![-3..4_i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

#[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
fn any_scalar_value(of: &CqlType) -> BoxedStrategy<Value> {
    match of {
        CqlType::Ascii => "[ -~]{0,6}".prop_map(Value::Ascii).boxed(),
        CqlType::BigInt => any_i64().prop_map(Value::BigInt).boxed(),
        CqlType::Blob => prop::collection::vec(any::<u8>(), 0..6).prop_map(Value::Blob).boxed(),
        CqlType::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        CqlType::Counter => any_i64().prop_map(Value::Counter).boxed(),
        CqlType::Date => any::<u32>().prop_map(Value::Date).boxed(),
        CqlType::Decimal => (any_i64(), prop_oneof![-3..4_i32, any::<i32>()])
            .prop_map(|(unscaled, scale)| {
                Value::Decimal(Decimal {
                    unscaled: BigInt::from(unscaled),
                    scale,
                })
            })
            .boxed(),
        CqlType::Double => any_i64()
            .prop_map(|bits| Value::Double(f64::from_bits(bits.cast_unsigned())))
            .boxed(),
        CqlType::Duration => (any::<i32>(), any::<i32>(), any::<i64>(), any::<bool>())
            .prop_map(|(months, days, nanoseconds, is_negative)| {
                let sign = if is_negative { -1 } else { 1 };
                Value::Duration(Duration {
                    months: months.saturating_abs() * sign,
                    days: days.saturating_abs() * sign,
                    nanoseconds: nanoseconds.saturating_abs() * i64::from(sign),
                })
            })
            .boxed(),
        CqlType::Float => any_i64()
            .prop_map(|bits| Value::Float(f32::from_bits(bits as u32)))
            .boxed(),
        CqlType::Inet => prop_oneof![
            any::<[u8; 4]>().prop_map(|octets| Value::Inet(IpAddr::from(octets))),
            any::<[u8; 16]>().prop_map(|octets| Value::Inet(IpAddr::from(octets)))
        ]
        .boxed(),
        CqlType::Int => any_i64().prop_map(|bits| Value::Int(bits as i32)).boxed(),
        CqlType::SmallInt => any::<i16>().prop_map(Value::SmallInt).boxed(),
        CqlType::Text => any::<String>().prop_map(Value::Text).boxed(),
        CqlType::Time => (0..86_400_000_000_000_i64).prop_map(Value::Time).boxed(),
        CqlType::Timestamp => any_i64().prop_map(Value::Timestamp).boxed(),
        CqlType::TimeUuid => (-99_999..99_999_i64, any::<u16>(), any::<[u8; 6]>())
            .prop_map(|(ticks, sequence, node)| Value::TimeUuid(timeuuid::from_parts(ticks, sequence, node)))
            .boxed(),
        CqlType::TinyInt => any::<i8>().prop_map(Value::TinyInt).boxed(),
        CqlType::Uuid => any::<u128>()
            .prop_map(|bits| Value::Uuid(Uuid::from_u128(bits)))
            .boxed(),
        _ => any::<i128>()
            .prop_map(|number| Value::VarInt(BigInt::from(number)))
            .boxed(),
    }
}

fn any_value(of: &CqlType) -> BoxedStrategy<Value> {
    match of {
        CqlType::List(element) => prop::collection::vec(any_value(element), 0..3)
            .prop_map(Value::List)
            .boxed(),
        CqlType::Set(element) => prop::collection::vec(any_value(element), 0..3)
            .prop_map(Value::Set)
            .boxed(),
        CqlType::Map(key, value) => prop::collection::vec((any_value(key), any_value(value)), 0..3)
            .prop_map(Value::Map)
            .boxed(),
        CqlType::Tuple(elements) => {
            let elements: Vec<_> = elements
                .iter()
                .map(|element| prop::option::of(any_value(element)))
                .collect();
            elements.prop_map(Value::Tuple).boxed()
        }
        CqlType::Udt(udt) => {
            let fields: Vec<_> = udt
                .fields
                .iter()
                .map(|(_, field)| prop::option::of(any_value(field)))
                .collect();
            fields.prop_map(Value::Udt).boxed()
        }
        CqlType::Vector(element, dimension) => prop::collection::vec(any_value(element), *dimension as usize)
            .prop_map(Value::Vector)
            .boxed(),
        CqlType::Frozen(inner) => any_value(inner),
        scalar => any_scalar_value(scalar),
    }
}

/// Well-formed bytes, well-formed bytes with a byte changed or the end cut off, and noise.
fn any_bytes(of: &CqlType) -> BoxedStrategy<Vec<u8>> {
    let well_formed = any_value(of).prop_map(|value| value.serialize());
    let damaged = (any_value(of), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(
        |(value, index, byte, is_cut)| {
            let mut bytes = value.serialize();
            if !bytes.is_empty() {
                let at = index.index(bytes.len());
                if is_cut {
                    bytes.truncate(at);
                } else {
                    bytes[at] = byte;
                }
            }
            bytes
        },
    );
    let noise = prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0xff), any::<u8>()], 0..20);
    prop_oneof![4 => well_formed, 2 => damaged, 1 => noise].boxed()
}

/// NaN is not itself, so values are compared by their text.
fn text_of(value: &Value) -> String {
    format!("{value:?}")
}

#[test]
fn a_value_survives_its_serialised_form() {
    let cases = any_type().prop_flat_map(|of| any_value(&of).prop_map(move |value| (of.clone(), value)));
    check(cases, 2_000, |(of, value)| {
        let bytes = value.serialize();
        let read = of
            .deserialize(&bytes)
            .map_err(|error| TestCaseError::fail(format!("{of}: {error}")))?;
        prop_assert_eq!(text_of(&read), text_of(&value), "{} is read back", of);
        if let Some(len) = of.fixed_len() {
            prop_assert_eq!(bytes.len(), len, "{} has its fixed length", of);
        }
        Ok(())
    });
}

#[test]
fn terms_are_in_the_order_of_values() {
    let cases = any_type().prop_flat_map(|of| {
        let value = any_value(&of).prop_map(|value| value.serialize());
        (Just(of), prop::collection::vec(value, 2))
    });
    check(cases, 20_000, |(of, values)| {
        let [a, b] = [&values[0], &values[1]].map(|value| {
            let mut term = Vec::new();
            put_term(&of, value, &mut term);
            term
        });
        prop_assert_eq!(a.cmp(&b), of.compare(&values[0], &values[1]), "{}", of);
        Ok(())
    });
}

#[test]
fn any_bytes_have_a_term() {
    let cases = any_type().prop_flat_map(|of| {
        let bytes = any_bytes(&of);
        (Just(of), bytes)
    });
    check(cases, 5_000, |(of, bytes)| {
        let mut term = Vec::new();
        put_term(&of, &bytes, &mut term);
        prop_assert!(term.len() <= TERM_MAX);
        Ok(())
    });
}

#[test]
fn the_order_of_any_bytes_is_total() {
    let cases = any_type().prop_flat_map(|of| {
        let bytes = any_bytes(&of);
        (Just(of), prop::collection::vec(bytes, 3))
    });
    check(cases, 6_000, |(of, values)| {
        let comparator = of.comparator();
        let [a, b, c] = [&values[0], &values[1], &values[2]];
        for x in [a, b, c] {
            prop_assert_eq!(comparator.compare(x, x), Ordering::Equal, "{} {:02x?} is itself", of, x);
            let empty = comparator.compare(&[], x);
            prop_assert!(empty.is_le(), "an empty {} comes before {:02x?}", of, x);
            for y in [a, b, c] {
                let ordering = comparator.compare(x, y);
                prop_assert_eq!(
                    ordering,
                    comparator.compare(y, x).reverse(),
                    "{} {:02x?} {:02x?}",
                    of,
                    x,
                    y
                );
                for z in [a, b, c] {
                    if ordering.is_le() && comparator.compare(y, z).is_le() {
                        prop_assert!(
                            comparator.compare(x, z).is_le(),
                            "{} {:02x?} <= {:02x?} <= {:02x?}",
                            of,
                            x,
                            y,
                            z
                        );
                        let has_less = ordering.is_lt() || comparator.compare(y, z).is_lt();
                        prop_assert_eq!(
                            comparator.compare(x, z).is_lt(),
                            has_less,
                            "{} {:02x?} {:02x?} {:02x?}",
                            of,
                            x,
                            y,
                            z
                        );
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn numbers_are_ordered_as_numbers() {
    check((any_i64(), any_i64()), 1_000, |(a, b)| {
        let varint = |value: i64| Value::VarInt(BigInt::from(value)).serialize();
        prop_assert_eq!(
            CqlType::VarInt.compare(&varint(a), &varint(b)),
            a.cmp(&b),
            "varint {} {}",
            a,
            b
        );
        let bigint = |value: i64| Value::BigInt(value).serialize();
        prop_assert_eq!(
            CqlType::BigInt.compare(&bigint(a), &bigint(b)),
            a.cmp(&b),
            "bigint {} {}",
            a,
            b
        );
        let (x, y) = (f64::from_bits(a.cast_unsigned()), f64::from_bits(b.cast_unsigned()));
        if !x.is_nan() && !y.is_nan() {
            let double = |value: f64| Value::Double(value).serialize();
            prop_assert_eq!(
                CqlType::Double.compare(&double(x), &double(y)),
                x.total_cmp(&y),
                "double {} {}",
                x,
                y
            );
        }
        Ok(())
    });
    check(
        (any::<i64>(), 0..20_i32, any::<i64>(), 0..20_i32),
        1_000,
        |(a, a_scale, b, b_scale)| {
            let decimal = |unscaled: i64, scale| {
                Value::Decimal(Decimal {
                    unscaled: BigInt::from(unscaled),
                    scale,
                })
                .serialize()
            };
            // Both scaled to twenty digits after the point.
            let wide =
                |unscaled: i64, scale: i32| BigInt::from(unscaled) * BigInt::from(10).pow((20 - scale).unsigned_abs());
            let ordering = CqlType::Decimal.compare(&decimal(a, a_scale), &decimal(b, b_scale));
            prop_assert_eq!(
                ordering,
                wide(a, a_scale).cmp(&wide(b, b_scale)),
                "{}e-{} {}e-{}",
                a,
                a_scale,
                b,
                b_scale
            );
            Ok(())
        },
    );
}

#[test]
fn a_scalar_survives_its_text() {
    let cases = any_scalar_type().prop_flat_map(|of| any_value(&of).prop_map(move |value| (of.clone(), value)));
    check(cases, 4_000, |(of, value)| {
        let kind = match of {
            CqlType::BigInt
            | CqlType::Counter
            | CqlType::Int
            | CqlType::SmallInt
            | CqlType::TinyInt
            | CqlType::VarInt => LiteralKind::Integer,
            CqlType::Decimal | CqlType::Double | CqlType::Float => LiteralKind::Float,
            CqlType::Blob => LiteralKind::Hex,
            CqlType::Boolean => LiteralKind::Boolean,
            CqlType::Duration => LiteralKind::Duration,
            CqlType::Uuid | CqlType::TimeUuid => LiteralKind::Uuid,
            _ => LiteralKind::String,
        };
        let bytes = value.serialize();
        let text = of.format_unquoted(&bytes);
        match of.parse_literal(kind, &text) {
            Ok(read) => {
                // NaNs become one, and an IPv4 address in IPv6 clothes becomes IPv4; both are equal in a sense.
                let is_same = read == bytes || text == "NaN" || (of == CqlType::Inet && read.len() == 4);
                prop_assert!(is_same, "{} {} is read as {:02x?}, was {:02x?}", of, text, read, bytes);
            }
            // 1E+2147483648 is a decimal whose exponent is not an i32; its text is not a literal in Cassandra either.
            Err(_) if of == CqlType::Decimal => {
                prop_assert!(text.contains("E+21474836") || text.contains("E-21474836"), "{}", text)
            }
            Err(error) => return Err(TestCaseError::fail(format!("{of} {text}: {error}"))),
        }
        Ok(())
    });
}

#[test]
fn a_type_survives_its_names() {
    check(any_type(), 1_000, |of| {
        let canonical = of.canonical();
        prop_assert_eq!(&canonical.canonical(), &canonical, "the canonical form is its own");
        let udt = Arc::new(UdtType {
            keyspace: "ks".to_owned(),
            name: "udt".to_owned(),
            fields: Vec::new(),
        });
        let resolve = |_: Option<&str>, name: &str| (name == "udt").then(|| Arc::clone(&udt));
        let parsed =
            CqlType::parse(&of.to_string(), &resolve).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(parsed.to_string(), of.to_string(), "the CQL name comes back");
        let class = of.marshal_name();
        let (parsed, is_reversed) =
            CqlType::from_marshal_name(&class).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(!is_reversed, "{} is in ascending order", class);
        prop_assert_eq!(parsed.marshal_name(), class, "the Java class comes back");
        prop_assert_eq!(parsed.is_multi_cell(), of.is_multi_cell(), "{} keeps its cells", of);
        Ok(())
    });
}

#[test]
fn nothing_panics_on_arbitrary_bytes() {
    let cases = any_type().prop_flat_map(|of| {
        let bytes = any_bytes(&of);
        (Just(of), bytes)
    });
    check(cases, 6_000, |(of, bytes)| {
        let is_valid = of.validate(&bytes).is_ok();
        prop_assert_eq!(of.deserialize(&bytes).is_ok(), is_valid, "{} {:02x?}", of, bytes);
        prop_assert!(!of.format(&bytes).is_empty(), "{} {:02x?} has a text", of, bytes);
        Ok(())
    });
}

#[test]
fn nothing_panics_on_arbitrary_text() {
    let kinds = [
        LiteralKind::String,
        LiteralKind::Integer,
        LiteralKind::Float,
        LiteralKind::Boolean,
        LiteralKind::Uuid,
        LiteralKind::Hex,
        LiteralKind::Duration,
    ];
    let text = prop_oneof![
        any::<String>(),
        "[-+]?[0-9]{0,5}-?[0-9]{0,2}-?[0-9]{0,2}[T ]?[0-9:.+Z-]{0,12}",
        "-?P?([0-9]{0,3}[YMWDTHSymsdhun]{1,2}){0,4}",
        "[-+]?[0-9]{0,4}[.eE]?[-+0-9]{0,12}",
        "[a-zA-Z<>,'\" ().0-9:]{0,30}",
    ];
    check((any_scalar_type(), text), 10_000, |(of, text)| {
        for kind in kinds {
            if let Ok(bytes) = of.parse_literal(kind, &text) {
                prop_assert!(
                    of.validate(&bytes).is_ok(),
                    "{} {:?} is read as {:02x?}",
                    of,
                    text,
                    bytes
                );
            }
        }
        let _ = CqlType::parse_native(&text);
        let _ = CqlType::from_marshal_name(&text);
        Ok(())
    });
}
