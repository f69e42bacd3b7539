use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::error::ConditionalCheckFailedException;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnConsumedCapacity, ReturnValue, ReturnValuesOnConditionCheckFailure,
};
use serde::{Deserialize, Serialize};

use crate::{Application, Item, Result, equal, failure, holds, item, key, n, refuses, s, with};

async fn put(application: &Application, item: Item) -> Result {
    application
        .client
        .put_item()
        .table_name(&application.table)
        .set_item(Some(item))
        .send()
        .await?;
    Ok(())
}

pub async fn get(application: &Application, key: Item) -> Result<Option<Item>> {
    Ok(application
        .client
        .get_item()
        .table_name(&application.table)
        .set_key(Some(key))
        .consistent_read(true)
        .send()
        .await?
        .item)
}

fn list(values: impl IntoIterator<Item = AttributeValue>) -> AttributeValue {
    AttributeValue::L(values.into_iter().collect())
}

fn texts(values: &[&str]) -> AttributeValue {
    AttributeValue::Ss(values.iter().map(|&text| text.to_owned()).collect())
}

pub async fn writes_every_type(application: &Application) -> Result {
    let written = with(
        key("types", 1),
        [
            ("text", s("Größe \u{1F3B5}\n\"\\")),
            ("emptyText", s("")),
            ("long", n("12345678901234567890123456789012345678")),
            ("small", n("-0.00000000000000000000000000000000000001")),
            ("bytes", AttributeValue::B(Blob::new([0, 1, 254, 255]))),
            ("emptyBytes", AttributeValue::B(Blob::new([]))),
            ("yes", AttributeValue::Bool(true)),
            ("nothing", AttributeValue::Null(true)),
            ("list", list([s("a"), n(1), list([]), AttributeValue::M(item([]))])),
            (
                "map",
                AttributeValue::M(item([(
                    "deep.er",
                    AttributeValue::M(item([("list", list([AttributeValue::Null(true)]))])),
                )])),
            ),
            ("one", texts(&[""])),
            ("binaries", AttributeValue::Bs(vec![Blob::new([1])])),
        ],
    );
    put(
        application,
        with(
            written.clone(),
            [("numbers", AttributeValue::Ns(vec!["1".to_owned(), "-2.5".to_owned()]))],
        ),
    )
    .await?;
    let mut read = get(application, key("types", 1)).await?.ok_or("no item")?;
    let Some(AttributeValue::Ns(mut numbers)) = read.remove("numbers") else {
        return Err("no number set".into());
    };
    numbers.sort();
    equal(&numbers, &vec!["-2.5".to_owned(), "1".to_owned()])?;
    equal(&read, &written)?;
    put(
        application,
        with(key("types", 2), [("n", list([n("1.0"), n("1E+3"), n("-0")]))]),
    )
    .await?;
    equal(
        &get(application, key("types", 2)).await?.ok_or("no item")?["n"],
        &list([n(1), n(1000), n(0)]),
    )?;
    for (value, message) in [
        (texts(&[]), "not be empty"),
        (AttributeValue::Ns(vec![]), "not be empty"),
        (AttributeValue::Bs(vec![]), "not be empty"),
        (texts(&["a", "a"]), "duplicates"),
        (n("1".repeat(39)), "38 significant digits"),
        (n("one"), "cannot be converted to a numeric value"),
        (
            s(&"x".repeat(410_000)),
            "Item size has exceeded the maximum allowed size",
        ),
    ] {
        let wrong = with(key("types", 3), [("wrong", value)]);
        refuses(
            application
                .client
                .put_item()
                .table_name(&application.table)
                .set_item(Some(wrong))
                .send()
                .await,
            message,
        )?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Album {
    p: String,
    c: u32,
    tracks: Vec<Track>,
    #[serde(with = "serde_dynamo::string_set")]
    labels: BTreeSet<String>,
    ratings: BTreeMap<String, f64>,
    plays: u64,
    #[serde(with = "serde_bytes")]
    cover: Vec<u8>,
    note: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Track {
    Song { title: String, seconds: i16 },
    Silence,
}

pub async fn serializes(application: &Application) -> Result {
    let written = Album {
        p: "Nina Simone".to_owned(),
        c: 1965,
        tracks: vec![
            Track::Song {
                title: String::new(),
                seconds: -1,
            },
            Track::Silence,
        ],
        labels: BTreeSet::from(["Philips".to_owned(), "Verve".to_owned()]),
        ratings: BTreeMap::from([
            ("all".to_owned(), 4.75),
            ("tiny".to_owned(), 1e-30),
            ("large".to_owned(), 1e30),
        ]),
        plays: u64::MAX,
        cover: vec![0, 255],
        note: None,
    };
    put(application, serde_dynamo::to_item(&written)?).await?;
    let read: Album = serde_dynamo::from_item(get(application, key("Nina Simone", 1965)).await?.ok_or("no item")?)?;
    equal(&read, &written)
}

pub async fn puts(application: &Application) -> Result {
    let Application { client, table, .. } = application;
    let versions = [1, 2].map(|v| with(key("put", 1), [("v", n(v))]));
    let request = client
        .put_item()
        .table_name(table)
        .return_values(ReturnValue::AllOld)
        .return_consumed_capacity(ReturnConsumedCapacity::Total);
    equal(
        &request
            .clone()
            .set_item(Some(versions[0].clone()))
            .send()
            .await?
            .attributes,
        &None,
    )?;
    let replaced = request.set_item(Some(versions[1].clone())).send().await?;
    equal(&replaced.attributes.as_ref(), &Some(&versions[0]))?;
    equal(
        &replaced.consumed_capacity.and_then(|used| used.capacity_units),
        &Some(1.0),
    )?;
    let refused = client
        .put_item()
        .table_name(table)
        .set_item(Some(key("put", 1)))
        .condition_expression("attribute_not_exists(p)");
    let error = failure(refused.clone().send().await)?;
    holds(error.is_conditional_check_failed_exception(), || format!("{error:?}"))?;
    equal(&error.meta().message(), &Some("The conditional request failed"))?;
    let error = failure(
        refused
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await,
    )?;
    match error.as_service_error_item() {
        Some(item) => equal(item, &versions[1]),
        None => Err(format!("{error:?}").into()),
    }
}

/// The item that an error of a condition returns.
trait FailedItem {
    fn as_service_error_item(&self) -> Option<&Item>;
}

macro_rules! failed_item {
    ($($error:path),*) => {
        $(impl FailedItem for $error {
            fn as_service_error_item(&self) -> Option<&Item> {
                let Self::ConditionalCheckFailedException(ConditionalCheckFailedException { item, .. }) = self else { return None };
                item.as_ref()
            }
        })*
    };
}

failed_item!(
    aws_sdk_dynamodb::operation::put_item::PutItemError,
    aws_sdk_dynamodb::operation::delete_item::DeleteItemError,
    UpdateItemError
);

pub async fn updates(application: &Application) -> Result {
    let nested = |number: i32| AttributeValue::M(item([("list", list([n(number)]))]));
    let first = with(
        key("update", 1),
        [
            ("n", n(1)),
            ("tags", texts(&["a", "b"])),
            ("gone", s("x")),
            ("same", s("s")),
            ("nested", nested(0)),
        ],
    );
    put(application, first).await?;
    let request = application
        .client
        .update_item()
        .table_name(&application.table)
        .set_key(Some(key("update", 1)))
        .update_expression(
            "SET #n = #n + :one, nested.#l[0] = :one, fresh = if_not_exists(fresh, :zero) + :one, joined = list_append(nested.#l, :list) \
             REMOVE gone ADD added :one, more :set DELETE tags :set",
        )
        .condition_expression("begins_with(same, :s) AND NOT #n IN (:zero, :list)")
        .expression_attribute_names("#n", "n")
        .expression_attribute_names("#l", "list")
        .set_expression_attribute_values(Some(item([
            (":one", n(1)),
            (":zero", n(0)),
            (":list", list([s("l")])),
            (":set", texts(&["b"])),
            (":s", s("s")),
        ])));
    let update = async |values| {
        Ok::<_, Box<dyn std::error::Error>>(request.clone().return_values(values).send().await?.attributes)
    };
    equal(&update(ReturnValue::None).await?, &None)?;
    let changed = |number: i32, count: i32, joined: i32| {
        item([
            ("n", n(number)),
            ("nested", nested(1)),
            ("fresh", n(count)),
            ("joined", list([n(joined), s("l")])),
            ("added", n(count)),
            ("more", texts(&["b"])),
            ("tags", texts(&["a"])),
        ])
    };
    equal(&update(ReturnValue::UpdatedOld).await?, &Some(changed(2, 1, 0)))?;
    equal(&update(ReturnValue::UpdatedNew).await?, &Some(changed(4, 3, 1)))?;
    equal(
        &update(ReturnValue::AllOld).await?,
        &Some(with(
            changed(4, 3, 1),
            [("p", s("update")), ("c", n(1)), ("same", s("s"))],
        )),
    )?;
    let all = update(ReturnValue::AllNew).await?;
    equal(&all, &get(application, key("update", 1)).await?)?;
    let refused = request
        .condition_expression("size(same) > :one AND NOT #n IN (:zero, :list, :s)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    equal(&failure(refused.send().await)?.as_service_error_item(), &all.as_ref())
}

pub async fn deletes(application: &Application) -> Result {
    let there = with(key("put", 1), [("v", n(2))]);
    let request = application
        .client
        .delete_item()
        .table_name(&application.table)
        .set_key(Some(key("put", 1)))
        .return_values(ReturnValue::AllOld);
    let refused = request
        .clone()
        .condition_expression("v = :v")
        .expression_attribute_values(":v", n(0))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    equal(&failure(refused.send().await)?.as_service_error_item(), &Some(&there))?;
    equal(&request.clone().send().await?.attributes, &Some(there))?;
    equal(&request.send().await?.attributes, &None)?;
    equal(&get(application, key("put", 1)).await?, &None)
}
