//! What clients send and expect that the API reference does not show: seen of SDKs and mappers in November 2026
//! (boto3 1.44, aws-sdk-js 3.1169, aws-sdk-go-v2 dynamodb 1.74, aws-sdk-java 2.57, KCL 3.5, PynamoDB 6.1).

use dynamodb::request::{Operation, Request, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, SortRange};
use dynamodb::table::TableDefinition;
use dynamodb::update::ReturnValues;

fn parse(operation: Operation, body: &str) -> Request {
    Request::parse(operation, body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn refused(operation: Operation, body: &str) -> String {
    match Request::parse(operation, body.as_bytes()) {
        Err(error) => error.message,
        Ok(request) => panic!("{body} is accepted: {request:?}"),
    }
}

fn sorted_table() -> TableDefinition {
    let body = r#"{"TableName":"orders","KeySchema":[{"AttributeName":"a","KeyType":"HASH"},
        {"AttributeName":"b","KeyType":"RANGE"}],"AttributeDefinitions":[{"AttributeName":"a","AttributeType":"S"},
        {"AttributeName":"b","AttributeType":"S"}],"BillingMode":"PAY_PER_REQUEST"}"#;
    match parse(Operation::CreateTable, body) {
        Request::CreateTable(create) => create.into_definition("id".to_owned(), 0),
        other => panic!("{other:?}"),
    }
}

/// Any request may name its table by its ARN, also as a key of RequestItems, and answers repeat what was given.
#[test]
fn a_table_is_named_by_its_arn_in_every_request() {
    const ARN: &str = "arn:aws:dynamodb:us-east-1:000000000000:table/orders";
    let key = r#""Key":{"a":{"S":"x"},"b":{"S":"y"}}"#;
    let item = r#"{"a":{"S":"x"},"b":{"S":"y"}}"#;
    for (operation, rest) in [
        (Operation::GetItem, key.to_owned()),
        (Operation::DeleteItem, key.to_owned()),
        (Operation::UpdateItem, key.to_owned()),
        (Operation::PutItem, format!("\"Item\":{item}")),
        (Operation::Scan, "\"Limit\":1".to_owned()),
        (
            Operation::Query,
            r#""KeyConditionExpression":"a = :a","ExpressionAttributeValues":{":a":{"S":"x"}}"#.to_owned(),
        ),
        (Operation::DescribeTable, "\"x\":1".to_owned()),
        (Operation::DeleteTable, "\"x\":1".to_owned()),
        (Operation::DescribeTimeToLive, "\"x\":1".to_owned()),
        (
            Operation::UpdateTimeToLive,
            r#""TimeToLiveSpecification":{"Enabled":true,"AttributeName":"t"}"#.to_owned(),
        ),
        (Operation::UpdateTable, "\"DeletionProtectionEnabled\":true".to_owned()),
        (Operation::CreateBackup, "\"BackupName\":\"first\"".to_owned()),
    ] {
        let body = format!(r#"{{"TableName":"{ARN}",{rest}}}"#);
        let request = parse(operation, &body);
        let by_name = parse(operation, &body.replace(ARN, "orders"));
        assert_ne!(request, by_name, "the ARN is kept as it was given");
        let wrong = body.replace(":table/", ":index/");
        assert!(
            refused(operation, &wrong).contains("Member must satisfy regular expression pattern"),
            "{wrong}"
        );
    }
    let body = format!(r#"{{"RequestItems":{{"{ARN}":[{{"PutRequest":{{"Item":{item}}}}}]}}}}"#);
    let Request::BatchWriteItem(batch) = parse(Operation::BatchWriteItem, &body) else {
        panic!("another operation");
    };
    assert_eq!(
        (batch.tables[0].table.given(), batch.tables[0].table.name()),
        (ARN, "orders")
    );
    let body = format!(r#"{{"TransactItems":[{{"Get":{{"TableName":"{ARN}",{key}}}}}]}}"#);
    let Request::TransactGetItems(transaction) = parse(Operation::TransactGetItems, &body) else {
        panic!("another operation");
    };
    assert_eq!(transaction.reads[0].table.name(), "orders");
}

/// boto3 sends Python's `set()` as an empty set, and JS an undefined key as an empty map.
#[test]
fn empty_sets_and_keys_are_refused() {
    let put = r#"{"TableName":"orders","Item":{"a":{"S":"x"},"b":{"S":"y"},"n":{"NS":[]}}}"#;
    assert_eq!(
        refused(Operation::PutItem, put),
        "1 validation error detected: One or more parameter values were invalid: An number set  may not be empty"
    );
    let Request::GetItem(get) = parse(Operation::GetItem, r#"{"TableName":"orders","Key":{}}"#) else {
        panic!("another operation");
    };
    let error = get.key(&sorted_table()).expect_err("it has no key");
    assert_eq!(error.message, "The provided key element does not match the schema");
}

/// Builders of Go end each clause with a newline and put blanks before parentheses; ElectroDB puts parentheses around
/// key conditions; the same value can be used twice and two names be of one attribute.
#[test]
fn expressions_are_read_as_builders_write_them() {
    let update = r##"{"TableName":"orders","Key":{"a":{"S":"x"},"b":{"S":"y"}},
        "UpdateExpression":"ADD #0 :0\nDELETE #1 :1\nREMOVE #2\nSET #3 = :0\n",
        "ConditionExpression":"(attribute_not_exists (#0)) AND (contains (#4, :0))",
        "ExpressionAttributeNames":{"#0":"n","#1":"t","#2":"r","#3":"s","#4":"s"},
        "ExpressionAttributeValues":{":0":{"N":"1"},":1":{"SS":["p"]}},"ReturnValues":"ALL_NEW"}"##;
    let Request::UpdateItem(update) = parse(Operation::UpdateItem, update) else {
        panic!("another operation");
    };
    assert_eq!(update.options.return_values, ReturnValues::AllNew);
    assert!(update.key(&sorted_table()).is_ok());
    let query = r##"{"TableName":"orders","KeyConditionExpression":"(#a = :a) AND (begins_with(#b, :b))",
        "ExpressionAttributeNames":{"#a":"a","#b":"b"},
        "ExpressionAttributeValues":{":a":{"S":"x"},":b":{"S":"y"}}}"##;
    let Request::Query(query) = parse(Operation::Query, query) else {
        panic!("another operation");
    };
    let range = query.key_range(&sorted_table()).expect("a range");
    assert!(matches!(range.sort, SortRange::BeginsWith(_)), "{range:?}");
    assert!(query.forward, "ascending is the default");
}

/// KCL changes leases by the legacy parameters, with an option that came later, and adds an index to its table.
#[test]
fn kcl_combines_legacy_parameters_with_newer_ones() {
    let body = r#"{"TableName":"leases","Key":{"leaseKey":{"S":"shard-0"}},"AttributeUpdates":{
        "owner":{"Action":"PUT","Value":{"S":"w"}},"counter":{"Action":"ADD","Value":{"N":"1"}},
        "gone":{"Action":"DELETE"}},"Expected":{"counter":{"Value":{"N":"5"}},"owner":{"Exists":false}},
        "ReturnValuesOnConditionCheckFailure":"ALL_OLD","ReturnConsumedCapacity":"TOTAL"}"#;
    let Request::UpdateItem(update) = parse(Operation::UpdateItem, body) else {
        panic!("another operation");
    };
    assert_eq!(update.options.on_failure, ReturnValuesOnConditionCheckFailure::AllOld);
    assert_eq!(update.options.consumed_capacity, ReturnConsumedCapacity::Total);
    let changes = update.update.expect("it has changes");
    assert_eq!(changes.expression.tree.actions.len(), 3);
    assert!(update.condition.is_some());
    let create = r#"{"TableName":"leases","KeySchema":[{"AttributeName":"leaseKey","KeyType":"HASH"}],
        "AttributeDefinitions":[{"AttributeName":"leaseKey","AttributeType":"S"}],"BillingMode":"PAY_PER_REQUEST",
        "DeletionProtectionEnabled":false}"#;
    let Request::CreateTable(create) = parse(Operation::CreateTable, create) else {
        panic!("another operation");
    };
    let update = r#"{"TableName":"leases","AttributeDefinitions":[{"AttributeName":"leaseOwner","AttributeType":"S"}],
        "GlobalSecondaryIndexUpdates":[{"Create":{"IndexName":"LeaseOwnerToLeaseKeyIndex","KeySchema":[
        {"AttributeName":"leaseOwner","KeyType":"HASH"}],"Projection":{"ProjectionType":"KEYS_ONLY"}}}]}"#;
    let Request::UpdateTable(update) = parse(Operation::UpdateTable, update) else {
        panic!("another operation");
    };
    let table = create.into_definition("id".to_owned(), 0);
    let indexed = update.apply(&table, 1).expect("an index is added");
    assert_eq!(indexed.global_indexes[0].name, "LeaseOwnerToLeaseKeyIndex");
}

