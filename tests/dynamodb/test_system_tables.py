"""Tables of CQL that Query and Scan read: `.scylla.alternator.KEYSPACE.TABLE`."""

import pytest
from botocore.exceptions import ClientError
from harness.dynamodb import api_node, client_of

LOCAL = ".scylla.alternator.system.local"
COLUMNS = ".scylla.alternator.system_schema.columns"


@pytest.fixture(scope="module")
def client():
    node = api_node(smp=2, memory="512M")
    node.start()
    yield client_of(node.endpoint)
    died, log = not node.alive, node.log()
    node.remove()
    assert not died, f"the node died during the tests\n{log}"


def refused(call, **request):
    with pytest.raises(ClientError) as failure:
        call(**request)
    error = failure.value.response["Error"]
    return error["Code"], error["Message"]


def test_the_row_of_a_table_is_an_item(client):
    (local,) = client.scan(TableName=LOCAL)["Items"]
    assert local["key"] == {"S": "local"}
    assert local["rpc_address"] == {"S": "127.0.0.1"}
    assert local["native_protocol_version"]["S"].isdigit()
    assert len(local["host_id"]["S"]) == 36
    assert all(token.lstrip("-").isdigit() for token in local.get("tokens", {"SS": []})["SS"])
    found = client.query(
        TableName=LOCAL,
        KeyConditionExpression="#k = :k",
        ExpressionAttributeNames={"#k": "key"},
        ExpressionAttributeValues={":k": {"S": "local"}},
        ProjectionExpression="host_id",
    )
    assert found["Items"] == [{"host_id": local["host_id"]}]
    assert found["Count"] == found["ScannedCount"] == 1


def columns_of(client, table, **request):
    """The columns of a table of `system` in the order of the table, by pages of 2."""
    request |= {
        "TableName": COLUMNS,
        "KeyConditionExpression": "keyspace_name = :k AND table_name = :t",
        "ExpressionAttributeValues": {":k": {"S": "system"}, ":t": {"S": table}},
        "Limit": 2,
    }
    items = []
    while True:
        page = client.query(**request)
        assert len(page["Items"]) <= 2
        items += page["Items"]
        if "LastEvaluatedKey" not in page:
            return [item["column_name"]["S"] for item in items]
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def test_a_query_reads_pages_in_both_directions(client):
    names = columns_of(client, "peers")
    assert len(names) > 4 and names == sorted(names)
    assert columns_of(client, "peers", ScanIndexForward=False) == names[::-1]
    everything = []
    for page in client.get_paginator("scan").paginate(TableName=COLUMNS, Limit=50):
        everything += page["Items"]
    found = [tuple(item[name]["S"] for name in ("keyspace_name", "table_name", "column_name")) for item in everything]
    assert sorted(column for *table, column in found if table == ["system", "peers"]) == names
    assert len(set(found)) == len(found) > 100


def test_a_query_narrows_the_clustering_key_and_filters(client):
    request = {
        "TableName": COLUMNS,
        "KeyConditionExpression": "keyspace_name = :k AND table_name = :t AND begins_with(column_name, :c)",
        "FilterExpression": "#t = :inet",
        "ExpressionAttributeNames": {"#t": "type"},
        "ExpressionAttributeValues": {
            ":k": {"S": "system"},
            ":t": {"S": "peers"},
            ":c": {"S": "p"},
            ":inet": {"S": "inet"},
        },
    }
    found = client.query(**request)
    names = [item["column_name"]["S"] for item in found["Items"]]
    assert "peer" in names and all(name.startswith("p") for name in names)
    assert found["ScannedCount"] >= found["Count"] == len(names)


@pytest.mark.parametrize("name", ["system.nothing", "alternator_t.t", "system"])
def test_other_tables_are_not_found(client, name):
    assert refused(client.scan, TableName=f".scylla.alternator.{name}")[0] == "ResourceNotFoundException"


def test_secrets_are_not_shown(client):
    name = ".scylla.alternator.system_auth.dynamodb_keys"
    assert refused(client.scan, TableName=name)[0] == "ResourceNotFoundException"


def test_what_is_no_read_is_refused_by_name(client):
    key = {"key": {"S": "local"}}
    for call, request in [
        (client.put_item, {"Item": key}),
        (client.delete_item, {"Key": key}),
        (client.get_item, {"Key": key}),
        (client.describe_table, {}),
        (client.delete_table, {}),
    ]:
        code, message = refused(call, TableName=LOCAL, **request)
        assert code == "ValidationException"
        assert "Query and Scan read it" in message
    keys = {
        "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    assert refused(client.create_table, TableName=LOCAL, **keys)[0] == "ValidationException"
    assert LOCAL not in client.list_tables()["TableNames"]


def test_a_start_key_of_another_request_is_refused(client):
    request = {"TableName": LOCAL, "ExclusiveStartKey": {"key": {"S": "local"}}}
    assert refused(client.scan, **request)[0] == "ValidationException"
    forged = request | {"ExclusiveStartKey": {":position": {"B": b"\x00nonsense"}}}
    assert refused(client.scan, **forged)[0] in ("ValidationException", "InternalServerError")
