use std::collections::HashMap;

use aws_sdk_dynamodb::operation::execute_statement::ExecuteStatementError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementErrorCodeEnum, BatchStatementRequest, ConditionCheck, Delete, DeleteRequest, Get,
    KeysAndAttributes, ParameterizedStatement, Put, PutRequest, ReturnValuesOnConditionCheckFailure, Select,
    TransactGetItem, TransactWriteItem, Update, WriteRequest,
};

use crate::items::get;
use crate::{Application, Item, Result, equal, failure, holds, item, key, n, refuses, s, with};

// 3 MB in pages of 1 MB, and more than the 16 MB that one BatchGetItem returns.
const PAGED_ITEMS: i64 = 300;
const PAGED_BYTES: usize = 10_000;
const LARGE_ITEMS: i64 = 60;
const LARGE_BYTES: usize = 300_000;
const BATCH_ITEMS: usize = 25;
const SEGMENTS: i32 = 4;

async fn write_all(application: &Application, requests: &[WriteRequest]) -> Result {
    for batch in requests.chunks(BATCH_ITEMS) {
        let mut left = HashMap::from([(application.table.clone(), batch.to_vec())]);
        while !left.is_empty() {
            let answer = application
                .client
                .batch_write_item()
                .set_request_items(Some(left))
                .send()
                .await?;
            left = answer.unprocessed_items.unwrap_or_default();
        }
    }
    Ok(())
}

async fn put_all(application: &Application, p: &str, count: i64, bytes: usize) -> Result {
    let mut requests = Vec::new();
    for c in 0..count {
        let item = with(
            key(p, c),
            [("v", s(&"y".repeat(bytes))), ("even", AttributeValue::Bool(c % 2 == 0))],
        );
        requests.push(
            WriteRequest::builder()
                .put_request(PutRequest::builder().set_item(Some(item)).build()?)
                .build(),
        );
    }
    write_all(application, &requests).await
}

fn numbers(items: &[Item]) -> Result<Vec<i64>> {
    items
        .iter()
        .map(|item| match &item["c"] {
            AttributeValue::N(number) => Ok(number.parse()?),
            other => Err(format!("{other:?} is not a number").into()),
        })
        .collect()
}

fn up_to(count: i64) -> Vec<i64> {
    (0..count).collect()
}

pub async fn queries(application: &Application) -> Result {
    put_all(application, "pages", PAGED_ITEMS, PAGED_BYTES).await?;
    let query = application
        .client
        .query()
        .table_name(&application.table)
        .expression_attribute_values(":p", s("pages"));
    let whole = query.clone().key_condition_expression("p = :p");
    let mut pages = whole.clone().into_paginator().send();
    let (mut found, mut count) = (Vec::new(), 0);
    while let Some(page) = pages.next().await {
        found.extend(page?.items.unwrap_or_default());
        count += 1;
    }
    equal(&numbers(&found)?, &up_to(PAGED_ITEMS))?;
    equal(&count, &3)?;
    let down = whole
        .clone()
        .scan_index_forward(false)
        .consistent_read(true)
        .into_paginator()
        .page_size(70)
        .items()
        .send();
    let mut down = numbers(&down.collect::<std::result::Result<Vec<_>, _>>().await?)?;
    down.reverse();
    equal(&down, &up_to(PAGED_ITEMS))?;
    let filtered = query
        .key_condition_expression("p = :p AND c BETWEEN :low AND :high")
        .filter_expression("even = :yes")
        .expression_attribute_values(":low", n(10))
        .expression_attribute_values(":high", n(19))
        .expression_attribute_values(":yes", AttributeValue::Bool(true));
    let even = filtered.clone().projection_expression("c").send().await?;
    equal(
        &even.items,
        &Some([10, 12, 14, 16, 18].map(|c| item([("c", n(c))])).to_vec()),
    )?;
    let counted = filtered.select(Select::Count).send().await?;
    equal(
        &(
            counted.count,
            counted.scanned_count,
            counted.items,
            counted.last_evaluated_key,
        ),
        &(5, 10, None, None),
    )?;
    equal(&whole.limit(3).send().await?.last_evaluated_key, &Some(key("pages", 2)))
}

fn identities(items: &[Item]) -> Vec<String> {
    let mut all: Vec<String> = items
        .iter()
        .map(|item| format!("{:?}/{:?}", item["p"], item["c"]))
        .collect();
    all.sort();
    all
}

