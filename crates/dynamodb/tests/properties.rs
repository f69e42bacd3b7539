//! Properties of numbers, values, paths and parsers over random inputs.

use std::collections::BTreeMap;
use std::str::FromStr;

use bigdecimal::BigDecimal;
use dynamodb::expression::{ExpressionKind, Placeholders, parse_condition, parse_projection, parse_update};
use dynamodb::projection::project;
use dynamodb::update::{self, ReturnValues};
use dynamodb::value::number::NumberError;
use dynamodb::value::{json, key, size, storage};
use dynamodb::{AttributeValue, Item, Number, Set, ValueType};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

/// Numbers of all lengths and exponents, many of them near each other or near a limit.
fn number() -> impl Strategy<Value = Number> {
    let digits = prop_oneof![1_u32..4, 15_u32..21, 36_u32..39];
    let exponent = prop_oneof![-4_i64..5, -130_i64..126, -42_i64..43];
    (digits, any::<u128>(), exponent, any::<bool>()).prop_filter_map("in range", |(digits, random, exponent, minus)| {
        let magnitude = i128::try_from(random % 10_u128.pow(digits)).ok()?;
        Number::from_parts(if minus { -magnitude } else { magnitude }, exponent).ok()
    })
}

fn decimal(number: Number) -> BigDecimal {
    BigDecimal::from_str(&number.to_string()).expect("a number is a decimal")
}

/// What a sum must be.
fn expected(exact: &BigDecimal) -> Result<String, NumberError> {
    let exact = exact.normalized();
    let (digits, scale) = exact.as_bigint_and_exponent();
    let text = digits.to_string();
    let count = text.trim_start_matches('-').len();
    if text == "0" {
        return Ok(text);
    }
    let first = i64::try_from(count).expect("it is short") - 1 - scale;
    match first {
        126.. => Err(NumberError::Overflow),
        ..-130 => Err(NumberError::Underflow),
        _ if count > 38 => Err(NumberError::Precision),
        _ => Ok(exact.to_plain_string()),
    }
}

fn value() -> impl Strategy<Value = AttributeValue> {
    let text = prop_oneof!["[a-c]{0,3}", "\\PC{0,8}", "[\\x00-\\x20\"\\\\]{0,4}"];
    let bytes = vec(any::<u8>(), 0..6);
    let leaf = prop_oneof![
        text.prop_map(AttributeValue::S),
        number().prop_map(AttributeValue::N),
        bytes.clone().prop_map(AttributeValue::B),
        any::<bool>().prop_map(AttributeValue::Bool),
        Just(AttributeValue::Null),
        vec("[a-e]{0,2}", 1..5).prop_filter_map("distinct", |texts| Set::new(texts).ok().map(AttributeValue::Ss)),
        vec(number(), 1..5).prop_filter_map("distinct", |all| Set::new(all).ok().map(AttributeValue::Ns)),
        btree_set(bytes, 1..5).prop_filter_map("distinct", |all| Set::from_ascending(Vec::from_iter(all))
            .map(AttributeValue::Bs)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(AttributeValue::L),
            btree_map("[a-c]{1,2}", inner, 0..4).prop_map(AttributeValue::M),
        ]
    })
}

fn item() -> impl Strategy<Value = Item> {
    btree_map("[a-d]", value(), 0..4)
}

/// Texts of the words and signs of expressions.
fn expression() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "a",
        "b",
        "#a",
        "#b",
        ":v",
        ":w",
        "(",
        ")",
        "[",
        "]",
        "0",
        "1",
        ".",
        ",",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "IN",
        "SET",
        "REMOVE",
        "ADD",
        "DELETE",
        "attribute_exists(",
        "size(",
        "contains(",
        "begins_with(",
        "attribute_type(",
        "attribute_not_exists(",
        "if_not_exists(",
        "list_append(",
        "a = :v",
        "SET a = :v",
        "name",
        " ",
        "é",
        "a.b[0]",
    ]);
    vec(word, 0..14).prop_map(|words| words.join(" "))
}

