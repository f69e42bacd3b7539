//! Writes that read a part of an item leave the same item as writes that would read all of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stdx::random::SplitMix64;

use crate::support::{ask, create_table, with_service};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The numbers of an item by attribute; None: there is no item.
type Known = Option<BTreeMap<&'static str, i64>>;

/// A request, and what it makes of an item: None if it is refused.
struct Case {
    operation: &'static str,
    body: Value,
    after: Option<Known>,
}

fn name(random: &mut SplitMix64) -> &'static str {
    NAMES[usize::try_from(random.below(5)).expect("it is small")]
}

fn case(random: &mut SplitMix64, before: &Known) -> Case {
    let number = i64::try_from(random.below(3)).expect("it is small");
    let (set, read, asked) = (name(random), name(random), name(random));
    let value_of = |name| before.as_ref().and_then(|item| item.get(name)).copied();
    let mut after = before.clone().unwrap_or_default();
    let mut body = json!({"TableName": "parts", "Key": {"p": {"S": "k"}}});
    let values = json!({":n": {"N": number.to_string()}});
    let mut operation = "UpdateItem";
    let mut is_refused = false;
    match random.below(6) {
        0 => {
            operation = "PutItem";
            after = BTreeMap::from([(set, number), (read, 7)]);
            let attributes = after
                .iter()
                .map(|(name, n)| ((*name).to_owned(), json!({"N": n.to_string()})));
            let mut item: serde_json::Map<String, Value> = attributes.collect();
            item.insert("p".to_owned(), json!({"S": "k"}));
            body = json!({"TableName": "parts", "Item": item});
        }
        1 => operation = "DeleteItem",
        2 => {
            body["UpdateExpression"] = json!(format!("SET {set} = {read} + :n"));
            body["ExpressionAttributeValues"] = values;
            match value_of(read) {
                Some(found) => after.insert(set, found + number),
                None => {
                    is_refused = true;
                    None
                }
            };
        }
        3 => {
            body["UpdateExpression"] = json!(format!("REMOVE {set}"));
            after.remove(set);
        }
        4 => {
            body["UpdateExpression"] = json!(format!("ADD {set} :n"));
            body["ExpressionAttributeValues"] = values;
            *after.entry(set).or_default() += number;
        }
        _ => {
            body["UpdateExpression"] = json!(format!("SET {set} = if_not_exists({read}, :n)"));
            body["ExpressionAttributeValues"] = values;
            after.insert(set, value_of(read).unwrap_or(number));
        }
    }
    match random.below(4) {
        0 => {
            body["ConditionExpression"] = json!(format!("attribute_exists({asked})"));
            is_refused |= value_of(asked).is_none();
        }
        1 => {
            body["ConditionExpression"] = json!(format!("NOT {asked} = :one"));
            body["ExpressionAttributeValues"][":one"] = json!({"N": "1"});
            is_refused |= value_of(asked) == Some(1);
        }
        _ => {}
    }
    // What the whole item is needed for must not change what becomes of it.
    if random.one_in(4) {
        body["ReturnConsumedCapacity"] = json!("TOTAL");
    }
    let after = Some(after).filter(|_| operation != "DeleteItem");
    Case {
        operation,
        body,
        after: (!is_refused).then_some(after),
    }
}

/// What GetItem must answer.
fn answer_of(known: &Known) -> Value {
    let Some(known) = known else { return json!({}) };
    let mut item = json!({"p": {"S": "k"}});
    for (name, number) in known {
        item[*name] = json!({"N": number.to_string()});
    }
    json!({ "Item": item })
}

#[test]
fn a_write_leaves_what_it_does_not_speak_of() {
    with_service(1, |service| async move {
        create_table(&service, "parts").await;
        let (mut random, mut known, mut refused) = (SplitMix64::new(41), None, 0);
        for _ in 0..3_000 {
            let case = case(&mut random, &known);
            let answer = ask(&service, case.operation, &case.body.to_string()).await;
            assert_eq!(
                answer.contains("__type"),
                case.after.is_none(),
                "{}: {answer}",
                case.body
            );
            match case.after {
                Some(after) => known = after,
                None => refused += 1,
            }
            let found = ask(
                &service,
                "GetItem",
                r#"{"TableName": "parts", "Key": {"p": {"S": "k"}}}"#,
            )
            .await;
            let found: Value = serde_json::from_str(&found).expect("it is JSON");
            assert_eq!(found, answer_of(&known), "after {} {}", case.operation, case.body);
        }
        assert!((300..2_700).contains(&refused), "{refused} were refused");
    });
}

#[test]
fn an_update_of_one_attribute_is_refused_when_the_item_becomes_too_large() {
    with_service(1, |service| async move {
        create_table(&service, "parts").await;
        let put = json!({"TableName": "parts", "Item": {"p": {"S": "k"}, "big": {"S": "x".repeat(300_000)}}});
        assert_eq!(ask(&service, "PutItem", &put.to_string()).await, "{}");
        // Names and values of all attributes: "p" and "k", "big" and its value, "v".
        let room = 400 * 1024 - (2 + 3 + 300_000 + 1);
        let update = |bytes: usize| {
            json!({"TableName": "parts", "Key": {"p": {"S": "k"}}, "UpdateExpression": "SET v = :v",
                "ExpressionAttributeValues": {":v": {"S": "y".repeat(bytes)}}})
        };
        let answer = ask(&service, "UpdateItem", &update(room + 1).to_string()).await;
        assert!(answer.contains("Item size to update has exceeded"), "{answer}");
        assert_eq!(ask(&service, "UpdateItem", &update(room).to_string()).await, "{}");
    });
}
