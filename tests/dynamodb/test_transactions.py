"""Transactions over several items and tables."""

import threading

import pytest
from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import ClientError

pack = TypeSerializer().serialize


def put(table, key, **attributes):
    packed = {name: pack(value) for name, value in attributes.items()}
    return {"Put": {"TableName": table, "Item": {"p": pack(key)} | packed}}


def add(table, key, amount, condition=None):
    update = {
        "TableName": table,
        "Key": {"p": pack(key)},
        "UpdateExpression": "SET n = n + :d",
        "ExpressionAttributeValues": {":d": pack(amount)},
    }
    if condition:
        update["ConditionExpression"] = condition
        update["ExpressionAttributeValues"][":min"] = pack(0)
    return {"Update": update}


def numbers(client, table, keys):
    gets = [{"Get": {"TableName": table, "Key": {"p": pack(key)}}} for key in keys]
    answer = client.transact_get_items(TransactItems=gets)
    return [int(response["Item"]["n"]["N"]) for response in answer["Responses"]]


def test_all_actions_are_done_or_none(client, table):
    one, two = table("p:S"), table("p:S")
    client.transact_write_items(TransactItems=[put(one, "a", n=1), put(two, "b", n=2)])
    check = {"TableName": two, "Key": {"p": pack("b")}, "ConditionExpression": "n = :n"}
    check |= {"ExpressionAttributeValues": {":n": pack(3)}, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    with pytest.raises(ClientError) as failure:
        client.transact_write_items(TransactItems=[add(one, "a", 10), {"ConditionCheck": check}])
    assert failure.value.response["Error"]["Code"] == "TransactionCanceledException"
    reasons = failure.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert reasons[1]["Item"] == {"p": pack("b"), "n": pack(2)}
    assert numbers(client, one, ["a"]) == [1]


def test_a_token_repeats_nothing(client, table):
    name = table("p:S")
    client.put_item(TableName=name, Item={"p": pack("a"), "n": pack(1)})
    for _ in range(2):
        client.transact_write_items(TransactItems=[add(name, "a", 5)], ClientRequestToken="token-of-this-test")
    assert numbers(client, name, ["a"]) == [6]
    with pytest.raises(ClientError) as failure:
        client.transact_write_items(TransactItems=[add(name, "a", 6)], ClientRequestToken="token-of-this-test")
    assert failure.value.response["Error"]["Code"] == "IdempotentParameterMismatchException"


def test_clients_that_move_money_at_once_make_and_lose_none(client, table):
    name = table("p:S")
    keys = ["a", "b", "c"]
    client.transact_write_items(TransactItems=[put(name, key, n=100) for key in keys])
    failures, sums = [], []

    def move(number):
        for round_ in range(10):
            source, target = keys[(number + round_) % 3], keys[(number + round_ + 1) % 3]
            try:
                client.transact_write_items(TransactItems=[add(name, source, -1, "n > :min"), add(name, target, 1)])
            except ClientError as error:
                reasons = error.response.get("CancellationReasons", [])
                if not any(reason["Code"] == "TransactionConflict" for reason in reasons):
                    failures.append(error)
            try:
                sums.append(sum(numbers(client, name, keys)))
            except ClientError as error:
                if error.response["Error"]["Code"] != "TransactionCanceledException":
                    failures.append(error)

    threads = [threading.Thread(target=move, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(sums) <= {300} and sum(numbers(client, name, keys)) == 300
