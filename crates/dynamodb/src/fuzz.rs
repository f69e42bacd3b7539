//! What the fuzzer needs of this crate: values, expressions and legacy maps to begin with, and everything that reads
//! them.

use std::collections::BTreeMap;

use serde::de::DeserializeSeed;

use crate::backup::Backup;
use crate::expression::{ExpressionKind, Placeholders, parse_condition, parse_projection, parse_update};
use crate::legacy::{self, ConditionalOperator, LegacySeed};
use crate::partiql;
use crate::projection::project;
use crate::request::{Operation, Request};
use crate::table::TableDefinition;
use crate::update::{self, ReturnValues};
use crate::value::json::{self, Problems};
use crate::value::{Item, ValueType, key, size, storage};

const JSON: u8 = 0;
const STORED: u8 = 1;
const EXPRESSION: u8 = 2;
const LEGACY: u8 = 3;
const KEY: u8 = 4;
/// The next byte says of which operation.
const REQUEST: u8 = 5;
const STATEMENT: u8 = 6;
const DEFINITION: u8 = 7;
/// The first byte of an input, by its remainder, says what the others are.
const KINDS: u8 = 8;

const ITEM: &str = r#"{"a":{"N":"-12.50"},"s":{"S":"x\n"},"b":{"B":"AAEC"},"t":{"BOOL":true},"n":{"NULL":true},
    "l":{"L":[{"N":"1E30"},{"M":{"x":{"SS":["b","a"]}}}]},"ns":{"NS":["2","1"]},"bs":{"BS":["AQ==","AA=="]}}"#;
const EXPRESSIONS: [&str; 6] = [
    "#a = :v AND NOT (size(l) > :w OR attribute_type(s, :x)) AND begins_with(s, :x)",
    "a BETWEEN :w AND :v AND l[1].x IN (:v, :w) AND contains(ss, :x)",
    "attribute_exists(l[0]) OR attribute_not_exists(m.y)",
    "SET #a = a + :v, l[7] = if_not_exists(q, :w), l = list_append(l, l) REMOVE s, l[0] ADD ns :v DELETE bs :w",
    "SET l[1].x = :v REMOVE l[0], bs",
    "a, l[1].x, l[0], #a.y",
];
const LEGACY_MAPS: [&str; 2] = [
    r#"{"a":{"ComparisonOperator":"BETWEEN","AttributeValueList":[{"N":"1"},{"N":"2"}]},"s":{"Exists":false}}"#,
    r#"{"a":{"Action":"ADD","Value":{"N":"1"}},"ns":{"Action":"DELETE","Value":{"NS":["1"]}},"s":{"Action":"DELETE"}}"#,
];

const REQUESTS: [(Operation, &str); 5] = [
    (
        Operation::CreateTable,
        r#"{"TableName":"tab","KeySchema":[{"AttributeName":"p","KeyType":"HASH"}],
            "AttributeDefinitions":[{"AttributeName":"p","AttributeType":"S"}],"BillingMode":"PAY_PER_REQUEST"}"#,
    ),
    (
        Operation::UpdateItem,
        r#"{"TableName":"tab","Key":{"p":{"S":"x"}},"UpdateExpression":"SET a = :v","ReturnValues":"ALL_NEW",
            "ExpressionAttributeValues":{":v":{"N":"1"}},"ReturnConsumedCapacity":"INDEXES"}"#,
    ),
    (
        Operation::Query,
        r#"{"TableName":"tab","KeyConditionExpression":"p = :p","ExpressionAttributeValues":{":p":{"S":"x"}},
            "Limit":2,"ScanIndexForward":false}"#,
    ),
    (
        Operation::TransactWriteItems,
        r#"{"TransactItems":[{"Put":{"TableName":"tab","Item":{"p":{"S":"x"}}}}],"ClientRequestToken":"t"}"#,
    ),
    (
        Operation::BatchGetItem,
        r#"{"RequestItems":{"tab":{"Keys":[{"p":{"S":"x"}}],"ConsistentRead":true}}}"#,
    ),
];
const STATEMENTS: [&str; 4] = [
    "SELECT a, l[1].x FROM \"tab\".\"idx\" WHERE p = ? AND s BETWEEN 1 AND 2 ORDER BY s DESC",
    "INSERT INTO tab VALUE {'p': 'x', 'm': {'y': [1, <<'a', 'b'>>]}}",
    "UPDATE tab SET a = a + 1 REMOVE l[0] WHERE p = 'x' RETURNING ALL OLD *",
    "EXISTS(SELECT * FROM tab WHERE p IN ['x', 'y'] AND contains(ss, 'a'))",
];

