//! What the service does that one would not guess: public suites were run against it in 2026 (the reference's list of
//! surprises), or its developer guide says so.

use std::collections::BTreeMap;

use dynamodb::error::CancellationReason;
use dynamodb::expression::{
    EXPRESSION_BYTES_MAX, ExpressionKind, OPERATORS_MAX, Placeholders, parse_condition, parse_projection, parse_update,
};
use dynamodb::legacy::{self, ConditionalOperator, LegacySeed};
use dynamodb::update::{self, ReturnValues};
use dynamodb::value::json::{Problems, read_item, read_value, write_item, write_value};
use dynamodb::value::size::{ITEM_BYTES_MAX, item_bytes, value_bytes};
use dynamodb::value::{key, storage};
use dynamodb::{AttributeValue, Error, ErrorKind, Item, Number};
use serde::de::DeserializeSeed;

fn item(json: &str) -> Item {
    read_item(json.as_bytes()).unwrap_or_else(|e| panic!("{json}: {e}"))
}

fn value(json: &str) -> AttributeValue {
    read_value(json.as_bytes()).unwrap_or_else(|e| panic!("{json}: {e}"))
}

fn text(item: &Item) -> String {
    let mut out = Vec::new();
    write_item(&mut out, item);
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Whether a condition holds, or its error.
fn check(expression: &str, on: &str, values: &str) -> Result<bool, String> {
    let values = item(values);
    let check = || {
        let parsed = parse_condition(ExpressionKind::Condition, expression)?;
        let mut placeholders = Placeholders::new(None, Some(&values).filter(|values| !values.is_empty()))?;
        let bindings = placeholders.bind(ExpressionKind::Condition, &parsed)?;
        placeholders.finish()?;
        Ok(parsed.tree.holds(&item(on), &bindings))
    };
    check().map_err(|e: Error| e.message)
}

/// The item after an update and what it answers, or its error.
fn updated(
    expression: &str,
    on: &str,
    values: &str,
    returns: ReturnValues,
) -> Result<(String, Option<String>), String> {
    let values = item(values);
    let update = || {
        let parsed = parse_update(expression)?;
        let mut placeholders = Placeholders::new(None, Some(&values).filter(|values| !values.is_empty()))?;
        let bindings = placeholders.bind(ExpressionKind::Update, &parsed)?;
        placeholders.finish()?;
        update::apply(&parsed.tree, Some(item(on)), &Item::new(), &bindings, returns)
    };
    update()
        .map(|updated| (text(&updated.item), updated.attributes.as_ref().map(text)))
        .map_err(|e: Error| e.message)
}

const LIST: &str = r#"{"l":{"L":[{"N":"1"},{"N":"2"}]}}"#;

#[test]
fn an_element_set_past_the_end_is_not_among_the_updated_attributes() {
    let set = updated("SET l[99] = :v", LIST, r#"{":v":{"N":"3"}}"#, ReturnValues::UpdatedNew);
    let list = r#"{"l":{"L":[{"N":"1"},{"N":"2"},{"N":"3"}]}}"#;
    assert_eq!(set, Ok((list.to_owned(), None)));
}

#[test]
fn after_a_removal_the_element_that_took_its_position_is_among_the_updated_attributes() {
    let removed = updated("REMOVE l[0]", LIST, "{}", ReturnValues::UpdatedNew);
    let left = r#"{"l":{"L":[{"N":"2"}]}}"#;
    assert_eq!(removed, Ok((left.to_owned(), Some(left.to_owned()))));
}

#[test]
fn all_new_always_has_attributes() {
    let (_, attributes) = updated("REMOVE nope", LIST, "{}", ReturnValues::AllNew).expect("it applies");
    assert_eq!(attributes.as_deref(), Some(LIST));
}

#[test]
fn size_takes_a_string_value_and_refuses_a_number() {
    assert_eq!(
        check("size(:v) > a", r#"{"a":{"N":"2"}}"#, r#"{":v":{"S":"abc"}}"#),
        Ok(true)
    );
    let refused = check("size(:v) > a", "{}", r#"{":v":{"N":"1"}}"#).expect_err("it is refused");
    let expected = "Incorrect operand type for operator or function; operator or function: size, operand type: N";
    assert_eq!(refused, format!("Invalid ConditionExpression: {expected}"));
}

#[test]
fn add_of_a_string_names_the_operator_and_the_type() {
    let refused = updated("ADD a :v", "{}", r#"{":v":{"S":"x"}}"#, ReturnValues::None).expect_err("it is refused");
    assert!(refused.contains("operator: ADD, operand type: STRING"), "{refused}");
}

#[test]
fn three_hundred_operators_are_allowed_and_calls_of_functions_do_not_count() {
    let joined = |part: &str, count: usize| vec![part; count].join(" AND ");
    let parse = |text: &str| parse_condition(ExpressionKind::Condition, text).map_err(|e| e.message);
    assert!(parse(&joined("a=b", 150)).is_ok(), "299 operators");
    let error = parse(&joined("a=b", 151)).expect_err("301 operators");
    let expected = "The expression contains too many operators; operator count: 301";
    assert_eq!(error, format!("Invalid ConditionExpression: {expected}"));
    let calls = joined("contains(a,b)", OPERATORS_MAX / 2);
    assert!(calls.len() <= EXPRESSION_BYTES_MAX && parse(&calls).is_ok());
}

#[test]
fn nesting_up_to_the_limit_fits_on_a_stack_of_a_request_and_more_is_refused() {
    let parse = |text: &str| parse_condition(ExpressionKind::Condition, text).map_err(|e| e.message);
    let deep = |open: &str, count: usize| [&open.repeat(count), "a=b", &")".repeat(count)].concat();
    let nots = parse(&deep("NOT(", 299)).expect("300 operators");
    let placeholders = &mut Placeholders::new(None, None).expect("there are none");
    let bindings = placeholders.bind(ExpressionKind::Condition, &nots).expect("it binds");
    assert!(nots.tree.holds(&item(r#"{"a":{"N":"1"},"b":{"N":"2"}}"#), &bindings));
    for text in [
        deep("(", 2000),
        deep("NOT(", 800),
        format!("{}a", "size(".repeat(800)),
        "NOT ".repeat(1000),
    ] {
        parse(&text).expect_err("it is too deep");
    }
    parse_update(&format!("SET a = {}b", "(".repeat(4000))).expect_err("it is too deep");
    parse_update(&format!("SET a = {}b", "list_append(".repeat(300))).expect_err("it is not closed");
}

#[test]
fn sets_with_duplicates_are_refused_with_the_elements_for_strings_and_binaries() {
    let refused = |json: &str| read_value(json.as_bytes()).expect_err("it is refused").message;
    let invalid = "One or more parameter values were invalid: ";
    assert_eq!(refused(r#"{"NS":["1","1.0"]}"#), "Input collection contains duplicates");
    assert_eq!(
        refused(r#"{"SS":["a","a"]}"#),
        format!("{invalid}Input collection [a, a] contains duplicates.")
    );
    let binaries = "Input collection [Yg==, Yg==]of type BS contains duplicates.";
    assert_eq!(refused(r#"{"BS":["Yg==","Yg=="]}"#), format!("{invalid}{binaries}"));
    // What boto3 sends for an empty set of Python.
    assert_eq!(
        refused(r#"{"NS":[]}"#),
        format!("{invalid}An number set  may not be empty")
    );
}

#[test]
fn a_path_has_at_most_32_levels() {
    let path = |levels: usize| vec!["a"; levels].join(".");
    assert!(parse_projection(&path(32)).is_ok());
    let error = parse_projection(&path(33)).expect_err("it is too deep").message;
    let expected = "The document path has too many nesting levels; nesting levels: 33";
    assert_eq!(error, format!("Invalid ProjectionExpression: {expected}"));
}

#[test]
fn an_update_cannot_make_an_item_deeper_or_larger_than_an_item_may_be() {
    let nested = |levels: usize| {
        format!(
            "{}{}{}",
            r#"{"L":["#.repeat(levels),
            r#"{"N":"1"}"#,
            "]}".repeat(levels)
        )
    };
    let on = format!(r#"{{"l":{}}}"#, nested(2));
    let values = format!(r#"{{":v":{}}}"#, nested(29));
    assert!(updated("SET l[0][0] = :v", &on, &values, ReturnValues::None).is_ok());
    let values = format!(r#"{{":v":{}}}"#, nested(30));
    let error = updated("SET l[0][0] = :v", &on, &values, ReturnValues::None).expect_err("it is too deep");
    assert!(
        error.starts_with("Nesting Levels have exceeded supported limits"),
        "{error}"
    );
    let values = format!(r#"{{":v":{{"S":"{}"}}}}"#, "x".repeat(ITEM_BYTES_MAX - 1));
    assert!(updated("SET a = :v", "{}", &values, ReturnValues::None).is_ok());
    let twice: Vec<String> = (0..200).map(|n| format!("a{n} = :v")).collect();
    for expression in ["SET ab = :v".to_owned(), format!("SET {}", twice.join(","))] {
        let error = updated(&expression, "{}", &values, ReturnValues::None).expect_err("it is too large");
        assert_eq!(error, "Item size to update has exceeded the maximum allowed size");
    }
}

#[test]
fn sizes_count_three_bytes_for_a_list_or_map_and_one_for_each_element() {
    let cases = [
        (r#"{"L":[]}"#, 3),
        (r#"{"L":[{"S":"abc"},{"NULL":true}]}"#, 3 + 1 + 3 + 1 + 1),
        (r#"{"M":{"ab":{"S":"abc"}}}"#, 3 + 1 + 2 + 3),
        (r#"{"S":"é"}"#, 2),
        (r#"{"N":"0"}"#, 1),
        (r#"{"N":"1200"}"#, 2),
        (r#"{"N":"-123.45"}"#, 5),
        (r#"{"SS":["a","bc"]}"#, 3),
        (r#"{"B":"YWJj"}"#, 3),
        (r#"{"BOOL":false}"#, 1),
    ];
    for (json, bytes) in cases {
        assert_eq!(value_bytes(&value(json)), bytes, "{json}");
    }
    assert_eq!(item_bytes(&item(r#"{"abc":{"S":"de"}}"#)), 5);
}

#[test]
fn numbers_come_back_as_plain_decimals() {
    for (sent, plain) in [
        ("1E+3", "1000"),
        ("1.0", "1"),
        ("-0", "0"),
        ("1E-3", "0.001"),
        ("1E+30", "1000000000000000000000000000000"),
    ] {
        let number: Number = sent.parse().expect("it is a number");
        assert_eq!(number.to_string(), plain);
    }
}

/// The texts that builders of the SDKs make.
#[test]
fn the_grammar_of_real_builders_is_accepted() {
    for text in [
        "ADD #0 :0\nDELETE #1 :1\nREMOVE #2\nSET #3 = :2\n",
        "remove #a, #b set #c = :c add #d :d",
        "SET #a = if_not_exists (#a, :v), #b = list_append (#b, :l)",
    ] {
        assert!(parse_update(text).is_ok(), "{text}");
    }
    for text in [
        "contains (#a, :v)",
        "attribute_not_exists (#0)",
        "(#a = :a) AND (begins_with(#b, :b))",
        "( ( ( size ( #a )) < #b.c ) AND ( #d > :v ) )",
    ] {
        assert!(parse_condition(ExpressionKind::KeyCondition, text).is_ok(), "{text}");
    }
}

#[test]
fn two_placeholders_may_name_one_attribute_and_one_value_may_be_used_twice() {
    let names = BTreeMap::from(["#a", "#b"].map(|name| (name.to_owned(), "a".to_owned())));
    let values = item(r#"{":v":{"N":"1"}}"#);
    let parsed = parse_condition(ExpressionKind::Filter, "#a = :v AND #b >= :v").expect("it parses");
    let mut placeholders = Placeholders::new(Some(&names), Some(&values)).expect("they are placeholders");
    let bindings = placeholders.bind(ExpressionKind::Filter, &parsed).expect("it binds");
    placeholders.finish().expect("all are used");
    assert!(parsed.tree.holds(&item(r#"{"a":{"N":"1.0"}}"#), &bindings));
}

#[test]
fn one_parsed_expression_serves_requests_with_other_names_and_values() {
    let parsed = parse_condition(ExpressionKind::Filter, "#a = :v").expect("it parses");
    for (name, value, holds) in [("x", r#"{":v":{"N":"1"}}"#, true), ("y", r#"{":v":{"N":"1"}}"#, false)] {
        let (names, values) = (BTreeMap::from([("#a".to_owned(), name.to_owned())]), item(value));
        let mut placeholders = Placeholders::new(Some(&names), Some(&values)).expect("they are placeholders");
        let bindings = placeholders.bind(ExpressionKind::Filter, &parsed).expect("it binds");
        assert_eq!(
            parsed.tree.holds(&item(r#"{"x":{"N":"1"},"y":{"N":"2"}}"#), &bindings),
            holds
        );
    }
}

/// What the lease table of the Kinesis client library sends.
#[test]
fn updates_of_leases_apply() {
    let problems = Problems::default();
    let read = |json: &'static str| {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        LegacySeed(&problems)
            .deserialize(&mut deserializer)
            .expect("it is a map")
    };
    let expected = read(r#"{"leaseOwner":{"Value":{"S":"w1"}},"checkpoint":{"Exists":false}}"#);
    let updates = read(
        r#"{"leaseCounter":{"Action":"ADD","Value":{"N":"1"}},"leaseOwner":{"Action":"PUT","Value":{"S":"w2"}},
            "parents":{"Action":"DELETE"}}"#,
    );
    let lease = item(r#"{"leaseOwner":{"S":"w1"},"leaseCounter":{"N":"7"},"parents":{"SS":["p"]}}"#);
    let condition = legacy::expected(&expected, ConditionalOperator::And)
        .expect("it is valid")
        .expect("it is there");
    let mut placeholders = Placeholders::new(None, condition.values.as_ref()).expect("they are placeholders");
    let bindings = placeholders
        .bind(ExpressionKind::Condition, &condition.expression)
        .expect("it binds");
    assert!(condition.expression.tree.holds(&lease, &bindings));
    let update = legacy::attribute_updates(&updates).expect("it is valid");
    let mut placeholders = Placeholders::new(None, update.values.as_ref()).expect("they are placeholders");
    let bindings = placeholders
        .bind(ExpressionKind::Update, &update.expression)
        .expect("it binds");
    let returns = ReturnValues::UpdatedNew;
    let updated = update::apply(&update.expression.tree, Some(lease), &Item::new(), &bindings, returns);
    let attributes = updated.expect("it applies").attributes.expect("some are left");
    assert_eq!(
        text(&attributes),
        r#"{"leaseCounter":{"N":"8"},"leaseOwner":{"S":"w2"}}"#
    );
}

#[test]
fn legacy_parameters_do_not_go_with_expressions() {
    let error = legacy::refuse_mixed(&["AttributesToGet", "ScanFilter"], &["ProjectionExpression"]);
    assert_eq!(
        error.expect_err("both are there").message,
        "Can not use both expression and non-expression parameters in the same request: Non-expression parameters: \
         {AttributesToGet, ScanFilter} Expression parameters: {ProjectionExpression}"
    );
}

#[test]
fn errors_have_a_type_with_its_namespace_and_what_the_kind_carries() {
    let body = |error: &Error| {
        let mut out = Vec::new();
        error.write_json(&mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    };
    let failed = Error::condition_failed(Some(item(r#"{"a":{"N":"1"}}"#)));
    assert_eq!(
        body(&failed),
        r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed","Item":{"a":{"N":"1"}}}"#
    );
    let unknown = Error::new(ErrorKind::UnknownOperation, "");
    assert_eq!(
        unknown.type_text(),
        "com.amazon.coral.service#UnknownOperationException"
    );
    assert_eq!(
        (
            unknown.http_status(),
            Error::new(ErrorKind::InternalServerError, "").http_status()
        ),
        (400, 500)
    );
    let reason = CancellationReason {
        code: "ConditionalCheckFailed",
        message: Some("The conditional request failed".to_owned()),
        item: None,
    };
    let canceled = Error::transaction_canceled(vec![CancellationReason::default(), reason]);
    assert!(
        canceled.message.ends_with("[None, ConditionalCheckFailed]"),
        "{}",
        canceled.message
    );
    let reasons = r#""CancellationReasons":[{"Code":"None"},{"Code":"ConditionalCheckFailed","Message":"The conditional request failed"}]}"#;
    assert!(body(&canceled).ends_with(reasons), "{}", body(&canceled));
}

#[test]
fn keys_are_strings_numbers_and_binaries_that_are_not_empty_or_long() {
    let check = |json: &str| key::check(&value(json), 4);
    assert_eq!(check(r#"{"S":"abcd"}"#), Ok(()));
    assert_eq!(check(r#"{"S":""}"#), Err(key::KeyError::Empty));
    assert_eq!(check(r#"{"B":"YWJjZGU="}"#), Err(key::KeyError::TooLong));
    assert_eq!(
        check(r#"{"BOOL":true}"#),
        Err(key::KeyError::Type(dynamodb::ValueType::Bool))
    );
    let cql = |json: &str| {
        let mut out = Vec::new();
        key::append_cql(&mut out, &value(json)).expect("it is a key");
        testkit::hex(&out)
    };
    // Scale and unscaled value: 1.2e3 is 12 * 10^2.
    assert_eq!(cql(r#"{"N":"1200"}"#), "fffffffe0c");
    assert_eq!(cql(r#"{"N":"1.2e3"}"#), "fffffffe0c");
    assert_eq!(cql(r#"{"N":"-0.01"}"#), "00000002ff");
    assert_eq!(cql(r#"{"N":"0"}"#), "0000000000");
    assert_eq!(cql(r#"{"S":"é"}"#), "c3a9");
}

/// The stored form is durable: these bytes must be read for as long as version 1 is.
#[test]
fn the_stored_form_has_these_bytes() {
    let cases = [
        (r#"{"NULL":true}"#, "0100"),
        (r#"{"BOOL":true}"#, "0102"),
        (r#"{"S":"ab"}"#, "0103026162"),
        (r#"{"B":"YQ=="}"#, "01040161"),
        (r#"{"N":"0"}"#, "010500"),
        (r#"{"N":"300"}"#, "01054102000 3"),
        (r#"{"N":"-258.5"}"#, "0105c2ffff190a"),
        (r#"{"L":[{"N":"7"},{"NULL":true}]}"#, "01060205010700"),
        (r#"{"M":{"b":{"S":""},"a":{"BOOL":false}}}"#, "010702016101016203 00"),
        (r#"{"SS":["b","a"]}"#, "0108020161 0162"),
        (r#"{"NS":["2","1"]}"#, "010a0201010102"),
        (r#"{"BS":["YQ=="]}"#, "0109010161"),
    ];
    for (json, bytes) in cases {
        let bytes = bytes.replace(' ', "");
        let mut out = Vec::new();
        storage::append_value(&mut out, &value(json));
        assert_eq!(testkit::hex(&out), bytes, "{json}");
        let read = storage::read_value(&testkit::from_hex(&bytes)).expect("it is stored");
        let mut again = Vec::new();
        write_value(&mut again, &read);
        assert_eq!(read_value(&again), Ok(value(json)), "{json}");
    }
    for malformed in [
        "",
        "00",
        "0200",
        "010b",
        "0108020162 0161",
        "01070201620001 6100",
        "01053f",
        "0108020161 0161",
    ] {
        let bytes = testkit::from_hex(&malformed.replace(' ', ""));
        assert_eq!(storage::read_value(&bytes), Err(storage::Malformed), "{malformed}");
    }
}

#[test]
fn the_deepest_item_can_be_stored_and_read_back_and_a_deeper_one_is_refused() {
    for innermost in [r#"{"N":"1"}"#, r#"{"NS":["1"]}"#] {
        for (open, close) in [(r#"{"L":["#, "]}"), (r#"{"M":{"x":"#, "}}")] {
            let nested =
                |levels: usize| format!(r#"{{"a":{}{innermost}{}}}"#, open.repeat(levels), close.repeat(levels));
            let deepest = item(&nested(31));
            let (mut stored, mut json) = (Vec::new(), Vec::new());
            storage::append_item(&mut stored, &deepest);
            assert_eq!(storage::read_item(&stored).as_ref(), Ok(&deepest));
            storage::write_item_json(&mut json, &stored).expect("it is stored");
            assert_eq!(read_item(&json), Ok(deepest));
            let error = read_item(nested(32).as_bytes()).expect_err("it is too deep");
            assert!(error.message.starts_with("Nesting Levels"), "{error}");
        }
    }
    let empty = format!("{}{}", r#"{"L":["#.repeat(32), "]}".repeat(32));
    read_value(empty.as_bytes()).expect_err("an empty list is a level too");
}

thread_local! {
    static SUSPENSIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How often `step` could have been suspended.
fn suspensions<T>(step: impl FnOnce() -> T) -> (usize, T) {
    SUSPENSIONS.set(0);
    let hook: fn() = || SUSPENSIONS.set(SUSPENSIONS.get() + 1);
    let done = stdx::preempt::offer(Some(hook), || stdx::preempt::allowed(step));
    (SUSPENSIONS.get(), done)
}

#[test]
fn every_step_over_a_long_value_can_be_suspended() {
    const COUNT: usize = 20_000;
    // A hook is called at every eighth point.
    let enough = |what: &str, count: usize| assert!(count >= COUNT / 8, "{what}: {count} suspensions");
    let numbers: Vec<String> = (0..COUNT).rev().map(|number| format!("\"{number}\"")).collect();
    let nulls = vec![r#"{"NULL":true}"#; COUNT].join(",");
    let others = vec![r#"{"x":[]}"#; COUNT].join(",");
    let numbers = numbers.join(",");
    let json = format!(r#"{{"ns":{{"NS":[{numbers}]}},"l":{{"L":[{nulls}]}},"s":{{"S":"a","other":[{others}]}}}}"#);
    let (count, item) = suspensions(|| read_item(json.as_bytes()).expect("it is an item"));
    enough("reading JSON", count / 3);
    let mut out = Vec::new();
    enough("writing JSON", suspensions(|| write_item(&mut out, &item)).0);
    let mut stored = Vec::new();
    enough("storing", suspensions(|| storage::append_item(&mut stored, &item)).0);
    enough(
        "reading what is stored",
        suspensions(|| storage::read_item(&stored).expect("it is stored")).0,
    );
    enough(
        "stored to JSON",
        suspensions(|| storage::write_item_json(&mut out, &stored).expect("it is stored")).0,
    );
    enough("sizes", suspensions(|| item_bytes(&item)).0);
    let (count, copy) = suspensions(|| dynamodb::value::copy_item(&item));
    enough("copying", count);
    enough(
        "comparing",
        suspensions(|| assert!(dynamodb::value::items_equal(&item, &copy))).0,
    );
    enough("freeing", suspensions(|| dynamodb::value::release_item(copy)).0);
}

#[test]
fn messages_repeat_a_bounded_part_of_what_a_client_sent() {
    let long = "x".repeat(1 << 20);
    let error = read_value(format!(r#"{{"N":"{long}"}}"#).as_bytes()).expect_err("it is no number");
    assert!(error.message.len() < 4096, "{}", error.message.len());
    let error = read_value(format!(r#"{{"SS":["{long}","{long}"]}}"#).as_bytes()).expect_err("they are equal");
    assert!(error.message.len() < 4096, "{}", error.message.len());
    let values = Item::from([(format!(":{long}"), AttributeValue::Null)]);
    let placeholders = Placeholders::new(None, Some(&values)).expect("it is a placeholder");
    let error = placeholders.finish().expect_err("it is unused");
    assert!(error.message.len() < 4096, "{}", error.message.len());
}
