"""Query, Scan, batches and statements, with the SDK's own paginators."""

import pytest
from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import ClientError

pack = TypeSerializer().serialize


def fill(client, name, partitions=3, items=30):
    """Items (p, c) with n = c, by batches of 25."""
    rows = [{"p": pack(f"p{p}"), "c": pack(c), "n": pack(c)} for p in range(partitions) for c in range(items)]
    for first in range(0, len(rows), 25):
        requests = [{"PutRequest": {"Item": row}} for row in rows[first : first + 25]]
        answer = client.batch_write_item(RequestItems={name: requests})
        assert answer["UnprocessedItems"] == {}


def test_pages_of_a_query_are_all_of_it_in_both_orders(client, table):
    name = table("p:S", "c:N")
    fill(client, name)
    for forward in (True, False):
        pages = client.get_paginator("query").paginate(
            TableName=name,
            KeyConditionExpression="p = :p AND c BETWEEN :low AND :high",
            ExpressionAttributeValues={":p": pack("p1"), ":low": pack(3), ":high": pack(20)},
            ScanIndexForward=forward,
            PaginationConfig={"PageSize": 5},
        )
        found = [int(row["c"]["N"]) for page in pages for row in page["Items"]]
        expected = list(range(3, 21))
        assert found == (expected if forward else expected[::-1])


def test_segments_of_a_scan_are_the_table(client, table):
    name = table("p:S", "c:N")
    fill(client, name)
    found = []
    for segment in range(4):
        pages = client.get_paginator("scan").paginate(
            TableName=name, Segment=segment, TotalSegments=4, PaginationConfig={"PageSize": 7}
        )
        found += [(row["p"]["S"], int(row["c"]["N"])) for page in pages for row in page["Items"]]
    assert sorted(found) == [(f"p{p}", c) for p in range(3) for c in range(30)]


def test_a_filter_drops_items_after_the_limit_has_counted_them(client, table):
    name = table("p:S", "c:N")
    fill(client, name, partitions=1)
    answer = client.query(
        TableName=name,
        KeyConditionExpression="p = :p",
        FilterExpression="n >= :n",
        ExpressionAttributeValues={":p": pack("p0"), ":n": pack(8)},
        Limit=10,
    )
    assert (answer["Count"], answer["ScannedCount"]) == (2, 10)
    assert answer["LastEvaluatedKey"] == {"p": pack("p0"), "c": pack(9)}


def test_a_page_ends_at_a_megabyte(client, table):
    name = table("p:S", "c:N")
    for c in range(5):
        client.put_item(TableName=name, Item={"p": pack("k"), "c": pack(c), "v": pack("x" * 300_000)})
    first = client.query(
        TableName=name, KeyConditionExpression="p = :p", ExpressionAttributeValues={":p": pack("k")}
    )
    assert 0 < first["Count"] < 5 and "LastEvaluatedKey" in first


def test_a_batch_names_every_table_that_was_asked(client, table):
    one, two = table("p:S"), table("p:S", "c:N")
    client.put_item(TableName=one, Item={"p": pack("k"), "v": pack(1)})
    answer = client.batch_get_item(
        RequestItems={
            one: {"Keys": [{"p": pack("k")}, {"p": pack("none")}]},
            two: {"Keys": [{"p": pack("k"), "c": pack(1)}]},
        }
    )
    assert answer["Responses"] == {one: [{"p": pack("k"), "v": pack(1)}], two: []}
    assert answer["UnprocessedKeys"] == {}
    with pytest.raises(ClientError) as failure:
        client.batch_get_item(RequestItems={one: {"Keys": [{"p": pack("k")}, {"p": pack("k")}]}})
    assert "duplicates" in failure.value.response["Error"]["Message"]


def test_statements_of_partiql_read_and_write(client, table):
    name = table("p:S", "c:N")

    def run(text, *values):
        parameters = {"Parameters": [pack(value) for value in values]} if values else {}
        return client.execute_statement(Statement=text.format(name=name), **parameters)["Items"]

    run("INSERT INTO \"{name}\" VALUE {{'p': ?, 'c': ?, 'n': 1}}", "k", 1)
    with pytest.raises(ClientError) as failure:
        run("INSERT INTO \"{name}\" VALUE {{'p': ?, 'c': ?}}", "k", 1)
    assert failure.value.response["Error"]["Code"] == "DuplicateItemException"
    changed = run("UPDATE \"{name}\" SET n = n + 4 WHERE p = ? AND c = ? RETURNING ALL NEW *", "k", 1)
    assert changed == [{"p": pack("k"), "c": pack(1), "n": pack(5)}]
    assert run("SELECT n FROM \"{name}\" WHERE p = ?", "k") == [{"n": pack(5)}]
    assert run("SELECT * FROM \"{name}\" WHERE n > 5") == []
    run("DELETE FROM \"{name}\" WHERE p = ? AND c = ?", "k", 1)
    assert run("SELECT * FROM \"{name}\"") == []


def test_a_statement_returns_a_path_under_its_last_name(client, table):
    name = table("p:S", "c:N")
    document = {"city": "Oslo", "list": [{"deep": 1}, 2]}
    client.put_item(TableName=name, Item={"p": pack("k"), "c": pack(1), "m": pack(document)})
    text = f'SELECT c, m.city, m.list[0].deep, m.none -- not all\nFROM "{name}" WHERE p = \'k\''
    found = client.execute_statement(Statement=text)["Items"]
    assert found == [{"c": pack(1), "city": pack("Oslo"), "deep": pack(1)}]


def test_statements_order_several_partitions(client, table):
    name = table("p:S", "c:N")
    fill(client, name, partitions=3, items=3)

    def run(order):
        text = f"SELECT p, c FROM \"{name}\" WHERE p IN ['p2', 'p0'] ORDER BY {order}"
        return [item["p"]["S"] + item["c"]["N"] for item in client.execute_statement(Statement=text)["Items"]]

    assert run("p") == ["p00", "p01", "p02", "p20", "p21", "p22"]
    assert run("p DESC, c") == ["p20", "p21", "p22", "p00", "p01", "p02"]
    assert run("p, c DESC") == ["p02", "p01", "p00", "p22", "p21", "p20"]
    with pytest.raises(ClientError) as failure:
        run("c")
    assert "ORDER BY of the sort key is not supported" in failure.value.response["Error"]["Message"]