fn stored(value: &AttributeValue) -> Vec<u8> {
    let mut out = Vec::new();
    storage::append_value(&mut out, value);
    out
}

proptest! {
    #[test]
    fn sums_and_orders_of_numbers_are_exact(a in number(), b in number()) {
        let (x, y) = (decimal(a), decimal(b));
        prop_assert_eq!(a.plus(b).map(|sum| sum.to_string()), expected(&(&x + &y)));
        prop_assert_eq!(a.minus(b).map(|sum| sum.to_string()), expected(&(&x - &y)));
        prop_assert_eq!(a.cmp(&b), x.cmp(&y));
        prop_assert_eq!(a == b, x == y);
    }

    #[test]
    fn a_number_has_one_text_and_one_key(a in number(), zeros in 0_usize..5, shift in -3_i64..4) {
        let text = a.to_string();
        prop_assert_eq!(Number::parse(&text), Ok(a));
        prop_assert!(!text.contains(['e', 'E']) && text != "-0");
        prop_assert!(!text.contains('.') || !text.ends_with('0'), "{}", text);
        let (digits, exponent) = (a.coefficient(), i64::from(a.exponent()));
        let zeros_text = "0".repeat(zeros);
        let exponent_less = exponent - i64::try_from(zeros).expect("few");
        let spelled = format!("{digits}{zeros_text}E{exponent_less}");
        prop_assert_eq!(Number::parse(&spelled), Ok(a), "{}", spelled);
        let mut bytes = Vec::new();
        key::append_cql(&mut bytes, &AttributeValue::N(a)).expect("a number is a key");
        prop_assert_eq!(key::from_cql(ValueType::N, &bytes), Ok(AttributeValue::N(a)));
        // What another writer of decimals would store for the same number.
        let scale = i32::try_from(-exponent + shift.max(0)).expect("small");
        if let Some(unscaled) = digits.checked_mul(10_i128.pow(u32::try_from(shift.max(0)).expect("positive"))) {
            let other = [&scale.to_be_bytes()[..], &unscaled.to_be_bytes()].concat();
            prop_assert_eq!(key::from_cql(ValueType::N, &other), Ok(AttributeValue::N(a)));
        }
    }

    #[test]
    fn texts_that_are_numbers_for_bigdecimal_are_the_same_numbers(text in "[+-]?[0-9]{0,42}(\\.[0-9]{0,42})?(e[+-]?[0-9]{1,3})?") {
        if let (Ok(number), Ok(decimal)) = (Number::parse(&text), BigDecimal::from_str(&text)) {
            prop_assert_eq!(number.to_string(), expected(&decimal).expect("it is in range"));
        }
    }

    #[test]
    fn no_text_makes_the_parser_of_numbers_panic(text in "\\PC{0,12}") {
        let _ = Number::parse(&text);
    }

    #[test]
    fn values_come_back_from_their_stored_form(value in value()) {
        let bytes = stored(&value);
        prop_assert_eq!(storage::read_value(&bytes), Ok(value));
        for end in 0..bytes.len() {
            prop_assert!(storage::read_value(&bytes[..end]).is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn stored_values_become_the_json_of_their_values(value in value(), item in item()) {
        let (mut stored_item, mut direct, mut by_value) = (Vec::new(), b"x".to_vec(), b"x".to_vec());
        storage::append_item(&mut stored_item, &item);
        storage::write_value_json(&mut direct, &stored(&value)).expect("it is stored");
        storage::write_item_json(&mut direct, &stored_item).expect("it is stored");
        json::write_value(&mut by_value, &value);
        json::write_item(&mut by_value, &item);
        prop_assert_eq!(&direct, &by_value);
        let bytes = stored(&value);
        prop_assert!(storage::write_value_json(&mut direct, &bytes[..bytes.len() - 1]).is_err());
        prop_assert_eq!(direct, by_value, "nothing is appended for damaged bytes");
    }

    #[test]
    fn stored_values_are_as_large_as_their_values(value in value()) {
        let bytes = stored(&value);
        prop_assert_eq!(storage::stored_value_bytes(&bytes), Ok(size::value_bytes(&value)));
        for end in 0..bytes.len() {
            prop_assert!(storage::stored_value_bytes(&bytes[..end]).is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn equal_values_have_equal_bytes(a in value(), b in value()) {
        prop_assert_eq!(stored(&a) == stored(&b), a.equals(&b));
        prop_assert_eq!(a.equals(&b), a == b);
        prop_assert!(a.equals(&dynamodb::value::copy_value(&a)));
    }

    #[test]
    fn damaged_stored_values_are_refused_or_read(value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = stored(&value);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = storage::read_value(&bytes) {
            prop_assert_eq!(storage::read_value(&stored(&read)), Ok(read));
        }
    }

    #[test]
    fn no_bytes_make_the_reader_of_stored_values_panic(bytes in vec(any::<u8>(), 0..64)) {
        let bytes = [&[storage::VERSION], &bytes[..]].concat();
        if storage::read_value(&bytes).is_ok() {
            storage::write_value_json(&mut Vec::new(), &bytes).expect("what can be read can be written");
        } else {
            let _ = storage::write_value_json(&mut Vec::new(), &bytes);
        }
    }

    #[test]
    fn values_come_back_from_json(item in item()) {
        let mut out = Vec::new();
        json::write_item(&mut out, &item);
        prop_assert_eq!(json::read_item(&out), Ok(item));
        serde_json::from_slice::<serde_json::Value>(&out).expect("it is JSON");
    }

    #[test]
    fn no_text_makes_the_reader_of_json_panic(text in "[\\[\\]{}\":,a-cSNBLM0-9.e-]{0,40}") {
        let _ = json::read_value(text.as_bytes());
        let _ = json::read_item(text.as_bytes());
    }

    #[test]
    fn no_text_makes_the_parsers_of_expressions_panic(text in prop_oneof![expression(), "\\PC{0,24}"]) {
        let _ = parse_condition(ExpressionKind::Filter, &text);
        let _ = parse_update(&text);
        let _ = parse_projection(&text);
    }

    #[test]
    fn damaged_inputs_of_the_fuzzer_are_read(
        seed in prop::sample::select(dynamodb::fuzz::seeds()),
        changes in vec((any::<prop::sample::Index>(), any::<u8>(), any::<prop::sample::Index>()), 1..4),
    ) {
        let mut bytes = seed;
        for (at, byte, from) in changes {
            let (at, from) = (at.index(bytes.len()), from.index(bytes.len()));
            bytes[at] = if byte < 128 { bytes[from] } else { byte };
        }
        dynamodb::fuzz::read(&bytes);
    }

    #[test]
    fn what_is_parsed_is_evaluated(text in expression(), item in item(), v in value(), w in value(), name in "[a-d]") {
        let names = BTreeMap::from([("#a".to_owned(), name.clone()), ("#b".to_owned(), name)]);
        let values = Item::from([(":v".to_owned(), v), (":w".to_owned(), w)]);
        let placeholders = || Placeholders::new(Some(&names), Some(&values)).expect("they are placeholders");
        if let Ok(parsed) = parse_condition(ExpressionKind::Filter, &text)
            && let Ok(bindings) = placeholders().bind(ExpressionKind::Filter, &parsed)
        {
            let _ = parsed.tree.holds(&item, &bindings);
        }
        if let Ok(parsed) = parse_projection(&text)
            && let Ok(bindings) = placeholders().bind(ExpressionKind::Projection, &parsed)
        {
            let part = project(&parsed.tree, &item, &bindings);
            prop_assert!(size::item_bytes(&part) <= size::item_bytes(&item));
        }
        if let Ok(parsed) = parse_update(&text)
            && let Ok(bindings) = placeholders().bind(ExpressionKind::Update, &parsed)
            && let Ok(updated) =
                update::apply(&parsed.tree, Some(item.clone()), &Item::new(), &bindings, ReturnValues::AllOld)
        {
            prop_assert_eq!(updated.attributes, Some(item));
        }
    }
}
