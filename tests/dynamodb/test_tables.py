"""Tables: created, described, listed, changed and deleted."""

import pytest
from botocore.exceptions import ClientError

KEYS = {
    "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
    "BillingMode": "PAY_PER_REQUEST",
}


def test_a_table_is_described_as_it_was_created(client):
    created = client.create_table(TableName="described.table-1", **KEYS)["TableDescription"]
    client.get_waiter("table_exists").wait(TableName="described.table-1", WaiterConfig={"Delay": 1, "MaxAttempts": 5})
    found = client.describe_table(TableName="described.table-1")["Table"]
    assert found["TableStatus"] == "ACTIVE"
    assert found["KeySchema"] == KEYS["KeySchema"]
    assert found["AttributeDefinitions"] == KEYS["AttributeDefinitions"]
    assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert found["TableId"] == created["TableId"] and found["TableArn"].endswith(":table/described.table-1")
    by_arn = client.describe_table(TableName=found["TableArn"])["Table"]
    assert by_arn == found
    with pytest.raises(ClientError) as failure:
        client.create_table(TableName="described.table-1", **KEYS)
    assert failure.value.response["Error"]["Code"] == "ResourceInUseException"
    deleted = client.delete_table(TableName="described.table-1")["TableDescription"]
    assert deleted["TableStatus"] == "DELETING"
    client.get_waiter("table_not_exists").wait(TableName="described.table-1", WaiterConfig={"Delay": 1, "MaxAttempts": 5})


def test_tables_are_listed_in_pages(client):
    names = [f"listed{i}" for i in range(5)]
    for name in names:
        client.create_table(TableName=name, **KEYS)
    found = []
    for page in client.get_paginator("list_tables").paginate(PaginationConfig={"PageSize": 2}):
        assert len(page["TableNames"]) <= 2
        found += page["TableNames"]
    assert found == sorted(found) and set(names) <= set(found)
    for name in names:
        client.delete_table(TableName=name)


def test_a_protected_table_is_not_deleted(client):
    client.create_table(TableName="protected", DeletionProtectionEnabled=True, **KEYS)
    with pytest.raises(ClientError) as failure:
        client.delete_table(TableName="protected")
    assert failure.value.response["Error"]["Code"] == "ValidationException"
    client.update_table(TableName="protected", DeletionProtectionEnabled=False)
    client.delete_table(TableName="protected")


def test_tags_and_time_to_live_are_kept(client, table):
    name = table("p:S", Tags=[{"Key": "team", "Value": "a"}])
    arn = client.describe_table(TableName=name)["Table"]["TableArn"]
    client.tag_resource(ResourceArn=arn, Tags=[{"Key": "stage", "Value": "test"}])
    client.untag_resource(ResourceArn=arn, TagKeys=["team"])
    assert client.list_tags_of_resource(ResourceArn=arn)["Tags"] == [{"Key": "stage", "Value": "test"}]
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "ends"})
    found = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert found == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ends"}


def test_secondary_indexes_and_streams_are_refused_by_name(client):
    index = {
        "IndexName": "by_a",
        "KeySchema": [{"AttributeName": "a", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    attributes = KEYS["AttributeDefinitions"] + [{"AttributeName": "a", "AttributeType": "S"}]
    with pytest.raises(ClientError) as failure:
        client.create_table(
            TableName="indexed", **KEYS | {"AttributeDefinitions": attributes}, GlobalSecondaryIndexes=[index]
        )
    assert "GlobalSecondaryIndexes" in failure.value.response["Error"]["Message"]
    with pytest.raises(ClientError) as failure:
        client.create_table(
            TableName="streamed",
            **KEYS,
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
    assert "StreamSpecification" in failure.value.response["Error"]["Message"]


def test_a_description_has_the_number_of_items(client, table):
    name = table("p:S", "c:N")
    for number in range(20):
        client.put_item(TableName=name, Item={"p": {"S": f"{number % 3}"}, "c": {"N": str(number)}})
    found = client.describe_table(TableName=name)["Table"]
    assert found["ItemCount"] == 20
    assert 0 < found["TableSizeBytes"] < 20_000
