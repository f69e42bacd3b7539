use super::*;
use crate::arn::of_table;
use crate::capacity::{Consistency, read_units};
use crate::request::{BatchWrite as Put, Operation, Request};
use crate::table::{TableDefinition, TableDescription, TableStatus};
use crate::value::json::read_item;

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    serde_json::from_str::<serde_json::Value>(&text).expect("an answer is JSON");
    text
}

fn item(json: &str) -> Item {
    read_item(json.as_bytes()).expect("an item")
}

fn parse(operation: Operation, body: &str) -> Request {
    Request::parse(operation, body.as_bytes()).expect("a request")
}

fn capacity() -> ConsumedCapacity {
    ConsumedCapacity {
        table: "orders".to_owned(),
        table_units: read_units(100, Consistency::Eventual),
        global_units: vec![("by_day".to_owned(), Units::whole(1))],
        ..ConsumedCapacity::default()
    }
}

#[test]
fn get_item_answers_what_the_request_asks_for() {
    let found = br#"{"k":{"S":"a"}}"#;
    let capacity = capacity();
    let answer = |item, detail| {
        let capacity = &capacity;
        text(|out| Get { item, capacity, detail }.write(out))
    };
    assert_eq!(answer(None, ReturnConsumedCapacity::None), "{}");
    assert_eq!(
        answer(Some(&found[..]), ReturnConsumedCapacity::Total),
        r#"{"Item":{"k":{"S":"a"}},"ConsumedCapacity":{"TableName":"orders","CapacityUnits":1.5}}"#
    );
    assert_eq!(
        answer(None, ReturnConsumedCapacity::Indexes),
        "{\"ConsumedCapacity\":{\"TableName\":\"orders\",\"CapacityUnits\":1.5,\"Table\":{\"CapacityUnits\":0.5},\
         \"GlobalSecondaryIndexes\":{\"by_day\":{\"CapacityUnits\":1.0}}}}"
    );
}

