"""Backups of tables: created, listed, restored under another name and under their own, on one node and on three."""

import time
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary, TypeSerializer
from harness.cluster import Cluster, address
from harness.dynamodb import api_node, client_of
from harness.node import free_ports

pack = TypeSerializer().serialize
KEYS = {
    "AttributeDefinitions": [
        {"AttributeName": "p", "AttributeType": "S"},
        {"AttributeName": "c", "AttributeType": "N"},
    ],
    "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "c", "KeyType": "RANGE"}],
    "BillingMode": "PAY_PER_REQUEST",
}
VALUES = {
    "s": "text",
    "n": Decimal("12345678901234567890.123456789"),
    "b": Binary(b"\x00\xff"),
    "ss": {"x", "y"},
    "ns": {Decimal(1), Decimal("-2.5")},
    "bs": {Binary(b"1"), Binary(b"2")},
    "l": [1, "two", [None, True]],
    "m": {"in": {"deep": False}, "empty": {}},
    "null": None,
    "none": "",
    "ends": 1_000,
}


def error_of(call, **arguments):
    """The error that a call ends with: its code and its message."""
    with pytest.raises(call.__self__.exceptions.ClientError) as raised:
        call(**arguments)
    return raised.value.response["Error"]["Code"], raised.value.response["Error"]["Message"]


def back_up(client, table, name="first"):
    """Creates a backup; its ARN, when it is available."""
    details = client.create_backup(TableName=table, BackupName=name)["BackupDetails"]
    while details["BackupStatus"] != "AVAILABLE":
        assert details["BackupStatus"] == "CREATING"
        description = client.describe_backup(BackupArn=details["BackupArn"])["BackupDescription"]
        details = description["BackupDetails"]
    return details["BackupArn"]


def restore(client, arn, target, **overrides):
    """Restores a table and waits until it can be used; its description."""
    made = client.restore_table_from_backup(TargetTableName=target, BackupArn=arn, **overrides)["TableDescription"]
    assert (made["TableStatus"], made["RestoreSummary"]["RestoreInProgress"]) == ("CREATING", True)
    end = time.monotonic() + 60
    while (table := client.describe_table(TableName=target)["Table"])["TableStatus"] != "ACTIVE":
        assert table["TableStatus"] == "CREATING" and time.monotonic() < end
    return table


def items(client, table):
    """All items of a table, by their keys."""
    pages = client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    rows = [row for page in pages for row in page["Items"]]
    return sorted(rows, key=lambda row: (row["p"]["S"], int(row["c"]["N"])))


def fill(client, table):
    """Items of every type, and of some that are deleted, replaced and changed."""
    for number in range(40):
        key = {"p": pack(f"p{number % 7}"), "c": pack(number)}
        client.put_item(TableName=table, Item=key | {name: pack(value) for name, value in VALUES.items()})
        if number % 4 == 1:
            client.delete_item(TableName=table, Key=key)
        if number % 4 == 2:
            client.put_item(TableName=table, Item=key | {"only": pack(number)})
        if number % 4 == 3:
            client.update_item(
                TableName=table,
                Key=key,
                UpdateExpression="REMOVE m, l SET n = :n",
                ExpressionAttributeValues={":n": pack(number)},
            )
    client.put_item(TableName=table, Item={"p": pack("keys alone"), "c": pack(0)})
    both = [{"Put": {"TableName": table, "Item": {"p": pack(key), "c": pack(1)}}} for key in ("x", "y")]
    client.transact_write_items(TransactItems=both)


def test_a_table_is_restored_with_all_its_items_and_without_what_came_later(client, table):
    source = table("p:S", "c:N")
    fill(client, source)
    wanted = items(client, source)
    arn = back_up(client, source)
    fill_later = {"p": pack("later"), "c": pack(0)}
    client.put_item(TableName=source, Item=fill_later)
    for row in wanted[::2]:
        client.delete_item(TableName=source, Key={"p": row["p"], "c": row["c"]})
    target = source + "-again"
    made = restore(client, arn, target)
    try:
        assert items(client, target) == wanted
        summary = made["RestoreSummary"]
        assert summary["SourceBackupArn"] == arn
        assert summary["SourceTableArn"].endswith(f":table/{source}") and not summary["RestoreInProgress"]
        # It is a table as any other: what was deleted stays deleted, and what is written is read.
        key = {"p": wanted[0]["p"], "c": wanted[0]["c"]}
        client.delete_item(TableName=target, Key=key)
        client.put_item(TableName=target, Item=fill_later)
        assert "Item" not in client.get_item(TableName=target, Key=key, ConsistentRead=True)
        assert len(items(client, target)) == len(wanted)
    finally:
        client.delete_table(TableName=target)
        client.delete_backup(BackupArn=arn)