pub async fn scans(application: &Application) -> Result {
    let scan = application.client.scan().table_name(&application.table);
    let all = scan
        .clone()
        .consistent_read(true)
        .into_paginator()
        .items()
        .send()
        .collect::<std::result::Result<Vec<_>, _>>()
        .await?;
    let mut segments = tokio::task::JoinSet::new();
    for segment in 0..SEGMENTS {
        let part = scan
            .clone()
            .segment(segment)
            .total_segments(SEGMENTS)
            .limit(50)
            .into_paginator()
            .items()
            .send();
        segments.spawn(part.collect::<std::result::Result<Vec<_>, _>>());
    }
    let mut together = Vec::new();
    while let Some(part) = segments.join_next().await {
        together.extend(part??);
    }
    equal(&identities(&together), &identities(&all))?;
    let few = scan
        .filter_expression("#p = :p AND c < :c")
        .expression_attribute_names("#p", "p")
        .expression_attribute_values(":p", s("pages"))
        .expression_attribute_values(":c", n(3));
    let mut few = numbers(
        &few.into_paginator()
            .items()
            .send()
            .collect::<std::result::Result<Vec<_>, _>>()
            .await?,
    )?;
    few.sort_unstable();
    equal(&few, &up_to(3))
}

pub async fn batches(application: &Application) -> Result {
    let Application { client, table, .. } = application;
    put_all(application, "large", LARGE_ITEMS, LARGE_BYTES).await?;
    let keys: Vec<Item> = up_to(LARGE_ITEMS).into_iter().map(|c| key("large", c)).collect();
    let asked = KeysAndAttributes::builder()
        .set_keys(Some(keys.clone()))
        .keys(key("large", -1))
        .consistent_read(true)
        .build()?;
    let (mut found, mut rounds, mut left) = (Vec::new(), 0, HashMap::from([(table.clone(), asked)]));
    while !left.is_empty() {
        let mut answer = client.batch_get_item().set_request_items(Some(left)).send().await?;
        found.extend(
            answer
                .responses
                .as_mut()
                .and_then(|tables| tables.remove(table))
                .ok_or("the table has no answer")?,
        );
        left = answer.unprocessed_keys.unwrap_or_default();
        rounds += 1;
    }
    holds(rounds > 1, || format!("{rounds} rounds"))?;
    let mut read = numbers(&found)?;
    read.sort_unstable();
    equal(&read, &up_to(LARGE_ITEMS))?;
    let mut requests = Vec::new();
    for key in &keys {
        requests.push(
            WriteRequest::builder()
                .delete_request(DeleteRequest::builder().set_key(Some(key.clone())).build()?)
                .build(),
        );
    }
    write_all(application, &requests).await?;
    let asked = KeysAndAttributes::builder().set_keys(Some(keys)).build()?;
    let none = client.batch_get_item().request_items(table, asked).send().await?;
    equal(&none.responses, &Some(HashMap::from([(table.clone(), vec![])])))?;
    equal(&none.unprocessed_keys.unwrap_or_default().len(), &0)?;
    let twice = KeysAndAttributes::builder()
        .keys(key("a", 1))
        .keys(key("a", 1))
        .build()?;
    refuses(
        client.batch_get_item().request_items(table, twice).send().await,
        "Provided list of item keys contains duplicates",
    )
}

fn counter(id: u8) -> Item {
    item([("id", AttributeValue::B(Blob::new([id])))])
}

fn add_one(application: &Application, id: u8) -> Result<TransactWriteItem> {
    let update = Update::builder()
        .table_name(&application.counters)
        .set_key(Some(counter(id)))
        .update_expression("ADD n :one")
        .expression_attribute_values(":one", n(1))
        .build()?;
    Ok(TransactWriteItem::builder().update(update).build())
}

fn put(application: &Application, item: Item) -> Result<TransactWriteItem> {
    let put = Put::builder()
        .table_name(&application.table)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(p)")
        .build()?;
    Ok(TransactWriteItem::builder().put(put).build())
}

pub async fn transacts(application: &Application) -> Result {
    let Application {
        client,
        table,
        counters,
        prefix,
        ..
    } = application;
    let delete = Delete::builder()
        .table_name(table)
        .set_key(Some(key("types", 2)))
        .build()?;
    let there = ConditionCheck::builder()
        .table_name(table)
        .set_key(Some(key("update", 1)))
        .condition_expression("attribute_exists(p)")
        .build()?;
    let token = client
        .transact_write_items()
        .client_request_token(format!("{prefix}-token"));
    let write = token
        .clone()
        .transact_items(put(application, with(key("both", 1), [("v", s("put"))]))?)
        .transact_items(add_one(application, 7)?)
        .transact_items(TransactWriteItem::builder().delete(delete).build())
        .transact_items(TransactWriteItem::builder().condition_check(there).build());
    write.clone().send().await?;
    write.send().await?;
    let other = failure(token.transact_items(add_one(application, 7)?).send().await)?;
    holds(other.is_idempotent_parameter_mismatch_exception(), || {
        format!("{other:?}")
    })?;
    let mut read = client.transact_get_items();
    for (table, key) in [
        (table, key("both", 1)),
        (table, key("types", 2)),
        (counters, counter(7)),
    ] {
        read = read.transact_items(
            TransactGetItem::builder()
                .get(Get::builder().table_name(table).set_key(Some(key)).build()?)
                .build(),
        );
    }
    let read: Vec<Option<Item>> = read
        .send()
        .await?
        .responses
        .unwrap_or_default()
        .into_iter()
        .map(|found| found.item)
        .collect();
    equal(
        &read,
        &vec![
            Some(with(key("both", 1), [("v", s("put"))])),
            None,
            Some(with(counter(7), [("n", n(1))])),
        ],
    )
}

