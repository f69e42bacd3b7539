"""Items: put, get, update, delete, with conditions, and what each answers."""

import decimal

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

pack = TypeSerializer().serialize
unpack = TypeDeserializer().deserialize


def item(**attributes):
    return {name: pack(value) for name, value in attributes.items()}


def plain(packed):
    return {name: unpack(value) for name, value in (packed or {}).items()}


def refused(call, **parameters):
    with pytest.raises(ClientError) as failure:
        call(**parameters)
    return failure.value.response["Error"]["Code"], failure.value.response["Error"]["Message"]


def test_every_type_comes_back_as_it_was_put(client, table):
    name = table("p:S")
    everything = {
        "p": "key",
        "string": "text with \"quotes\", \\ and \n lines",
        "empty": "",
        "number": decimal.Decimal("-12345678901234567890.123456789012345678"),
        "small": decimal.Decimal("1E-130"),
        "binary": b"\x00\xff",
        "yes": True,
        "nothing": None,
        "list": [decimal.Decimal(1), "two", [b"3"], {"four": None}],
        "map": {"inner": {"deep": ["x"]}, "other": "v"},
        "strings": {"a", "b"},
        "numbers": {decimal.Decimal("1.5"), decimal.Decimal(-2)},
        "binaries": {b"a", b"b"},
    }
    client.put_item(TableName=name, Item=item(**everything))
    found = plain(client.get_item(TableName=name, Key=item(p="key"), ConsistentRead=True)["Item"])
    found["binary"] = bytes(found["binary"])
    found["list"][2][0] = bytes(found["list"][2][0])
    found["binaries"] = {bytes(value) for value in found["binaries"]}
    assert found == everything


def test_numbers_come_back_as_plain_decimals(client, table):
    name = table("p:S")
    for sent, answered in [("1E+3", "1000"), ("1.0", "1"), ("-0", "0"), ("0.10", "0.1"), ("1e-3", "0.001")]:
        client.put_item(TableName=name, Item={"p": {"S": "k"}, "n": {"N": sent}})
        assert client.get_item(TableName=name, Key=item(p="k"))["Item"]["n"] == {"N": answered}


@pytest.mark.parametrize(
    ("kind", "values"),
    [("S", ["b", "a", "ab"]), ("N", ["10", "-2", "9.5"]), ("B", [b"\xff", b"\x00", b"\x00\x01"])],
)
def test_items_are_sorted_by_a_key_of_any_type(client, table, kind, values):
    name = table("p:S", f"c:{kind}")
    for value in values:
        client.put_item(TableName=name, Item={"p": {"S": "k"}, "c": {kind: value}})
    found = client.query(
        TableName=name, KeyConditionExpression="p = :p", ExpressionAttributeValues={":p": {"S": "k"}}
    )["Items"]
    key = decimal.Decimal if kind == "N" else lambda value: value
    assert [row["c"][kind] for row in found] == sorted(values, key=key)


def test_an_item_that_is_not_there_has_no_item_in_the_answer(client, table):
    assert "Item" not in client.get_item(TableName=table("p:S"), Key=item(p="none"))


def test_a_put_replaces_the_whole_item(client, table):
    name = table("p:S")
    client.put_item(TableName=name, Item=item(p="k", a=1, b=2))
    old = client.put_item(TableName=name, Item=item(p="k", c=3), ReturnValues="ALL_OLD")
    assert plain(old["Attributes"]) == {"p": "k", "a": 1, "b": 2}
    assert plain(client.get_item(TableName=name, Key=item(p="k"), ConsistentRead=True)["Item"]) == {"p": "k", "c": 3}


