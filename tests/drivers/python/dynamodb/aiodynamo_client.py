"""aiodynamo: aiodynamo_client.py ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are."""

import asyncio
import sys

import httpx
from aiodynamo.client import Client
from aiodynamo.credentials import Key, StaticCredentials
from aiodynamo.errors import ConditionalCheckFailed, ItemNotFound, TableNotFound, TransactionCanceled, ValidationException
from aiodynamo.expressions import F, HashKey, RangeKey
from aiodynamo.http.httpx import HTTPX
from aiodynamo.models import (
    BatchGetRequest,
    BatchWriteRequest,
    KeySchema,
    KeySpec,
    KeyType,
    PayPerRequest,
    ReturnValues,
    TableStatus,
    TimeToLiveStatus,
)
from aiodynamo.operations import ConditionCheck, Delete, Get, Put, Update
from checks import KEY, REGION, SECRET, Checks
from yarl import URL

ENDPOINT, CUTTING_ENDPOINT, PREFIX = sys.argv[1:4]
NAME = f"{PREFIX}-aio"
ITEMS = 150
BATCH_ITEMS = 25
KILOBYTES_10 = "y" * 10_000
SINNERMAN = {"artist": "Nina Simone", "year": 1965}
checks = Checks()


async def raises(error, request):
    try:
        await request
    except error as raised:
        return raised
    raise AssertionError(f"no {error.__name__}")


async def years(items):
    return [item["year"] async for item in items]


@checks.check("a table is created and described")
async def creates(client, table):
    await raises(TableNotFound, table.describe())
    assert not await table.exists()
    keys = KeySchema(KeySpec("artist", KeyType.string), KeySpec("year", KeyType.number))
    await table.create(PayPerRequest(), keys, wait_for_active=True)
    described = await table.describe()
    assert (described.status, described.key_schema, described.item_count) == (TableStatus.active, keys, 0)
    assert described.created is not None and isinstance(described.throughput, PayPerRequest)
    await table.time_to_live.enable("ends", wait_for_enabled=True)
    ttl = await table.time_to_live.describe()
    assert (ttl.status, ttl.attribute) == (TimeToLiveStatus.enabled, "ends")


@checks.check("an item comes back as it was")
async def puts(client, table):
    item = SINNERMAN | {
        "empty": "", "none": None, "yes": True, "number": 0.5, "bytes": b"\x00\xff", "texts": {"a", "b"}, "numbers": {1, 2}, "binaries": {b"\x01"},
        "list": [1, "a", [], {}], "map": {"deep": {"er": [None]}},
    }  # fmt: skip
    await table.put_item(item)
    assert await table.get_item(SINNERMAN, consistent_read=True) == item
    assert await table.get_item(SINNERMAN, projection=F("map", "deep") & F("list", 1)) == {"map": {"deep": {"er": [None]}}, "list": ["a"]}
    await raises(ItemNotFound, table.get_item({"artist": "none", "year": 1}))
    await raises(ConditionalCheckFailed, table.put_item(item, condition=F("artist").does_not_exist()))
    assert await table.put_item(item, return_values=ReturnValues.all_old) == item
    await raises(ValidationException, table.put_item({"artist": "", "year": 1}))


@checks.check("updates, conditions and deletes")
async def updates(client, table):
    expression = (
        F("number").change(1) & F("fresh").set_if_not_exists("f") & F("list").append([9]) & F("yes").remove() & F("added").add(2) & F("texts").delete({"a"})
    )
    condition = F("texts").contains("b") & F("number").between(0, 1) & ~F("no such").exists() & F("list").size().gte(4) & F("empty").is_in(["", "x"])
    updated = await table.update_item(SINNERMAN, expression, condition=condition, return_values=ReturnValues.all_new)
    assert (updated["number"], updated["fresh"], updated["list"][4], updated["added"], updated["texts"]) == (1.5, "f", 9, 2, {"b"})
    assert "yes" not in updated
    await raises(ConditionalCheckFailed, table.update_item(SINNERMAN, F("x").set(1), condition=F("number").gt(100) | F("empty").begins_with("z")))
    assert (await table.delete_item(SINNERMAN, return_values=ReturnValues.all_old, condition=F("added").equals(2)))["fresh"] == "f"
    await raises(ItemNotFound, table.get_item(SINNERMAN))


@checks.check("batches, queries and scans")
async def many(client, table):
    items = [{"artist": "many", "year": year, "text": KILOBYTES_10} for year in range(ITEMS)]
    while items:
        written = await client.batch_write({NAME: BatchWriteRequest(items_to_put=items[:BATCH_ITEMS])})
        items = items[BATCH_ITEMS:] + (written[NAME].unput_items if NAME in written else [])
    assert await years(table.query(HashKey("artist", "many"))) == list(range(ITEMS))
    between = HashKey("artist", "many") & RangeKey("year").between(3, 6)
    assert await years(table.query(between, filter_expression=F("text").exists(), scan_forward=False)) == [6, 5, 4, 3]
    page = await table.query_single_page(HashKey("artist", "many"), limit=10)
    assert page.last_evaluated_key == {"artist": "many", "year": 9}
    assert await years(table.query(HashKey("artist", "many"), start_key=page.last_evaluated_key, limit=2, projection=F("year"))) == [10, 11]
    assert await table.count(HashKey("artist", "many") & RangeKey("year").lt(7)) == 7
    assert sorted(await years(table.scan(projection=F("year")))) == list(range(ITEMS))
    assert await table.scan_count(filter_expression=F("year").gte(100)) == 50
    read = await client.batch_get({NAME: BatchGetRequest(keys=[{"artist": "many", "year": year} for year in (3, -1)])})
    assert ([item["year"] for item in read.items[NAME]], read.unprocessed_keys) == ([3], {})
    await client.batch_write({NAME: BatchWriteRequest(keys_to_delete=[{"artist": "many", "year": 3}])})
    assert await table.scan_count() == ITEMS - 1


@checks.check("transactions")
async def transactions(client, table):
    # Without a token the library sends one that is null.
    for token in (None, f"{PREFIX}-token"[-36:]):
        await client.transact_write_items(
            [
                Put(NAME, {"artist": "both", "year": 1, "token": token}),
                Update(NAME, {"artist": "many", "year": 60}, F("plays").add(1)),
                Delete(NAME, {"artist": "many", "year": 61}),
                ConditionCheck(NAME, {"artist": "many", "year": 62}, F("text").exists()),
            ],
            request_token=token,
        )
    read = await client.transact_get_items([Get(NAME, {"artist": "both", "year": 1}), Get(NAME, {"artist": "many", "year": 60}, projection=F("plays"))])
    assert (read[0]["year"], read[1]) == (1, {"plays": 2})
    refused = [Put(NAME, {"artist": "both", "year": 2}), Put(NAME, {"artist": "both", "year": 1}, condition=F("artist").does_not_exist())]
    failure = await raises(TransactionCanceled, client.transact_write_items(refused))
    assert [reason and reason.code for reason in failure.cancellation_reasons] == [None, "ConditionalCheckFailed"]
    await raises(ItemNotFound, table.get_item({"artist": "both", "year": 2}))


@checks.check("a table is deleted")
async def deletes(client, table):
    await table.delete(wait_for_disabled=True)
    assert not await table.exists()


async def with_client(check):
    async with httpx.AsyncClient() as http:
        client = Client(HTTPX(http), StaticCredentials(Key(KEY, SECRET)), REGION, URL(ENDPOINT))
        await check(client, client.table(NAME))


checks.run(lambda check: asyncio.run(with_client(check)))