#[test]
fn a_write_reports_attributes_and_the_item_collection() {
    let old = item(r#"{"k":{"S":"a"},"n":{"N":"1000"}}"#);
    let collection = ItemCollectionMetrics::new(item(r#"{"k":{"S":"a"}}"#), 3 << 29);
    let capacity = capacity();
    let write = Write {
        attributes: Some(&old),
        capacity: &capacity,
        detail: ReturnConsumedCapacity::None,
        collection: Some(&collection),
        collection_metrics: ReturnItemCollectionMetrics::Size,
    };
    assert_eq!(
        text(|out| write.write(out)),
        "{\"Attributes\":{\"k\":{\"S\":\"a\"},\"n\":{\"N\":\"1000\"}},\"ItemCollectionMetrics\":\
         {\"ItemCollectionKey\":{\"k\":{\"S\":\"a\"}},\"SizeEstimateRangeGB\":[1.0,2.0]}}"
    );
}

/// Clients end a loop over pages only if LastEvaluatedKey is absent at the end.
#[test]
fn the_last_page_has_no_key_to_continue_after() {
    let page = |is_count: bool, last: Option<&Item>| {
        text(|out| {
            let mut page = Page::begin(out, is_count);
            page.item(br#"{"k":{"S":"a"}}"#);
            page.item(br#"{"k":{"S":"b"}}"#);
            page.end(5, last, &capacity(), ReturnConsumedCapacity::None);
        })
    };
    assert_eq!(
        page(false, None),
        r#"{"Items":[{"k":{"S":"a"}},{"k":{"S":"b"}}],"Count":2,"ScannedCount":5}"#
    );
    assert_eq!(
        page(true, Some(&item(r#"{"k":{"S":"b"}}"#))),
        r#"{"Count":2,"ScannedCount":5,"LastEvaluatedKey":{"k":{"S":"b"}}}"#
    );
}

/// dynamoose and PynamoDB need an empty list for a table without items. ARNs are answered as they were given.
#[test]
fn a_batch_names_every_table_as_the_request_does() {
    let arn = of_table("eu-west-1", "000000000000", "orders");
    let body = format!(
        r##"{{"RequestItems":{{"{arn}":{{"Keys":[{{"k":{{"S":"a"}}}}],"ConsistentRead":true,
        "ProjectionExpression":"#n","ExpressionAttributeNames":{{"#n":"name"}}}}}}}}"##
    );
    let Request::BatchGetItem(request) = parse(Operation::BatchGetItem, &body) else {
        panic!("another operation");
    };
    let of = &request.tables[0];
    assert_eq!((of.table.name(), of.table.given()), ("orders", arn.as_str()));
    let unprocessed = UnprocessedKeys {
        request: of,
        keys: &of.keys,
    };
    let answer = |unprocessed: &[UnprocessedKeys]| {
        let answer = BatchGet {
            tables: &[(of.table.given(), Vec::new())],
            unprocessed,
            capacities: &[],
            detail: ReturnConsumedCapacity::None,
        };
        text(|out| answer.write(out))
    };
    assert_eq!(
        answer(&[]),
        format!(r#"{{"Responses":{{"{arn}":[]}},"UnprocessedKeys":{{}}}}"#)
    );
    let again = format!(
        r##"{{"{arn}":{{"Keys":[{{"k":{{"S":"a"}}}}],"ConsistentRead":true,"ProjectionExpression":"#n","ExpressionAttributeNames":{{"#n":"name"}}}}}}"##
    );
    assert_eq!(
        answer(&[unprocessed]),
        format!(r#"{{"Responses":{{"{arn}":[]}},"UnprocessedKeys":{again}}}"#)
    );
    let resent = format!(r#"{{"RequestItems":{again}}}"#);
    assert_eq!(
        parse(Operation::BatchGetItem, &resent),
        Request::BatchGetItem(request.clone()),
        "unprocessed keys are a request again"
    );
}

#[test]
fn unprocessed_writes_are_a_request_again() {
    let body = r#"{"RequestItems":{"orders":[{"PutRequest":{"Item":{"k":{"S":"a"}}}},{"DeleteRequest":{"Key":{"k":{"S":"b"}}}}]}}"#;
    let Request::BatchWriteItem(request) = parse(Operation::BatchWriteItem, body) else {
        panic!("another operation");
    };
    let of = &request.tables[0];
    let writes: Vec<&Put> = of.writes.iter().collect();
    let answer = text(|out| {
        BatchWrite {
            unprocessed: &[UnprocessedWrites {
                request: of,
                writes: &writes,
            }],
            collections: &[],
            collection_metrics: ReturnItemCollectionMetrics::None,
            capacities: &[],
            detail: ReturnConsumedCapacity::None,
        }
        .write(out);
    });
    assert_eq!(answer, body.replace("RequestItems", "UnprocessedItems"));
}

#[test]
fn a_transaction_answers_each_read_in_order() {
    let items = [Some(item(r#"{"k":{"S":"a"}}"#)), None];
    let capacities = [ConsumedCapacity {
        table: "orders".to_owned(),
        table_units: read_units(0, Consistency::Transactional),
        kind: CapacityKind::Read,
        ..ConsumedCapacity::default()
    }];
    let answer = TransactGet {
        items: &items,
        capacities: &capacities,
        detail: ReturnConsumedCapacity::Total,
    };
    assert_eq!(
        text(|out| answer.write(out)),
        "{\"Responses\":[{\"Item\":{\"k\":{\"S\":\"a\"}}},{}],\"ConsumedCapacity\":[{\"TableName\":\"orders\",\
         \"CapacityUnits\":2.0,\"ReadCapacityUnits\":2.0}]}"
    );
}

fn table(body: &str) -> TableDefinition {
    match parse(Operation::CreateTable, body) {
        Request::CreateTable(create) => create.into_definition("f5c2".to_owned(), 1_796_075_623_507),
        other => panic!("{other:?}"),
    }
}

const WHOLE: &str = r#"{"TableName":"orders","KeySchema":[{"AttributeName":"k","KeyType":"HASH"},
    {"AttributeName":"s","KeyType":"RANGE"}],"AttributeDefinitions":[{"AttributeName":"k","AttributeType":"S"},
    {"AttributeName":"s","AttributeType":"N"},{"AttributeName":"l","AttributeType":"B"}],
    "BillingMode":"PAY_PER_REQUEST","DeletionProtectionEnabled":true,"TableClass":"STANDARD",
    "LocalSecondaryIndexes":[{"IndexName":"by_l","KeySchema":[{"AttributeName":"k","KeyType":"HASH"},
    {"AttributeName":"l","KeyType":"RANGE"}],"Projection":{"ProjectionType":"INCLUDE","NonKeyAttributes":["x"]}}],
    "GlobalSecondaryIndexes":[{"IndexName":"by_s","KeySchema":[{"AttributeName":"s","KeyType":"HASH"}],
    "Projection":{"ProjectionType":"ALL"}}],"SSESpecification":{"Enabled":true},
    "VectorIndexes":[{"IndexName":"near","VectorAttribute":{"AttributeName":"v"},"Dimensions":3,
    "DistanceFunction":"COSINE","Projection":{"ProjectionType":"KEYS_ONLY"},
    "SearchSchema":[{"AttributeName":"s","SearchSchemaElementType":"INLINE_FILTER"}]}],
    "StreamSpecification":{"StreamEnabled":true,"StreamViewType":"NEW_IMAGE"},"Tags":[{"Key":"a","Value":"b"}],
    "OnDemandThroughput":{"MaxReadRequestUnits":7},"WarmThroughput":{"ReadUnitsPerSecond":13000}}"#;

#[test]
fn a_definition_is_stored_and_read_again() {
    let table = table(WHOLE);
    let bytes = table.encode().expect("it is encoded");
    assert_eq!(TableDefinition::decode(&bytes), Ok(table));
    assert!(bytes.len() < 800, "{} bytes", bytes.len());
    let version = [&[9], &bytes[1..]].concat();
    assert!(TableDefinition::decode(&version).is_err(), "a later version is refused");
    for length in 0..bytes.len() {
        assert!(TableDefinition::decode(&bytes[..length]).is_err(), "cut at {length}");
    }
}

#[test]
fn a_description_has_what_the_request_has_set() {
    let table = table(WHOLE);
    let description = TableDescription {
        table: &table,
        status: TableStatus::Active,
        items: 3,
        bytes: 120,
        indexes: &[],
        region: "eu-west-1",
        account: "000000000000",
    };
    let json: serde_json::Value =
        serde_json::from_str(&text(|out| write_described_table(out, &description))).expect("JSON");
    let of = &json["Table"];
    let arn = "arn:aws:dynamodb:eu-west-1:000000000000:table/orders";
    for (path, expected) in [
        ("/TableStatus", "\"ACTIVE\""),
        ("/ItemCount", "3"),
        ("/TableSizeBytes", "120"),
        ("/CreationDateTime", "1796075623.507"),
        ("/TableId", "\"f5c2\""),
        ("/TableArn", &format!("\"{arn}\"")),
        ("/KeySchema/1", r#"{"AttributeName":"s","KeyType":"RANGE"}"#),
        ("/BillingModeSummary", r#"{"BillingMode":"PAY_PER_REQUEST"}"#),
        ("/TableThroughputModeSummary/TableThroughputMode", "\"PAY_PER_REQUEST\""),
        (
            "/ProvisionedThroughput",
            r#"{"NumberOfDecreasesToday":0,"ReadCapacityUnits":0,"WriteCapacityUnits":0}"#,
        ),
        (
            "/WarmThroughput",
            r#"{"ReadUnitsPerSecond":13000,"Status":"ACTIVE","WriteUnitsPerSecond":4000}"#,
        ),
        ("/OnDemandThroughput", r#"{"MaxReadRequestUnits":7}"#),
        ("/LocalSecondaryIndexes/0/IndexArn", &format!("\"{arn}/index/by_l\"")),
        ("/LocalSecondaryIndexes/0/Projection/NonKeyAttributes", r#"["x"]"#),
        ("/GlobalSecondaryIndexes/0/IndexStatus", "\"ACTIVE\""),
        ("/VectorIndexes/0/Dimensions", "3"),
        ("/StreamSpecification/StreamViewType", "\"NEW_IMAGE\""),
        ("/LatestStreamLabel", "\"2026-11-30T21:53:43.507\""),
        ("/LatestStreamArn", &format!("\"{arn}/stream/2026-11-30T21:53:43.507\"")),
        ("/SSEDescription/SSEType", "\"KMS\""),
        ("/TableClassSummary/TableClass", "\"STANDARD\""),
        ("/DeletionProtectionEnabled", "true"),
    ] {
        let found = of.pointer(path).map(ToString::to_string);
        assert_eq!(found.as_deref(), Some(expected), "{path}");
    }
}

/// KCL adds an index to its lease table, and a throughput that is lowered twice a day is counted.
#[test]
fn an_update_changes_the_definition() {
    let before = table(
        r#"{"TableName":"orders","KeySchema":[{"AttributeName":"k","KeyType":"HASH"}],"AttributeDefinitions":
        [{"AttributeName":"k","AttributeType":"S"}],"ProvisionedThroughput":{"ReadCapacityUnits":5,"WriteCapacityUnits":5}}"#,
    );
    let update = |table: &TableDefinition, body: &str, now_ms: i64| {
        let body = format!(r#"{{"TableName":"orders",{body}}}"#);
        match parse(Operation::UpdateTable, &body) {
            Request::UpdateTable(update) => update.apply(table, now_ms).expect("it is applied"),
            other => panic!("{other:?}"),
        }
    };
    let day = 86_400_000;
    let lower = |table: &TableDefinition, units: i64, now_ms: i64| {
        let body = format!(r#""ProvisionedThroughput":{{"ReadCapacityUnits":{units},"WriteCapacityUnits":{units}}}"#);
        update(table, &body, now_ms)
    };
    let twice = lower(&lower(&before, 4, day), 3, day + 5);
    assert_eq!(
        (twice.throughput.decreases, twice.throughput.decreased_ms),
        (2, Some(day + 5))
    );
    assert_eq!(lower(&twice, 2, 2 * day).throughput.decreases, 1, "another day");
    let indexed = update(
        &before,
        r#""AttributeDefinitions":[{"AttributeName":"o","AttributeType":"S"}],"GlobalSecondaryIndexUpdates":[{"Create":
        {"IndexName":"by_o","KeySchema":[{"AttributeName":"o","KeyType":"HASH"}],"Projection":{"ProjectionType":
        "KEYS_ONLY"}}}]"#,
        1,
    );
    assert_eq!((indexed.global_indexes.len(), indexed.attributes.len()), (1, 2));
    let dropped = update(
        &indexed,
        r#""GlobalSecondaryIndexUpdates":[{"Delete":{"IndexName":"by_o"}}]"#,
        1,
    );
    assert_eq!(
        dropped, before,
        "the definition of the unused attribute is dropped with the index"
    );
    let on_demand = update(&before, r#""BillingMode":"PAY_PER_REQUEST""#, 7);
    assert_eq!(on_demand.pay_per_request_ms, Some(7));
    assert_eq!(on_demand.throughput.units.read_units, 0);
}

#[test]
fn a_batch_of_statements_reports_each_by_itself() {
    let results = [
        BatchStatementResult {
            table: Some("orders".to_owned()),
            result: Ok(Some(item(r#"{"k":{"S":"a"}}"#))),
        },
        BatchStatementResult {
            table: None,
            result: Err(crate::Error::validation("no")),
        },
        BatchStatementResult {
            table: Some("orders".to_owned()),
            result: Err(crate::Error::condition_failed(None)),
        },
    ];
    let answer = text(|out| BatchStatementResult::write_all(&results, &[], ReturnConsumedCapacity::None, out));
    assert_eq!(
        answer,
        "{\"Responses\":[{\"Item\":{\"k\":{\"S\":\"a\"}},\"TableName\":\"orders\"},{\"Error\":{\"Code\":\
         \"ValidationError\",\"Message\":\"no\"}},{\"Error\":{\"Code\":\"ConditionalCheckFailed\",\"Message\":\"The \
         conditional request failed\"},\"TableName\":\"orders\"}]}"
    );
}