def test_a_backup_has_the_definition_of_its_table(client, table):
    options = {
        "BillingMode": "PROVISIONED",
        "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 6},
        "Tags": [{"Key": "k", "Value": "v"}],
    }
    source = table("p:B", **options)
    ttl = {"Enabled": True, "AttributeName": "ends"}
    client.update_time_to_live(TableName=source, TimeToLiveSpecification=ttl)
    arn = back_up(client, source, "with-a-name.1_")
    described = client.describe_backup(BackupArn=arn)["BackupDescription"]
    assert described["BackupDetails"]["BackupName"] == "with-a-name.1_"
    assert described["SourceTableDetails"]["TableName"] == source
    assert described["SourceTableDetails"]["KeySchema"] == [{"AttributeName": "p", "KeyType": "HASH"}]
    assert described["SourceTableDetails"]["ProvisionedThroughput"] == options["ProvisionedThroughput"]
    assert described["SourceTableFeatureDetails"]["TimeToLiveDescription"]["AttributeName"] == "ends"
    target = source + "-again"
    made = restore(client, arn, target, BillingModeOverride="PAY_PER_REQUEST")
    try:
        assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        # As with the service, neither tags nor the time to live come back.
        assert client.list_tags_of_resource(ResourceArn=made["TableArn"])["Tags"] == []
        status = client.describe_time_to_live(TableName=target)["TimeToLiveDescription"]
        assert status["TimeToLiveStatus"] == "DISABLED"
    finally:
        client.delete_table(TableName=target)
        client.delete_backup(BackupArn=arn)


def test_backups_are_listed_by_table_and_time_and_in_pages(client, table):
    one, other = table("p:S"), table("p:S")
    arns = {back_up(client, one, f"of-one-{number}") for number in range(5)}
    arns_of_other = {back_up(client, other)}
    try:

        def listed(**arguments):
            pages = client.get_paginator("list_backups").paginate(**arguments)
            return [backup["BackupArn"] for page in pages for backup in page["BackupSummaries"]]

        assert set(listed(TableName=one)) == arns and set(listed(TableName=other)) == arns_of_other
        assert set(listed()) >= arns | arns_of_other
        pages, start = [], {}
        while True:
            page = client.list_backups(TableName=one, Limit=2, **start)
            pages.append([backup["BackupArn"] for backup in page["BackupSummaries"]])
            if "LastEvaluatedBackupArn" not in page:
                break
            start = {"ExclusiveStartBackupArn": page["LastEvaluatedBackupArn"]}
        assert [len(page) for page in pages if page] == [2, 2, 1]
        assert {arn for page in pages for arn in page} == arns
        at = [client.describe_backup(BackupArn=arn)["BackupDescription"]["BackupDetails"] for arn in arns]
        times = sorted(backup["BackupCreationDateTime"] for backup in at)
        assert len(listed(TableName=one, TimeRangeLowerBound=times[0])) == 5
        assert listed(TableName=one, TimeRangeUpperBound=times[0]) == []
        assert listed(TableName=one, BackupType="SYSTEM") == [] and len(listed(TableName=one, BackupType="ALL")) == 5
    finally:
        for arn in arns | arns_of_other:
            assert client.delete_backup(BackupArn=arn)["BackupDescription"]["BackupDetails"]["BackupStatus"] == "DELETED"
    assert client.list_backups(TableName=one)["BackupSummaries"] == []


def test_errors_name_what_is_wrong(client, table):
    source = table("p:S")
    arn = back_up(client, source)
    missing = arn[: arn.rindex("/")] + "/01489602797149-73d8d5bc"
    assert error_of(client.create_backup, TableName="missing", BackupName="abc") == (
        "TableNotFoundException",
        "Table not found: missing",
    )
    for call in (client.describe_backup, client.delete_backup):
        assert error_of(call, BackupArn=missing) == ("BackupNotFoundException", f"Backup not found: {missing}")
    target = {"TargetTableName": "new"}
    assert error_of(client.restore_table_from_backup, BackupArn=missing, **target)[0] == "BackupNotFoundException"
    of_other = arn.replace(source, "other")
    assert error_of(client.describe_backup, BackupArn=of_other)[0] == "BackupNotFoundException"
    no_backup = arn[: arn.index("/backup/")]
    assert error_of(client.describe_backup, BackupArn=no_backup)[0] == "ValidationException"
    code, text = error_of(client.restore_table_from_backup, BackupArn=arn, TargetTableName=source)
    assert (code, text) == ("TableAlreadyExistsException", f"Table already exists: {source}")
    code, text = error_of(client.create_backup, TableName=source, BackupName="a b c")
    assert code == "ValidationException" and "'backupName'" in text
    index = {"IndexName": "ind", "KeySchema": [], "Projection": {"ProjectionType": "ALL"}}
    index["KeySchema"] = [{"AttributeName": "p", "KeyType": "HASH"}]
    code, text = error_of(
        client.restore_table_from_backup, BackupArn=arn, GlobalSecondaryIndexOverride=[index], **target
    )
    assert code == "ValidationException" and "GlobalSecondaryIndexOverride" in text
    client.delete_backup(BackupArn=arn)
    assert error_of(client.describe_backup, BackupArn=arn)[0] == "BackupNotFoundException"


