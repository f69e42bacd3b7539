"""The DynamoDB result backend of Celery, with a worker in a thread: celery_results.py ENDPOINT CUTTING_ENDPOINT PREFIX.

tests/drivers/test_dynamodb.py says what these are.
"""

import sys
from urllib.parse import urlsplit

import boto3
from celery import Celery, chord, group
from celery.contrib.testing.worker import start_worker
from checks import KEY, REGION, SECRET, Checks, raises

ENDPOINT, CUTTING_ENDPOINT, PREFIX = sys.argv[1:4]
TABLE = f"{PREFIX}-celery"
WAIT_SECONDS = 60
checks = Checks()
app = Celery(broker="memory://", backend=f"dynamodb://{KEY}:{SECRET}@{urlsplit(ENDPOINT).netloc}/{TABLE}?read=5&write=6&ttl_seconds=86400")
app.conf.update(result_extended=True, result_chord_join_timeout=WAIT_SECONDS)
client = boto3.client("dynamodb", endpoint_url=ENDPOINT, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET)


@app.task
def add(x, y):
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task(throws=(ValueError,))
def fails():
    raise ValueError("as it should")


@checks.check("the table is created with its throughput and TTL")
def creates():
    assert app.backend.get("none") is None
    table = client.describe_table(TableName=TABLE)["Table"]
    assert (table["TableStatus"], table["ProvisionedThroughput"]["WriteCapacityUnits"]) == ("ACTIVE", 6)
    ttl = client.describe_time_to_live(TableName=TABLE)["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}


@checks.check("results of tasks come back")
def results():
    result = add.delay(2, 3)
    assert result.get(timeout=WAIT_SECONDS) == 5
    assert (result.state, result.args) == ("SUCCESS", [2, 3])
    key = str(app.backend.get_key_for_task(result.id))
    assert "ttl" in client.get_item(TableName=TABLE, Key={"id": {"S": key}})["Item"]
    failed = fails.delay()
    assert str(raises(ValueError, failed.get, timeout=WAIT_SECONDS)) == "as it should"
    assert failed.state == "FAILURE"
    result.forget()
    assert result.state == "PENDING"


@checks.check("groups and chords join their results")
def joins():
    saved = group(add.s(i, i) for i in range(10)).apply_async()
    saved.save()
    assert app.GroupResult.restore(saved.id).get(timeout=WAIT_SECONDS) == [2 * i for i in range(10)]
    # Workers count the results of a chord in one item.
    assert chord((add.s(i, i) for i in range(10)), total.s()).apply_async().get(timeout=WAIT_SECONDS) == 90


@checks.check("the table is deleted")
def deletes():
    client.delete_table(TableName=TABLE)


with start_worker(app, perform_ping_check=False, pool="solo", concurrency=1):
    checks.run()
