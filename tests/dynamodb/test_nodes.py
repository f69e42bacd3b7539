"""Items survive a kill; the port answers health checks and lists nodes; tables are CQL tables."""

import json
import time
import urllib.request

import pytest
from boto3.dynamodb.types import TypeSerializer
from harness import cql
from harness.cluster import Cluster, address
from harness.dynamodb import api_node, client_of
from harness.node import free_ports

pack = TypeSerializer().serialize
KEYS = {
    "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
    "BillingMode": "PAY_PER_REQUEST",
}


def test_what_was_written_is_there_after_a_kill(own_node):
    client = client_of(own_node.endpoint)
    client.create_table(TableName="kept", **KEYS)
    for number in range(20):
        client.put_item(TableName="kept", Item={"p": pack(str(number)), "n": pack(number)})
    both = [{"Put": {"TableName": "kept", "Item": {"p": pack(key)}}} for key in ("x", "y")]
    client.transact_write_items(TransactItems=both)
    own_node.kill9()
    own_node.start()
    client = client_of(own_node.endpoint)
    assert client.list_tables()["TableNames"] == ["kept"]
    assert client.scan(TableName="kept", Select="COUNT", ConsistentRead=True)["Count"] == 22


def test_items_expire(request):
    node = api_node(smp=1, memory="512M", options=["--alternator-ttl-period-in-seconds", "1"])
    request.addfinalizer(node.remove)
    node.start()
    client = client_of(node.endpoint)
    client.create_table(TableName="expiring", **KEYS)
    client.update_time_to_live(
        TableName="expiring", TimeToLiveSpecification={"Enabled": True, "AttributeName": "ends"}
    )
    client.put_item(TableName="expiring", Item={"p": pack("stays")})
    client.put_item(TableName="expiring", Item={"p": pack("later"), "ends": pack(4_000_000_000)})
    client.put_item(TableName="expiring", Item={"p": pack("no time"), "ends": pack("1")})
    client.put_item(TableName="expiring", Item={"p": pack("goes"), "ends": pack(int(time.time()) - 10)})
    keys = {"stays", "later", "no time"}
    while (found := {row["p"]["S"] for row in client.scan(TableName="expiring")["Items"]}) != keys:
        assert keys <= found


def test_health_and_nodes_are_answered_without_an_operation(endpoint):
    with urllib.request.urlopen(f"{endpoint}/") as answer:
        assert answer.read().startswith(b"healthy")
    with urllib.request.urlopen(f"{endpoint}/localnodes") as answer:
        assert json.load(answer) == ["127.0.0.1"]


def test_a_table_is_a_table_of_cql(request):
    node = api_node(smp=1, memory="512M")
    request.addfinalizer(node.remove)
    node.start()
    client = client_of(node.endpoint)
    client.create_table(TableName="both-ways", **KEYS)
    client.put_item(TableName="both-ways", Item={"p": pack("k"), "a": pack("v")})
    cluster = cql.cluster(node.server)
    request.addfinalizer(cluster.shutdown)
    session = cluster.connect()
    row = session.execute('SELECT p, ":attrs" FROM "alternator_both-ways"."both-ways"').one()
    assert row[0] == "k" and list(row[1]) == ["a"]
    session.execute('DELETE FROM "alternator_both-ways"."both-ways" WHERE p = \'k\'')
    assert client.scan(TableName="both-ways")["Count"] == 0


def test_three_nodes_serve_one_table_while_one_of_them_is_dead(request):
    (port,) = free_ports([address(number) for number in range(1, 4)], 1)
    cluster = Cluster(3, options=["--alternator-port", str(port)])
    request.addfinalizer(cluster.remove)
    cluster.form()
    clients = [client_of(f"http://{cluster.address(number)}:{port}") for number in range(1, 4)]
    clients[0].create_table(TableName="spread", **KEYS)
    for number in range(30):
        clients[number % 3].put_item(TableName="spread", Item={"p": pack(str(number)), "n": pack(0)})
    add = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": pack(1)}}

    def add_to_all(clients):
        for number in range(30):
            client = clients[number % len(clients)]
            client.update_item(TableName="spread", Key={"p": pack(str(number))}, **add)

    def numbers(client):
        return [int(row["n"]["N"]) for row in client.scan(TableName="spread", ConsistentRead=True)["Items"]]

    add_to_all(clients)
    cluster.kill(3)
    add_to_all(clients[:2])
    gets = [{"Update": {"TableName": "spread", "Key": {"p": pack(key)}} | add} for key in ("1", "2", "3")]
    clients[1].transact_write_items(TransactItems=gets)
    wanted = [2] * 27 + [3] * 3
    assert [sorted(numbers(client)) for client in clients[:2]] == [wanted] * 2
    cluster.start(3)
    assert sorted(numbers(clients[2])) == wanted


def test_an_operator_says_how_many_items_a_batch_may_have():
    def batch(client, count):
        puts = [{"PutRequest": {"Item": {"p": pack(str(number))}}} for number in range(count)]
        return client.batch_write_item(RequestItems={"batches": puts})

    for options, most in (([], 25), (["--alternator-max-items-in-batch-write", "60"], 60)):
        with api_node(options=options) as node:
            client = client_of(node.endpoint)
            client.create_table(TableName="batches", **KEYS)
            assert batch(client, most)["UnprocessedItems"] == {}
            assert client.scan(TableName="batches", ConsistentRead=True)["Count"] == most
            with pytest.raises(client.exceptions.ClientError, match="ValidationException"):
                batch(client, most + 1)