def test_a_deleted_table_comes_back_under_its_own_name_after_a_restart(own_node):
    client = client_of(own_node.endpoint)
    client.create_table(TableName="or-ders", **KEYS)
    fill(client, "or-ders")
    wanted = items(client, "or-ders")
    arn = back_up(client, "or-ders")
    client.delete_table(TableName="or-ders")
    client.create_table(TableName="or-ders", **KEYS)
    client.put_item(TableName="or-ders", Item={"p": pack("new"), "c": pack(1)})
    client.delete_table(TableName="or-ders")
    # An operator that clears snapshots does not take the backup away.
    own_node.nodetool("clearsnapshot", "--all")
    left = [line.split() for line in own_node.nodetool("listsnapshots").splitlines() if "or-ders" in line]
    assert [words[:3] for words in left] == [["backup-" + arn.rsplit("/")[-1], "alternator_or-ders", "or-ders"]]
    own_node.kill9()
    own_node.start()
    client = client_of(own_node.endpoint)
    restore(client, arn, "or-ders")
    assert items(client, "or-ders") == wanted
    # The restored table can be backed up, and a second table made of the first backup.
    again = back_up(client, "or-ders", "second")
    restore(client, again, "copy")
    restore(client, arn, "copy-2")
    assert items(client, "copy") == items(client, "copy-2") == wanted
    assert client.list_tables()["TableNames"] == ["copy", "copy-2", "or-ders"]


def test_a_restore_that_a_crash_interrupts_is_finished_after_it(own_node):
    client = client_of(own_node.endpoint)
    client.create_table(TableName="kept", **KEYS)
    fill(client, "kept")
    wanted = items(client, "kept")
    arn = back_up(client, "kept")
    made = client.restore_table_from_backup(TargetTableName="again", BackupArn=arn)["TableDescription"]
    assert made["TableStatus"] == "CREATING"
    own_node.kill9()
    own_node.start()
    client = client_of(own_node.endpoint)
    end = time.monotonic() + 60
    while client.describe_table(TableName="again")["Table"]["TableStatus"] != "ACTIVE":
        assert time.monotonic() < end
    assert items(client, "again") == wanted


@pytest.fixture
def three(request):
    (port,) = free_ports([address(number) for number in range(1, 4)], 1)
    cluster = Cluster(3, options=["--alternator-port", str(port)])
    request.addfinalizer(cluster.remove)
    cluster.form()
    cluster.clients = [client_of(f"http://{cluster.address(number)}:{port}") for number in range(1, 4)]
    return cluster


def kill_one(cluster):
    """Kills a node that does not lead the metadata group, and returns its number and the clients of the others."""
    leads = [node.metrics()["ceto_raft_is_leader"] for node in cluster]
    dead = leads.index(0) + 1
    cluster.kill(dead)
    return dead, [client for number, client in enumerate(cluster.clients, 1) if number != dead]


def test_three_nodes_back_up_and_restore_while_one_of_them_is_dead(three):
    client = three.clients[0]
    client.create_table(TableName="spread", **KEYS)
    fill(client, "spread")
    # The dead node misses what is deleted and written now.
    dead, alive = kill_one(three)
    key = {"p": pack("x"), "c": pack(1)}
    alive[1].delete_item(TableName="spread", Key=key)
    alive[1].put_item(TableName="spread", Item={"p": pack("late"), "c": pack(2)})
    wanted = items(alive[0], "spread")
    arn = back_up(alive[0], "spread")
    alive[1].delete_table(TableName="spread")
    restore(alive[1], arn, "spread")
    assert items(alive[0], "spread") == wanted
    three.start(dead)
    assert items(three.clients[dead - 1], "spread") == wanted
    # A backup that all three have files of is restored with the files of two.
    all_three = back_up(three.clients[dead - 1], "spread", "all-three")
    dead, alive = kill_one(three)
    restore(alive[1], all_three, "copy")
    assert items(alive[0], "copy") == wanted


def test_without_a_majority_of_the_replicas_no_backup_is_made_or_restored(three):
    client = three.clients[0]
    client.create_table(TableName="spread", **KEYS)
    client.put_item(TableName="spread", Item={"p": pack("x"), "c": pack(1)})
    arn = back_up(client, "spread")
    three.kill(2)
    three.kill(3)
    code, _ = error_of(client.create_backup, TableName="spread", BackupName="second")
    assert code in ("ServiceUnavailable", "InternalServerError")
    code, _ = error_of(client.restore_table_from_backup, TargetTableName="copy", BackupArn=arn)
    assert code in ("ServiceUnavailable", "InternalServerError")
    three.start(2)
    three.start(3)
    listed = client.list_backups()["BackupSummaries"]
    assert [backup["BackupArn"] for backup in listed] == [arn]
    restore(client, arn, "copy")
    assert len(items(client, "copy")) == 1


def test_a_backup_is_restored_after_a_node_has_joined(three):
    client = three.clients[0]
    client.create_table(TableName="spread", **KEYS)
    fill(client, "spread")
    wanted = items(client, "spread")
    arn = back_up(client, "spread")
    client.delete_table(TableName="spread")
    three.add()
    table = restore(three.clients[1], arn, "spread")
    assert not table["RestoreSummary"]["RestoreInProgress"]
    assert all(items(client, "spread") == wanted for client in three.clients)