def test_a_condition_that_does_not_hold_writes_nothing_and_can_show_the_item(client, table):
    name = table("p:S")
    client.put_item(TableName=name, Item=item(p="k", a=1))
    with pytest.raises(ClientError) as failure:
        client.put_item(
            TableName=name,
            Item=item(p="k", a=2),
            ConditionExpression="attribute_not_exists(p)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert failure.value.response["Error"]["Code"] == "ConditionalCheckFailedException"
    assert plain(failure.value.response["Item"]) == {"p": "k", "a": 1}
    client.put_item(
        TableName=name,
        Item=item(p="k", a=2),
        ConditionExpression="a = :one AND NOT contains(#b, :one)",
        ExpressionAttributeNames={"#b": "b"},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    assert plain(client.get_item(TableName=name, Key=item(p="k"))["Item"])["a"] == 2


@pytest.mark.parametrize(
    ("wanted", "attributes"),
    [
        ("NONE", {}),
        ("ALL_OLD", {"p": "k", "n": 1, "l": ["x"]}),
        ("UPDATED_OLD", {"n": 1}),
        ("ALL_NEW", {"p": "k", "n": 3, "l": ["x"], "new": "v"}),
        ("UPDATED_NEW", {"n": 3, "new": "v"}),
    ],
)
def test_an_update_answers_what_was_asked_for(client, table, wanted, attributes):
    name = table("p:S")
    client.put_item(TableName=name, Item=item(p="k", n=1, l=["x"]))
    answer = client.update_item(
        TableName=name,
        Key=item(p="k"),
        UpdateExpression="SET n = n + :two, #new = if_not_exists(#new, :v)\n",
        ExpressionAttributeNames={"#new": "new"},
        ExpressionAttributeValues={":two": {"N": "2"}, ":v": {"S": "v"}},
        ReturnValues=wanted,
    )
    assert plain(answer.get("Attributes")) == attributes


def test_an_update_creates_the_item_and_changes_nested_values(client, table):
    name = table("p:S", "c:N")
    key = item(p="k", c=1)
    client.update_item(TableName=name, Key=key)
    assert plain(client.get_item(TableName=name, Key=key)["Item"]) == {"p": "k", "c": 1}
    values = {":m": pack({"a": {"b": 1}}), ":l": pack([1, 2, 3]), ":s": pack({"x", "y"})}
    client.update_item(
        TableName=name, Key=key, UpdateExpression="set m = :m, l = :l add s :s", ExpressionAttributeValues=values
    )
    client.update_item(
        TableName=name,
        Key=key,
        UpdateExpression="REMOVE l[0] SET m.a.b = :two, m.a.c = list_append(l, l) DELETE s :x",
        ExpressionAttributeValues={":two": {"N": "2"}, ":x": pack({"x"})},
    )
    found = plain(client.get_item(TableName=name, Key=key, ConsistentRead=True)["Item"])
    assert found == {"p": "k", "c": 1, "m": {"a": {"b": 2, "c": [1, 2, 3, 1, 2, 3]}}, "l": [2, 3], "s": {"y"}}


def test_a_delete_answers_the_item_once(client, table):
    name = table("p:N")
    client.put_item(TableName=name, Item=item(p=1, v="x"))
    deleted = client.delete_item(TableName=name, Key=item(p=1), ReturnValues="ALL_OLD")
    assert plain(deleted["Attributes"]) == {"p": 1, "v": "x"}
    again = client.delete_item(TableName=name, Key=item(p=1), ReturnValues="ALL_OLD")
    assert "Attributes" not in again
    code, _ = refused(
        client.delete_item, TableName=name, Key=item(p=1), ConditionExpression="attribute_exists(p)"
    )
    assert code == "ConditionalCheckFailedException"


def test_legacy_parameters_mean_the_same(client, table):
    name = table("p:S")
    client.put_item(TableName=name, Item=item(p="k", n=1), Expected={"p": {"Exists": False}})
    code, _ = refused(
        client.put_item, TableName=name, Item=item(p="k", n=1), Expected={"p": {"Exists": False}}
    )
    assert code == "ConditionalCheckFailedException"
    client.update_item(
        TableName=name,
        Key=item(p="k"),
        AttributeUpdates={"n": {"Action": "ADD", "Value": pack(4)}, "x": {"Action": "PUT", "Value": pack("y")}},
        Expected={"n": {"Value": pack(1)}},
    )
    found = client.get_item(TableName=name, Key=item(p="k"), AttributesToGet=["n", "x"])
    assert plain(found["Item"]) == {"n": 5, "x": "y"}


def test_a_projection_returns_parts_of_an_item(client, table):
    name = table("p:S")
    client.put_item(TableName=name, Item=item(p="k", m={"a": 1, "b": 2}, l=[10, 20, 30], z="no"))
    found = client.get_item(TableName=name, Key=item(p="k"), ProjectionExpression="m.a, l[2], l[0], absent")
    assert plain(found["Item"]) == {"m": {"a": 1}, "l": [10, 30]}


@pytest.mark.parametrize(
    ("call", "parameters", "code", "message"),
    [
        ("get_item", {"Key": {"q": {"S": "k"}}}, "ValidationException", "The provided key element does not match the schema"),
        ("put_item", {"Item": {"a": {"S": "k"}}}, "ValidationException", "Missing the key p in the item"),
        ("put_item", {"Item": {"p": {"N": "1"}}}, "ValidationException", "Type mismatch for key p expected: S actual: N"),
        ("put_item", {"Item": {"p": {"S": ""}}}, "ValidationException", "cannot contain an empty string value. Key: p"),
        (
            "update_item",
            {"Key": {"p": {"S": "k"}}, "UpdateExpression": "SET p = :p", "ExpressionAttributeValues": {":p": {"S": "x"}}},
            "ValidationException",
            "Cannot update attribute p. This attribute is part of the key",
        ),
        (
            "update_item",
            {"Key": {"p": {"S": "k"}}, "UpdateExpression": "SET a = b + :n", "ExpressionAttributeValues": {":n": {"N": "1"}}},
            "ValidationException",
            "The provided expression refers to an attribute that does not exist in the item",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_the_words_of_the_service(client, table, call, parameters, code, message):
    found = refused(getattr(client, call), TableName=table("p:S"), **parameters)
    assert found[0] == code and message in found[1]


def test_a_table_that_is_not_there_is_named_as_such(client):
    code, message = refused(client.get_item, TableName="nowhere", Key=item(p="k"))
    assert (code, message) == ("ResourceNotFoundException", "Requested resource not found")


def test_items_above_400_kb_are_refused(client, table):
    name = table("p:S")
    client.put_item(TableName=name, Item=item(p="k", v="x" * (400 * 1024 - 3)))
    assert len(client.get_item(TableName=name, Key=item(p="k"))["Item"]["v"]["S"]) == 400 * 1024 - 3
    code, message = refused(client.put_item, TableName=name, Item=item(p="k", v="x" * (400 * 1024 - 1)))
    assert code == "ValidationException" and "Item size has exceeded the maximum allowed size" in message
