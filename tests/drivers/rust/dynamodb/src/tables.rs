use std::time::Duration;

use aws_sdk_dynamodb::client::Waiters;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ProvisionedThroughput, ScalarAttributeType,
    TableStatus, Tag, TimeToLiveSpecification, TimeToLiveStatus,
};

use crate::{Application, Result, equal, failure, holds, item, key, n, refuses, s};

const WAIT_MOST: Duration = Duration::from_secs(60);

fn defined(name: &str, of: ScalarAttributeType) -> Result<AttributeDefinition> {
    Ok(AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(of)
        .build()?)
}

fn keyed(name: &str, by: KeyType) -> Result<KeySchemaElement> {
    Ok(KeySchemaElement::builder().attribute_name(name).key_type(by).build()?)
}

pub async fn creates(application: &Application) -> Result {
    let Application {
        client,
        table,
        counters,
        ..
    } = application;
    let create = client
        .create_table()
        .table_name(table)
        .attribute_definitions(defined("p", ScalarAttributeType::S)?)
        .attribute_definitions(defined("c", ScalarAttributeType::N)?)
        .key_schema(keyed("p", KeyType::Hash)?)
        .key_schema(keyed("c", KeyType::Range)?)
        .billing_mode(BillingMode::PayPerRequest)
        .tags(Tag::builder().key("team").value("music").build()?);
    create.clone().send().await?;
    client
        .wait_until_table_exists()
        .table_name(table)
        .wait(WAIT_MOST)
        .await?;
    let described = client
        .describe_table()
        .table_name(table)
        .send()
        .await?
        .table
        .ok_or("no table")?;
    equal(&described.table_status, &Some(TableStatus::Active))?;
    equal(&described.key_schema()[1].attribute_name(), &"c")?;
    equal(
        &described.billing_mode_summary().and_then(|mode| mode.billing_mode()),
        &Some(&BillingMode::PayPerRequest),
    )?;
    let by_arn = client
        .describe_table()
        .table_name(described.table_arn().ok_or("no ARN")?)
        .send()
        .await?;
    equal(&by_arn.table.ok_or("no table")?.table_id, &described.table_id)?;
    holds(failure(create.send().await)?.is_resource_in_use_exception(), || {
        "a second table of one name".to_owned()
    })?;

    let throughput = ProvisionedThroughput::builder()
        .read_capacity_units(5)
        .write_capacity_units(6)
        .build()?;
    client
        .create_table()
        .table_name(counters)
        .attribute_definitions(defined("id", ScalarAttributeType::B)?)
        .key_schema(keyed("id", KeyType::Hash)?)
        .provisioned_throughput(throughput)
        .send()
        .await?;
    client
        .wait_until_table_exists()
        .table_name(counters)
        .wait(WAIT_MOST)
        .await?;
    let described = client
        .describe_table()
        .table_name(counters)
        .send()
        .await?
        .table
        .ok_or("no table")?;
    equal(
        &described
            .provisioned_throughput()
            .and_then(|units| units.write_capacity_units()),
        &Some(6),
    )
}

pub async fn fails_by_types(application: &Application) -> Result {
    let Application {
        client, table, prefix, ..
    } = application;
    let none = format!("{prefix}-none");
    let described = failure(client.describe_table().table_name(&none).send().await)?;
    holds(described.is_resource_not_found_exception(), || format!("{described:?}"))?;
    let read = failure(
        client
            .get_item()
            .table_name(&none)
            .set_key(Some(key("a", 1)))
            .send()
            .await,
    )?;
    holds(read.is_resource_not_found_exception(), || format!("{read:?}"))?;
    let deleted = failure(client.delete_table().table_name(&none).send().await)?;
    holds(deleted.is_resource_not_found_exception(), || format!("{deleted:?}"))?;
    refuses(
        client.get_item().table_name(table).key("p", s("a")).send().await,
        "The provided key element does not match the schema",
    )?;
    let wrong = item([("p", n(1)), ("c", n(1))]);
    refuses(
        client.put_item().table_name(table).set_item(Some(wrong)).send().await,
        "Type mismatch for key p expected: S actual: N",
    )
}

pub async fn alters(application: &Application) -> Result {
    let Application {
        client,
        table,
        counters,
        ..
    } = application;
    let ttl = TimeToLiveSpecification::builder()
        .enabled(true)
        .attribute_name("ends")
        .build()?;
    client
        .update_time_to_live()
        .table_name(table)
        .time_to_live_specification(ttl)
        .send()
        .await?;
    let ttl = client
        .describe_time_to_live()
        .table_name(table)
        .send()
        .await?
        .time_to_live_description
        .ok_or("no TTL")?;
    equal(
        &(ttl.time_to_live_status(), ttl.attribute_name()),
        &(Some(&TimeToLiveStatus::Enabled), Some("ends")),
    )?;
    let described = client
        .describe_table()
        .table_name(table)
        .send()
        .await?
        .table
        .ok_or("no table")?;
    let arn = described.table_arn().ok_or("no ARN")?;
    let stage = Tag::builder().key("stage").value("test").build()?;
    client
        .tag_resource()
        .resource_arn(arn)
        .tags(stage.clone())
        .send()
        .await?;
    client
        .untag_resource()
        .resource_arn(arn)
        .tag_keys("team")
        .send()
        .await?;
    equal(
        &client.list_tags_of_resource().resource_arn(arn).send().await?.tags,
        &Some(vec![stage]),
    )?;
    client
        .update_table()
        .table_name(counters)
        .billing_mode(BillingMode::PayPerRequest)
        .deletion_protection_enabled(true)
        .send()
        .await?;
    client
        .wait_until_table_exists()
        .table_name(counters)
        .wait(WAIT_MOST)
        .await?;
    refuses(
        client.delete_table().table_name(counters).send().await,
        "eletion protection",
    )?;
    client
        .update_table()
        .table_name(counters)
        .deletion_protection_enabled(false)
        .send()
        .await?;
    let names = client
        .list_tables()
        .limit(1)
        .into_paginator()
        .items()
        .send()
        .collect::<std::result::Result<Vec<_>, _>>()
        .await?;
    holds(names.contains(table) && names.contains(counters), || {
        format!("{names:?}")
    })
}

pub async fn deletes(application: &Application) -> Result {
    let Application {
        client,
        table,
        counters,
        ..
    } = application;
    for name in [table, counters] {
        let deleted = client.delete_table().table_name(name).send().await?;
        equal(
            &deleted.table_description.ok_or("no table")?.table_status,
            &Some(TableStatus::Deleting),
        )?;
        client
            .wait_until_table_not_exists()
            .table_name(name)
            .wait(WAIT_MOST)
            .await?;
    }
    let scanned = failure(client.scan().table_name(table).send().await)?;
    holds(scanned.is_resource_not_found_exception(), || format!("{scanned:?}"))
}