pub async fn cancels(application: &Application) -> Result {
    let delete = Delete::builder()
        .table_name(&application.table)
        .set_key(Some(key("both", 1)))
        .condition_expression("v = :v")
        .expression_attribute_values(":v", s("other"))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()?;
    let cancelled = application
        .client
        .transact_write_items()
        .transact_items(put(application, key("both", 2))?)
        .transact_items(TransactWriteItem::builder().delete(delete).build());
    let error = failure(cancelled.send().await)?;
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else {
        return Err(format!("{error:?}").into());
    };
    let reasons = cancelled.cancellation_reasons();
    equal(
        &reasons.iter().filter_map(|reason| reason.code()).collect::<Vec<_>>(),
        &vec!["None", "ConditionalCheckFailed"],
    )?;
    equal(&reasons[1].item, &Some(with(key("both", 1), [("v", s("put"))])))?;
    equal(&get(application, key("both", 2)).await?, &None)
}

pub async fn statements(application: &Application) -> Result {
    let Application { client, table, .. } = application;
    let execute = |statement: &str| {
        client
            .execute_statement()
            .statement(statement.replace("TABLE", &format!("\"{table}\"")))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    };
    let insert = "INSERT INTO TABLE VALUE {'p': 'partiql', 'c': ?, 'v': {'list': [?, 'a']}}";
    for c in 0..3 {
        execute(insert).parameters(n(c)).parameters(n(1)).send().await?;
    }
    let error = failure(execute(insert).parameters(n(0)).parameters(n(1)).send().await)?;
    holds(error.is_duplicate_item_exception(), || format!("{error:?}"))?;
    let select = execute("SELECT c FROM TABLE WHERE p = ? ORDER BY c DESC")
        .parameters(s("partiql"))
        .limit(2);
    let first = select.clone().send().await?;
    let rest = select.set_next_token(first.next_token).send().await?;
    equal(
        &(
            numbers(&first.items.unwrap_or_default())?,
            numbers(&rest.items.unwrap_or_default())?,
        ),
        &(vec![2, 1], vec![0]),
    )?;
    let updated = execute("UPDATE TABLE SET v.x = ? WHERE p = 'partiql' AND c = 1 RETURNING ALL NEW *")
        .parameters(n(5))
        .send()
        .await?;
    let updated = updated.items.and_then(|mut items| items.pop());
    let error = failure(
        execute("DELETE FROM TABLE WHERE p = 'partiql' AND c = 1 AND v.x = 6")
            .send()
            .await,
    )?;
    let ExecuteStatementError::ConditionalCheckFailedException(failed) = error else {
        return Err(format!("{error:?}").into());
    };
    equal(&failed.item, &updated)?;
    let in_table = |statement: &str| statement.replace("TABLE", &format!("\"{table}\""));
    let mut batch = client.batch_execute_statement();
    for statement in [
        "SELECT c FROM TABLE WHERE p = 'partiql' AND c = 2",
        "INSERT INTO TABLE VALUE {'p': 'partiql', 'c': 2}",
    ] {
        batch = batch.statements(
            BatchStatementRequest::builder()
                .statement(in_table(statement))
                .build()?,
        );
    }
    let answers = batch.send().await?.responses.unwrap_or_default();
    equal(&answers[0].item, &Some(item([("c", n(2))])))?;
    equal(
        &answers[1].error.as_ref().and_then(|error| error.code()),
        &Some(&BatchStatementErrorCodeEnum::DuplicateItem),
    )?;
    let mut transaction = client.execute_transaction();
    for statement in [
        "DELETE FROM TABLE WHERE p = 'partiql' AND c = 0",
        "UPDATE TABLE SET w = 1 WHERE p = 'partiql' AND c = 1",
    ] {
        transaction = transaction.transact_statements(
            ParameterizedStatement::builder()
                .statement(in_table(statement))
                .build()?,
        );
    }
    transaction.send().await?;
    equal(&get(application, key("partiql", 0)).await?, &None)?;
    equal(
        &get(application, key("partiql", 1)).await?.ok_or("no item")?["w"],
        &n(1),
    )?;
    refuses(
        execute("SELEKT").send().await,
        "Statement wasn't well formed, can't be processed",
    )
}

pub async fn retries(application: &Application) -> Result {
    let Application { cut, counters, .. } = application;
    cut.put_item()
        .table_name(counters)
        .set_item(Some(with(counter(9), [("n", n(0))])))
        .send()
        .await?;
    for _ in 0..3 {
        cut.transact_write_items()
            .transact_items(add_one(application, 9)?)
            .send()
            .await?;
    }
    let read = cut
        .get_item()
        .table_name(counters)
        .set_key(Some(counter(9)))
        .consistent_read(true)
        .send()
        .await?;
    equal(&read.item, &Some(with(counter(9), [("n", n(3))])))
}
