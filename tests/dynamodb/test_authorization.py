"""Access keys: operators make them, and where authorization is enforced only requests that are rightly signed are answered."""

import datetime
import json
import time
import urllib.error
import urllib.request

import botocore.auth
import pytest
from botocore.exceptions import ClientError
from harness import cql
from harness.cluster import Cluster, address
from harness.dynamodb import api_node, client_of
from harness.node import NodeFailed, free_ports

ENFORCED = ["--alternator-enforce-authorization", "true"]
WARNED = ["--alternator-warn-authorization", "true"]
# A node that has read a key uses it for ten seconds, and one that is none for two.
FORGOTTEN_SECONDS = 15
PATH = "/ceto/dynamodb/keys"
KEYS = {
    "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
    "BillingMode": "PAY_PER_REQUEST",
}


@pytest.fixture(scope="module")
def node():
    node = api_node(smp=2, memory="512M", options=ENFORCED)
    node.start()
    yield node
    died, log = not node.alive, node.log()
    node.remove()
    assert not died, f"the node died during the tests\n{log}"


def new_key(node):
    status, key = node.api(PATH, "POST")
    assert status == 200
    return key["access_key"], key["secret"]


def answer(client):
    """OK, or the type and the status of the error."""
    try:
        client.list_tables()
    except ClientError as failure:
        response = failure.response
        return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]
    return "OK"


def becomes(client, expected):
    until = time.monotonic() + FORGOTTEN_SECONDS
    while (found := answer(client)) != expected:
        assert time.monotonic() < until, f"it is still {found}"
        time.sleep(0.1)


UNKNOWN = ("UnrecognizedClientException", 400)
WRONG = ("InvalidSignatureException", 400)
MISSING = ("MissingAuthenticationTokenException", 400)


def ask_unsigned(node):
    request = urllib.request.Request(
        node.endpoint,
        b"{}",
        {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810.ListTables"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as failure:
        return failure.code, json.load(failure)


def test_a_key_signs_every_operation(node):
    client = client_of(node.endpoint, new_key(node))
    client.create_table(TableName="signed", **KEYS)
    client.put_item(TableName="signed", Item={"p": {"S": "k"}, "a": {"S": "é ✓"}})
    assert client.get_item(TableName="signed", Key={"p": {"S": "k"}})["Item"]["a"] == {"S": "é ✓"}
    assert client.scan(TableName="signed")["Count"] == 1
    client.delete_table(TableName="signed")


def test_what_is_not_rightly_signed_is_refused(node):
    name, secret = new_key(node)
    assert answer(client_of(node.endpoint, (name, secret[:-1] + "#"))) == WRONG
    assert answer(client_of(node.endpoint, (name, secret))) == "OK"
    assert answer(client_of(node.endpoint, (name, secret + "x"))) == WRONG
    assert answer(client_of(node.endpoint, ("nobody", secret))) == UNKNOWN
    assert answer(client_of(node.endpoint, (secret, name))) in (UNKNOWN, ("IncompleteSignatureException", 400))
    status, body = ask_unsigned(node)
    assert (status, body["__type"].partition("#")[2]) == (400, MISSING[0])
    # Temporary credentials do not exist.
    with_token = client_of(node.endpoint, (name, secret))
    with_token.meta.events.register("before-sign.*.*", lambda request, **_: request.headers.add_header("X-Amz-Security-Token", "t"))
    assert answer(with_token) == UNKNOWN


def test_a_body_that_was_changed_after_it_was_signed_is_refused(node):
    client = client_of(node.endpoint, new_key(node))
    assert answer(client) == "OK"

    def change(request, **_):
        request.body = request.body.replace(b"{}", b"[]")

    client.meta.events.register("before-send.dynamodb.*", change)
    assert answer(client) == WRONG


@pytest.mark.parametrize(("minutes", "expected"), [(-14, "OK"), (14, "OK"), (-16, WRONG), (16, WRONG)])
def test_a_clock_may_differ_by_a_quarter_of_an_hour(node, monkeypatch, minutes, expected):
    client = client_of(node.endpoint, new_key(node))
    shifted = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) + datetime.timedelta(minutes=minutes)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: shifted)
    assert answer(client) == expected


def test_a_key_that_is_deleted_or_not_active_is_refused_soon(node):
    key = new_key(node)
    client = client_of(node.endpoint, key)
    assert answer(client) == "OK"
    assert node.api(f"{PATH}/{key[0]}?status=Inactive", "POST")[0] == 200
    becomes(client, UNKNOWN)
    assert node.api(f"{PATH}/{key[0]}?status=Active", "POST")[0] == 200
    becomes(client, "OK")
    assert node.api(f"{PATH}/{key[0]}", "DELETE")[0] == 200
    becomes(client, UNKNOWN)
    for method, path in [("DELETE", f"{PATH}/{key[0]}"), ("POST", f"{PATH}/{key[0]}?status=Active")]:
        assert node.api(path, method) == (404, {"message": f"there is no access key '{key[0]}'", "code": 404})


def test_lists_have_no_secrets(node):
    name, secret = new_key(node)
    status, listed = node.api(PATH)
    (found,) = [key for key in listed if key["access_key"] == name]
    assert status == 200 and found["status"] == "Active"
    assert abs(found["created"] / 1000 - time.time()) < 60
    printed = node.nodetool("dynamodbkeys")
    assert name in printed and secret not in printed + json.dumps(listed)
    assert secret not in "\n".join(node.lines)


