"""boto3's resources, which map items to Python's values: boto3_resource.py ENDPOINT CUTTING_ENDPOINT PREFIX.

tests/drivers/test_dynamodb.py says what these are. The client below them is tested in tests/dynamodb.
"""

import sys
from decimal import Decimal

import boto3
from boto3.dynamodb.conditions import Attr, Key
from boto3.dynamodb.types import Binary
from checks import KEY, REGION, SECRET, Checks, raises

ENDPOINT, CUTTING_ENDPOINT, PREFIX = sys.argv[1:4]
ITEMS = 150
KILOBYTES_10 = "y" * 10_000
SINNERMAN = {"artist": "Nina Simone", "year": 1965}
checks = Checks()


def resource(endpoint):
    return boto3.resource("dynamodb", endpoint_url=endpoint, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET)


dynamodb = resource(ENDPOINT)
errors = dynamodb.meta.client.exceptions
table = dynamodb.Table(f"{PREFIX}-resource")


def years(answer):
    return [int(item["year"]) for item in answer["Items"]]


@checks.check("a table is created, waited for and listed")
def creates():
    raises(errors.ResourceNotFoundException, table.load)
    dynamodb.create_table(
        TableName=table.name,
        AttributeDefinitions=[{"AttributeName": "artist", "AttributeType": "S"}, {"AttributeName": "year", "AttributeType": "N"}],
        KeySchema=[{"AttributeName": "artist", "KeyType": "HASH"}, {"AttributeName": "year", "KeyType": "RANGE"}],
        ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
    ).wait_until_exists()
    assert (table.table_status, table.item_count) == ("ACTIVE", 0)
    assert table in dynamodb.tables.all()
    table.update(BillingMode="PAY_PER_REQUEST")
    assert table.billing_mode_summary["BillingMode"] == "PAY_PER_REQUEST"


@checks.check("an item comes back as it was")
def puts():
    item = SINNERMAN | {
        "empty": "", "none": None, "no": False, "number": Decimal("0.12345678901234567890123456789012345678"), "bytes": Binary(b"\x00\xff"),
        "texts": {"a", "b"}, "numbers": {1, Decimal("2.5")}, "list": [1, "a", [], {}], "map": {"deep": {"er": [None]}},
    }  # fmt: skip
    table.put_item(Item=item)
    assert table.get_item(Key=SINNERMAN, ConsistentRead=True)["Item"] == item
    failure = raises(errors.ConditionalCheckFailedException, table.put_item, Item=item, ConditionExpression=Attr("artist").not_exists())
    assert failure.response["Error"]["Message"] == "The conditional request failed"
    assert "Item" not in table.get_item(Key={"artist": "none", "year": 1})


@checks.check("updates, conditions and deletes")
def updates():
    condition = Attr("number").between(0, 1) & (Attr("texts").contains("a") | Attr("none").exists()) & ~Attr("map.deep.er[0]").eq(7) & Attr("list").size().gte(4)
    updated = table.update_item(
        Key=SINNERMAN, UpdateExpression="SET #list[0] = :v ADD texts :texts REMOVE #no", ExpressionAttributeNames={"#list": "list", "#no": "no"},
        ExpressionAttributeValues={":v": Decimal("1E+3"), ":texts": {"c"}}, ConditionExpression=condition, ReturnValues="UPDATED_NEW",
    )  # fmt: skip
    assert updated["Attributes"] == {"list": [1000], "texts": {"a", "b", "c"}}
    # Python's empty set is sent as an empty set of numbers.
    refused = raises(dynamodb.meta.client.exceptions.ClientError, table.put_item, Item=SINNERMAN | {"set": set()})
    assert refused.response["Error"]["Code"] == "ValidationException"
    raises(errors.ConditionalCheckFailedException, table.delete_item, Key=SINNERMAN, ConditionExpression=Attr("empty").is_in(["x"]))
    assert table.delete_item(Key=SINNERMAN, ReturnValues="ALL_OLD")["Attributes"]["empty"] == ""


@checks.check("batches, queries and scans")
def many():
    with table.batch_writer(overwrite_by_pkeys=["artist", "year"]) as batch:
        for year in [0, *range(ITEMS)]:
            batch.put_item(Item={"artist": "many", "year": year, "text": KILOBYTES_10})
    first = table.query(KeyConditionExpression=Key("artist").eq("many"))
    rest = table.query(KeyConditionExpression=Key("artist").eq("many"), ExclusiveStartKey=first["LastEvaluatedKey"])
    assert years(first) + years(rest) == list(range(ITEMS))
    between = Key("artist").eq("many") & Key("year").between(3, 6)
    assert years(table.query(KeyConditionExpression=between, FilterExpression=Attr("text").begins_with("y"), ScanIndexForward=False)) == [6, 5, 4, 3]
    pages = dynamodb.meta.client.get_paginator("scan").paginate(TableName=table.name, PaginationConfig={"PageSize": 40})
    assert sorted(years(pages.build_full_result())) == list(range(ITEMS))
    keys = [{"artist": "many", "year": year} for year in (3, -1)]
    answer = dynamodb.batch_get_item(RequestItems={table.name: {"Keys": keys, "ProjectionExpression": "#y", "ExpressionAttributeNames": {"#y": "year"}}})
    assert (answer["Responses"], answer["UnprocessedKeys"]) == ({table.name: [{"year": 3}]}, {})


@checks.check("a request whose answer is lost is sent again and done once")
def retries():
    cut = resource(CUTTING_ENDPOINT)
    add = {"TableName": table.name, "Key": SINNERMAN, "UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
    for _ in range(3):
        cut.meta.client.transact_write_items(TransactItems=[{"Update": add}])
    answer = cut.Table(table.name).get_item(Key=SINNERMAN, ConsistentRead=True)
    assert (answer["Item"]["n"], answer["ResponseMetadata"]["RetryAttempts"]) == (3, 1)


@checks.check("a table is deleted and waited for")
def deletes():
    table.delete()
    table.wait_until_not_exists()


checks.run()