/// One input of each kind, and of each expression.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut stored = Vec::new();
    let mut decimal = vec![0];
    if let Ok(item) = json::read_item(ITEM.as_bytes()) {
        storage::append_item(&mut stored, &item);
        if let Some(number) = item.get("a") {
            // It is a number, which can be a key.
            let _appended = key::append_cql(&mut decimal, number);
        }
    }
    let tagged = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    let texts = EXPRESSIONS.iter().map(|text| tagged(EXPRESSION, text.as_bytes()));
    let maps = LEGACY_MAPS.iter().map(|text| tagged(LEGACY, text.as_bytes()));
    let others = [
        tagged(JSON, ITEM.as_bytes()),
        tagged(STORED, &stored),
        tagged(KEY, &decimal),
    ];
    let numbered = Operation::ALL.iter().zip(0_u8..);
    let number = |wanted: Operation| numbered.clone().find(|(operation, _)| **operation == wanted);
    let requests = REQUESTS.iter().filter_map(|(operation, body)| {
        let (_, number) = number(*operation)?;
        Some(tagged(REQUEST, &[&[number], body.as_bytes()].concat()))
    });
    let statements = STATEMENTS.iter().map(|text| tagged(STATEMENT, text.as_bytes()));
    let definition = Request::parse(Operation::CreateTable, REQUESTS[0].1.as_bytes()).ok();
    let definition = definition.and_then(|request| match request {
        Request::CreateTable(request) => request.into_definition("id".to_owned(), 1).encode().ok(),
        _ => None,
    });
    let definition = definition.map(|bytes| tagged(DEFINITION, &bytes));
    let items = texts.chain(maps).chain(others);
    items.chain(requests).chain(statements).chain(definition).collect()
}

/// Reads the bytes as what their first one says.
pub fn read(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    match first % KINDS {
        JSON => read_json(bytes),
        STORED => read_stored(bytes),
        EXPRESSION => read_expression(&String::from_utf8_lossy(bytes)),
        LEGACY => read_legacy(bytes),
        KEY => read_key(bytes),
        REQUEST => read_request(bytes),
        STATEMENT => drop(partiql::parse(&String::from_utf8_lossy(bytes), &[])),
        _ => read_definition(bytes),
    }
}

fn read_json(bytes: &[u8]) {
    if let Ok(item) = json::read_item(bytes) {
        let mut stored = Vec::new();
        storage::append_item(&mut stored, &item);
        assert_eq!(
            storage::read_item(&stored).as_ref(),
            Ok(&item),
            "an item is read as it was stored"
        );
        assert!(
            size::item_bytes(&item) <= 4 * bytes.len(),
            "an item is not larger than its JSON"
        );
    }
}

fn read_stored(bytes: &[u8]) {
    let (mut direct, mut by_value) = (Vec::new(), Vec::new());
    let written = storage::write_value_json(&mut direct, bytes);
    let measured = storage::stored_value_bytes(bytes);
    if let Ok(value) = storage::read_value(bytes) {
        assert_eq!(measured, Ok(size::value_bytes(&value)), "both ways to the size agree");
        json::write_value(&mut by_value, &value);
        assert!(written.is_ok() && direct == by_value, "both ways to JSON agree");
    }
}