def test_nodetool_manages_keys(node):
    made = dict(line.split(" = ") for line in node.nodetool("dynamodbkeys", "create").splitlines() if " = " in line)
    key = tuple(value.strip() for value in made.values())
    client = client_of(node.endpoint, key)
    assert answer(client) == "OK"
    node.nodetool("dynamodbkeys", "deactivate", key[0])
    becomes(client, UNKNOWN)
    node.nodetool("dynamodbkeys", "activate", key[0])
    becomes(client, "OK")
    node.nodetool("dynamodbkeys", "delete", key[0])
    becomes(client, UNKNOWN)
    with pytest.raises(NodeFailed, match="there is no access key"):
        node.nodetool("dynamodbkeys", "delete", key[0])


def test_keys_are_rows_of_a_table(node, request):
    cluster = cql.cluster(node.server)
    request.addfinalizer(cluster.shutdown)
    session = cluster.connect()
    insert = session.prepare("INSERT INTO system_auth.dynamodb_keys (access_key, secret, status) VALUES (?, ?, ?)")
    # As users of other servers have them: a role, and its salted hash.
    session.execute(insert, ("alice", "$6$x799$GBTzqsr3MUEeg8", None))
    session.execute(insert, ("bob", "bobs", "Suspended"))
    session.execute(insert, ("carol", "", None))
    session.execute("INSERT INTO system_auth.dynamodb_keys (access_key) VALUES ('dave')")
    assert answer(client_of(node.endpoint, ("alice", "$6$x799$GBTzqsr3MUEeg8"))) == "OK"
    assert answer(client_of(node.endpoint, ("alice", "guess"))) == WRONG
    for key in [("bob", "bobs"), ("carol", "x"), ("dave", "x")]:
        assert answer(client_of(node.endpoint, key)) == UNKNOWN
    listed = {key["access_key"]: key["status"] for key in node.api(PATH)[1]}
    assert (listed["alice"], listed["bob"]) == ("Active", "Inactive") and "dave" not in listed
    # A write of a clock that is ahead does not survive a delete.
    session.execute("UPDATE system_auth.dynamodb_keys USING TIMESTAMP 9000000000000000 SET secret = 's' WHERE access_key = 'alice'")
    assert node.api(f"{PATH}/alice", "DELETE")[0] == 200
    assert session.execute("SELECT * FROM system_auth.dynamodb_keys WHERE access_key = 'alice'").one() is None


def test_a_node_that_only_warns_answers_and_counts(request):
    node = api_node(smp=1, memory="512M", options=WARNED)
    request.addfinalizer(node.remove)
    node.start()
    key = new_key(node)
    assert answer(client_of(node.endpoint, key)) == "OK"
    assert answer(client_of(node.endpoint, (key[0], "wrong"))) == "OK"
    assert answer(client_of(node.endpoint, ("nobody\u00e9", "x"))) == "OK"
    assert ask_unsigned(node) == (200, {"TableNames": []})
    metrics = node.metrics()
    assert metrics['ceto_dynamodb_authentication_warnings_total{shard="0"}'] == 3
    assert metrics['ceto_dynamodb_authentication_failures_total{shard="0"}'] == 0
    log = "\n".join(node.lines)
    for reason in (f'InvalidSignatureException, access key "{key[0]}"', "UnrecognizedClientException", MISSING[0]):
        assert f"is not authorized and is executed: {reason}" in log
    assert key[1] not in log


def test_enforcement_is_switched_on_while_the_node_runs(request):
    node = api_node(smp=2, memory="512M")
    request.addfinalizer(node.remove)
    node.start()
    key = new_key(node)
    cluster = cql.cluster(node.server)
    request.addfinalizer(cluster.shutdown)
    session = cluster.connect()
    stranger = client_of(node.endpoint, ("nobody", "x"))
    assert (answer(stranger), ask_unsigned(node)[0]) == ("OK", 200)
    session.execute("UPDATE system.config SET value = 'true' WHERE name = 'alternator_enforce_authorization'")
    assert (answer(stranger), ask_unsigned(node)[0]) == (UNKNOWN, 400)
    assert answer(client_of(node.endpoint, key)) == "OK"
    session.execute("UPDATE system.config SET value = 'false' WHERE name = 'alternator_enforce_authorization'")
    assert (answer(stranger), ask_unsigned(node)[0]) == ("OK", 200)


def test_three_nodes_share_the_keys_and_refuse_all_when_they_cannot_read_them(request):
    (port,) = free_ports([address(number) for number in range(1, 4)], 1)
    cluster = Cluster(3, options=["--alternator-port", str(port), *ENFORCED])
    request.addfinalizer(cluster.remove)
    cluster.form()
    driver = cluster.driver()
    request.addfinalizer(driver.shutdown)
    driver.connect().execute(
        "ALTER KEYSPACE system_auth WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 3}"
    )
    key = new_key(cluster.node(1))
    clients = [client_of(f"http://{cluster.address(number)}:{port}", key) for number in range(1, 4)]
    for client in clients:
        becomes(client, "OK")
    cluster.kill(3)
    newer = new_key(cluster.node(2))
    becomes(client_of(f"http://{cluster.address(1)}:{port}", newer), "OK")
    assert answer(clients[0]) == "OK"
    cluster.kill(2)
    becomes(clients[0], ("ServiceUnavailableException", 503))
    cluster.start(2)
    becomes(clients[0], "OK")
