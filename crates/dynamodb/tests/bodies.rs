//! No body makes a parser of requests panic: bodies of clients are bytes of strangers.

use dynamodb::partiql;
use dynamodb::request::{Operation, Request};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Bodies of every operation, from the recorded suites.
fn recorded() -> Vec<(Operation, &'static str)> {
    let suites = [
        include_str!("requests/items.txt"),
        include_str!("requests/queries.txt"),
        include_str!("requests/batches.txt"),
        include_str!("requests/tables_requests.txt"),
        include_str!("requests/statements.txt"),
    ];
    let case = |line: &'static str| {
        let (name, body) = line.split_once(' ')?;
        Some((Operation::from_name(name)?, body))
    };
    suites.into_iter().flat_map(str::lines).filter_map(case).collect()
}

/// A JSON value of any shape, with names of the API.
fn json() -> impl Strategy<Value = String> {
    let names = [
        "TableName",
        "Key",
        "Item",
        "S",
        "N",
        "NS",
        "M",
        "L",
        "Expected",
        "Limit",
        "RequestItems",
        "Keys",
        "Statement",
        "KeySchema",
        "AttributeName",
        "TransactItems",
        "Put",
        "Parameters",
        "ExpressionAttributeValues",
        ":v",
        "#n",
        "KeyConditionExpression",
        "GlobalSecondaryIndexes",
        "Tags",
        "TimeToLiveSpecification",
        "k",
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f32>()
            .prop_filter("JSON has no other numbers", |n| n.is_finite())
            .prop_map(|n| format!("{n:?}")),
        select(vec![
            "\"\"",
            "\"abc\"",
            "\"1\"",
            "\"k = :v\"",
            "\"HASH\"",
            "\"SELECT * FROM t\"",
            "[]",
            "{}"
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        let name = select(names.to_vec());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|list| format!("[{}]", list.join(","))),
            prop::collection::vec((name, inner), 0..5).prop_map(|map| {
                let members: Vec<String> = map.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_body_of_any_shape_is_answered(operation in select(Operation::ALL.to_vec()), body in json()) {
        let _ = Request::parse(operation, body.as_bytes());
    }

    #[test]
    fn a_damaged_body_is_answered(case in any::<Index>(), at in any::<Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let recorded = recorded();
        let (operation, body) = recorded[case.index(recorded.len())];
        let mut bytes = body.as_bytes().to_vec();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let _ = Request::parse(operation, &bytes);
    }

    #[test]
    fn a_statement_of_any_text_is_answered(words in prop::collection::vec(select(vec![
        "SELECT", "*", "FROM", "\"t\"", "t", ".", "WHERE", "k", "=", "?", "'a'", "1", "AND", "OR", "NOT", "(", ")", "[",
        "]", "{", "}", "<<", ">>", ":", ",", "INSERT", "INTO", "VALUE", "UPDATE", "SET", "REMOVE", "DELETE",
        "RETURNING", "ALL", "OLD", "EXISTS", "IN", "BETWEEN", "begins_with", "IS", "MISSING", "NULL", "-", "+", "'",
        "\u{e9}", "ORDER", "BY", "DESC",
    ]), 0..24)) {
        let _ = partiql::parse(&words.join(" "), &[]);
    }
}

/// Nesting is refused before it can use up the stack.
#[test]
fn deep_nesting_is_refused() {
    let deep = "{\"M\":{\"a\":".repeat(5000) + "1";
    let body = format!("{{\"TableName\":\"abc\",\"Item\":{{\"k\":{deep}");
    assert!(Request::parse(Operation::PutItem, body.as_bytes()).is_err());
    for text in ["(", "NOT ", "[", "{'a':", "<<"] {
        let statement = format!("SELECT * FROM t WHERE k = {}", text.repeat(4000));
        assert!(partiql::parse(&statement, &[]).is_err(), "{text}");
    }
}

/// Short and long bodies are checked for UTF-8 in different ways.
#[test]
fn a_body_that_is_not_utf_8_is_refused() {
    for padding in [0, 100_000] {
        let blanks = " ".repeat(padding);
        let mut body = format!(r#"{{"TableName":"abc",{blanks}"Item":{{"k":{{"S":"x"}}}}}}"#).into_bytes();
        assert!(Request::parse(Operation::PutItem, &body).is_ok());
        let at = body.iter().rposition(|byte| *byte == b'x').expect("there is an x");
        body[at] = 0xff;
        assert!(Request::parse(Operation::PutItem, &body).is_err(), "{padding} blanks");
    }
}