fn read_expression(text: &str) {
    let item = json::read_item(ITEM.as_bytes()).unwrap_or_default();
    let names = BTreeMap::from([("#a".to_owned(), "l".to_owned())]);
    let pick = |name: &str, from: &str| item.get(from).map(|value| (name.to_owned(), value.clone()));
    let values: Item = [pick(":v", "a"), pick(":w", "bs"), pick(":x", "s")]
        .into_iter()
        .flatten()
        .collect();
    let Ok(mut placeholders) = Placeholders::new(Some(&names), Some(&values)) else {
        return;
    };
    if let Ok(parsed) = parse_condition(ExpressionKind::Condition, text)
        && let Ok(bindings) = Placeholders::new(Some(&names), Some(&values))
            .and_then(|mut placeholders| placeholders.bind(ExpressionKind::Condition, &parsed))
    {
        parsed.tree.holds(&item, &bindings);
    }
    let (projection, update) = (parse_projection(text), parse_update(text));
    if let Ok(parsed) = &projection
        && let Ok(bindings) = placeholders.bind(ExpressionKind::Projection, parsed)
    {
        project(&parsed.tree, &item, &bindings);
    }
    if let Ok(parsed) = &update
        && let Ok(bindings) = placeholders.bind(ExpressionKind::Update, parsed)
    {
        let updated = update::apply(
            &parsed.tree,
            Some(item.clone()),
            &item,
            &bindings,
            ReturnValues::UpdatedNew,
        );
        drop(updated);
    }
}

fn read_legacy(bytes: &[u8]) {
    let problems = Problems::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let Ok(map) = LegacySeed(&problems).deserialize(&mut deserializer) else {
        return;
    };
    let item = json::read_item(ITEM.as_bytes()).unwrap_or_default();
    if let Ok(Some(legacy)) = legacy::expected(&map, ConditionalOperator::Or)
        && let Ok(mut placeholders) = Placeholders::new(None, legacy.values.as_ref())
        && let Ok(bindings) = placeholders.bind(ExpressionKind::Condition, &legacy.expression)
    {
        legacy.expression.tree.holds(&item, &bindings);
    }
    if let Ok(legacy) = legacy::attribute_updates(&map)
        && let Ok(mut placeholders) = Placeholders::new(None, legacy.values.as_ref())
        && let Ok(bindings) = placeholders.bind(ExpressionKind::Update, &legacy.expression)
    {
        let returns = ReturnValues::UpdatedOld;
        drop(update::apply(&legacy.expression.tree, None, &item, &bindings, returns));
    }
}

fn read_request(bytes: &[u8]) {
    let Some((&number, body)) = bytes.split_first() else {
        return;
    };
    let operation = Operation::ALL[usize::from(number) % Operation::ALL.len()];
    drop(Request::parse(operation, body));
}

fn read_definition(bytes: &[u8]) {
    if let Ok(definition) = TableDefinition::decode(bytes) {
        let again = definition.encode().ok().map(|bytes| TableDefinition::decode(&bytes));
        assert_eq!(again, Some(Ok(definition)), "a definition comes back");
    }
    if let Ok(backup) = Backup::decode(bytes) {
        let again = backup.encode().ok().map(|bytes| Backup::decode(&bytes));
        // Positions of hosts that are not there change nothing.
        let _ = backup.is_complete(|_| true);
        assert_eq!(again, Some(Ok(backup)), "a backup comes back");
    }
}

fn read_key(bytes: &[u8]) {
    for key_type in [ValueType::S, ValueType::N, ValueType::B] {
        if let Ok(value) = key::from_cql(key_type, bytes) {
            let mut out = Vec::new();
            assert_eq!(key::append_cql(&mut out, &value), Ok(()), "a key is a key");
            assert_eq!(key::from_cql(key_type, &out), Ok(value), "a key comes back");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_and_their_beginnings_are_read() {
        for seed in super::seeds() {
            for end in 0..=seed.len() {
                super::read(&seed[..end]);
            }
        }
    }
}