/// The model has 62 operations; a server answers UnknownOperationException to those that are not here.
#[test]
fn an_operation_is_found_by_its_name() {
    for operation in Operation::ALL {
        assert_eq!(Operation::from_name(operation.name()), Some(*operation));
    }
    for unknown in ["SearchVectors", "StartBulkPutItems", "getitem", ""] {
        assert_eq!(Operation::from_name(unknown), None, "{unknown}");
    }
}

/// A body of 16 MB must not cost more than its reading: lists are bounded before their elements are compared.
#[test]
fn long_lists_are_refused_at_once() {
    let definition = r#"{"AttributeName":"a","AttributeType":"S"}"#;
    let list = vec![definition; 100_000].join(",");
    let body = format!(
        r#"{{"TableName":"orders","KeySchema":[{{"AttributeName":"a","KeyType":"HASH"}}],"AttributeDefinitions":[{list}]}}"#
    );
    assert!(refused(Operation::CreateTable, &body).contains("has more than 300 elements"));
    let names: Vec<String> = (0..101)
        .map(|n| format!(r#""table{n}":{{"Keys":[{{"a":{{"S":"x"}}}}]}}"#))
        .collect();
    let body = format!(r#"{{"RequestItems":{{{}}}}}"#, names.join(","));
    assert!(refused(Operation::BatchGetItem, &body).contains("Member must have length less than or equal to 100"));
    let name = "n".repeat(1 << 20);
    let message = refused(Operation::DescribeTable, &format!(r#"{{"TableName":"{name}"}}"#));
    assert!(message.len() < 20_000, "{} bytes", message.len());
    let message = refused(Operation::ExecuteStatement, &format!(r#"{{"Statement":"{name}"}}"#));
    assert!(message.len() < 20_000, "{} bytes", message.len());
}
